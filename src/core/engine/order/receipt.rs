//! A stored order, and the receipt from which every answer about it is written.

use std::sync::Arc;

use crate::engine::event::{OrderFilled, OrderPlaced};
use crate::engine::fills::fill::{Fill, Placement};
use crate::engine::market::used::UsedMarket;
use crate::engine::order::delay::Delay;
use crate::engine::order::idempotency::{Fingerprint, NAMES_PER_ORDER_MAX, NameHash};
use crate::engine::order::open::BookSide;
use crate::engine::order::order_state::OrderState;
use crate::engine::state::hash::{StateHash, Term, TermKind};
use crate::engine::state::heap::text_bytes;
use crate::engine::state::slab::{PackedSlot, Row};
use crate::faults::{self, Fault};
use crate::ids::{AccountId, MarketIndex, OrderId, OutcomeIndex, Timestamp};
use crate::market::book::Side;
use crate::money::{FeeRate, Shares, Usd};

/// An order as it was placed, with its fill at placement. The fields are packed, since a shard
/// stores many orders; [`OrderRow`] is the unpacked form. Only an order's life changes, and lives
/// are stored separately.
#[derive(Clone, Debug)]
pub struct Order {
    id: OrderId,
    /// The fill at placement, without the fee rate.
    fill: FillAtPlacement,
    /// The log position of the newest record that changed the order; 0 if that record was already
    /// durable when the process started.
    position_in_log: u64,
    client_order_id: Option<Box<str>>,
    fingerprint: Fingerprint,
    names: [NameHash; NAMES_PER_ORDER_MAX],
    /// The counter of the account's id. The account is in the same shard as the order.
    account: u32,
    market: MarketIndex,
    slippage_bps: u32,
    fee_rate_micros: u32,
    /// The slot of the order's state; `None` if the order filled completely when it was placed.
    pub(in crate::engine) state_slot: Option<PackedSlot>,
    level_count: u16,
    outcome: OutcomeIndex,
    /// The side, whether the slippage is known, and the number of names.
    flags: u8,
}

/// A [`Fill`] without its fee rate.
#[derive(Clone, Copy, Debug)]
struct FillAtPlacement {
    quantity: Shares,
    notional: Usd,
    fee: Usd,
    balance: Usd,
    position_shares: Shares,
    position_cost: Usd,
    at: Timestamp,
}

const _: () = assert!(size_of::<Option<Order>>() <= 160, "a million orders are 160 MB");

/// Set for a sale.
const FLAG_SELL: u8 = 1;
/// Set if the slippage is known.
const FLAG_SLIPPAGE: u8 = 1 << 1;
/// The bit position of the number of names, which takes the remaining bits.
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
    /// Packs the order of an [`OrderFilled`]; `None` if a field is out of range.
    pub(in crate::engine) fn filled(filled: &OrderFilled, position_in_log: u64) -> Option<Self> {
        let OrderFilled { placement, fill, levels, book_sequence: _, slippage_bps } = filled;
        let client_order_id = placement.client_order_id.clone();
        let level_count = u16::try_from(levels.len()).ok()?;
        Self::new(placement, client_order_id, *fill, level_count, *slippage_bps, position_in_log)
    }

    /// Packs the order of an [`OrderPlaced`]; `None` if a field is out of range.
    pub(in crate::engine) fn placed(placed: &OrderPlaced, position_in_log: u64) -> Option<Self> {
        let OrderPlaced { placement, fill, levels, slippage_bps, .. } = placed;
        let client_order_id = placement.client_order_id.clone();
        let level_count = u16::try_from(levels.len()).ok()?;
        Self::new(placement, client_order_id, *fill, level_count, *slippage_bps, position_in_log)
    }

    /// Packs a delayed order, which has not filled yet; `None` if a field is out of range.
    pub(in crate::engine) fn delayed(
        placement: &Placement,
        fill: Fill,
        position_in_log: u64,
    ) -> Option<Self> {
        let client_order_id = placement.client_order_id.clone();
        Self::new(placement, client_order_id, fill, 0, Some(0), position_in_log)
    }

    /// Packs a row without its order state; `None` if a field is out of range.
    pub(in crate::engine) fn pack(mut row: OrderRow, position_in_log: u64) -> Option<Self> {
        let client_order_id = row.placement.client_order_id.take();
        let OrderRow { placement, fill, level_count, slippage_bps, order_state: _, delay: _ } = row;
        Self::new(&placement, client_order_id, fill, level_count, slippage_bps, position_in_log)
    }

    /// Returns the heap memory of the client order id, in bytes.
    #[inline]
    pub(in crate::engine) fn owned_bytes(&self) -> usize {
        self.client_order_id.as_ref().map_or(0, |text| text_bytes(text.len()))
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
        let Fill { quantity, notional, fee, fee_rate, .. } = fill;
        let Fill { balance, position_shares, position_cost, at, .. } = fill;
        Some(Self {
            id: placement.order,
            fill: FillAtPlacement {
                quantity,
                notional,
                fee,
                balance,
                position_shares,
                position_cost,
                at,
            },
            fee_rate_micros: u32::try_from(fee_rate.micros()).ok()?,
            state_slot: None,
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

    /// Returns the unpacked order, with this life and without its delay.
    pub(in crate::engine) fn row(&self, order_state: Option<&OrderState>) -> OrderRow {
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
        let (fill, order_state) = (self.fill(), order_state.copied());
        OrderRow { placement, fill, level_count, slippage_bps, order_state, delay: None }
    }

    /// Returns the fill at placement.
    #[inline]
    pub(in crate::engine) fn fill(&self) -> Fill {
        let FillAtPlacement { quantity, notional, fee, balance, .. } = self.fill;
        let FillAtPlacement { position_shares, position_cost, at, .. } = self.fill;
        let fee_rate = FeeRate::from_micros(self.fee_rate_micros.into());
        Fill { quantity, notional, fee, fee_rate, balance, position_shares, position_cost, at }
    }

    /// Returns the order's id.
    pub const fn id(&self) -> OrderId {
        self.id
    }

    /// Returns the account that placed the order.
    pub fn account(&self) -> AccountId {
        AccountId::new(self.id.shard(), self.account.into()).expect("it was packed from an id")
    }

    /// Returns the market's index in the shard.
    pub const fn market(&self) -> MarketIndex {
        self.market
    }

    /// Returns the outcome's index in the market.
    pub const fn outcome(&self) -> OutcomeIndex {
        self.outcome
    }

    /// Returns the side of the book that the order is on.
    pub(in crate::engine) const fn on(&self) -> BookSide {
        BookSide { market: self.market, outcome: self.outcome, side: self.side() }
    }

    /// Returns the time at which the order was placed.
    pub const fn placed_at(&self) -> Timestamp {
        self.fill.at
    }

    /// Returns the side of the order.
    pub const fn side(&self) -> Side {
        if self.flags & FLAG_SELL == 0 { Side::Buy } else { Side::Sell }
    }

    /// Returns the order's name from the request's body, if the body had one.
    pub(in crate::engine) fn client_order_id(&self) -> Option<&str> {
        self.client_order_id.as_deref()
    }

    /// Returns the hash of the trading fields as sent.
    pub const fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    pub(in crate::engine) fn names(&self) -> &[NameHash] {
        &self.names[..usize::from(self.flags >> NAME_COUNT_SHIFT)]
    }

    pub(in crate::engine) const fn position_in_log(&self) -> u64 {
        self.position_in_log
    }

    /// Marks the order as changed by the record at this log position.
    pub(in crate::engine) const fn touch(&mut self, position_in_log: u64) {
        self.position_in_log = position_in_log;
    }

    fn slippage_bps(&self) -> Option<u32> {
        (self.flags & FLAG_SLIPPAGE != 0).then_some(self.slippage_bps)
    }

    /// Returns the order's receipt. `market` must be the order's market, and `order_state` its
    /// order state.
    pub(in crate::engine) fn receipt(
        &self,
        market: &UsedMarket,
        order_state: Option<&OrderState>,
    ) -> OrderReceipt {
        OrderReceipt {
            order: self.id,
            account: self.account(),
            market_id: market.condition_id.clone(),
            outcome: market.label(self.outcome),
            side: self.side(),
            fill: self.fill(),
            level_count: self.level_count,
            slippage_bps: self.slippage_bps(),
            client_order_id: self.client_order_id.clone(),
            order_state: order_state.copied().map(Box::new),
        }
    }

    /// Returns the order's term in the state hash, including its names but not its order state. The
    /// term never changes, so it is added once and subtracted when the order is removed.
    pub(in crate::engine) fn term(&self) -> StateHash {
        let fill = &self.fill;
        let place =
            u64::from(self.market.0) << 16 | u64::from(self.outcome.0) << 8 | u64::from(self.flags);
        let rates = u64::from(self.slippage_bps) << 32 | u64::from(self.fee_rate_micros);
        // Keeps the hash blind to this injected fault, so that another check has to detect it.
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

/// Packs the names; `None` if there are more than [`NAMES_PER_ORDER_MAX`].
fn packed_names(names: &[NameHash]) -> Option<[NameHash; NAMES_PER_ORDER_MAX]> {
    let none = NameHash::from_bytes([0; 16]);
    match *names {
        [] => Some([none; NAMES_PER_ORDER_MAX]),
        [one] => Some([one, none]),
        [one, other] => Some([one, other]),
        _ => None,
    }
}

/// Packs the flags. There must be at most [`NAMES_PER_ORDER_MAX`] names.
fn flags(side: Side, slippage_bps: Option<u32>, names: &[NameHash]) -> u8 {
    debug_assert!(names.len() <= NAMES_PER_ORDER_MAX, "the number of names must fit its bits");
    names.len().to_le_bytes()[0] << NAME_COUNT_SHIFT
        | if slippage_bps.is_some() { FLAG_SLIPPAGE } else { 0 }
        | if side == Side::Sell { FLAG_SELL } else { 0 }
}

/// An order without its comments, as snapshots write and read it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderRow {
    /// The order's market, side and names.
    pub placement: Placement,
    /// The fill at placement.
    pub fill: Fill,
    /// The number of book levels taken at placement.
    pub level_count: u16,
    /// The slippage in basis points; `None` if the reference price was 0.
    pub slippage_bps: Option<u32>,
    /// The order's state; `None` if an [`OrderFilled`] placed it.
    pub order_state: Option<OrderState>,
    /// The order's delay; `None` if the order is not delayed.
    pub delay: Option<Delay>,
}

impl OrderRow {
    /// Whether the order is open.
    pub fn is_open(&self) -> bool {
        self.order_state.is_some_and(|order_state| order_state.is_open())
    }
}

/// Everything that an answer about an order shows. The first answer and every replay are written
/// from fields that never change, so they are identical byte for byte.
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
    /// The fill at placement.
    pub fill: Fill,
    /// The number of book levels taken at placement.
    pub level_count: u16,
    /// The slippage in basis points; `None` if the reference price was 0.
    pub slippage_bps: Option<u32>,
    /// The order's name from the request's body, if the body had one.
    pub client_order_id: Option<Box<str>>,
    /// The order's state, unless it filled completely when it was placed.
    pub order_state: Option<Box<OrderState>>,
}

impl OrderReceipt {
    /// Whether the order is delayed and has yet to be decided.
    pub fn is_delayed(&self) -> bool {
        self.order_state
            .as_ref()
            .is_some_and(|order_state| order_state.is_delayed && order_state.is_open())
    }
}
