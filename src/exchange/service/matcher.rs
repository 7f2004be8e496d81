//! Drives the open orders: matches them with the books that cross them, and ends those that have
//! expired or whose books the venue clears.
//!
//! The feed finds out which shards a change of a book concerns, and this task takes it there. No
//! client waits for any of it, so a full disk or a full queue delays a match and loses none: the
//! market is looked at again, and the books of that moment count.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use crate::shard::Shards;
use paperbourse_core::clock::Clock;
use paperbourse_core::engine::command::{ClearBooks, MatchOrders};
use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::Markets;
use paperbourse_core::market::crossing::Crossing;

/// How often expired orders and delayed matches are looked for.
const TICK: Duration = Duration::from_millis(50);

/// How often markets are checked for books that the venue has cleared, in ticks.
const TICKS_PER_CHECK: u32 = 20;

/// Drives the open orders.
pub struct Matcher {
    markets: Arc<Markets>,
    shards: Arc<Shards>,
    clock: Clock,
    tick_count: u32,
    /// The markets whose books were cleared, and when.
    cleared: BTreeMap<Arc<str>, Timestamp>,
}

impl Matcher {
    /// Only one may run.
    pub fn new(markets: Arc<Markets>, shards: Arc<Shards>, clock: Clock) -> Self {
        Self { markets, shards, clock, tick_count: 0, cleared: BTreeMap::new() }
    }

    /// Matches and expires orders. Never returns.
    pub async fn run(mut self) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                crossings = self.markets.crossings() => {
                    for crossing in crossings {
                        self.take(&crossing);
                        // A match runs on this thread if its shard is idle.
                        tokio::task::yield_now().await;
                    }
                }
                _ = ticks.tick() => self.tick(),
            }
        }
    }

    /// Takes a crossing to the shards that it concerns.
    pub fn take(&self, crossing: &Crossing) {
        let market_id = crossing.market.info().condition_id.clone();
        for shard in crossing.shards.iter() {
            let book = crossing.book.clone().map(|book| (crossing.outcome, book));
            let command = MatchOrders { market_id: market_id.clone(), book, after: None };
            self.shards.match_orders(shard, command);
        }
    }

    /// Ends the orders that have expired, and looks again at the markets of refused work.
    pub fn tick(&mut self) {
        self.tick_count = self.tick_count.wrapping_add(1);
        for shard in self.shards.open_orders().due(self.clock.now()) {
            self.shards.end_due_orders(shard);
        }
        for market_id in self.shards.take_unmatched() {
            self.cleared.remove(&market_id);
            self.markets.look_again_by_id(&market_id);
        }
        if self.tick_count % TICKS_PER_CHECK == 1 {
            self.clear_books();
        }
    }

    /// Ends the orders in markets whose books the venue has cleared since the last check.
    fn clear_books(&mut self) {
        let now = self.clock.now();
        let markets = &self.markets;
        self.cleared.retain(|market_id, _| markets.by_condition(market_id).is_some());
        for (market, shards) in markets.interested() {
            let market_id = market.info().condition_id.clone();
            let cleared_at = market.info().books_cleared_at.filter(|&at| at <= now);
            let Some(at) = cleared_at else { continue };
            if self.cleared.insert(market_id.clone(), at) == Some(at) {
                continue;
            }
            for shard in shards.iter() {
                self.shards.clear_books(shard, ClearBooks { market_id: market_id.clone(), at });
            }
        }
    }
}

#[cfg(test)]
mod tests;
