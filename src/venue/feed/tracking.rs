//! What the changes of a token's book mean for the orders that rest on it: how much its levels have
//! grown, and which shards a published book may concern.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use paperbourse_core::ids::{OutcomeIndex, Timestamp};
use paperbourse_core::market::book::{Book, Ladder, Level, Side};
use paperbourse_core::market::crossing::Crossing;
use paperbourse_core::market::growth::{Grown, Growth};
use paperbourse_core::market::interest::{Interest, ShardSet};
use paperbourse_core::market::{Market, Markets};
use paperbourse_core::money::{Price, Shares};

/// The growth of a token's book since orders rest in its market.
pub(super) struct Tracking {
    /// `None` until a change after the first order has come to rest.
    growth: Option<Growth>,
    /// Rises with each change that is not tracked, so that books of one era either have the same
    /// levels or tell how much each has grown between them.
    era: u32,
    /// Whether all levels of the next book count as grown: no order could fill on the last book, or
    /// that book hid some levels, or it is unknown what has grown since.
    is_all_new: bool,
    /// Whether something could fill on the last published book.
    was_fresh: bool,
}

/// A book that has been published.
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

    /// Starts to track if orders rest in the market. `ladder` is the one before a change, so that
    /// the change counts.
    pub(super) fn prepare(&mut self, market: &Market, ladder: &Ladder) {
        if self.growth.is_none() && market.interest().is_some() {
            self.growth = Some(Growth::starting_from(ladder));
        }
    }

    /// A level has changed.
    pub(super) fn set(&mut self, side: Side, price: Price, size: Shares, at: Timestamp) {
        match &mut self.growth {
            Some(growth) => growth.set(side, price, size, at),
            None => self.restart(),
        }
    }

    /// All levels have been replaced.
    pub(super) fn replace(&mut self, ladder: &Ladder, at: Timestamp) {
        match &mut self.growth {
            Some(growth) => growth.replace(ladder, at),
            None => self.restart(),
        }
    }

    /// Begins a new era: what the levels were before is unknown or was not tracked.
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

    /// Queues a book that has just been published, if it may concern resting orders.
    pub(super) fn published(&mut self, markets: &Markets, published: &Published<'_>) {
        let &Published { market, outcome, stale, is_uncrossed } = published;
        let grown = self.growth.as_mut().map_or_else(Grown::default, Growth::take_grown);
        let is_all_new = std::mem::replace(&mut self.is_all_new, stale || is_uncrossed);
        let was_fresh = std::mem::replace(&mut self.was_fresh, !stale);
        let Some(interest) = market.interest() else { return };
        // A market that is opened again is looked at again.
        let has_grown = is_all_new || grown != Grown::default();
        if stale || !has_grown || !market.info().is_tradable() {
            return;
        }
        // See `market::interest`.
        fence(Ordering::SeqCst);
        let Some(book) = market.book(outcome).clone() else { return };
        let reach = if is_all_new { touch(book.ladder()) } else { shown(grown, book.ladder()) };
        let mut shards = concerned(interest, outcome, reach, was_fresh);
        if let Some(other) = mirror(market, outcome) {
            shards = shards.union(concerned(interest, other, mirrored(reach), was_fresh));
        }
        if !shards.is_empty() {
            let market = market.clone();
            markets.cross(Crossing { market, outcome, book: Some(book), shards });
        }
    }
}

/// The shards with orders of an outcome that these levels reach. If nothing could fill before, also
/// those whose orders are out of reach: they were accepted without a book to judge them on.
fn concerned(
    interest: &Interest,
    outcome: OutcomeIndex,
    reach: Grown,
    was_fresh: bool,
) -> ShardSet {
    if !was_fresh {
        return interest.any(outcome);
    }
    let reached = |resting, level: Option<Price>| {
        level.map_or(ShardSet::EMPTY, |price| interest.reached_by(outcome, resting, price))
    };
    reached(Side::Buy, reach.ask).union(reached(Side::Sell, reach.bid))
}

fn touch(ladder: &Ladder) -> Grown {
    let price = |level: Option<Level>| level.map(|level| level.price);
    Grown { bid: price(ladder.best_bid()), ask: price(ladder.best_ask()) }
}

/// The best levels that have grown, as far as they are shown. One that is hidden or gone again
/// counts as the best one shown.
fn shown(grown: Grown, ladder: &Ladder) -> Grown {
    let touch = touch(ladder);
    Grown {
        bid: grown.bid.zip(touch.bid).map(|(grown, touch)| grown.min(touch)),
        ask: grown.ask.zip(touch.ask).map(|(grown, touch)| grown.max(touch)),
    }
}

/// The other outcome of a market with two, if it trades on the mirror of this one's book.
fn mirror(market: &Market, outcome: OutcomeIndex) -> Option<OutcomeIndex> {
    if market.info().outcomes.len() != 2 {
        return None;
    }
    let other = OutcomeIndex(1 - outcome.0);
    market.book(other).is_none().then_some(other)
}

/// These levels as the other outcome trades on them.
fn mirrored(reach: Grown) -> Grown {
    Grown { bid: reach.ask.map(Price::complement), ask: reach.bid.map(Price::complement) }
}

#[cfg(test)]
mod tests;
