//! What an order asked for when it was placed, and what a fill gave it.

use smallvec::SmallVec;

use super::idempotency::{Fingerprint, NAMES_PER_ORDER_MAX, NameHash};
use crate::ids::{AccountId, MarketIndex, OrderId, OutcomeIndex, Timestamp};
use crate::market::book::Side;
use crate::money::{FeeRate, Price, Shares, Usd};

/// An order as it was placed. None of this changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// The order.
    pub order: OrderId,
    /// Whose.
    pub account: AccountId,
    /// In which market.
    pub market: MarketIndex,
    /// Of which outcome.
    pub outcome: OutcomeIndex,
    /// Which way.
    pub side: Side,
    /// The order as it was sent, hashed.
    pub fingerprint: Fingerprint,
    /// The names that it goes by, at most [`NAMES_PER_ORDER_MAX`].
    pub names: SmallVec<[NameHash; NAMES_PER_ORDER_MAX]>,
    /// The name that its body gave.
    pub client_order_id: Option<Box<str>>,
}

/// What was taken, what it cost, and what the account had afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fill {
    /// The sum of the sizes.
    pub quantity: Shares,
    /// Σ price × size, rounded once against the trader.
    pub notional: Usd,
    /// The sum of the levels' fees.
    pub fee: Usd,
    /// The rate that the fee was computed at.
    pub fee_rate: FeeRate,
    /// Cash afterwards.
    pub balance: Usd,
    /// Shares of this outcome afterwards.
    pub position_shares: Shares,
    /// What those shares cost, fees outside.
    pub position_cost: Usd,
    /// When.
    pub at: Timestamp,
}

impl Fill {
    /// notional / quantity, to six decimals.
    pub fn price(&self) -> Price {
        self.notional.per_share(self.quantity).expect("a fill is of more than no shares")
    }

    /// Cost a share of the position afterwards, 0 when it is closed.
    pub fn average_entry_price(&self) -> Price {
        self.position_cost.per_share(self.position_shares).unwrap_or(Price::ZERO)
    }
}
