//! The open orders of a shard, by price and by expiry.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use crate::engine::order::order_state::OrderState;
use crate::engine::state::heap::{set_bytes, tree_bytes};
use crate::ids::{MarketIndex, OrderId, OutcomeIndex, Timestamp};
use crate::market::book::Side;
use crate::market::quote::QuotedBook;
use crate::money::Price;

/// One side of the book of one outcome.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BookSide {
    /// The market's index in the shard.
    pub market: MarketIndex,
    /// The outcome's index in the market.
    pub outcome: OutcomeIndex,
    /// The side of the resting orders.
    pub side: Side,
}

/// The priority of an open order in its book: better prices first, then older orders. The fields
/// are packed, since a shard has one priority per open order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Priority {
    /// From the highest bit: the market, 32 bits; the outcome, 8; the side, 1; and the rank, which
    /// rises as prices get worse.
    packed: u64,
    /// The order's counter. Older orders have lower counters.
    pub(in crate::engine) counter: u64,
}

/// The number of bits in a rank. A price has at most a million steps.
const RANK_BITS: u32 = 23;
const RANK_MAX: u64 = (1 << RANK_BITS) - 1;

impl Priority {
    /// Returns the priority of an order with this limit.
    pub fn new(on: BookSide, limit: Price, order: OrderId) -> Self {
        let micros = limit.micros().clamp(0, Price::ONE.micros());
        let rank = match on.side {
            Side::Buy => Price::ONE.micros() - micros,
            Side::Sell => micros,
        };
        Self::at(on, rank.cast_unsigned(), order.counter())
    }

    const fn at(on: BookSide, rank: u64, counter: u64) -> Self {
        debug_assert!(rank <= RANK_MAX, "a rank must not reach into the side");
        let side = match on.side {
            Side::Buy => 0,
            Side::Sell => 1,
        };
        let place = (on.market.0 as u64) << 32 | (on.outcome.0 as u64) << 24 | side << RANK_BITS;
        Self { packed: place | rank, counter }
    }

    /// Returns the side of the book that the order rests on.
    pub fn on(&self) -> BookSide {
        let [.., outcome, _, _, _] = self.packed.to_be_bytes();
        let market = u32::try_from(self.packed >> 32).expect("the upper half");
        let is_buy = self.packed & 1 << RANK_BITS == 0;
        BookSide {
            market: MarketIndex(market),
            outcome: OutcomeIndex(outcome),
            side: if is_buy { Side::Buy } else { Side::Sell },
        }
    }

    /// Returns the limit price.
    pub fn limit(&self) -> Price {
        let rank = Price::from_micros((self.packed & RANK_MAX).cast_signed());
        match self.on().side {
            Side::Buy => rank.complement(),
            Side::Sell => rank,
        }
    }

    /// Returns a priority ahead of every order on one side of a book.
    pub(in crate::engine) const fn before(on: BookSide) -> Self {
        Self::at(on, 0, 0)
    }

    const fn last(on: BookSide) -> Self {
        Self::at(on, RANK_MAX, u64::MAX)
    }
}

/// The open orders of a shard.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct OpenOrders {
    /// The slots of the resting orders, by priority.
    by_price: BTreeMap<Priority, u32>,
    /// The orders that wait for their first fresh book.
    awaiting: BTreeSet<Priority>,
    by_expiry: BTreeSet<(Timestamp, u64)>,
}

/// The version of a published book, used to tell whether one book is newer than another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) struct BookVersion {
    /// The book's sequence plus 1, and in the lowest bit whether the book is a mirror image of the
    /// other outcome's.
    packed: NonZeroU64,
}

impl BookVersion {
    pub(in crate::engine) fn of(quoted: &QuotedBook<'_>) -> Self {
        let sequence = quoted.book.sequence.saturating_add(1) << 1;
        let packed = sequence | u64::from(quoted.liquidity.is_mirrored());
        Self { packed: NonZeroU64::new(packed).expect("it counts from 1") }
    }

    /// Whether an order that was placed on this version may fill on `later`. The order has already
    /// been matched with all versions up to its own.
    pub(in crate::engine) const fn is_before(self, later: Self) -> bool {
        let [placed_on, later] = [self.packed.get(), later.packed.get()];
        placed_on & 1 != later & 1 || placed_on < later
    }
}

impl OpenOrders {
    /// Returns the heap memory of the indexes, in bytes.
    pub(in crate::engine) fn bytes(&self) -> usize {
        tree_bytes(&self.by_price) + set_bytes(&self.awaiting) + set_bytes(&self.by_expiry)
    }

    pub(in crate::engine) fn insert(
        &mut self,
        priority: Priority,
        slot: u32,
        order_state: &OrderState,
    ) {
        let former = self.by_price.insert(priority, slot);
        assert!(former.is_none(), "an order is opened once");
        if order_state.awaits_book {
            self.awaiting.insert(priority);
        }
        if let Some(at) = order_state.terms.time_in_force.expires_at() {
            self.by_expiry.insert((at, priority.counter));
        }
    }

    pub(in crate::engine) fn remove(&mut self, priority: Priority, order_state: &OrderState) {
        self.by_price.remove(&priority);
        self.awaiting.remove(&priority);
        if let Some(at) = order_state.terms.time_in_force.expires_at() {
            self.by_expiry.remove(&(at, priority.counter));
        }
    }

    /// Removes an order from those that wait for their first fresh book.
    pub(in crate::engine) fn admit(&mut self, priority: Priority) {
        self.awaiting.remove(&priority);
    }

    pub(in crate::engine) fn len(&self) -> usize {
        self.by_price.len()
    }

    /// Returns the best limit price on one side of a book; `None` if no order rests there.
    pub(in crate::engine) fn best(&self, on: BookSide) -> Option<Price> {
        let (best, _) = self.by_price.range(Priority::before(on)..=Priority::last(on)).next()?;
        Some(best.limit())
    }

    /// Returns the orders on one side of a book that come after `after`, best first.
    pub(in crate::engine) fn on_side(
        &self,
        on: BookSide,
        after: Option<Priority>,
    ) -> impl Iterator<Item = (Priority, u32)> + '_ {
        use std::ops::Bound::{Excluded, Included};
        let first = match after {
            // `BTreeMap::range` panics if the end is before the start.
            Some(after) if after >= Priority::last(on) => Excluded(Priority::last(on)),
            Some(after) if after >= Priority::before(on) => Excluded(after),
            _ => Included(Priority::before(on)),
        };
        let range = self.by_price.range((first, Included(Priority::last(on))));
        range.map(|(&priority, &slot)| (priority, slot))
    }

    /// Returns the orders on one side of a book that wait for their first fresh book.
    pub(in crate::engine) fn awaiting(
        &self,
        on: BookSide,
    ) -> impl Iterator<Item = (Priority, u32)> + '_ {
        let range = self.awaiting.range(Priority::before(on)..=Priority::last(on));
        range.map(|priority| (*priority, self.by_price[priority]))
    }

    /// Returns the slots of the resting orders of a market.
    pub(in crate::engine) fn of_market(
        &self,
        market: MarketIndex,
    ) -> impl Iterator<Item = u32> + '_ {
        let first = BookSide { market, outcome: OutcomeIndex(0), side: Side::Buy };
        let last = BookSide { market, outcome: OutcomeIndex(u8::MAX), side: Side::Sell };
        let range = self.by_price.range(Priority::before(first)..=Priority::last(last));
        range.map(|(_, &slot)| slot)
    }

    /// Returns the book sides on which orders rest, without duplicates.
    pub(in crate::engine) fn sides(&self) -> impl Iterator<Item = BookSide> + '_ {
        let mut sides: Vec<BookSide> = self.by_price.keys().map(Priority::on).collect();
        // Removes all duplicates, since priorities are sorted by side first.
        sides.dedup();
        sides.into_iter()
    }

    /// Returns the counters of the orders that have expired by `now`, earliest first.
    pub(in crate::engine) fn due(&self, now: Timestamp) -> impl Iterator<Item = u64> + '_ {
        self.by_expiry.range(..=(now, u64::MAX)).map(|&(_, counter)| counter)
    }

    /// Returns the time at which the next order expires.
    pub(in crate::engine) fn next_expiry(&self) -> Option<Timestamp> {
        self.by_expiry.first().map(|&(at, _)| at)
    }
}
