//! The life of an order: its terms, its progress and its end.

use crate::engine::order::terms::{
    EndReason, OrderKind, OrderStatus, Reserve, Terms, TimeInForce, resting_notional,
};
use crate::engine::state::hash::{StateHash, Term, TermKind};
use crate::ids::{OrderId, Timestamp};
use crate::market::book::Side;
use crate::money::{Price, Shares, Usd};

/// Terms, progress and end of an order. A market order that filled completely when it was placed
/// has no life, since its fill records everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OrderState {
    /// The order's terms.
    pub terms: Terms,
    /// The fills so far.
    pub progress: Progress,
    /// The end, if the order ended before it filled completely.
    pub end: Option<End>,
    /// Whether the order still waits for its first fresh book.
    pub awaits_book: bool,
    /// Whether the order is delayed for the venue's taker delay, or ended while it was delayed.
    pub is_delayed: bool,
}

/// The sums of an order's fills.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Shares bought or sold.
    pub filled: Shares,
    /// Dollars paid or received for the shares, without fees.
    pub notional: Usd,
    /// Fees paid.
    pub fee: Usd,
    /// The number of fills.
    pub fill_count: u32,
    /// The time of the newest fill; the epoch if there is none.
    pub filled_at: Timestamp,
}

/// The end of an order that did not fill completely.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// Why the order ended.
    pub reason: EndReason,
    /// When the order ended.
    pub at: Timestamp,
}

impl Progress {
    /// Whether the sums are consistent with each other.
    fn is_consistent(&self) -> bool {
        let has_filled = self.filled > Shares::ZERO;
        has_filled == (self.fill_count > 0)
            && (has_filled || *self == Self::default())
            && (0..=self.filled.micros()).contains(&self.notional.micros())
            && self.fee >= Usd::ZERO
    }

    /// Returns the progress after another fill; `None` if a sum exceeds its range.
    pub fn after(self, quantity: Shares, notional: Usd, fee: Usd, at: Timestamp) -> Option<Self> {
        Some(Self {
            filled: self.filled.checked_add(quantity)?,
            notional: self.notional.checked_add(notional)?,
            fee: self.fee.checked_add(fee)?,
            fill_count: self.fill_count.checked_add(1)?,
            filled_at: at,
        })
    }
}

impl OrderState {
    /// Returns the order's status.
    pub fn status(&self) -> OrderStatus {
        let ended = self.end.map(|end| end.reason);
        OrderStatus::of(self.progress.filled, self.terms.quantity, ended)
    }

    /// Whether the order is open.
    pub fn is_open(&self) -> bool {
        self.status() == OrderStatus::Pending
    }

    /// Returns the quantity that has not filled.
    pub fn remaining(&self) -> Shares {
        self.terms.quantity - self.progress.filled
    }

    /// Returns the price at which the order rests. Only limit orders rest, and they always have a
    /// price.
    pub fn limit(&self) -> Price {
        self.terms.price.unwrap_or(Price::ZERO)
    }

    /// Returns the cash or shares that the order reserves while it rests. The reserve of a delayed
    /// order is in its delay instead.
    pub fn reserve(&self, side: Side) -> Reserve {
        if self.is_open() && !self.is_delayed {
            Reserve::of(side, self.limit(), self.remaining())
        } else {
            Reserve::default()
        }
    }

    /// Returns the cost or proceeds of filling `quantity` of the resting order.
    pub fn part_notional(&self, side: Side, quantity: Shares) -> Usd {
        let notional = |left| resting_notional(side, self.limit(), left);
        notional(self.remaining()) - notional(self.remaining() - quantity)
    }

    /// Whether the order has expired.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.terms.time_in_force.expires_at().is_some_and(|at| at <= now)
    }

    /// Whether the fields are consistent with each other, without looking at the rest of the state.
    pub(in crate::engine) fn is_consistent(&self) -> bool {
        let Terms { kind, time_in_force, post_only, awaited_book, quantity, price, delayed_ms } =
            self.terms;
        let rests = time_in_force.may_rest();
        let is_limit = kind == OrderKind::Limit;
        let prices = Price::ZERO..=Price::ONE;
        let reason = self.end.map(|end| end.reason);
        let is_killed = reason.is_some_and(EndReason::is_at_placement);
        let buys_nothing = !is_limit && reason == Some(EndReason::FakNotFilled);
        (quantity > Shares::ZERO || quantity == Shares::ZERO && buys_nothing)
            && (Shares::ZERO..=quantity).contains(&self.progress.filled)
            && (is_limit || !rests)
            && (rests || !post_only && !awaited_book)
            && (awaited_book || !self.awaits_book)
            && (!self.awaits_book || self.is_open())
            && (!self.awaits_book && !self.is_delayed || self.progress == Progress::default())
            && !(self.is_delayed && (post_only || awaited_book || delayed_ms > 0))
            && (!self.is_delayed || reason.is_none_or(EndReason::ends_delayed_orders))
            && self.progress.is_consistent()
            && price.map_or(!is_limit, |price| prices.contains(&price))
            // An order that cannot rest ends when it is placed, and only such an order is killed.
            && (rests || self.is_delayed || self.status() != OrderStatus::Pending)
            && (!is_killed || !rests)
            && !(self.end.is_some() && self.progress.filled == quantity && quantity > Shares::ZERO)
    }

    /// Returns the life's term in the state hash.
    pub(in crate::engine) fn term(&self, order: OrderId) -> StateHash {
        let Terms { time_in_force, quantity, price, delayed_ms, .. } = self.terms;
        let Progress { filled, notional, fee, fill_count, filled_at } = self.progress;
        let flags = u64::from(self.flags()) << 32 | u64::from(fill_count);
        let term = Term::new(TermKind::OrderState)
            .pair(order.get(), flags)
            .signed_pair(quantity.micros(), price.map_or(-1, Price::micros))
            .optional(time_in_force.expires_at().map(Timestamp::nanos))
            .signed_pair(filled.micros(), notional.micros())
            .signed_pair(fee.micros(), filled_at.nanos())
            .optional(self.end.map(|end| end.at.nanos()));
        let term = if delayed_ms > 0 { term.signed(delayed_ms.into()) } else { term };
        term.finish()
    }

    /// Packs all fields that are not numbers into 32 bits. The layout is part of the state hash and
    /// so of the journal's format.
    fn flags(&self) -> u32 {
        let kind = u32::from(self.terms.kind == OrderKind::Limit);
        let time_in_force = match self.terms.time_in_force {
            TimeInForce::GoodTilCancelled => 0,
            TimeInForce::GoodTilDate(_) => 1,
            TimeInForce::FillOrKill => 2,
            TimeInForce::FillAndKill => 3,
        };
        let reason = self.end.map_or(0, |end| 1 + end.reason as u32);
        kind | u32::from(self.terms.post_only) << 1
            | u32::from(self.terms.awaited_book) << 2
            | u32::from(self.awaits_book) << 3
            | time_in_force << 4
            | u32::from(self.is_delayed) << 6
            | u32::from(self.terms.delayed_ms > 0) << 7
            | reason << 8
    }
}
