//! The worker threads that serve requests, each with its own runtime and listener.

mod balancer;

use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
#[cfg(feature = "cluster")]
use tokio::sync::oneshot;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
#[cfg(feature = "cluster")]
use tokio::task::JoinHandle;

use super::watchdog::Heart;
use crate::http::app::{ConnectionSlot, Server, Worker};
use crate::http::connection::{
    ConnectionError, ConnectionGuard, Deadlines, Ending, REFUSAL, serve_connection,
};
#[cfg(feature = "cluster")]
use crate::http::forward::{self, handle_anywhere as handle};
#[cfg(not(feature = "cluster"))]
use crate::http::handle::handle;
use crate::limits::bucket::{BucketRule, TokenBucket};
use balancer::{Accepted, Balancer, Seat};

/// Pause after a failed accept, most likely for lack of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Maximum number of queued connections that a worker accepts when it stops: as many as a listening
/// socket usually queues.
const ACCEPTED_AT_LAST_MAX: usize = 4096;

#[derive(Debug)]
pub(super) struct Workers {
    /// A channel that closes when the last worker has drained.
    drained: mpsc::Receiver<()>,
}

impl Workers {
    /// Starts one worker for each list of sockets. The workers share `connections`, which another
    /// process has accepted.
    pub(super) fn start(
        sockets: Vec<Vec<StdListener>>,
        connections: Vec<StdStream>,
        server: &Arc<Server>,
        heart: &Heart,
    ) -> anyhow::Result<Self> {
        let seats = Balancer::seats(sockets.len());
        Self::seated(seats, sockets, connections, server, heart)
    }

    fn seated(
        seats: Vec<Seat>,
        sockets: Vec<Vec<StdListener>>,
        connections: Vec<StdStream>,
        server: &Arc<Server>,
        heart: &Heart,
    ) -> anyhow::Result<Self> {
        let (alive, drained) = mpsc::channel(1);
        let mut shares: Vec<Vec<StdStream>> = sockets.iter().map(|_| Vec::new()).collect();
        for (index, connection) in connections.into_iter().enumerate() {
            let worker_count = shares.len();
            shares[index % worker_count].push(connection);
        }
        for ((sockets, connections), seat) in sockets.into_iter().zip(shares).zip(seats) {
            let worker = Arc::new(Worker::new(server.clone()));
            let alive = alive.clone();
            let name = format!("worker-{}", seat.index);
            let answering = heart.answer(&name);
            std::thread::Builder::new()
                .name(name)
                .spawn(move || run(sockets, connections, &worker, seat, answering, alive))
                .context("failed to start a worker thread")?;
        }
        Ok(Self { drained })
    }

    /// Resolves when every connection of every worker has ended.
    pub(super) async fn drained(&mut self) {
        // Nothing is ever sent; the channel closes with its last sender.
        while self.drained.recv().await.is_some() {}
    }
}

fn run(
    sockets: Vec<StdListener>,
    connections: Vec<StdStream>,
    worker: &Arc<Worker>,
    seat: Seat,
    answering: impl Future<Output = ()> + Send + 'static,
    alive: mpsc::Sender<()>,
) {
    let Seat { balancer, index, alive: connection_alive, mut drained, handed } = seat;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park({
            let worker = worker.clone();
            move || worker.before_sleep()
        })
        .build()
        .expect("a runtime of one thread needs an epoll instance and a waker");
    runtime.block_on(async {
        let answering = tokio::spawn(answering);
        let door = Door { worker: worker.clone(), balancer, index, alive: connection_alive };
        for connection in connections {
            // The connection may have closed meanwhile.
            let welcomed = TcpStream::from_std(connection)
                .and_then(|stream| stream.peer_addr().map(|peer| (stream, peer)));
            if let Ok((stream, peer)) = welcomed {
                door.welcome_here(stream, peer);
            }
        }
        tokio::spawn(receive(handed, worker.clone()));
        let door = Arc::new(door);
        for socket in sockets {
            let listener = TcpListener::from_std(socket).expect("our own listening socket");
            tokio::spawn(accept(listener, door.clone()));
        }
        #[cfg(feature = "cluster")]
        let (stop_forwarding, forwarding) = spawn_forwarding(worker, door.alive.downgrade());
        // The acceptors have their own references. This one would keep the channel open.
        drop(door);
        // The channel closes when the last connection and the acceptors have dropped their senders.
        while drained.recv().await.is_some() {}
        #[cfg(feature = "cluster")]
        {
            // No connection needs the forwarding links any more.
            drop(stop_forwarding);
            let _ = forwarding.await;
        }
        // Leave the watchdog first, since dropping the runtime may take long: it finishes a shard's
        // turn, and other workers may keep queueing work for that shard.
        answering.abort();
        let _ = answering.await;
        drop(alive);
    });
}

/// Starts forwarding requests to the cluster node that can answer them. Stops once the returned
/// sender is dropped.
#[cfg(feature = "cluster")]
fn spawn_forwarding(
    worker: &Arc<Worker>,
    alive: mpsc::WeakSender<()>,
) -> (oneshot::Sender<()>, JoinHandle<()>) {
    let (stop, stopped) = oneshot::channel();
    let stopped = async move { drop(stopped.await) };
    (stop, tokio::spawn(forward::run(worker.clone(), alive, stopped)))
}

/// Accepts connections until shutdown begins.
async fn accept(listener: TcpListener, door: Arc<Door>) {
    let server = &door.worker.server;
    let mut shutdown = server.shutdown();
    let mut pace = Pace::new(BucketRule::ACCEPTS);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = shutdown.wait_for(|is_closing| *is_closing) => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                door.welcome(stream, peer);
                pace.give_way().await;
            }
            Err(error) => {
                if let Some(unlogged) = server.lines.failed.pass(Instant::now()) {
                    tracing::warn!(%error, unlogged, "failed to accept a connection");
                }
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
    // After a hand-over, the successor accepts the queued connections of its shared sockets
    // instead.
    if server.ending() == Ending::Graceful {
        accept_rest(listener, &door);
    }
}

/// Accepts the queued connections, which closing the socket would reset.
fn accept_rest(listener: TcpListener, door: &Door) {
    let Ok(listener) = listener.into_std() else { return };
    for _ in 0..ACCEPTED_AT_LAST_MAX {
        let Ok((stream, peer)) = listener.accept() else { return };
        let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
        if let Ok(stream) = stream {
            door.welcome_here(stream, peer);
        }
    }
}

/// Serves the connections that other workers accepted for this one, as long as the worker runs.
async fn receive(mut handed: mpsc::UnboundedReceiver<Accepted>, worker: Arc<Worker>) {
    let shutdown = worker.server.shutdown();
    let mut pace = Pace::new(BucketRule::ACCEPTS);
    while let Some(Accepted { stream, peer, guard, alive }) = handed.recv().await {
        match TcpStream::from_std(stream) {
            Ok(stream) => {
                tokio::spawn(serve(stream, peer, worker.clone(), guard, alive));
            }
            Err(error) => tracing::debug!("the connection from {peer} was not served: {error}"),
        }
        // Do not delay queued connections during shutdown: they have little time left.
        if !*shutdown.borrow() {
            pace.give_way().await;
        }
    }
}

/// A limit on the rate of new connections.
struct Pace {
    bucket: TokenBucket,
    began: tokio::time::Instant,
}

impl Pace {
    fn new(rule: BucketRule) -> Self {
        Self { bucket: TokenBucket::new(rule), began: tokio::time::Instant::now() }
    }

    /// Yields to open connections, and waits until the rate allows another new connection. Beyond
    /// the rate, new connections queue in the kernel or in the channel between workers.
    async fn give_way(&mut self) {
        tokio::task::yield_now().await;
        self.wait().await;
    }

    /// Waits until the rate allows the next connection.
    async fn wait(&mut self) {
        loop {
            let elapsed_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let draw = self.bucket.draw(elapsed_ns);
            if draw.is_admitted {
                return;
            }
            tokio::time::sleep(Duration::from_nanos(draw.wait_ns)).await;
        }
    }
}

/// The entry point for a worker's connections.
struct Door {
    worker: Arc<Worker>,
    balancer: Arc<Balancer>,
    /// The index of the worker.
    index: usize,
    /// The worker runs until all clones of this sender are dropped.
    alive: mpsc::Sender<()>,
}

impl Door {
    /// Passes a connection to the worker with the fewest connections.
    fn welcome(&self, stream: TcpStream, peer: SocketAddr) {
        let Some((stream, guard)) = self.admit(stream, peer) else { return };
        let Some(place) = self.balancer.emptier_than(self.index) else {
            self.serve(stream, peer, guard);
            return;
        };
        match stream.into_std() {
            Ok(stream) => place.take(stream, peer, guard),
            Err(error) => tracing::debug!("the connection from {peer} was not served: {error}"),
        }
    }

    /// Serves a connection on this worker without balancing: the connection was already assigned to
    /// this worker, or the other workers may have ended.
    fn welcome_here(&self, stream: TcpStream, peer: SocketAddr) {
        if let Some((stream, guard)) = self.admit(stream, peer) {
            self.serve(stream, peer, guard);
        }
    }

    fn serve(&self, stream: TcpStream, peer: SocketAddr, guard: ConnectionGuard) {
        tokio::spawn(serve(stream, peer, self.worker.clone(), guard, self.alive.clone()));
    }

    /// Admits a connection and takes a slot for it, or refuses it.
    fn admit(&self, stream: TcpStream, peer: SocketAddr) -> Option<(TcpStream, ConnectionGuard)> {
        let Worker { server, metrics, .. } = &*self.worker;
        match server.admit(peer.ip()) {
            Ok(guard) => Some((stream, guard)),
            Err(reason) => {
                metrics.connections_refused.increment();
                if let Some(unlogged) = server.lines.refused.pass(Instant::now()) {
                    tracing::warn!(%peer, %reason, unlogged, "refused a connection");
                }
                // If too many refusals are in progress, the connection is closed without an answer.
                if let Ok(permit) = server.refusals.clone().try_acquire_owned() {
                    tokio::spawn(refuse(stream, permit));
                }
                None
            }
        }
    }
}

async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    worker: Arc<Worker>,
    guard: ConnectionGuard,
    alive: mpsc::Sender<()>,
) {
    // Responses are small and should leave at once.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!("a connection ended early: {error}");
        return;
    }
    let slot = Arc::new(ConnectionSlot::new(guard, alive));
    let mut shutdown = worker.server.shutdown();
    let ending = async {
        tokio::select! {
            // If the sender is gone, the server has shut down as well.
            _ = shutdown.wait_for(|is_closing| *is_closing) => worker.server.ending(),
            () = slot.dismissed() => Ending::Abrupt,
        }
    };
    let handler = |request| handle(&worker, &slot, peer.ip(), request);
    let is_hot = worker.server.hot();
    match serve_connection(stream, Deadlines::default(), is_hot, handler, ending).await {
        Ok(None) => {}
        Ok(Some(at_rest)) => match at_rest.into_std() {
            Ok(stream) => worker.server.keep_at_rest(stream),
            Err(error) => tracing::debug!("the connection from {peer} was not kept: {error}"),
        },
        Err(error) => {
            if let ConnectionError::CutOff = error
                && let Some(app) = worker.server.app()
            {
                app.streams_cut_off.fetch_add(1, Ordering::Relaxed);
            }
            tracing::debug!("the connection from {peer} ended: {error}");
        }
    }
}

/// Sends the refusal to a connection beyond the limit, unless that takes longer than a second.
async fn refuse(mut stream: TcpStream, _permit: OwnedSemaphorePermit) {
    let sent = tokio::time::timeout(Duration::from_secs(1), async {
        stream.write_all(REFUSAL).await?;
        stream.shutdown().await
    });
    if !matches!(sent.await, Ok(Ok(()))) {
        tracing::debug!("a refused connection closed before the refusal was sent");
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::io::{Read as _, Write as _};
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver as StdReceiver, Sender as StdSender, channel};

    use mpsc::error::TryRecvError;

    use super::*;
    use crate::server::listener::Listeners;

    /// Reports on drop whether the worker had drained by then.
    struct Answering {
        drained: Mutex<mpsc::Receiver<()>>,
        said: StdSender<bool>,
    }

    impl Drop for Answering {
        fn drop(&mut self) {
            let drained = self.drained.get_mut().unwrap().try_recv();
            self.said.send(drained == Err(TryRecvError::Disconnected)).unwrap();
        }
    }

    /// Dropping the worker's runtime may take long, since it runs the shard work that other workers
    /// have queued.
    #[test]
    fn the_watchdog_forgets_a_worker_before_it_has_drained() {
        let worker = Arc::new(Worker::new(Arc::new(Server::new(1))));
        let (alive, drained) = mpsc::channel(1);
        let (said, was_drained): (_, StdReceiver<bool>) = channel();
        let answering = Answering { drained: Mutex::new(drained), said };
        let answering = async move {
            let _answering = answering;
            pending::<()>().await;
        };
        let seat = Balancer::seats(1).remove(0);
        run(Vec::new(), Vec::new(), &worker, seat, answering, alive);
        assert!(!was_drained.recv().unwrap());
    }

    /// Starts three workers on one port. Also returns their balancer, which counts the connections.
    fn serving(server: &Arc<Server>) -> (SocketAddr, Arc<Balancer>, Workers) {
        let listeners = Listeners::bind("127.0.0.1:0".parse().unwrap(), 3).unwrap();
        let seats = Balancer::seats(3);
        let balancer = seats[0].balancer.clone();
        let sockets = listeners.deal(3).unwrap();
        let workers = Workers::seated(seats, sockets, Vec::new(), server, &Heart::default());
        (listeners.addresses[0], balancer, workers.unwrap())
    }

    /// Opens a connection, and waits until its worker has answered a request.
    fn connect(address: SocketAddr) -> StdStream {
        let mut stream = StdStream::connect(address).unwrap();
        stream.write_all(b"GET /v1/health/live HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        stream
    }

    #[test]
    fn all_workers_have_equally_many_connections() {
        let server = Arc::new(Server::new(100));
        let (address, balancer, _workers) = serving(&server);
        let accepting = 1;
        let mut streams: Vec<StdStream> = Vec::new();
        for count in 1..=30 {
            streams.push(connect(address));
            let counts = balancer.counts();
            let most = accepting + usize::div_ceil(count, 3);
            assert!(counts.iter().all(|&it| it == most || it + 1 == most), "{counts:?}");
        }
        // The worker that loses the most connections gets the most new ones.
        let mut numbers = 0..;
        streams.retain(|_| numbers.next().is_some_and(|number| number % 3 > 0));
        while balancer.counts().iter().sum::<usize>() > 3 * accepting + 20 {
            std::thread::yield_now();
        }
        streams.extend((0..10).map(|_| connect(address)));
        assert_eq!(balancer.counts(), [accepting + 10; 3]);
    }

    /// Connections accepted by another worker are drained like all others.
    #[test]
    fn workers_drain_what_they_got_from_others() {
        let server = Arc::new(Server::new(100));
        let (address, _balancer, mut workers) = serving(&server);
        let streams: Vec<StdStream> = (0..30).map(|_| connect(address)).collect();
        server.close();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(workers.drained());
        for mut stream in streams {
            stream.read_to_end(&mut Vec::new()).unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_of_connections_is_accepted_at_once_and_the_rest_at_the_rate() {
        let mut pace = Pace::new(BucketRule::ACCEPTS);
        let began = tokio::time::Instant::now();
        for (count, expected_ms) in [(1_000, 0), (2_000, 1_000), (1_000, 1_500)] {
            for _ in 0..count {
                pace.wait().await;
            }
            let elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap();
            // A timer is up to a millisecond late.
            assert!((expected_ms..=expected_ms + 2).contains(&elapsed_ms), "{count}: {elapsed_ms}");
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        let idle = began.elapsed();
        for _ in 0..1_000 {
            pace.wait().await;
        }
        assert_eq!(began.elapsed(), idle, "a pause makes room for another burst");
    }
}
