//! Requests that only the owner of a cluster's log can answer, passed on to it by other nodes.
//!
//! Each worker of such a node keeps a link to the owner, and speaks HTTP/2 over it: many requests
//! at a time, flow control, and pings that tell whether the other end is alive come with that.
//! `there` sends requests, `here` answers them. The owner checks and counts everything as if the
//! client had come to it; the node in between reads the body, within the bounds of bodies, and
//! keeps the connection with its deadlines. A request is passed on at most once.

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

/// The client's address. It is read from other nodes only, never from a client.
static CLIENT: HeaderName = HeaderName::from_static("x-paperbourse-client");

/// The client's version of HTTP, if it is 1.0. Between nodes only.
static VERSION: HeaderName = HeaderName::from_static("x-paperbourse-http");

/// The node that has answered, if it is not the one that was asked.
static OWNER: HeaderName = HeaderName::from_static("x-paperbourse-owner");

/// What the client may change the connection to. HTTP/2 has no header for that.
static UPGRADE_TO: HeaderName = HeaderName::from_static("x-paperbourse-upgrade");

/// How many bytes of a stream may be on their way. Of all streams together as many as HTTP/2 can
/// count: a client that reads slowly must not hold up others.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
const LINK_WINDOW_BYTES: u32 = (1 << 31) - 1;

/// How many bytes the headers of a message may take between nodes. HTTP/2 counts 32 more for each
/// header than a client sends.
const HEADER_BYTES_MAX: u32 = 256 * 1024;

/// How often a link pings its other end.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// How long it may take to answer that.
const PING_PATIENCE: Duration = Duration::from_secs(3);

/// How long to wait before the next try to connect to the brokers.
const CONNECT_PAUSE: Duration = Duration::from_secs(1);

/// Which node owns the log of the cluster, as far as this node has read it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Owner {
    /// No node, or it is not known.
    #[default]
    Unknown,
    /// It is not known, and this node cannot find out: it cannot read the log any further.
    Halted,
    /// This node.
    Here {
        /// Since this epoch.
        epoch: u64,
    },
    /// Another node.
    There {
        /// Since this epoch.
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
    /// The server is this node of this cluster. Panics if called twice.
    pub fn join(&self, file: ClusterFile, node: NodeName) {
        assert!(self.cluster.set((file, node)).is_ok(), "a server joins one cluster");
    }

    /// Whether this node owns the log, and serves.
    pub fn is_owner(&self) -> bool {
        matches!(*self.owner.borrow(), Owner::Here { .. })
    }

    fn is_in_cluster(&self) -> bool {
        self.cluster.get().is_some()
    }

    /// Follows the owner. Only after [`Self::join`].
    pub fn set_owner(&self, owner: Owner) {
        self.owner.send_if_modified(|known| std::mem::replace(known, owner) != owner);
    }
}

/// Keeps a link to the owner of the log, or accepts links while this node owns it, until `stop`
/// resolves and the other ends have been told. Requests that come over links keep the worker from
/// draining by a clone of `alive`.
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
        // What was sent on the link may still be answered.
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
