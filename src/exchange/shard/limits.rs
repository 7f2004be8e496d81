//! The data that a shard publishes about its open orders: the best limit on each side of each book,
//! and the shard's next deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering, fence};

use super::core::Environment;
use paperbourse_core::engine::State;
use paperbourse_core::engine::event::Event;
use paperbourse_core::engine::order::open::BookSide;
use paperbourse_core::ids::{MarketIndex, SHARD_COUNT, ShardId, Timestamp};
use paperbourse_core::market::resting_limits::RestingLimits;

/// The open orders of all shards, reduced to what timers and metrics need.
pub struct OpenOrderBoard {
    /// The next deadline of each shard, in nanoseconds since 1970; [`NEVER`] if it has none.
    next_deadline: [AtomicI64; SHARD_COUNT],
    counts: [AtomicUsize; SHARD_COUNT],
    fill_count: AtomicU64,
}

const NEVER: i64 = i64::MAX;

impl Default for OpenOrderBoard {
    fn default() -> Self {
        Self {
            next_deadline: [const { AtomicI64::new(NEVER) }; SHARD_COUNT],
            counts: [const { AtomicUsize::new(0) }; SHARD_COUNT],
            fill_count: AtomicU64::new(0),
        }
    }
}

impl OpenOrderBoard {
    pub(super) fn note(&self, state: &State) {
        let index = state.shard().index();
        let next = state.next_deadline().map_or(NEVER, Timestamp::nanos);
        self.next_deadline[index].store(next, Ordering::Relaxed);
        self.counts[index].store(state.open_order_count(), Ordering::Relaxed);
    }

    /// Iterates over the shards whose next deadline has passed: an order has expired, or the
    /// heartbeats of an account have stopped.
    pub fn due(&self, now: Timestamp) -> impl Iterator<Item = ShardId> + '_ {
        ShardId::all().filter(move |shard| {
            self.next_deadline[shard.index()].load(Ordering::Relaxed) <= now.nanos()
        })
    }

    pub(super) fn note_fills(&self, count: usize) {
        self.fill_count.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Returns the number of fills of open orders since the start.
    pub fn fill_count(&self) -> u64 {
        self.fill_count.load(Ordering::Relaxed)
    }

    /// Returns the number of open orders.
    pub fn count(&self) -> usize {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// The interests in which a shard publishes its best limits, by the shard's market index.
#[derive(Default)]
pub(super) struct Published {
    resting_limits: Vec<Option<Arc<RestingLimits>>>,
}

impl Published {
    /// Publishes the best limits of all sides with resting orders. Called at startup.
    pub(super) fn publish_all(&mut self, state: &State, environment: &Environment) {
        environment.open_orders.note(state);
        for on in state.open_sides() {
            self.publish(on, state, environment);
            // The displayed sizes of the current books count as new.
            environment.markets.look_again_by_id(&state.used_market(on.market).condition_id);
        }
    }

    /// Publishes the changes that these events made. Must be called after the events are applied.
    pub(super) fn follow(&mut self, events: &[Event], state: &State, environment: &Environment) {
        let mut has_changed = false;
        let mut placed = None;
        for event in events {
            let order = match event {
                Event::OrderPlaced(order) => {
                    placed = Some(order);
                    order.placement.order
                }
                Event::OrderDelayed(_) | Event::DelayedOrderDropped { .. } => {
                    has_changed = true;
                    continue;
                }
                Event::RestingFilled(filled) => filled.order,
                Event::OrderEnded { order, .. } => *order,
                _ => continue,
            };
            if let Some(on) = state.side_of(order) {
                has_changed = true;
                self.publish(on, state, environment);
            }
        }
        if !has_changed {
            return;
        }
        environment.open_orders.note(state);
        if let Some(placed) = placed
            && state.is_open(placed.placement.order)
        {
            // The feed publishes a book, fences, and reads the limits. So either the feed sees this
            // limit, or its book is seen here. The same holds for anything else that lets an order
            // fill, such as a renewed lease or a supported fee schedule.
            fence(Ordering::SeqCst);
            let market = state.used_market(placed.placement.market);
            let Some(market) = environment.markets.by_condition(&market.condition_id) else {
                return;
            };
            let snapshot = market.snapshot();
            let newest = snapshot.quoted(placed.placement.outcome);
            let is_newer = newest.is_some_and(|quoted| {
                let is_missed = quoted.book.sequence != placed.book_sequence
                    || placed.terms.awaited_book && snapshot.info().is_tradable();
                is_missed && !quoted.book.stale
            });
            if is_newer {
                environment.markets.look_again(&market);
            }
        }
    }

    fn publish(&mut self, on: BookSide, state: &State, environment: &Environment) {
        let resting_limits = self.resting_limits(on.market, state, environment);
        let best = state.best_limit(on);
        if resting_limits.best(on.outcome, on.side, state.shard()) != best {
            resting_limits.set_best(on.outcome, on.side, state.shard(), best);
        }
    }

    fn resting_limits(
        &mut self,
        market: MarketIndex,
        state: &State,
        environment: &Environment,
    ) -> &Arc<RestingLimits> {
        let index = market.0 as usize;
        if self.resting_limits.len() <= index {
            self.resting_limits.resize(index + 1, None);
        }
        self.resting_limits[index].get_or_insert_with(|| {
            let used = state.used_market(market);
            environment.markets.resting_limits(&used.condition_id, used.outcomes.len())
        })
    }
}
