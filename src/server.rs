//! The life of a server: startup order, readiness, and shutdown.
//!
//! The server binds its address first and names it in the first log line, so that whoever started
//! the process knows where to connect. Until the journal is recovered, every request but the health
//! check gets 503. Shutdown runs in reverse: report not ready, accept no new connections, finish
//! what is in flight, close the sockets, flush the journal.

mod admin;
pub mod check;
mod descriptors;
mod footprint;
mod listener;
mod memory;
mod reload;
mod start;
mod supervisor;
#[cfg(feature = "traces")]
mod traces;
mod worker;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::DataPlace;
use crate::config::sources::Configuration;
use crate::http;
use crate::http::exchange::{Exchange, Server};
use crate::http::forwarded::TrustedProxies;
use crate::market::catalogue::TAKER_DELAY_MS_MAX;
use crate::operators::{self, OperatorSocket};
use crate::telemetry::AccessLog;
use reload::Reloader;
use start::Started;
use supervisor::Supervisor;
use worker::Workers;

/// How long requests in flight may take to finish after the signal, in seconds: the longest delay
/// of the venue, and five more.
const DRAIN_SECONDS_MAX: u64 = TAKER_DELAY_MS_MAX.div_ceil(1_000) as u64 + 5;

/// How often idle keys release the memory of their rate limits: the length of the longest window.
const RELEASE_INTERVAL: Duration = Duration::from_mins(1);

/// Serves until a signal ends the process.
pub fn run(configuration: &Configuration) -> anyhow::Result<()> {
    let arguments = &configuration.arguments;
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
    let listeners = listener::bind(arguments.listen, worker_count).with_context(|| {
        format!("failed to listen on {} (--listen chooses another address)", arguments.listen)
    })?;
    tracing::info!("listening on http://{}", listeners.address);
    let supervisor = Arc::new(Supervisor::from_environment());
    supervisor.status("starting");
    for name in &configuration.unknown_variables {
        tracing::warn!(name, "no option has this variable: it sets nothing");
    }
    if arguments.is_exposed() {
        tracing::warn!(
            "other machines can reach this server and it does not speak TLS, so keys and tokens \
             travel in the clear: put a TLS proxy in front of it and name it with --trusted-proxy"
        );
    }
    if arguments.is_admin_exposed() {
        tracing::warn!(
            "other machines can read the metrics: --admin-listen asks for no credential"
        );
    }
    let connections_max =
        descriptors::connections_max(arguments.connections_max, open_files_max, worker_count)?;
    for proxy in &arguments.trusted_proxies {
        tracing::info!(%proxy, "trusting X-Forwarded-For from a proxy");
    }
    let admin = arguments.admin_listen.map(listener::bind_admin).transpose()?;

    let proxies = TrustedProxies::new(&arguments.trusted_proxies);
    let per_address_max = arguments.connections_per_address(connections_max);
    let server = Server::new(connections_max).capped_by_address(connections_max, per_address_max);
    let server = server.trusting(proxies);
    server.log_requests(arguments.access_log).context("failed to start the access log's thread")?;
    #[cfg(feature = "traces")]
    let (server, exporter) = {
        let (traces, exporter) = traces::start(&arguments.traces)?.unzip();
        (server.tracing(traces), exporter)
    };
    let server = Arc::new(server);
    server.cors.set(&arguments.cors_origins);
    http::prepare();
    let mut workers = Workers::start(listeners.sockets, &server)?;
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
        let ending = ending_signal()?;
        server.open(exchange.clone());
        tracing::info!("ready");
        let status = format!("serving on http://{}", listeners.address);
        supervisor.ready(&status);
        let reloads = Reloader::new(configuration).run(
            hangups,
            server.clone(),
            exchange.clone(),
            supervisor.clone(),
            status,
        );
        let name = tokio::select! {
            name = ending => name,
            () = reloads => "SIGHUP",
        };
        tracing::info!(signal = name, "draining");
        supervisor.stopping("draining: finishing requests and closing sockets");
        drop(operators);
        drain(&server, &mut workers, &exchange).await;
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

/// Shuts down in the order that loses nothing. A second signal exits at once.
async fn drain(server: &Server, workers: &mut Workers, exchange: &Exchange) {
    if let Ok(again) = ending_signal() {
        tokio::spawn(async move {
            let name = again.await;
            tracing::warn!(signal = name, "second signal: exiting at once");
            std::process::exit(1);
        });
    }
    server.close();
    let deadline = Duration::from_secs(DRAIN_SECONDS_MAX);
    if tokio::time::timeout(deadline, workers.drained()).await.is_err() {
        tracing::warn!(
            held_orders = exchange.service.held_orders().count(),
            after_seconds = DRAIN_SECONDS_MAX,
            "some connections are still open: exiting anyway"
        );
    }
    exchange.journal.flush_blocking();
    #[cfg(feature = "traces")]
    if let Some(traces) = &server.traces {
        traces.flush().await;
    }
    server.access.get().into_iter().for_each(AccessLog::flush);
    tracing::info!("stopped; everything acknowledged is on disk");
}

/// Resolves to the name of the signal that ends the process.
pub(crate) fn ending_signal() -> anyhow::Result<impl Future<Output = &'static str> + use<>> {
    let mut terminate = signal(SignalKind::terminate()).context("failed to watch SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("failed to watch SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    })
}

/// One worker per core.
fn default_worker_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
