//! The moment to which a data directory is restored.

use std::fmt;

use crate::inspect::Text;
use paperbourse_core::ids::Timestamp;

/// How much of a journal to restore.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// Everything.
    Newest,
    /// Up to the record at this position, with it.
    Position(u64),
    /// Up to the first record decided after this time, to the microsecond, without it. So what was
    /// answered by then is included: its record came before any that was decided later.
    Time(Timestamp),
}

impl Moment {
    /// Whether the record at this position, decided at this time, is included if all before it are.
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

/// A record, and when it was decided.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Known {
    /// Its position; 0 stands for the time before the first record.
    pub position: u64,
    /// The time of its decision.
    pub time: Timestamp,
}

impl Known {
    /// The time of its decision. `None` before the first record.
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
