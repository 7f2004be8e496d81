//! An account's position in one outcome.

use crate::engine::state::hash::{StateHash, Term, TermKind};
use crate::ids::{AccountId, MarketIndex, OutcomeIndex};
use crate::market::book::Side;
use crate::money::{Price, Shares, Usd};

/// A position in one outcome: its shares, their cost, and the realised profit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The market's index in the shard.
    pub market: MarketIndex,
    /// The outcome's index in the market.
    pub outcome: OutcomeIndex,
    /// The shares held; 0 if closed, never negative.
    pub shares: Shares,
    /// The cost of the shares held, without fees; 0 if closed, never negative.
    pub cost: Usd,
    /// Realised profit: proceeds minus cost of all shares sold or paid out, without fees.
    pub realised: Usd,
    /// Whether a reset of the account closed the position, and it has not been reopened since.
    pub closed_by_reset: bool,
}

impl Position {
    /// Creates a position without shares.
    pub const fn empty(market: MarketIndex, outcome: OutcomeIndex) -> Self {
        Self {
            market,
            outcome,
            shares: Shares::ZERO,
            cost: Usd::ZERO,
            realised: Usd::ZERO,
            closed_by_reset: false,
        }
    }

    /// Whether the position holds shares.
    pub fn is_open(&self) -> bool {
        self.shares > Shares::ZERO
    }

    /// Returns the cost per share, to six decimals; 0 if closed.
    pub fn average_entry_price(&self) -> Price {
        self.cost.per_share(self.shares).unwrap_or(Price::ZERO)
    }

    /// Returns the position after a fill. A sale removes a proportional part of the cost, rounded
    /// down, so that closing leaves exactly 0. `None` if a sum exceeds its range, or if the fill
    /// sells more shares than the position has.
    #[inline]
    pub fn after_fill(mut self, side: Side, quantity: Shares, notional: Usd) -> Option<Self> {
        match side {
            Side::Buy => {
                self.shares = self.shares.checked_add(quantity)?;
                self.cost = self.cost.checked_add(notional)?;
                debug_assert!(self.cost >= Usd::ZERO, "shares cost no less than nothing");
                self.closed_by_reset = false;
            }
            Side::Sell => {
                if quantity > self.shares {
                    return None;
                }
                let cost = self.cost.share_floor(quantity, self.shares);
                self.shares -= quantity;
                self.cost -= cost;
                debug_assert!(self.cost >= Usd::ZERO, "a sale removes at most the whole cost");
                debug_assert!(
                    self.is_open() || self.cost == Usd::ZERO,
                    "a closed position has no cost"
                );
                self.realised = self.realised.checked_add(notional.checked_sub(cost)?)?;
            }
        }
        Some(self)
    }

    /// Returns the position after its market has paid out all of its shares; `None` if the profit
    /// exceeds its range.
    pub fn after_payout(mut self, payout: Usd) -> Option<Self> {
        self.realised = self.realised.checked_add(payout.checked_sub(self.cost)?)?;
        self.shares = Shares::ZERO;
        self.cost = Usd::ZERO;
        Some(self)
    }

    /// Returns the position after a reset of its account. The cost does not count as a loss, since
    /// the reset replaces all money.
    pub(in crate::engine) const fn after_reset(mut self) -> Self {
        self.shares = Shares::ZERO;
        self.cost = Usd::ZERO;
        self.closed_by_reset = true;
        self
    }

    /// Returns the position's term in the state hash.
    #[inline]
    pub(in crate::engine) fn term(&self, account: AccountId) -> StateHash {
        let kind = if self.closed_by_reset { TermKind::ResetPosition } else { TermKind::Position };
        Term::new(kind)
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
    fn a_sale_reduces_the_cost_in_proportion() {
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
