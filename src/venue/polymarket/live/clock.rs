//! What time it is for the connector: the present, or that of a tape.

use std::time::Duration;

use tokio::time::Instant;

use crate::ids::Timestamp;

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
