//! The log of an account's fills. [`crate::engine::fills`] says which accounts have one.

use std::collections::VecDeque;

use crate::engine::fills::fill::Fill;
use crate::engine::order::open::BookSide;
use crate::engine::state::hash::{StateHash, Term, TermKind};
use crate::ids::{AccountId, MarketIndex, OrderId, OutcomeIndex};
use crate::market::book::Side;
use crate::sizes::Size;

/// How many fills an account logs: the newest. Applying events depends on this number, so it is no
/// rule that the operator can change.
pub const LOGGED_FILLS_MAX: Size = Size::new(100_000, 50);

/// A fill as its account logs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoggedFill {
    /// The order that filled.
    pub order: OrderId,
    /// The number of the fill among those of its order, from 1.
    pub part: u32,
    /// The market, by the shard's index.
    pub market: MarketIndex,
    /// The outcome's index in the market.
    pub outcome: OutcomeIndex,
    /// Buy or sell.
    pub side: Side,
    /// What the fill gave, and what the account had afterwards.
    pub fill: Fill,
}

const _: () = assert!(size_of::<LoggedFill>() <= 88, "the longest log has 8.8 MB");

impl LoggedFill {
    /// A fill on one side of a book.
    pub(in crate::engine) const fn new(
        order: OrderId,
        part: u32,
        on: BookSide,
        fill: Fill,
    ) -> Self {
        let BookSide { market, outcome, side } = on;
        Self { order, part, market, outcome, side, fill }
    }

    /// The term in the state hash of the account's fill with this number.
    pub(in crate::engine) fn term(&self, account: AccountId, number: u64) -> StateHash {
        let Fill { quantity, notional, fee, fee_rate, .. } = self.fill;
        let Fill { balance, position_shares, position_cost, at, .. } = self.fill;
        let is_sale = u64::from(self.side == Side::Sell);
        let outcome = u64::from(self.outcome.0) << 1 | is_sale;
        Term::new(TermKind::LoggedFill)
            .pair(account.get(), number)
            .pair(self.order.get(), u64::from(self.part))
            .pair(u64::from(self.market.0), outcome)
            .signed_pair(quantity.micros(), notional.micros())
            .signed_pair(fee.micros(), fee_rate.micros())
            .signed_pair(balance.micros(), at.nanos())
            .signed_pair(position_shares.micros(), position_cost.micros())
            .finish()
    }
}

/// The log of an account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::engine) struct FillLog {
    /// How many fills the account had when the log began, each of them an order of its own.
    pub(in crate::engine) began_after: u64,
    /// The newest fills since then, oldest first.
    pub(in crate::engine) fills: VecDeque<LoggedFill>,
}

impl FillLog {
    pub(in crate::engine) const fn new(began_after: u64) -> Self {
        Self { began_after, fills: VecDeque::new() }
    }

    /// A log with these fills; `None` if the account would have logged more or fewer.
    pub(in crate::engine) fn restored(
        began_after: u64,
        fills: VecDeque<LoggedFill>,
        fill_count_ever: u64,
    ) -> Option<Self> {
        let logged_ever = fill_count_ever.checked_sub(began_after)?;
        let kept_count = logged_ever.min(LOGGED_FILLS_MAX.get() as u64);
        (fills.len() as u64 == kept_count).then_some(Self { began_after, fills })
    }

    /// Adds a fill, and removes the oldest one if there are too many.
    pub(in crate::engine) fn push(&mut self, fill: LoggedFill) -> Option<LoggedFill> {
        let is_full = self.fills.len() == LOGGED_FILLS_MAX.get();
        let forgotten = if is_full { self.fills.pop_front() } else { None };
        self.fills.push_back(fill);
        forgotten
    }

    /// The log's terms in the state hash: one for its beginning, and one for each fill.
    pub(in crate::engine) fn term(&self, account: AccountId, fill_count_ever: u64) -> StateHash {
        let mut term = self.beginning_term(account);
        let first = fill_count_ever - self.fills.len() as u64 + 1;
        for (number, fill) in (first..).zip(&self.fills) {
            term += fill.term(account, number);
        }
        term
    }

    pub(in crate::engine) fn beginning_term(&self, account: AccountId) -> StateHash {
        Term::new(TermKind::FillLog).pair(account.get(), self.began_after).finish()
    }
}

/// The log of an account, as snapshots write and read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FillLogRow<'a> {
    /// The account.
    pub account: AccountId,
    /// How many fills the account had when the log began.
    pub began_after: u64,
    /// The newest fills since then, oldest first.
    pub fills: &'a VecDeque<LoggedFill>,
}
