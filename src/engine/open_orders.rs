//! The open orders of a shard, by price and by expiry.

use std::collections::{BTreeMap, BTreeSet};

use super::life::Life;
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

/// The place of an open order in its book: better prices first, then older orders.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Priority {
    /// The book and side.
    pub on: BookSide,
    /// Rises as prices get worse.
    rank: i64,
    /// The order's counter: older orders have lower ones.
    pub(super) counter: u64,
}

impl Priority {
    /// The place of an order with this limit.
    pub fn new(on: BookSide, limit: Price, order: OrderId) -> Self {
        let rank = match on.side {
            Side::Buy => -limit.micros(),
            Side::Sell => limit.micros(),
        };
        Self { on, rank, counter: order.counter() }
    }

    /// The limit price.
    pub const fn limit(&self) -> Price {
        Price::from_micros(self.rank.abs())
    }

    /// The place before the first order on one side of a book.
    pub(super) const fn before(on: BookSide) -> Self {
        Self { on, rank: i64::MIN, counter: 0 }
    }

    const fn first(on: BookSide) -> Self {
        Self::before(on)
    }

    const fn last(on: BookSide) -> Self {
        Self { on, rank: i64::MAX, counter: u64::MAX }
    }
}

/// The open orders of a shard.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenOrders {
    by_price: BTreeMap<Priority, OpenOrder>,
    /// Those that wait for their first fresh book.
    awaiting: BTreeSet<Priority>,
    by_expiry: BTreeSet<(Timestamp, u64)>,
}

/// An open order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OpenOrder {
    /// Its slot in the order table.
    pub(super) slot: u32,
    /// The book on which it was placed, if that was in this process. Older ones do not fill it.
    pub(super) placed_on: Option<BookVersion>,
}

/// One published book.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BookVersion {
    pub(super) is_mirrored: bool,
    pub(super) sequence: u64,
}

impl BookVersion {
    pub(super) const fn of(quoted: &QuotedBook<'_>) -> Self {
        Self { is_mirrored: quoted.liquidity.is_mirrored(), sequence: quoted.book.sequence }
    }
}

impl OpenOrder {
    /// Whether this book was published after the order was placed.
    pub(super) fn is_before(&self, book: BookVersion) -> bool {
        self.placed_on.is_none_or(|placed_on| {
            placed_on.is_mirrored != book.is_mirrored || placed_on.sequence < book.sequence
        })
    }
}

impl OpenOrders {
    pub(super) fn insert(&mut self, priority: Priority, slot: u32, life: &Life) {
        self.by_price.insert(priority, OpenOrder { slot, placed_on: None });
        if life.awaits_book {
            self.awaiting.insert(priority);
        }
        if let Some(at) = life.terms.time_in_force.expires_at() {
            self.by_expiry.insert((at, priority.counter));
        }
    }

    pub(super) fn remove(&mut self, priority: Priority, life: &Life) {
        self.by_price.remove(&priority);
        self.awaiting.remove(&priority);
        if let Some(at) = life.terms.time_in_force.expires_at() {
            self.by_expiry.remove(&(at, priority.counter));
        }
    }

    /// Notes the book on which an order was placed.
    pub(super) fn note_placed(&mut self, priority: Priority, book: BookVersion) {
        if let Some(order) = self.by_price.get_mut(&priority) {
            order.placed_on = Some(book);
        }
    }

    /// Notes that the order has met its first fresh book.
    pub(super) fn admit(&mut self, priority: Priority) {
        self.awaiting.remove(&priority);
    }

    pub(super) fn len(&self) -> usize {
        self.by_price.len()
    }

    /// The best limit on one side of a book.
    pub(super) fn best(&self, on: BookSide) -> Option<Price> {
        let (best, _) = self.by_price.range(Priority::first(on)..=Priority::last(on)).next()?;
        Some(best.limit())
    }

    /// The orders on one side of a book that come after `after`, best first.
    pub(super) fn on_side(
        &self,
        on: BookSide,
        after: Option<Priority>,
    ) -> impl Iterator<Item = (Priority, OpenOrder)> + '_ {
        use std::ops::Bound::{Excluded, Included};
        let first = match after {
            // The end of the range may not be before its start.
            Some(after) if after >= Priority::last(on) => Excluded(Priority::last(on)),
            Some(after) if after >= Priority::first(on) => Excluded(after),
            _ => Included(Priority::first(on)),
        };
        let range = self.by_price.range((first, Included(Priority::last(on))));
        range.map(|(&priority, &order)| (priority, order))
    }

    /// The orders on one side of a book that wait for their first fresh book.
    pub(super) fn awaiting(&self, on: BookSide) -> impl Iterator<Item = (Priority, u32)> + '_ {
        let range = self.awaiting.range(Priority::first(on)..=Priority::last(on));
        range.map(|priority| (*priority, self.by_price[priority].slot))
    }

    /// The open orders of a market.
    pub(super) fn of_market(&self, market: MarketIndex) -> impl Iterator<Item = u32> + '_ {
        let first = BookSide { market, outcome: OutcomeIndex(0), side: Side::Buy };
        let last = BookSide { market, outcome: OutcomeIndex(u8::MAX), side: Side::Sell };
        let range = self.by_price.range(Priority::first(first)..=Priority::last(last));
        range.map(|(_, order)| order.slot)
    }

    /// The sides of books on which orders rest.
    pub(super) fn sides(&self) -> impl Iterator<Item = BookSide> + '_ {
        let mut sides: Vec<BookSide> = self.by_price.keys().map(|priority| priority.on).collect();
        sides.dedup();
        sides.into_iter()
    }

    /// The counters of the orders that have expired, the earliest first.
    pub(super) fn due(&self, now: Timestamp) -> impl Iterator<Item = u64> + '_ {
        self.by_expiry.range(..=(now, u64::MAX)).map(|&(_, counter)| counter)
    }

    /// When the next order expires.
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        self.by_expiry.first().map(|&(at, _)| at)
    }
}
