//! Processes the frames of a socket.

use std::sync::Arc;

use super::Follower;
use crate::event::{VenueChange, VenueEvent};
use crate::follow::Stamp;
use crate::follow::books::Books;
use crate::follow::freshness::Freshness;
use crate::follow::request::Notice;
use crate::polymarket::wire::socket::{self as frames, Frame, Message, Messages, Subject};
use crate::polymarket::wire::{self, NO_TIMESTAMP, WireError};
use paperbourse_core::ids::Timestamp;

/// Maximum number of characters logged from a frame that is not a message.
const LOGGED_CHARACTERS_MAX: usize = 80;

/// Returns whether a message may only need a more lenient parser.
fn is_odd(message: &Result<Message<'_>, WireError>) -> bool {
    matches!(message, Err(WireError::Json(_)))
}

impl<B: Books> Follower<B> {
    /// Processes a text frame from a socket.
    pub fn frame(&mut self, socket: usize, text: &str, received: Stamp) {
        if !self.trust.frame(socket, received) {
            return;
        }
        match frames::frame(text) {
            Frame::Messages(messages) if messages.iter().any(is_odd) => {
                let lenient = wire::lenient(text);
                if let Frame::Messages(messages) = frames::frame(&lenient) {
                    self.messages(socket, messages, &lenient, received);
                }
            }
            Frame::Messages(messages) => self.messages(socket, messages, text, received),
            Frame::Other => {
                self.trust.counts.unknown_messages += 1;
                let text = text.chars().take(LOGGED_CHARACTERS_MAX).collect();
                self.trust.log(Notice::UnknownFrame { socket, text });
            }
            Frame::Pong | Frame::NoNewAssets | Frame::Empty => {}
        }
    }

    fn messages(&mut self, socket: usize, messages: Messages<'_>, text: &str, received: Stamp) {
        self.trust.proven(socket);
        let mut texts = None;
        for (index, message) in messages.into_iter().enumerate() {
            if self.trust.is_given_up(socket) {
                // An earlier message of this frame caused the connection to be given up.
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

    /// Handles a message that cannot be parsed. A message that changes no book is only counted. If
    /// the message names its token or market, only the books concerned become stale: if the socket
    /// were given up instead, one odd market could take it down again and again.
    fn unreadable(
        &mut self,
        socket: usize,
        error: &WireError,
        subject: Subject<'_>,
        received: Stamp,
    ) {
        self.trust.log(Notice::UnreadableMessage { socket, error: error.to_string() });
        let market = subject.market.and_then(|id| self.followed_name(id));
        let market = market.and_then(|id| self.markets.get(id));
        match (subject.event_type, market) {
            // Announcements are broadcast, and change no book of this socket.
            (Some("new_market" | "market_resolved"), _) => self.trust.counts.unknown_messages += 1,
            (Some("last_trade_price" | "best_bid_ask"), _) => {
                self.trust.counts.unreadable_messages += 1;
            }
            (Some(event_type), Some(market)) if !matches!(error, WireError::OldFormat) => {
                self.trust.counts.unreadable_messages += 1;
                let is_meant = |token_id: &str| {
                    event_type != "book" || subject.asset_id.is_none_or(|id| id == token_id)
                };
                let outcomes = market.info.outcomes.iter();
                let tokens = outcomes.map(|outcome| outcome.token_id.clone());
                let tokens: Vec<Arc<str>> = tokens.filter(|id| is_meant(id)).collect();
                for token_id in tokens {
                    self.distrust(socket, &token_id, received);
                }
            }
            _ => {
                self.trust.counts.unreadable_messages += 1;
                self.trust.give_up(socket, "unreadable message", received);
            }
        }
    }

    /// Marks the book of a token contradicted and stale, if this socket carries the token.
    fn distrust(&mut self, socket: usize, token_id: &str, received: Stamp) {
        let token = self.trust.token(token_id).filter(|(_, token)| token.socket == socket);
        if let Some(token_id) = token.map(|(token_id, _)| token_id.clone()) {
            self.trust.distrust(&token_id, received);
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
            // The token is carried by another socket or no longer followed. No book has the empty
            // id, so the message counts as one for an unknown token.
            _ => Arc::default(),
        };
        let mut unreadable: Vec<Arc<str>> = Vec::new();
        let mut first_error = None;
        if let Message::PriceChange(change) = &message {
            unreadable.extend(change.unreadable.iter().map(|entry| token_id(entry.asset_id)));
            first_error = change.unreadable.first().map(|entry| entry.error.clone());
        }
        let Some(event) = message.event(token_id) else { return };
        let event = self.dated(event, received.time);
        let trusted_at = if trusted_at == NO_TIMESTAMP { event.at } else { trusted_at };
        if let VenueChange::Book(book) = &event.change {
            self.trust.note_socket_book(&book.token_id);
        }
        let findings = self.trust.books.apply_as_of(event, trusted_at);
        self.trust.judge(&findings, received);
        if let Some(error) = first_error {
            self.trust.counts.unreadable_messages += 1;
            self.trust.log(Notice::UnreadableMessage { socket, error });
        }
        for token_id in unreadable {
            self.distrust(socket, &token_id, received);
        }
    }

    /// Returns the time of a message, clamped if it is implausible; `None` if it is a change that
    /// arrived too late to describe the present. [`NO_TIMESTAMP`] is returned unchanged.
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
