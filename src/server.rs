//! The life of a server: startup order, readiness, and shutdown.
//!
//! The server binds its address first, so that it fails at once if the address is in use, and logs
//! the address once the data folder is open. Until the server is ready, every request except the
//! health check gets 503. Shutdown runs in reverse: report not ready, accept no new connections,
//! finish requests in flight, close the sockets, flush the journal.

mod activation;
mod admin;
pub mod check;
mod clob;
mod descriptors;
mod ending;
mod footprint;
mod hand_over;
mod listener;
#[cfg(feature = "cluster")]
mod member;
mod memory;
mod prepared;
mod ready;
mod reload;
mod settlement;
mod start;
mod supervisor;
#[cfg(feature = "traces")]
mod traces;
mod watchdog;
mod welcome;
mod worker;

use std::future::pending;
use std::io;
use std::net::{TcpListener as StdListener, TcpStream as StdStream};
#[cfg(feature = "cluster")]
use std::ops::ControlFlow;
use std::pin::pin;
use std::process;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::build::{BUILD, UNKNOWN, VERSION};
use crate::config::sources::Configuration;
use crate::config::{DataPlace, ServeArgs, Switch};
use crate::disk::Disk;
use crate::hours::HoursFile;
use crate::http;
use crate::http::app::{AppState, Server};
use crate::http::forwarded::TrustedProxies;
use crate::journal::DataDirectory;
use crate::operators::{self, OperatorSocket};
use crate::service::Service;
use crate::snapshot::SnapshotKeeper;
use crate::telemetry::AccessLog;
use crate::venue::Venue;
use activation::Passed;
pub(crate) use ending::ending_signal;
use ending::{DRAIN_TIME_MAX, Ending};
use hand_over::{HandOver, Predecessor, Successor};
use listener::{AdminListener, Listeners, METRICS_EXPOSED};
#[cfg(all(test, feature = "cluster"))]
pub(crate) use member::{Entry, RELEASE_TIME_MAX, require_whole};
#[cfg(feature = "cluster")]
use member::{Joined, Left, Member};
use prepared::Prepared;
use reload::Reloader;
use start::Started;
use supervisor::Supervisor;
use watchdog::Heart;
use worker::Workers;

/// Interval at which the rate limiters of idle keys are freed: the length of the longest window.
const RELEASE_INTERVAL: Duration = Duration::from_mins(1);

/// Maximum time a hand-over waits for delayed orders before it begins, and the polling interval.
const DELAYED_ORDERS_TIME_MAX: Duration = Duration::from_secs(10);
const DELAYED_ORDERS_INTERVAL: Duration = Duration::from_millis(5);

/// Serves until a signal ends the process, or another server takes over. With `takes_over`, first
/// takes over from the server on the same data folder.
pub fn run(configuration: &Configuration, takes_over: bool) -> anyhow::Result<()> {
    let arguments = &configuration.arguments;
    require_no_mix(arguments, takes_over)?;
    let passed = activation::passed()?;
    // Everything except requests runs on this runtime: the venue, the fan-out, signals.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start the background runtime")?;
    // Before the process can be noticed: SIGHUP kills a process that does not watch it.
    let hangups = {
        let _entered = runtime.enter();
        signal(SignalKind::hangup()).context("failed to watch SIGHUP")?
    };
    let worker_count = arguments.workers.map_or_else(default_worker_count, usize::from);
    let connections_max = connections_max(arguments, worker_count)?;
    // Before the running server is asked: it waits for a successor's answer for two seconds.
    http::prepare();
    let Taken { prepared, predecessor, passed } =
        if takes_over { take_over(arguments, passed, &runtime)? } else { Taken::nothing(passed) };
    let is_bound = passed.public.is_empty();
    let listeners = listen(arguments, passed.public, worker_count)?;
    let supervisor = Arc::new(Supervisor::from_environment());
    supervisor.status("starting");
    warn_of_unknown_variables(configuration);
    let admin = listen_for_metrics(arguments, passed.admin, predecessor.is_some())?;
    let server = server_of(arguments, connections_max)?;
    #[cfg(feature = "traces")]
    let (server, exporter) = {
        let (traces, exporter) = traces::start(&arguments.traces)?.unzip();
        (server.tracing(traces), exporter)
    };
    let server = Arc::new(server);
    let heart = Arc::new(Heart::default());
    let hands = listeners.deal(worker_count).context("failed to share the listening sockets")?;
    let start_workers = |connections| Workers::start(hands, connections, &server, &heart);
    // If this process has bound the address, an early client gets 503. On a socket passed by the
    // supervisor or the predecessor, the client waits in the accept queue until the workers start.
    // A standby starts its workers in any case: otherwise its clients would wait for as long as
    // another node serves.
    let (mut workers, start_workers) = if is_bound || arguments.cluster.cluster.is_some() {
        (Some(start_workers(Vec::new())?), None)
    } else {
        (None, Some(start_workers))
    };
    let ended = runtime.block_on(async {
        #[cfg(feature = "traces")]
        exporter.map(|exporter| tokio::spawn(exporter.run()));
        let connections = take_connections(predecessor, connections_max)?;
        #[cfg(feature = "cluster")]
        let Joined { mut member, prepared, ending: early } =
            match Member::join(arguments, &supervisor, &server, prepared, admin.as_ref()).await? {
                ControlFlow::Continue(joined) => joined,
                ControlFlow::Break(left) => {
                    stop_standing_by(&server, workers, (listeners, admin), left).await;
                    return Ok(());
                }
            };
        let Started { app, venue, snapshots, hours, first_token } =
            start::start(arguments, prepared, &listeners).await?;
        show_metrics(arguments, admin.as_ref(), &server, &app, snapshots.as_ref())?;
        spawn_background(&app, venue);
        let (operators, hand_over) = listen_in_folder(&arguments.data, &app);
        #[cfg(feature = "cluster")]
        let ending = early.map_or_else(Ending::watch, Ok)?;
        #[cfg(not(feature = "cluster"))]
        let ending = Ending::watch()?;
        // Open before the workers start: connections that were taken over must not get 503.
        server.open(app.clone());
        if let Some(start_workers) = start_workers {
            workers = Some(start_workers(connections)?);
        }
        let mut workers = workers.expect("started before or just now");
        tracing::info!("ready");
        let status = listeners.to_string();
        supervisor.ready(&status);
        welcome::greet(arguments, &listeners.addresses, first_token.as_deref());
        let reloads = Reloader::new(configuration).run(
            hangups,
            server.clone(),
            app.clone(),
            supervisor.clone(),
            status,
        );
        report_to_watchdog(&heart, &supervisor, &app)?;
        #[cfg(feature = "cluster")]
        member.serves(&server);
        let sockets = (listeners, admin.map(|admin| admin.socket));
        let end = until_end(&ending, reloads, hand_over.as_ref(), &sockets, &app.service).await;
        // From here on, new connections are refused, or wait in the queue for the next server.
        drop(sockets);
        supervisor.stopping("draining: finishing requests and closing sockets");
        drop((operators, hand_over));
        let successor = begin(end, &server);
        #[cfg(feature = "cluster")]
        member.release(&server, &app.journal).await;
        drain(&server, &mut workers, &app, &ending).await;
        put_away(&app, hours, snapshots).await;
        if let Some(successor) = successor {
            leave_to(&successor, &server);
        }
        #[cfg(feature = "cluster")]
        member.end();
        Ok(())
    });
    // Everything is on disk. Dropping the runtime would wait for its blocking tasks, such as a
    // lookup of the venue's address, while a second signal would have no effect.
    runtime.shutdown_background();
    ended
}

/// Rejects options that would let a node diverge from its cluster's log.
fn require_no_mix(arguments: &ServeArgs, takes_over: bool) -> anyhow::Result<()> {
    start::require_alone(arguments)?;
    anyhow::ensure!(
        !takes_over || arguments.cluster.cluster.is_none(),
        "--take-over serves no cluster: its nodes hand over through the log, so stop this one and \
         start it again"
    );
    Ok(())
}

/// Starts sending keep-alives to the supervisor's watchdog, if it expects any.
fn report_to_watchdog(
    heart: &Arc<Heart>,
    supervisor: &Arc<Supervisor>,
    app: &Arc<AppState>,
) -> anyhow::Result<()> {
    match supervisor::watchdog_interval() {
        Some(interval) => watchdog::start(heart.clone(), supervisor.clone(), app.clone(), interval),
        None => Ok(()),
    }
}

fn warn_of_unknown_variables(configuration: &Configuration) {
    for name in &configuration.unknown_variables {
        tracing::warn!(name, "ignoring an unknown environment variable: check the spelling");
    }
}

/// Writes the hours file, which is otherwise written periodically, and drops the snapshot task.
async fn put_away(
    app: &AppState,
    hours: Option<Arc<HoursFile>>,
    snapshots: Option<SnapshotKeeper>,
) {
    if let Some(hours) = hours {
        app.service.deliver_facts().await;
        hours.write();
    }
    // A snapshot in progress is abandoned; the next start takes it.
    drop(snapshots);
}

/// Raises the limit of open files, and returns the maximum number of connections that fits under
/// it.
fn connections_max(arguments: &ServeArgs, worker_count: usize) -> anyhow::Result<usize> {
    let open_files_max = descriptors::raise();
    descriptors::connections_max(arguments.connections_max, open_files_max, worker_count)
}

/// The results of a take-over; without a take-over, only the sockets that the supervisor has
/// passed.
struct Taken {
    prepared: Option<Prepared>,
    predecessor: Option<Predecessor>,
    passed: Passed,
}

impl Taken {
    const fn nothing(passed: Passed) -> Self {
        Self { prepared: None, predecessor: None, passed }
    }
}

/// Prepares for startup, then asks the running server to hand over. If no server is running,
/// startup continues as usual.
fn take_over(arguments: &ServeArgs, passed: Passed, runtime: &Runtime) -> anyhow::Result<Taken> {
    let DataPlace::Folder(data) = &arguments.data else {
        anyhow::bail!("--take-over needs a data folder: --data memory keeps nothing to take over");
    };
    // If no server is running, waiting for the venue or the provider would only prolong the outage.
    let waits = hand_over::is_offered(data);
    let prepared = runtime.block_on(prepared::prepare(arguments, data, waits))?;
    let Some((predecessor, passed)) = Predecessor::ask(data)? else {
        tracing::info!(path = %data.display(), "no server to take over from: starting as usual");
        // No predecessor is about to release the folder, so a held lock is an error now.
        DataDirectory::require_free(&Disk::System, data)?;
        return Ok(Taken { prepared: Some(prepared), predecessor: None, passed });
    };
    tracing::info!(sockets = passed.public.len(), "taking over");
    Ok(Taken { prepared: Some(prepared), predecessor: Some(predecessor), passed })
}

/// Tells the predecessor to shut down, and receives the idle connections that it hands over.
fn take_connections(
    predecessor: Option<Predecessor>,
    connections_max: usize,
) -> anyhow::Result<Vec<StdStream>> {
    let Some(mut predecessor) = predecessor else { return Ok(Vec::new()) };
    predecessor.accept()?;
    Ok(predecessor.take_connections(connections_max))
}

/// Opens the data folder's sockets for operators and for servers that want to take over.
fn listen_in_folder(
    data: &DataPlace,
    app: &Arc<AppState>,
) -> (Option<OperatorSocket>, Option<HandOver>) {
    (operators(data, app), hand_over(data))
}

/// Opens the socket for servers that want to take over. A failure is only logged, since it should
/// not prevent the start.
fn hand_over(data: &DataPlace) -> Option<HandOver> {
    let DataPlace::Folder(data) = data else { return None };
    HandOver::bind(data)
        .inspect_err(|error| {
            tracing::warn!("`serve --take-over` cannot reach this server: {error}");
        })
        .ok()
}

/// The reason why a server stops serving.
enum End {
    /// A signal with this name.
    Signal(&'static str),
    /// Another server has taken over.
    Successor(Successor),
}

/// Starts the drain, in which connections finish their requests in flight. Returns the server that
/// takes over, if any.
fn begin(end: End, server: &Server) -> Option<Successor> {
    match end {
        End::Signal(signal) => {
            server.close();
            tracing::info!(signal, "draining");
            None
        }
        End::Successor(successor) => {
            server.hand_over();
            Some(successor)
        }
    }
}

/// Waits until a signal ends the server, or another server takes over.
async fn until_end(
    ending: &Ending,
    reloads: impl Future<Output = ()>,
    hand_over: Option<&HandOver>,
    (listeners, admin): &(Listeners, Option<StdListener>),
    service: &Service,
) -> End {
    let mut reloads = pin!(reloads);
    loop {
        let asked = async {
            match hand_over {
                Some(hand_over) => hand_over.asked().await,
                None => pending().await,
            }
        };
        let successor = tokio::select! {
            name = ending.asked() => return End::Signal(name),
            () = &mut reloads => {
                ending.begin("SIGHUP");
                return End::Signal("SIGHUP");
            }
            successor = asked => successor,
        };
        tracing::info!("another server takes over");
        let offered = async {
            // A single request that waits for a delayed order would delay the whole drain.
            let began = Instant::now();
            while service.delayed_orders().count() > 0 && began.elapsed() < DELAYED_ORDERS_TIME_MAX
            {
                tokio::time::sleep(DELAYED_ORDERS_INTERVAL).await;
            }
            successor.offer(listeners.sockets(), admin.as_ref()).await
        };
        let accepted = tokio::select! {
            name = ending.asked() => return End::Signal(name),
            accepted = offered => accepted,
        };
        match accepted {
            Ok(successor) => {
                ending.begin("take-over");
                return End::Successor(successor);
            }
            Err(error) => {
                tracing::warn!(%error, "the other server did not take the sockets: serving on");
            }
        }
    }
}

/// Hands idle connections over to the next server and exits the process.
fn leave_to(successor: &Successor, server: &Server) -> ! {
    let connections = server.take_at_rest();
    if let Err(error) = successor.send_connections(&connections) {
        tracing::error!(%error, "the server that takes over is gone: start another");
    }
    tracing::info!(connections = connections.len(), "handed over");
    // The next server waits for the folder's lock, which the exit releases. Exit without dropping
    // the accounts: freeing a million of them one by one takes half a second.
    process::exit(0)
}

/// Binds the public address. A cluster node logs it at once: the node may wait for its brokers, and
/// forwards requests while another node serves.
fn listen(
    arguments: &ServeArgs,
    passed: Vec<StdListener>,
    worker_count: usize,
) -> anyhow::Result<Listeners> {
    let listeners = Listeners::open(arguments, passed, worker_count)?;
    tracing::info!(version = VERSION, commit = BUILD.commit.unwrap_or(UNKNOWN), "starting");
    if arguments.cluster.cluster.is_some() {
        listeners.announce(arguments);
    }
    Ok(listeners)
}

/// Binds the admin address, if configured, unless the supervisor or the predecessor has passed a
/// socket for it. A take-over changes no address.
fn listen_for_metrics(
    arguments: &ServeArgs,
    passed: Option<StdListener>,
    takes_over: bool,
) -> anyhow::Result<Option<AdminListener>> {
    let admin = match passed {
        Some(socket) => Some(AdminListener::of(socket).context("failed to read its address")?),
        None if takes_over => {
            if let Some(address) = arguments.admin_listen {
                tracing::warn!(
                    %address,
                    "no metrics: the last server had none, and a take-over changes no address. \
                     Start without --take-over to serve them"
                );
            }
            None
        }
        None => arguments.admin_listen.map(AdminListener::bind).transpose()?,
    };
    if admin.as_ref().is_some_and(|admin| ServeArgs::is_admin_exposed_at(admin.address)) {
        tracing::warn!("{METRICS_EXPOSED}");
    }
    Ok(admin)
}

/// Builds the state that all connections share, with the operator's limits.
fn server_of(arguments: &ServeArgs, connections_max: usize) -> anyhow::Result<Server> {
    for proxy in &arguments.trusted_proxies {
        tracing::info!(%proxy, "trusting X-Forwarded-For from a proxy");
    }
    let per_address_max = arguments.connections_per_address(connections_max);
    let server = Server::new(connections_max).capped_by_address(connections_max, per_address_max);
    let server = if arguments.console == Switch::On { server } else { server.without_console() };
    let server = if arguments.has_lane() { server } else { server.without_lane() };
    let server = if arguments.clob == Switch::On { server.with_clob() } else { server };
    server.cors.set(&arguments.cors_origins);
    server.log_requests(arguments.access_log).context("failed to start the access log's thread")?;
    Ok(server.trusting(TrustedProxies::new(&arguments.trusted_proxies)))
}

/// Serves the operators' socket in the data folder. A failure is only logged, since it should not
/// prevent the start.
fn operators(data: &DataPlace, app: &Arc<AppState>) -> Option<OperatorSocket> {
    let DataPlace::Folder(data) = data else { return None };
    let serve = || -> io::Result<OperatorSocket> {
        let socket = OperatorSocket::bind(data)?;
        tokio::spawn(operators::serve(&socket, app)?);
        Ok(socket)
    };
    match serve() {
        Ok(socket) => {
            tracing::info!(path = %socket.path().display(), "accepting operator commands");
            Some(socket)
        }
        Err(error) => {
            tracing::warn!(
                path = %operators::socket_path(data).display(),
                "`paperbourse account` is not served: {error}. If the path is too long for a \
                 socket, start with a shorter --data, such as one relative to the working directory"
            );
            None
        }
    }
}

/// Serves the metrics, if configured, and starts the measurements that only they need.
fn show_metrics(
    arguments: &ServeArgs,
    admin: Option<&AdminListener>,
    server: &Arc<Server>,
    app: &Arc<AppState>,
    snapshots: Option<&SnapshotKeeper>,
) -> anyhow::Result<()> {
    if let Some(snapshots) = snapshots {
        server.observed.snapshots.get_or_init(|| snapshots.metrics().clone());
    }
    let Some(admin) = admin else { return Ok(()) };
    // A cluster node has served its metrics since it joined.
    if arguments.cluster.cluster.is_none() {
        serve_metrics(admin, server)?;
    }
    tokio::spawn(footprint::watch(app.clone()));
    Ok(())
}

/// Starts serving the metrics on the admin socket.
fn serve_metrics(admin: &AdminListener, server: &Arc<Server>) -> anyhow::Result<()> {
    tracing::info!("metrics on http://{}/metrics", admin.address);
    let socket = admin.socket.try_clone().context("failed to share the admin socket")?;
    tokio::spawn(admin::serve(socket, server.clone()));
    Ok(())
}

/// Spawns the background tasks: the fan-out, the venue and the release of idle limiters.
fn spawn_background(app: &Arc<AppState>, mut venue: Venue) {
    tokio::spawn({
        let app = app.clone();
        async move { app.fanout.run().await }
    });
    tokio::spawn(async move { venue.run().await });
    tokio::spawn(release_limiters(app.clone()));
    if let Some(trouble) = app.trouble.clone() {
        tokio::spawn(settlement::settle(app.clone(), trouble));
    }
}

/// Periodically frees the limiters of idle keys, off the runtime: visiting a million keys takes a
/// while.
async fn release_limiters(app: Arc<AppState>) {
    loop {
        tokio::time::sleep(RELEASE_INTERVAL).await;
        let app = app.clone();
        let released = tokio::task::spawn_blocking(move || app.service.release_limiters());
        released.await.expect("releasing memory does not panic");
    }
}

/// Waits until the connections have ended, then flushes the journal and the telemetry.
async fn drain(server: &Server, workers: &mut Workers, app: &AppState, ending: &Ending) {
    finish(server, workers, ending, || app.service.delayed_orders().count()).await;
    if !server.has_given_up() {
        app.journal.flush_blocking();
    }
    flush_telemetry(server).await;
    tracing::info!("stopped; everything acknowledged is on disk");
}

/// Waits until the connections have finished their requests in flight, for at most
/// [`DRAIN_TIME_MAX`]. A second signal ends the wait at once.
async fn finish(
    server: &Server,
    workers: &mut Workers,
    ending: &Ending,
    delayed_orders: impl Fn() -> usize,
) {
    let left = || (delayed_orders(), server.connections.count());
    tokio::select! {
        () = workers.drained() => {}
        name = ending.hurried() => {
            let (delayed_orders, connections) = left();
            tracing::warn!(
                held_orders = delayed_orders,
                connections,
                signal = name,
                "second signal: no longer waiting for connections and held orders"
            );
        }
        () = tokio::time::sleep(DRAIN_TIME_MAX) => {
            let (delayed_orders, connections) = left();
            tracing::warn!(
                held_orders = delayed_orders,
                connections,
                after_seconds = DRAIN_TIME_MAX.as_secs(),
                "some connections are still open: exiting anyway"
            );
        }
    }
}

/// Flushes the traces and the access log.
#[cfg_attr(not(feature = "traces"), expect(clippy::unused_async, reason = "traces are sent"))]
async fn flush_telemetry(server: &Server) {
    #[cfg(feature = "traces")]
    if let Some(traces) = &server.traces {
        traces.flush().await;
    }
    server.access.get().into_iter().for_each(AccessLog::flush);
}

/// Shuts down a standby once the requests that it has forwarded have been answered.
#[cfg(feature = "cluster")]
async fn stop_standing_by(
    server: &Server,
    workers: Option<Workers>,
    sockets: (Listeners, Option<AdminListener>),
    left: Left,
) {
    drop(sockets); // Connections that come from here on are refused, and not left waiting.
    server.close();
    let workers = &mut workers.expect("the workers of a node start before it serves");
    finish(server, workers, &left.ending, || 0).await;
    left.given_up().await;
    flush_telemetry(server).await;
    tracing::info!("stopped while standing by");
}

/// Returns the number of cores, for one worker on each.
fn default_worker_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
