//! What readers are told of how the venue is followed.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::delay::Delays;
use super::freshness::StateCounts;
use crate::ids::Timestamp;
use crate::venue::feed::counts::FeedCounts;

/// How the venue is followed at one moment.
#[derive(Clone, Default, Debug)]
pub struct LiveSnapshot {
    /// How many tokens are in each state.
    pub tokens: StateCounts,
    /// How many sockets are in each state.
    pub sockets: StateCounts,
    /// Text frames received.
    pub frames: u64,
    /// Messages of a kind that is not known; left out.
    pub unknown_messages: u64,
    /// Messages of a known kind that cannot be read.
    pub unreadable_messages: u64,
    /// Messages that were told too late to say anything of the present.
    pub late_messages: u64,
    /// Messages and books whose time is yet to come; the time is clamped.
    pub ahead_messages: u64,
    /// Connections that ended, or were never opened.
    pub connections_lost: u64,
    /// Books that the book endpoint was asked for.
    pub books_asked: u64,
    /// Books of the book endpoint that were not what our socket had told.
    pub books_diverged: u64,
    /// When the newest frame came.
    pub frame_received_at: Option<Timestamp>,
    /// How long frames took from there to the published books.
    pub delays: Delays,
    /// What the feed has counted.
    pub feed: FeedCounts,
}

/// Shared with readers, who see it as it was at the newest sweep.
#[derive(Clone, Default, Debug)]
pub struct LiveStatus(Arc<ArcSwap<LiveSnapshot>>);

impl LiveStatus {
    /// As it was at the newest sweep.
    pub fn get(&self) -> LiveSnapshot {
        LiveSnapshot::clone(&self.0.load())
    }

    pub(crate) fn set(&self, snapshot: LiveSnapshot) {
        self.0.store(Arc::new(snapshot));
    }
}
