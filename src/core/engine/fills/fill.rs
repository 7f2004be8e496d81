//! The terms of an order as placed, and the result of its fill.

use smallvec::SmallVec;

use crate::engine::account::position::Position;
use crate::engine::order::cost::Cost;
use crate::engine::order::idempotency::{Fingerprint, NAMES_PER_ORDER_MAX, NameHash};
use crate::ids::{AccountId, MarketIndex, OrderId, OutcomeIndex, Timestamp};
use crate::market::book::Side;
use crate::money::{FeeRate, Price, Shares, Usd};

/// The immutable terms of an order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// The order's id.
    pub order: OrderId,
    /// The account that placed the order.
    pub account: AccountId,
    /// The market's index in the shard.
    pub market: MarketIndex,
    /// The outcome's index in the market.
    pub outcome: OutcomeIndex,
    /// Buy or sell.
    pub side: Side,
    /// The hash of the trading fields as sent.
    pub fingerprint: Fingerprint,
    /// The caller's names for the order, at most [`NAMES_PER_ORDER_MAX`].
    pub names: SmallVec<[NameHash; NAMES_PER_ORDER_MAX]>,
    /// The order's name from the request's body, if the body had one.
    pub client_order_id: Option<Box<str>>,
}

/// Quantity and cost of a fill, and the account's balance and position after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fill {
    /// The total size of the levels taken.
    pub quantity: Shares,
    /// Σ price × size, rounded once against the trader.
    pub notional: Usd,
    /// The sum of the levels' fees.
    pub fee: Usd,
    /// The rate at which the fee was computed.
    pub fee_rate: FeeRate,
    /// The account's cash after the fill.
    pub balance: Usd,
    /// The account's shares of this outcome after the fill.
    pub position_shares: Shares,
    /// The cost of the position after the fill, without fees.
    pub position_cost: Usd,
    /// The time of the fill.
    pub at: Timestamp,
}

impl Fill {
    /// Creates a fill that leaves the account with this cash and this position.
    #[inline]
    pub(in crate::engine) const fn of(
        quantity: Shares,
        cost: &Cost,
        balance: Usd,
        position: &Position,
        at: Timestamp,
    ) -> Self {
        Self {
            quantity,
            notional: cost.notional,
            fee: cost.fee,
            fee_rate: cost.fee_rate,
            balance,
            position_shares: position.shares,
            position_cost: position.cost,
            at,
        }
    }

    /// Returns the VWAP of the fill, notional / quantity, to six decimals; 0 if nothing filled.
    pub fn price(&self) -> Price {
        self.notional.per_share(self.quantity).unwrap_or(Price::ZERO)
    }

    /// Returns the position's cost per share after the fill; 0 if the position is closed.
    pub fn average_entry_price(&self) -> Price {
        self.position_cost.per_share(self.position_shares).unwrap_or(Price::ZERO)
    }
}
