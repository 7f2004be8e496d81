//! An account's money, by source and use, and its resets.

use crate::engine::state::hash::{StateHash, Term, TermKind};
use crate::ids::{AccountId, Timestamp};
use crate::market::book::Side;
use crate::money::Usd;

/// An account's money, by source and use. Cash is the sum of the sources minus the uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ledger {
    /// Play money granted on opening, by deposits and by resets, minus the money that resets took.
    /// Negative if resets took more than was granted.
    pub granted: Usd,
    /// Notional paid for shares.
    pub purchases: Usd,
    /// Notional received for shares.
    pub sales: Usd,
    /// Fees paid.
    pub fees: Usd,
    /// Payouts received for shares in resolved markets.
    pub payouts: Usd,
    /// The part of the cash reserved for open orders: the sum of the maximum amounts that the
    /// orders may still spend. It is derived from the orders and is neither journaled nor part of
    /// the state hash.
    pub reserved: Usd,
}

/// The resets of an account that was reset at least once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resets {
    /// The number of resets; at least 1.
    pub count: u32,
    /// The cash after the newest reset, against which profit is measured.
    pub balance: Usd,
    /// When the newest reset happened.
    pub at: Timestamp,
}

impl Resets {
    /// Returns the term of the resets in the state hash.
    pub(in crate::engine) fn term(&self, account: AccountId) -> StateHash {
        Term::new(TermKind::Resets)
            .pair(account.get(), self.count.into())
            .signed_pair(self.balance.micros(), self.at.nanos())
            .finish()
    }
}

impl Ledger {
    /// Returns the cash that a new order can spend.
    #[inline]
    pub fn available(&self) -> Usd {
        self.cash() - self.reserved
    }

    /// Returns all cash, including reserved cash.
    #[inline]
    pub fn cash(&self) -> Usd {
        self.checked_cash().expect("every change of a ledger checks its cash")
    }

    /// Like [`Self::cash`], but returns `None` if the cash exceeds the range of an `i64`.
    #[inline]
    pub(in crate::engine) fn checked_cash(&self) -> Option<Usd> {
        self.narrow_cash().or_else(|| self.wide_cash())
    }

    /// Returns the cash, or `None` if an intermediate sum exceeds the range, which does not occur
    /// in practice.
    #[inline]
    fn narrow_cash(&self) -> Option<Usd> {
        let received = self.granted.checked_add(self.sales)?.checked_add(self.payouts)?;
        received.checked_sub(self.purchases)?.checked_sub(self.fees)
    }

    /// Computes the cash in an `i128`, because an intermediate sum may exceed the range of an `i64`
    /// even if the cash does not.
    #[cold]
    fn wide_cash(&self) -> Option<Usd> {
        let wide = |sum: Usd| i128::from(sum.micros());
        let received = wide(self.granted) + wide(self.sales) + wide(self.payouts);
        let spent = wide(self.purchases) + wide(self.fees);
        i64::try_from(received - spent).ok().map(Usd::from_micros)
    }

    /// Returns the ledger after a grant of play money. `granted` is negative if money is taken.
    /// `None` if a sum or the cash exceeds its range.
    pub fn after_grant(mut self, granted: Usd) -> Option<Self> {
        self.granted = self.granted.checked_add(granted)?;
        self.checked_cash()?;
        Some(self)
    }

    /// Returns the ledger after a payout; `None` if a sum or the cash exceeds its range.
    pub fn after_payout(mut self, payout: Usd) -> Option<Self> {
        self.payouts = self.payouts.checked_add(payout)?;
        self.checked_cash()?;
        Some(self)
    }

    /// Returns the ledger after a fill; `None` if a sum or the cash exceeds its range.
    #[inline]
    pub fn after_fill(mut self, side: Side, notional: Usd, fee: Usd) -> Option<Self> {
        let sum = match side {
            Side::Buy => &mut self.purchases,
            Side::Sell => &mut self.sales,
        };
        *sum = sum.checked_add(notional)?;
        self.fees = self.fees.checked_add(fee)?;
        self.checked_cash()?;
        Some(self)
    }

    /// Returns the ledger without a fill that it counts; `None` if a sum or the cash exceeds its
    /// range.
    pub(in crate::engine) fn before_fill(
        mut self,
        side: Side,
        notional: Usd,
        fee: Usd,
    ) -> Option<Self> {
        let sum = match side {
            Side::Buy => &mut self.purchases,
            Side::Sell => &mut self.sales,
        };
        *sum = sum.checked_sub(notional)?;
        self.fees = self.fees.checked_sub(fee)?;
        self.checked_cash()?;
        Some(self)
    }
}
