//! Forwards requests from the other nodes of a cluster to the owner of the cluster's log, if only
//! the owner can answer them.
//!
//! Each worker of a node that is not the owner keeps a link to the owner and speaks HTTP/2 over it.
//! HTTP/2 provides many requests at a time, flow control, and pings that detect a dead peer.
//! `outbound` sends requests, and `inbound` answers them. The owner checks and counts everything as
//! if the client had connected to it. The forwarding node reads the body, within the limits on
//! bodies, and keeps the client's connection with its deadlines. A request is forwarded at most
//! once.

mod inbound;
mod outbound;
mod socket;

use std::future::pending;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::header::HeaderName;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use super::app::Worker;
pub use outbound::{ToOwner, handle_anywhere};
use paperbourse_cluster::ClusterFile;
use paperbourse_cluster::link::Links;
use paperbourse_store::journal::replicated::NodeName;

/// Header with the client's address. It is accepted only from other nodes, never from a client.
static CLIENT: HeaderName = HeaderName::from_static("x-paperbourse-client");

/// Header with the client's HTTP version, if it is 1.0. Used only between nodes.
static VERSION: HeaderName = HeaderName::from_static("x-paperbourse-http");

/// Header with the name of the node that answered, if that is not the node that was asked.
static OWNER: HeaderName = HeaderName::from_static("x-paperbourse-owner");

/// Header with the protocol that the client may upgrade to, because HTTP/2 has no header for that.
static UPGRADE_TO: HeaderName = HeaderName::from_static("x-paperbourse-upgrade");

/// Flow-control window of one stream, in bytes. The window of a link is the largest that HTTP/2
/// allows, so that a client that reads slowly does not hold up others.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
const LINK_WINDOW_BYTES: u32 = (1 << 31) - 1;

/// Maximum size of the headers of a message between nodes, in bytes. HTTP/2 counts 32 bytes per
/// header on top of what a client sends.
const HEADER_BYTES_MAX: u32 = 256 * 1024;

/// Interval between pings on a link.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum time for the other end to answer a ping.
const PING_PATIENCE: Duration = Duration::from_secs(3);

/// Pause before the next attempt to connect to the brokers.
const CONNECT_PAUSE: Duration = Duration::from_secs(1);

/// The owner of the cluster's log, as far as this node has read the log.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Owner {
    /// No node owns the log, or its owner is not known.
    #[default]
    Unknown,
    /// The owner is unknown and cannot be found, because this node cannot read the log any further.
    Halted,
    /// This node.
    Here {
        /// The epoch since which this node owns the log.
        epoch: u64,
    },
    /// Another node.
    There {
        /// The epoch since which that node owns the log.
        epoch: u64,
    },
}

/// The place of a server in its cluster, if it is in one.
#[derive(Default)]
pub struct ClusterPlace {
    cluster: OnceLock<(ClusterFile, NodeName)>,
    owner: watch::Sender<Owner>,
}

impl ClusterPlace {
    /// Records which cluster the server belongs to, and as which node. Panics if called twice.
    pub fn join(&self, file: ClusterFile, node: NodeName) {
        assert!(self.cluster.set((file, node)).is_ok(), "a server joins one cluster");
    }

    /// Whether this node owns the log and serves.
    pub fn is_owner(&self) -> bool {
        matches!(*self.owner.borrow(), Owner::Here { .. })
    }

    fn is_in_cluster(&self) -> bool {
        self.cluster.get().is_some()
    }

    /// Sets the owner. Call [`Self::join`] first.
    pub fn set_owner(&self, owner: Owner) {
        self.owner.send_if_modified(|known| std::mem::replace(known, owner) != owner);
    }
}

/// Keeps a link to the owner of the log or, while this node is the owner, accepts links. Returns
/// once `stop` has resolved and all links have ended. Requests received over links hold a clone of
/// `alive`, which keeps the worker from finishing its drain.
pub async fn run(
    worker: Arc<Worker>,
    alive: mpsc::WeakSender<()>,
    stop: impl Future<Output = ()> + Send,
) {
    let (link_alive, mut links_ended) = mpsc::channel(1);
    tokio::select! {
        () = follow_owner(&worker, &alive, link_alive) => {}
        () = stop => {}
    }
    worker.to_owner.clear();
    // Nothing is ever sent; the channel closes with the last link.
    links_ended.recv().await;
}

async fn follow_owner(
    worker: &Arc<Worker>,
    alive: &mpsc::WeakSender<()>,
    link_alive: mpsc::Sender<()>,
) {
    let place = &worker.server.place;
    let mut owner = place.owner.subscribe();
    let is_known = |owner: &Owner| !matches!(owner, Owner::Unknown | Owner::Halted);
    if owner.wait_for(is_known).await.is_err() {
        return;
    }
    let (file, node) = place.cluster.get().expect("a server joins before it knows an owner");
    let links = connect(file, link_alive).await;
    loop {
        let now = *owner.borrow_and_update();
        let serving = async {
            match now {
                Owner::Unknown | Owner::Halted => pending().await,
                Owner::Here { epoch } => inbound::accept(worker, node, &links, epoch, alive).await,
                Owner::There { epoch } => outbound::keep_link(worker, &links, epoch).await,
            }
        };
        tokio::select! {
            () = serving => {}
            changed = owner.changed() => changed.expect("the server has the sender"),
        }
        // Requests already sent on the link may still be answered.
        worker.to_owner.clear();
    }
}

async fn connect(file: &ClusterFile, alive: mpsc::Sender<()>) -> Links {
    loop {
        match Links::connect(file, alive.clone()).await {
            Ok(links) => return links,
            // The task that copies the log reports silent brokers.
            Err(error) => tracing::debug!(%error, "no connection for links"),
        }
        sleep(CONNECT_PAUSE).await;
    }
}

#[cfg(test)]
mod tests;
