//! An account's fill log. [`crate::engine::fills`] says which accounts have a log.

use std::collections::VecDeque;

use crate::engine::fills::fill::Fill;
use crate::engine::order::open::BookSide;
use crate::engine::state::hash::{StateHash, Term, TermKind};
use crate::ids::{AccountId, MarketIndex, OrderId, OutcomeIndex};
use crate::market::book::Side;
use crate::sizes::Size;

/// The maximum number of fills in an account's log; the oldest are dropped first. Replay depends on
/// this number, so operators cannot configure it.
pub const LOGGED_FILLS_MAX: Size = Size::new(100_000, 50);

/// A fill in an account's log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoggedFill {
    /// The order that filled.
    pub order: OrderId,
    /// The fill's number within its order, from 1.
    pub part: u32,
    /// The market's index in the shard.
    pub market: MarketIndex,
    /// The outcome's index in the market.
    pub outcome: OutcomeIndex,
    /// Buy or sell.
    pub side: Side,
    /// The fill, with the account's balance and position after it.
    pub fill: Fill,
}

const _: () = assert!(size_of::<LoggedFill>() <= 88, "the longest log has 8.8 MB");

impl LoggedFill {
    /// Creates the log entry of a fill on one side of a book.
    pub(in crate::engine) const fn new(
        order: OrderId,
        part: u32,
        on: BookSide,
        fill: Fill,
    ) -> Self {
        let BookSide { market, outcome, side } = on;
        Self { order, part, market, outcome, side, fill }
    }

    /// Returns the fill's term in the state hash. `number` is the fill's number within the account.
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

/// The fill log of an account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::engine) struct FillLog {
    /// The number of fills before the log began. Each of them filled an order of its own.
    pub(in crate::engine) began_after: u64,
    /// The newest fills since the log began, oldest first.
    pub(in crate::engine) fills: VecDeque<LoggedFill>,
}

impl FillLog {
    pub(in crate::engine) const fn new(began_after: u64) -> Self {
        Self { began_after, fills: VecDeque::new() }
    }

    /// Restores a log with these fills. Returns `None` if their number does not match the account's
    /// fill count.
    pub(in crate::engine) fn restored(
        began_after: u64,
        fills: VecDeque<LoggedFill>,
        fill_count_ever: u64,
    ) -> Option<Self> {
        let logged_ever = fill_count_ever.checked_sub(began_after)?;
        let kept_count = logged_ever.min(LOGGED_FILLS_MAX.get() as u64);
        (fills.len() as u64 == kept_count).then_some(Self { began_after, fills })
    }

    /// Adds a fill. If the log is full, removes and returns its oldest fill.
    pub(in crate::engine) fn push(&mut self, fill: LoggedFill) -> Option<LoggedFill> {
        let is_full = self.fills.len() == LOGGED_FILLS_MAX.get();
        let forgotten = if is_full { self.fills.pop_front() } else { None };
        self.fills.push_back(fill);
        forgotten
    }

    /// Returns the log's terms in the state hash: one for its start, and one for each fill.
    pub(in crate::engine) fn term(&self, account: AccountId, fill_count_ever: u64) -> StateHash {
        assert!(
            self.fills.len() as u64 <= fill_count_ever,
            "an account logs no more fills than it ever had"
        );
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

/// The fill log of an account, as snapshots write and read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FillLogRow<'a> {
    /// The account.
    pub account: AccountId,
    /// The number of fills before the log began.
    pub began_after: u64,
    /// The newest fills since the log began, oldest first.
    pub fills: &'a VecDeque<LoggedFill>,
}
