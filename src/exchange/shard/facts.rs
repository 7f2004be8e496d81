//! A stream of durable facts: the records that the shards write, in order.
//!
//! A shard queues the events of each record for its subscribers as it applies them, and never waits
//! for a subscriber. A subscriber receives the records of each shard in order, each once it is
//! durable. The queue is bounded. When it is full, the subscription is cut, and the subscriber
//! learns the LSN (log sequence number) from which it must catch up in the journal.
//!
//! Waking a thread costs more than a trade, so a subscriber is not woken for each record. It polls
//! its queue every [`LOOK_INTERVAL`], and is woken when the queue is half full.
//!
//! The list of subscribers belongs to the shard's core. Without subscribers, a record costs one
//! check of an empty list. It is also known exactly, for each shard, after which record a stream
//! begins.

use std::future::{Future as _, poll_fn};
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use tokio::sync::Notify;

use super::{Refusal, Shards};
use paperbourse_core::engine::event::Events;
use paperbourse_core::engine::state::view::Observed;
use paperbourse_core::ids::{Lsn, SHARD_COUNT, ShardId};
use paperbourse_store::journal::Waiters;

/// Maximum number of subscribers at a time.
pub const SUBSCRIBERS_MAX: usize = 16;

/// Maximum delay until a subscriber sees a durable record, unless many are queued.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The content of one record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// The shard that wrote the record.
    pub shard: ShardId,
    /// The record's number within the shard.
    pub sequence: u64,
    /// The record's LSN.
    pub lsn: Lsn,
    /// The events, in order.
    pub events: Events,
}

/// The error for a subscriber whose subscription was cut because it was too slow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the subscriber is behind: the journal has the facts from place {} on", .from.position)]
pub struct Behind {
    /// Every record before this LSN was delivered, and the journal has the rest. A few later
    /// records of other shards may have been delivered, too.
    pub from: Lsn,
}

/// The error for a failed subscription.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SubscribeError {
    /// A shard's queue is full.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// There are [`SUBSCRIBERS_MAX`] subscribers already.
    #[error("the shards have {SUBSCRIBERS_MAX} subscribers, and no more are allowed")]
    TooMany,
}

/// A subscription to the facts of all shards. Dropping it unsubscribes.
pub struct FactStream {
    shared: Arc<Shared>,
    waiters: Arc<Waiters>,
    /// The log that the shards write to.
    log: u8,
    /// A record taken from the queue that may not be durable yet.
    next: Option<Facts>,
    begins_after: [u64; SHARD_COUNT],
}

/// State shared by the shards and one subscriber.
pub(super) struct Shared {
    queue: ArrayQueue<Facts>,
    /// Signals that the queue is half full or the subscription is cut.
    pressure: Notify,
    /// The position of the first missing record; [`NONE_MISSING`] while there is none.
    missing_from: AtomicU64,
}

const NONE_MISSING: u64 = u64::MAX;

/// The subscribers of one shard.
#[derive(Default)]
pub(super) struct Subscribers {
    list: Vec<Arc<Shared>>,
}

impl Shards {
    /// Subscribes to all shards. At most `waiting_max` records are queued; if the subscriber falls
    /// further behind, its subscription is cut. The owner of `waiters` must be running them.
    ///
    /// When this resolves, every record before the subscription is durable. A subscriber that reads
    /// the journal up to [`FactStream::begins_after`] and then the stream misses nothing.
    pub async fn subscribe(
        self: &Arc<Self>,
        waiting_max: NonZeroUsize,
        waiters: &Arc<Waiters>,
    ) -> Result<FactStream, SubscribeError> {
        let journal = &self.environment.journal;
        let mut stream = FactStream {
            shared: Arc::new(Shared {
                queue: ArrayQueue::new(waiting_max.get()),
                pressure: Notify::new(),
                missing_from: AtomicU64::new(NONE_MISSING),
            }),
            waiters: waiters.clone(),
            log: journal.durable_lsn().log,
            next: None,
            begins_after: [0; SHARD_COUNT],
        };
        {
            let mut subscribers = self.environment.subscribers.lock();
            subscribers.retain(|subscriber| subscriber.strong_count() > 0);
            subscribers.push(Arc::downgrade(&stream.shared));
        }
        for shard in ShardId::all() {
            let shared = stream.shared.clone();
            let added = self.enqueue(shard, waiters, move |core, _| {
                let value = core.subscribers.add(shared).then(|| core.state.sequence());
                Observed { value, lsn: Lsn::START }
            });
            let sequence = added.await.ok_or(Refusal::Busy)?;
            stream.begins_after[shard.index()] = sequence.ok_or(SubscribeError::TooMany)?;
        }
        waiters.durable(journal.newest_lsn()).await;
        Ok(stream)
    }
}

impl Shards {
    /// Makes the subscribers check their queues now, and waits until the queues are empty, for at
    /// most twice [`LOOK_INTERVAL`]. Used at shutdown.
    pub async fn deliver_facts(&self) {
        let subscribers = self.environment.subscribers.lock().clone();
        let subscribers: Vec<_> = subscribers.iter().filter_map(Weak::upgrade).collect();
        for subscriber in &subscribers {
            subscriber.pressure.notify_one();
        }
        let taken = async {
            while subscribers.iter().any(|subscriber| !subscriber.queue.is_empty()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::task::yield_now().await;
        };
        // A subscriber that is cut never empties its queue.
        let _ = tokio::time::timeout(2 * LOOK_INTERVAL, taken).await;
    }
}

impl FactStream {
    /// Returns the sequence number of the shard's newest record before the subscription.
    pub fn begins_after(&self, shard: ShardId) -> u64 {
        self.begins_after[shard.index()]
    }

    /// Waits for the next durable record, and returns it with those after it that need no waiting,
    /// at most `most` together. Cancel safe.
    pub async fn next_many(&mut self, most: NonZeroUsize) -> Result<Vec<Facts>, Behind> {
        let mut all = vec![self.next().await?];
        while all.len() < most.get() {
            let mut next = pin!(self.next());
            let polled = poll_fn(|context| Poll::Ready(next.as_mut().poll(context))).await;
            // An error is returned again by the next call.
            let Poll::Ready(Ok(facts)) = polled else { break };
            all.push(facts);
        }
        Ok(all)
    }

    /// Waits for the next durable record, which may arrive [`LOOK_INTERVAL`] late. Cancel safe:
    /// dropping the future loses no record.
    pub async fn next(&mut self) -> Result<Facts, Behind> {
        loop {
            if self.next.is_none() {
                self.next = self.shared.queue.pop();
            }
            if let Some(facts) = &self.next {
                self.waiters.durable(facts.lsn).await;
                return Ok(self.next.take().expect("it is `Some`, as just matched"));
            }
            let missing_from = self.shared.missing_from.load(Ordering::Acquire);
            if missing_from == NONE_MISSING {
                let pressure = self.shared.pressure.notified();
                // In either case, look again.
                let _ = tokio::time::timeout(LOOK_INTERVAL, pressure).await;
                continue;
            }
            // A shard queues a record before it fills in the record's bytes in the journal. So once
            // this LSN is durable, every record before it is queued or known to be missing.
            self.waiters.durable(Lsn::new(self.log, missing_from)).await;
            self.next = self.shared.queue.pop();
            if self.next.is_none() {
                let missing_from = self.shared.missing_from.load(Ordering::Acquire);
                return Err(Behind { from: Lsn::new(self.log, missing_from) });
            }
        }
    }
}

impl Drop for FactStream {
    fn drop(&mut self) {
        // Marks the subscription as cut, so that the shards drop it.
        self.shared.missing_from.store(0, Ordering::Release);
        while self.shared.queue.pop().is_some() {}
    }
}

impl Subscribers {
    /// Adds a subscriber. Returns false if there are too many.
    fn add(&mut self, shared: Arc<Shared>) -> bool {
        self.list.retain(|subscriber| !subscriber.is_cut());
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

    /// Queues a record for every subscriber. One gets the facts themselves, and the others get
    /// copies. Must be called before the record's bytes are filled in.
    pub(super) fn publish(&mut self, facts: Facts) {
        let last = self.list.pop();
        self.list.retain(|subscriber| subscriber.push(facts.clone()));
        self.list.extend(last.filter(|subscriber| subscriber.push(facts)));
    }
}

impl Shared {
    fn is_cut(&self) -> bool {
        self.missing_from.load(Ordering::Acquire) != NONE_MISSING
    }

    /// Queues a record. Returns false if the subscription is cut: the queue is full now, or was
    /// full when another shard pushed.
    fn push(&self, facts: Facts) -> bool {
        let position = facts.lsn.position;
        let is_queued = !self.is_cut() && self.queue.push(facts).is_ok();
        if !is_queued {
            self.missing_from.fetch_min(position, Ordering::AcqRel);
        }
        if !is_queued || 2 * self.queue.len() >= self.queue.capacity() {
            self.pressure.notify_one();
        }
        is_queued
    }
}
