//! Which books can be trusted, by what becomes of the connections that tell of them.
//!
//! A book is live while it was proven at most [`Timing::verified_max`] ago, by its socket or by the
//! book endpoint, which is asked about books that are quiet, contradicted or missing. Whatever goes
//! wrong makes books stale first and is mended afterwards.

use std::sync::Arc;
use std::time::Duration;

use super::Stamp;
use super::books::{Books, Finding, Findings};
use super::freshness::{self, Freshness, Signal};
use super::lag::{Heard, Lag};
use super::request::{Asked, Notice, Request};
use super::status::LiveSnapshot;
use super::timing::Timing;
use super::tracker::{Tracked, Tracker};
use crate::ids::Timestamp;
use crate::venue::event::{VenueChange, VenueEvent};

/// Every followed token and the sockets that tell of them.
pub(crate) struct Trust<B> {
    pub(crate) books: B,
    pub(crate) timing: Timing,
    pub(crate) counts: LiveSnapshot,
    /// A socket tells of at most this many tokens.
    socket_tokens_max: usize,
    tracker: Tracker,
    sockets: Vec<Slot>,
    /// What sockets told up to then has been taken.
    heard_until: Duration,
    waiting_to_ask: Asked,
    requests: Vec<Request>,
}

/// A socket, as whoever reads its frames sees it.
#[derive(Default)]
struct Slot {
    tokens: Vec<Arc<str>>,
    state: Freshness,
    /// The number of the newest connection.
    connection: u64,
    /// What that connection has shown of the venue's clock.
    lag: Lag,
    /// Whether a time of it that cannot be was named in the log.
    is_ahead_named: bool,
    is_changed: bool,
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
            heard_until: Duration::ZERO,
            waiting_to_ask: Vec::new(),
            requests: Vec::new(),
        }
    }

    /// Forgets all tokens and sockets. The books stay, stale.
    pub(crate) fn restart(&mut self, now: Stamp) {
        self.lose_all(now);
        (self.tracker, self.heard_until) = (Tracker::default(), Duration::ZERO);
        self.sockets.clear();
        self.waiting_to_ask.clear();
    }

    /// What is to be done, in order.
    pub(crate) fn take_requests(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.requests)
    }

    pub(crate) fn request(&mut self, request: Request) {
        self.requests.push(request);
    }

    pub(crate) fn log(&mut self, notice: Notice) {
        self.requests.push(Request::Log(notice));
    }

    /// The token as it is stored, with what is known of it.
    pub(crate) fn token(&self, token_id: &str) -> Option<(&Arc<str>, &Tracked)> {
        self.tracker.get(token_id)
    }

    pub(crate) fn is_given_up(&self, socket: usize) -> bool {
        self.sockets[socket].state == Freshness::Stale
    }

    /// Has sockets up to this number, none of which is open.
    pub(crate) fn reach_socket(&mut self, socket: usize) {
        while self.sockets.len() <= socket {
            self.sockets.push(Slot::default());
        }
    }

    /// Follows tokens of one market on a socket with room for all of them.
    pub(crate) fn follow(&mut self, condition_id: &Arc<str>, tokens: Vec<Arc<str>>, now: Stamp) {
        let room = self.socket_tokens_max.saturating_sub(tokens.len());
        let number = self.sockets.iter().position(|slot| slot.tokens.len() <= room);
        let socket = number.unwrap_or(self.sockets.len());
        self.reach_socket(socket);
        let slot = &mut self.sockets[socket];
        slot.is_changed = true;
        for token in &tokens {
            self.tracker.follow(token.clone(), condition_id.clone(), socket);
            if slot.state != Freshness::Stale {
                self.tracker.signal(token, Signal::Opened, now.elapsed);
            }
            slot.tokens.push(token.clone());
        }
        self.requests.push(Request::Assign { socket, tokens });
    }

    /// Follows a token no more.
    pub(crate) fn unfollow(&mut self, token_id: &str, now: Stamp) {
        self.signal(token_id, Signal::Ended, now);
        if let Some(token) = self.tracker.unfollow(token_id) {
            let slot = &mut self.sockets[token.socket];
            slot.tokens.retain(|id| **id != *token_id);
            slot.is_changed = true;
        }
    }

    /// Has another socket tell of a token.
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

    /// Asks for the subscriptions that have changed.
    pub(crate) fn subscribe_sockets(&mut self) {
        for (socket, slot) in self.sockets.iter_mut().enumerate() {
            if std::mem::take(&mut slot.is_changed) {
                let tokens = slot.tokens.clone().into();
                self.requests.push(Request::Subscribe { socket, tokens });
            }
        }
    }

    /// A connection is open, and its whole books come next.
    pub(crate) fn opened(&mut self, socket: usize, connection: u64, now: Stamp) {
        let slot = &mut self.sockets[socket];
        (slot.connection, slot.lag, slot.is_ahead_named) = (connection, Lag::default(), false);
        slot.state = slot.state.after(Signal::Opened);
        let tokens = slot.tokens.len();
        self.requests.push(Request::Log(Notice::Opened { socket, tokens }));
        for token in &slot.tokens {
            self.tracker.signal(token, Signal::Opened, now.elapsed);
            // What comes now is whole, and counts whatever time it names.
            self.books.forget_levels(token);
        }
    }

    /// Makes everything stale that a socket tells.
    pub(crate) fn lost(&mut self, socket: usize, now: Stamp) {
        let slot = &mut self.sockets[socket];
        slot.state = slot.state.after(Signal::Lost);
        for token in slot.tokens.clone() {
            self.signal(&token, Signal::Lost, now);
        }
    }

    pub(crate) fn lose_all(&mut self, now: Stamp) {
        (0..self.sockets.len()).for_each(|socket| self.lost(socket, now));
    }

    /// Has a connection closed that cannot be trusted, and trusts nothing of it from now on.
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

    /// A frame came. Whether its connection is still trusted: what was on its way when it was given
    /// up is worth nothing.
    pub(crate) fn frame(&mut self, socket: usize, received: Stamp) -> bool {
        self.counts.frames += 1;
        self.counts.frame_received_at = Some(received.time);
        self.heard_until = self.heard_until.max(received.elapsed);
        !self.is_given_up(socket)
    }

    /// A frame held messages.
    pub(crate) fn proven(&mut self, socket: usize) {
        let state = &mut self.sockets[socket].state;
        *state = state.after(Signal::Proven);
    }

    /// Takes note of the venue's time of something that a token's socket told.
    pub(crate) fn told(&mut self, token_id: &str, at: Timestamp) {
        self.tracker.told(token_id, at);
    }

    /// Applies a signal, and tells readers when a book is not live any more.
    pub(crate) fn signal(&mut self, token_id: &str, signal: Signal, now: Stamp) {
        let changed = self.tracker.signal(token_id, signal, now.elapsed);
        if let Some((before, after)) = changed
            && before != after
            && matches!(after, Freshness::Stale | Freshness::Closed)
        {
            self.mark_stale(&token_id.into(), now);
        }
    }

    /// Something was told of a book that is not known: it may be anything.
    pub(crate) fn distrust(&mut self, token_id: &Arc<str>, now: Stamp) {
        self.signal(token_id, Signal::Contradicted, now);
        self.mark_stale(token_id, now);
    }

    fn mark_stale(&mut self, token_id: &Arc<str>, now: Stamp) {
        let change = VenueChange::Stale { token_id: token_id.clone() };
        self.apply(VenueEvent { at: now.time, change });
    }

    /// An event whose time is certain.
    pub(crate) fn apply(&mut self, event: VenueEvent) -> Findings {
        let at = event.at;
        self.books.apply_as_of(event, at)
    }

    /// Applies what was found of books as they were then.
    pub(crate) fn judge(&mut self, findings: &Findings, then: Stamp) {
        for (token_id, finding) in findings {
            let signal = match finding {
                Finding::Proven => Signal::Proven,
                Finding::Agrees => Signal::Agreed,
                Finding::Contradicted => Signal::Contradicted,
                Finding::Unproven => continue,
            };
            self.signal(token_id, signal, then);
        }
    }

    /// The time of a change, as far as it can be believed; `None` where it came too late to say
    /// anything of the present.
    pub(crate) fn time_of_change(
        &mut self,
        socket: usize,
        at: Timestamp,
        received: Stamp,
    ) -> Option<Timestamp> {
        let lag = &mut self.sockets[socket].lag;
        match lag.of_change(at, received.elapsed, received.time) {
            Heard::Late(lag) => (lag <= self.timing.lag_max).then_some(at),
            Heard::Ahead(ahead) => Some(self.clamp(socket, ahead, received)),
        }
    }

    /// The time of anything else, which may be as old as it likes.
    pub(crate) fn time_of(&mut self, socket: usize, at: Timestamp, received: Stamp) -> Timestamp {
        match self.sockets[socket].lag.of(at, received.elapsed, received.time) {
            Heard::Late(_) => at,
            Heard::Ahead(ahead) => self.clamp(socket, ahead, received),
        }
    }

    /// What a time that cannot be is taken for: one that makes nothing late that comes after it.
    fn clamp(&mut self, socket: usize, ahead: Duration, received: Stamp) -> Timestamp {
        self.counts.ahead_messages += 1;
        let slot = &mut self.sockets[socket];
        if !std::mem::replace(&mut slot.is_ahead_named, true) {
            self.requests.push(Request::Log(Notice::Ahead { socket, ahead }));
        }
        slot.lag.time_before(self.timing.lag_max, received.elapsed, received.time)
    }

    /// Takes note of a book that only the book endpoint told: the socket is to tell it soon.
    pub(crate) fn expect(&mut self, token_id: &str, at: Timestamp, received: Stamp) {
        let by = received.elapsed + self.timing.silence_patience;
        self.tracker.expect(token_id, at, by);
    }

    /// An answer of the book endpoint came, or will not come. Whether it is about the connection of
    /// now.
    pub(crate) fn answered(&mut self, token_id: &str, connection: u32) -> bool {
        self.tracker.answered(token_id, connection)
    }

    /// How many questions in a row have settled nothing.
    pub(crate) fn vain_count(&self, token_id: &str) -> u32 {
        self.tracker.vain_count(token_id)
    }

    /// Looks at every token. `has_heard_all` where nothing that a socket told waits to be taken.
    pub(crate) fn sweep(&mut self, now: Stamp, has_heard_all: bool) {
        if has_heard_all {
            self.heard_until = now.elapsed;
        }
        let sweep = self.tracker.sweep(now.elapsed, self.heard_until, &self.timing);
        for token_id in &sweep.expired {
            self.signal(token_id, Signal::Expired, now);
        }
        if !sweep.expired.is_empty() {
            self.requests.push(Request::Expired(sweep.expired));
        }
        for socket in sweep.silent_sockets {
            self.give_up(socket, "it does not tell what the book endpoint tells", now);
        }
        self.subscribe_sockets();
        self.waiting_to_ask.extend(sweep.due);
    }

    /// At most this many tokens whose books are to be asked for now; `None` where there are none.
    pub(crate) fn next_question(&mut self, books_max: usize) -> Option<Asked> {
        // Connections come and go while the venue refuses to answer.
        let tracker = &self.tracker;
        self.waiting_to_ask.retain(|(id, connection)| tracker.is_current(id, *connection));
        let rest_at = self.waiting_to_ask.len().saturating_sub(books_max);
        let asked = self.waiting_to_ask.split_off(rest_at);
        self.counts.books_asked += asked.len() as u64;
        (!asked.is_empty()).then_some(asked)
    }

    /// How the venue is followed now, but for what the books have counted.
    pub(crate) fn snapshot(&self) -> LiveSnapshot {
        LiveSnapshot {
            tokens: self.tracker.counts(),
            sockets: freshness::count(self.sockets.iter().map(|slot| slot.state)),
            ..self.counts.clone()
        }
    }
}
