//! Tells what the disk holds from what a writer is about to change, for a reader beside it.

use std::time::Duration;

/// An unclean reading is accepted after this many identical readings in a row.
pub(crate) const SAME_READINGS_MIN: u32 = 3;

/// Maximum number of readings.
const READINGS_MAX: u32 = 100;

/// Pause between two readings, longer than writing a block takes.
pub(crate) const READING_PAUSE: Duration = Duration::from_millis(20);

/// Distinguishes what the disk holds from what a writer is about to change.
#[derive(Default)]
pub(crate) struct Patience {
    /// The previous reading, and how often it was seen in a row.
    seen: String,
    same: u32,
    readings: u32,
}

impl Patience {
    /// Whether this reading was seen often enough to be accepted.
    pub(crate) fn has_seen(&mut self, reading: String) -> bool {
        self.readings += 1;
        self.same = if reading == self.seen { self.same + 1 } else { 1 };
        self.seen = reading;
        self.is_settled() || self.readings >= READINGS_MAX
    }

    /// Whether the last readings were identical.
    pub(crate) const fn is_settled(&self) -> bool {
        self.same >= SAME_READINGS_MIN
    }

    /// The number of readings so far.
    pub(crate) const fn readings(&self) -> u32 {
        self.readings
    }
}
