//! The place that a connection takes.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::mpsc;

use crate::http::connection::ConnectionGuard;
use crate::ws::turns::Place;
use paperbourse_exchange::auth::last_key::LastKey;

/// The slot of one connection. It counts towards the limit, and a draining process waits until it
/// is dropped. An upgraded connection keeps its slot.
pub struct ConnectionSlot {
    guard: ConnectionGuard,
    has_sent_request: AtomicBool,
    last_key: LastKey,
    /// The connection's place in its worker's queue of clients that pipeline requests.
    pub(super) place: OnceLock<Arc<Place>>,
    /// A draining worker waits until all of its connections have dropped their senders.
    _alive: mpsc::Sender<()>,
}

impl ConnectionSlot {
    /// Creates the slot of an accepted connection. `alive` is a sender of the channel that a
    /// draining worker waits on; each of the worker's connections holds one.
    pub fn new(guard: ConnectionGuard, alive: mpsc::Sender<()>) -> Self {
        let has_sent_request = AtomicBool::new(false);
        let last_key = LastKey::default();
        Self { guard, has_sent_request, last_key, place: OnceLock::new(), _alive: alive }
    }

    /// Records a request. Returns whether it is the connection's first.
    pub fn note_request(&self, now_ns: u64) -> bool {
        self.guard.note_request(now_ns);
        let is_first = !self.has_sent_request.load(Ordering::Relaxed);
        if is_first {
            self.has_sent_request.store(true, Ordering::Relaxed);
        }
        is_first
    }

    /// Returns the key that the connection presented last.
    pub(in crate::http) fn last_key(&self) -> &LastKey {
        &self.last_key
    }

    /// Records that a valid credential was presented. The slot is then never given to another
    /// connection.
    pub fn recognize(&self) {
        self.guard.recognize();
    }

    /// Whether the connection has presented a valid credential.
    #[cfg(feature = "cluster")]
    pub(in crate::http) fn is_recognized(&self) -> bool {
        self.guard.is_recognized()
    }

    /// Ends the connection at once, without an answer to the request in flight.
    pub(in crate::http) async fn cut(&self) -> ! {
        self.guard.cut();
        pending().await
    }

    /// Resolves when the slot has been given to another connection, or was cut.
    pub async fn dismissed(&self) {
        self.guard.dismissed().await;
    }
}
