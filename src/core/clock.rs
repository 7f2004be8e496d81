//! The clock: the only module that asks the system for the time.
//!
//! Time advances with the monotonic clock; the wall clock only sets its offset. The two are
//! compared once a second. Small steps of the wall clock are followed at once. A jump is not: time
//! continues as before, and the jump is logged, counted and reported in readiness, until the wall
//! clock returns or has kept its new time long enough to be trusted.

pub mod watch;

use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::ids::Timestamp;
use watch::{BELIEVE_AFTER_NS, Change, Jump, Reading, Watch};

/// Minimum time between two comparisons of the clocks. They are compared only when the time is
/// read.
const COMPARE_INTERVAL_NS: i64 = 1_000_000_000;

/// Maximum number of attempts at a precise reading, since the thread may be preempted during one.
const READ_ATTEMPTS_MAX: usize = 10;

/// Maximum uncertainty of a reading. Less precise readings are ignored.
const UNCERTAINTY_NS_MAX: i64 = 10_000_000;

static SYSTEM: LazyLock<SystemClock> = LazyLock::new(|| {
    let began = Instant::now();
    SystemClock::new(began, read_clocks(began))
});

/// A source of time.
#[derive(Clone, Default, Debug)]
pub enum Clock {
    /// The system clock.
    #[default]
    System,
    /// Nanoseconds since 1970, set by a test.
    #[cfg(any(test, feature = "test-util"))]
    Virtual(std::sync::Arc<AtomicI64>),
}

impl Clock {
    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::now(),
            #[cfg(any(test, feature = "test-util"))]
            Self::Virtual(nanos) => Timestamp::from_nanos(nanos.load(Ordering::Relaxed)),
        }
    }
}

impl Timestamp {
    /// Returns the current time. Pure modules take the time as an argument instead.
    pub fn now() -> Self {
        Moment::at(Instant::now()).now
    }
}

/// The time at which a request is served, read once and passed down.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The wall-clock time.
    pub now: Timestamp,
    /// Monotonic nanoseconds since the clock was first read.
    pub monotonic_ns: u64,
}

impl Moment {
    /// Returns the moment of an instant that the caller has just read. Reads the clocks again only
    /// if a comparison is due.
    pub fn at(instant: Instant) -> Self {
        let clock = &*SYSTEM;
        let monotonic_ns = nanos(instant.saturating_duration_since(clock.began));
        let now = clock.time_at(monotonic_ns, || read_clocks(clock.began));
        Self { now, monotonic_ns: monotonic_ns.unsigned_abs() }
    }
}

/// The state of the wall clock relative to the monotonic one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockStatus {
    /// The jump being ignored, if any.
    pub jump: Option<Jump>,
    /// Number of jumps since the start, followed or not.
    pub jumps_ever: u64,
}

/// Compares the clocks and reports whether the wall clock can be trusted.
pub fn status() -> ClockStatus {
    // Reading the time compares the clocks if a comparison is due.
    Timestamp::now();
    SYSTEM.status()
}

struct SystemClock {
    began: Instant,
    /// Nanoseconds to add to the monotonic time since `began` to get the time.
    offset_ns: AtomicI64,
    /// Monotonic time at which the next comparison is due.
    due_ns: AtomicI64,
    watch: Mutex<Watch>,
}

impl SystemClock {
    fn new(began: Instant, first: Reading) -> Self {
        let watch = Watch::new(first);
        Self {
            began,
            offset_ns: AtomicI64::new(watch.offset_ns()),
            due_ns: AtomicI64::new(first.monotonic_ns.saturating_add(COMPARE_INTERVAL_NS)),
            watch: Mutex::new(watch),
        }
    }

    fn time_at(&self, monotonic_ns: i64, read: impl FnOnce() -> Reading) -> Timestamp {
        if monotonic_ns >= self.due_ns.load(Ordering::Relaxed) {
            self.compare(read);
        }
        let offset_ns = self.offset_ns.load(Ordering::Relaxed);
        Timestamp::from_nanos(offset_ns.saturating_add(monotonic_ns))
    }

    #[cold]
    fn compare(&self, read: impl FnOnce() -> Reading) {
        // The thread that holds the lock is already comparing.
        let Some(mut watch) = self.watch.try_lock() else { return };
        let reading = read();
        if reading.uncertainty_ns > UNCERTAINTY_NS_MAX {
            return;
        }
        let change = watch.compare(reading);
        self.offset_ns.store(watch.offset_ns(), Ordering::Relaxed);
        let due_ns = reading.monotonic_ns.saturating_add(COMPARE_INTERVAL_NS);
        self.due_ns.store(due_ns, Ordering::Relaxed);
        drop(watch);
        log(change);
    }

    fn status(&self) -> ClockStatus {
        let watch = self.watch.lock();
        ClockStatus { jump: watch.jump(), jumps_ever: watch.jumps_ever() }
    }
}

fn log(change: Option<Change>) {
    match change {
        None => {}
        Some(Change::Jumped(jump)) => {
            let believed_after = Duration::from_nanos(BELIEVE_AFTER_NS.unsigned_abs());
            tracing::warn!(
                jump_seconds = jump.seconds(),
                ?believed_after,
                "the system clock jumped: ignoring the jump for now; check the time synchronisation"
            );
        }
        Some(Change::CameBack) => tracing::info!("the system clock returned from its jump"),
        Some(Change::Believed(jump)) => tracing::warn!(
            jump_seconds = jump.seconds(),
            "the system clock kept its new time after a jump: following it now"
        ),
    }
}

/// Reads the wall clock between two readings of the monotonic one.
fn read_clocks(began: Instant) -> Reading {
    let read = || {
        let before_ns = elapsed_ns(began);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let uncertainty_ns = elapsed_ns(began) - before_ns;
        Reading { wall_ns: nanos(wall), monotonic_ns: before_ns, uncertainty_ns }
    };
    let mut readings = std::iter::repeat_with(read).take(READ_ATTEMPTS_MAX);
    let first = readings.next().expect("at least one attempt");
    if first.uncertainty_ns <= UNCERTAINTY_NS_MAX {
        return first;
    }
    readings.min_by_key(|reading| reading.uncertainty_ns).unwrap_or(first)
}

fn elapsed_ns(began: Instant) -> i64 {
    nanos(began.elapsed())
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[cfg(not(paperbourse_loom))]
mod tests {
    use super::*;

    const SECOND_NS: i64 = 1_000_000_000;
    const START_SECONDS: i64 = 1_800_000_000;
    /// Roughly the seconds from the start to the year 2100.
    const TO_2100_SECONDS: i64 = 2_300_000_000;

    fn reading(monotonic_seconds: i64, wall_ahead_seconds: i64) -> Reading {
        let monotonic_ns = monotonic_seconds * SECOND_NS;
        let wall_ns = (START_SECONDS + wall_ahead_seconds) * SECOND_NS + monotonic_ns;
        Reading { wall_ns, monotonic_ns, uncertainty_ns: 100 }
    }

    /// Each row, in seconds: the monotonic time, how far the wall clock is ahead of it, how far the
    /// reported time is ahead of it, and the reported jump.
    #[track_caller]
    fn check(rows: &[(i64, i64, i64, Option<i64>)]) -> u64 {
        let clock = SystemClock::new(Instant::now(), reading(0, 0));
        for &(at, wall_ahead, expected, jump) in rows {
            let time = clock.time_at(at * SECOND_NS, || reading(at, wall_ahead));
            let ahead_ns = time.nanos() - (START_SECONDS + at) * SECOND_NS;
            assert_eq!(ahead_ns, expected * SECOND_NS, "at {at} s");
            let shown = clock.status().jump.map(|jump| jump.by_ns / SECOND_NS);
            assert_eq!(shown, jump, "at {at} s");
        }
        clock.status().jumps_ever
    }

    #[test]
    fn small_steps_are_followed() {
        let steps = [(1, 0, 0, None), (2, 1, 1, None), (3, 0, 0, None), (4, -1, -1, None)];
        assert_eq!(check(&steps), 0);
    }

    #[test]
    fn a_jump_is_ignored_until_the_clock_returns() {
        for jump in [TO_2100_SECONDS, 2, -2, -START_SECONDS] {
            let rows = [
                (1, jump, 0, Some(jump)),
                (2, jump, 0, Some(jump)),
                (3, 0, 0, None),
                (61, 0, 0, None),
                (62, jump, 0, Some(jump)),
            ];
            assert_eq!(check(&rows), 2, "{jump}");
        }
    }

    #[test]
    fn a_clock_that_keeps_its_new_time_is_followed_and_can_be_corrected() {
        let jump = TO_2100_SECONDS;
        let rows = [
            (5, jump, 0, Some(jump)),
            (64, jump, 0, Some(jump)),
            (65, jump, jump, None),
            (70, 0, jump, Some(-jump)),
            (129, 0, jump, Some(-jump)),
            (130, 0, 0, None),
        ];
        assert_eq!(check(&rows), 2);
    }

    #[test]
    fn a_clock_that_keeps_jumping_is_never_followed() {
        let rows: Vec<_> = (1..200).map(|at| (at, at * 1000, 0, Some(at * 1000))).collect();
        assert_eq!(check(&rows), 199);
    }

    #[test]
    fn an_imprecise_reading_is_ignored() {
        let clock = SystemClock::new(Instant::now(), reading(0, 0));
        let blurred = Reading { uncertainty_ns: UNCERTAINTY_NS_MAX + 1, ..reading(1, 5) };
        clock.time_at(SECOND_NS, || blurred);
        assert_eq!(clock.status(), ClockStatus { jump: None, jumps_ever: 0 });
    }

    #[test]
    fn the_clocks_are_compared_once_a_second() {
        let clock = SystemClock::new(Instant::now(), reading(0, 0));
        let unread = || panic!("compared too early");
        assert_eq!(clock.time_at(SECOND_NS - 1, unread).seconds(), START_SECONDS);
        clock.time_at(SECOND_NS, || reading(1, 0));
        clock.time_at(2 * SECOND_NS - 1, unread);
    }

    #[test]
    fn the_time_is_close_to_the_system_clock() {
        let wall = nanos(SystemTime::now().duration_since(UNIX_EPOCH).unwrap());
        let difference = Timestamp::now().nanos().abs_diff(wall);
        assert!(difference < 60_000_000_000, "{difference} ns");
    }
}
