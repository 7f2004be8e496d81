//! State shared by request handlers, per process, worker and connection.

mod page;
mod slot;

#[cfg(feature = "cluster")]
use std::future::pending;
use std::io;
use std::net::{IpAddr, TcpStream as StdStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use super::body::BUDGET_BYTES;
use super::connection::{ConnectionGuard, ConnectionLimit, Ending, IsHot, NoSlot};
use super::cors::CorsOrigins;
#[cfg(feature = "cluster")]
use super::forward::{ClusterPlace, ToOwner};
use super::forwarded::TrustedProxies;
use super::hot::{is_hot, is_hot_with_clob};
use super::idle_flush::IdleFlush;
use super::operations::clob::ClobOrders;
use super::reply::ANSWER_BYTES_MAX;
use super::route::operation_count;
#[cfg(feature = "traces")]
use crate::telemetry::Traces;
use crate::telemetry::{AccessLog, Metrics, Sample, Throttle};
use crate::trouble::MaybeTrouble;
use crate::ws::bounds::UNSENT_BYTES_MAX;
use crate::ws::clob_user::feed::UserFeed;
use crate::ws::counts::{AddressCounts, ExportCounts, SocketCounts, StreamCounts};
use crate::ws::executions::ExecutionCounts;
use crate::ws::fanout::Fanout;
use crate::ws::turns::Turns;
use crate::ws::watch::Watch;
pub use page::Observed;
#[cfg(feature = "cluster")]
use paperbourse_cluster::lease::Lease;
use paperbourse_core::limits::budget::ByteBudget;
use paperbourse_exchange::service::Service;
use paperbourse_store::journal::{Journal, Waiters};
use paperbourse_venue::VenueStatus;
pub use slot::ConnectionSlot;

/// Maximum number of connections that are sent a refusal at the same time.
pub const REFUSALS_MAX: usize = 64;
/// Default limit on open price streams per address.
pub const STREAMS_PER_ADDRESS_MAX: u32 = 100;
/// Minimum interval between two log lines about connections that were not served.
const LINE_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum interval between two log lines about an ignored `X-Forwarded-For`.
const FORWARDED_LINE_INTERVAL: Duration = Duration::from_mins(1);

/// Everything needed to answer requests. It exists once startup is complete.
pub struct AppState {
    /// The exchange's use cases.
    pub service: Service,
    /// The journal: records on disk and records being written.
    pub journal: Arc<Journal>,
    /// Sends prices to subscribers.
    pub fanout: Arc<Fanout>,
    /// Counts of the frames that execution sockets have sent.
    pub executions: ExecutionCounts,
    /// Tells user sockets what happens.
    pub users: Arc<UserFeed>,
    /// Number of open sockets of each account.
    pub sockets: Arc<SocketCounts>,
    /// Number of running exports of each account.
    pub exports: Arc<ExportCounts>,
    /// Number of open sockets of the venue's interface, by address.
    pub clob_sockets: Arc<AddressCounts>,
    /// Number of open price streams of each address.
    pub streams: Arc<StreamCounts>,
    /// Memory budget for data of sockets and price streams that clients have not read yet.
    pub unsent: Arc<ByteBudget>,
    /// Number of sockets closed with 1013, for lack of room or because a client reads too slowly.
    pub turned_away: AtomicU64,
    /// Number of price streams cut off because their clients read too slowly.
    pub streams_cut_off: AtomicU64,
    /// Maximum number of open price streams per address.
    pub streams_per_address_max: AtomicU32,
    /// The venue that supplies prices, and its status.
    pub venue: VenueStatus,
    /// How orders of the venue's interface are taken and answered.
    pub clob: ClobOrders,
    /// The trouble that clients of the venue's interface meet, if any.
    pub trouble: MaybeTrouble,
    /// Memory use of each part of the server, in bytes, as last counted; empty unless memory is
    /// counted.
    pub memory: Mutex<Vec<(&'static str, usize)>>,
    /// When startup completed.
    pub began: Instant,
}

impl AppState {
    /// Creates the state of an exchange that has no subscribers and starts now.
    pub fn new(service: Service, journal: Arc<Journal>, venue: VenueStatus) -> Self {
        Self {
            fanout: Arc::new(Fanout::new(service.markets().clone())),
            users: Arc::new(UserFeed::new(service.shards().clone())),
            service,
            journal,
            executions: ExecutionCounts::default(),
            sockets: Arc::default(),
            exports: Arc::default(),
            clob_sockets: Arc::default(),
            streams: Arc::default(),
            unsent: ByteBudget::new(UNSENT_BYTES_MAX),
            turned_away: AtomicU64::new(0),
            streams_cut_off: AtomicU64::new(0),
            streams_per_address_max: AtomicU32::new(STREAMS_PER_ADDRESS_MAX),
            venue,
            clob: ClobOrders::default(),
            trouble: None,
            memory: Mutex::default(),
            began: Instant::now(),
        }
    }
}

/// The process as its connections see it: starting (no exchange yet), serving, then draining.
pub struct Server {
    app: OnceLock<Arc<AppState>>,
    is_draining: AtomicBool,
    shutdown: watch::Sender<bool>,
    /// Whether another process takes over the idle connections and accepts new ones.
    is_handing_over: AtomicBool,
    at_rest: Mutex<Vec<StdStream>>,
    /// Limits the number of open connections.
    pub connections: Arc<ConnectionLimit>,
    /// Permits for sending a refusal to connections over the limit.
    pub refusals: Arc<Semaphore>,
    /// Memory budget shared by all request bodies.
    pub bodies: Arc<ByteBudget>,
    /// Memory budget shared by all answers that clients have not read yet.
    pub answers: Arc<ByteBudget>,
    /// The peers whose `X-Forwarded-For` is trusted.
    pub proxies: TrustedProxies,
    /// The metrics of each worker.
    metrics: Mutex<Vec<Arc<Metrics>>>,
    started: Instant,
    /// Sources of metrics that lie outside the exchange.
    pub observed: Observed,
    /// Throttles for log lines about connections.
    pub lines: ConnectionLines,
    /// The access log, once it has been enabled.
    pub access: OnceLock<AccessLog>,
    /// Traces of requests; `None` unless tracing is enabled.
    #[cfg(feature = "traces")]
    pub traces: Option<Arc<Traces>>,
    /// Whether the console is served.
    has_console: bool,
    /// Whether connections answer hot requests in the lane.
    has_lane: bool,
    /// Whether the venue's interface is served.
    has_clob: bool,
    /// The origins of web pages that may call the API.
    pub cors: CorsOrigins,
    /// The lease under which the owner of a cluster's log may answer. Set before startup completes.
    #[cfg(feature = "cluster")]
    pub lease: OnceLock<Arc<Lease>>,
    /// The node's place in its cluster.
    #[cfg(feature = "cluster")]
    pub place: ClusterPlace,
    /// The end position of the cluster's log, once this node has given up the log.
    #[cfg(feature = "cluster")]
    given_up: watch::Sender<Option<u64>>,
}

/// Throttles for log lines that clients could otherwise trigger at any rate.
#[derive(Debug)]
pub struct ConnectionLines {
    /// Throttles the line about a connection that could not be accepted.
    pub failed: Throttle,
    /// Throttles the line about a connection that was refused because too many are open.
    pub refused: Throttle,
    /// Throttles the line about an `X-Forwarded-For` from a peer that is not a trusted proxy.
    pub forwarded: Throttle,
}

impl Server {
    /// Creates a server that is still starting.
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
            has_lane: true,
            has_clob: false,
            cors: CorsOrigins::default(),
            #[cfg(feature = "cluster")]
            lease: OnceLock::new(),
            #[cfg(feature = "cluster")]
            place: ClusterPlace::default(),
            #[cfg(feature = "cluster")]
            given_up: watch::Sender::new(None),
        }
    }

    /// Limits connections in total and per address.
    pub fn capped_by_address(self, connections_max: usize, per_address_max: usize) -> Self {
        let connections = ConnectionLimit::with_address_cap(connections_max, per_address_max);
        Self { connections, ..self }
    }

    /// Leaves all requests to hyper.
    pub fn without_lane(self) -> Self {
        Self { has_lane: false, ..self }
    }

    /// Returns the test for requests that connections answer in the lane; `None` if hyper answers
    /// all requests.
    pub fn hot(&self) -> Option<IsHot> {
        self.has_lane.then_some(if self.has_clob { is_hot_with_clob } else { is_hot })
    }

    /// Serves the venue's interface beside this server's own. Called before the first worker is
    /// created, whose metrics count its operations.
    pub fn with_clob(self) -> Self {
        Self { has_clob: true, ..self }
    }

    /// Whether the venue's interface is served.
    pub fn has_clob(&self) -> bool {
        self.has_clob
    }

    /// Disables the console.
    pub fn without_console(self) -> Self {
        Self { has_console: false, ..self }
    }

    /// Whether the console is served.
    pub fn has_console(&self) -> bool {
        self.has_console
    }

    /// Trusts these proxies to report client addresses in `X-Forwarded-For`.
    pub fn trusting(self, proxies: TrustedProxies) -> Self {
        Self { proxies, ..self }
    }

    /// Traces requests with `traces`, if given.
    #[cfg(feature = "traces")]
    pub fn tracing(self, traces: Option<Arc<Traces>>) -> Self {
        Self { traces, ..self }
    }

    /// Sets which requests are logged from now on. Only one thread may call this at a time. Fails
    /// if the log's thread cannot be started.
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

    /// Takes a connection slot for `peer`. On failure, [`NoSlot`] says which limit was reached.
    pub fn admit(&self, peer: IpAddr) -> Result<ConnectionGuard, NoSlot> {
        // Nothing is answered during startup, so all connections are equally idle.
        let now_ns = self.app().map_or(0, |app| app.service.moment().monotonic_ns);
        let address = (!self.proxies.trusts(peer)).then_some(peer);
        self.connections.admit(address, now_ns)
    }

    /// Starts serving. Panics if called twice.
    pub fn open(&self, app: Arc<AppState>) {
        let before = self.app.set(app);
        assert!(before.is_ok(), "a server opens once");
    }

    /// Starts draining: the server is no longer ready, connections finish their requests in flight,
    /// and sockets close.
    pub fn close(&self) {
        // Set before the signal, so that the tasks it wakes find the server draining.
        self.is_draining.store(true, Ordering::Release);
        self.shutdown.send_replace(true);
    }

    /// Starts draining in favour of another process, which takes over idle connections once their
    /// requests in flight are answered.
    pub fn hand_over(&self) {
        // Set before the signal, because connections read it in `ending` when the signal arrives.
        self.is_handing_over.store(true, Ordering::Release);
        // `is_draining` stays false: readiness now describes both processes.
        self.shutdown.send_replace(true);
    }

    /// Returns how connections end when the server drains.
    pub fn ending(&self) -> Ending {
        if self.is_handing_over.load(Ordering::Acquire) {
            Ending::HandedOver
        } else {
            Ending::Graceful
        }
    }

    /// Keeps an idle connection for the process that takes it over.
    pub fn keep_at_rest(&self, stream: StdStream) {
        self.at_rest.lock().push(stream);
    }

    /// Removes and returns the idle connections to hand over.
    pub fn take_at_rest(&self) -> Vec<StdStream> {
        std::mem::take(&mut *self.at_rest.lock())
    }

    /// Returns the exchange, or `None` until startup is complete.
    pub fn app(&self) -> Option<&Arc<AppState>> {
        self.app.get()
    }

    /// Whether state read before this call may be sent as an answer. Always true, unless another
    /// node of a cluster could have changed the state.
    pub fn may_answer(&self) -> bool {
        #[cfg(feature = "cluster")]
        if let Some(lease) = self.lease.get() {
            return lease.holds();
        }
        true
    }

    /// Records that this node has given up the cluster's log, which ends at `position`. Records
    /// beyond it never become durable here, so requests waiting for them fail and must be retried
    /// at another node.
    #[cfg(feature = "cluster")]
    pub fn give_up(&self, position: u64) {
        self.given_up.send_replace(Some(position));
    }

    /// Whether this node owns, or has owned, the log of a cluster.
    pub fn is_owner(&self) -> bool {
        #[cfg(feature = "cluster")]
        return self.lease.get().is_some();
        #[cfg(not(feature = "cluster"))]
        false
    }

    /// Whether this node has given up the cluster's log, after which nothing becomes durable here.
    pub fn has_given_up(&self) -> bool {
        #[cfg(feature = "cluster")]
        return self.given_up.borrow().is_some();
        #[cfg(not(feature = "cluster"))]
        false
    }

    /// Waits until this node gives up the log, and returns the position at which the log ends.
    /// Never resolves on a node that has not owned the log.
    #[cfg(feature = "cluster")]
    pub(super) async fn given_up(&self) -> u64 {
        if !self.is_owner() {
            return pending().await;
        }
        let mut given_up = self.given_up.subscribe();
        let position = given_up.wait_for(Option::is_some).await.ok().and_then(|it| *it);
        position.expect("the sender is here")
    }

    /// Flushes the journal's filled records, if there is a journal yet.
    fn tend(&self) {
        if let Some(app) = self.app() {
            app.journal.tend();
        }
    }

    /// Whether the server only finishes requests in flight and takes no new work.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// Returns a receiver whose value becomes true when the server starts to drain or to hand over.
    pub fn shutdown(&self) -> watch::Receiver<bool> {
        self.shutdown.subscribe()
    }
}

/// One worker thread as its connections see it.
pub struct Worker {
    /// The server that this worker belongs to.
    pub server: Arc<Server>,
    /// The metrics of this worker.
    pub metrics: Arc<Metrics>,
    waiters: OnceLock<Arc<Waiters>>,
    idle_flush: Arc<IdleFlush>,
    turns: OnceLock<Arc<Turns>>,
    /// The turns of clients that pipeline requests.
    pipelined: OnceLock<Arc<Turns>>,
    watch: OnceLock<Arc<Watch>>,
    /// The link to the node that owns the cluster's log, while that is another node.
    #[cfg(feature = "cluster")]
    pub to_owner: ToOwner,
}

impl Worker {
    /// Creates a worker and adds its metrics to the server's metrics page.
    pub fn new(server: Arc<Server>) -> Self {
        let metrics = Arc::new(Metrics::new(operation_count(server.has_clob)));
        server.metrics.lock().push(metrics.clone());
        Self {
            server,
            metrics,
            waiters: OnceLock::new(),
            idle_flush: Arc::default(),
            turns: OnceLock::new(),
            pipelined: OnceLock::new(),
            watch: OnceLock::new(),
            #[cfg(feature = "cluster")]
            to_owner: ToOwner::default(),
        }
    }

    /// Returns this worker's requests that wait for the disk. The first call starts the tasks that
    /// flush for them and wake them. They cannot start earlier: before startup is complete there is
    /// no journal to wait for.
    pub fn waiters(&self, app: &AppState) -> &Arc<Waiters> {
        self.waiters.get_or_init(|| {
            let waiters = app.journal.register();
            tokio::spawn({
                let waiters = waiters.clone();
                async move { waiters.run().await }
            });
            tokio::spawn({
                let (idle_flush, waiters) = (self.idle_flush.clone(), waiters.clone());
                let server = self.server.clone();
                async move { idle_flush.run(&waiters, || server.tend()).await }
            });
            waiters
        })
    }

    /// Returns the turns of this worker's readers. The first call starts the task that grants them.
    pub fn turns(&self) -> &Arc<Turns> {
        self.turns.get_or_init(|| self.spawn_turns(Turns::default()))
    }

    /// Yields to the worker's other connections, on behalf of a client that pipelines requests.
    /// However many clients pipeline, the others wait for only a few pipelined requests at a time.
    pub async fn give_way(&self, slot: &ConnectionSlot) {
        let pipelined = self.pipelined.get_or_init(|| self.spawn_turns(Turns::of_requests()));
        pipelined.wait(slot.place.get_or_init(Arc::default)).await;
    }

    /// Starts the task that grants these turns. The task also flushes the journal, because a worker
    /// with waiting clients never goes to sleep.
    fn spawn_turns(&self, turns: Turns) -> Arc<Turns> {
        let turns = Arc::new(turns);
        tokio::spawn({
            let (turns, server) = (turns.clone(), self.server.clone());
            async move { turns.run(|| server.tend()).await }
        });
        turns
    }

    /// Returns the watch over this worker's sockets. The first call starts the task that checks
    /// them.
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

    /// Returns the last journal position that a request of this worker has waited for since the
    /// previous call; 0 if there was none.
    pub fn take_position(&self) -> u64 {
        self.waiters.get().map_or(0, |waiters| waiters.take_asked())
    }

    /// Returns the first journal position that a request has waited for since the last call of
    /// [`Self::take_position`]; 0 if there was none.
    #[cfg(feature = "cluster")]
    pub(super) fn first_position(&self) -> u64 {
        self.waiters.get().map_or(0, |waiters| waiters.first_asked())
    }

    /// Flushes the journal, or wakes the task that does. Called whenever this worker's thread is
    /// about to sleep.
    pub fn before_sleep(&self) {
        let Some(app) = self.server.app().filter(|app| app.journal.has_unflushed()) else { return };
        if !self.waiters.get().is_some_and(|waiters| self.idle_flush.begin(waiters)) {
            app.journal.tend();
        }
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
            let slot = ConnectionSlot::new(guard, tokio::sync::mpsc::channel(1).0);
            let (worker, served) = (worker.clone(), served.clone());
            tokio::spawn(async move {
                worker.give_way(&slot).await;
                served.fetch_add(1, Ordering::Relaxed);
            });
        }
        let mut most = 0;
        while served.load(Ordering::Relaxed) < CLIENTS {
            // A request of another client takes several steps, each of which another task triggers.
            let before = served.load(Ordering::Relaxed);
            for _ in 0..3 {
                tokio::spawn(yield_now()).await.unwrap();
            }
            most = most.max(served.load(Ordering::Relaxed) - before);
        }
        assert!(most <= 10 * PER_ROUND_MIN, "{most} were served before one request");
    }
}
