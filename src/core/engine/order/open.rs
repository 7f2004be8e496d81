//! The open orders of a shard, by price and by expiry.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use crate::engine::order::life::Life;
use crate::engine::state::heap::{set_bytes, tree_bytes};
use crate::ids::{MarketIndex, OrderId, OutcomeIndex, Timestamp};
use crate::market::book::Side;
use crate::market::quote::QuotedBook;
use crate::money::Price;

/// One side of one outcome's book, as far as this shard's orders rest on it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BookSide {
    /// The market, by the shard's index.
    pub market: MarketIndex,
    /// The outcome's index in the market.
    pub outcome: OutcomeIndex,
    /// The side of the resting orders.
    pub side: Side,
}

/// The place of an open order in its book: better prices first, then older orders. There are many,
/// so this is packed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Priority {
    /// From the highest bit: the market, 32 bits; the outcome, 8; the side, 1; and the rank, which
    /// rises as prices get worse.
    packed: u64,
    /// The order's counter: older orders have lower ones.
    pub(in crate::engine) counter: u64,
}

/// The number of bits of a rank: a price has at most a million steps.
const RANK_BITS: u32 = 23;
const RANK_MAX: u64 = (1 << RANK_BITS) - 1;

impl Priority {
    /// The place of an order with this limit.
    pub fn new(on: BookSide, limit: Price, order: OrderId) -> Self {
        let micros = limit.micros().clamp(0, Price::ONE.micros());
        let rank = match on.side {
            Side::Buy => Price::ONE.micros() - micros,
            Side::Sell => micros,
        };
        Self::at(on, rank.cast_unsigned(), order.counter())
    }

    const fn at(on: BookSide, rank: u64, counter: u64) -> Self {
        let side = match on.side {
            Side::Buy => 0,
            Side::Sell => 1,
        };
        let place = (on.market.0 as u64) << 32 | (on.outcome.0 as u64) << 24 | side << RANK_BITS;
        Self { packed: place | rank, counter }
    }

    /// The book and side.
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

    /// The limit price.
    pub fn limit(&self) -> Price {
        let rank = Price::from_micros((self.packed & RANK_MAX).cast_signed());
        match self.on().side {
            Side::Buy => rank.complement(),
            Side::Sell => rank,
        }
    }

    /// The place before the first order on one side of a book.
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
    /// The slots of the orders.
    by_price: BTreeMap<Priority, u32>,
    /// Those that wait for their first fresh book.
    awaiting: BTreeSet<Priority>,
    by_expiry: BTreeSet<(Timestamp, u64)>,
}

/// One published book, as far as it matters whether it is newer than another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) struct BookVersion {
    /// The book's sequence, and in the lowest bit whether it is the other outcome's, mirrored.
    packed: NonZeroU64,
}

impl BookVersion {
    pub(in crate::engine) fn of(quoted: &QuotedBook<'_>) -> Self {
        let sequence = quoted.book.sequence.saturating_add(1) << 1;
        let packed = sequence | u64::from(quoted.liquidity.is_mirrored());
        Self { packed: NonZeroU64::new(packed).expect("it counts from 1") }
    }

    /// Whether an order that was placed on the book of this version may fill on a later one. It
    /// has met all books up to its own.
    pub(in crate::engine) const fn is_before(self, later: Self) -> bool {
        let [placed_on, later] = [self.packed.get(), later.packed.get()];
        placed_on & 1 != later & 1 || placed_on < later
    }
}

impl OpenOrders {
    /// The memory of the indexes.
    pub(in crate::engine) fn bytes(&self) -> usize {
        tree_bytes(&self.by_price) + set_bytes(&self.awaiting) + set_bytes(&self.by_expiry)
    }

    pub(in crate::engine) fn insert(&mut self, priority: Priority, slot: u32, life: &Life) {
        self.by_price.insert(priority, slot);
        if life.awaits_book {
            self.awaiting.insert(priority);
        }
        if let Some(at) = life.terms.time_in_force.expires_at() {
            self.by_expiry.insert((at, priority.counter));
        }
    }

    pub(in crate::engine) fn remove(&mut self, priority: Priority, life: &Life) {
        self.by_price.remove(&priority);
        self.awaiting.remove(&priority);
        if let Some(at) = life.terms.time_in_force.expires_at() {
            self.by_expiry.remove(&(at, priority.counter));
        }
    }

    /// Notes that the order has met its first fresh book.
    pub(in crate::engine) fn admit(&mut self, priority: Priority) {
        self.awaiting.remove(&priority);
    }

    pub(in crate::engine) fn len(&self) -> usize {
        self.by_price.len()
    }

    /// The best limit on one side of a book.
    pub(in crate::engine) fn best(&self, on: BookSide) -> Option<Price> {
        let (best, _) = self.by_price.range(Priority::before(on)..=Priority::last(on)).next()?;
        Some(best.limit())
    }

    /// The orders on one side of a book that come after `after`, best first.
    pub(in crate::engine) fn on_side(
        &self,
        on: BookSide,
        after: Option<Priority>,
    ) -> impl Iterator<Item = (Priority, u32)> + '_ {
        use std::ops::Bound::{Excluded, Included};
        let first = match after {
            // The end of the range may not be before its start.
            Some(after) if after >= Priority::last(on) => Excluded(Priority::last(on)),
            Some(after) if after >= Priority::before(on) => Excluded(after),
            _ => Included(Priority::before(on)),
        };
        let range = self.by_price.range((first, Included(Priority::last(on))));
        range.map(|(&priority, &slot)| (priority, slot))
    }

    /// The orders on one side of a book that wait for their first fresh book.
    pub(in crate::engine) fn awaiting(
        &self,
        on: BookSide,
    ) -> impl Iterator<Item = (Priority, u32)> + '_ {
        let range = self.awaiting.range(Priority::before(on)..=Priority::last(on));
        range.map(|priority| (*priority, self.by_price[priority]))
    }

    /// The open orders of a market.
    pub(in crate::engine) fn of_market(
        &self,
        market: MarketIndex,
    ) -> impl Iterator<Item = u32> + '_ {
        let first = BookSide { market, outcome: OutcomeIndex(0), side: Side::Buy };
        let last = BookSide { market, outcome: OutcomeIndex(u8::MAX), side: Side::Sell };
        let range = self.by_price.range(Priority::before(first)..=Priority::last(last));
        range.map(|(_, &slot)| slot)
    }

    /// The sides of books on which orders rest.
    pub(in crate::engine) fn sides(&self) -> impl Iterator<Item = BookSide> + '_ {
        let mut sides: Vec<BookSide> = self.by_price.keys().map(Priority::on).collect();
        sides.dedup();
        sides.into_iter()
    }

    /// The counters of the orders that have expired, the earliest first.
    pub(in crate::engine) fn due(&self, now: Timestamp) -> impl Iterator<Item = u64> + '_ {
        self.by_expiry.range(..=(now, u64::MAX)).map(|&(_, counter)| counter)
    }

    /// When the next order expires.
    pub(in crate::engine) fn next_expiry(&self) -> Option<Timestamp> {
        self.by_expiry.first().map(|&(at, _)| at)
    }
}
