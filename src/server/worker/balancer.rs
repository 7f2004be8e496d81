//! Balances new connections: the worker with the fewest connections serves the next one.
//!
//! The kernel distributes connections by a hash of their addresses. With thousands of connections,
//! each worker gets its share; with ten, one worker often gets most of them and another none. So a
//! worker that accepts a connection hands it to the worker with the fewest connections, unless it
//! has the fewest itself.
//!
//! Only the number of connections counts, not their activity. Connections handed to a hung worker
//! count immediately, so it gets no more than its share.

use std::net::{SocketAddr, TcpStream as StdStream};
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::http::connection::ConnectionGuard;

/// All workers, as seen by the one that accepts a connection.
#[derive(Debug)]
pub(super) struct Balancer {
    workers: Vec<Candidate>,
}

#[derive(Debug)]
struct Candidate {
    /// Each of the worker's connections holds a sender of this channel, so the number of senders is
    /// the number of connections.
    alive: mpsc::WeakSender<()>,
    /// Unbounded, but never holds more than the maximum number of open connections.
    handed: mpsc::UnboundedSender<Accepted>,
}

/// A worker's ends of the balancer's channels.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) balancer: Arc<Balancer>,
    /// The worker's number.
    pub(super) index: usize,
    /// One sender for all acceptors, and one for each connection.
    pub(super) alive: mpsc::Sender<()>,
    /// Closes when the last sender is dropped, which ends the worker.
    pub(super) drained: mpsc::Receiver<()>,
    /// The connections that other workers accepted for this one.
    pub(super) handed: mpsc::UnboundedReceiver<Accepted>,
}

/// A connection accepted for another worker. That worker does not end before it has received the
/// connection.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) stream: StdStream,
    pub(super) peer: SocketAddr,
    pub(super) guard: ConnectionGuard,
    pub(super) alive: mpsc::Sender<()>,
}

impl Balancer {
    /// Creates the seats for this many workers.
    pub(super) fn seats(worker_count: usize) -> Vec<Seat> {
        let mut workers = Vec::new();
        let mut ends = Vec::new();
        for _ in 0..worker_count {
            let (alive, drained) = mpsc::channel(1);
            let (sender, handed) = mpsc::unbounded_channel();
            workers.push(Candidate { alive: alive.downgrade(), handed: sender });
            ends.push((alive, drained, handed));
        }
        let balancer = Arc::new(Self { workers });
        let seat = |(index, (alive, drained, handed))| Seat {
            balancer: balancer.clone(),
            index,
            alive,
            drained,
            handed,
        };
        ends.into_iter().enumerate().map(seat).collect()
    }

    /// Reserves a place at the worker with the fewest connections; `None` if no worker has fewer
    /// than this one.
    pub(super) fn emptier_than(&self, own: usize) -> Option<Place<'_>> {
        let count = |worker: &Candidate| worker.alive.strong_count();
        let emptiest = self.workers.iter().min_by_key(|worker| count(worker))?;
        if count(emptiest) >= count(&self.workers[own]) {
            return None;
        }
        // Without a sender, the worker has ended and must get no connection.
        let alive = emptiest.alive.upgrade()?;
        Some(Place { at: emptiest, alive })
    }

    /// Returns each worker's number of connections, plus one for the acceptor.
    #[cfg(test)]
    pub(super) fn counts(&self) -> Vec<usize> {
        self.workers.iter().map(|worker| worker.alive.strong_count()).collect()
    }
}

/// A reserved place at another worker, which already counts the connection.
pub(super) struct Place<'a> {
    at: &'a Candidate,
    alive: mpsc::Sender<()>,
}

impl Place<'_> {
    /// Hands the connection to the worker with the reserved place.
    pub(super) fn take(self, stream: StdStream, peer: SocketAddr, guard: ConnectionGuard) {
        let accepted = Accepted { stream, peer, guard, alive: self.alive };
        // The worker cannot end while `alive` exists, so its receiver is still open.
        let sent = self.at.handed.send(accepted);
        debug_assert!(sent.is_ok(), "a worker with a connection has not ended");
    }
}
