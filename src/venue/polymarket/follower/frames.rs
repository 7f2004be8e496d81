//! What the frames of a socket change.

use std::sync::Arc;

use super::Follower;
use crate::ids::Timestamp;
use crate::venue::event::{VenueChange, VenueEvent};
use crate::venue::follow::Stamp;
use crate::venue::follow::books::Books;
use crate::venue::follow::freshness::Freshness;
use crate::venue::follow::request::Notice;
use crate::venue::polymarket::wire::socket::{self as frames, Frame, Message, Subject};
use crate::venue::polymarket::wire::{UNTOLD, WireError};

/// Of a frame that is no message, the log shows this many characters.
const SHOWN_CHARACTERS_MAX: usize = 80;

impl<B: Books> Follower<B> {
    /// Takes a text frame of a socket.
    pub fn frame(&mut self, socket: usize, text: &str, received: Stamp) {
        if !self.trust.frame(socket, received) {
            return;
        }
        match frames::frame(text) {
            Frame::Messages(messages) => {
                self.trust.proven(socket);
                for (index, message) in messages.into_iter().enumerate() {
                    if self.trust.is_given_up(socket) {
                        // By a message before it.
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
                            let subject = frames::subject(text, index);
                            self.unreadable(socket, &error, subject, received);
                        }
                    }
                }
            }
            Frame::Other => {
                self.trust.counts.unknown_messages += 1;
                let text = text.chars().take(SHOWN_CHARACTERS_MAX).collect();
                self.trust.log(Notice::UnknownFrame { socket, text });
            }
            Frame::Pong | Frame::NoNewAssets | Frame::Empty => {}
        }
    }

    /// A message that is there and cannot be read. It costs no more than what it is about: else one
    /// odd market would take all others of its socket with it, for ever.
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
            // Announcements go to everybody, and change no book.
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
                self.trust.give_up(socket, "a message that cannot be read", received);
            }
        }
    }

    fn message(&mut self, socket: usize, message: Message<'_>, received: Stamp) {
        let Some(believed_at) = self.believed_time(socket, &message, received) else {
            self.trust.counts.late_messages += 1;
            return self.trust.give_up(socket, "it tells what happened long ago", received);
        };
        match &message {
            Message::TickSizeChange(change) => {
                return self.change_tick(change.market, change.tick, believed_at, received);
            }
            Message::NewMarket(market) => {
                return self.hear_of_market(&market.description.info.condition_id);
            }
            Message::MarketResolved(resolved) => {
                return self.hear_of_end(resolved, received);
            }
            Message::PriceChange(_)
            | Message::Book(_)
            | Message::LastTradePrice(_)
            | Message::BestBidAsk(_) => {}
        }
        let trust = &self.trust;
        let name = |id: &str| match trust.token(id) {
            Some((token_id, token))
                if token.socket == socket && token.state() != Freshness::Closed =>
            {
                token_id.clone()
            }
            // The sister of a token, or one that is not followed any more: the books have no such
            // token, and count it.
            _ => Arc::default(),
        };
        let Some(event) = message.event(name) else { return };
        let event = self.dated(event, received.time);
        let believed_at = if believed_at == UNTOLD { event.at } else { believed_at };
        match &event.change {
            VenueChange::Levels(changes) => {
                for change in changes {
                    self.trust.note_socket_time(&change.token_id, believed_at);
                }
            }
            VenueChange::Book(book) => self.trust.note_socket_time(&book.token_id, believed_at),
            _ => {}
        }
        let findings = self.trust.books.apply_as_of(event, believed_at);
        self.trust.judge(&findings, received);
    }

    /// The time of a message as far as it can be believed; `None` for a change that came too late
    /// to say anything of the present. Where none is told, none is believed.
    fn believed_time(
        &mut self,
        socket: usize,
        message: &Message<'_>,
        received: Stamp,
    ) -> Option<Timestamp> {
        match message {
            message if message.at() == UNTOLD => Some(UNTOLD),
            Message::PriceChange(change) => self.trust.time_of_change(socket, change.at, received),
            message => Some(self.trust.time_of(socket, message.at(), received)),
        }
    }

    /// What was told without a time is the newest of its book, or else of the time at which it
    /// came.
    pub(super) fn dated(&self, mut event: VenueEvent, time: Timestamp) -> VenueEvent {
        if event.at == UNTOLD {
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
