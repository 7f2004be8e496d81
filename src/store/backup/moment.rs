//! The moment to which a data directory is restored.

use std::fmt;

use crate::inspect::Text;
use paperbourse_core::ids::Timestamp;

/// The point up to which a journal is restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// Up to the newest record.
    Newest,
    /// Up to and including the record at this position.
    Position(u64),
    /// Up to, but not including, the first record decided after this time, to the microsecond. So
    /// every response sent by then is included: its record precedes any that was decided later.
    Time(Timestamp),
}

impl Moment {
    /// Whether `known` is included, provided that all records before it are.
    pub(super) const fn includes(self, known: Known) -> bool {
        match self {
            Self::Newest => true,
            Self::Position(position) => known.position <= position,
            Self::Time(time) => known.time.micros() <= time.micros(),
        }
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newest => formatter.write_str("the newest record"),
            Self::Position(position) => write!(formatter, "position {position}"),
            Self::Time(time) => time.fmt(formatter),
        }
    }
}

/// A record's position and the time of its decision.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Known {
    /// The position; 0 means before the first record.
    pub position: u64,
    /// The time of the decision.
    pub time: Timestamp,
}

impl Known {
    /// Returns the time of the decision. `None` before the first record.
    pub(super) fn decided_at(self) -> Option<Text<Timestamp>> {
        (self.position > 0).then_some(Text(self.time))
    }
}

impl fmt::Display for Known {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "position {}", self.position)?;
        match self.decided_at() {
            Some(time) => write!(formatter, ", decided at {time}"),
            None => formatter.write_str(", before the first record"),
        }
    }
}
