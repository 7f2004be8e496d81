//! Follows the fills of an account.

use std::sync::Arc;

use super::Service;
use crate::shard::FillFollower;
use paperbourse_core::ids::AccountId;
use paperbourse_store::journal::Waiters;

impl Service {
    /// Follows the fills of an account. Returns `None` if the server has too many followers.
    pub fn follow_fills(&self, account: AccountId, waiters: &Arc<Waiters>) -> Option<FillFollower> {
        self.shards.follow_fills(account, waiters)
    }

    /// Returns the number of followers of fills.
    pub fn fill_follower_count(&self) -> usize {
        self.shards.fill_follower_count()
    }
}
