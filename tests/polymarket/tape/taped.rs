//! A connector that is recorded to a tape, everything it published, and everything the tape
//! publishes.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use paperbourse::ids::OutcomeIndex;
use paperbourse::market::book::Book;
use paperbourse::market::catalogue::{MarketInfo, MarketStatus};
use paperbourse::market::{Market, Markets};
use paperbourse::venue::feed::{Feed, FeedCounts, MismatchPolicy};
use paperbourse::venue::follow::status::LiveSnapshot;
use paperbourse::venue::polymarket::filter::MarketFilter;
use paperbourse::venue::polymarket::live::{Replay, ReplayCounts};
use paperbourse::venue::tape::{Line, Recorder, Step, Tape, TapeLimits, TapeReport, TapeTotals};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::auditor::{levels_of, levels_of_state};
use crate::connector::{Connector, QUICK};
use crate::standin::world::{condition_id, token_id};
use crate::standin::{Sent, StandIn};

/// A test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// The tokens of an invented market.
pub(crate) fn both(number: usize) -> [String; 2] {
    [token_id(number, 0), token_id(number, 1)]
}

/// The tokens of the first `market_count` invented markets.
pub(crate) fn tokens(market_count: usize) -> Vec<String> {
    (0..market_count).flat_map(both).collect()
}

pub(crate) fn feed() -> Feed {
    Feed::new(Arc::new(Markets::new()), MismatchPolicy::Distrust)
}

/// Everything published that was seen.
#[derive(Default, Debug)]
pub(crate) struct Seen {
    /// By token and sequence number.
    books: BTreeMap<(String, u64), Arc<Book>>,
    /// By condition id, in order.
    infos: HashMap<String, Vec<Arc<MarketInfo>>>,
}

impl Seen {
    fn look_at(&mut self, market: &Market) {
        let info = market.info().clone();
        for (index, outcome) in (0..).zip(&info.outcomes) {
            if let Some(book) = &*market.book(OutcomeIndex(index)) {
                self.books.insert((outcome.token_id.to_string(), book.sequence), book.clone());
            }
        }
        let infos = self.infos.entry(info.condition_id.to_string()).or_default();
        if infos.last() != Some(&info) {
            infos.push(info);
        }
    }

    /// The newest book of each token.
    pub(crate) fn last_books(&self) -> BTreeMap<String, Arc<Book>> {
        self.books.iter().map(|((token, _), book)| (token.clone(), book.clone())).collect()
    }

    /// Asserts that a tape published everything that was seen, in the same places, and nothing
    /// after it.
    pub(crate) fn check_played(&self, played: &Self) {
        assert!(self.books.len() > 100, "{} books", self.books.len());
        for (place, book) in &self.books {
            assert_eq!(played.books.get(place), Some(book), "{place:?}");
        }
        assert_eq!(self.last_books(), played.last_books());
        assert_eq!(self.infos.len(), played.infos.len());
        for (condition_id, infos) in &self.infos {
            let mut others = played.infos[condition_id].iter();
            for info in infos {
                assert!(others.any(|other| other == info), "never played: {info:?}");
            }
            assert_eq!(others.next(), None, "played after the end of {condition_id}");
        }
    }
}

/// The newest book of each token.
pub(crate) fn last_books(markets: &Markets) -> BTreeMap<String, Arc<Book>> {
    let mut seen = Seen::default();
    markets.listing().markets().iter().for_each(|market| seen.look_at(market));
    seen.last_books()
}

/// A connector that is being recorded.
pub(crate) struct Taped {
    pub(crate) venue: StandIn,
    connector: Connector,
    recorder: Recorder,
    folder: TempDir,
    seen: Arc<Mutex<Seen>>,
    looks: watch::Receiver<u64>,
    looking: JoinHandle<()>,
}

/// The results of a recording.
pub(crate) struct Recorded {
    pub(crate) folder: TempDir,
    pub(crate) totals: TapeTotals,
    pub(crate) seen: Seen,
    pub(crate) sent: Vec<Sent>,
}

impl Taped {
    pub(crate) fn start(venue: StandIn, market_count: usize, limits: TapeLimits) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().to_owned();
        Self { folder, ..Self::start_in(venue, market_count, limits, &path) }
    }

    /// Records into the caller's folder.
    pub(crate) fn start_in(
        venue: StandIn,
        market_count: usize,
        limits: TapeLimits,
        folder: &Path,
    ) -> Self {
        let recorder = Recorder::start(folder, limits).unwrap();
        let filter = MarketFilter { count_max: market_count, ..MarketFilter::default() };
        let policy = MismatchPolicy::Distrust;
        let tap = recorder.sender().into();
        let connector = Connector::start_tapped(&venue, filter, QUICK, policy, tap);
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (looked, looks) = watch::channel(0);
        let looking = tokio::spawn({
            let (markets, seen) = (connector.markets.clone(), seen.clone());
            async move {
                loop {
                    for market in markets.changes().await {
                        seen.lock().look_at(&market);
                    }
                    looked.send_modify(|looks| *looks += 1);
                }
            }
        });
        let folder = TempDir::new().unwrap();
        Self { venue, connector, recorder, folder, seen, looks, looking }
    }

    pub(crate) fn markets(&self) -> &Markets {
        &self.connector.markets
    }

    pub(crate) fn status(&self) -> LiveSnapshot {
        self.connector.status()
    }

    pub(crate) fn status_of(&self, number: usize) -> Option<MarketStatus> {
        let market = self.connector.markets.by_condition(&condition_id(number))?;
        Some(market.info().status)
    }

    pub(crate) fn is_fresh(&self, token: &str) -> bool {
        self.connector.fresh(token).is_some()
    }

    /// Whether each of these books is fresh and equals the venue's newest.
    pub(crate) fn is_settled(&self, tokens: &[String]) -> bool {
        tokens.iter().all(|token| {
            let newest = self.venue.published(token).pop();
            let levels = newest.as_ref().map(levels_of_state);
            self.connector.fresh(token).is_some_and(|book| Some(levels_of(&book)) == levels)
        })
    }

    /// Waits until the condition holds.
    #[track_caller]
    pub(crate) fn until<'a>(
        &'a self,
        what: &'a str,
        condition: impl Fn(&Self) -> bool + 'a,
    ) -> impl Future<Output = ()> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            let mut looks = self.looks.clone();
            let waiting = async {
                while !condition(self) {
                    // Counters change even if no book does.
                    let _ = tokio::time::timeout(QUICK.sweep_interval, looks.changed()).await;
                }
            };
            let result = tokio::time::timeout(PATIENCE, waiting).await;
            assert!(result.is_ok(), "{caller}: timed out waiting for {what}; {:?}", self.status());
        }
    }

    pub(crate) async fn finish(self) -> Recorded {
        let Self { venue, connector, recorder, folder, seen, looking, .. } = self;
        let markets = connector.markets.clone();
        drop(connector);
        // Its task ends the next time it runs.
        tokio::task::yield_now().await;
        looking.abort();
        let (totals, result) = recorder.finish("asked").await;
        result.unwrap();
        let mut seen = std::mem::take(&mut *seen.lock());
        markets.listing().markets().iter().for_each(|market| seen.look_at(market));
        Recorded { folder, totals, seen, sent: venue.sent() }
    }
}

/// An owned line of a tape.
pub(crate) struct OwnedLine {
    pub(crate) kind: String,
    pub(crate) ns: i64,
    pub(crate) get: String,
    pub(crate) payload: Option<Vec<u8>>,
}

/// The lines of a tape, and everything it publishes.
pub(crate) struct Played {
    pub(crate) lines: Vec<OwnedLine>,
    pub(crate) seen: Seen,
    pub(crate) report: TapeReport,
    pub(crate) counts: ReplayCounts,
    pub(crate) feed_counts: FeedCounts,
}

impl Played {
    pub(crate) fn of(folder: &Path) -> Self {
        let mut tape = Tape::open(folder).unwrap().expect("the folder holds a tape");
        let mut replay = Replay::new(feed());
        let (mut lines, mut seen) = (Vec::new(), Seen::default());
        while let Some(step) = tape.step() {
            match step {
                Step::Missing(count) => replay.miss(count),
                Step::Line(line) => {
                    let line = Line::read(line).unwrap();
                    replay.take(&line);
                    lines.push(OwnedLine {
                        kind: line.kind.to_string(),
                        ns: line.ns,
                        get: line.get.as_deref().unwrap_or_default().to_owned(),
                        payload: line.payload().unwrap().map(Cow::into_owned),
                    });
                }
            }
            for market in replay.feed().markets().listing().markets() {
                seen.look_at(market);
            }
        }
        let (report, counts) = (tape.report().clone(), replay.counts());
        Self { lines, seen, report, counts, feed_counts: replay.feed().counts() }
    }
}
