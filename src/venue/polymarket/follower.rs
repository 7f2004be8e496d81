//! Decides what follows from what Polymarket tells: which markets are followed, what their books
//! are, how far each can be trusted, and what to ask for next.
//!
//! Pure: messages, answers and times come in; events go to the books, and requests to whoever
//! carries. [`super::live`] carries between it and the venue; a tape is played to it as well.

mod books;
mod frames;
mod market;
mod markets;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

pub use market::Described;

use market::Followed;

use super::filter::MarketFilter;
use crate::venue::follow::Stamp;
use crate::venue::follow::books::Books;
use crate::venue::follow::freshness::Signal;
use crate::venue::follow::request::{BookRequest, Request};
use crate::venue::follow::status::LiveSnapshot;
use crate::venue::follow::timing::Timing;
use crate::venue::follow::trust::Trust;

/// A socket follows at most this many tokens: far past it the venue sends no first books.
pub const SOCKET_TOKENS_MAX: usize = 200;

/// Books that one request asks for.
pub const BOOKS_PER_QUESTION_MAX: usize = 100;

/// Follows the venue, in whatever way its words come and go.
pub struct Follower<B> {
    trust: Trust<B>,
    filter: MarketFilter,
    markets: HashMap<Arc<str>, Followed>,
    /// Markets to follow whatever the filter says, until the catalogue has described them.
    held: HashSet<Arc<str>>,
    /// Stages of resolutions that are not known and were named in the log.
    stages_named: HashSet<Box<str>>,
}

impl<B: Books> Follower<B> {
    /// Follows nothing yet.
    pub fn new(books: B, filter: MarketFilter, timing: Timing) -> Self {
        Self {
            trust: Trust::new(books, timing, SOCKET_TOKENS_MAX),
            filter,
            markets: HashMap::new(),
            held: HashSet::new(),
            stages_named: HashSet::new(),
        }
    }

    /// Begins anew: of what was told before, nothing is known to be so still.
    pub fn restart(&mut self, filter: MarketFilter, lag_max: Duration, now: Stamp) {
        self.trust.restart(now);
        self.trust.timing.lag_max = lag_max;
        self.filter = filter;
        self.markets.clear();
    }

    /// Where events take effect.
    pub fn books(&self) -> &B {
        &self.trust.books
    }

    /// What is to be done by now, in order.
    pub fn take_requests(&mut self) -> Vec<Request> {
        self.trust.take_requests()
    }

    /// At most [`BOOKS_PER_QUESTION_MAX`] tokens whose books are to be asked for now.
    pub fn next_book_request(&mut self) -> Option<BookRequest> {
        self.trust.next_book_request(BOOKS_PER_QUESTION_MAX)
    }

    /// How the venue is followed now, but for what the books have counted.
    pub fn snapshot(&self) -> LiveSnapshot {
        self.trust.snapshot()
    }

    /// Takes note of how long a frame took from its receipt to the books.
    pub fn note_delay(&mut self, delay: Duration) {
        self.trust.counts.delays.record(delay);
    }

    /// Has sockets up to this number, none of which is open.
    pub fn ensure_socket(&mut self, socket: usize) {
        self.trust.ensure_socket(socket);
    }

    /// A connection is open, and its whole books come next.
    pub fn opened(&mut self, socket: usize, connection: u64, now: Stamp) {
        self.trust.opened(socket, connection, now);
    }

    /// A connection has ended, or was never opened.
    pub fn lost(&mut self, socket: usize, now: Stamp) {
        self.trust.counts.connections_lost += 1;
        self.trust.lost(socket, now);
    }

    /// All connections have ended.
    pub fn lost_all(&mut self, now: Stamp) {
        self.trust.lose_all(now);
    }

    /// Has all connections closed.
    pub fn give_up_all(&mut self, why: &'static str, now: Stamp) {
        self.trust.give_up_all(why, now);
    }

    /// Looks at every book, when time has passed. `has_heard_all` where nothing that a socket told
    /// waits to be taken.
    pub fn sweep(&mut self, now: Stamp, has_heard_all: bool) {
        self.trust.sweep(now, has_heard_all);
    }

    /// Of a tape: this socket told of these tokens, also if today's choice would be another.
    pub fn assign(&mut self, socket: usize, token_ids: &[impl AsRef<str>], now: Stamp) {
        for id in token_ids {
            self.trust.move_to(id.as_ref(), socket, now);
        }
    }

    /// Of a tape: the proof of these books was too old.
    pub fn expired(&mut self, token_ids: &[impl AsRef<str>], now: Stamp) {
        for id in token_ids {
            self.trust.signal(id.as_ref(), Signal::Expired, now);
        }
    }

    /// Of a tape: the books of these tokens are asked for, as far as they are followed.
    pub fn ask(&self, token_ids: &[impl AsRef<str>]) -> BookRequest {
        let known = token_ids.iter().filter_map(|id| self.trust.token(id.as_ref()));
        known.map(|(id, token)| (id.clone(), token.connection())).collect()
    }
}

#[cfg(test)]
mod tests;
