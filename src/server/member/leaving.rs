//! Shutdown of a node that does not own the log yet. It may be taking the log at that moment.

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

/// Maximum time that the shutdown waits for a takeover in progress.
const GIVE_UP_TIME_MAX: Duration = Duration::from_secs(2 * RELEASE_TIME_MAX.as_secs());

/// Decides between a standby's takeover of the log and its shutdown.
#[derive(Default)]
pub(super) struct Leaving {
    has_begun: AtomicBool,
    /// Whether a takeover may be in progress.
    may_take: AtomicBool,
    declined: Notify,
}

impl Leaving {
    /// Decides whether the standby may take the log, after each read of the log.
    pub(super) fn decide(&self) -> MayTake {
        // Both sides store their own flag before they load the other's, so at least one of them
        // sees the other's store.
        self.may_take.store(true, Ordering::SeqCst);
        if self.has_begun.load(Ordering::SeqCst) {
            self.may_take.store(false, Ordering::SeqCst);
            self.declined.notify_one();
            return MayTake::No;
        }
        MayTake::Yes
    }

    /// Forbids taking the log from now on.
    fn begin(&self) {
        self.has_begun.store(true, Ordering::SeqCst);
    }

    /// Waits until the node is no longer taking the log. Call [`Self::begin`] first.
    async fn declined(&self) {
        if self.may_take.load(Ordering::SeqCst) {
            self.declined.notified().await;
        }
    }
}

/// A node that is shutting down.
pub(in crate::server) struct Left {
    pub(in crate::server) ending: Ending,
    giving_up: JoinHandle<()>,
}

impl Left {
    /// Starts the shutdown of a node that is still waiting for `owning`.
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

    /// Waits until this node does not own the log, even if a takeover was in progress. Gives up
    /// after [`GIVE_UP_TIME_MAX`], or when a signal cuts the drain short.
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
