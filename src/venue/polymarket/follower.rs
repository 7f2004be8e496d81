//! Decides which Polymarket markets to follow, builds their books, judges how far each book can be
//! trusted, and decides what to request next.
//!
//! Pure: it takes messages, answers and times, and returns events for the books and requests to the
//! venue. [`super::live`] connects it to the venue, or replays a tape through it.

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
use crate::follow::Stamp;
use crate::follow::books::Books;
use crate::follow::freshness::Signal;
use crate::follow::request::{BookRequest, Request};
use crate::follow::status::LiveSnapshot;
use crate::follow::timing::Timing;
use crate::follow::trust::Trust;

/// Maximum number of tokens per socket. Far beyond that, the venue sends no initial books.
pub const SOCKET_TOKENS_MAX: usize = 200;

/// Maximum number of books per request.
pub const BOOKS_PER_REQUEST_MAX: usize = 100;

/// A follower of the venue, live or from a tape.
pub struct Follower<B> {
    trust: Trust<B>,
    filter: MarketFilter,
    markets: HashMap<Arc<str>, Followed>,
    /// Markets to follow regardless of the filter, which the catalogue has yet to describe.
    held: HashSet<Arc<str>>,
    /// Unknown resolution stages that have already been logged.
    logged_stages: HashSet<Box<str>>,
}

impl<B: Books> Follower<B> {
    /// Creates a follower without markets.
    pub fn new(books: B, filter: MarketFilter, timing: Timing) -> Self {
        Self {
            trust: Trust::new(books, timing, SOCKET_TOKENS_MAX),
            filter,
            markets: HashMap::new(),
            held: HashSet::new(),
            logged_stages: HashSet::new(),
        }
    }

    /// Starts over with a new filter and lag limit. Nothing reported so far can be relied on.
    pub fn restart(&mut self, filter: MarketFilter, lag_max: Duration, now: Stamp) {
        self.trust.restart(now);
        self.trust.timing.lag_max = lag_max;
        self.filter = filter;
        self.markets.clear();
    }

    /// Returns the books that events are applied to.
    pub fn books(&self) -> &B {
        &self.trust.books
    }

    /// Returns the books that events are applied to, mutably.
    pub fn books_mut(&mut self) -> &mut B {
        &mut self.trust.books
    }

    /// Takes the requests made since the last call, in order.
    pub fn take_requests(&mut self) -> Vec<Request> {
        self.trust.take_requests()
    }

    /// Returns the next tokens whose books should be requested, at most [`BOOKS_PER_REQUEST_MAX`];
    /// `None` if none are due.
    pub fn next_book_request(&mut self) -> Option<BookRequest> {
        self.trust.next_book_request(BOOKS_PER_REQUEST_MAX)
    }

    /// Returns the current status, without the counters of the books.
    pub fn snapshot(&self) -> LiveSnapshot {
        self.trust.snapshot()
    }

    /// Records the time from the receipt of a frame to the publication of its books.
    pub fn note_delay(&mut self, delay: Duration) {
        self.trust.counts.delays.record(delay);
    }

    /// Adds closed sockets up to and including this one.
    pub fn ensure_socket(&mut self, socket: usize) {
        self.trust.ensure_socket(socket);
    }

    /// Records that a connection was opened. The venue sends full books next.
    pub fn opened(&mut self, socket: usize, connection: u64, now: Stamp) {
        self.trust.opened(socket, connection, now);
    }

    /// Records that a connection ended or could not be opened.
    pub fn lost(&mut self, socket: usize, now: Stamp) {
        self.trust.counts.connections_lost += 1;
        self.trust.lost(socket, now);
    }

    /// Records that all connections ended.
    pub fn lost_all(&mut self, now: Stamp) {
        self.trust.lose_all(now);
    }

    /// Requests that all connections be replaced.
    pub fn give_up_all(&mut self, why: &'static str, now: Stamp) {
        self.trust.give_up_all(why, now);
    }

    /// Checks the age of every book. Pass `is_caught_up` if no received frame is still queued.
    pub fn sweep(&mut self, now: Stamp, is_caught_up: bool) {
        self.trust.sweep(now, is_caught_up);
    }

    /// Replays an assignment from a tape: these tokens were on this socket, which may differ from
    /// the socket that today's code would choose.
    pub fn assign(&mut self, socket: usize, token_ids: &[impl AsRef<str>], now: Stamp) {
        for id in token_ids {
            self.trust.move_to(id.as_ref(), socket, now);
        }
    }

    /// Replays an expiry from a tape: the proof of these books expired.
    pub fn expired(&mut self, token_ids: &[impl AsRef<str>], now: Stamp) {
        for id in token_ids {
            self.trust.signal(id.as_ref(), Signal::Expired, now);
        }
    }

    /// Replays a request for the books of these tokens from a tape. Skips tokens that are not
    /// followed.
    pub fn ask(&self, token_ids: &[impl AsRef<str>]) -> BookRequest {
        let known = token_ids.iter().filter_map(|id| self.trust.token(id.as_ref()));
        known.map(|(id, token)| (id.clone(), token.connection())).collect()
    }
}

#[cfg(test)]
mod tests;
