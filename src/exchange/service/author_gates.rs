//! Orders what authors write in the shards of others against what operators do to the authors.
//!
//! The shard of an order decides about its comments, without the accounts of their authors. So
//! the author's shard decides first, inside the author's gate, and the gate is left once the
//! command is queued in the order's shard. Whoever has suspended the author then waits until nobody
//! is inside, and for what each shard had queued by then.

use tokio::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard};

use paperbourse_core::ids::{AccountId, SHARD_COUNT};

/// One gate for the authors of each shard.
pub(super) struct AuthorGates {
    gates: Box<[RwLock<()>]>,
    turns: Box<[Mutex<()>]>,
}

impl Default for AuthorGates {
    fn default() -> Self {
        Self {
            gates: (0..SHARD_COUNT).map(|_| RwLock::default()).collect(),
            turns: (0..SHARD_COUNT).map(|_| Mutex::default()).collect(),
        }
    }
}

impl AuthorGates {
    /// Waits until no other author of the shard counts what it has written, and takes its place
    /// until this is dropped.
    pub(super) async fn turn(&self, author: AccountId) -> MutexGuard<'_, ()> {
        self.turns[author.shard().index()].lock().await
    }

    /// Enters the author's gate, until this is dropped.
    pub(super) async fn enter(&self, author: AccountId) -> RwLockReadGuard<'_, ()> {
        self.gates[author.shard().index()].read().await
    }

    /// Waits until every command has left that is inside the author's gate now.
    pub(super) async fn left(&self, author: AccountId) {
        drop(self.gates[author.shard().index()].write().await);
    }
}
