//! A state machine for how far a book or a connection can be trusted. Pure.
//!
//! Orders fill only against books that are [`Freshness::Live`].

/// The state of a book or a connection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Freshness {
    /// The connection is open, but its snapshot has not arrived yet.
    Syncing,
    /// Proven recently.
    Live,
    /// Contradicted; a fresh book is being requested.
    Suspect,
    /// The connection is lost, or the newest proof is too old.
    #[default]
    Stale,
    /// No longer followed.
    Closed,
}

/// Number of books or connections in each state, in the order of [`Freshness::ALL`].
pub type StateCounts = [usize; Freshness::ALL.len()];

pub(crate) fn count(states: impl Iterator<Item = Freshness>) -> StateCounts {
    let mut counts = StateCounts::default();
    states.for_each(|state| counts[state as usize] += 1);
    counts
}

/// An input that may change the state of a book or a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// The connection was opened.
    Opened,
    /// The whole book was proven, by a full book or by a matching hash.
    Proven,
    /// A message agrees with the book without proving all of it.
    Agreed,
    /// A message contradicts the book.
    Contradicted,
    /// The newest proof is too old.
    Expired,
    /// The connection was lost.
    Lost,
    /// The market closed.
    Ended,
}

impl Freshness {
    /// All states, in the order of [`StateCounts`].
    pub const ALL: [Self; 5] =
        [Self::Syncing, Self::Live, Self::Suspect, Self::Stale, Self::Closed];

    /// Returns the name used in the status and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Syncing => "syncing",
            Self::Live => "live",
            Self::Suspect => "suspect",
            Self::Stale => "stale",
            Self::Closed => "closed",
        }
    }

    /// Returns the state after a signal.
    #[must_use]
    pub const fn after(self, signal: Signal) -> Self {
        match (self, signal) {
            (_, Signal::Opened) => Self::Syncing,
            (_, Signal::Ended) | (Self::Closed, _) => Self::Closed,
            (_, Signal::Lost | Signal::Expired) => Self::Stale,
            (_, Signal::Proven) => Self::Live,
            (Self::Live, Signal::Contradicted) => Self::Suspect,
            (state, Signal::Agreed | Signal::Contradicted) => state,
        }
    }
}

impl Signal {
    /// All signals.
    pub const ALL: [Self; 7] = [
        Self::Opened,
        Self::Proven,
        Self::Agreed,
        Self::Contradicted,
        Self::Expired,
        Self::Lost,
        Self::Ended,
    ];
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn the_whole_transition_table() {
        let mut table = format!("{:<13}", "");
        for state in Freshness::ALL {
            write!(table, "{:<8}", state.as_str()).unwrap();
        }
        for signal in Signal::ALL {
            write!(table, "\n{:<13}", format!("{signal:?}")).unwrap();
            for state in Freshness::ALL {
                write!(table, "{:<8}", state.after(signal).as_str()).unwrap();
            }
        }
        let table: Vec<&str> = table.lines().map(str::trim_end).collect();
        insta::assert_snapshot!(table.join("\n"), @r"
                     syncing live    suspect stale   closed
        Opened       syncing syncing syncing syncing syncing
        Proven       live    live    live    live    closed
        Agreed       syncing live    suspect stale   closed
        Contradicted syncing suspect suspect stale   closed
        Expired      stale   stale   stale   stale   closed
        Lost         stale   stale   stale   stale   closed
        Ended        closed  closed  closed  closed  closed
        ");
    }
}
