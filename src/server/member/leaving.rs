//! A node that was told to end before it owned the log: it may be about to take it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{Owned, Ownership, RELEASE_TIME_MAX};
use crate::cluster::standby::MayTake;
use crate::server::ending::Ending;

/// How long the end may wait for a log that is just being taken.
const GIVE_UP_TIME_MAX: Duration = Duration::from_secs(2 * RELEASE_TIME_MAX.as_secs());

/// Whether a standby may take the log.
#[derive(Default)]
pub(super) struct Leaving {
    has_begun: AtomicBool,
    /// Whether it may be taking it now.
    may_take: AtomicBool,
    declined: Notify,
}

impl Leaving {
    /// Decides after a look at the log.
    pub(super) fn decide(&self) -> MayTake {
        // In this order: of the two threads, one sees what the other has stored.
        self.may_take.store(true, Ordering::SeqCst);
        if self.has_begun.load(Ordering::SeqCst) {
            self.may_take.store(false, Ordering::SeqCst);
            self.declined.notify_one();
            return MayTake::No;
        }
        MayTake::Yes
    }

    /// From now on the log is taken no more.
    fn begin(&self) {
        self.has_begun.store(true, Ordering::SeqCst);
    }

    /// Returns once the node is not taking the log, after [`Self::begin`].
    async fn declined(&self) {
        if self.may_take.load(Ordering::SeqCst) {
            self.declined.notified().await;
        }
    }
}

/// A node that ends.
pub(in crate::server) struct Left {
    pub(in crate::server) ending: Ending,
    giving_up: JoinHandle<()>,
}

impl Left {
    /// Begins to end a node that waits for `owning`.
    pub(super) fn begin(
        ending: Ending,
        leaving: Arc<Leaving>,
        mut owning: JoinHandle<anyhow::Result<Owned>>,
        brokers: Handle,
        alive: JoinHandle<()>,
    ) -> Self {
        leaving.begin();
        let giving_up = tokio::spawn(async move {
            tokio::select! {
                () = leaving.declined() => {}
                owned = &mut owning => if let Ok(Ok(Owned { seat, .. })) = owned {
                    let ownership = Ownership { seat, brokers, alive, released: None };
                    let _ = tokio::task::spawn_blocking(move || drop(ownership)).await;
                },
            }
        });
        Self { ending, giving_up }
    }

    /// Returns once the log is not this node's, also if it was just being taken.
    pub(in crate::server) async fn given_up(self) {
        tokio::select! {
            _ = self.giving_up => {}
            _ = self.ending.hurried() => {}
            () = sleep(GIVE_UP_TIME_MAX) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_node_that_leaves_waits_for_a_log_that_it_may_be_taking() {
        let leaving = Leaving::default();
        leaving.begin();
        leaving.declined().await;
        assert_eq!(leaving.decide(), MayTake::No);
        leaving.declined().await;

        let leaving = Leaving::default();
        assert_eq!(leaving.decide(), MayTake::Yes);
        leaving.begin();
        assert_eq!(leaving.declined().now_or_never(), None, "it may be taking the log");
        assert_eq!(leaving.decide(), MayTake::No);
        leaving.declined().await;
    }
}
