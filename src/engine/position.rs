//! What an account holds of one outcome.

use super::state_hash::{StateHash, Term, TermKind};
use crate::ids::{AccountId, MarketIndex, OutcomeIndex};
use crate::market::book::Side;
use crate::money::{Price, Shares, Usd};

/// A holding: shares, what they cost, and what earlier sales have made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// In which market.
    pub market: MarketIndex,
    /// Of which outcome.
    pub outcome: OutcomeIndex,
    /// How many; 0 when closed, never below.
    pub shares: Shares,
    /// What they cost, fees outside; 0 when closed, never below.
    pub cost: Usd,
    /// Proceeds less cost of all shares that were sold, fees outside.
    pub realised: Usd,
}

impl Position {
    /// Nothing yet.
    pub const fn empty(market: MarketIndex, outcome: OutcomeIndex) -> Self {
        Self { market, outcome, shares: Shares::ZERO, cost: Usd::ZERO, realised: Usd::ZERO }
    }

    /// How many shares a new order can sell: all of them, since no open order holds any yet.
    #[inline]
    pub const fn available(&self) -> Shares {
        self.shares
    }

    /// Whether any shares are held.
    pub fn is_open(&self) -> bool {
        self.shares > Shares::ZERO
    }

    /// Cost a share, to six decimals; 0 when closed.
    pub fn average_entry_price(&self) -> Price {
        self.cost.per_share(self.shares).unwrap_or(Price::ZERO)
    }

    /// The position after a fill. A sale takes cost out in proportion, rounded down, so that
    /// closing leaves exactly 0. `None` when a sum leaves its range or more is sold than held.
    #[inline]
    pub fn after_fill(mut self, side: Side, quantity: Shares, notional: Usd) -> Option<Self> {
        match side {
            Side::Buy => {
                self.shares = self.shares.checked_add(quantity)?;
                self.cost = self.cost.checked_add(notional)?;
            }
            Side::Sell => {
                if quantity > self.shares {
                    return None;
                }
                let cost = self.cost.share_floor(quantity, self.shares);
                self.shares -= quantity;
                self.cost -= cost;
                self.realised = self.realised.checked_add(notional.checked_sub(cost)?)?;
            }
        }
        Some(self)
    }

    /// The position after its market has paid for all of its shares. `None` when the profit leaves
    /// its range.
    pub fn after_payout(mut self, payout: Usd) -> Option<Self> {
        self.realised = self.realised.checked_add(payout.checked_sub(self.cost)?)?;
        self.shares = Shares::ZERO;
        self.cost = Usd::ZERO;
        Some(self)
    }

    /// The position's term in the state hash.
    #[inline]
    pub(super) fn term(&self, account: AccountId) -> StateHash {
        Term::new(TermKind::Position)
            .pair(account.get(), u64::from(self.market.0) << 8 | u64::from(self.outcome.0))
            .signed_pair(self.shares.micros(), self.cost.micros())
            .signed(self.realised.micros())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sale_takes_cost_out_in_proportion() {
        let empty = Position::empty(MarketIndex(0), OutcomeIndex(0));
        let shares = Shares::from_micros;
        let usd = Usd::from_micros;
        let bought = empty.after_fill(Side::Buy, shares(3_000_000), usd(1_000_000)).unwrap();
        assert_eq!(bought.average_entry_price(), Price::from_micros(333_333));
        let sold = bought.after_fill(Side::Sell, shares(1_000_000), usd(500_000)).unwrap();
        assert_eq!((sold.shares, sold.cost), (shares(2_000_000), usd(666_667)));
        assert_eq!(sold.realised, usd(500_000 - 333_333));
        let closed = sold.after_fill(Side::Sell, shares(2_000_000), usd(0)).unwrap();
        assert_eq!((closed.shares, closed.cost), (Shares::ZERO, Usd::ZERO));
        assert_eq!(closed.realised, usd(500_000 - 1_000_000));
        assert_eq!(closed.average_entry_price(), Price::ZERO);
        assert!(!closed.is_open());
        assert_eq!(sold.after_fill(Side::Sell, shares(2_000_001), usd(0)), None);
    }
}
