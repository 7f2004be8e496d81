//! An order as its shard keeps it, and the receipt that every answer about it is written from.

use std::sync::Arc;

use super::event::OrderFilled;
use super::fill::{Fill, Placement};
use super::idempotency::{Fingerprint, NAMES_PER_ORDER_MAX, NameHash};
use super::slab::Row;
use super::state_hash::{StateHash, Term, TermKind};
use super::used_market::UsedMarket;
use crate::faults::{self, Fault};
use crate::ids::{AccountId, MarketIndex, OrderId, OutcomeIndex};
use crate::market::book::Side;

/// An order as its shard keeps it: everything that does not change once it has filled. There are
/// many of them, so the row is packed; [`OrderRow`] is the form to work with.
#[derive(Clone, Debug)]
pub struct Order {
    id: OrderId,
    fill: Fill,
    /// Where the record of the fill stands in the log, 0 when that does not matter any more.
    position_in_log: u64,
    client_order_id: Option<Box<str>>,
    fingerprint: Fingerprint,
    names: [NameHash; NAMES_PER_ORDER_MAX],
    /// The counter of the account.
    account: u32,
    market: MarketIndex,
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
    /// The order that has filled. `None` when a number is outside of what an order can have.
    pub(super) fn filled(filled: &OrderFilled, position_in_log: u64) -> Option<Self> {
        let OrderFilled { placement, fill, levels, book_sequence: _, slippage_bps } = filled;
        let client_order_id = placement.client_order_id.clone();
        let level_count = u16::try_from(levels.len()).ok()?;
        Self::new(placement, client_order_id, *fill, level_count, *slippage_bps, position_in_log)
    }

    /// The packed form. `None` when a number is outside of what an order can have.
    pub(super) fn pack(mut row: OrderRow, position_in_log: u64) -> Option<Self> {
        let client_order_id = row.placement.client_order_id.take();
        let OrderRow { placement, fill, level_count, slippage_bps } = row;
        Self::new(&placement, client_order_id, fill, level_count, slippage_bps, position_in_log)
    }

    #[inline]
    fn new(
        placement: &Placement,
        client_order_id: Option<Box<str>>,
        fill: Fill,
        level_count: u16,
        slippage_bps: Option<u32>,
        position_in_log: u64,
    ) -> Option<Self> {
        if placement.account.shard() != placement.order.shard() {
            return None;
        }
        // Its term in the state hash has 32 bits for it.
        u32::try_from(fill.fee_rate.micros()).ok()?;
        Some(Self {
            id: placement.order,
            fill,
            position_in_log,
            client_order_id,
            fingerprint: placement.fingerprint,
            names: packed_names(&placement.names)?,
            account: u32::try_from(placement.account.counter()).ok()?,
            market: placement.market,
            slippage_bps: slippage_bps.unwrap_or(0),
            level_count,
            outcome: placement.outcome,
            flags: flags(placement.side, slippage_bps, &placement.names),
        })
    }

    /// All fields.
    pub fn row(&self) -> OrderRow {
        let placement = Placement {
            order: self.id,
            account: self.account(),
            market: self.market,
            outcome: self.outcome,
            side: self.side(),
            fingerprint: self.fingerprint,
            names: self.names().into(),
            client_order_id: self.client_order_id.clone(),
        };
        let (level_count, slippage_bps) = (self.level_count, self.slippage_bps());
        OrderRow { placement, fill: self.fill, level_count, slippage_bps }
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
            fill: self.fill,
            level_count: self.level_count,
            slippage_bps: self.slippage_bps(),
            client_order_id: self.client_order_id.clone(),
        }
    }

    /// The order's term in the state hash, its names included. An order does not change, so this
    /// is added once, and taken away when the order is forgotten.
    pub(super) fn term(&self) -> StateHash {
        let fill = &self.fill;
        let place =
            u64::from(self.market.0) << 16 | u64::from(self.outcome.0) << 8 | u64::from(self.flags);
        let rates = u64::from(self.slippage_bps) << 32 | fill.fee_rate.micros().cast_unsigned();
        // With the fault somebody else than the hash has to notice it.
        let is_nameless = faults::is_on(Fault::IdempotencyNotRestored);
        let [first, second] =
            if is_nameless { [NameHash::from_bytes([0; 16]); 2] } else { self.names };
        let term = Term::new(TermKind::Order)
            .pair(self.id.get(), place)
            .pair(u64::from(self.account) << 16 | u64::from(self.level_count), rates)
            .signed_pair(fill.quantity.micros(), fill.notional.micros())
            .signed_pair(fill.fee.micros(), fill.balance.micros())
            .signed_pair(fill.position_shares.micros(), fill.position_cost.micros())
            .signed(fill.at.nanos())
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
    /// The order as it was placed.
    pub placement: Placement,
    /// What it got.
    pub fill: Fill,
    /// How many levels it took.
    pub level_count: u16,
    /// How much worse than the reference price, if there was one.
    pub slippage_bps: Option<u32>,
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
    /// What it got.
    pub fill: Fill,
    /// How many levels it took.
    pub level_count: u16,
    /// How much worse than the reference price, if there was one.
    pub slippage_bps: Option<u32>,
    /// The name that its body gave.
    pub client_order_id: Option<Box<str>>,
}
