//! A socket, what it tells of, and how far the times that it tells can be believed.

use std::sync::Arc;
use std::time::Duration;

use super::Live;
use super::clock::Stamp;
use super::socket::Handle;
use crate::ids::Timestamp;
use crate::venue::follow::freshness::Freshness;
use crate::venue::follow::lag::{Heard, Lag};
use crate::venue::polymarket::wire::UNTOLD;
use crate::venue::polymarket::wire::socket::Message;

/// A socket of the venue, as whoever reads its frames sees it.
pub(super) struct Slot {
    pub(super) handle: Handle,
    pub(super) tokens: Vec<Arc<str>>,
    pub(super) state: Freshness,
    /// The number of the newest connection.
    pub(super) connection: u64,
    /// What that connection has shown of the venue's clock.
    pub(super) lag: Lag,
    /// Whether a time of it that cannot be was named in the log.
    pub(super) is_ahead_named: bool,
    pub(super) is_changed: bool,
}

impl Slot {
    /// Nothing is open, and nothing is to be followed.
    pub(super) fn new(handle: Handle) -> Self {
        Self {
            handle,
            tokens: Vec::new(),
            state: Freshness::Stale,
            connection: 0,
            lag: Lag::default(),
            is_ahead_named: false,
            is_changed: false,
        }
    }

    /// A connection of which nothing is known yet but its number.
    pub(super) fn begin(&mut self, connection: u64) {
        (self.connection, self.lag, self.is_ahead_named) = (connection, Lag::default(), false);
    }
}

impl Live {
    /// The time of a message as far as it can be believed; `None` for a change that is told too
    /// late to say anything of the present. Where none is told, none is believed.
    pub(super) fn believed_time(
        &mut self,
        socket: usize,
        message: &Message<'_>,
        received: Stamp,
    ) -> Option<Timestamp> {
        if message.at() == UNTOLD {
            return Some(UNTOLD);
        }
        let (now, time) = (received.elapsed, received.time);
        let lag = &mut self.sockets[socket].lag;
        let (at, heard) = match message {
            Message::PriceChange(change) => (change.at, lag.of_change(change.at, now, time)),
            message => (message.at(), lag.of(message.at(), now, time)),
        };
        match heard {
            Heard::Late(lag) if matches!(message, Message::PriceChange(_)) => {
                (lag <= self.timing.lag_max).then_some(at)
            }
            Heard::Late(_) => Some(at),
            Heard::Ahead(ahead) => Some(self.clamp(socket, ahead, received)),
        }
    }

    /// What a time that cannot be is taken for: one that makes nothing late that comes after it.
    pub(super) fn clamp(&mut self, socket: usize, ahead: Duration, received: Stamp) -> Timestamp {
        self.counts.ahead_messages += 1;
        let slot = &mut self.sockets[socket];
        if !std::mem::replace(&mut slot.is_ahead_named, true) {
            let ahead_ms = u64::try_from(ahead.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(
                socket,
                ahead_ms,
                "the venue tells a time that is yet to come; it is clamped, and so are others of \
                 this connection without a word"
            );
        }
        slot.lag.time_before(self.timing.lag_max, received.elapsed, received.time)
    }
}
