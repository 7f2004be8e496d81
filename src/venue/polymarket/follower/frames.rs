//! Takes the frames of a socket.

use std::sync::Arc;

use super::Follower;
use crate::ids::Timestamp;
use crate::venue::event::{VenueChange, VenueEvent};
use crate::venue::follow::Stamp;
use crate::venue::follow::books::Books;
use crate::venue::follow::freshness::Freshness;
use crate::venue::follow::request::Notice;
use crate::venue::polymarket::wire::socket::{self as frames, Frame, Message, Subject};
use crate::venue::polymarket::wire::{NO_TIMESTAMP, WireError};

/// How much the log shows of a frame that is not a message.
const LOGGED_CHARACTERS_MAX: usize = 80;

impl<B: Books> Follower<B> {
    /// Takes a text frame of a socket.
    pub fn frame(&mut self, socket: usize, text: &str, received: Stamp) {
        if !self.trust.frame(socket, received) {
            return;
        }
        match frames::frame(text) {
            Frame::Messages(messages) => {
                self.trust.proven(socket);
                let mut texts = None;
                for (index, message) in messages.into_iter().enumerate() {
                    if self.trust.is_given_up(socket) {
                        // An earlier message of this frame made us give up the connection.
                        break;
                    }
                    match message {
                        Ok(message) => self.message(socket, message, received),
                        Err(error @ WireError::UnknownType { .. }) => {
                            self.trust.counts.unknown_messages += 1;
                            let error = error.to_string();
                            self.trust.log(Notice::UnknownMessage { socket, error });
                        }
                        Err(error) => {
                            let texts = texts.get_or_insert_with(|| frames::texts(text));
                            let subject = frames::subject(texts.get(index).unwrap_or(&""));
                            self.unreadable(socket, &error, subject, received);
                        }
                    }
                }
            }
            Frame::Other => {
                self.trust.counts.unknown_messages += 1;
                let text = text.chars().take(LOGGED_CHARACTERS_MAX).collect();
                self.trust.log(Notice::UnknownFrame { socket, text });
            }
            Frame::Pong | Frame::NoNewAssets | Frame::Empty => {}
        }
    }

    /// Handles a message that cannot be parsed. If its market is known, only the books of that
    /// market become stale: otherwise one odd market would keep taking down its whole socket.
    fn unreadable(
        &mut self,
        socket: usize,
        error: &WireError,
        subject: Subject<'_>,
        received: Stamp,
    ) {
        self.trust.log(Notice::UnreadableMessage { socket, error: error.to_string() });
        let market = subject.market.and_then(|id| self.markets.get(id));
        match (subject.event_type, market) {
            // Announcements are broadcast, and change no book.
            (Some("new_market" | "market_resolved"), _) => self.trust.counts.unknown_messages += 1,
            (Some(_), Some(market)) if !matches!(error, WireError::OldFormat) => {
                self.trust.counts.unreadable_messages += 1;
                for outcome in &market.info.outcomes {
                    let token = self.trust.token(&outcome.token_id);
                    if token.is_some_and(|(_, token)| token.socket == socket) {
                        self.trust.distrust(&outcome.token_id, received);
                    }
                }
            }
            _ => {
                self.trust.counts.unreadable_messages += 1;
                self.trust.give_up(socket, "unreadable message", received);
            }
        }
    }

    fn message(&mut self, socket: usize, message: Message<'_>, received: Stamp) {
        let Some(trusted_at) = self.trusted_time(socket, &message, received) else {
            self.trust.counts.late_messages += 1;
            return self.trust.give_up(socket, "message too late", received);
        };
        match &message {
            Message::TickSizeChange(change) => {
                return self.change_tick(change.market, change.tick, trusted_at, received);
            }
            Message::NewMarket(market) => {
                return self.announced(&market.description.info.condition_id);
            }
            Message::MarketResolved(resolved) => {
                return self.ended(resolved, received);
            }
            Message::PriceChange(_)
            | Message::Book(_)
            | Message::LastTradePrice(_)
            | Message::BestBidAsk(_) => {}
        }
        let trust = &self.trust;
        let token_id = |id: &str| match trust.token(id) {
            Some((token_id, token))
                if token.socket == socket && token.state() != Freshness::Closed =>
            {
                token_id.clone()
            }
            // The other token of a market, or one that is no longer followed. The books do not know
            // the empty id, and count the message as one for an unknown token.
            _ => Arc::default(),
        };
        let Some(event) = message.event(token_id) else { return };
        let event = self.dated(event, received.time);
        let trusted_at = if trusted_at == NO_TIMESTAMP { event.at } else { trusted_at };
        match &event.change {
            VenueChange::Levels(changes) => {
                for change in changes {
                    self.trust.note_socket_time(&change.token_id, trusted_at);
                }
            }
            VenueChange::Book(book) => self.trust.note_socket_time(&book.token_id, trusted_at),
            _ => {}
        }
        let findings = self.trust.books.apply_as_of(event, trusted_at);
        self.trust.judge(&findings, received);
    }

    /// The time of a message, clamped if it is implausible; `None` if it is a change that came too
    /// late to describe the present. [`NO_TIMESTAMP`] stays as it is.
    fn trusted_time(
        &mut self,
        socket: usize,
        message: &Message<'_>,
        received: Stamp,
    ) -> Option<Timestamp> {
        match message {
            message if message.at() == NO_TIMESTAMP => Some(NO_TIMESTAMP),
            Message::PriceChange(change) => self.trust.time_of_change(socket, change.at, received),
            message => Some(self.trust.time_of(socket, message.at(), received)),
        }
    }

    /// Gives an event without a timestamp the newest time of its book, or else the time at which
    /// it was received.
    pub(super) fn dated(&self, mut event: VenueEvent, time: Timestamp) -> VenueEvent {
        if event.at == NO_TIMESTAMP {
            let books = &self.trust.books;
            let newest = match &event.change {
                VenueChange::Levels(changes) => {
                    let tokens = changes.iter().map(|change| &change.token_id);
                    tokens.filter_map(|id| books.updated_at(id)).max()
                }
                VenueChange::Book(book) => books.updated_at(&book.token_id),
                VenueChange::Traded { token_id, .. } => books.updated_at(token_id),
                VenueChange::Listed(_) | VenueChange::Top { .. } | VenueChange::Stale { .. } => {
                    None
                }
            };
            event.at = newest.unwrap_or(time);
        }
        event
    }
}
