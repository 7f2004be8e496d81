//! The stream of durable facts: what each shard has written, for whoever follows along.
//!
//! A shard hands the events of each record to its subscribers as it applies them, and waits for
//! none of them. A subscriber takes them at its own pace: those of a shard in order, each once it
//! is on disk. The room between the two is bounded. When it is full, the subscription is cut, the
//! shards forget it, and the subscriber learns from which place on the journal has what it missed.
//!
//! The list of subscribers is part of what the runner of a shard owns. Without a subscriber a
//! record costs one look at an empty list, and a subscriber knows to the record where it began.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;
use tokio::sync::Notify;

use super::{Refusal, Shards};
use crate::engine::event::Events;
use crate::engine::view::Observed;
use crate::ids::{Place, SHARD_COUNT, ShardId};
use crate::journal::Waiters;

/// The shards have at most this many subscribers at a time.
pub const SUBSCRIBERS_MAX: usize = 16;

/// What one record of a shard says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Whose record it is.
    pub shard: ShardId,
    /// Its number within the shard.
    pub sequence: u64,
    /// Where it stands in the journal.
    pub place: Place,
    /// What happened, in order.
    pub events: Arc<Events>,
}

/// The subscriber was too slow, and its subscription is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the subscriber is behind: the journal has the facts from place {} on", .from.position)]
pub struct Behind {
    /// Every record before this place was handed over. The rest is in the journal; of some shards
    /// a few records behind this place were handed over too.
    pub from: Place,
}

/// Why nobody can subscribe.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SubscribeError {
    /// A shard has no room for the request.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// There are as many subscribers as there may be.
    #[error("the shards have {SUBSCRIBERS_MAX} subscribers, and no more are allowed")]
    TooMany,
}

/// A subscription to the facts of all shards. Dropping it ends it.
pub struct FactStream {
    shared: Arc<Shared>,
    waiters: Arc<Waiters>,
    /// The log that all places are in.
    log: u8,
    /// Taken from the queue, and perhaps not durable yet.
    next: Option<Facts>,
    begins_after: [u64; SHARD_COUNT],
}

/// What the shards and one subscriber share.
struct Shared {
    queue: ArrayQueue<Facts>,
    arrival: Notify,
    /// The position of the first record that is missing, [`NONE`] while none is.
    missing_from: AtomicU64,
}

const NONE: u64 = u64::MAX;

/// Who follows a shard.
#[derive(Default)]
pub(super) struct Subscribers {
    list: Vec<Arc<Shared>>,
}

impl Shards {
    /// Follows all shards from now on. At most `waiting_max` records wait for the subscriber; one
    /// that leaves more of them waiting is cut off. The owner of `waiters` must be running them.
    ///
    /// When this resolves, all that was written before the subscription is on disk: whoever reads
    /// the journal up to [`FactStream::begins_after`] and goes on with the stream misses nothing.
    pub async fn subscribe(
        self: &Arc<Self>,
        waiting_max: NonZeroUsize,
        waiters: &Arc<Waiters>,
    ) -> Result<FactStream, SubscribeError> {
        let journal = &self.around.journal;
        let mut stream = FactStream {
            shared: Arc::new(Shared {
                queue: ArrayQueue::new(waiting_max.get()),
                arrival: Notify::new(),
                missing_from: AtomicU64::new(NONE),
            }),
            waiters: waiters.clone(),
            log: journal.durable_place().log,
            next: None,
            begins_after: [0; SHARD_COUNT],
        };
        for shard in ShardId::all() {
            let shared = stream.shared.clone();
            let entered = self.enqueue(shard, waiters, move |core, _| {
                let value = core.subscribers.enter(shared).then(|| core.state.sequence());
                Observed { value, place: Place::START }
            });
            let sequence = entered.await.ok_or(Refusal::Busy)?;
            stream.begins_after[shard.index()] = sequence.ok_or(SubscribeError::TooMany)?;
        }
        waiters.durable(journal.newest_place()).await;
        Ok(stream)
    }
}

impl FactStream {
    /// The number of the newest record of a shard that was written before the subscription.
    pub fn begins_after(&self, shard: ShardId) -> u64 {
        self.begins_after[shard.index()]
    }

    /// Waits for the next record that is on disk. Nothing is lost when the wait is given up.
    pub async fn next(&mut self) -> Result<Facts, Behind> {
        loop {
            if self.next.is_none() {
                self.next = self.shared.queue.pop();
            }
            if let Some(facts) = &self.next {
                self.waiters.durable(facts.place).await;
                return Ok(self.next.take().expect("it was looked at"));
            }
            let missing_from = self.shared.missing_from.load(Ordering::Acquire);
            if missing_from == NONE {
                self.shared.arrival.notified().await;
                continue;
            }
            // A shard hands a record over before it fills in the record's place. So once this place
            // is durable, all records before it were handed over, or are known to be missing.
            self.waiters.durable(Place::new(self.log, missing_from)).await;
            self.next = self.shared.queue.pop();
            if self.next.is_none() {
                let missing_from = self.shared.missing_from.load(Ordering::Acquire);
                return Err(Behind { from: Place::new(self.log, missing_from) });
            }
        }
    }
}

impl Drop for FactStream {
    fn drop(&mut self) {
        self.shared.missing_from.store(0, Ordering::Release);
        while self.shared.queue.pop().is_some() {}
    }
}

impl Subscribers {
    /// Adds a subscriber, unless there are too many.
    fn enter(&mut self, shared: Arc<Shared>) -> bool {
        self.list.retain(|known| !known.is_cut());
        let has_room = self.list.len() < SUBSCRIBERS_MAX;
        if has_room {
            self.list.push(shared);
        }
        has_room
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Hands a record over, before its place is filled in.
    pub(super) fn publish(&mut self, facts: &Facts) {
        self.list.retain(|subscriber| subscriber.put(facts));
    }
}

impl Shared {
    fn is_cut(&self) -> bool {
        self.missing_from.load(Ordering::Acquire) != NONE
    }

    /// Leaves a record in the queue. When there is no room, or was none for another shard, the
    /// subscription is over for this shard too.
    fn put(&self, facts: &Facts) -> bool {
        let is_put = !self.is_cut() && self.queue.push(facts.clone()).is_ok();
        if !is_put {
            self.missing_from.fetch_min(facts.place.position, Ordering::AcqRel);
        }
        self.arrival.notify_one();
        is_put
    }
}
