//! What handlers serve from, and when it is there.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, watch};

use super::body::{BUDGET_BYTES, BodyBudget};
use super::connection::{ConnectionGuard, ConnectionLimit, NoSlot};
use super::forwarded::TrustedProxies;
use crate::clock;
use crate::journal::{Journal, Waiters};
use crate::service::Service;
use crate::snapshot::SnapshotMetrics;
use crate::telemetry::{Gauges, Metrics, Throttle};
use crate::venue::VenueStatus;
use crate::venue::follow::status::LiveStatus;
use crate::ws::counts::SocketCounts;
use crate::ws::fanout::Fanout;

/// Connections that are told at a time that there is no place for them.
pub const REFUSALS_MAX: usize = 64;
/// How often the log tells of connections that were not served.
const LINE_INTERVAL: Duration = Duration::from_secs(1);
/// How often the log tells that `X-Forwarded-For` was ignored.
const FORWARDED_LINE_INTERVAL: Duration = Duration::from_mins(1);

/// Everything that requests are served from.
pub struct Exchange {
    /// The use cases.
    pub service: Service,
    /// The order of writes and what of it is on disk.
    pub journal: Arc<Journal>,
    /// Prices on their way to subscribers.
    pub fanout: Arc<Fanout>,
    /// Open sockets by account.
    pub sockets: Arc<SocketCounts>,
    /// Where prices come from.
    pub venue: VenueStatus,
    /// When it began.
    pub began: Instant,
}

impl Exchange {
    /// An exchange without sockets yet.
    pub fn new(service: Service, journal: Arc<Journal>, venue: VenueStatus) -> Self {
        let fanout = Arc::new(Fanout::new(service.markets().clone()));
        let (sockets, began) = (Arc::default(), Instant::now());
        Self { service, journal, fanout, sockets, venue, began }
    }
}

/// The process as its connections see it: first without an exchange, then with one, at the end
/// draining.
pub struct Stage {
    exchange: OnceLock<Arc<Exchange>>,
    is_draining: AtomicBool,
    /// Turns true when the process begins to end.
    shutdown: watch::Sender<bool>,
    /// Open connections and their cap.
    pub connections: Arc<ConnectionLimit>,
    /// Places for those who are told that there is none.
    pub refusals: Arc<Semaphore>,
    /// What the bodies of all requests may hold together.
    pub bodies: Arc<BodyBudget>,
    /// Who is believed about the addresses of clients.
    pub proxies: TrustedProxies,
    /// What each worker has counted.
    metrics: Mutex<Vec<Arc<Metrics>>>,
    started: Instant,
    /// Lines about connections, which others could make us write at any rate.
    pub lines: ConnectionLines,
}

/// Which lines about connections are due.
#[derive(Debug)]
pub struct ConnectionLines {
    /// One could not be accepted.
    pub failed: Throttle,
    /// There was no place for one.
    pub refused: Throttle,
    /// Somebody who is no trusted proxy has said whose request it is.
    pub forwarded: Throttle,
}

impl Stage {
    /// Nothing to serve from yet.
    pub fn new(connections_max: usize) -> Self {
        Self {
            exchange: OnceLock::new(),
            is_draining: AtomicBool::new(false),
            shutdown: watch::Sender::new(false),
            connections: ConnectionLimit::new(connections_max),
            refusals: Arc::new(Semaphore::new(REFUSALS_MAX)),
            bodies: BodyBudget::new(BUDGET_BYTES),
            proxies: TrustedProxies::default(),
            metrics: Mutex::default(),
            started: Instant::now(),
            lines: ConnectionLines {
                failed: Throttle::new(LINE_INTERVAL),
                refused: Throttle::new(LINE_INTERVAL),
                forwarded: Throttle::new(FORWARDED_LINE_INTERVAL),
            },
        }
    }

    /// The same with at most so many connections of one address.
    pub fn capped_by_address(self, connections_max: usize, per_address_max: usize) -> Self {
        let connections = ConnectionLimit::with_address_cap(connections_max, per_address_max);
        Self { connections, ..self }
    }

    /// The same with proxies that are believed about the addresses of clients.
    pub fn trusting(self, proxies: TrustedProxies) -> Self {
        Self { proxies, ..self }
    }

    /// Takes a place for a connection of `peer`.
    pub fn admit(&self, peer: IpAddr) -> Result<ConnectionGuard, NoSlot> {
        // Before there is something to serve, nobody has asked: all are as idle.
        let now_ns = self.exchange().map_or(0, |exchange| exchange.service.moment().monotonic_ns);
        let address = (!self.proxies.trusts(peer)).then_some(peer);
        self.connections.admit(address, now_ns)
    }

    /// Begins to serve.
    pub fn open(&self, exchange: Arc<Exchange>) {
        let before = self.exchange.set(exchange);
        assert!(before.is_ok(), "a stage is opened once");
    }

    /// Begins to end: readiness goes, connections finish what is in flight, sockets close.
    pub fn close(&self) {
        self.is_draining.store(true, Ordering::Release);
        self.shutdown.send_replace(true);
    }

    /// What to serve from; `None` before the start is complete.
    pub fn exchange(&self) -> Option<&Arc<Exchange>> {
        self.exchange.get()
    }

    /// Whether the process is ending.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// Turns true when the process begins to end.
    pub fn shutdown(&self) -> watch::Receiver<bool> {
        self.shutdown.subscribe()
    }

    /// The counters in the text format of Prometheus.
    pub fn metrics_page(&self, snapshots: Option<&SnapshotMetrics>) -> String {
        let clock = clock::status();
        let mut gauges = Gauges {
            connections: self.connections.count(),
            uptime_seconds: self.started.elapsed().as_secs(),
            clock_jumps: clock.jumps_ever,
            clock_off_seconds: clock.jump.map_or(0, |jump| jump.seconds().unsigned_abs()),
            ..Gauges::default()
        };
        let exchange = self.exchange();
        if let Some(exchange) = exchange {
            gauges.sockets = exchange.fanout.socket_count();
            let markets = exchange.service.markets();
            gauges.markets = markets.listing().markets().len();
            gauges.markets_unsettled = markets.unsettled_count();
            gauges.keys = exchange.service.key_count();
        }
        let journal = exchange.and_then(|exchange| exchange.journal.metrics());
        let live = exchange.and_then(|exchange| exchange.venue.live.as_ref());
        let metrics = Metrics::sum(self.metrics.lock().iter().map(Arc::as_ref));
        metrics.render(gauges, journal, snapshots, live.map(LiveStatus::get).as_ref())
    }
}

/// A connection's place: it counts towards the cap, and the end of the process waits for it. An
/// upgraded connection keeps it.
pub struct Seat {
    place: ConnectionGuard,
    has_asked: AtomicBool,
    /// Open until the last seat of a worker is given up.
    _alive: mpsc::Sender<()>,
}

impl Seat {
    /// A seat of the worker whose end waits for the receiver of `alive`.
    pub fn new(place: ConnectionGuard, alive: mpsc::Sender<()>) -> Self {
        Self { place, has_asked: AtomicBool::new(false), _alive: alive }
    }

    /// A request has come. Whether it is the first one.
    pub fn note_request(&self, now_ns: u64) -> bool {
        self.place.note_request(now_ns);
        let is_first = !self.has_asked.load(Ordering::Relaxed);
        if is_first {
            self.has_asked.store(true, Ordering::Relaxed);
        }
        is_first
    }

    /// A valid credential has come: the place is not given to anybody else any more.
    pub fn recognize(&self) {
        self.place.recognize();
    }

    /// Resolves when the place was given to somebody else.
    pub async fn dismissed(&self) {
        self.place.dismissed().await;
    }
}

/// One worker thread as its connections see it.
pub struct Worker {
    /// The process.
    pub stage: Arc<Stage>,
    /// What it has counted.
    pub metrics: Arc<Metrics>,
    waiters: OnceLock<Arc<Waiters>>,
}

impl Worker {
    /// A worker that has not served yet.
    pub fn new(stage: Arc<Stage>) -> Self {
        let metrics = Arc::new(Metrics::default());
        stage.metrics.lock().push(metrics.clone());
        Self { stage, metrics, waiters: OnceLock::new() }
    }

    /// Where this worker's waits for the disk are parked. The first call starts the task of its
    /// runtime that ends them, since before the start is complete there is no journal to wait for.
    pub fn waiters(&self, exchange: &Exchange) -> &Arc<Waiters> {
        self.waiters.get_or_init(|| {
            let waiters = exchange.journal.register();
            tokio::spawn({
                let waiters = waiters.clone();
                async move { waiters.run().await }
            });
            waiters
        })
    }

    /// Called before this worker's thread sleeps, since it has nothing to do.
    pub fn before_sleep(&self) {
        if let Some(exchange) = self.stage.exchange() {
            exchange.journal.tend();
        }
    }
}
