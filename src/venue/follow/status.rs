//! The state of a live venue, for the status and the metrics.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::delay::Delays;
use super::freshness::{Freshness, StateCounts};
use crate::feed::counts::FeedCounts;
use paperbourse_core::ids::Timestamp;

/// The state of one socket to the venue at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketSnapshot {
    /// The state of the socket's connection.
    pub state: Freshness,
    /// Text frames received, on all connections of the socket.
    pub frames: u64,
    /// Arrival time of the newest text frame; `None` before the first.
    pub frame_received_at: Option<Timestamp>,
}

/// The counters and states of a connector at one moment.
#[derive(Clone, Default, Debug)]
pub struct LiveSnapshot {
    /// Whether the venue has sent a list of markets.
    pub is_listed: bool,
    /// Number of tokens in each state.
    pub tokens: StateCounts,
    /// Number of sockets in each state.
    pub sockets: StateCounts,
    /// The sockets, in the order in which they were first opened.
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
    /// Connections that ended or failed to open.
    pub connections_lost: u64,
    /// Books requested from the book endpoint.
    pub books_requested: u64,
    /// Books from the book endpoint that differed from what the socket had sent.
    pub books_diverged: u64,
    /// Arrival time of the newest text frame; `None` before the first.
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
    /// Returns the snapshot of the newest sweep.
    pub fn get(&self) -> LiveSnapshot {
        LiveSnapshot::clone(&self.0.load())
    }

    /// Replaces the snapshot that readers get.
    pub fn set(&self, snapshot: LiveSnapshot) {
        self.0.store(Arc::new(snapshot));
    }
}
