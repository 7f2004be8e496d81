//! How long a record may lie in the ring: the promise that each is flushed without anybody's help.
//!
//! Workers flush what they have filled in when they run out of work, which spares a change of
//! threads. A worker that never runs out, or that computes for long, does not; nor does a thread
//! that is no worker. So the journal's own thread looks at regular intervals while records come in,
//! and flushes what was already there at the look before.

use std::time::Duration;

/// A flush begins within this of the moment in which its first record was there to be taken, if the
/// system runs the journal's thread on time. A flush on a quick disk takes up to half of it, so a
/// worker that keeps up is never overtaken, and one that does not adds little to an answer.
pub const FLUSH_DELAY_MAX: Duration = Duration::from_millis(1);

/// From one look to the next. The second look after a record finds it for certain, so two have to
/// fit, with the slack of the system's timers (50 µs each).
pub(super) const LOOK_INTERVAL: Duration = Duration::from_micros(400);

/// After this many looks without a new record the thread sleeps until it is woken: 10 ms. Whoever
/// fills in a record then pays for the wake-up, which a client that trades all the time must not.
const QUIET_LOOKS_MAX: u32 = if cfg!(paperbourse_loom) { 0 } else { 25 };

const _: () = assert!(2 * LOOK_INTERVAL.as_micros() < FLUSH_DELAY_MAX.as_micros());

/// What the journal's thread remembers from one look to the next.
pub(super) struct Watch {
    /// The newest position at the last look.
    seen: u64,
    /// How many looks in a row have found nothing new and nothing left.
    quiet_looks: u32,
}

/// What a look finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Look {
    /// Records have been left for too long.
    Late,
    /// Records come in: there is another look after the interval.
    Lively,
    /// Nothing has come for a while, and nothing is left.
    Quiet,
}

impl Watch {
    /// A watch that begins when everything up to this position is on disk.
    pub(super) const fn new(position: u64) -> Self {
        Self { seen: position, quiet_looks: 0 }
    }

    /// Looks at the ring: all positions up to `taken` have left it, all up to `newest` were given
    /// away.
    pub(super) fn look(&mut self, taken: u64, newest: u64) -> Look {
        let is_late = taken < self.seen;
        let is_quiet = taken >= newest && newest == self.seen;
        self.quiet_looks = if is_quiet { self.quiet_looks + 1 } else { 0 };
        self.seen = newest;
        if is_late {
            Look::Late
        } else if self.quiet_looks > QUIET_LOOKS_MAX {
            Look::Quiet
        } else {
            Look::Lively
        }
    }
}

#[cfg(test)]
#[cfg(not(paperbourse_loom))]
mod tests {
    use super::*;

    #[track_caller]
    fn check(looks: &[(u64, u64, Look)]) {
        let mut watch = Watch::new(5);
        for (number, &(taken, newest, expected)) in looks.iter().enumerate() {
            assert_eq!(watch.look(taken, newest), expected, "look {number}");
        }
    }

    #[test]
    fn what_was_there_at_the_look_before_is_late() {
        use Look::{Late, Lively};
        // One record that nobody flushes.
        check(&[(5, 6, Lively), (5, 6, Late), (6, 6, Lively)]);
        // Workers keep up, however many records come.
        check(&[(5, 9, Lively), (9, 20, Lively), (25, 30, Lively), (30, 30, Lively)]);
        // They do for a while, and then all of them are busy.
        check(&[(5, 9, Lively), (9, 20, Lively), (12, 30, Late), (30, 40, Lively)]);
        // A record is on its way to its slot: what is behind it cannot be taken, but is not lost.
        check(&[(5, 6, Lively), (5, 7, Late), (5, 7, Late), (7, 7, Lively)]);
    }

    #[test]
    fn the_thread_sleeps_when_nothing_has_come_for_a_while() {
        let mut watch = Watch::new(5);
        assert_eq!(watch.look(6, 6), Look::Lively);
        for number in 0..QUIET_LOOKS_MAX {
            assert_eq!(watch.look(6, 6), Look::Lively, "look {number}");
        }
        assert_eq!(watch.look(6, 6), Look::Quiet);
        assert_eq!(watch.look(6, 7), Look::Lively, "it was woken");
        assert_eq!(watch.look(6, 7), Look::Late);
        assert_eq!(watch.look(7, 7), Look::Lively);
    }
}
