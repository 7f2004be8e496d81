//! Orders that the venue delays before it matches them. [`crate::engine::order::delayed`] decides
//! them.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::order::payload::Intent;
use crate::engine::order::terms::{OrderKind, Reserve, Terms, resting_notional};
use crate::engine::state::hash::{StateHash, Term, TermKind};
use crate::engine::state::heap::{set_bytes, tree_bytes};
use crate::ids::{MarketIndex, OrderId, Timestamp};
use crate::market::book::Side;
use crate::money::{Price, Shares, Usd};

/// The maximum slippage bound, in basis points.
const MAX_SLIPPAGE_BPS: u16 = 10_000;

/// The data of a delayed order beyond its terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delay {
    /// When the delay is over.
    pub due: Timestamp,
    /// The cash or shares reserved until the delay is over.
    pub reserve: Reserve,
    /// The dollars to spend, for an order by amount.
    pub amount: Option<Usd>,
    /// The price that the caller saw: the reference for slippage. If `None`, the reference is the
    /// best price in the book.
    pub expected_price: Option<Price>,
    /// The maximum slippage from the reference price in basis points, 0 to 10,000.
    pub max_slippage_bps: Option<u16>,
}

impl Delay {
    pub(in crate::engine) const fn of(intent: &Intent, reserve: Reserve, due: Timestamp) -> Self {
        let &Intent { amount, expected_price, max_slippage_bps, .. } = intent;
        Self { due, reserve, amount, expected_price, max_slippage_bps }
    }

    /// Returns the intent of an order with this delay. For an order by amount, the quantity of the
    /// intent is 0.
    pub(in crate::engine) fn intent(&self, side: Side, terms: Terms) -> Intent {
        let &Self { amount, expected_price, max_slippage_bps, .. } = self;
        let quantity = if amount.is_some() { Shares::ZERO } else { terms.quantity };
        let terms = Terms { quantity, ..terms };
        Intent { side, terms, amount, expected_price, max_slippage_bps }
    }

    /// Whether the delay is valid for an order on this side with these terms.
    pub(in crate::engine) fn is_consistent(&self, side: Side, terms: Terms) -> bool {
        let Self { due: _, reserve, amount, expected_price, max_slippage_bps } = *self;
        let least = match (amount, terms.price) {
            (Some(amount), _) => amount,
            (None, Some(price)) => resting_notional(side, price, terms.quantity),
            (None, None) => Usd::ZERO,
        };
        let has_reserve = match side {
            Side::Buy => reserve.cash >= least && reserve.shares == Shares::ZERO,
            Side::Sell => reserve == Reserve { cash: Usd::ZERO, shares: terms.quantity },
        };
        let takes_amount = side == Side::Buy && terms.kind == OrderKind::Market;
        let prices = Price::ZERO..=Price::ONE;
        has_reserve
            && amount.is_none_or(|amount| takes_amount && amount > Usd::ZERO)
            && expected_price.is_none_or(|price| prices.contains(&price))
            && max_slippage_bps.is_none_or(|bps| bps <= MAX_SLIPPAGE_BPS)
    }

    /// Whether an order that was delayed with the terms `delayed` can be decided with the terms
    /// `decided`.
    pub(in crate::engine) fn permits(&self, delayed: Terms, decided: Terms) -> bool {
        let Terms { quantity, awaited_book, delayed_ms, .. } = decided;
        // The quantity of an order by amount depends on the book at the time of the decision.
        let quantity = if self.amount.is_some() { quantity } else { delayed.quantity };
        delayed_ms > 0 && decided == Terms { quantity, awaited_book, delayed_ms, ..delayed }
    }

    /// Returns the delay's term in the state hash.
    pub(in crate::engine) fn term(&self, order: OrderId) -> StateHash {
        let slippage = self.max_slippage_bps.map_or(-1, i64::from);
        Term::new(TermKind::Delay)
            .pair(order.get(), self.due.nanos().cast_unsigned())
            .signed_pair(self.reserve.cash.micros(), self.reserve.shares.micros())
            .optional(self.amount.map(Usd::micros))
            .optional(self.expected_price.map(Price::micros))
            .signed(slippage)
            .finish()
    }
}

/// The delayed orders of a shard.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Delays {
    by_order: BTreeMap<u64, Delay>,
    by_market: BTreeSet<(MarketIndex, u64)>,
}

impl Delays {
    /// Returns the heap memory of the delays, in bytes.
    pub(in crate::engine) fn bytes(&self) -> usize {
        tree_bytes(&self.by_order) + set_bytes(&self.by_market)
    }

    pub(in crate::engine) fn len(&self) -> usize {
        self.by_order.len()
    }

    pub(in crate::engine) fn get(&self, order: OrderId) -> Option<&Delay> {
        self.by_order.get(&order.counter())
    }

    pub(in crate::engine) fn insert(&mut self, order: OrderId, market: MarketIndex, delay: Delay) {
        let former = self.by_order.insert(order.counter(), delay);
        let is_new = self.by_market.insert((market, order.counter()));
        assert!(former.is_none() && is_new, "an order is delayed once");
    }

    pub(in crate::engine) fn remove(
        &mut self,
        order: OrderId,
        market: MarketIndex,
    ) -> Option<Delay> {
        let was_listed = self.by_market.remove(&(market, order.counter()));
        let delay = self.by_order.remove(&order.counter());
        assert_eq!(was_listed, delay.is_some(), "a delayed order is listed in its market");
        delay
    }

    /// Returns the counters of the delayed orders in a market, oldest first.
    pub(in crate::engine) fn of_market(
        &self,
        market: MarketIndex,
    ) -> impl Iterator<Item = u64> + '_ {
        self.by_market.range((market, 0)..=(market, u64::MAX)).map(|&(_, counter)| counter)
    }

    /// Returns the markets with delayed orders. A market may occur more than once.
    pub(in crate::engine) fn markets(&self) -> impl Iterator<Item = MarketIndex> + '_ {
        self.by_market.iter().map(|&(market, _)| market)
    }

    /// Returns the counters of the delayed orders, oldest first.
    pub(in crate::engine) fn counters(&self) -> impl Iterator<Item = u64> + '_ {
        self.by_order.keys().copied()
    }
}
