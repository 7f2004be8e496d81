//! Tells settled content from content that a running writer is about to change, for a reader of a
//! live journal.

use std::time::Duration;

/// An unclean reading is accepted after this many identical readings in a row.
pub(crate) const SAME_READINGS_MIN: u32 = 3;

/// Maximum number of readings, after which the reader gives up waiting for a settled one.
const READINGS_MAX: u32 = 100;

/// Pause between two readings, longer than it takes to write a block.
pub(crate) const READING_PAUSE: Duration = Duration::from_millis(20);

/// Decides when a reader of a live journal may accept a reading as settled.
#[derive(Default)]
pub(crate) struct Patience {
    /// The previous reading; `same` counts how often it was read in a row.
    seen: String,
    same: u32,
    readings: u32,
}

impl Patience {
    /// Records a reading. Returns whether it is final: repeated often enough, or the last one
    /// allowed.
    pub(crate) fn has_seen(&mut self, reading: String) -> bool {
        self.readings += 1;
        self.same = if reading == self.seen { self.same + 1 } else { 1 };
        self.seen = reading;
        self.is_settled() || self.readings >= READINGS_MAX
    }

    /// Whether the last [`SAME_READINGS_MIN`] readings were identical.
    pub(crate) const fn is_settled(&self) -> bool {
        self.same >= SAME_READINGS_MIN
    }

    /// Returns the number of readings so far.
    pub(crate) const fn readings(&self) -> u32 {
        self.readings
    }
}
