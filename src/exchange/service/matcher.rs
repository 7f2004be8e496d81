//! Drives the open orders: matches them with the books that cross them, and ends orders that have
//! expired or whose books the venue has cleared.
//!
//! The feed determines which shards a change of a book affects, and this task passes the change on
//! to those shards. No client waits for a match, so a full disk or a full queue delays a match but
//! loses none: the market is looked at again later, with the books of that moment.

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

/// Interval between checks for expired orders and delayed matches.
const TICK: Duration = Duration::from_millis(50);

/// Interval between checks for books that the venue has cleared, in ticks.
const TICKS_PER_CHECK: u32 = 20;

/// Drives the open orders.
pub struct Matcher {
    markets: Arc<Markets>,
    shards: Arc<Shards>,
    clock: Clock,
    tick_count: u32,
    /// Markets whose cleared books have been dealt with, and when the venue cleared them.
    cleared: BTreeMap<Arc<str>, Timestamp>,
}

impl Matcher {
    /// Creates a matcher. Only one may run.
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
                        // A match runs on this thread if its shard is idle, so other tasks get a
                        // turn in between.
                        tokio::task::yield_now().await;
                    }
                }
                _ = ticks.tick() => self.tick(),
            }
        }
    }

    /// Passes a crossing on to the shards that it affects.
    pub fn take(&self, crossing: &Crossing) {
        let market_id = crossing.market.info().condition_id.clone();
        for shard in crossing.shards.iter() {
            let book = crossing.book.clone().map(|book| (crossing.outcome, book));
            let command = MatchOrders { market_id: market_id.clone(), book, after: None };
            self.shards.match_orders(shard, command);
        }
    }

    /// Ends the orders that have expired, and looks again at the markets for which a shard refused
    /// work.
    pub fn tick(&mut self) {
        self.tick_count = self.tick_count.wrapping_add(1);
        for shard in self.shards.open_orders().due(self.clock.now()) {
            self.shards.end_due_orders(shard);
        }
        for market_id in self.shards.take_unmatched() {
            // The refused work may have been the clearing of books, so the next check must repeat
            // it.
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
        for (market, shards) in markets.with_resting_orders() {
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
