//! An order as its shard keeps it, and the receipt that every answer about it is written from.

use std::sync::Arc;

use smallvec::SmallVec;

use super::event::OrderFilled;
use super::idempotency::{Fingerprint, NAMES_PER_ORDER_MAX, NameHash};
use super::slab::Row;
use super::state_hash::{StateHash, Term, TermKind};
use super::used_market::UsedMarket;
use crate::faults::{self, Fault};
use crate::ids::{AccountId, MarketIndex, OrderId, OutcomeIndex, Timestamp};
use crate::market::book::Side;
use crate::money::{FeeRate, Price, Shares, Usd};

/// An order as its shard keeps it: everything that does not change once it has filled. There are
/// many of them, so the row is packed; [`OrderRow`] is the form to work with.
#[derive(Clone, Debug)]
pub struct Order {
    id: OrderId,
    quantity: Shares,
    notional: Usd,
    fee: Usd,
    balance: Usd,
    position_shares: Shares,
    position_cost: Usd,
    at: Timestamp,
    /// Where the record of the fill stands in the log, 0 when that does not matter any more.
    position_in_log: u64,
    client_order_id: Option<Box<str>>,
    fingerprint: Fingerprint,
    names: [NameHash; NAMES_PER_ORDER_MAX],
    /// The counter of the account.
    account: u32,
    market: MarketIndex,
    fee_rate: u32,
    slippage_bps: u32,
    level_count: u16,
    outcome: OutcomeIndex,
    /// Side, whether there is a slippage, and the number of names.
    flags: u8,
}

const _: () = assert!(size_of::<Option<Order>>() <= 160, "a million orders are 160 MB");

/// Set for a sale.
const FLAG_SELL: u8 = 1;
/// Set when there is a slippage.
const FLAG_SLIPPAGE: u8 = 1 << 1;
/// How far the number of names is shifted.
const NAME_COUNT_SHIFT: u8 = 2;

impl Row for Order {
    type Id = OrderId;

    fn id(&self) -> OrderId {
        self.id
    }

    fn counter(id: OrderId) -> u64 {
        id.counter()
    }
}

impl Order {
    /// The order that a fill made. `None` when a number is outside of what an order can have.
    pub(super) fn filled(fill: &OrderFilled, position_in_log: u64) -> Option<Self> {
        if fill.account.shard() != fill.order.shard() {
            return None;
        }
        Some(Self {
            id: fill.order,
            quantity: fill.quantity,
            notional: fill.notional,
            fee: fill.fee,
            balance: fill.balance,
            position_shares: fill.position_shares,
            position_cost: fill.position_cost,
            at: fill.at,
            position_in_log,
            client_order_id: fill.client_order_id.clone(),
            fingerprint: fill.fingerprint,
            names: packed_names(fill.names.as_slice())?,
            account: u32::try_from(fill.account.counter()).ok()?,
            market: fill.market,
            fee_rate: u32::try_from(fill.fee_rate.micros()).ok()?,
            slippage_bps: fill.slippage_bps.unwrap_or(0),
            level_count: u16::try_from(fill.levels.len()).ok()?,
            outcome: fill.outcome,
            flags: flags(fill.side, fill.slippage_bps, &fill.names),
        })
    }

    /// The packed form. `None` when a number is outside of what an order can have.
    pub(super) fn pack(row: OrderRow, position_in_log: u64) -> Option<Self> {
        if row.account.shard() != row.id.shard() {
            return None;
        }
        Some(Self {
            id: row.id,
            quantity: row.quantity,
            notional: row.notional,
            fee: row.fee,
            balance: row.balance,
            position_shares: row.position_shares,
            position_cost: row.position_cost,
            at: row.at,
            position_in_log,
            client_order_id: row.client_order_id,
            fingerprint: row.fingerprint,
            names: packed_names(&row.names)?,
            account: u32::try_from(row.account.counter()).ok()?,
            market: row.market,
            fee_rate: u32::try_from(row.fee_rate.micros()).ok()?,
            slippage_bps: row.slippage_bps.unwrap_or(0),
            level_count: row.level_count,
            outcome: row.outcome,
            flags: flags(row.side, row.slippage_bps, &row.names),
        })
    }

    /// All fields.
    pub fn row(&self) -> OrderRow {
        OrderRow {
            id: self.id,
            account: self.account(),
            market: self.market,
            outcome: self.outcome,
            side: self.side(),
            level_count: self.level_count,
            quantity: self.quantity,
            notional: self.notional,
            fee: self.fee,
            fee_rate: FeeRate::from_micros(self.fee_rate.into()),
            balance: self.balance,
            position_shares: self.position_shares,
            position_cost: self.position_cost,
            slippage_bps: self.slippage_bps(),
            fingerprint: self.fingerprint,
            names: self.names().into(),
            client_order_id: self.client_order_id.clone(),
            at: self.at,
        }
    }

    /// Its id.
    pub const fn id(&self) -> OrderId {
        self.id
    }

    /// Whose.
    pub fn account(&self) -> AccountId {
        AccountId::new(self.id.shard(), self.account.into()).expect("it was packed from an id")
    }

    /// In which market.
    pub const fn market(&self) -> MarketIndex {
        self.market
    }

    /// Which way.
    pub const fn side(&self) -> Side {
        if self.flags & FLAG_SELL == 0 { Side::Buy } else { Side::Sell }
    }

    /// The order as it was sent, hashed.
    pub const fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    pub(super) fn names(&self) -> &[NameHash] {
        &self.names[..usize::from(self.flags >> NAME_COUNT_SHIFT)]
    }

    pub(super) const fn position_in_log(&self) -> u64 {
        self.position_in_log
    }

    fn slippage_bps(&self) -> Option<u32> {
        (self.flags & FLAG_SLIPPAGE != 0).then_some(self.slippage_bps)
    }

    /// What answers about it are written from; `market` is the one that it was in.
    pub(super) fn receipt(&self, market: &UsedMarket) -> OrderReceipt {
        OrderReceipt {
            order: self.id,
            account: self.account(),
            market_id: market.condition_id.clone(),
            outcome: market.label(self.outcome),
            side: self.side(),
            quantity: self.quantity,
            notional: self.notional,
            fee: self.fee,
            balance: self.balance,
            position_shares: self.position_shares,
            position_cost: self.position_cost,
            level_count: self.level_count,
            slippage_bps: self.slippage_bps(),
            client_order_id: self.client_order_id.clone(),
            at: self.at,
        }
    }

    /// The order's term in the state hash, its names included. An order does not change, so this
    /// is added once, and taken away when the order is forgotten.
    pub(super) fn term(&self) -> StateHash {
        let place =
            u64::from(self.market.0) << 16 | u64::from(self.outcome.0) << 8 | u64::from(self.flags);
        let rates = u64::from(self.slippage_bps) << 32 | u64::from(self.fee_rate);
        // With the fault somebody else than the hash has to notice it.
        let is_nameless = faults::is_on(Fault::IdempotencyNotRestored);
        let [first, second] =
            if is_nameless { [NameHash::from_bytes([0; 16]); 2] } else { self.names };
        let term = Term::new(TermKind::Order)
            .pair(self.id.get(), place)
            .pair(u64::from(self.account) << 16 | u64::from(self.level_count), rates)
            .signed_pair(self.quantity.micros(), self.notional.micros())
            .signed_pair(self.fee.micros(), self.balance.micros())
            .signed_pair(self.position_shares.micros(), self.position_cost.micros())
            .signed(self.at.nanos())
            .sixteen(&self.fingerprint.to_bytes())
            .sixteen(&first.to_bytes())
            .sixteen(&second.to_bytes())
            .optional_text(self.client_order_id.as_deref());
        term.finish()
    }
}

/// `None` when there are more than an order can have.
fn packed_names(names: &[NameHash]) -> Option<[NameHash; NAMES_PER_ORDER_MAX]> {
    let none = NameHash::from_bytes([0; 16]);
    match *names {
        [] => Some([none; NAMES_PER_ORDER_MAX]),
        [one] => Some([one, none]),
        [one, other] => Some([one, other]),
        _ => None,
    }
}

/// The names are at most [`NAMES_PER_ORDER_MAX`].
fn flags(side: Side, slippage_bps: Option<u32>, names: &[NameHash]) -> u8 {
    names.len().to_le_bytes()[0] << NAME_COUNT_SHIFT
        | if slippage_bps.is_some() { FLAG_SLIPPAGE } else { 0 }
        | if side == Side::Sell { FLAG_SELL } else { 0 }
}

/// A finished order, all of it but its comments: what a snapshot writes and reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderRow {
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
    /// Its names, at most [`NAMES_PER_ORDER_MAX`].
    pub names: SmallVec<[NameHash; NAMES_PER_ORDER_MAX]>,
    /// The name that its body gave.
    pub client_order_id: Option<Box<str>>,
    /// When it filled.
    pub at: Timestamp,
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
