//! What time it is for the connector: the present, or that of a tape.

use std::time::Duration;

use tokio::time::Instant;

use super::Live;
use crate::ids::Timestamp;
use crate::venue::follow::books::Books as _;
use crate::venue::polymarket::wire::UNTOLD;
use crate::venue::{VenueChange, VenueEvent};

/// What time it is.
#[derive(Clone, Copy)]
pub(super) enum Clock {
    /// By the clocks of this machine.
    Running {
        /// When the connector began.
        began: Instant,
    },
    /// By the line of a tape that is being played.
    Tape {
        /// When its session began.
        began: Timestamp,
        /// When the line came.
        now: Timestamp,
    },
}

/// When something reached us, by both clocks. What is late is judged by this: a message that had to
/// wait for us was not late for that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    /// The time since the start.
    pub(super) elapsed: Duration,
    /// The time of day.
    pub(super) time: Timestamp,
}

impl Clock {
    /// The present.
    pub(super) fn now(self) -> Stamp {
        match self {
            Self::Running { began } => Stamp { elapsed: began.elapsed(), time: Timestamp::now() },
            Self::Tape { began, now } => {
                let nanos = now.nanos().saturating_sub(began.nanos());
                let elapsed = Duration::from_nanos(u64::try_from(nanos).unwrap_or(0));
                Stamp { elapsed, time: now }
            }
        }
    }

    /// The stamp of what reached us at this instant and may have waited since. Of a tape, what is
    /// played came at the time of its line.
    pub(super) fn received(self, at: Instant) -> Stamp {
        let mut stamp = self.now();
        if let Self::Running { began } = self {
            let waited = i64::try_from(at.elapsed().as_nanos()).unwrap_or(i64::MAX);
            stamp.elapsed = at.saturating_duration_since(began);
            stamp.time = Timestamp::from_nanos(stamp.time.nanos().saturating_sub(waited));
        }
        stamp
    }
}

impl Live {
    /// What was told without a time is the newest of its book, or else of the time at which it
    /// came.
    pub(super) fn dated(&self, mut event: VenueEvent, time: Timestamp) -> VenueEvent {
        if event.at == UNTOLD {
            let newest = match &event.change {
                VenueChange::Levels(changes) => {
                    let tokens = changes.iter().map(|change| &change.token_id);
                    tokens.filter_map(|id| self.feed.updated_at(id)).max()
                }
                VenueChange::Book(book) => self.feed.updated_at(&book.token_id),
                VenueChange::Traded { token_id, .. } => self.feed.updated_at(token_id),
                VenueChange::Listed(_) | VenueChange::Top { .. } | VenueChange::Stale { .. } => {
                    None
                }
            };
            event.at = newest.unwrap_or(time);
        }
        event
    }
}
