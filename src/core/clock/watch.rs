//! Tells adjustments of the wall clock from jumps by comparing it with the monotonic clock.

use std::fmt;

/// Largest difference between the clocks that counts as a step. A larger one is a jump.
pub const STEP_NS_MAX: i64 = 1_000_000_000;

/// How long the wall clock must keep its new time before that time is trusted. A machine that was
/// suspended, or that started with a wrong clock, looks the same as one whose clock went wrong.
pub const BELIEVE_AFTER_NS: i64 = 60_000_000_000;

/// A reading of both clocks at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading {
    /// Nanoseconds since 1970.
    pub wall_ns: i64,
    /// Nanoseconds since an arbitrary start.
    pub monotonic_ns: i64,
    /// Maximum time between the two readings, in nanoseconds.
    pub uncertainty_ns: i64,
}

impl Reading {
    const fn offset_ns(self) -> i64 {
        self.wall_ns.saturating_sub(self.monotonic_ns)
    }
}

/// A jump of the wall clock relative to the monotonic one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Jump {
    /// Lead of the wall clock in nanoseconds; negative if it is behind.
    pub by_ns: i64,
    /// Monotonic time at which the jump was first seen.
    began_ns: i64,
}

impl Jump {
    /// Returns the lead of the wall clock in whole seconds, rounded towards zero.
    pub const fn seconds(self) -> i64 {
        self.by_ns / 1_000_000_000
    }
}

/// Formats the jump as the reason for which the server reports itself degraded.
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

/// The result of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The wall clock jumped.
    Jumped(Jump),
    /// The wall clock returned from a jump.
    CameBack,
    /// The wall clock kept its new time long enough and is followed from now on.
    Believed(Jump),
}

/// Tracks the wall clock.
#[derive(Debug)]
pub struct Watch {
    offset_ns: i64,
    jump: Option<Jump>,
    jumps_ever: u64,
}

impl Watch {
    /// Starts tracking. The first reading of the wall clock is trusted.
    pub const fn new(first: Reading) -> Self {
        Self { offset_ns: first.offset_ns(), jump: None, jumps_ever: 0 }
    }

    /// Returns the nanoseconds to add to the monotonic clock to get the time.
    pub const fn offset_ns(&self) -> i64 {
        self.offset_ns
    }

    /// Returns the jump being ignored, if any.
    pub const fn jump(&self) -> Option<Jump> {
        self.jump
    }

    /// Returns the number of jumps since the start, followed or not.
    pub const fn jumps_ever(&self) -> u64 {
        self.jumps_ever
    }

    /// Compares a reading with the expected time. Returns `None` unless a jump began or ended.
    pub fn compare(&mut self, reading: Reading) -> Option<Change> {
        let by_ns = reading.offset_ns().saturating_sub(self.offset_ns);
        if by_ns.saturating_abs() <= STEP_NS_MAX {
            // A difference within the uncertainty of the reading is not a step.
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
