//! Follows the venue as it is now: its catalogue, its books, and how far each can be trusted.
//!
//! One task keeps the books. Sockets, the catalogue and the book endpoint each have tasks that only
//! carry: what they hear comes through one bounded queue, in order. A book is live while it was
//! proven at most [`Timing::verified_max`] ago, by its socket or by the book endpoint, which is
//! asked about books that are quiet, contradicted or missing. Whatever goes wrong makes books stale
//! first and is mended afterwards.

mod books;
mod budget;
mod catalogue;
mod clock;
mod config;
mod follow;
mod handshake;
mod replay;
mod rest;
mod slot;
mod socket;
mod tap;
pub mod unconnected;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};

pub use config::{LiveConfig, MARKETS_WANTED_MAX, MarketFilter};
pub use replay::{Replay, ReplayCounts};
pub use tap::Tap;

use catalogue::{Cataloguer, Described, URGENT_MAX, Urgent};
use clock::{Clock, Stamp};
use rest::{BOOKS_MAX, Rest, RestError};
use slot::Slot;
use socket::{Lost, QUEUE_BYTES_MAX, Received};

use super::hash::BookHasher;
use super::resolution::Told;
use super::wire::socket::{self as frames, Frame, Message, Subject};
use super::wire::{Description, UNTOLD, WireError};
use crate::ids::Timestamp;
use crate::market::catalogue::MarketInfo;
use crate::venue::feed::Feed;
use crate::venue::follow::books::{Books as _, Finding, Findings};
use crate::venue::follow::freshness::{self, Freshness, Signal};
use crate::venue::follow::status::{LiveSnapshot, LiveStatus};
use crate::venue::follow::timing::Timing;
use crate::venue::follow::tracker::Tracker;
use crate::venue::{VenueChange, VenueEvent};

/// What the tasks that carry have brought and that is not yet looked at.
const EVENTS_MAX: usize = 8_192;

/// Questions to the book endpoint at a time.
const BOOK_QUESTIONS_MAX: usize = 2;

/// At most so many stages of resolutions that are not known are named in the log.
const STAGES_NAMED_MAX: usize = 100;

/// What the tasks that carry bring.
enum Event {
    /// A connection is open and its subscriptions are about to be sent.
    Opened { socket: usize, connection: u64 },
    /// A text frame.
    Frame(Received),
    /// A connection has ended, or was never opened; the next try comes after a pause.
    Lost { socket: usize, lost: Lost, pause: Duration },
    /// The markets to follow, the most traded first.
    Listed(Vec<Description>),
    /// Markets that were asked for.
    Described(Vec<Described>),
    /// The books of these tokens, which were asked for on these connections.
    Books(Answered),
}

/// Tokens, each with the number of its connection.
type Asked = Vec<(Arc<str>, u32)>;

/// An answer of the book endpoint.
struct Answered {
    ask: u64,
    asked: Asked,
    /// When the question left, and when the answer came.
    asked_at: Instant,
    at: Instant,
    answer: Result<Bytes, RestError>,
}

/// Follows the venue.
pub struct Live {
    timing: Timing,
    market_count_max: usize,
    /// `None` where a tape tells what was heard.
    carriers: Option<Carriers>,
    tap: Tap,
    /// How many gaps of the tape were answered with new connections.
    gaps_mended: u64,
    clock: Clock,
    /// What sockets told up to then has been taken.
    heard_until: Duration,
    feed: Feed,
    tracker: Tracker,
    markets: HashMap<Arc<str>, Followed>,
    /// Markets to follow whatever the filter says, until the catalogue has described them.
    held: HashSet<Arc<str>>,
    sockets: Vec<Slot>,
    urgent: mpsc::Sender<Urgent>,
    urgent_received: Option<mpsc::Receiver<Urgent>>,
    unresolved: watch::Sender<Arc<[Arc<str>]>>,
    book_questions: usize,
    /// Questions so far.
    ask_count: u64,
    waiting_to_ask: Asked,
    /// Stages of resolutions that are not known and were named in the log.
    stages_named: HashSet<Box<str>>,
    counts: LiveSnapshot,
    status: LiveStatus,
}

/// What the tasks that carry are made with, and where they bring what they hear.
struct Carriers {
    config: Arc<LiveConfig>,
    rest: Arc<Rest>,
    door: Arc<tokio::sync::Mutex<()>>,
    queue_bytes: Arc<Semaphore>,
    events: mpsc::Sender<Event>,
    received: Option<mpsc::Receiver<Event>>,
}

/// A market that is followed, or was until it closed, and that is not resolved yet.
struct Followed {
    info: MarketInfo,
    /// When its description was so, of those that tell: an older one says nothing new.
    described_at: Option<Timestamp>,
    /// When a socket told its tick: an older description does not bring the tick before it back.
    tick_told_at: Option<Timestamp>,
    /// The winner that its socket told.
    winner_told: Option<Told>,
    /// Whether its newest description names other tokens.
    is_withheld: bool,
    /// Whether sockets tell of it.
    is_subscribed: bool,
}

impl Live {
    /// Connects to nothing until it runs.
    pub fn new(config: LiveConfig, feed: Feed) -> Self {
        Self::tapped(config, feed, Tap::default())
    }

    /// One that puts on a tape what it hears.
    pub fn tapped(config: LiveConfig, feed: Feed, tap: Tap) -> Self {
        let config = Arc::new(config);
        let (events, received) = mpsc::channel(EVENTS_MAX);
        let carriers = Carriers {
            rest: Arc::new(Rest::new(&config, tap.clone())),
            config: config.clone(),
            door: Arc::default(),
            queue_bytes: Arc::new(Semaphore::new(QUEUE_BYTES_MAX)),
            events,
            received: Some(received),
        };
        let clock = Clock::Running { began: Instant::now() };
        let mut live = Self::unconnected(feed, clock);
        (live.timing, live.market_count_max) = (config.timing.clone(), config.filter.count_max);
        (live.carriers, live.tap) = (Some(carriers), tap);
        live
    }

    /// One that hears only what it is given.
    fn unconnected(mut feed: Feed, clock: Clock) -> Self {
        feed.verify_with(BookHasher::default());
        let (urgent, urgent_received) = mpsc::channel(URGENT_MAX);
        Self {
            timing: Timing::VENUE,
            market_count_max: 0,
            carriers: None,
            tap: Tap::default(),
            gaps_mended: 0,
            clock,
            heard_until: Duration::ZERO,
            feed,
            tracker: Tracker::default(),
            markets: HashMap::new(),
            held: HashSet::new(),
            sockets: Vec::new(),
            urgent,
            urgent_received: Some(urgent_received),
            unresolved: watch::Sender::new(Arc::default()),
            book_questions: 0,
            ask_count: 0,
            waiting_to_ask: Vec::new(),
            stages_named: HashSet::new(),
            counts: LiveSnapshot::default(),
            status: LiveStatus::default(),
        }
    }

    /// What readers are told.
    pub fn status(&self) -> LiveStatus {
        self.status.clone()
    }

    /// Follows the venue for ever.
    pub async fn run(&mut self) {
        let (Some(carriers), Some(urgent)) = (&mut self.carriers, self.urgent_received.take())
        else {
            return;
        };
        let Some(mut received) = carriers.received.take() else { return };
        let cataloguer = Cataloguer {
            rest: carriers.rest.clone(),
            config: carriers.config.clone(),
            followed: self.unresolved.subscribe(),
            urgent,
            announced: Vec::new(),
            events: carriers.events.clone(),
        };
        self.tap.begin(&carriers.config);
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(cataloguer.run());
        let mut sweep = tokio::time::interval(self.timing.sweep_interval);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Some(event) = received.recv() => self.take(event),
                _ = sweep.tick() => self.sweep(received.is_empty()),
            }
        }
    }

    fn now(&self) -> Duration {
        self.clock.now().elapsed
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Opened { socket, connection } => {
                self.tap.open(socket, connection);
                self.opened(socket, connection);
            }
            Event::Frame(frame) => {
                self.tap.frame(frame.at, frame.socket, &frame.text);
                let received = self.clock.received(frame.at);
                self.take_frame(frame.socket, &frame.text, received);
                self.heard_until = self.heard_until.max(received.elapsed);
                self.counts.delays.record(frame.at.elapsed());
            }
            Event::Lost { socket, lost, pause } => {
                tracing::warn!(
                    "socket {socket} of the venue: {lost}; next try in {:.1} s",
                    pause.as_secs_f32()
                );
                self.tap.lost(socket, &lost);
                self.counts.connections_lost += 1;
                self.lose(socket);
            }
            Event::Listed(told) => {
                self.tap.listed(told.iter().map(|told| &told.info.condition_id));
                self.list(told);
            }
            Event::Described(told) => {
                let ids = |is_told: fn(&Described) -> bool| {
                    let told = told.iter().filter(move |told| is_told(told));
                    told.map(|told| &told.gamma.info.condition_id)
                };
                self.tap.described(
                    ids(|_| true),
                    ids(|told| told.clob.is_some()),
                    ids(|told| told.data.is_some()),
                );
                self.describe(told);
            }
            Event::Books(Answered { ask, asked, asked_at, at, answer }) => {
                self.tap.books(ask, asked_at, at, &answer);
                let body = answer.inspect_err(|error| tracing::warn!("books: {error}")).ok();
                self.book_questions -= 1;
                let asked_at = self.clock.received(asked_at).elapsed;
                self.take_books(asked, asked_at, self.clock.received(at), body.as_ref());
                self.ask_for_books();
            }
        }
    }

    fn opened(&mut self, socket: usize, connection: u64) {
        let now = self.now();
        let slot = &mut self.sockets[socket];
        slot.begin(connection);
        slot.state = slot.state.after(Signal::Opened);
        tracing::info!("socket {socket} of the venue: open, {} tokens", slot.tokens.len());
        for token in &slot.tokens {
            self.tracker.signal(token, Signal::Opened, now);
            // What comes now is whole, and counts whatever time it names.
            self.feed.forget_levels(token);
        }
    }

    /// Makes everything stale that a socket tells.
    fn lose(&mut self, socket: usize) {
        let now = self.now();
        let slot = &mut self.sockets[socket];
        slot.state = slot.state.after(Signal::Lost);
        for token in slot.tokens.clone() {
            self.signal(&token, Signal::Lost, now);
        }
    }

    /// Has a connection closed that cannot be trusted, and trusts nothing of it from now on.
    fn give_up(&mut self, socket: usize, why: &'static str) {
        let slot = &self.sockets[socket];
        if slot.state != Freshness::Stale {
            slot.handle.give_up(slot.connection, why);
            self.tap.given_up(socket, why);
            self.lose(socket);
        }
    }

    /// Applies a signal, and tells readers when a book is not live any more.
    fn signal(&mut self, token_id: &str, signal: Signal, now: Duration) {
        let Some((before, after)) = self.tracker.signal(token_id, signal, now) else { return };
        if before != after && matches!(after, Freshness::Stale | Freshness::Closed) {
            let token_id: Arc<str> = token_id.into();
            let change = VenueChange::Stale { token_id };
            self.feed.apply(VenueEvent { at: self.clock.now().time, change });
        }
    }

    fn take_frame(&mut self, socket: usize, text: &str, received: Stamp) {
        self.counts.frames += 1;
        self.counts.frame_received_at = Some(received.time);
        let slot = &mut self.sockets[socket];
        if slot.state == Freshness::Stale {
            // It was given up, and what was on its way is worth nothing.
            return;
        }
        match frames::frame(text) {
            Frame::Messages(messages) => {
                slot.state = slot.state.after(Signal::Proven);
                for (index, message) in messages.into_iter().enumerate() {
                    if self.sockets[socket].state == Freshness::Stale {
                        // Given up by a message before it.
                        break;
                    }
                    match message {
                        Ok(message) => self.take_message(socket, message, received),
                        Err(error @ WireError::UnknownType { .. }) => {
                            self.counts.unknown_messages += 1;
                            tracing::debug!("socket {socket} of the venue: {error}");
                        }
                        Err(error) => {
                            tracing::warn!("socket {socket} of the venue: {error}");
                            let subject = frames::subject(text, index);
                            self.take_unreadable(socket, &error, subject);
                        }
                    }
                }
            }
            Frame::Other => {
                self.counts.unknown_messages += 1;
                let shown: String = text.chars().take(80).collect();
                tracing::warn!("socket {socket} of the venue said {shown:?}");
            }
            Frame::Pong | Frame::NoNewAssets | Frame::Empty => {}
        }
    }

    /// A message that is there and cannot be read. It costs no more than what it is about: else one
    /// odd market would take all others of its socket with it, for ever.
    fn take_unreadable(&mut self, socket: usize, error: &WireError, subject: Subject<'_>) {
        let market = subject.market.and_then(|id| self.markets.get(id));
        match (subject.event_type, market) {
            // Announcements go to everybody, and change no book.
            (Some("new_market" | "market_resolved"), _) => self.counts.unknown_messages += 1,
            (Some(_), Some(market)) if !matches!(error, WireError::OldFormat) => {
                let now = self.now();
                self.counts.unreadable_messages += 1;
                for outcome in market.info.outcomes.clone() {
                    let is_of_socket = self
                        .tracker
                        .get(&outcome.token_id)
                        .is_some_and(|(_, token)| token.socket == socket);
                    if is_of_socket {
                        self.distrust(&outcome.token_id, now);
                    }
                }
            }
            _ => {
                self.counts.unreadable_messages += 1;
                self.give_up(socket, "a message that cannot be read");
            }
        }
    }

    /// Something was told of a book that is not known: it may be anything.
    fn distrust(&mut self, token_id: &Arc<str>, now: Duration) {
        self.signal(token_id, Signal::Contradicted, now);
        let change = VenueChange::Stale { token_id: token_id.clone() };
        self.feed.apply(VenueEvent { at: self.clock.now().time, change });
    }

    fn take_message(&mut self, socket: usize, message: Message<'_>, received: Stamp) {
        let Some(believed_at) = self.believed_time(socket, &message, received) else {
            self.counts.late_messages += 1;
            return self.give_up(socket, "it tells what happened long ago");
        };
        match &message {
            Message::TickSizeChange(change) => {
                return self.change_tick(change.market, change.tick, believed_at);
            }
            Message::NewMarket(market) => {
                return self.hear_of_market(&market.description.info.condition_id);
            }
            Message::MarketResolved(resolved) => {
                return self.hear_of_end(resolved, received.time);
            }
            Message::PriceChange(_)
            | Message::Book(_)
            | Message::LastTradePrice(_)
            | Message::BestBidAsk(_) => {}
        }
        let tracker = &self.tracker;
        let name = |id: &str| match tracker.get(id) {
            Some((token_id, token))
                if token.socket == socket && token.state() != Freshness::Closed =>
            {
                token_id.clone()
            }
            // The sister of a token, or one that is not followed any more: the feed has no such
            // token, and counts it.
            _ => Arc::default(),
        };
        let Some(event) = message.event(name) else { return };
        let event = self.dated(event, received.time);
        let believed_at = if believed_at == UNTOLD { event.at } else { believed_at };
        match &event.change {
            VenueChange::Levels(changes) => {
                for change in changes {
                    self.tracker.told(&change.token_id, believed_at);
                }
            }
            VenueChange::Book(book) => self.tracker.told(&book.token_id, believed_at),
            _ => {}
        }
        let findings = self.feed.apply_as_of(event, believed_at);
        self.judge(&findings, received.elapsed);
    }

    /// Applies what was found of books as they were at this moment.
    fn judge(&mut self, findings: &Findings, now: Duration) {
        for (token_id, finding) in findings {
            let signal = match finding {
                Finding::Proven => Signal::Proven,
                Finding::Agrees => Signal::Agreed,
                Finding::Contradicted => Signal::Contradicted,
                Finding::Unproven => continue,
            };
            self.signal(token_id, signal, now);
        }
    }

    /// Looks at all books. `has_heard_all` where nothing that a socket told waits to be taken.
    fn sweep(&mut self, has_heard_all: bool) {
        let now = self.now();
        if has_heard_all {
            self.heard_until = now;
        }
        let sweep = self.tracker.sweep(now, self.heard_until, &self.timing);
        self.tap.expired(&sweep.expired);
        for token_id in &sweep.expired {
            self.signal(token_id, Signal::Expired, now);
        }
        for socket in sweep.silent_sockets {
            self.give_up(socket, "it does not tell what the book endpoint tells");
        }
        self.mend_gaps();
        self.tell_sockets();
        self.waiting_to_ask.extend(sweep.due);
        self.ask_for_books();
        self.tell_status();
    }

    /// What was lost of a tape, nobody knows who plays it: other connections begin with whole
    /// books.
    fn mend_gaps(&mut self) {
        let gap_count = self.tap.gap_count();
        if gap_count > self.gaps_mended {
            tracing::warn!("the tape has a gap: all sockets are opened anew");
            self.gaps_mended = gap_count;
            (0..self.sockets.len()).for_each(|socket| self.give_up(socket, "the tape has a gap"));
        }
    }

    fn ask_for_books(&mut self) {
        // Connections come and go while the venue refuses to answer.
        let tracker = &self.tracker;
        self.waiting_to_ask.retain(|(id, connection)| tracker.is_current(id, *connection));
        let Some(carriers) = &self.carriers else { return };
        while self.book_questions < BOOK_QUESTIONS_MAX && !self.waiting_to_ask.is_empty() {
            let rest_at = self.waiting_to_ask.len().saturating_sub(BOOKS_MAX);
            let asked = self.waiting_to_ask.split_off(rest_at);
            self.book_questions += 1;
            self.counts.books_asked += asked.len() as u64;
            self.ask_count += 1;
            let ask = self.ask_count;
            self.tap.ask(ask, asked.iter().map(|(id, _)| id));
            let (rest, events) = (carriers.rest.clone(), carriers.events.clone());
            tokio::spawn(async move {
                let ids: Vec<Arc<str>> = asked.iter().map(|(id, _)| id.clone()).collect();
                rest.books_ready().await;
                let asked_at = Instant::now();
                let answer = rest.books(&ids).await;
                let answered = Answered { ask, asked, asked_at, at: Instant::now(), answer };
                // Nobody listens when the server ends.
                let _ = events.send(Event::Books(answered)).await;
            });
        }
    }

    fn tell_status(&mut self) {
        self.counts.tokens = self.tracker.counts();
        self.counts.sockets = freshness::count(self.sockets.iter().map(|slot| slot.state));
        self.counts.feed = self.feed.counts();
        self.status.set(self.counts.clone());
    }
}

#[cfg(test)]
mod tests;
