//! Decides which books can be trusted, from the state of their connections and from their messages.
//!
//! A book is live if its socket or the book endpoint has proven it within
//! [`Timing::verified_max`]. Books that are quiet, contradicted or missing are requested from the
//! book endpoint. Any failure first makes the books stale; only then is it repaired.

use std::sync::Arc;
use std::time::Duration;

use super::Stamp;
use super::books::{Books, Finding, Findings};
use super::freshness::{self, Freshness, Signal};
use super::lag::{Lag, Skew};
use super::request::{BookRequest, Notice, Request};
use super::status::{LiveSnapshot, SocketSnapshot};
use super::timing::Timing;
use super::tracker::{Tracked, Tracker};
use crate::event::{VenueChange, VenueEvent};
use paperbourse_core::ids::Timestamp;

/// All followed tokens and the sockets that carry them.
pub(crate) struct Trust<B> {
    pub(crate) books: B,
    pub(crate) timing: Timing,
    pub(crate) counts: LiveSnapshot,
    /// Maximum number of tokens per socket.
    socket_tokens_max: usize,
    tracker: Tracker,
    sockets: Vec<Socket>,
    /// All frames that arrived up to this time have been processed.
    received_until: Duration,
    /// Tokens whose books have yet to be requested.
    due: BookRequest,
    requests: Vec<Request>,
}

#[derive(Default)]
struct Socket {
    tokens: Vec<Arc<str>>,
    state: Freshness,
    /// The number of the newest connection.
    connection: u64,
    lag: Lag,
    /// Number of frames received on all its connections.
    frames: u64,
    frame_received_at: Option<Timestamp>,
    /// Whether a timestamp from the future was logged for this connection.
    is_ahead_logged: bool,
    /// Whether the subscription must be sent again.
    is_changed: bool,
}

impl Socket {
    fn snapshot(&self) -> SocketSnapshot {
        let Self { state, frames, frame_received_at, .. } = *self;
        SocketSnapshot { state, frames, frame_received_at }
    }
}

impl<B: Books> Trust<B> {
    pub(crate) fn new(books: B, timing: Timing, socket_tokens_max: usize) -> Self {
        Self {
            books,
            timing,
            counts: LiveSnapshot::default(),
            socket_tokens_max,
            tracker: Tracker::default(),
            sockets: Vec::new(),
            received_until: Duration::ZERO,
            due: Vec::new(),
            requests: Vec::new(),
        }
    }

    /// Removes all tokens and sockets. The books remain, marked stale.
    pub(crate) fn restart(&mut self, now: Stamp) {
        self.lose_all(now);
        (self.tracker, self.received_until) = (Tracker::default(), Duration::ZERO);
        self.sockets.clear();
        self.due.clear();
    }

    /// Takes the pending requests to the carrier, in order.
    pub(crate) fn take_requests(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.requests)
    }

    pub(crate) fn request(&mut self, request: Request) {
        self.requests.push(request);
    }

    pub(crate) fn log(&mut self, notice: Notice) {
        self.requests.push(Request::Log(notice));
    }

    /// Returns a token's shared id and its state.
    pub(crate) fn token(&self, token_id: &str) -> Option<(&Arc<str>, &Tracked)> {
        self.tracker.get(token_id)
    }

    pub(crate) fn is_given_up(&self, socket: usize) -> bool {
        self.sockets[socket].state == Freshness::Stale
    }

    /// Adds closed sockets up to and including this number.
    pub(crate) fn ensure_socket(&mut self, socket: usize) {
        while self.sockets.len() <= socket {
            self.sockets.push(Socket::default());
        }
    }

    /// Follows the tokens of one market on the first socket with room for all of them.
    pub(crate) fn follow(&mut self, condition_id: &Arc<str>, tokens: Vec<Arc<str>>, now: Stamp) {
        let fill_max = self.socket_tokens_max.saturating_sub(tokens.len());
        let number = self.sockets.iter().position(|socket| socket.tokens.len() <= fill_max);
        let number = number.unwrap_or(self.sockets.len());
        self.ensure_socket(number);
        let socket = &mut self.sockets[number];
        socket.is_changed = true;
        for token in &tokens {
            self.tracker.follow(token.clone(), condition_id.clone(), number);
            if socket.state != Freshness::Stale {
                self.tracker.signal(token, Signal::Opened, now.elapsed);
            }
            socket.tokens.push(token.clone());
        }
        self.requests.push(Request::Assign { socket: number, tokens });
    }

    /// Stops following a token.
    pub(crate) fn unfollow(&mut self, token_id: &str, now: Stamp) {
        self.signal(token_id, Signal::Ended, now);
        if let Some(token) = self.tracker.unfollow(token_id) {
            let socket = &mut self.sockets[token.socket];
            socket.tokens.retain(|id| **id != *token_id);
            socket.is_changed = true;
        }
    }

    /// Moves a token to another socket.
    pub(crate) fn move_to(&mut self, token_id: &str, socket: usize, now: Stamp) {
        let Some((id, token)) = self.tracker.get(token_id) else { return };
        let (id, other) = (id.clone(), token.socket);
        if other == socket {
            return;
        }
        if let Some(other) = self.sockets.get_mut(other) {
            other.tokens.retain(|token| *token != id);
        }
        self.tracker.move_to(&id, socket);
        let is_open = !self.is_given_up(socket);
        self.signal(&id, if is_open { Signal::Opened } else { Signal::Lost }, now);
        self.sockets[socket].tokens.push(id);
    }

    /// Requests a new subscription for each socket whose tokens have changed.
    pub(crate) fn subscribe_sockets(&mut self) {
        for (number, socket) in self.sockets.iter_mut().enumerate() {
            if std::mem::take(&mut socket.is_changed) {
                let tokens = socket.tokens.clone().into();
                self.requests.push(Request::Subscribe { socket: number, tokens });
            }
        }
    }

    /// Records that a connection was opened. The venue first sends the full books of the socket's
    /// tokens.
    pub(crate) fn opened(&mut self, number: usize, connection: u64, now: Stamp) {
        let socket = &mut self.sockets[number];
        socket.connection = connection;
        (socket.lag, socket.is_ahead_logged) = (Lag::default(), false);
        socket.state = socket.state.after(Signal::Opened);
        let tokens = socket.tokens.len();
        self.requests.push(Request::Log(Notice::Opened { socket: number, tokens }));
        for token in &socket.tokens {
            self.tracker.signal(token, Signal::Opened, now.elapsed);
            // Accept the next full book regardless of its timestamp.
            self.books.forget_levels(token);
        }
    }

    /// Marks a socket and all of its books stale.
    pub(crate) fn lost(&mut self, number: usize, now: Stamp) {
        let socket = &mut self.sockets[number];
        socket.state = socket.state.after(Signal::Lost);
        for token in socket.tokens.clone() {
            self.signal(&token, Signal::Lost, now);
        }
    }

    pub(crate) fn lose_all(&mut self, now: Stamp) {
        (0..self.sockets.len()).for_each(|socket| self.lost(socket, now));
    }

    /// Stops trusting a connection and requests that it be closed.
    pub(crate) fn give_up(&mut self, socket: usize, why: &'static str, now: Stamp) {
        if !self.is_given_up(socket) {
            let connection = self.sockets[socket].connection;
            self.requests.push(Request::GiveUp { socket, connection, why });
            self.lost(socket, now);
        }
    }

    pub(crate) fn give_up_all(&mut self, why: &'static str, now: Stamp) {
        (0..self.sockets.len()).for_each(|socket| self.give_up(socket, why, now));
    }

    /// Counts a frame. Returns whether its connection is still trusted; if not, the frame must be
    /// ignored.
    pub(crate) fn frame(&mut self, socket: usize, received: Stamp) -> bool {
        self.counts.frames += 1;
        self.counts.frame_received_at = Some(received.time);
        let carrier = &mut self.sockets[socket];
        carrier.frames += 1;
        carrier.frame_received_at = Some(received.time);
        self.received_until = self.received_until.max(received.elapsed);
        !self.is_given_up(socket)
    }

    /// Records that a frame with messages arrived, which proves the connection.
    pub(crate) fn proven(&mut self, socket: usize) {
        let state = &mut self.sockets[socket].state;
        *state = state.after(Signal::Proven);
    }

    /// Applies a signal, and publishes the book as stale if it has become stale or closed.
    pub(crate) fn signal(&mut self, token_id: &str, signal: Signal, now: Stamp) {
        let changed = self.tracker.signal(token_id, signal, now.elapsed);
        if let Some((before, after)) = changed
            && before != after
            && matches!(after, Freshness::Stale | Freshness::Closed)
        {
            self.mark_stale(&token_id.into(), now);
        }
    }

    /// Contradicts a book and marks it stale, after an unreadable message about it.
    pub(crate) fn distrust(&mut self, token_id: &Arc<str>, now: Stamp) {
        self.signal(token_id, Signal::Contradicted, now);
        self.mark_stale(token_id, now);
    }

    fn mark_stale(&mut self, token_id: &Arc<str>, now: Stamp) {
        let change = VenueChange::Stale { token_id: token_id.clone() };
        self.apply(VenueEvent { at: now.time, change });
    }

    /// Applies an event whose timestamp needs no clamping.
    pub(crate) fn apply(&mut self, event: VenueEvent) -> Findings {
        let at = event.at;
        self.books.apply_as_of(event, at)
    }

    /// Applies findings about books as of `then`.
    pub(crate) fn judge(&mut self, findings: &Findings, then: Stamp) {
        for (token_id, finding) in findings {
            let signal = match finding {
                Finding::Proven => Signal::Proven,
                Finding::Agrees => Signal::Agreed,
                Finding::Contradicted => Signal::Contradicted,
                Finding::Ahead => {
                    self.tracker.note_ahead(token_id, then.elapsed);
                    continue;
                }
                Finding::Unconfirmed | Finding::Unproven => continue,
            };
            self.signal(token_id, signal, then);
        }
    }

    /// Returns the timestamp of a change, clamped if it is in the future; `None` if the change
    /// arrived too late to describe the present.
    pub(crate) fn time_of_change(
        &mut self,
        socket: usize,
        at: Timestamp,
        received: Stamp,
    ) -> Option<Timestamp> {
        let lag = &mut self.sockets[socket].lag;
        match lag.observe(at, received.elapsed, received.time) {
            Skew::Late(lag) => (lag <= self.timing.lag_max).then_some(at),
            Skew::Ahead(ahead) => Some(self.clamp(socket, ahead, received)),
        }
    }

    /// Returns the timestamp of a message that is not a change, clamped if it is in the future. The
    /// message may be of any age.
    pub(crate) fn time_of(&mut self, socket: usize, at: Timestamp, received: Stamp) -> Timestamp {
        match self.sockets[socket].lag.measure(at, received.elapsed, received.time) {
            Skew::Late(_) => at,
            Skew::Ahead(ahead) => self.clamp(socket, ahead, received),
        }
    }

    /// Replaces an impossible timestamp with one that makes no later message late.
    fn clamp(&mut self, number: usize, ahead: Duration, received: Stamp) -> Timestamp {
        self.counts.ahead_messages += 1;
        let socket = &mut self.sockets[number];
        if !std::mem::replace(&mut socket.is_ahead_logged, true) {
            self.requests.push(Request::Log(Notice::Ahead { socket: number, ahead }));
        }
        socket.lag.time_before(self.timing.lag_max, received.elapsed, received.time)
    }

    /// Records a full book from a token's socket.
    pub(crate) fn note_socket_book(&mut self, token_id: &str) {
        self.tracker.note_socket_book(token_id);
    }

    /// Requests from the socket a book that only the book endpoint has sent. The endpoint may be
    /// wrong, or the socket may have missed a change.
    pub(crate) fn confirm(&mut self, token_id: &Arc<str>, received: Stamp) {
        if self.tracker.expect(token_id, received.elapsed)
            && let Some((_, token)) = self.tracker.get(token_id)
        {
            let (socket, token) = (token.socket, token_id.clone());
            self.requests.push(Request::Renew { socket, token });
        }
    }

    /// Records that a request for a book was answered or failed. Returns whether the request was
    /// sent on the current connection.
    pub(crate) fn answered(&mut self, token_id: &str, connection: u32) -> bool {
        self.tracker.answered(token_id, connection)
    }

    /// Returns the number of answers since the book was last proven.
    pub(crate) fn unproven_answer_count(&self, token_id: &str) -> u32 {
        self.tracker.unproven_answer_count(token_id)
    }

    /// Checks every token. Pass `is_caught_up` if no received frame is still queued.
    pub(crate) fn sweep(&mut self, now: Stamp, is_caught_up: bool) {
        if is_caught_up {
            self.received_until = now.elapsed;
        }
        let sweep = self.tracker.sweep(now.elapsed, self.received_until, &self.timing);
        for token_id in &sweep.expired {
            self.signal(token_id, Signal::Expired, now);
        }
        if !sweep.expired.is_empty() {
            self.requests.push(Request::Expired(sweep.expired));
        }
        for socket in sweep.silent_sockets {
            self.give_up(socket, "it lacks an update that the book endpoint has", now);
        }
        self.subscribe_sockets();
        self.due.extend(sweep.due);
    }

    /// Returns the next request, for at most `books_max` books; `None` if none are due.
    pub(crate) fn next_book_request(&mut self, books_max: usize) -> Option<BookRequest> {
        // Requests may have waited while the venue refused them, and their connections may have
        // changed.
        let tracker = &self.tracker;
        self.due.retain(|(id, connection)| tracker.is_current(id, *connection));
        let rest_count = self.due.len().saturating_sub(books_max);
        let request = self.due.split_off(rest_count);
        self.counts.books_requested += request.len() as u64;
        (!request.is_empty()).then_some(request)
    }

    /// Returns the current counters and states, except the counters of the books.
    pub(crate) fn snapshot(&self) -> LiveSnapshot {
        LiveSnapshot {
            tokens: self.tracker.counts(),
            sockets: freshness::count(self.sockets.iter().map(|socket| socket.state)),
            by_socket: self.sockets.iter().map(Socket::snapshot).collect(),
            ..self.counts.clone()
        }
    }
}
