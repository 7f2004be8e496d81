//! Takes turns among those who could keep a worker busy alone.
//!
//! A worker serves requests and readers of prices on one thread. If a change woke all its readers
//! at once, a thousand writes would run before the next request. So readers queue here, and
//! [`Turns::run`] gives a few of them their turn whenever the worker has nothing else to do, or has
//! done a fair amount of it. A reader that waits sends the newest prices when its turn comes, and
//! those that have waited for long get about a quarter of the worker's time: under load, prices are
//! conflated rather than late.
//!
//! A reader asks for a turn when something is due to it, and queues once, whatever happens
//! meanwhile.
//!
//! Clients that send requests far ahead of the answers wait in a queue of the same kind, apart from
//! the readers, where nobody is ever late: their requests are always at hand, and would run before
//! everybody else's.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::Instant;

use self::atomics::{AtomicU8, Ordering};
use std::sync::atomic::AtomicU64;

#[cfg(not(paperbourse_loom))]
use std::sync::atomic as atomics;

#[cfg(paperbourse_loom)]
use loom::sync::atomic as atomics;

/// How many readers have a turn before the worker looks at its requests again. Each writes one
/// batch, which takes from ten microseconds, for a frame, to a hundred; a look takes one or two
/// if there is nothing to do.
pub const READERS_PER_ROUND: usize = 2;

/// The longer the queue, the more readers have a turn in a round, so that the last one has its turn
/// within a few times this many looks at requests; but no more than fit into [`ROUND_TIME_MAX`].
pub const ROUNDS_PER_LAP: usize = 256;

/// A round takes no longer than this, unless it has only [`READERS_PER_ROUND`] turns, or readers
/// are late.
const ROUND_TIME_MAX: Duration = Duration::from_micros(100);

/// A reader of prices that has waited for this long is late.
pub const LATE_AFTER: Duration = Duration::from_millis(20);

/// Late readers get a third of the time that everything else took since the last round, which is a
/// quarter in all.
const LATE_SHARE: u32 = 3;

/// The most time of a round of late readers. A look at hundreds of requests takes three times as
/// long.
const LATE_TIME_MAX: Duration = Duration::from_millis(1);

/// The shortest that a turn is taken to be, and what is assumed of turns that are not timed.
const TURN_TIME_MIN: Duration = Duration::from_micros(10);

/// The readers of one worker that wait for their turn.
pub struct Turns {
    queue: Mutex<Queue>,
    asked: Notify,
    /// How long a reader waits until it is late; `None`: never.
    late_after: Option<Duration>,
    /// When the first and the last turn of this round began, in nanoseconds since `began`; 0 before
    /// the first. Only the worker's thread writes them.
    first_turn_ns: AtomicU64,
    last_turn_ns: AtomicU64,
    began: Instant,
}

struct Queue {
    waiting: VecDeque<Waiting>,
    /// When the last round was given, and how many turns it had.
    given_at: Instant,
    given_count: u32,
}

struct Waiting {
    place: Arc<Place>,
    since: Instant,
}

/// A reader's place among the others of its worker.
#[derive(Default)]
pub struct Place {
    turn: Turn,
    /// Wakes the reader, not only for its turn.
    wake: Arc<Notify>,
}

impl Default for Turns {
    /// Turns of readers of prices.
    fn default() -> Self {
        Self::new(Some(LATE_AFTER))
    }
}

impl Turns {
    /// A queue whose readers are late after this time; `None`: never.
    pub fn new(late_after: Option<Duration>) -> Self {
        let began = Instant::now();
        let queue = Queue { waiting: VecDeque::new(), given_at: began, given_count: 0 };
        Self {
            queue: Mutex::new(queue),
            asked: Notify::new(),
            late_after,
            first_turn_ns: AtomicU64::new(0),
            last_turn_ns: AtomicU64::new(0),
            began,
        }
    }

    /// Has the reader queue, unless it does or has its turn.
    pub(super) fn ask(&self, place: &Arc<Place>) {
        if place.turn.ask() {
            let since = Instant::now();
            let mut queue = self.queue.lock();
            queue.waiting.push_back(Waiting { place: place.clone(), since });
            let is_first = queue.waiting.len() == 1;
            drop(queue);
            if is_first {
                self.asked.notify_one();
            }
        }
    }

    /// Waits for a turn, for somebody whom nothing else wakes.
    pub async fn wait(&self, place: &Arc<Place>) {
        self.ask(place);
        while !place.take_turn() {
            place.wake.notified().await;
        }
    }

    /// Gives the next readers their turn. Returns how many.
    pub(super) fn give(&self) -> usize {
        let mut queue = self.queue.lock();
        let Queue { waiting, given_at, given_count } = &mut *queue;
        if waiting.is_empty() {
            return 0;
        }
        let now = Instant::now();
        let turn = self.turn_time(*given_count);
        let many = count_within(ROUND_TIME_MAX, turn).saturating_sub(READERS_PER_ROUND);
        let fair_count = READERS_PER_ROUND + many.min(waiting.len() / ROUNDS_PER_LAP);
        let late_count = self.late_after.map_or(0, |late_after| {
            let all_else = (now - *given_at).saturating_sub(turn * *given_count);
            let most = count_within((all_else / LATE_SHARE).min(LATE_TIME_MAX), turn);
            let is_late = |it: &&Waiting| now - it.since >= late_after;
            waiting.iter().take(most).take_while(is_late).count()
        });
        let count = waiting.len().min(fair_count.max(late_count));
        (*given_at, *given_count) = (now, u32::try_from(count).unwrap_or(u32::MAX));
        self.first_turn_ns.store(0, Ordering::Relaxed);
        for Waiting { place, .. } in waiting.drain(..count) {
            place.turn.give();
            place.wake.notify_one();
        }
        count
    }

    /// How long each turn of the last round took, if it had `count` turns. Turns follow one
    /// another, so the last one took about as long as the others, whose ends are known.
    fn turn_time(&self, count: u32) -> Duration {
        let [first_ns, last_ns] =
            [&self.first_turn_ns, &self.last_turn_ns].map(|ns| ns.load(Ordering::Relaxed));
        let known = match count.checked_sub(1) {
            Some(known_count @ 1..) if first_ns > 0 => {
                Duration::from_nanos(last_ns.saturating_sub(first_ns)) / known_count
            }
            _ => Duration::ZERO,
        };
        known.max(TURN_TIME_MIN)
    }

    /// A reader begins its turn.
    pub(super) fn note_turn(&self) {
        let ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if self.first_turn_ns.load(Ordering::Relaxed) == 0 {
            self.first_turn_ns.store(ns, Ordering::Relaxed);
        }
        self.last_turn_ns.store(ns, Ordering::Relaxed);
    }

    /// Gives turns forever, on the thread of the readers. Before each, `work` does what is more
    /// urgent: a worker with readers does not sleep, which is when it would do so otherwise.
    pub async fn run(&self, work: impl Fn()) -> Infallible {
        loop {
            work();
            if self.give() == 0 {
                self.asked.notified().await;
            }
            // Behind these readers, and behind the requests that have arrived meanwhile.
            yield_now().await;
        }
    }
}

/// How many turns of this length fit into this time.
fn count_within(time: Duration, turn: Duration) -> usize {
    usize::try_from(time.as_nanos() / turn.as_nanos()).unwrap_or(usize::MAX)
}

impl Place {
    /// Takes the reader's turn, if it has one.
    pub(super) fn take_turn(&self) -> bool {
        self.turn.take()
    }

    /// Wakes the reader.
    pub(super) const fn wake_up(&self) -> &Arc<Notify> {
        &self.wake
    }
}

/// Whether a reader waits for a turn or has one.
///
/// Whoever finds that there is a turn to come leaves something for the reader before it asks, and
/// the reader takes its turn before it looks. So either the reader finds it, or it queues again.
struct Turn(AtomicU8);

const NONE: u8 = 0;
const ASKED: u8 = 1;
const GIVEN: u8 = 2;

impl Default for Turn {
    fn default() -> Self {
        Self(AtomicU8::new(NONE))
    }
}

impl Turn {
    /// Returns whether the reader has to queue.
    fn ask(&self) -> bool {
        self.0.compare_exchange(NONE, ASKED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Gives the turn that was asked for.
    fn give(&self) {
        self.0.store(GIVEN, Ordering::Release);
    }

    /// Returns whether there was a turn.
    fn take(&self) -> bool {
        self.0.compare_exchange(GIVEN, NONE, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

#[cfg(all(test, not(paperbourse_loom)))]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use tokio::task::{LocalSet, spawn_local};
    use tokio::time::advance;

    use super::*;

    #[test]
    fn a_reader_queues_once_and_again_after_its_turn() {
        let turns = Turns::default();
        let places: Vec<Arc<Place>> = (0..2).map(|_| Arc::default()).collect();
        assert_eq!(turns.give(), 0);
        for _ in 0..3 {
            turns.ask(&places[0]);
            turns.ask(&places[1]);
        }
        assert!(!places[0].take_turn());
        assert_eq!(turns.give(), 2);
        // It will look at everything in the turn that it has.
        turns.ask(&places[0]);
        assert_eq!(turns.give(), 0);
        assert!(places[0].take_turn() && !places[0].take_turn());
        turns.ask(&places[0]);
        assert_eq!(turns.give(), 1);
        assert!(places.iter().all(|place| place.take_turn()));
        assert!(turns.queue.lock().waiting.is_empty());
    }

    /// Seven hundred readers in rounds in which a turn takes `turn` and all else `rest`. Returns
    /// how many have a turn in a round in the end.
    async fn round_of(turns: &Turns, waited: Duration, turn: Duration, rest: Duration) -> usize {
        (0..700).for_each(|_| turns.ask(&Arc::default()));
        advance(waited).await;
        let mut count = 0;
        for _ in 0..5 {
            count = turns.give();
            for _ in 0..count {
                turns.note_turn();
                advance(turn).await;
            }
            advance(rest).await;
        }
        count
    }

    #[tokio::test(start_paused = true)]
    async fn late_readers_have_a_quarter_of_the_time() {
        const FEW: usize = READERS_PER_ROUND;
        const MANY: usize = READERS_PER_ROUND + 2;
        for (turn_us, rest_us, count, fair_count) in [
            (10, 1, MANY, MANY),
            (10, 300, 10, MANY),
            (20, 300, 5, MANY),
            // No less than others would have, who have less where turns are long.
            (25, 200, MANY, MANY),
            (40, 200, FEW, FEW),
            (100, 300, FEW, FEW),
            (10, 900, 30, MANY),
            // Not longer, however long all else took.
            (40, 30_000, 25, FEW),
            // A turn counts for ten microseconds at least.
            (1, 300, 7, MANY),
        ] {
            let [turn, rest] = [turn_us, rest_us].map(Duration::from_micros);
            let case = format!("turns of {turn:?} beside {rest:?}");
            let late = round_of(&Turns::default(), LATE_AFTER, turn, rest).await;
            assert_eq!(late, count, "{case}");
            // In time, and where nobody is ever late.
            let soon = Duration::from_micros(30);
            let in_time = round_of(&Turns::default(), Duration::ZERO, turn, soon).await;
            let never_late = round_of(&Turns::new(None), LATE_AFTER, turn, rest).await;
            assert_eq!((in_time, never_late), (fair_count, fair_count), "{case}");
        }
    }

    /// A request that arrives while a thousand readers wait runs after a few of them.
    #[tokio::test(start_paused = true)]
    async fn requests_come_first() {
        let turns = Arc::new(Turns::default());
        let tasks = LocalSet::new();
        let served = Rc::new(Cell::new(0));
        for _ in 0..1_000 {
            let place: Arc<Place> = Arc::default();
            turns.ask(&place);
            let served = served.clone();
            tasks.spawn_local(async move {
                place.wake_up().notified().await;
                assert!(place.take_turn());
                served.set(served.get() + 1);
            });
        }
        let worked = Rc::new(Cell::new(0));
        tasks.spawn_local({
            let (turns, worked) = (turns.clone(), worked.clone());
            async move { turns.run(|| worked.set(worked.get() + 1)).await }
        });
        tasks
            .run_until(async {
                while served.get() == 0 {
                    yield_now().await;
                }
                let mut most = 0;
                while served.get() < 1_000 {
                    // A request with several steps, each made by another task.
                    let before = served.get();
                    for _ in 0..3 {
                        spawn_local(yield_now()).await.unwrap();
                    }
                    most = most.max(served.get() - before);
                }
                let per_round = READERS_PER_ROUND + 1_000 / ROUNDS_PER_LAP;
                assert!(most <= 10 * per_round, "{most} readers ran before a request");
                assert!(worked.get() >= 1_000 / per_round);
            })
            .await;
    }
}

#[cfg(all(test, paperbourse_loom))]
mod model {
    //! In every order of the feed's marks, a worker's turns and a reader's looks, nothing that was
    //! marked stays behind while no turn is to come.

    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;
    use loom::thread;

    use super::super::dirty::{Cursor, DirtySet};
    use super::*;

    #[test]
    fn a_reader_without_a_turn_has_nothing_due() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(3));
        model.check(|| {
            let set = Arc::new(DirtySet::new(64));
            let turn = Arc::new(Turn::default());
            let is_queued = Arc::new(AtomicBool::new(false));
            let feeds = [3, 5].map(|slot| {
                let (set, turn, is_queued) = (set.clone(), turn.clone(), is_queued.clone());
                thread::spawn(move || {
                    if set.mark(slot) && turn.ask() {
                        // Stands for the queue, whose lock orders all changes.
                        is_queued.swap(true, Ordering::AcqRel);
                    }
                })
            });
            let (mut cursor, mut taken) = (Cursor::default(), Vec::new());
            let mut serve = || {
                if is_queued.swap(false, Ordering::AcqRel) {
                    turn.give();
                }
                if turn.take() {
                    taken.extend(std::iter::from_fn(|| set.next(&mut cursor)));
                }
            };
            serve();
            serve();
            for feed in feeds {
                feed.join().unwrap();
            }
            serve();
            taken.sort_unstable();
            assert_eq!(taken, [3, 5]);
        });
    }
}
