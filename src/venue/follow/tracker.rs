//! The state of every followed token except its book: how far to trust the book, since when, and
//! when to request it. Pure: callers pass in the time since the start.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::freshness::{self, Freshness, Signal, StateCounts};
use super::timing::Timing;

/// All followed tokens.
#[derive(Default)]
pub(crate) struct Tracker {
    tokens: HashMap<Arc<str>, Tracked, foldhash::fast::RandomState>,
}

/// A followed token.
pub(crate) struct Tracked {
    pub(crate) condition_id: Arc<str>,
    /// The number of the socket that carries the token.
    pub(crate) socket: usize,
    state: Freshness,
    /// The time at which the token entered this state.
    since: Duration,
    /// The time at which its book was last proven, or last agreed with a message while live.
    verified_at: Duration,
    /// Whether the token's socket is open.
    is_connected: bool,
    /// Number of times that the token's socket was opened or lost. Answers to requests from before
    /// the last time are discarded.
    connection: u32,
    /// The time at which the token's book was last requested on this connection.
    requested_at: Option<Duration>,
    is_request_pending: bool,
    /// Number of answers since the book was last proven.
    unproven_answer_count: u32,
    /// The time at which best prices from the socket got ahead of the book; `None` if they are not
    /// ahead.
    ahead_since: Option<Duration>,
    /// The update that the book endpoint has sent and the token's socket has yet to send.
    expected: Option<Expected>,
}

/// An update that a socket has yet to send.
#[derive(Clone, Copy)]
struct Expected {
    since: Duration,
    /// Whether the book has already expired because the update is missing.
    is_doubted: bool,
    /// Whether a sweep has found the update overdue. The socket is only given up at the next sweep:
    /// if this process was paused, the update may have arrived without having been read.
    is_overdue: bool,
}

/// The result of a sweep.
#[derive(Default, Debug, PartialEq)]
pub(crate) struct Sweep {
    /// Tokens whose newest proof is too old, or with evidence against their book that was not
    /// explained in time.
    pub(crate) expired: Vec<Arc<str>>,
    /// Tokens whose books are due to be requested, each with the number of its connection.
    pub(crate) due: Vec<(Arc<str>, u32)>,
    /// Sockets that did not send in time what the book endpoint had already sent.
    pub(crate) silent_sockets: Vec<usize>,
}

impl Tracker {
    /// Starts following a token, which is stale until its socket opens.
    pub(crate) fn follow(&mut self, token_id: Arc<str>, market: Arc<str>, socket: usize) {
        self.tokens.insert(
            token_id,
            Tracked {
                condition_id: market,
                socket,
                state: Freshness::Stale,
                since: Duration::ZERO,
                verified_at: Duration::ZERO,
                is_connected: false,
                connection: 0,
                requested_at: None,
                is_request_pending: false,
                unproven_answer_count: 0,
                ahead_since: None,
                expected: None,
            },
        );
    }

    pub(crate) fn unfollow(&mut self, token_id: &str) -> Option<Tracked> {
        self.tokens.remove(token_id)
    }

    /// Moves a token to another socket.
    pub(crate) fn move_to(&mut self, token_id: &str, socket: usize) {
        if let Some(token) = self.tokens.get_mut(token_id) {
            token.socket = socket;
        }
    }

    /// Returns a token's shared id and its state.
    pub(crate) fn get(&self, token_id: &str) -> Option<(&Arc<str>, &Tracked)> {
        self.tokens.get_key_value(token_id)
    }

    /// Records a full book from the token's socket, which then owes no further update.
    pub(crate) fn note_socket_book(&mut self, token_id: &str) {
        if let Some(token) = self.tokens.get_mut(token_id) {
            token.expected = None;
        }
    }

    /// Expects the socket to confirm or disprove a book that only the book endpoint has sent.
    /// Returns whether this expectation is new.
    pub(crate) fn expect(&mut self, token_id: &str, now: Duration) -> bool {
        match self.tokens.get_mut(token_id) {
            Some(token) if token.expected.is_none() => {
                let (is_doubted, is_overdue) = (false, false);
                token.expected = Some(Expected { since: now, is_doubted, is_overdue });
                true
            }
            _ => false,
        }
    }

    /// Records that best prices from the token's socket are ahead of its book.
    pub(crate) fn note_ahead(&mut self, token_id: &str, now: Duration) {
        if let Some(token) = self.tokens.get_mut(token_id) {
            token.ahead_since.get_or_insert(now);
        }
    }

    /// Applies a signal to a token and returns the states before and after.
    pub(crate) fn signal(
        &mut self,
        token_id: &str,
        signal: Signal,
        now: Duration,
    ) -> Option<(Freshness, Freshness)> {
        let token = self.tokens.get_mut(token_id)?;
        let before = token.state;
        token.state = before.after(signal);
        if token.state != before {
            token.since = now;
        }
        token.ahead_since = None;
        match signal {
            Signal::Opened | Signal::Lost => {
                token.is_connected = signal == Signal::Opened;
                token.connection += 1;
                (token.is_request_pending, token.requested_at) = (false, None);
                token.expected = None;
            }
            Signal::Proven => {
                (token.verified_at, token.unproven_answer_count) = (token.verified_at.max(now), 0);
                token.expected = None;
            }
            Signal::Agreed if token.state == Freshness::Live => {
                token.verified_at = token.verified_at.max(now);
            }
            _ => {}
        }
        Some((before, token.state))
    }

    /// Records that a request for a book was answered or failed. Returns whether the request was
    /// sent on the current connection of a token that is still open.
    pub(crate) fn answered(&mut self, token_id: &str, connection: u32) -> bool {
        let Some(token) = self.tokens.get_mut(token_id) else { return false };
        if token.connection != connection || token.state == Freshness::Closed {
            return false;
        }
        token.is_request_pending = false;
        token.unproven_answer_count = token.unproven_answer_count.saturating_add(1);
        true
    }

    /// Returns whether this is the token's current connection and the token is still open.
    pub(crate) fn is_current(&self, token_id: &str, connection: u32) -> bool {
        self.tokens
            .get(token_id)
            .is_some_and(|token| token.connection == connection && token.state != Freshness::Closed)
    }

    /// Returns the number of answers since the book was last proven.
    pub(crate) fn unproven_answer_count(&self, token_id: &str) -> u32 {
        self.tokens.get(token_id).map_or(0, |token| token.unproven_answer_count)
    }

    /// Finds expired books, due requests and silent sockets. Everything that arrived up to
    /// `received_until` has been processed, so a socket is silent if its deadline is earlier than
    /// that, regardless of the frames still queued.
    pub(crate) fn sweep(
        &mut self,
        now: Duration,
        received_until: Duration,
        timing: &Timing,
    ) -> Sweep {
        let mut sweep = Sweep::default();
        for (token_id, token) in &mut self.tokens {
            if !token.is_connected || token.state == Freshness::Closed {
                continue;
            }
            let is_old = now.saturating_sub(token.verified_at) > timing.verified_max;
            let is_unexplained = token.is_unexplained(received_until, timing);
            if matches!(token.state, Freshness::Live | Freshness::Suspect)
                && (is_old || is_unexplained)
            {
                sweep.expired.push(token_id.clone());
            }
            if token.is_due(now, timing) {
                (token.is_request_pending, token.requested_at) = (true, Some(now));
                sweep.due.push((token_id.clone(), token.connection));
            }
            let Some(expected) = &mut token.expected else { continue };
            let is_past = received_until > expected.since + timing.silence_timeout;
            if !is_past || !std::mem::replace(&mut expected.is_overdue, true) {
                continue;
            }
            token.expected = None;
            if !sweep.silent_sockets.contains(&token.socket) {
                sweep.silent_sockets.push(token.socket);
            }
        }
        sweep
    }

    pub(crate) fn counts(&self) -> StateCounts {
        freshness::count(self.tokens.values().map(|token| token.state))
    }
}

impl Tracked {
    /// Returns whether evidence against the book has gone unexplained for too long: best prices
    /// that no change has caused, or a different book from the book endpoint. Reports each case
    /// once.
    fn is_unexplained(&mut self, received_until: Duration, timing: &Timing) -> bool {
        let is_past = |since: Duration, grace: Duration| received_until > since + grace;
        let is_ahead =
            self.ahead_since.take_if(|since| is_past(*since, timing.ahead_grace)).is_some();
        let doubted = self.expected.as_mut().filter(|expected| {
            !expected.is_doubted && is_past(expected.since, timing.suspect_grace)
        });
        let is_doubted = doubted.map(|expected| expected.is_doubted = true).is_some();
        is_ahead || is_doubted
    }

    pub(crate) const fn state(&self) -> Freshness {
        self.state
    }

    /// Returns the number of the token's connection, to match answers with requests.
    pub(crate) const fn connection(&self) -> u32 {
        self.connection
    }

    /// Returns whether to request the token's book now.
    fn is_due(&self, now: Duration, timing: &Timing) -> bool {
        // Back off while answers prove nothing, down to about one request per minute.
        let pause =
            timing.book_request_pause.saturating_mul(1 << self.unproven_answer_count.min(5));
        let is_paused = self.requested_at.is_some_and(|at| now.saturating_sub(at) < pause);
        if self.is_request_pending || is_paused {
            return false;
        }
        match self.state {
            Freshness::Live => now.saturating_sub(self.verified_at) >= timing.check_after,
            Freshness::Suspect => now.saturating_sub(self.since) >= timing.suspect_grace,
            Freshness::Syncing => now.saturating_sub(self.since) >= timing.sync_timeout,
            Freshness::Stale => true,
            Freshness::Closed => false,
        }
    }
}

#[cfg(test)]
mod tests;
