//! Checks every book that traders could have filled on against what the venue published.
//!
//! The auditor is independent of how books are followed. It reads the published books as an order
//! does, on every change and every few milliseconds. Afterwards, each book on which an order could
//! have filled must be a state of the venue's book that had not ended too long before.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use paperbourse::market::Markets;
use paperbourse::market::book::{Book, Ladder, Level};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::standin::{PublishedBook, StandIn, micros, now_us};

/// The time between two looks if nothing changes.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// The longest time, in any row, from the venue's change to our look at it when nothing goes wrong:
/// frames in transit, and tasks that wait for their turn.
pub(crate) const SLACK: Duration = Duration::from_millis(400);

/// A test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bids and asks, best first; prices and sizes in millionths.
type Levels = [Vec<(i64, i64)>; 2];

/// Looks at the books until it is dropped.
pub(crate) struct Auditor {
    seen: Arc<Mutex<Seen>>,
    looks: watch::Receiver<u64>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    /// By token and sequence number.
    books: HashMap<(String, u64), Sightings>,
    /// Tokens whose book could not be filled on at some look.
    unfillable: HashSet<String>,
}

struct Sightings {
    levels: Levels,
    at_us: Vec<u64>,
}

impl Auditor {
    /// Looks at these tokens. It takes the list of changes, so nothing else can.
    pub(crate) fn start(markets: Arc<Markets>, tokens: Vec<String>) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (ticks, looks) = watch::channel(0);
        let task = tokio::spawn({
            let seen = seen.clone();
            async move {
                let mut interval = tokio::time::interval(LOOK_INTERVAL);
                interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
                loop {
                    tokio::select! {
                        _ = markets.changes() => {}
                        _ = interval.tick() => {}
                    }
                    seen.lock().look(&markets, &tokens);
                    ticks.send_modify(|count| *count += 1);
                }
            }
        });
        Self { seen, looks, task }
    }

    /// Waits until the condition holds.
    #[track_caller]
    pub(crate) fn until<'a>(
        &self,
        what: &'a str,
        condition: impl Fn() -> bool + 'a,
    ) -> impl Future<Output = ()> + 'a {
        let caller = std::panic::Location::caller();
        let mut looks = self.looks.clone();
        async move {
            let waiting = async {
                while !condition() {
                    looks.changed().await.unwrap();
                }
            };
            let result = tokio::time::timeout(PATIENCE, waiting).await;
            assert!(result.is_ok(), "{caller}: timed out waiting for {what}");
        }
    }

    /// Forgets which books could not be filled on.
    pub(crate) fn forget_unfillable(&self) {
        self.seen.lock().unfillable.clear();
    }

    /// Whether this token's book could not be filled on at some look.
    pub(crate) fn was_unfillable(&self, token: &str) -> bool {
        self.seen.lock().unfillable.contains(token)
    }

    /// The number of publications that could be filled on, and the complaints about them if no book
    /// may be used for longer than `within` after it has ended.
    pub(crate) fn complaints(&self, venue: &StandIn, within: Duration) -> (usize, Vec<String>) {
        let seen = self.seen.lock();
        let bound = within + SLACK;
        let mut published: HashMap<&str, HashMap<Levels, Vec<PublishedBook>>> = HashMap::new();
        let mut complaints = Vec::new();
        for ((token, number), sightings) in &seen.books {
            let states = published.entry(token).or_insert_with(|| {
                let mut states: HashMap<Levels, Vec<PublishedBook>> = HashMap::new();
                for state in venue.published(token) {
                    states.entry(levels_of_state(&state)).or_default().push(state);
                }
                states
            });
            let Some(states) = states.get(&sightings.levels) else {
                let [bids, asks] = &sightings.levels;
                let top = (bids.first(), asks.first());
                complaints.push(format!("{token} #{number}: never the venue's book: {top:?}"));
                continue;
            };
            let oldest = sightings.at_us.iter().map(|&at| age(states, at)).max();
            match oldest.flatten() {
                Some(age) if age <= bound => {}
                Some(age) => {
                    let late = format!("used {age:?} after it had ended; {bound:?} is allowed");
                    complaints.push(format!("{token} #{number}: {late}"));
                }
                None => complaints.push(format!("{token} #{number}: used before it existed")),
            }
        }
        complaints.sort_unstable();
        (seen.books.len(), complaints)
    }
}

impl Drop for Auditor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Seen {
    fn look(&mut self, markets: &Markets, tokens: &[String]) {
        // Read the clock before the books, which are then at least as new.
        let now = now_us();
        let listing = markets.listing();
        for token in tokens {
            let Some((market, outcome)) = listing.by_token(token) else { continue };
            let snapshot = market.snapshot();
            let quoted = snapshot.quoted(outcome).filter(|quoted| !quoted.book.stale);
            let Some(quoted) = quoted.filter(|_| snapshot.info().is_tradable()) else {
                self.unfillable.insert(token.clone());
                continue;
            };
            // A mirrored book is the sister token's, which is looked at as well.
            let own = market.book(outcome);
            if own.as_deref().is_some_and(|own| std::ptr::eq(own, quoted.book)) {
                let key = (token.clone(), quoted.book.sequence);
                let sightings = self.books.entry(key).or_insert_with(|| Sightings {
                    levels: levels_of(quoted.book),
                    at_us: Vec::new(),
                });
                sightings.at_us.push(now);
            }
        }
    }
}

/// How long ago, at this time, the newest of the states that had begun had ended; `None` if none
/// had begun.
fn age(states: &[PublishedBook], at_us: u64) -> Option<Duration> {
    let begun = states.iter().filter(|state| state.from_us <= at_us);
    let ages = begun.map(|state| match state.until_us {
        Some(until) => at_us.saturating_sub(until),
        None => 0,
    });
    ages.min().map(Duration::from_micros)
}

/// A book in the form that the auditor compares.
pub(crate) fn levels_of(book: &Book) -> Levels {
    let ladder: &Ladder = book.ladder();
    [ladder.bids(), ladder.asks()].map(|side| {
        let best_first = side.iter().rev();
        best_first.map(|Level { price, size }| (price.micros(), size.micros())).collect()
    })
}

/// A state of the venue's book in the form that the auditor compares.
pub(crate) fn levels_of_state(state: &PublishedBook) -> Levels {
    [&state.bids, &state.asks]
        .map(|side| side.iter().map(|(price, size)| (micros(price), micros(size))).collect())
}
