//! Counts the memory of all shards.

use std::sync::Arc;
use std::time::Duration;

use super::{QUEUE_CAPACITY, Refusal, Shards, Task};
use paperbourse_core::engine::state::footprint::Footprint;
use paperbourse_core::engine::state::view::Observed;
use paperbourse_core::ids::{Lsn, SHARD_COUNT, ShardId};
use paperbourse_store::journal::Waiters;

/// Delay before a shard whose queue was full is visited again.
const BUSY_DELAY: Duration = Duration::from_millis(5);

/// Maximum number of attempts at a visit. If a shard stays busy for longer, the count fails.
const VISIT_TRIES_MAX: u32 = 200;

impl Shards {
    /// Memory of the queues in bytes, which never changes.
    pub const QUEUE_BYTES: usize =
        SHARD_COUNT * QUEUE_CAPACITY.get() * (size_of::<Task>() + size_of::<usize>());

    /// Counts the memory of all shards. Each visit counts a bounded part of one shard.
    pub async fn footprint(self: &Arc<Self>, waiters: &Arc<Waiters>) -> Result<Footprint, Refusal> {
        let mut total = Footprint::default();
        for shard in ShardId::all() {
            let mut next = Some(0);
            while let Some(slot) = next {
                let (part, rest) = self.footprint_from(shard, waiters, slot).await?;
                total += part;
                next = rest;
                // The read may have completed without yielding, and other tasks share the thread.
                tokio::task::yield_now().await;
            }
        }
        Ok(total)
    }

    /// Counts the memory of part of a shard. Retries while the shard's queue is full, so that one
    /// busy moment does not discard everything counted so far.
    async fn footprint_from(
        self: &Arc<Self>,
        shard: ShardId,
        waiters: &Arc<Waiters>,
        slot: u32,
    ) -> Result<(Footprint, Option<u32>), Refusal> {
        let mut tries = 1;
        loop {
            let count = self.observe(shard, waiters, move |state| {
                // Only sums leave the shard, so this need not wait for the disk.
                Observed { value: state.footprint_from(slot), lsn: Lsn::START }
            });
            match count.await {
                Err(Refusal::Busy) if tries < VISIT_TRIES_MAX => tries += 1,
                counted => return counted,
            }
            tokio::time::sleep(BUSY_DELAY).await;
        }
    }
}
