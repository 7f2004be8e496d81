//! Books that may fill resting orders, on their way from the feed to the shards.
//!
//! The queue is bounded. When it is full, the market is put on a list of its own instead, once
//! however often that happens, and the matcher that takes it looks at its newest books.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::book::Book;
use super::interest::{Interest, ShardSet};
use super::{Market, Markets};
use crate::ids::OutcomeIndex;

/// Maximum number of books that wait, not counting the markets to look at again.
pub const CROSSINGS_MAX: usize = 4_096;

/// A book that may fill resting orders.
#[derive(Clone)]
pub struct Crossing {
    /// The market.
    pub market: Arc<Market>,
    /// The outcome whose book it is. In a market with two outcomes, orders of the other one may
    /// trade on its mirror.
    pub outcome: OutcomeIndex,
    /// The book as published; `None` for the newest books of all outcomes.
    pub book: Option<Arc<Book>>,
    /// The shards with orders that it may fill.
    pub shards: ShardSet,
}

/// The crossings that wait.
#[derive(Default)]
pub(super) struct Crossings {
    waiting: Mutex<Waiting>,
    arrival: Notify,
}

#[derive(Default)]
struct Waiting {
    books: VecDeque<Crossing>,
    /// The markets to look at again, each once.
    again: Vec<Arc<Market>>,
    /// Number of crossings that were taken last. Their taker may still be busy with them.
    taken_count: usize,
    overflowed_count: u64,
}

impl Markets {
    /// Who has orders resting in this market, created at its first use. The market need not be
    /// listed: at start, orders are recovered before the venue lists anything.
    pub fn interest(&self, condition_id: &Arc<str>, outcome_count: usize) -> Arc<Interest> {
        let mut interests = self.interests.lock();
        let interest = interests
            .entry(condition_id.clone())
            .or_insert_with(|| Arc::new(Interest::new(outcome_count)))
            .clone();
        // Under the lock: a market that is not found here is listed later, and then finds this.
        if let Some(market) = self.listing.load().by_condition(condition_id) {
            market.attach(&interest);
        }
        interest
    }

    /// Gives new markets the interest that was created before they were listed.
    pub(super) fn attach_interests<'a>(&self, added: impl Iterator<Item = &'a Arc<Market>>) {
        let interests = self.interests.lock();
        if interests.is_empty() {
            return;
        }
        for market in added {
            if let Some(interest) = interests.get(&market.info().condition_id) {
                market.attach(interest);
                self.look_again(market);
            }
        }
    }

    /// Forgets which shards had orders in markets that have left, unless the list is still in use.
    pub(super) fn forget_interests(&self, left: &[Arc<Market>]) {
        let mut interests = self.interests.lock();
        for market in left {
            let condition_id = &market.info().condition_id;
            let own_count = 1 + usize::from(market.interest().is_some());
            let is_unused = |interest: &Arc<Interest>| {
                Arc::strong_count(interest) == own_count && interest.anywhere().is_empty()
            };
            if interests.get(condition_id).is_some_and(is_unused) {
                interests.remove(condition_id);
            }
        }
    }

    /// The listed markets in which orders rest, each with the shards that have them.
    pub fn interested(&self) -> Vec<(Arc<Market>, ShardSet)> {
        let interests = self.interests.lock();
        let listing = self.listing.load();
        let interested = interests.iter().filter_map(|(condition_id, interest)| {
            let shards = interest.anywhere();
            let market = listing.by_condition(condition_id)?;
            (!shards.is_empty()).then(|| (market.clone(), shards))
        });
        interested.collect()
    }

    /// Waits until the queue of crossings has room to spare. A tape can wait for the matches; a
    /// live venue cannot.
    pub async fn crossings_room(&self) {
        while self.crossings_waiting() > CROSSINGS_MAX / 2 {
            tokio::task::yield_now().await;
        }
    }

    /// Queues a published book whose levels reach resting orders. If too many wait, the market is
    /// put on the list of those to look at again instead. Only the feed calls this.
    pub fn cross(&self, crossing: Crossing) {
        self.crossings.push(crossing);
    }

    /// Queues a market with its newest books, unless it already waits for that or no order rests in
    /// it.
    pub fn look_again(&self, market: &Arc<Market>) {
        // What the caller has changed comes before the limits, as with a published book.
        fence(Ordering::SeqCst);
        if market.interest().is_some() {
            self.crossings.look_again(market);
        }
    }

    /// Queues every market in which orders rest, with its newest books.
    pub(super) fn look_again_everywhere(&self) {
        fence(Ordering::SeqCst);
        for (market, _) in self.interested() {
            self.crossings.look_again(&market);
        }
    }

    /// Queues the market with this name, if it is listed, as [`Self::look_again`] does.
    pub fn look_again_by_id(&self, condition_id: &str) {
        if let Some(market) = self.by_condition(condition_id) {
            self.look_again(&market);
        }
    }

    /// Waits until a book may fill resting orders and takes all that wait, in order. Only one task
    /// may call this, and it calls this again once it has dealt with those that it took.
    pub async fn crossings(&self) -> Vec<Crossing> {
        self.crossings.next().await
    }

    /// Number of crossings that wait or were taken and not yet dealt with.
    pub fn crossings_waiting(&self) -> usize {
        self.crossings.waiting()
    }

    /// Number of crossings that found no room, whose markets are looked at again.
    pub fn crossings_overflowed_count(&self) -> u64 {
        self.crossings.overflowed_count()
    }
}

impl Crossings {
    /// Queues a book, or its market if there is no room.
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

    /// Puts a market on the list of those to look at again, unless it already is.
    pub(super) fn look_again(&self, market: &Arc<Market>) {
        self.waiting.lock().look_again(market);
        self.arrival.notify_one();
    }

    /// Waits for crossings and takes all of them.
    pub(super) async fn next(&self) -> Vec<Crossing> {
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
        // An order that comes to rest from here on is judged by its own shard on the newest books.
        fence(Ordering::SeqCst);
        for market in again {
            market.waits.store(false, Ordering::Relaxed);
            let shards =
                market.interest().map_or(ShardSet::EMPTY, |interest| Interest::anywhere(interest));
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
