//! How long the owner of a log may answer reads from memory.
//!
//! Reads are not appended to the log, so an owner could keep answering them after another node has
//! taken the log and changed their results. It therefore answers only within [`LEASE`] of the
//! moment it *sent* its newest acknowledged block: any fence must come after that block. A node
//! that takes the log waits longer than that before it answers anything or releases the log. It
//! need not wait if the log was released.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
#[cfg(any(test, feature = "test-util"))]
use std::{sync::LazyLock, time::Instant};

use rustix::time::{ClockId, clock_gettime};

use paperbourse_core::faults::{self, Fault};

/// How long an owner may append nothing before it appends a heartbeat.
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(400);

/// How long the owner may answer reads after sending a block that is acknowledged.
pub(super) const LEASE: Duration = Duration::from_secs(1);

/// How long a new owner waits after its fence is acknowledged: until the former lease has ended
/// even by a clock that runs a tenth slow.
pub(super) const LEASE_WAIT: Duration = Duration::from_millis(1_120);

const _: () = assert!(
    9 * LEASE_WAIT.as_nanos() >= 10 * LEASE.as_nanos(),
    "by a clock that runs a tenth slow, the wait is as long as a lease"
);
const _: () = assert!(2 * HEARTBEAT_INTERVAL.as_millis() <= LEASE.as_millis());

/// The period in which an owner may answer reads.
#[derive(Debug)]
pub struct Lease {
    /// When the log was taken, in nanoseconds of [`now_ns`].
    taken_ns: u64,
    /// When the former owner's lease has certainly ended.
    begins_ns: u64,
    ends_ns: AtomicU64,
    /// Whether the owner has released the log or is about to.
    is_over: AtomicBool,
}

impl Lease {
    /// Starts the lease of an owner that has taken a log with a fence sent at `sent_ns`. If
    /// `was_free`, the log had no owner, so there is no former lease to wait for.
    pub(super) fn begin(was_free: bool, sent_ns: u64) -> Self {
        let is_waiting = !was_free && !faults::is_on(Fault::FormerLeaseIgnored);
        let wait = if is_waiting { LEASE_WAIT } else { Duration::ZERO };
        let taken_ns = now_ns();
        Self {
            taken_ns,
            begins_ns: taken_ns + nanoseconds(wait),
            ends_ns: AtomicU64::new(sent_ns + nanoseconds(LEASE)),
            is_over: AtomicBool::new(false),
        }
    }

    /// Whether results read before this call may be sent to clients.
    pub fn holds(&self) -> bool {
        let now_ns = now_ns();
        let ends_ns = self.ends_ns.load(Ordering::Acquire);
        self.begins_ns <= now_ns && now_ns < ends_ns && !self.is_over()
    }

    /// Whether the former owner's lease has certainly ended.
    pub(super) fn has_begun(&self) -> bool {
        self.begins_ns <= now_ns()
    }

    /// Extends the lease for an acknowledged block that was first sent at `sent_ns`.
    pub(super) fn extend(&self, sent_ns: u64) {
        self.ends_ns.fetch_max(sent_ns + nanoseconds(LEASE), Ordering::AcqRel);
    }

    /// Ends the lease. The owner is about to release the log and appends nothing else.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Whether [`Lease::end`] was called.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Whether `age` has passed since the newest acknowledged block was sent, or since the log was
    /// taken if that was later.
    pub(super) fn is_older_than(&self, age: Duration) -> bool {
        let sent_ns = self.ends_ns.load(Ordering::Acquire).saturating_sub(nanoseconds(LEASE));
        now_ns().saturating_sub(sent_ns.max(self.taken_ns)) >= nanoseconds(age)
    }
}

#[cfg(any(test, feature = "test-util"))]
impl Lease {
    /// Creates a lease under which the owner may answer reads at once.
    pub fn begun() -> Self {
        Self::begin(true, now_ns())
    }
}

/// Whether leases use the runtime's clock. Always true in this package's own tests.
#[cfg(any(test, feature = "test-util"))]
static FOLLOWS_RUNTIME: AtomicBool = AtomicBool::new(cfg!(test));

/// Makes all leases of the process use the runtime's clock, which tests can pause. This cannot be
/// undone.
#[cfg(any(test, feature = "test-util"))]
pub fn follow_runtime() {
    FOLLOWS_RUNTIME.store(true, Ordering::Relaxed);
}

/// Returns the time in nanoseconds, by a clock that also counts while the machine is suspended.
pub(super) fn now_ns() -> u64 {
    #[cfg(any(test, feature = "test-util"))]
    if FOLLOWS_RUNTIME.load(Ordering::Relaxed) {
        return runtime_ns();
    }
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    let now = clock_gettime(clock);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or_default()
}

/// Returns the time by the runtime's clock, which tests can pause.
#[cfg(any(test, feature = "test-util"))]
fn runtime_ns() -> u64 {
    // An hour ago, since a paused runtime clock may be behind the real clock read here.
    static LONG_AGO: LazyLock<Instant> = LazyLock::new(|| {
        Instant::now().checked_sub(Duration::from_hours(1)).expect("an hour can be subtracted")
    });
    nanoseconds(tokio::time::Instant::now().into_std() - *LONG_AGO)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("less than centuries")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_answers_only_behind_an_acknowledged_block() {
        let second = nanoseconds(LEASE);
        for (was_free, fence_ago_ns, sent_ago_ns, expected) in [
            (true, 0, None, true),
            (true, second / 2, None, true),
            (true, second, None, false),
            (true, second, Some(0), true),
            (true, 2 * second, Some(second / 2), true),
            (true, 2 * second, Some(second), false),
            // The former owner's lease has not ended yet.
            (false, 0, None, false),
            (false, 0, Some(0), false),
        ] {
            let lease = Lease::begin(was_free, now_ns() - fence_ago_ns);
            if let Some(ago_ns) = sent_ago_ns {
                lease.extend(now_ns() - ago_ns);
            }
            assert_eq!(lease.holds(), expected, "{was_free} {fence_ago_ns} {sent_ago_ns:?}");
        }
        let lease = Lease { taken_ns: 0, begins_ns: 0, ..Lease::begin(true, 0) };
        lease.extend(now_ns());
        lease.extend(now_ns() - second);
        assert!(lease.holds(), "a lease never becomes shorter");
        assert!(!lease.is_older_than(LEASE));
        lease.end();
        assert!(!lease.holds(), "the next owner of a released log does not wait");
        assert!(!lease.is_older_than(LEASE), "the brokers acknowledged something just now");
    }
}
