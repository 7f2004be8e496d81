//! Counts the memory of all shards.

use std::sync::Arc;

use super::{QUEUE_CAPACITY, Refusal, Shards, Task};
use crate::engine::footprint::Footprint;
use crate::engine::view::Observed;
use crate::ids::{Place, SHARD_COUNT, ShardId};
use crate::journal::Waiters;

impl Shards {
    /// The memory of the queues, which never changes.
    pub const QUEUE_BYTES: usize =
        SHARD_COUNT * QUEUE_CAPACITY.get() * (size_of::<Task>() + size_of::<usize>());

    /// Counts the memory of all shards, a bounded part of one at a time.
    pub async fn footprint(self: &Arc<Self>, waiters: &Arc<Waiters>) -> Result<Footprint, Refusal> {
        let mut total = Footprint::default();
        for shard in ShardId::all() {
            let mut next = Some(0);
            while let Some(slot) = next {
                let count = self.observe(shard, waiters, move |state| {
                    // Nobody learns more than a sum, so this need not wait for the disk.
                    Observed { value: state.footprint_from(slot), place: Place::START }
                });
                let (part, rest) = count.await?;
                total += part;
                next = rest;
                // The read may have completed without yielding, and other tasks share the thread.
                tokio::task::yield_now().await;
            }
        }
        Ok(total)
    }
}
