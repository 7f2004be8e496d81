//! The state of every followed token, except its book: how far it can be trusted, since when, and
//! when to request its book. Pure: callers pass in the time since the start.

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
    /// The number of the socket that carries it.
    pub(crate) socket: usize,
    state: Freshness,
    /// When it entered this state.
    since: Duration,
    /// When its book was last proven, or agreed with while live.
    verified_at: Duration,
    /// Whether its socket is open.
    is_connected: bool,
    /// Counts the times its socket was opened or lost. Answers to requests from before the newest
    /// change are discarded.
    connection: u32,
    /// When its book was last requested on this connection.
    requested_at: Option<Duration>,
    is_request_pending: bool,
    /// Answers since the book was last proven.
    unproven_answer_count: u32,
    /// Since when the best prices of its socket are ahead of the book.
    ahead_since: Option<Duration>,
    /// What its socket must send, since the book endpoint has sent it.
    expected: Option<Expected>,
}

/// An update that a socket must send.
#[derive(Clone, Copy)]
struct Expected {
    since: Duration,
    /// The book counts as contradicted meanwhile.
    is_doubted: bool,
    /// A sweep has found it missing. Only the next sweep counts: after a pause of our own, the
    /// update may still be unread.
    is_overdue: bool,
}

/// The result of a sweep.
#[derive(Default, Debug, PartialEq)]
pub(crate) struct Sweep {
    /// Tokens whose proof is too old, or of which nothing has explained in time what speaks against
    /// their books.
    pub(crate) expired: Vec<Arc<str>>,
    /// Tokens whose books are to be requested, with the number of their connection.
    pub(crate) due: Vec<(Arc<str>, u32)>,
    /// Sockets that did not send in time what the book endpoint had sent.
    pub(crate) silent_sockets: Vec<usize>,
}

impl Tracker {
    /// Starts to follow a token, which is stale until its socket opens.
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

    /// A token's shared id and its state.
    pub(crate) fn get(&self, token_id: &str) -> Option<(&Arc<str>, &Tracked)> {
        self.tokens.get_key_value(token_id)
    }

    /// Records a full book from the token's socket: that is all it has to send.
    pub(crate) fn note_socket_book(&mut self, token_id: &str) {
        if let Some(token) = self.tokens.get_mut(token_id) {
            token.expected = None;
        }
    }

    /// Expects the socket to confirm or disprove a book that only the book endpoint has sent.
    /// Returns whether this is new.
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

    /// The best prices of its socket are ahead of the book.
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

    /// A request for a book was answered or has failed. Returns whether it was sent on the current
    /// connection.
    pub(crate) fn answered(&mut self, token_id: &str, connection: u32) -> bool {
        let Some(token) = self.tokens.get_mut(token_id) else { return false };
        if token.connection != connection || token.state == Freshness::Closed {
            return false;
        }
        token.is_request_pending = false;
        token.unproven_answer_count = token.unproven_answer_count.saturating_add(1);
        true
    }

    /// Whether this is the token's current connection and its book is still of use.
    pub(crate) fn is_current(&self, token_id: &str, connection: u32) -> bool {
        self.tokens
            .get(token_id)
            .is_some_and(|token| token.connection == connection && token.state != Freshness::Closed)
    }

    /// The number of answers since the book was last proven.
    pub(crate) fn unproven_answer_count(&self, token_id: &str) -> u32 {
        self.tokens.get(token_id).map_or(0, |token| token.unproven_answer_count)
    }

    /// Finds expired books, due requests and silent sockets. Everything that arrived up to
    /// `received_until` has been processed, so a socket is silent if its deadline is before that,
    /// whatever is still queued.
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
    /// Whether something that speaks against the book has gone without an explanation for too long:
    /// best prices that no change has made, or another book of the book endpoint. Told once.
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

    /// The number of its connection, to match answers with requests.
    pub(crate) const fn connection(&self) -> u32 {
        self.connection
    }

    /// Whether to request its book now.
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
