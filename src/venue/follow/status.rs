//! What the status and the metrics show of a live venue.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::delay::Delays;
use super::freshness::{Freshness, StateCounts};
use crate::feed::counts::FeedCounts;
use paperbourse_core::ids::Timestamp;

/// One socket to the venue at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketSnapshot {
    /// Whether its connection can be trusted.
    pub state: Freshness,
    /// Text frames received, on all its connections.
    pub frames: u64,
    /// When the newest of them arrived.
    pub frame_received_at: Option<Timestamp>,
}

/// Counters and states at one moment.
#[derive(Clone, Default, Debug)]
pub struct LiveSnapshot {
    /// Whether the venue has sent a list of markets.
    pub is_listed: bool,
    /// How many tokens are in each state.
    pub tokens: StateCounts,
    /// How many sockets are in each state.
    pub sockets: StateCounts,
    /// The sockets, in the order in which they were opened first.
    pub by_socket: Vec<SocketSnapshot>,
    /// Text frames received.
    pub frames: u64,
    /// Messages of an unknown type; ignored.
    pub unknown_messages: u64,
    /// Messages of a known type that cannot be parsed.
    pub unreadable_messages: u64,
    /// Changes that arrived too late to describe the present.
    pub late_messages: u64,
    /// Messages and books with a timestamp from the future, which is clamped.
    pub ahead_messages: u64,
    /// Connections that ended or could not be opened.
    pub connections_lost: u64,
    /// Books requested from the book endpoint.
    pub books_requested: u64,
    /// Books from the book endpoint that differed from what the socket had sent.
    pub books_diverged: u64,
    /// When the newest frame arrived.
    pub frame_received_at: Option<Timestamp>,
    /// Delays from receiving a frame to publishing its books.
    pub delays: Delays,
    /// The counters of the feed.
    pub feed: FeedCounts,
}

/// The newest snapshot, shared with readers and updated at each sweep.
#[derive(Clone, Default, Debug)]
pub struct LiveStatus(Arc<ArcSwap<LiveSnapshot>>);

impl LiveStatus {
    /// The snapshot of the newest sweep.
    pub fn get(&self) -> LiveSnapshot {
        LiveSnapshot::clone(&self.0.load())
    }

    /// Replaces the snapshot that readers get.
    pub fn set(&self, snapshot: LiveSnapshot) {
        self.0.store(Arc::new(snapshot));
    }
}
