//! Clients of the execution socket on one thread, which record the arrival of fills.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tokio::task::LocalSet;

use crate::price_readers::OPEN_SECONDS_MAX;
use crate::socket::Socket;

const PATH: &str = "/v1/ws/executions";

/// A fill that a socket received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// The index of the socket.
    pub(crate) socket: usize,
    /// The time at which it was read, in nanoseconds since 1970.
    pub(crate) at_ns: u64,
}

/// Open sockets, one for each key.
pub(crate) struct Followers {
    arrivals: Receiver<Arrival>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Followers {
    /// Opens the sockets.
    pub(crate) fn open(address: SocketAddr, keys: Vec<String>) -> anyhow::Result<Self> {
        let (arrived, arrivals) = channel();
        let (opened, is_open) = channel();
        let thread = std::thread::spawn(move || follow(address, &keys, &arrived, &opened));
        let mut followers = Self { arrivals, thread: Some(thread) };
        if is_open.recv_timeout(Duration::from_secs(OPEN_SECONDS_MAX)).is_err() {
            followers.ensure_open()?;
            bail!("not all sockets were open after {OPEN_SECONDS_MAX} s");
        }
        Ok(followers)
    }

    /// Waits for the next `count` fills. Fails if they take longer than `patience`.
    pub(crate) fn take(&self, count: usize, patience: Duration) -> anyhow::Result<Vec<Arrival>> {
        let deadline = Instant::now() + patience;
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            let left = deadline.saturating_duration_since(Instant::now());
            let arrival = self.arrivals.recv_timeout(left);
            taken.push(arrival.with_context(|| format!("{} of {count} fills", taken.len()))?);
        }
        Ok(taken)
    }

    /// Fails if a socket has ended or an unexpected fill has arrived.
    pub(crate) fn ensure_quiet(&mut self) -> anyhow::Result<()> {
        self.ensure_open()?;
        ensure!(self.arrivals.try_recv().is_err(), "more fills than expected");
        Ok(())
    }

    fn ensure_open(&mut self) -> anyhow::Result<()> {
        if let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) {
            thread.join().expect("the thread of the sockets does not panic")?;
            bail!("the sockets ended");
        }
        Ok(())
    }
}

/// Runs until the first socket ends, and returns its error.
fn follow(
    address: SocketAddr,
    keys: &[String],
    arrived: &Sender<Arrival>,
    opened: &Sender<()>,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let (ended, mut ends) = tokio::sync::mpsc::channel(1);
        for (number, key) in keys.iter().enumerate() {
            let socket = Socket::open(address, PATH, key).await;
            let socket = socket.with_context(|| format!("socket {number} of {}", keys.len()))?;
            let (ended, arrived) = (ended.clone(), arrived.clone());
            tokio::task::spawn_local(async move {
                let note = |text: &[u8], _, at_ns| {
                    if text.starts_with(b"{\"type\":\"fill\"") {
                        // The receiver is gone at the end of the measurement.
                        let _ = arrived.send(Arrival { socket: number, at_ns });
                    }
                };
                let Err(error) = socket.receive(None, note).await;
                // Only the first end is reported.
                let _ = ended.try_send(error);
            });
        }
        // The opener may have given up waiting.
        let _ = opened.send(());
        let error = ends.recv().await.context("there is no socket")?;
        Err(error.context("an execution socket ended"))
    })
}
