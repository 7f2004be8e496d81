//! Tells a wall clock that is set right from one that jumps, by the monotonic clock.

use std::fmt;

/// A larger difference to the time that passed is a jump.
pub const STEP_NS_MAX: i64 = 1_000_000_000;

/// A wall clock that has kept its new time for so long is believed: a machine that slept, or that
/// started with a wrong clock, looks the same as one whose clock went wrong.
pub const BELIEVE_AFTER_NS: i64 = 60_000_000_000;

/// Both clocks at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading {
    /// Nanoseconds since 1970.
    pub wall_ns: i64,
    /// Nanoseconds since some start.
    pub monotonic_ns: i64,
    /// How far apart the two may have been read.
    pub uncertainty_ns: i64,
}

impl Reading {
    const fn offset_ns(self) -> i64 {
        self.wall_ns.saturating_sub(self.monotonic_ns)
    }
}

/// A difference between the wall clock and the time that passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Jump {
    /// How far the wall clock is ahead; behind where it is negative.
    pub by_ns: i64,
    /// When it was first seen, by the monotonic clock.
    began_ns: i64,
}

impl Jump {
    /// How far the wall clock is ahead, in seconds rounded towards zero.
    pub const fn seconds(self) -> i64 {
        self.by_ns / 1_000_000_000
    }
}

/// For people who ask why the server is degraded.
impl fmt::Display for Jump {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, direction) = match self.seconds() {
            behind @ ..0 => (behind.unsigned_abs(), "back"),
            ahead => (ahead.unsigned_abs(), "ahead"),
        };
        write!(
            formatter,
            "the system clock jumped {direction} by {seconds} s, and times go on without the jump"
        )
    }
}

/// What a comparison has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The wall clock is suddenly somewhere else.
    Jumped(Jump),
    /// It is where it should be again.
    CameBack,
    /// It has kept its new time for so long that this is the time now.
    Believed(Jump),
}

/// What is known of the wall clock.
#[derive(Debug)]
pub struct Watch {
    offset_ns: i64,
    jump: Option<Jump>,
    jumps_ever: u64,
}

impl Watch {
    /// A wall clock that shows the right time.
    pub const fn new(first: Reading) -> Self {
        Self { offset_ns: first.offset_ns(), jump: None, jumps_ever: 0 }
    }

    /// What the monotonic clock lacks to the time.
    pub const fn offset_ns(&self) -> i64 {
        self.offset_ns
    }

    /// The jump that is not believed so far.
    pub const fn jump(&self) -> Option<Jump> {
        self.jump
    }

    /// Jumps since the start, believed or not.
    pub const fn jumps_ever(&self) -> u64 {
        self.jumps_ever
    }

    /// Takes a reading into account.
    pub fn compare(&mut self, reading: Reading) -> Option<Change> {
        let by_ns = reading.offset_ns().saturating_sub(self.offset_ns);
        if by_ns.saturating_abs() <= STEP_NS_MAX {
            // What the reading itself took is no step of the clock.
            if by_ns.saturating_abs() > reading.uncertainty_ns {
                self.offset_ns = reading.offset_ns();
            }
            return self.jump.take().map(|_| Change::CameBack);
        }
        let is_same = |jump: &Jump| by_ns.abs_diff(jump.by_ns) <= STEP_NS_MAX.unsigned_abs();
        let Some(jump) = self.jump.filter(is_same) else {
            let jump = Jump { by_ns, began_ns: reading.monotonic_ns };
            self.jump = Some(jump);
            self.jumps_ever += 1;
            return Some(Change::Jumped(jump));
        };
        if reading.monotonic_ns.saturating_sub(jump.began_ns) < BELIEVE_AFTER_NS {
            return None;
        }
        self.offset_ns = reading.offset_ns();
        self.jump = None;
        Some(Change::Believed(jump))
    }
}
