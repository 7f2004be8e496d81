//! Which worker serves a new connection: the one with the fewest.
//!
//! The kernel deals connections out by a hash of their addresses. Among thousands, each worker gets
//! its share; of ten, one worker often gets most and another none. So the worker that accepts a
//! connection hands it to the worker with the fewest, if that is another.
//!
//! Only their number counts, not what they do. Connections that are handed to a hung worker count
//! at once, so it gets no more than its share.

use std::net::{SocketAddr, TcpStream as StdStream};
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::http::connection::ConnectionGuard;

/// The workers, as the one that accepts a connection sees them.
#[derive(Debug)]
pub(super) struct Balancer {
    workers: Vec<Candidate>,
}

#[derive(Debug)]
struct Candidate {
    /// Each of the worker's connections holds a sender of this channel: the number of senders is
    /// that of connections.
    alive: mpsc::WeakSender<()>,
    /// Holds no more connections than may be open.
    handed: mpsc::UnboundedSender<Accepted>,
}

/// What each worker gets of the balancer.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) balancer: Arc<Balancer>,
    /// The worker's number.
    pub(super) index: usize,
    /// One sender for all who accept, and one for each connection.
    pub(super) alive: mpsc::Sender<()>,
    /// Closes with the last of the senders, which ends the worker.
    pub(super) drained: mpsc::Receiver<()>,
    /// The connections that other workers accepted for this one.
    pub(super) handed: mpsc::UnboundedReceiver<Accepted>,
}

/// A connection that another worker serves. As long as it is on its way, that worker does not end.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) stream: StdStream,
    pub(super) peer: SocketAddr,
    pub(super) guard: ConnectionGuard,
    pub(super) alive: mpsc::Sender<()>,
}

impl Balancer {
    /// The seats of this many workers.
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

    /// A place at the worker with the fewest connections; `None` if none has fewer than this one.
    pub(super) fn emptier_than(&self, own: usize) -> Option<Place<'_>> {
        let count = |worker: &Candidate| worker.alive.strong_count();
        let emptiest = self.workers.iter().min_by_key(|worker| count(worker))?;
        if count(emptiest) >= count(&self.workers[own]) {
            return None;
        }
        // Without a sender, the worker has ended.
        let alive = emptiest.alive.upgrade()?;
        Some(Place { at: emptiest, alive })
    }

    /// The numbers of connections, each with one more for the acceptor.
    #[cfg(test)]
    pub(super) fn counts(&self) -> Vec<usize> {
        self.workers.iter().map(|worker| worker.alive.strong_count()).collect()
    }
}

/// A place at another worker, which counts it already.
pub(super) struct Place<'a> {
    at: &'a Candidate,
    alive: mpsc::Sender<()>,
}

impl Place<'_> {
    /// Hands over the connection that takes the place.
    pub(super) fn take(self, stream: StdStream, peer: SocketAddr, guard: ConnectionGuard) {
        let accepted = Accepted { stream, peer, guard, alive: self.alive };
        // That worker does not end while `alive` exists, so it still receives.
        let sent = self.at.handed.send(accepted);
        debug_assert!(sent.is_ok(), "a worker with a connection has not ended");
    }
}
