//! What time it is for the connector: the present, or that of a tape.

use std::time::Duration;

use tokio::time::Instant;

use super::Live;
use crate::ids::Timestamp;
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

impl Clock {
    /// The time since the start.
    pub(super) fn elapsed(self) -> Duration {
        match self {
            Self::Running { began } => began.elapsed(),
            Self::Tape { began, now } => {
                let nanos = now.nanos().saturating_sub(began.nanos());
                Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
            }
        }
    }

    /// The time of day.
    pub(super) fn time(self) -> Timestamp {
        match self {
            Self::Running { .. } => Timestamp::now(),
            Self::Tape { now, .. } => now,
        }
    }
}

impl Live {
    /// What was told without a time is the newest of its book.
    pub(super) fn dated(&self, mut event: VenueEvent) -> VenueEvent {
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
            event.at = newest.unwrap_or_else(|| self.clock.time());
        }
        event
    }
}
