//! Tracks how much the levels of a token's book have grown, and which shards have resting orders
//! that a published book may fill.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use paperbourse_core::ids::{OutcomeIndex, Timestamp};
use paperbourse_core::market::book::{Book, Ladder, Level, Side};
use paperbourse_core::market::crossing::Crossing;
use paperbourse_core::market::growth::{Grown, Growth};
use paperbourse_core::market::resting_limits::{RestingLimits, ShardSet};
use paperbourse_core::market::{Market, Markets};
use paperbourse_core::money::{Price, Shares};

/// The growth of a token's book since the first order came to rest in its market.
pub(super) struct Tracking {
    /// `None` until the first change after an order came to rest.
    growth: Option<Growth>,
    /// Incremented by each untracked change. Two books of one era either have the same levels or
    /// record how much each level grew between them.
    era: u32,
    /// Whether all levels of the next book count as grown, because the last book was stale or hid
    /// some levels, or because a change since then was not tracked.
    is_all_new: bool,
    /// Whether the last published book was fresh, so that orders could fill on it.
    was_fresh: bool,
}

/// A book that was just published.
pub(super) struct Published<'a> {
    pub(super) market: &'a Arc<Market>,
    pub(super) outcome: OutcomeIndex,
    pub(super) stale: bool,
    /// Whether crossed levels are hidden.
    pub(super) is_uncrossed: bool,
}

impl Tracking {
    pub(super) fn new() -> Self {
        Self { growth: None, era: 0, is_all_new: true, was_fresh: false }
    }

    /// Starts tracking once orders rest in the market. Must be called before each change, with the
    /// ladder before that change, so that the change itself is tracked.
    pub(super) fn prepare(&mut self, market: &Market, ladder: &Ladder) {
        if self.growth.is_none() && market.resting_limits().is_some() {
            self.growth = Some(Growth::starting_from(ladder));
        }
    }

    /// Records the new size of one level.
    pub(super) fn set(&mut self, side: Side, price: Price, size: Shares, at: Timestamp) {
        match &mut self.growth {
            Some(growth) => growth.set(side, price, size, at),
            None => self.restart(),
        }
    }

    /// Records that all levels were replaced.
    pub(super) fn replace(&mut self, ladder: &Ladder, at: Timestamp) {
        match &mut self.growth {
            Some(growth) => growth.replace(ladder, at),
            None => self.restart(),
        }
    }

    /// Starts a new era, because the previous levels are unknown or were not tracked.
    pub(super) fn restart(&mut self) {
        self.growth = None;
        self.era = self.era.wrapping_add(1);
        self.is_all_new = true;
    }

    /// Adds the growth to a book that is about to be published.
    pub(super) fn describe(&mut self, book: &mut Book) {
        book.era = self.era;
        book.growth = self.growth.as_mut().and_then(Growth::numbers);
    }

    /// Queues the book that was just published for the shards whose resting orders it may fill.
    pub(super) fn published(&mut self, markets: &Markets, published: &Published<'_>) {
        let &Published { market, outcome, stale, is_uncrossed } = published;
        let grown = self.growth.as_mut().map_or_else(Grown::default, Growth::take_grown);
        let is_all_new = std::mem::replace(&mut self.is_all_new, stale || is_uncrossed);
        let was_fresh = std::mem::replace(&mut self.was_fresh, !stale);
        let Some(resting_limits) = market.resting_limits() else { return };
        // Growth in a closed market is dropped: [`Markets::list`] rechecks a market that reopens.
        let has_grown = is_all_new || grown != Grown::default();
        if stale || !has_grown || !market.info().is_tradable() {
            return;
        }
        // Pairs with the fence of a shard's runner; see `market::resting_limits`.
        fence(Ordering::SeqCst);
        let Some(book) = market.book(outcome).clone() else { return };
        let reach = if is_all_new { touch(book.ladder()) } else { shown(grown, book.ladder()) };
        let mut shards = concerned(resting_limits, outcome, reach, was_fresh);
        if let Some(other) = mirror(market, outcome) {
            shards = shards.union(concerned(resting_limits, other, mirrored(reach), was_fresh));
        }
        if !shards.is_empty() {
            let market = market.clone();
            markets.cross(Crossing { market, outcome, book: Some(book), shards });
        }
    }
}

/// Returns the shards with resting orders that these levels reach. If the last book was stale,
/// returns all shards with resting orders for the outcome, since orders may have been accepted
/// without a book to match against.
fn concerned(
    resting_limits: &RestingLimits,
    outcome: OutcomeIndex,
    reach: Grown,
    was_fresh: bool,
) -> ShardSet {
    if !was_fresh {
        return resting_limits.any(outcome);
    }
    let reached = |resting, level: Option<Price>| {
        level.map_or(ShardSet::EMPTY, |price| resting_limits.reached_by(outcome, resting, price))
    };
    reached(Side::Buy, reach.ask).union(reached(Side::Sell, reach.bid))
}

fn touch(ladder: &Ladder) -> Grown {
    let price = |level: Option<Level>| level.map(|level| level.price);
    Grown { bid: price(ladder.best_bid()), ask: price(ladder.best_ask()) }
}

/// Limits the grown levels to those that are published. A grown level that is hidden or already
/// gone counts as the best published level.
fn shown(grown: Grown, ladder: &Ladder) -> Grown {
    let touch = touch(ladder);
    Grown {
        bid: grown.bid.zip(touch.bid).map(|(grown, touch)| grown.min(touch)),
        ask: grown.ask.zip(touch.ask).map(|(grown, touch)| grown.max(touch)),
    }
}

/// Returns the other outcome of a binary market, if it has no book of its own and trades on the
/// mirror image of this outcome's book.
fn mirror(market: &Market, outcome: OutcomeIndex) -> Option<OutcomeIndex> {
    if market.info().outcomes.len() != 2 {
        return None;
    }
    let other = OutcomeIndex(1 - outcome.0);
    market.book(other).is_none().then_some(other)
}

/// Converts levels to the other outcome, which trades at the complement on the opposite side.
fn mirrored(reach: Grown) -> Grown {
    Grown { bid: reach.ask.map(Price::complement), ask: reach.bid.map(Price::complement) }
}

#[cfg(test)]
mod tests;
