//! A stored order, and the receipt from which every answer about it is written.

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

/// A filled order as its shard stores it, immutable. There are many, so this is packed;
/// [`OrderRow`] is the unpacked form.
#[derive(Clone, Debug)]
pub struct Order {
    id: OrderId,
    fill: Fill,
    /// The log position of the fill's record; 0 if it has been durable since before the start.
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
    /// The side, whether there is a slippage, and the number of names.
    flags: u8,
}

const _: () = assert!(size_of::<Option<Order>>() <= 160, "a million orders are 160 MB");

/// Set for a sale.
const FLAG_SELL: u8 = 1;
/// Set when there is a slippage.
const FLAG_SLIPPAGE: u8 = 1 << 1;
/// The bits from here on hold the number of names.
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
    /// Packs the order of an event; `None` if a field is out of range.
    pub(super) fn filled(filled: &OrderFilled, position_in_log: u64) -> Option<Self> {
        let OrderFilled { placement, fill, levels, book_sequence: _, slippage_bps } = filled;
        let client_order_id = placement.client_order_id.clone();
        let level_count = u16::try_from(levels.len()).ok()?;
        Self::new(placement, client_order_id, *fill, level_count, *slippage_bps, position_in_log)
    }

    /// Packs a row; `None` if a field is out of range.
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
        // The order's term in the state hash has 32 bits for the rate.
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

    /// The unpacked order.
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

    /// The order's id.
    pub const fn id(&self) -> OrderId {
        self.id
    }

    /// The account that placed the order.
    pub fn account(&self) -> AccountId {
        AccountId::new(self.id.shard(), self.account.into()).expect("it was packed from an id")
    }

    /// The market, by the shard's index.
    pub const fn market(&self) -> MarketIndex {
        self.market
    }

    /// Buy or sell.
    pub const fn side(&self) -> Side {
        if self.flags & FLAG_SELL == 0 { Side::Buy } else { Side::Sell }
    }

    /// The hash of the trading fields as sent.
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

    /// The order's receipt; `market` must be the order's market.
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

    /// The order's term in the state hash, including its names. An order never changes, so the term
    /// is added once and subtracted when the order is forgotten.
    pub(super) fn term(&self) -> StateHash {
        let fill = &self.fill;
        let place =
            u64::from(self.market.0) << 16 | u64::from(self.outcome.0) << 8 | u64::from(self.flags);
        let rates = u64::from(self.slippage_bps) << 32 | fill.fee_rate.micros().cast_unsigned();
        // With this fault injected, something other than the hash must detect it.
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

/// `None` if there are more than [`NAMES_PER_ORDER_MAX`].
fn packed_names(names: &[NameHash]) -> Option<[NameHash; NAMES_PER_ORDER_MAX]> {
    let none = NameHash::from_bytes([0; 16]);
    match *names {
        [] => Some([none; NAMES_PER_ORDER_MAX]),
        [one] => Some([one, none]),
        [one, other] => Some([one, other]),
        _ => None,
    }
}

/// There must be at most [`NAMES_PER_ORDER_MAX`] names.
fn flags(side: Side, slippage_bps: Option<u32>, names: &[NameHash]) -> u8 {
    names.len().to_le_bytes()[0] << NAME_COUNT_SHIFT
        | if slippage_bps.is_some() { FLAG_SLIPPAGE } else { 0 }
        | if side == Side::Sell { FLAG_SELL } else { 0 }
}

/// A filled order without its comments, as snapshots write and read it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderRow {
    /// The order's terms.
    pub placement: Placement,
    /// The fill.
    pub fill: Fill,
    /// The number of levels taken.
    pub level_count: u16,
    /// The slippage in basis points; `None` if the reference price was 0.
    pub slippage_bps: Option<u32>,
}

/// Everything that an answer about an order shows. The first answer and every replay are written
/// from it, so they are identical byte for byte.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderReceipt {
    /// The order's id.
    pub order: OrderId,
    /// The account that placed the order.
    pub account: AccountId,
    /// The market's condition id.
    pub market_id: Arc<str>,
    /// The label of the outcome.
    pub outcome: Arc<str>,
    /// Buy or sell.
    pub side: Side,
    /// The fill.
    pub fill: Fill,
    /// The number of levels taken.
    pub level_count: u16,
    /// The slippage in basis points; `None` if the reference price was 0.
    pub slippage_bps: Option<u32>,
    /// The name from the request's body.
    pub client_order_id: Option<Box<str>>,
}
