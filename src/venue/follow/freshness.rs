//! How far a book, or a connection, can be trusted: a state and a table of what changes it. Pure.
//!
//! Nothing fills on anything but [`Freshness::Live`].

/// Where a book or a connection stands.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Freshness {
    /// The connection is open, and what it shows has yet to come.
    Syncing,
    /// What is known was proven, and not too long ago.
    Live,
    /// Something contradicts what is known: the venue is being asked.
    Suspect,
    /// Nothing is known of the present: the connection is lost, or the proof is too old.
    #[default]
    Stale,
    /// It has ended.
    Closed,
}

/// How many are in each state, in the order of [`Freshness::ALL`].
pub type StateCounts = [usize; Freshness::ALL.len()];

/// How many of these are in each state.
pub(crate) fn count(states: impl Iterator<Item = Freshness>) -> StateCounts {
    let mut counts = StateCounts::default();
    states.for_each(|state| counts[state as usize] += 1);
    counts
}

/// What can happen to a book or a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// Its connection was opened.
    Opened,
    /// It was proven as a whole: a full book, or a hash that ours gives as well.
    Proven,
    /// What was told agrees with it and does not prove the whole.
    Agreed,
    /// What was told contradicts it.
    Contradicted,
    /// The newest proof is too old.
    Expired,
    /// Its connection was lost.
    Lost,
    /// The venue is done with it.
    Ended,
}

impl Freshness {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Syncing, Self::Live, Self::Suspect, Self::Stale, Self::Closed];

    /// Its name in a status or a metric.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Syncing => "syncing",
            Self::Live => "live",
            Self::Suspect => "suspect",
            Self::Stale => "stale",
            Self::Closed => "closed",
        }
    }

    /// What it is after this.
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
    /// All of them.
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
