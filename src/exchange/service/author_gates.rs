//! Keeps authors' comments in order with operators' acts on those authors.
//!
//! A comment is decided by the shard of its order, which cannot see the author's account. So the
//! author's shard checks the account first. The command holds the author's gate from before that
//! check until it is queued in the order's shard. After suspending an author, an operator waits for
//! the gate to empty, and then for every shard to work off what it had queued by that point.

use tokio::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard};

use paperbourse_core::ids::{AccountId, SHARD_COUNT};

/// One gate per shard, for the authors in it.
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
    /// Waits for the author's turn to have its comments counted. Only one author of a shard has a
    /// turn at a time. The turn lasts until the guard is dropped.
    pub(super) async fn turn(&self, author: AccountId) -> MutexGuard<'_, ()> {
        self.turns[author.shard().index()].lock().await
    }

    /// Enters the author's gate. Dropping the guard leaves it.
    pub(super) async fn enter(&self, author: AccountId) -> RwLockReadGuard<'_, ()> {
        self.gates[author.shard().index()].read().await
    }

    /// Waits until every command that is now inside the author's gate has left it.
    pub(super) async fn left(&self, author: AccountId) {
        drop(self.gates[author.shard().index()].write().await);
    }
}
