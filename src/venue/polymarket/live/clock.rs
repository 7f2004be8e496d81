//! What time it is for the connector.

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
}

impl Clock {
    /// The time since the start.
    pub(super) fn elapsed(self) -> Duration {
        match self {
            Self::Running { began } => began.elapsed(),
        }
    }

    /// The time of day.
    pub(super) fn time(self) -> Timestamp {
        match self {
            Self::Running { .. } => Timestamp::now(),
        }
    }
}
