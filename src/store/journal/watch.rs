//! Bounds how long a record may stay in the ring: each record is flushed even if no worker helps.
//!
//! Workers flush their records when they run out of work, which saves a context switch. But a
//! worker may never run out of work or may compute for a long time, and some threads are not
//! workers at all. So while records arrive, the journal's own thread checks the ring at regular
//! intervals and flushes what was already there at the previous check.

use std::time::Duration;

/// A flush begins at most this long after its first record was filled, provided the system
/// schedules the journal's thread on time. A flush on a fast disk takes up to half of this, so the
/// thread never overtakes a worker that keeps up, and adds little latency if the worker does not.
pub const FLUSH_DELAY_MAX: Duration = Duration::from_millis(1);

/// Time between two checks. A record is flushed at the second check after it at the latest, so two
/// intervals must fit into [`FLUSH_DELAY_MAX`], along with the slack of the system's timers (50 µs
/// each).
pub(super) const CHECK_INTERVAL: Duration = Duration::from_micros(400);

/// After this many checks without a new record (10 ms) the thread sleeps until woken. The next
/// record then pays for the wake-up, which must not happen to a client that trades continuously.
const QUIET_CHECKS_MAX: u32 = if cfg!(paperbourse_loom) { 0 } else { 25 };

const _: () = assert!(2 * CHECK_INTERVAL.as_micros() < FLUSH_DELAY_MAX.as_micros());

/// State of the journal's thread between checks.
pub(super) struct Watch {
    /// The newest reserved position at the last check.
    seen: u64,
    /// Number of consecutive checks that found nothing new or pending.
    quiet_checks: u32,
}

/// The result of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Check {
    /// Records have been waiting for too long.
    Late,
    /// Records are arriving: check again after the interval.
    Active,
    /// No new records for a while, and none pending.
    Quiet,
}

impl Watch {
    /// Creates a watch. Everything up to `position` must be on disk.
    pub(super) const fn new(position: u64) -> Self {
        Self { seen: position, quiet_checks: 0 }
    }

    /// Checks the ring: all positions up to `taken` have left it, all up to `newest` are reserved.
    pub(super) fn check(&mut self, taken: u64, newest: u64) -> Check {
        let is_late = taken < self.seen;
        let is_quiet = taken >= newest && newest == self.seen;
        self.quiet_checks = if is_quiet { self.quiet_checks + 1 } else { 0 };
        self.seen = newest;
        if is_late {
            Check::Late
        } else if self.quiet_checks > QUIET_CHECKS_MAX {
            Check::Quiet
        } else {
            Check::Active
        }
    }
}

#[cfg(test)]
#[cfg(not(paperbourse_loom))]
mod tests {
    use super::*;

    #[track_caller]
    fn check(checks: &[(u64, u64, Check)]) {
        let mut watch = Watch::new(5);
        for (number, &(taken, newest, expected)) in checks.iter().enumerate() {
            assert_eq!(watch.check(taken, newest), expected, "check {number}");
        }
    }

    #[test]
    fn a_record_seen_by_the_previous_check_is_late() {
        use Check::{Active, Late};
        // A single record that no worker flushes.
        check(&[(5, 6, Active), (5, 6, Late), (6, 6, Active)]);
        // Workers keep up with any number of records.
        check(&[(5, 9, Active), (9, 20, Active), (25, 30, Active), (30, 30, Active)]);
        // Workers keep up for a while, and then all of them are busy.
        check(&[(5, 9, Active), (9, 20, Active), (12, 30, Late), (30, 40, Active)]);
        // A record has not been filled yet: later ones cannot be taken, but are not lost.
        check(&[(5, 6, Active), (5, 7, Late), (5, 7, Late), (7, 7, Active)]);
    }

    #[test]
    fn the_thread_sleeps_after_a_quiet_period() {
        let mut watch = Watch::new(5);
        assert_eq!(watch.check(6, 6), Check::Active);
        for number in 0..QUIET_CHECKS_MAX {
            assert_eq!(watch.check(6, 6), Check::Active, "check {number}");
        }
        assert_eq!(watch.check(6, 6), Check::Quiet);
        assert_eq!(watch.check(6, 7), Check::Active, "it was woken");
        assert_eq!(watch.check(6, 7), Check::Late);
        assert_eq!(watch.check(7, 7), Check::Active);
    }
}
