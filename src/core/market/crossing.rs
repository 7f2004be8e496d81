//! Books that may fill resting orders, on their way from the feed to the shards.
//!
//! The queue is bounded. When it is full, the market goes on a separate list instead, at most once.
//! A matcher that takes a market from this list uses the market's newest books.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::book::Book;
use super::resting_limits::{RestingLimits, ShardSet};
use super::{Market, Markets};
use crate::ids::OutcomeIndex;

/// Maximum number of queued books, not counting the markets to look at again.
pub const CROSSINGS_MAX: usize = 4_096;

/// A book that may fill resting orders.
#[derive(Clone)]
pub struct Crossing {
    /// The market.
    pub market: Arc<Market>,
    /// The outcome whose book this is. In a market with two outcomes, orders on the other outcome
    /// may trade on the mirror of this book.
    pub outcome: OutcomeIndex,
    /// The published book; `None` stands for the newest books of all outcomes.
    pub book: Option<Arc<Book>>,
    /// The shards with orders that the book may fill.
    pub shards: ShardSet,
}

/// The queue of crossings.
#[derive(Default)]
pub(super) struct Crossings {
    waiting: Mutex<Waiting>,
    arrival: Notify,
}

#[derive(Default)]
struct Waiting {
    books: VecDeque<Crossing>,
    /// Markets to look at again, each once.
    again: Vec<Arc<Market>>,
    /// Number of crossings in the last batch. The matcher may still be working on them.
    taken_count: usize,
    overflowed_count: u64,
}

impl Markets {
    /// Returns the interest in a market, creating it on first use. The market need not be listed:
    /// at startup, orders are recovered before the venue lists anything.
    pub fn resting_limits(
        &self,
        condition_id: &Arc<str>,
        outcome_count: usize,
    ) -> Arc<RestingLimits> {
        let mut by_condition_id = self.resting_limits.lock();
        let resting_limits = by_condition_id
            .entry(condition_id.clone())
            .or_insert_with(|| Arc::new(RestingLimits::new(outcome_count)))
            .clone();
        // Under the lock: a market that is not found here is listed later, and then finds this
        // interest.
        if let Some(market) = self.listing.load().by_condition(condition_id) {
            market.attach(&resting_limits);
        }
        resting_limits
    }

    /// Attaches to new markets the interest that was created before they were listed.
    pub(super) fn attach_resting_limits<'a>(&self, added: impl Iterator<Item = &'a Arc<Market>>) {
        let by_condition_id = self.resting_limits.lock();
        if by_condition_id.is_empty() {
            return;
        }
        for market in added {
            if let Some(resting_limits) = by_condition_id.get(&market.info().condition_id) {
                market.attach(resting_limits);
                self.look_again(market);
            }
        }
    }

    /// Drops the interest in markets that have left the listing, unless it is still in use.
    pub(super) fn forget_resting_limits(&self, left: &[Arc<Market>]) {
        let mut by_condition_id = self.resting_limits.lock();
        for market in left {
            let condition_id = &market.info().condition_id;
            let own_count = 1 + usize::from(market.resting_limits().is_some());
            let is_unused = |resting_limits: &Arc<RestingLimits>| {
                Arc::strong_count(resting_limits) == own_count
                    && resting_limits.anywhere().is_empty()
            };
            if by_condition_id.get(condition_id).is_some_and(is_unused) {
                by_condition_id.remove(condition_id);
            }
        }
    }

    /// Returns the listed markets with resting orders, each with the shards of those orders.
    pub fn with_resting_orders(&self) -> Vec<(Arc<Market>, ShardSet)> {
        let by_condition_id = self.resting_limits.lock();
        let listing = self.listing.load();
        let found = by_condition_id.iter().filter_map(|(condition_id, resting_limits)| {
            let shards = resting_limits.anywhere();
            let market = listing.by_condition(condition_id)?;
            (!shards.is_empty()).then(|| (market.clone(), shards))
        });
        found.collect()
    }

    /// Waits until the queue of crossings is at most half full. A tape can wait for the matches; a
    /// live venue cannot.
    pub async fn crossings_room(&self) {
        while self.crossings_waiting() > CROSSINGS_MAX / 2 {
            tokio::task::yield_now().await;
        }
    }

    /// Queues a published book whose levels reach resting orders. If the queue is full, queues its
    /// market to be looked at again instead. Only the feed calls this.
    pub fn cross(&self, crossing: Crossing) {
        self.crossings.push(crossing);
    }

    /// Queues a market to be looked at again with its newest books, unless it is already queued or
    /// has no resting orders.
    pub fn look_again(&self, market: &Arc<Market>) {
        // The caller's change must be visible before the limits are read, as with a published book.
        fence(Ordering::SeqCst);
        if market.resting_limits().is_some() {
            self.crossings.look_again(market);
        }
    }

    /// Queues every market with resting orders to be looked at again with its newest books.
    pub(super) fn look_again_everywhere(&self) {
        fence(Ordering::SeqCst);
        for (market, _) in self.with_resting_orders() {
            self.crossings.look_again(&market);
        }
    }

    /// Queues the market with this condition id, if it is listed, as [`Self::look_again`] does.
    pub fn look_again_by_id(&self, condition_id: &str) {
        if let Some(market) = self.by_condition(condition_id) {
            self.look_again(&market);
        }
    }

    /// Waits until a book may fill resting orders, then takes all queued crossings, in order. Only
    /// one task may call this, and only after it has dealt with the previous batch.
    pub async fn crossings(&self) -> Vec<Crossing> {
        self.crossings.next().await
    }

    /// Returns the number of crossings that are queued, or taken but not yet dealt with.
    pub fn crossings_waiting(&self) -> usize {
        self.crossings.waiting()
    }

    /// Returns the number of crossings that found the queue full. Their markets are looked at again
    /// later.
    pub fn crossings_overflowed_count(&self) -> u64 {
        self.crossings.overflowed_count()
    }
}

impl Crossings {
    /// Queues a book, or its market if the queue is full.
    pub(super) fn push(&self, crossing: Crossing) {
        let mut waiting = self.waiting.lock();
        if waiting.books.len() < CROSSINGS_MAX {
            waiting.books.push_back(crossing);
        } else {
            waiting.overflowed_count += 1;
            waiting.look_again(&crossing.market);
        }
        drop(waiting);
        self.arrival.notify_one();
    }

    /// Queues a market to be looked at again, unless it is already queued.
    pub(super) fn look_again(&self, market: &Arc<Market>) {
        self.waiting.lock().look_again(market);
        self.arrival.notify_one();
    }

    /// Waits for crossings and takes all of them.
    pub(super) async fn next(&self) -> Vec<Crossing> {
        // The caller asks again only after it has dealt with the previous batch.
        self.waiting.lock().taken_count = 0;
        loop {
            let taken = self.waiting.lock().take();
            if !taken.is_empty() {
                return taken;
            }
            self.arrival.notified().await;
        }
    }

    pub(super) fn waiting(&self) -> usize {
        let waiting = self.waiting.lock();
        waiting.books.len() + waiting.again.len() + waiting.taken_count
    }

    pub(super) fn overflowed_count(&self) -> u64 {
        self.waiting.lock().overflowed_count
    }
}

impl Waiting {
    fn look_again(&mut self, market: &Arc<Market>) {
        if !market.waits.swap(true, Ordering::Relaxed) {
            self.again.push(market.clone());
        }
    }

    fn take(&mut self) -> Vec<Crossing> {
        let mut taken: Vec<Crossing> = self.books.drain(..).collect();
        let again = std::mem::take(&mut self.again);
        // From here on, an order that comes to rest is checked against the newest books by its own
        // shard.
        fence(Ordering::SeqCst);
        for market in again {
            market.waits.store(false, Ordering::Relaxed);
            let shards = market
                .resting_limits()
                .map_or(ShardSet::EMPTY, |resting_limits| RestingLimits::anywhere(resting_limits));
            if !shards.is_empty() {
                taken.push(Crossing { market, outcome: OutcomeIndex(0), book: None, shards });
            }
        }
        self.taken_count = taken.len();
        taken
    }
}

#[cfg(test)]
mod tests;
