//! Connects a [`Follower`] to Polymarket.
//!
//! One task makes all decisions and maintains the books. Sockets, the catalogue and the book
//! endpoint have their own tasks, which decide nothing: they pass everything they receive to that
//! one task, in order, through a bounded queue.

mod budget;
mod catalogue;
mod config;
mod delays;
mod handshake;
mod log;
pub mod look;
mod replay;
mod rest;
mod slugs;
mod socket;
mod tap;
pub mod unconnected;

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior};

pub use config::LiveConfig;
pub use replay::{Replay, ReplayCounts};
pub use tap::Tap;

use catalogue::{Cataloguer, URGENT_MAX, Urgent};
use delays::{DELAYS_MAX, Delays};
use rest::{Rest, RestError};
use slugs::Untold;
use socket::{Handle, Lost, QUEUE_BYTES_MAX, Received};

use super::filter::MarketFilter;
use super::follower::{Described, Follower};
use super::hash::BookHasher;
use super::unstated_delay;
use super::wire::Description;
use crate::feed::Feed;
use crate::follow::Stamp;
use crate::follow::request::{BookRequest, Request};
use crate::follow::status::{LiveSnapshot, LiveStatus};
use crate::follow::timing::Timing;
use crate::live::LiveVenue;
use crate::tape::TapeSender;
use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::Markets;

/// Maximum number of events in the queue.
const EVENTS_MAX: usize = 8_192;

/// Maximum number of requests to the book endpoint in flight.
const BOOK_REQUESTS_MAX: usize = 2;

/// An event from one of the other tasks.
enum Event {
    /// A connection is open and its subscriptions are about to be sent.
    Opened { socket: usize, connection: u64 },
    /// A text frame from a socket.
    Frame(Received),
    /// A connection ended or could not be opened. The socket reconnects after a pause.
    Lost { socket: usize, lost: Lost, pause: Duration },
    /// The markets to follow, the most traded first.
    Listed(Vec<Description>),
    /// The requested descriptions.
    Described(Vec<Described>),
    /// The CLOB service's description of a market, requested for the market's delay on marketable
    /// orders.
    Delay(Box<Description>),
    /// The requested books.
    Books(Answered),
}

/// An answer of the book endpoint.
struct Answered {
    /// The number of the request.
    ask: u64,
    asked: BookRequest,
    asked_at: Instant,
    received_at: Instant,
    answer: Result<Bytes, RestError>,
}

/// The connector to Polymarket.
pub struct Live {
    follower: Follower<Feed>,
    status: LiveStatus,
    config: Arc<LiveConfig>,
    began: Instant,
    tap: Tap,
    /// Number of gaps in the tape after which the sockets were reconnected.
    handled_gap_count: u64,
    rest: Arc<Rest>,
    sockets: Vec<Handle>,
    /// Held briefly by each socket that connects, to space out connections.
    connect_lock: Arc<tokio::sync::Mutex<()>>,
    queue_bytes: Arc<Semaphore>,
    events: mpsc::Sender<Event>,
    urgent: mpsc::Sender<Urgent>,
    delays: mpsc::Sender<Arc<str>>,
    unresolved: watch::Sender<Arc<[Arc<str>]>>,
    /// Taken by the first run.
    receivers: Option<Receivers>,
    /// `None` before the first run.
    running: Option<Running>,
    /// Number of requests to the book endpoint in flight.
    pending_asks: usize,
    /// Number of requests to the book endpoint so far.
    ask_count: u64,
}

/// The inputs of a running [`Live`].
struct Running {
    events: mpsc::Receiver<Event>,
    sweep: Interval,
    /// Aborted when this is dropped.
    _tasks: JoinSet<()>,
}

/// The receiving ends of the channels of a [`Live`].
struct Receivers {
    events: mpsc::Receiver<Event>,
    urgent: mpsc::Receiver<Urgent>,
    delays: mpsc::Receiver<Arc<str>>,
}

impl Live {
    /// Creates a connector, which connects only when run.
    pub fn new(config: LiveConfig, feed: Feed) -> Self {
        Self::tapped(config, feed, Tap::default())
    }

    /// Creates a connector that records its input to a tape.
    pub fn tapped(config: LiveConfig, feed: Feed, tap: Tap) -> Self {
        let config = Arc::new(config);
        let (events, event_receiver) = mpsc::channel(EVENTS_MAX);
        let (urgent, urgent_receiver) = mpsc::channel(URGENT_MAX);
        let (delays, delay_receiver) = mpsc::channel(DELAYS_MAX);
        Self {
            follower: follower(feed, config.filter.clone(), config.timing.clone()),
            status: LiveStatus::default(),
            began: Instant::now(),
            handled_gap_count: 0,
            rest: Arc::new(Rest::new(&config, tap.clone())),
            config,
            tap,
            sockets: Vec::new(),
            connect_lock: Arc::default(),
            queue_bytes: Arc::new(Semaphore::new(QUEUE_BYTES_MAX)),
            events,
            urgent,
            delays,
            unresolved: watch::Sender::new(Arc::default()),
            receivers: Some(Receivers {
                events: event_receiver,
                urgent: urgent_receiver,
                delays: delay_receiver,
            }),
            running: None,
            pending_asks: 0,
            ask_count: 0,
        }
    }

    async fn follow(&mut self) {
        if let Some(receivers) = self.receivers.take() {
            self.running = Some(self.begin(receivers));
        }
        loop {
            let Running { events, sweep, .. } = self.running.as_mut().expect("it has begun");
            let event = tokio::select! {
                Some(event) = events.recv() => Some(event),
                _ = sweep.tick() => None,
            };
            // If no events are queued, everything that has arrived has been processed.
            let is_caught_up = events.is_empty();
            match event {
                Some(event) => self.take(event),
                None => self.sweep(is_caught_up),
            }
        }
    }

    /// Starts the other tasks.
    fn begin(&self, Receivers { events, urgent, delays }: Receivers) -> Running {
        let cataloguer = Cataloguer {
            rest: self.rest.clone(),
            config: self.config.clone(),
            followed: self.unresolved.subscribe(),
            urgent,
            announced: Vec::new(),
            untold: Untold::default(),
            events: self.events.clone(),
        };
        let delays = Delays {
            rest: self.rest.clone(),
            config: self.config.clone(),
            wanted: delays,
            events: self.events.clone(),
        };
        self.tap.begin(&self.config);
        let mut tasks = JoinSet::new();
        tasks.spawn(cataloguer.run());
        tasks.spawn(delays.run());
        let mut sweep = tokio::time::interval(self.config.timing.sweep_interval);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Running { events, sweep, _tasks: tasks }
    }

    fn take(&mut self, event: Event) {
        let began = self.began;
        let now = || stamp(began, Instant::now());
        // Each input is recorded before it is processed, so that a replay has the same order.
        match event {
            Event::Opened { socket, connection } => {
                self.tap.open(socket, connection);
                self.follower.opened(socket, connection, now());
            }
            Event::Frame(frame) => {
                self.tap.frame(frame.at, frame.socket, &frame.text);
                let received = stamp(self.began, frame.at);
                self.follower.frame(frame.socket, &frame.text, received);
                self.follower.note_delay(frame.at.elapsed());
            }
            Event::Lost { socket, lost, pause } => {
                let pause_ms = log::millis(pause);
                tracing::warn!(socket, reason = %lost, pause_ms, "venue connection lost");
                self.tap.lost(socket, &lost);
                self.follower.lost(socket, now());
            }
            Event::Listed(descriptions) => {
                self.tap.listed(descriptions.iter().map(|it| &it.info.condition_id));
                self.follower.listed(descriptions, now());
            }
            Event::Described(all) => {
                let ids = |is_included: fn(&Described) -> bool| {
                    let included = all.iter().filter(move |described| is_included(described));
                    included.map(|described| &described.gamma.info.condition_id)
                };
                self.tap.described(
                    ids(|_| true),
                    ids(|described| described.clob.is_some()),
                    ids(|described| described.data.is_some()),
                );
                self.follower.described(all, now());
            }
            Event::Delay(description) => {
                self.tap.delay(&description.info.condition_id);
                self.follower.delay_described(&description, now());
            }
            Event::Books(Answered { ask, asked, asked_at, received_at, answer }) => {
                self.tap.books(ask, asked_at, received_at, &answer);
                let failed = |error: &RestError| tracing::warn!(%error, "book request failed");
                let body = answer.inspect_err(failed).ok();
                self.pending_asks -= 1;
                let asked_at = asked_at.saturating_duration_since(self.began);
                let received = stamp(self.began, received_at);
                self.follower.answer(&asked, body.as_deref(), asked_at, received);
                self.request_books();
            }
        }
        self.carry_out();
    }

    /// Checks the age of every book, renews the lease of the books and publishes the status. Pass
    /// `is_caught_up` if no event is still queued.
    fn sweep(&mut self, is_caught_up: bool) {
        let now = stamp(self.began, Instant::now());
        self.follower.sweep(now, is_caught_up);
        let markets = self.follower.books().markets();
        markets.set_unstated_delay(unstated_delay::ms_at(now.time));
        markets.renew_lease(self.config.timing.sweep_timeout);
        // A replay cannot recover what a gap in the tape contained. New connections start with full
        // books, from which a replay can continue.
        let gap_count = self.tap.gap_count();
        if gap_count > self.handled_gap_count {
            tracing::warn!(gap_count, "gap in the tape, reconnecting all sockets");
            self.handled_gap_count = gap_count;
            self.follower.give_up_all("gap in the tape", now);
        }
        self.carry_out();
        self.request_books();
        self.status.set(snapshot(&self.follower));
    }

    /// Carries out the follower's requests.
    fn carry_out(&mut self) {
        for request in self.follower.take_requests() {
            match request {
                Request::Assign { socket, tokens } => self.tap.follow(socket, &tokens),
                Request::Subscribe { socket, tokens } => self.socket(socket).want(tokens),
                Request::Renew { socket, token } => self.socket(socket).renew(token),
                Request::GiveUp { socket, connection, why } => {
                    self.socket(socket).give_up(connection, why);
                    self.tap.given_up(socket, why);
                }
                Request::Expired(tokens) => self.tap.expired(&tokens),
                // If the queue is full, the market waits for the next scheduled refresh.
                Request::Describe { condition_id, is_new: true } => {
                    let _ = self.urgent.try_send(Urgent::Announced(condition_id));
                }
                Request::Describe { condition_id, is_new: false } => {
                    let _ = self.urgent.try_send(Urgent::Followed(condition_id));
                }
                // The queue has room for as many markets as can be followed at once.
                Request::Delay { condition_id } => drop(self.delays.try_send(condition_id)),
                Request::Unresolved(ids) => drop(self.unresolved.send_replace(ids)),
                Request::Log(notice) => log::log(&notice),
            }
        }
    }

    /// Returns the socket with this number, created if necessary.
    fn socket(&mut self, socket: usize) -> &Handle {
        for number in self.sockets.len()..=socket {
            self.sockets.push(Handle::open(
                number,
                self.config.clone(),
                self.connect_lock.clone(),
                self.queue_bytes.clone(),
                self.events.clone(),
            ));
        }
        &self.sockets[socket]
    }

    fn request_books(&mut self) {
        while self.pending_asks < BOOK_REQUESTS_MAX
            && let Some(asked) = self.follower.next_book_request()
        {
            self.pending_asks += 1;
            self.ask_count += 1;
            let ask = self.ask_count;
            self.tap.ask(ask, asked.iter().map(|(id, _)| id));
            let (rest, events) = (self.rest.clone(), self.events.clone());
            tokio::spawn(async move {
                let ids: Vec<Arc<str>> = asked.iter().map(|(id, _)| id.clone()).collect();
                rest.books_ready().await;
                let asked_at = Instant::now();
                let answer = rest.books(&ids).await;
                let received_at = Instant::now();
                let answered = Answered { ask, asked, asked_at, received_at, answer };
                // The receiver is gone when the server shuts down.
                let _ = events.send(Event::Books(answered)).await;
            });
        }
    }
}

impl LiveVenue for Live {
    fn name(&self) -> &'static str {
        "polymarket"
    }

    fn status(&self) -> LiveStatus {
        self.status.clone()
    }

    fn hold(&mut self, condition_ids: BTreeSet<Arc<str>>) {
        self.follower.hold(condition_ids);
        self.carry_out();
        // Before the first run, held markets are requested with the list. If the queue is full,
        // they wait for the next list.
        let held: Vec<_> = self.follower.held().cloned().collect();
        if self.running.is_some() && !held.is_empty() {
            let _ = self.urgent.try_send(Urgent::Held(held));
        }
    }

    fn move_to(&mut self, markets: Arc<Markets>) {
        self.follower.books_mut().move_to(markets);
    }

    fn record(&mut self, tape: TapeSender) {
        self.tap = Tap::from(tape);
        self.rest = Arc::new(Rest::new(&self.config, self.tap.clone()));
    }

    fn run(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.follow())
    }
}

/// Creates a follower that checks the venue's hashes.
fn follower(mut feed: Feed, filter: MarketFilter, timing: Timing) -> Follower<Feed> {
    feed.verify_with(BookHasher::default());
    Follower::new(feed, filter, timing)
}

fn snapshot(follower: &Follower<Feed>) -> LiveSnapshot {
    LiveSnapshot { feed: follower.books().counts(), ..follower.snapshot() }
}

/// Converts a past instant into a stamp with the wall-clock time of that instant.
fn stamp(began: Instant, at: Instant) -> Stamp {
    let elapsed_ns = i64::try_from(at.elapsed().as_nanos()).unwrap_or(i64::MAX);
    let time = Timestamp::from_nanos(Timestamp::now().nanos().saturating_sub(elapsed_ns));
    Stamp { elapsed: at.saturating_duration_since(began), time }
}

#[cfg(test)]
mod tests;
