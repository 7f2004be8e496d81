//! What request handlers share: the process, the worker, the connection.

mod page;

#[cfg(feature = "cluster")]
use std::future::pending;
use std::io;
use std::net::{IpAddr, TcpStream as StdStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, watch};

use super::body::BUDGET_BYTES;
use super::connection::{ConnectionGuard, ConnectionLimit, Ending, NoSlot};
use super::cors::CorsOrigins;
#[cfg(feature = "cluster")]
use super::forward::{ClusterPlace, ToOwner};
use super::forwarded::TrustedProxies;
use super::operations::OPERATIONS;
use super::reply::ANSWER_BYTES_MAX;
#[cfg(feature = "traces")]
use crate::telemetry::Traces;
use crate::telemetry::{AccessLog, Metrics, Sample, Throttle};
use crate::ws::bounds::UNSENT_BYTES_MAX;
use crate::ws::counts::{ExportCounts, SocketCounts, StreamCounts};
use crate::ws::executions::ExecutionCounts;
use crate::ws::fanout::Fanout;
use crate::ws::turns::{Place, Turns};
use crate::ws::watch::Watch;
pub use page::Observed;
#[cfg(feature = "cluster")]
use paperbourse_cluster::lease::Lease;
use paperbourse_core::limits::budget::ByteBudget;
use paperbourse_exchange::auth::last_key::LastKey;
use paperbourse_exchange::service::Service;
use paperbourse_store::journal::{Journal, Waiters};
use paperbourse_venue::VenueStatus;

/// Connections that may be sent a refusal at the same time.
pub const REFUSALS_MAX: usize = 64;
/// Default limit of the price streams of an address.
pub const STREAMS_PER_ADDRESS_MAX: u32 = 100;
/// Shortest time between two log lines about connections that were not served.
const LINE_INTERVAL: Duration = Duration::from_secs(1);
/// Shortest time between two log lines about an ignored `X-Forwarded-For`.
const FORWARDED_LINE_INTERVAL: Duration = Duration::from_mins(1);

/// Everything a request is answered from. It exists once the start is complete.
pub struct AppState {
    /// The use cases.
    pub service: Service,
    /// What is on disk, and what is on its way there.
    pub journal: Arc<Journal>,
    /// Sends prices to subscribers.
    pub fanout: Arc<Fanout>,
    /// What the execution sockets have sent.
    pub executions: ExecutionCounts,
    /// Open sockets of each account.
    pub sockets: Arc<SocketCounts>,
    /// Exports of each account that are being sent.
    pub exports: Arc<ExportCounts>,
    /// Open price streams of each address.
    pub streams: Arc<StreamCounts>,
    /// What sockets and price streams hold that their clients have not read.
    pub unsent: Arc<ByteBudget>,
    /// How many sockets were closed with 1013: there was no room for them, or they read too slowly.
    pub turned_away: AtomicU64,
    /// How many price streams were cut off because their clients read too slowly.
    pub streams_cut_off: AtomicU64,
    /// How many price streams an address may have open.
    pub streams_per_address_max: AtomicU32,
    /// Which venue prices come from, and how it does.
    pub venue: VenueStatus,
    /// Bytes of memory by part, as last counted; empty unless memory is counted.
    pub memory: Mutex<Vec<(&'static str, usize)>>,
    /// When the start was complete.
    pub began: Instant,
}

impl AppState {
    /// An exchange without subscribers that begins now.
    pub fn new(service: Service, journal: Arc<Journal>, venue: VenueStatus) -> Self {
        let fanout = Arc::new(Fanout::new(service.markets().clone()));
        Self {
            service,
            journal,
            fanout,
            executions: ExecutionCounts::default(),
            sockets: Arc::default(),
            exports: Arc::default(),
            streams: Arc::default(),
            unsent: ByteBudget::new(UNSENT_BYTES_MAX),
            turned_away: AtomicU64::new(0),
            streams_cut_off: AtomicU64::new(0),
            streams_per_address_max: AtomicU32::new(STREAMS_PER_ADDRESS_MAX),
            venue,
            memory: Mutex::default(),
            began: Instant::now(),
        }
    }
}

/// The process as its connections see it: starting (no exchange yet), serving, and at the end
/// draining.
pub struct Server {
    app: OnceLock<Arc<AppState>>,
    is_draining: AtomicBool,
    shutdown: watch::Sender<bool>,
    /// Whether another process goes on serving the connections at rest, and those that it gets.
    is_handing_over: AtomicBool,
    at_rest: Mutex<Vec<StdStream>>,
    /// Limits the open connections.
    pub connections: Arc<ConnectionLimit>,
    /// Permits to send a refusal to a connection beyond the limit.
    pub refusals: Arc<Semaphore>,
    /// How much memory the request bodies may hold together.
    pub bodies: Arc<ByteBudget>,
    /// How much memory the answers may hold together that clients have not read.
    pub answers: Arc<ByteBudget>,
    /// The peers whose `X-Forwarded-For` is trusted.
    pub proxies: TrustedProxies,
    /// One for each worker.
    metrics: Mutex<Vec<Arc<Metrics>>>,
    started: Instant,
    /// What the metrics show besides.
    pub observed: Observed,
    /// Limits the log lines about connections.
    pub lines: ConnectionLines,
    /// Logs requests, once asked for.
    pub access: OnceLock<AccessLog>,
    /// Traces requests, if asked for.
    #[cfg(feature = "traces")]
    pub traces: Option<Arc<Traces>>,
    /// Whether the console is served.
    has_console: bool,
    /// The web pages that may call.
    pub cors: CorsOrigins,
    /// When the owner of a cluster's log may answer. Set before the start is complete.
    #[cfg(feature = "cluster")]
    pub lease: OnceLock<Arc<Lease>>,
    /// Its place in a cluster.
    #[cfg(feature = "cluster")]
    pub place: ClusterPlace,
    /// The end of a cluster's log when its owner has given it up.
    #[cfg(feature = "cluster")]
    given_up: watch::Sender<Option<u64>>,
}

/// Limits the log lines that clients could cause at any rate.
#[derive(Debug)]
pub struct ConnectionLines {
    /// A connection could not be accepted.
    pub failed: Throttle,
    /// A connection was refused: too many are open.
    pub refused: Throttle,
    /// A peer that is not a trusted proxy sent `X-Forwarded-For`.
    pub forwarded: Throttle,
}

impl Server {
    /// A process that is still starting.
    pub fn new(connections_max: usize) -> Self {
        Self {
            app: OnceLock::new(),
            is_draining: AtomicBool::new(false),
            shutdown: watch::Sender::new(false),
            is_handing_over: AtomicBool::new(false),
            at_rest: Mutex::default(),
            connections: ConnectionLimit::new(connections_max),
            refusals: Arc::new(Semaphore::new(REFUSALS_MAX)),
            bodies: ByteBudget::new(BUDGET_BYTES),
            answers: ByteBudget::new(ANSWER_BYTES_MAX),
            proxies: TrustedProxies::default(),
            metrics: Mutex::default(),
            started: Instant::now(),
            observed: Observed::default(),
            lines: ConnectionLines {
                failed: Throttle::new(LINE_INTERVAL),
                refused: Throttle::new(LINE_INTERVAL),
                forwarded: Throttle::new(FORWARDED_LINE_INTERVAL),
            },
            access: OnceLock::new(),
            #[cfg(feature = "traces")]
            traces: None,
            has_console: true,
            cors: CorsOrigins::default(),
            #[cfg(feature = "cluster")]
            lease: OnceLock::new(),
            #[cfg(feature = "cluster")]
            place: ClusterPlace::default(),
            #[cfg(feature = "cluster")]
            given_up: watch::Sender::new(None),
        }
    }

    /// Also limits the connections of a single address.
    pub fn capped_by_address(self, connections_max: usize, per_address_max: usize) -> Self {
        let connections = ConnectionLimit::with_address_cap(connections_max, per_address_max);
        Self { connections, ..self }
    }

    /// Serves no console.
    pub fn without_console(self) -> Self {
        Self { has_console: false, ..self }
    }

    /// Whether the console is served.
    pub fn has_console(&self) -> bool {
        self.has_console
    }

    /// Trusts these proxies about the addresses of clients.
    pub fn trusting(self, proxies: TrustedProxies) -> Self {
        Self { proxies, ..self }
    }

    /// Traces requests.
    #[cfg(feature = "traces")]
    pub fn tracing(self, traces: Option<Arc<Traces>>) -> Self {
        Self { traces, ..self }
    }

    /// Logs these requests from now on. Only one thread may call this at a time.
    pub fn log_requests(&self, sample: Sample) -> io::Result<()> {
        match self.access.get() {
            Some(access) => access.set_sample(sample),
            None if sample == Sample::Off => {}
            None => {
                let before = self.access.set(AccessLog::start(sample)?);
                assert!(before.is_ok(), "only one thread starts it");
            }
        }
        Ok(())
    }

    /// Takes a place for a connection from `peer`.
    pub fn admit(&self, peer: IpAddr) -> Result<ConnectionGuard, NoSlot> {
        // During the start nothing is answered, so all connections are equally idle.
        let now_ns = self.app().map_or(0, |app| app.service.moment().monotonic_ns);
        let address = (!self.proxies.trusts(peer)).then_some(peer);
        self.connections.admit(address, now_ns)
    }

    /// Starts to serve. Panics if called twice.
    pub fn open(&self, app: Arc<AppState>) {
        let before = self.app.set(app);
        assert!(before.is_ok(), "a server opens once");
    }

    /// Starts to drain: the server is no longer ready, connections finish the requests in flight,
    /// and sockets close.
    pub fn close(&self) {
        self.is_draining.store(true, Ordering::Release);
        self.shutdown.send_replace(true);
    }

    /// Starts to drain for another process, which goes on serving the connections that are at rest
    /// once their requests in flight are answered.
    pub fn hand_over(&self) {
        self.is_handing_over.store(true, Ordering::Release);
        // Not draining: a question whether the server is ready is about both processes.
        self.shutdown.send_replace(true);
    }

    /// What becomes of a connection when the server drains.
    pub fn ending(&self) -> Ending {
        if self.is_handing_over.load(Ordering::Acquire) {
            Ending::HandedOver
        } else {
            Ending::Graceful
        }
    }

    /// Keeps a connection at rest for the process that goes on serving it.
    pub fn keep_at_rest(&self, stream: StdStream) {
        self.at_rest.lock().push(stream);
    }

    /// The connections for the process that goes on serving them.
    pub fn take_at_rest(&self) -> Vec<StdStream> {
        std::mem::take(&mut *self.at_rest.lock())
    }

    /// `None` until the start is complete.
    pub fn app(&self) -> Option<&Arc<AppState>> {
        self.app.get()
    }

    /// Whether what was read before this call may be answered: always, unless another node of a
    /// cluster could have changed it.
    pub fn may_answer(&self) -> bool {
        #[cfg(feature = "cluster")]
        if let Some(lease) = self.lease.get() {
            return lease.holds();
        }
        true
    }

    /// The log of the cluster was given up, and ends at this position: nothing behind it becomes
    /// durable here any more. Requests that wait for that are answered: ask another node.
    #[cfg(feature = "cluster")]
    pub fn give_up(&self, position: u64) {
        self.given_up.send_replace(Some(position));
    }

    /// Whether this is a node of a cluster that has owned its log.
    pub fn is_owner(&self) -> bool {
        #[cfg(feature = "cluster")]
        return self.lease.get().is_some();
        #[cfg(not(feature = "cluster"))]
        false
    }

    /// Whether nothing becomes durable any more, since another node of a cluster serves now.
    pub fn has_given_up(&self) -> bool {
        #[cfg(feature = "cluster")]
        return self.given_up.borrow().is_some();
        #[cfg(not(feature = "cluster"))]
        false
    }

    /// Resolves once that is so, to the position at which the log ends.
    #[cfg(feature = "cluster")]
    pub(super) async fn given_up(&self) -> u64 {
        if !self.is_owner() {
            return pending().await;
        }
        let mut given_up = self.given_up.subscribe();
        let position = given_up.wait_for(Option::is_some).await.ok().and_then(|it| *it);
        position.expect("the sender is here")
    }

    /// Tends the journal, if there is one yet.
    fn tend(&self) {
        if let Some(app) = self.app() {
            app.journal.tend();
        }
    }

    /// Whether the server finishes what is in flight and takes no new work.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// Becomes true when the server starts to drain.
    pub fn shutdown(&self) -> watch::Receiver<bool> {
        self.shutdown.subscribe()
    }
}

/// The place of one connection: it counts towards the limit, and the process waits for it when it
/// drains. An upgraded connection keeps it.
pub struct ConnectionSlot {
    guard: ConnectionGuard,
    has_sent_request: AtomicBool,
    last_key: LastKey,
    /// Its place among the clients of its worker that send requests ahead of the answers.
    place: OnceLock<Arc<Place>>,
    /// The worker drains until all of these are dropped.
    _alive: mpsc::Sender<()>,
}

impl ConnectionSlot {
    /// `alive` is a sender of the channel whose end the worker waits for when it drains. The number
    /// of its senders is that of the worker's connections.
    pub fn new(guard: ConnectionGuard, alive: mpsc::Sender<()>) -> Self {
        let has_sent_request = AtomicBool::new(false);
        let last_key = LastKey::default();
        Self { guard, has_sent_request, last_key, place: OnceLock::new(), _alive: alive }
    }

    /// Records a request. Returns whether it is the connection's first.
    pub fn note_request(&self, now_ns: u64) -> bool {
        self.guard.note_request(now_ns);
        let is_first = !self.has_sent_request.load(Ordering::Relaxed);
        if is_first {
            self.has_sent_request.store(true, Ordering::Relaxed);
        }
        is_first
    }

    /// The key that it presented last.
    pub(super) fn last_key(&self) -> &LastKey {
        &self.last_key
    }

    /// Records a valid credential: from now on this place is never given to another connection.
    pub fn recognize(&self) {
        self.guard.recognize();
    }

    /// Whether it has presented a valid credential.
    #[cfg(feature = "cluster")]
    pub(super) fn is_recognized(&self) -> bool {
        self.guard.is_recognized()
    }

    /// Resolves when this place was given to another connection.
    pub async fn dismissed(&self) {
        self.guard.dismissed().await;
    }
}

/// One worker thread as its connections see it.
pub struct Worker {
    /// The process it belongs to.
    pub server: Arc<Server>,
    /// Counts what this worker does.
    pub metrics: Arc<Metrics>,
    waiters: OnceLock<Arc<Waiters>>,
    turns: OnceLock<Arc<Turns>>,
    /// The turns of clients that send requests ahead of the answers.
    pipelined: OnceLock<Arc<Turns>>,
    watch: OnceLock<Arc<Watch>>,
    /// Its link to the node of a cluster that owns the log, while that is another one.
    #[cfg(feature = "cluster")]
    pub to_owner: ToOwner,
}

impl Worker {
    /// A worker whose metrics are on the server's page from now on.
    pub fn new(server: Arc<Server>) -> Self {
        let metrics = Arc::new(Metrics::new(OPERATIONS.len()));
        server.metrics.lock().push(metrics.clone());
        Self {
            server,
            metrics,
            waiters: OnceLock::new(),
            turns: OnceLock::new(),
            pipelined: OnceLock::new(),
            watch: OnceLock::new(),
            #[cfg(feature = "cluster")]
            to_owner: ToOwner::default(),
        }
    }

    /// The requests of this worker that wait for the disk. The first call starts the task that
    /// wakes them: before the start is complete there is no journal to wait for.
    pub fn waiters(&self, app: &AppState) -> &Arc<Waiters> {
        self.waiters.get_or_init(|| {
            let waiters = app.journal.register();
            tokio::spawn({
                let waiters = waiters.clone();
                async move { waiters.run().await }
            });
            waiters
        })
    }

    /// The turns of this worker's readers. The first call starts the task that gives them.
    pub fn turns(&self) -> &Arc<Turns> {
        self.turns.get_or_init(|| self.spawn_turns(Turns::default()))
    }

    /// Gives way to the other connections of this worker, for a client that sends requests ahead of
    /// the answers: however many such clients there are, others wait for a few of their requests at
    /// a time.
    pub async fn give_way(&self, slot: &ConnectionSlot) {
        let pipelined = self.pipelined.get_or_init(|| self.spawn_turns(Turns::of_requests()));
        pipelined.wait(slot.place.get_or_init(Arc::default)).await;
    }

    /// Starts the task that gives these turns. It also tends the journal: a worker with somebody
    /// who waits for a turn does not sleep.
    fn spawn_turns(&self, turns: Turns) -> Arc<Turns> {
        let turns = Arc::new(turns);
        tokio::spawn({
            let (turns, server) = (turns.clone(), self.server.clone());
            async move { turns.run(|| server.tend()).await }
        });
        turns
    }

    /// The sockets of this worker. The first call starts the task that looks at them.
    pub fn watch(&self) -> &Arc<Watch> {
        self.watch.get_or_init(|| {
            let watch: Arc<Watch> = Arc::default();
            tokio::spawn({
                let (watch, shutdown) = (watch.clone(), self.server.shutdown());
                async move { watch.run(shutdown).await }
            });
            watch
        })
    }

    /// The position in the journal that a request of this worker last waited for since the last
    /// call, 0 if none did.
    pub fn take_position(&self) -> u64 {
        self.waiters.get().map_or(0, |waiters| waiters.take_asked())
    }

    /// The position that was first waited for since the last call of [`Self::take_position`], 0 if
    /// none was.
    #[cfg(feature = "cluster")]
    pub(super) fn first_position(&self) -> u64 {
        self.waiters.get().map_or(0, |waiters| waiters.first_asked())
    }

    /// Called whenever this worker's thread is about to sleep.
    pub fn before_sleep(&self) {
        self.server.tend();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::task::yield_now;

    use super::*;
    use crate::ws::turns::PER_ROUND_MIN;

    #[tokio::test]
    async fn clients_that_send_ahead_of_the_answers_give_way() {
        const CLIENTS: usize = 1_000;
        let worker = Arc::new(Worker::new(Arc::new(Server::new(CLIENTS))));
        let served = Arc::new(AtomicUsize::new(0));
        for _ in 0..CLIENTS {
            let guard = worker.server.connections.admit(None, 0).unwrap();
            let slot = ConnectionSlot::new(guard, mpsc::channel(1).0);
            let (worker, served) = (worker.clone(), served.clone());
            tokio::spawn(async move {
                worker.give_way(&slot).await;
                served.fetch_add(1, Ordering::Relaxed);
            });
        }
        let mut most = 0;
        while served.load(Ordering::Relaxed) < CLIENTS {
            // A request of another client, in several steps, each made by another task.
            let before = served.load(Ordering::Relaxed);
            for _ in 0..3 {
                tokio::spawn(yield_now()).await.unwrap();
            }
            most = most.max(served.load(Ordering::Relaxed) - before);
        }
        assert!(most <= 10 * PER_ROUND_MIN, "{most} were served before one request");
    }
}
