//! News of accounts' orders, for those who follow accounts.

use std::sync::Arc;

use super::facts::Facts;
use super::{Refusal, Shards};
use paperbourse_core::engine::State;
use paperbourse_core::engine::order::news::News;
use paperbourse_core::ids::{AccountId, ShardId};
use paperbourse_store::journal::Waiters;

impl Shards {
    /// Returns the number of a record of the account's shard: whatever a reader may have seen of
    /// the account so far is in that record or before it. The only possible refusal is a full
    /// queue.
    pub async fn newest_record(
        self: &Arc<Self>,
        account: AccountId,
        waiters: &Arc<Waiters>,
    ) -> Result<u64, Refusal> {
        let observe = move |state: &State| state.observe_sequence(account);
        self.observe(account.shard(), waiters, observe).await
    }

    /// Returns what records of one shard say about the orders of the accounts that are followed,
    /// which must be sorted, each with the number of its record. The only possible refusal is a
    /// full queue.
    pub async fn news(
        self: &Arc<Self>,
        shard: ShardId,
        facts: Arc<[Facts]>,
        followed: Arc<[AccountId]>,
        waiters: &Arc<Waiters>,
    ) -> Result<Vec<(u64, News)>, Refusal> {
        debug_assert!(followed.is_sorted(), "it is searched");
        debug_assert!(facts.iter().all(|facts| facts.shard == shard), "one shard is asked");
        let observe = move |state: &State| {
            let events = facts.iter().flat_map(|facts| {
                let sequence = facts.sequence;
                facts.events.iter().map(move |event| (sequence, event))
            });
            state.observe_news(events, |account| followed.binary_search(&account).is_ok())
        };
        self.observe(shard, waiters, observe).await
    }
}
