//! The due times of an open loop's requests, which do not depend on the answers to earlier ones.
//!
//! A generator with its own core polls the clock all the time. Any other generator is woken by a
//! kernel timer at each due time, since the runtime's own timers have millisecond resolution. Each
//! connection has a queue of due times. A late request is sent as soon as possible, and its latency
//! counts from its due time.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

/// The highest recorded delay in dealing a due time, in nanoseconds.
const LATE_NS_MAX: u64 = 60_000_000_000;

/// The due times of one connection's requests that are not yet sent.
#[derive(Default)]
pub(crate) struct Due {
    times: RefCell<VecDeque<Instant>>,
    changed: Notify,
    is_over: std::cell::Cell<bool>,
}

impl Due {
    /// Waits for the next due time; `None` after the last one.
    pub(crate) async fn next(&self) -> Option<Instant> {
        loop {
            if let Some(due) = self.times.borrow_mut().pop_front() {
                return Some(due);
            }
            if self.is_over.get() {
                return None;
            }
            self.changed.notified().await;
        }
    }
}

/// The way to wait for the next due time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clock {
    /// Sleep until a kernel timer wakes the runtime.
    Timer,
    /// Poll the clock in every turn of the runtime, which then never sleeps.
    Spin,
}

/// Distributes due times to the connections of one runtime until the end.
///
/// `rate` is the total rate in requests per second. Returns the delay with which each due time was
/// dealt, in nanoseconds: the error of this clock, which is part of every latency.
pub(crate) async fn deal(
    connections: Vec<Rc<Due>>,
    clock: Clock,
    rate: f64,
    begin: Instant,
    end: Instant,
) -> io::Result<Histogram<u64>> {
    let dealt = deal_all(&connections, clock, DueTimes::new(rate, begin, end)).await;
    for connection in &connections {
        connection.is_over.set(true);
        connection.changed.notify_one();
    }
    dealt
}

async fn deal_all(
    connections: &[Rc<Due>],
    clock: Clock,
    mut times: DueTimes,
) -> io::Result<Histogram<u64>> {
    let mut late_ns = Histogram::new_with_bounds(1, LATE_NS_MAX, 3)
        .expect("the bounds of the histogram are constants");
    let timer = Timer::new()?;
    let mut turn = connections.iter().cycle();
    while let Some(next) = times.next() {
        match clock {
            Clock::Timer => timer.wait_until(next).await?,
            Clock::Spin => spin_until(next).await,
        }
        let now = Instant::now();
        while let Some(due) = times.take(now) {
            let late = u64::try_from((now - due).as_nanos()).unwrap_or(LATE_NS_MAX);
            late_ns.saturating_record(late.max(1));
            let connection = turn.next().expect("a runtime has connections");
            connection.times.borrow_mut().push_back(due);
            connection.changed.notify_one();
        }
    }
    Ok(late_ns)
}

async fn spin_until(moment: Instant) {
    while Instant::now() < moment {
        tokio::task::yield_now().await;
    }
}

/// The due times of a fixed rate, in order.
struct DueTimes {
    begin: Instant,
    end: Instant,
    interval_seconds: f64,
    taken: u32,
}

impl DueTimes {
    fn new(rate: f64, begin: Instant, end: Instant) -> Self {
        Self { begin, end, interval_seconds: 1.0 / rate, taken: 0 }
    }

    /// Returns the next due time, unless the end comes first.
    fn next(&self) -> Option<Instant> {
        // Calculated from the beginning each time, so that rounding errors do not add up.
        let after = Duration::from_secs_f64(f64::from(self.taken) * self.interval_seconds);
        Some(self.begin + after).filter(|&due| due < self.end)
    }

    /// Takes the next due time, if it is no later than `now`.
    fn take(&mut self, now: Instant) -> Option<Instant> {
        let due = self.next().filter(|&due| due <= now)?;
        self.taken += 1;
        Some(due)
    }
}

/// A kernel timer, which wakes within microseconds of the requested time.
struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    #[expect(deprecated, reason = "sound here, where the descriptor is owned and never replaced")]
    fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self(AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?)?))
    }

    async fn wait_until(&self, moment: Instant) -> io::Result<()> {
        loop {
            let left = moment.saturating_duration_since(Instant::now());
            // A timer set to 0 would be disarmed.
            if left.is_zero() {
                return Ok(());
            }
            let set = Itimerspec {
                it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
                it_value: Timespec::try_from(left).map_err(io::Error::other)?,
            };
            timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &set)?;
            let mut expired = self.0.readable().await?;
            let mut count = [0; size_of::<u64>()];
            match expired.try_io(|timer| Ok(rustix::io::read(timer, &mut count)?)) {
                Ok(read) => read.map(drop)?,
                Err(_not_yet) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks for each `(now, expected, next)`, in microseconds, that a clock read at `now` takes
    /// the due times `expected` and must wake at `next`.
    #[track_caller]
    fn check(rate: f64, looks: &[(u64, &[u64], Option<u64>)]) {
        let begin = Instant::now();
        let at = |micros| begin + Duration::from_micros(micros);
        let mut times = DueTimes::new(rate, begin, at(1_000));
        for &(now, expected, next) in looks {
            let taken: Vec<_> = std::iter::from_fn(|| times.take(at(now))).collect();
            let expected: Vec<_> = expected.iter().copied().map(at).collect();
            assert_eq!(taken, expected, "at {now}");
            assert_eq!(times.next(), next.map(at), "after {now}");
        }
    }

    #[test]
    fn the_clock_wakes_when_a_request_is_due_and_not_on_a_grid() {
        check(12_500.0, &[(0, &[0], Some(80)), (79, &[], Some(80)), (80, &[80], Some(160))]);
        check(4_000.0, &[(0, &[0], Some(250)), (500, &[250, 500], Some(750))]);
    }

    #[test]
    fn a_late_clock_deals_all_that_was_due_until_the_end() {
        check(2_500.0, &[(2_000, &[0, 400, 800], None), (3_000, &[], None)]);
        check(1_000.0, &[(1, &[0], None)]);
    }

    #[test]
    fn rounding_does_not_add_up() {
        let begin = Instant::now();
        let mut times = DueTimes::new(3e6, begin, begin + Duration::from_secs(1));
        let count = std::iter::from_fn(|| times.take(begin + Duration::from_secs(2))).count();
        assert_eq!(count, 3_000_000);
    }

    #[test]
    fn the_timer_never_wakes_early() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let past = Instant::now();
            let timer = Timer::new().unwrap();
            for micros in [0, 1, 20, 100, 250, 1_100] {
                let moment = Instant::now() + Duration::from_micros(micros);
                timer.wait_until(moment).await.unwrap();
                assert!(Instant::now() >= moment, "{micros}");
            }
            timer.wait_until(past).await.unwrap();
        });
    }

    #[test]
    fn requests_are_distributed_at_the_rate_and_late_ones_are_kept() {
        [Clock::Timer, Clock::Spin].into_iter().for_each(check_distribution);
    }

    fn check_distribution(clock: Clock) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let connections = vec![Rc::<Due>::default(), Rc::<Due>::default()];
        let begin = Instant::now();
        let end = begin + Duration::from_millis(100);
        let dealt = deal(connections.clone(), clock, 1000.0, begin, end);
        let late_ns = runtime.block_on(dealt).unwrap();
        assert_eq!(late_ns.len(), 100);
        for (number, connection) in (0_u32..).zip(&connections) {
            let mut count = 0_u32;
            while let Some(due) = runtime.block_on(connection.next()) {
                let expected = begin + Duration::from_millis((2 * count + number).into());
                assert_eq!(due, expected);
                count += 1;
            }
            assert_eq!(count, 50);
        }
    }
}
