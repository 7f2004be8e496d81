//! Carries: what Polymarket tells to a [`Follower`], and what that asks for to the venue.
//!
//! One task decides, and keeps the books. Sockets, the catalogue and the book endpoint each have
//! tasks that only carry: what they hear comes through one bounded queue, in order.

mod budget;
mod catalogue;
mod config;
mod handshake;
mod log;
mod replay;
mod rest;
mod socket;
mod tap;
pub mod unconnected;

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};

pub use config::LiveConfig;
pub use replay::{Replay, ReplayCounts};
pub use tap::Tap;

use catalogue::{Cataloguer, URGENT_MAX, Urgent};
use rest::{Rest, RestError};
use socket::{Handle, Lost, QUEUE_BYTES_MAX, Received};

use super::filter::MarketFilter;
use super::follower::{Described, Follower};
use super::hash::BookHasher;
use super::wire::Description;
use crate::ids::Timestamp;
use crate::venue::feed::Feed;
use crate::venue::follow::Stamp;
use crate::venue::follow::request::{BookRequest, Request};
use crate::venue::follow::status::{LiveSnapshot, LiveStatus};
use crate::venue::follow::timing::Timing;
use crate::venue::live::LiveVenue;
use crate::venue::tape::TapeSender;

/// What the tasks that carry have brought and that is not yet looked at.
const EVENTS_MAX: usize = 8_192;

/// Questions to the book endpoint at a time.
const BOOK_QUESTIONS_MAX: usize = 2;

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
    /// The books of tokens that were asked for.
    Books(Answered),
}

/// An answer of the book endpoint.
struct Answered {
    ask: u64,
    asked: BookRequest,
    /// When the question left, and when the answer came.
    asked_at: Instant,
    at: Instant,
    answer: Result<Bytes, RestError>,
}

/// Follows the venue.
pub struct Live {
    follower: Follower<Feed>,
    status: LiveStatus,
    config: Arc<LiveConfig>,
    began: Instant,
    tap: Tap,
    /// How many gaps of the tape were answered with new connections.
    gaps_mended: u64,
    rest: Arc<Rest>,
    sockets: Vec<Handle>,
    /// Whoever connects holds it for a while, so that many sockets do not come at once.
    door: Arc<tokio::sync::Mutex<()>>,
    queue_bytes: Arc<Semaphore>,
    events: mpsc::Sender<Event>,
    urgent: mpsc::Sender<Urgent>,
    unresolved: watch::Sender<Arc<[Arc<str>]>>,
    /// Until it runs.
    received: Option<(mpsc::Receiver<Event>, mpsc::Receiver<Urgent>)>,
    book_questions: usize,
    /// Questions so far.
    ask_count: u64,
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
        let (urgent, urgent_received) = mpsc::channel(URGENT_MAX);
        Self {
            follower: follower(feed, config.filter.clone(), config.timing.clone()),
            status: LiveStatus::default(),
            began: Instant::now(),
            gaps_mended: 0,
            rest: Arc::new(Rest::new(&config, tap.clone())),
            config,
            tap,
            sockets: Vec::new(),
            door: Arc::default(),
            queue_bytes: Arc::new(Semaphore::new(QUEUE_BYTES_MAX)),
            events,
            urgent,
            unresolved: watch::Sender::new(Arc::default()),
            received: Some((received, urgent_received)),
            book_questions: 0,
            ask_count: 0,
        }
    }

    async fn follow(&mut self) {
        let Some((mut received, urgent)) = self.received.take() else { return };
        let cataloguer = Cataloguer {
            rest: self.rest.clone(),
            config: self.config.clone(),
            followed: self.unresolved.subscribe(),
            urgent,
            announced: Vec::new(),
            events: self.events.clone(),
        };
        self.tap.begin(&self.config);
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(cataloguer.run());
        let mut sweep = tokio::time::interval(self.config.timing.sweep_interval);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Some(event) = received.recv() => self.take(event),
                _ = sweep.tick() => self.sweep(received.is_empty()),
            }
        }
    }

    fn take(&mut self, event: Event) {
        let began = self.began;
        let now = || stamp(began, Instant::now());
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
                tracing::warn!(socket, %lost, pause_ms, "venue connection lost; it is tried again");
                self.tap.lost(socket, &lost);
                self.follower.lost(socket, now());
            }
            Event::Listed(told) => {
                self.tap.listed(told.iter().map(|told| &told.info.condition_id));
                self.follower.listed(told, now());
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
                self.follower.described(told, now());
            }
            Event::Books(Answered { ask, asked, asked_at, at, answer }) => {
                self.tap.books(ask, asked_at, at, &answer);
                let body = answer.inspect_err(|error| tracing::warn!(%error, "no books")).ok();
                self.book_questions -= 1;
                let asked_at = asked_at.saturating_duration_since(self.began);
                self.follower.answer(&asked, body.as_deref(), asked_at, stamp(self.began, at));
                self.ask_for_books();
            }
        }
        self.carry_out();
    }

    /// Looks at all books. `has_heard_all` where nothing that a socket told waits to be taken.
    fn sweep(&mut self, has_heard_all: bool) {
        let now = stamp(self.began, Instant::now());
        self.follower.sweep(now, has_heard_all);
        // Whoever plays the tape does not know what was lost of it: other connections begin with
        // whole books.
        let gap_count = self.tap.gap_count();
        if gap_count > self.gaps_mended {
            tracing::warn!("the tape has a gap: all sockets are opened anew");
            self.gaps_mended = gap_count;
            self.follower.give_up_all("the tape has a gap", now);
        }
        self.carry_out();
        self.ask_for_books();
        self.status.set(snapshot(&self.follower));
    }

    /// Does what the decisions so far ask for.
    fn carry_out(&mut self) {
        for request in self.follower.take_requests() {
            match request {
                Request::Assign { socket, tokens } => self.tap.follow(socket, &tokens),
                Request::Subscribe { socket, tokens } => self.socket(socket).want(tokens),
                Request::GiveUp { socket, connection, why } => {
                    self.socket(socket).give_up(connection, why);
                    self.tap.given_up(socket, why);
                }
                Request::Expired(tokens) => self.tap.expired(&tokens),
                // Past the bound, the schedule asks.
                Request::Describe { condition_id, is_new: true } => {
                    let _ = self.urgent.try_send(Urgent::Announced(condition_id));
                }
                Request::Describe { condition_id, is_new: false } => {
                    let _ = self.urgent.try_send(Urgent::Followed(condition_id));
                }
                Request::Unresolved(ids) => drop(self.unresolved.send_replace(ids)),
                Request::Log(notice) => log::log(&notice),
            }
        }
    }

    /// The socket of this number, which is there from then on.
    fn socket(&mut self, socket: usize) -> &Handle {
        for number in self.sockets.len()..=socket {
            self.sockets.push(Handle::open(
                number,
                self.config.clone(),
                self.door.clone(),
                self.queue_bytes.clone(),
                self.events.clone(),
            ));
        }
        &self.sockets[socket]
    }

    fn ask_for_books(&mut self) {
        while self.book_questions < BOOK_QUESTIONS_MAX
            && let Some(asked) = self.follower.next_book_request()
        {
            self.book_questions += 1;
            self.ask_count += 1;
            let ask = self.ask_count;
            self.tap.ask(ask, asked.iter().map(|(id, _)| id));
            let (rest, events) = (self.rest.clone(), self.events.clone());
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
    }

    fn record(&mut self, tape: TapeSender) {
        self.tap = Tap::from(tape);
        self.rest = Arc::new(Rest::new(&self.config, self.tap.clone()));
    }

    fn run(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.follow())
    }
}

/// A follower that checks the venue's hashes.
fn follower(mut feed: Feed, filter: MarketFilter, timing: Timing) -> Follower<Feed> {
    feed.verify_with(BookHasher::default());
    Follower::new(feed, filter, timing)
}

fn snapshot(follower: &Follower<Feed>) -> LiveSnapshot {
    LiveSnapshot { feed: follower.books().counts(), ..follower.snapshot() }
}

/// When something reached us at this instant, however long it has waited since.
fn stamp(began: Instant, at: Instant) -> Stamp {
    let waited = i64::try_from(at.elapsed().as_nanos()).unwrap_or(i64::MAX);
    let time = Timestamp::from_nanos(Timestamp::now().nanos().saturating_sub(waited));
    Stamp { elapsed: at.saturating_duration_since(began), time }
}

#[cfg(test)]
mod tests;
