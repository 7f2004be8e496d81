//! The life of a server: startup order, readiness, and shutdown.
//!
//! The server binds its address first and names it in the first log line, so that whoever started
//! the process knows where to connect. Until the journal is recovered, every request but the health
//! check gets 503. Shutdown runs in reverse: report not ready, accept no new connections, finish
//! what is in flight, close the sockets, flush the journal.

mod activation;
mod admin;
pub mod check;
mod descriptors;
mod ending;
mod footprint;
mod listener;
mod memory;
mod reload;
mod start;
mod supervisor;
#[cfg(feature = "traces")]
mod traces;
mod watchdog;
mod worker;

use std::io;
use std::net::TcpListener as StdListener;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::sources::Configuration;
use crate::config::{DataPlace, ServeArgs};
use crate::http;
use crate::http::exchange::{Exchange, Server};
use crate::http::forwarded::TrustedProxies;
use crate::operators::{self, OperatorSocket};
use crate::telemetry::AccessLog;
pub(crate) use ending::ending_signal;
use ending::{DRAIN_TIME_MAX, Ending};
use listener::{AdminListener, Listeners};
use reload::Reloader;
use start::Started;
use supervisor::Supervisor;
use watchdog::Heart;
use worker::Workers;

/// How often idle keys release the memory of their rate limits: the length of the longest window.
const RELEASE_INTERVAL: Duration = Duration::from_mins(1);

/// Serves until a signal ends the process.
pub fn run(configuration: &Configuration) -> anyhow::Result<()> {
    let arguments = &configuration.arguments;
    let passed = activation::passed()?;
    // A separate thread for everything but requests: the venue, the fan-out, signals.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start the background runtime")?;
    // Before anybody can know that the process is there: unless it is watched, SIGHUP kills.
    let hangups = {
        let _entered = runtime.enter();
        signal(SignalKind::hangup()).context("failed to watch SIGHUP")?
    };
    let worker_count = arguments.workers.map_or_else(default_worker_count, usize::from);
    let open_files_max = descriptors::raise();
    let is_bound = passed.public.is_empty();
    let listeners = listen(arguments, passed.public, worker_count)?;
    let supervisor = Arc::new(Supervisor::from_environment());
    supervisor.status("starting");
    for name in &configuration.unknown_variables {
        tracing::warn!(name, "no option has this variable: it sets nothing");
    }
    let connections_max =
        descriptors::connections_max(arguments.connections_max, open_files_max, worker_count)?;
    let admin = listen_for_metrics(arguments, passed.admin)?;
    let server = limited(arguments, connections_max);
    server.log_requests(arguments.access_log).context("failed to start the access log's thread")?;
    #[cfg(feature = "traces")]
    let (server, exporter) = {
        let (traces, exporter) = traces::start(&arguments.traces)?.unzip();
        (server.tracing(traces), exporter)
    };
    let server = Arc::new(server);
    server.cors.set(&arguments.cors_origins);
    http::prepare();
    let heart = Arc::new(Heart::default());
    let hands = listeners.deal(worker_count).context("failed to share the listening sockets")?;
    let start_workers = || Workers::start(hands, &server, &heart);
    // Who comes before the server is ready is told so, or waits in the queue of a socket that
    // somebody keeps for the time between two servers.
    let (mut workers, start_workers) =
        if is_bound { (Some(start_workers()?), None) } else { (None, Some(start_workers)) };
    let ended = runtime.block_on(async {
        #[cfg(feature = "traces")]
        exporter.map(|exporter| tokio::spawn(exporter.run()));
        let Started { exchange, mut venue, snapshots, hours } = start::start(arguments).await?;
        if let Some(admin) = admin {
            tracing::info!("metrics on http://{}/metrics", admin.address);
            let snapshots = snapshots.as_ref().map(|snapshots| snapshots.metrics().clone());
            tokio::spawn(admin::serve(admin.socket, server.clone(), snapshots));
            tokio::spawn(footprint::watch(exchange.clone()));
        }
        tokio::spawn({
            let exchange = exchange.clone();
            async move { exchange.fanout.run().await }
        });
        tokio::spawn(async move { venue.run().await });
        tokio::spawn(release_limiters(exchange.clone()));
        let operators = operators(&arguments.data, &exchange);
        let ending = Ending::watch()?;
        server.open(exchange.clone());
        if let Some(start_workers) = start_workers {
            workers = Some(start_workers()?);
        }
        let mut workers = workers.expect("started before or just now");
        tracing::info!("ready");
        let status = listeners.to_string();
        supervisor.ready(&status);
        let reloads = Reloader::new(configuration).run(
            hangups,
            server.clone(),
            exchange.clone(),
            supervisor.clone(),
            status,
        );
        if let Some(interval) = supervisor::watchdog_interval() {
            watchdog::start(heart.clone(), supervisor.clone(), exchange.clone(), interval)?;
        }
        let name = tokio::select! {
            name = ending.asked() => name,
            () = reloads => "SIGHUP",
        };
        ending.begin(name);
        // From here on connections are refused, or wait for the next server.
        drop(listeners);
        tracing::info!(signal = name, "draining");
        supervisor.stopping("draining: finishing requests and closing sockets");
        drop(operators);
        drain(&server, &mut workers, &exchange, &ending).await;
        if let Some(hours) = hours {
            hours.write();
        }
        // A snapshot in progress is abandoned; the next start takes it.
        drop(snapshots);
        Ok(())
    });
    // Everything is on disk. To drop the runtime would be to wait for whatever a thread still does,
    // such as look up the address of the venue, and nothing would listen to a second signal.
    runtime.shutdown_background();
    ended
}

/// Binds the public address, unless the supervisor has passed sockets for it.
fn listen(
    arguments: &ServeArgs,
    passed: Vec<StdListener>,
    worker_count: usize,
) -> anyhow::Result<Listeners> {
    let is_bound = passed.is_empty();
    let listeners = if is_bound {
        Listeners::bind(arguments.listen, worker_count).with_context(|| {
            format!("failed to listen on {} (--listen chooses another address)", arguments.listen)
        })?
    } else {
        Listeners::of(passed).context("failed to read the address of a passed socket")?
    };
    for address in &listeners.addresses {
        tracing::info!("listening on http://{address}");
    }
    if !is_bound {
        tracing::info!("the supervisor has passed the listening sockets: --listen sets nothing");
    }
    if listeners.addresses.iter().any(|&address| arguments.is_exposed_at(address)) {
        tracing::warn!(
            "other machines can reach this server and it does not speak TLS, so keys and tokens \
             travel in the clear: put a TLS proxy in front of it and name it with --trusted-proxy"
        );
    }
    Ok(listeners)
}

/// Binds the admin address if there is one, unless the supervisor has passed a socket for it.
fn listen_for_metrics(
    arguments: &ServeArgs,
    passed: Option<StdListener>,
) -> anyhow::Result<Option<AdminListener>> {
    let admin = match passed {
        Some(socket) => Some(AdminListener::of(socket).context("failed to read its address")?),
        None => arguments.admin_listen.map(AdminListener::bind).transpose()?,
    };
    if admin.as_ref().is_some_and(|admin| ServeArgs::is_admin_exposed_at(admin.address)) {
        tracing::warn!(
            "other machines can read the metrics: --admin-listen asks for no credential"
        );
    }
    Ok(admin)
}

/// The process as its connections see it, with the limits that the operator has chosen.
fn limited(arguments: &ServeArgs, connections_max: usize) -> Server {
    for proxy in &arguments.trusted_proxies {
        tracing::info!(%proxy, "trusting X-Forwarded-For from a proxy");
    }
    let per_address_max = arguments.connections_per_address(connections_max);
    let server = Server::new(connections_max).capped_by_address(connections_max, per_address_max);
    server.trusting(TrustedProxies::new(&arguments.trusted_proxies))
}

/// Serves operators in the data folder. They are not worth a failed start.
fn operators(data: &DataPlace, exchange: &Arc<Exchange>) -> Option<OperatorSocket> {
    let DataPlace::Folder(data) = data else { return None };
    let serve = || -> io::Result<OperatorSocket> {
        let socket = OperatorSocket::bind(data)?;
        tokio::spawn(operators::serve(&socket, exchange)?);
        Ok(socket)
    };
    match serve() {
        Ok(socket) => {
            tracing::info!(path = %socket.path().display(), "`paperbourse account` is served");
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

/// Periodically releases the memory of idle keys, off the runtime: visiting a million keys takes a
/// while.
async fn release_limiters(exchange: Arc<Exchange>) {
    loop {
        tokio::time::sleep(RELEASE_INTERVAL).await;
        let exchange = exchange.clone();
        let released = tokio::task::spawn_blocking(move || exchange.service.release_limiters());
        released.await.expect("releasing memory does not panic");
    }
}

/// Shuts down in the order that loses nothing.
async fn drain(server: &Server, workers: &mut Workers, exchange: &Exchange, ending: &Ending) {
    server.close();
    let left = || {
        let held_orders = exchange.service.held_orders().count();
        (held_orders, server.connections.count())
    };
    tokio::select! {
        () = workers.drained() => {}
        name = ending.hurried() => {
            let (held_orders, connections) = left();
            tracing::warn!(
                held_orders,
                connections,
                signal = name,
                "second signal: waiting no longer for connections and held orders"
            );
        }
        () = tokio::time::sleep(DRAIN_TIME_MAX) => {
            let (held_orders, connections) = left();
            tracing::warn!(
                held_orders,
                connections,
                after_seconds = DRAIN_TIME_MAX.as_secs(),
                "some connections are still open: exiting anyway"
            );
        }
    }
    exchange.journal.flush_blocking();
    #[cfg(feature = "traces")]
    if let Some(traces) = &server.traces {
        traces.flush().await;
    }
    server.access.get().into_iter().for_each(AccessLog::flush);
    tracing::info!("stopped; everything acknowledged is on disk");
}

/// One worker per core.
fn default_worker_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
