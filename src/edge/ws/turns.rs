//! Turns for clients that could each keep a worker busy on their own.
//!
//! A worker serves requests and price readers on one thread. If a change woke all its readers at
//! once, a thousand writes would run before the next request. So readers queue here, and
//! [`Turns::run`] gives a few of them their turn whenever the worker has done its other work: the
//! longer that took, the more readers get a turn. A queued reader sends the newest prices when its
//! turn comes, so under load prices are conflated rather than late.
//!
//! A reader asks for a turn when something is due to it, and queues only once until it gets that
//! turn.
//!
//! Clients that send requests far ahead of the answers wait in a separate queue of the same kind.
//! Their requests are always at hand, and would otherwise run before those of all other clients.

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

/// The minimum number of turns in a round.
pub const PER_ROUND_MIN: usize = 2;

/// The maximum number of readers that have a turn in a round.
const READERS_PER_ROUND_MAX: usize = 64;

/// The maximum total time of a round's turns, unless there are only [`PER_ROUND_MIN`]. A turn
/// writes one batch, which takes ten microseconds for a single frame, and up to a hundred. This
/// bounds how long requests wait, however much is due to readers.
const ROUND_TIME_MAX: Duration = Duration::from_millis(1);

/// Between the minimum and the maximum, a round gives one turn for each period of this length since
/// the last round. That is about an eighth of a busy worker's time, however long the worker spends
/// on its requests. If readers got half of the time, prices would be half as late beside trades
/// that saturate the server (a p99 of 43 ms instead of 85). But the p99 of a trade beside 1,000
/// readers would be 1.6 times that of a trade alone, instead of 1.1 times.
const TIME_PER_READER: Duration = Duration::from_micros(80);

/// The queue of one worker's readers that wait for their turn.
pub struct Turns {
    queue: Mutex<Queue>,
    asked: Notify,
    per_round_max: usize,
    /// When the first and the last turn of this round started, in nanoseconds since `began`; 0
    /// before the first. Written only by the worker's thread.
    first_turn_ns: AtomicU64,
    last_turn_ns: AtomicU64,
    began: Instant,
}

struct Queue {
    waiting: VecDeque<Arc<Place>>,
    /// When the last round was given, or when the first reader joined an empty queue, if that was
    /// later.
    since: Instant,
    /// Number of turns in the last round.
    given_count: usize,
}

/// A reader's place in the queue of its worker.
#[derive(Default)]
pub struct Place {
    turn: Turn,
    /// Wakes the reader, for its turn or for other reasons.
    wake: Arc<Notify>,
}

impl Default for Turns {
    /// The turns of price readers.
    fn default() -> Self {
        Self::new(READERS_PER_ROUND_MAX)
    }
}

impl Turns {
    /// Creates the turns of clients that send requests ahead of the answers.
    pub fn of_requests() -> Self {
        Self::new(PER_ROUND_MIN)
    }

    fn new(per_round_max: usize) -> Self {
        let began = Instant::now();
        let queue = Queue { waiting: VecDeque::new(), since: began, given_count: 0 };
        Self {
            queue: Mutex::new(queue),
            asked: Notify::new(),
            per_round_max,
            first_turn_ns: AtomicU64::new(0),
            last_turn_ns: AtomicU64::new(0),
            began,
        }
    }

    /// Queues the reader, unless it is queued already or has been given a turn.
    pub(super) fn ask(&self, place: &Arc<Place>) {
        if place.turn.ask() {
            let mut queue = self.queue.lock();
            let is_first = queue.waiting.is_empty();
            // Time during which no reader waited entitles no reader to a turn.
            if is_first {
                queue.since = Instant::now();
            }
            queue.waiting.push_back(place.clone());
            drop(queue);
            if is_first {
                self.asked.notify_one();
            }
        }
    }

    /// Waits for a turn. For tasks that nothing else wakes.
    pub async fn wait(&self, place: &Arc<Place>) {
        self.ask(place);
        while !place.take_turn() {
            place.wake.notified().await;
        }
    }

    /// Gives the next readers their turn, and returns the number of these readers.
    pub(super) fn give(&self) -> usize {
        let mut queue = self.queue.lock();
        let Queue { waiting, since, given_count } = &mut *queue;
        if waiting.is_empty() {
            return 0;
        }
        let now = Instant::now();
        let elapsed = now - std::mem::replace(since, now);
        let share = count_within(elapsed, TIME_PER_READER);
        let share = self
            .turn_time(*given_count)
            .map_or(share, |turn| share.min(count_within(ROUND_TIME_MAX, turn)));
        let count = waiting.len().min(share.clamp(PER_ROUND_MIN, self.per_round_max));
        *given_count = count;
        self.first_turn_ns.store(0, Ordering::Relaxed);
        for place in waiting.drain(..count) {
            place.turn.give();
            place.wake.notify_one();
        }
        count
    }

    /// Returns the average duration of a turn in the last round of `count` turns; `None` if
    /// unknown. A turn ends where the next one starts. The end of the last turn is not known, so it
    /// is left out.
    fn turn_time(&self, count: usize) -> Option<Duration> {
        let [first_ns, last_ns] =
            [&self.first_turn_ns, &self.last_turn_ns].map(|ns| ns.load(Ordering::Relaxed));
        let others = u32::try_from(count.saturating_sub(1)).ok()?;
        let elapsed = Duration::from_nanos(last_ns.saturating_sub(first_ns));
        elapsed.checked_div(others).filter(|turn| first_ns > 0 && !turn.is_zero())
    }

    /// Records that a reader starts its turn.
    pub(super) fn note_turn(&self) {
        let ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if self.first_turn_ns.load(Ordering::Relaxed) == 0 {
            self.first_turn_ns.store(ns, Ordering::Relaxed);
        }
        self.last_turn_ns.store(ns, Ordering::Relaxed);
    }

    /// Gives turns forever, on the readers' thread. Runs `work` before each round, for work that a
    /// worker otherwise does before it sleeps: a worker with readers does not sleep.
    pub async fn run(&self, work: impl Fn()) -> Infallible {
        loop {
            work();
            if self.give() == 0 {
                self.asked.notified().await;
            }
            // Continues after these readers, and after the requests that have arrived meanwhile.
            yield_now().await;
        }
    }
}

/// Returns the number of turns of this length that fit into this time.
fn count_within(time: Duration, turn: Duration) -> usize {
    usize::try_from(time.as_nanos() / turn.as_nanos()).unwrap_or(usize::MAX)
}

impl Place {
    /// Takes the reader's turn, and returns whether there was one.
    pub(super) fn take_turn(&self) -> bool {
        self.turn.take()
    }

    /// Returns the notification that wakes the reader.
    pub(super) const fn wake_up(&self) -> &Arc<Notify> {
        &self.wake
    }
}

/// The state of a reader's turn: none, asked for, or given.
///
/// A task that has something for the reader stores it before asking for a turn, and the reader
/// takes its turn before it looks for anything. So even if a turn is already pending, the reader
/// either finds the new item in that turn or queues again.
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
    /// Asks for a turn. Returns whether the reader must be queued.
    fn ask(&self) -> bool {
        self.0.compare_exchange(NONE, ASKED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Gives the turn that was asked for.
    fn give(&self) {
        debug_assert_eq!(self.0.load(Ordering::Relaxed), ASKED, "a turn is given once asked for");
        self.0.store(GIVEN, Ordering::Release);
    }

    /// Takes a given turn. Returns whether there was one.
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
        // The reader will look at everything in the turn it has.
        turns.ask(&places[0]);
        assert_eq!(turns.give(), 0);
        assert!(places[0].take_turn() && !places[0].take_turn());
        turns.ask(&places[0]);
        assert_eq!(turns.give(), 1);
        assert!(places.iter().all(|place| place.take_turn()));
        assert!(turns.queue.lock().waiting.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_longer_a_round_took_the_more_readers_have_a_turn() {
        let rounds = [
            // The microseconds since the last round and the number of readers that get a turn.
            // Requests always get the minimum.
            (0, PER_ROUND_MIN),
            (239, PER_ROUND_MIN),
            (240, 3),
            (1_000, 12),
            (10_000, READERS_PER_ROUND_MAX),
            (100, PER_ROUND_MIN),
        ];
        let (readers, requests) = (Turns::default(), Turns::of_requests());
        for turns in [&readers, &requests] {
            (0..700).for_each(|_| turns.ask(&Arc::default()));
        }
        for (after_us, count) in rounds {
            advance(Duration::from_micros(after_us)).await;
            assert_eq!((readers.give(), requests.give()), (count, PER_ROUND_MIN), "{after_us}");
        }
    }

    /// A round ends in time, however much readers have to write. Long turns do not lead to more
    /// turns.
    #[tokio::test(start_paused = true)]
    async fn a_round_ends_in_time_however_long_turns_take() {
        for (turn_us, count) in [(1, 64), (10, 64), (20, 50), (100, 10), (500, 2), (5_000, 2)] {
            let turns = Turns::default();
            (0..700).for_each(|_| turns.ask(&Arc::default()));
            let mut given = 0;
            for _ in 0..5 {
                advance(Duration::from_millis(10)).await;
                given = turns.give();
                for _ in 0..given {
                    turns.note_turn();
                    advance(Duration::from_micros(turn_us)).await;
                }
            }
            assert_eq!(given, count, "turns of {turn_us} µs");
        }
    }

    /// A request that arrives while a thousand readers wait runs after only a few of them.
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
                    // A request of several steps, each run by another task.
                    let before = served.get();
                    for _ in 0..3 {
                        spawn_local(yield_now()).await.unwrap();
                    }
                    most = most.max(served.get() - before);
                }
                // A step may take two rounds: one to start and one to end.
                assert!(most <= 7 * PER_ROUND_MIN, "{most} readers ran before a request");
                assert!(worked.get() >= 1_000 / PER_ROUND_MIN);
            })
            .await;
    }
}

#[cfg(all(test, paperbourse_loom))]
mod model {
    //! For every interleaving of the feed's marks, a worker's turns and a reader's reads: no mark
    //! is left behind without a turn to come.

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
