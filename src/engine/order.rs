//! An order as its shard keeps it, and the receipt that every answer about it is written from.

use std::sync::Arc;

use super::event::OrderFilled;
use super::idempotency::{Fingerprint, NameHash};
use super::state_hash::{StateHash, Term, TermKind};
use crate::ids::{AccountId, CommentId, MarketIndex, OrderId, OutcomeIndex, Place, Timestamp};
use crate::market::book::Side;
use crate::money::{FeeRate, Price, Shares, Usd};

/// A filled order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Order {
    /// Its id.
    pub id: OrderId,
    /// Whose.
    pub account: AccountId,
    /// In which market.
    pub market: MarketIndex,
    /// Of which outcome.
    pub outcome: OutcomeIndex,
    /// Which way.
    pub side: Side,
    /// How many levels it took.
    pub level_count: u16,
    /// Shares.
    pub quantity: Shares,
    /// Dollars, fee outside.
    pub notional: Usd,
    /// Dollars.
    pub fee: Usd,
    /// The rate of the fee.
    pub fee_rate: FeeRate,
    /// Cash of the account afterwards.
    pub balance: Usd,
    /// Shares of the position afterwards.
    pub position_shares: Shares,
    /// What those cost.
    pub position_cost: Usd,
    /// How much worse than the reference price, if there was one.
    pub slippage_bps: Option<u32>,
    /// The order as it was sent, hashed.
    pub fingerprint: Fingerprint,
    /// The name that its body gave.
    pub client_order_id: Option<Box<str>>,
    /// When it filled.
    pub at: Timestamp,
    /// Its comments, oldest first.
    pub comments: Vec<CommentId>,
    /// The newest record that changed the order or its comments.
    pub last_place: Place,
}

impl Order {
    /// The order that a fill made.
    pub(super) fn filled(fill: &OrderFilled, place: Place) -> Self {
        Self {
            id: fill.order,
            account: fill.account,
            market: fill.market,
            outcome: fill.outcome,
            side: fill.side,
            level_count: u16::try_from(fill.levels.len()).expect("a side has at most 9,999 levels"),
            quantity: fill.quantity,
            notional: fill.notional,
            fee: fill.fee,
            fee_rate: fill.fee_rate,
            balance: fill.balance,
            position_shares: fill.position_shares,
            position_cost: fill.position_cost,
            slippage_bps: fill.slippage_bps,
            fingerprint: fill.fingerprint,
            client_order_id: fill.client_order_id.clone(),
            at: fill.at,
            comments: Vec::new(),
            last_place: place,
        }
    }

    /// The order's term in the state hash. An order does not change, so this is added once.
    pub(super) fn term(&self) -> StateHash {
        let place = u64::from(self.market.0) << 16
            | u64::from(self.outcome.0) << 8
            | u64::from(self.side == Side::Sell);
        Term::new(TermKind::Order)
            .number(self.id.get())
            .number(self.account.get())
            .number(place)
            .number(self.level_count.into())
            .signed(self.quantity.micros())
            .signed(self.notional.micros())
            .signed(self.fee.micros())
            .signed(self.fee_rate.micros())
            .signed(self.balance.micros())
            .signed(self.position_shares.micros())
            .signed(self.position_cost.micros())
            .optional(self.slippage_bps.map(i64::from))
            .bytes(&self.fingerprint.to_bytes())
            .optional_text(self.client_order_id.as_deref())
            .signed(self.at.nanos())
            .finish()
    }
}

/// The term of one name of an order.
pub(super) fn name_term(order: OrderId, name: NameHash) -> StateHash {
    Term::new(TermKind::OrderName).number(order.get()).bytes(&name.to_bytes()).finish()
}

/// Everything that an answer about an order shows. The first answer and every replay are written
/// from it, so that they are equal to the byte.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderReceipt {
    /// Its id.
    pub order: OrderId,
    /// Whose.
    pub account: AccountId,
    /// The venue's name for the market.
    pub market_id: Arc<str>,
    /// The label of the outcome.
    pub outcome: Arc<str>,
    /// Which way.
    pub side: Side,
    /// Shares.
    pub quantity: Shares,
    /// Dollars, fee outside.
    pub notional: Usd,
    /// Dollars.
    pub fee: Usd,
    /// Cash of the account afterwards.
    pub balance: Usd,
    /// Shares of the position afterwards.
    pub position_shares: Shares,
    /// What those cost.
    pub position_cost: Usd,
    /// How many levels it took.
    pub level_count: u16,
    /// How much worse than the reference price, if there was one.
    pub slippage_bps: Option<u32>,
    /// The name that its body gave.
    pub client_order_id: Option<Box<str>>,
    /// When it filled.
    pub at: Timestamp,
}

impl OrderReceipt {
    /// notional / quantity, to six decimals.
    pub fn price(&self) -> Price {
        self.notional.per_share(self.quantity).expect("an order is for more than no shares")
    }

    /// Cost a share of the position afterwards, 0 when it is closed.
    pub fn average_entry_price(&self) -> Price {
        self.position_cost.per_share(self.position_shares).unwrap_or(Price::ZERO)
    }
}
