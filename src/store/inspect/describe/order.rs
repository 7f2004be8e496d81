//! Describes the orders and fills in a record.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::MarketName;
use crate::inspect::text::Text;
use paperbourse_core::engine::UsedMarket;
use paperbourse_core::engine::account::extension::UsedLevel;
use paperbourse_core::engine::event::{OrderDelayed, OrderPlaced, RestingFilled};
use paperbourse_core::engine::fills::fill::{Fill, Placement};
use paperbourse_core::engine::order::terms::EndReason;
use paperbourse_core::ids::{OutcomeIndex, Timestamp};
use paperbourse_core::market::book::{Level, Side};
use paperbourse_core::money::{FeeRate, Price, Shares, Usd};

/// A price level of a fill.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LevelRow {
    /// The price, in dollars per share.
    pub price: Text<Price>,
    /// Number of shares.
    pub size: Text<Shares>,
}

impl LevelRow {
    const fn new(level: &Level) -> Self {
        Self { price: Text(level.price), size: Text(level.size) }
    }
}

/// Use of a price level by an account's resting orders.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct UsedLevelRow {
    /// The price, in dollars per share.
    pub price: Text<Price>,
    /// Number of shares that the level displayed.
    pub shown: Text<Shares>,
    /// Number of the displayed shares that the account's orders may still take.
    pub left: Text<Shares>,
}

impl UsedLevelRow {
    const fn new(level: &UsedLevel) -> Self {
        let UsedLevel { price, shown, left } = *level;
        Self { price: Text(price), shown: Text(shown), left: Text(left) }
    }
}

/// The fill of an order.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the fields are those of the event")]
pub struct FillRow<'a> {
    pub order: u64,
    pub account: u64,
    pub market_index: u32,
    /// `None` if the record that names the market is gone.
    pub market_id: Option<Text<Arc<str>>>,
    pub outcome_index: u8,
    /// `None` if the record that names the market is gone.
    pub outcome: Option<Text<Arc<str>>>,
    pub side: &'static str,
    pub quantity: Text<Shares>,
    pub notional: Text<Usd>,
    pub fee: Text<Usd>,
    pub fee_rate: Text<FeeRate>,
    pub levels: Vec<LevelRow>,
    pub book_sequence: u64,
    pub balance: Text<Usd>,
    pub position_shares: Text<Shares>,
    pub position_cost: Text<Usd>,
    pub slippage_bps: Option<u32>,
    /// Number of idempotency keys of the order.
    pub name_count: usize,
    pub client_order_id: Option<&'a str>,
    pub at: Text<Timestamp>,
}

/// An order that was placed.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the fields are those of the event")]
pub struct PlacedRow<'a> {
    pub order_type: &'static str,
    pub time_in_force: &'static str,
    pub expires_at: Option<Text<Timestamp>>,
    pub post_only: bool,
    /// Whether the order was accepted while its book was stale.
    pub awaited_book: bool,
    /// Time for which the order was delayed, in milliseconds; 0 if it was not delayed.
    #[serde(rename = "held_ms")]
    pub delayed_ms: u32,
    pub asked: Text<Shares>,
    pub limit_price: Option<Text<Price>>,
    /// Reason the order ended at once. `None` if the order did not end at once.
    pub end: Option<&'static str>,
    /// The part of the order that was filled when it was placed.
    #[serde(flatten)]
    pub taken: FillRow<'a>,
}

/// An order that was placed and is delayed.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the fields are those of the event")]
pub struct DelayedRow<'a> {
    pub order: u64,
    pub account: u64,
    pub market_index: u32,
    /// `None` if the record that names the market is gone.
    pub market_id: Option<Text<Arc<str>>>,
    pub outcome_index: u8,
    /// `None` if the record that names the market is gone.
    pub outcome: Option<Text<Arc<str>>>,
    pub side: &'static str,
    pub order_type: &'static str,
    pub time_in_force: &'static str,
    pub expires_at: Option<Text<Timestamp>>,
    pub asked: Text<Shares>,
    pub amount: Option<Text<Usd>>,
    pub limit_price: Option<Text<Price>>,
    pub reserved_cash: Text<Usd>,
    pub reserved_shares: Text<Shares>,
    /// Number of idempotency keys of the order.
    pub name_count: usize,
    pub client_order_id: Option<&'a str>,
    pub due: Text<Timestamp>,
    pub at: Text<Timestamp>,
}

/// A fill of an open order.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the fields are those of the event")]
pub struct RestingFillRow {
    pub order: u64,
    pub quantity: Text<Shares>,
    pub notional: Text<Usd>,
    pub fee: Text<Usd>,
    pub fee_rate: Text<FeeRate>,
    /// The best level that the venue displayed.
    pub displayed: LevelRow,
    pub book_sequence: u64,
    /// The displayed levels that the order used.
    pub used: Vec<UsedLevelRow>,
    pub balance: Text<Usd>,
    pub position_shares: Text<Shares>,
    pub position_cost: Text<Usd>,
    pub at: Text<Timestamp>,
}

impl<'a> FillRow<'a> {
    /// Describes the part of an order that was filled when it was placed: the fill, its levels, the
    /// sequence of its book, and its slippage.
    pub(super) fn new(
        placement: &'a Placement,
        (fill, levels, book_sequence, slippage_bps): (&Fill, &[Level], u64, Option<u32>),
        market: Option<UsedMarket>,
    ) -> Self {
        let OutcomeIndex(outcome_index) = placement.outcome;
        Self {
            order: placement.order.get(),
            account: placement.account.get(),
            market_index: placement.market.0,
            outcome_index,
            outcome: label(placement, market.as_ref()),
            market_id: market.map(|market| Text(market.condition_id)),
            side: placement.side.as_str(),
            quantity: Text(fill.quantity),
            notional: Text(fill.notional),
            fee: Text(fill.fee),
            fee_rate: Text(fill.fee_rate),
            levels: levels.iter().map(LevelRow::new).collect(),
            book_sequence,
            balance: Text(fill.balance),
            position_shares: Text(fill.position_shares),
            position_cost: Text(fill.position_cost),
            slippage_bps,
            name_count: placement.names.len(),
            client_order_id: placement.client_order_id.as_deref(),
            at: Text(fill.at),
        }
    }
}

impl<'a> PlacedRow<'a> {
    pub(super) fn new(placed: &'a OrderPlaced, market: Option<UsedMarket>) -> Self {
        let OrderPlaced { placement, terms, fill, levels, book_sequence, .. } = placed;
        let taken = (fill, &levels[..], *book_sequence, placed.slippage_bps);
        Self {
            order_type: terms.kind.as_str(),
            time_in_force: terms.time_in_force.as_str(),
            expires_at: terms.time_in_force.expires_at().map(Text),
            post_only: terms.post_only,
            awaited_book: terms.awaited_book,
            delayed_ms: terms.delayed_ms,
            asked: Text(terms.quantity),
            limit_price: terms.price.map(Text),
            end: placed.end.map(EndReason::as_str),
            taken: FillRow::new(placement, taken, market),
        }
    }
}

/// Returns the label of the order's outcome.
fn label(placement: &Placement, market: Option<&UsedMarket>) -> Option<Text<Arc<str>>> {
    let (label, _) = market?.outcomes.get(placement.outcome.index())?;
    Some(Text(label.clone()))
}

impl<'a> DelayedRow<'a> {
    pub(super) fn new(delayed: &'a OrderDelayed, market: Option<UsedMarket>) -> Self {
        let OrderDelayed { placement, terms, delay, at } = delayed;
        Self {
            order: placement.order.get(),
            account: placement.account.get(),
            market_index: placement.market.0,
            outcome_index: placement.outcome.0,
            outcome: label(placement, market.as_ref()),
            market_id: market.map(|market| Text(market.condition_id)),
            side: placement.side.as_str(),
            order_type: terms.kind.as_str(),
            time_in_force: terms.time_in_force.as_str(),
            expires_at: terms.time_in_force.expires_at().map(Text),
            asked: Text(terms.quantity),
            amount: delay.amount.map(Text),
            limit_price: terms.price.map(Text),
            reserved_cash: Text(delay.reserve.cash),
            reserved_shares: Text(delay.reserve.shares),
            name_count: placement.names.len(),
            client_order_id: placement.client_order_id.as_deref(),
            due: Text(delay.due),
            at: Text(*at),
        }
    }
}

impl fmt::Display for DelayedRow<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { order, account, side, order_type, time_in_force, asked, .. } = self;
        write!(
            formatter,
            "held order {order}: account {account} {side} {order_type} {time_in_force} {asked} of "
        )?;
        let market = (self.market_index, self.market_id.as_ref());
        write_outcome(formatter, (self.outcome_index, self.outcome.as_ref()), market)?;
        if let Some(price) = self.limit_price {
            write!(formatter, " at {price}")?;
        }
        if let Some(amount) = self.amount {
            write!(formatter, " for {amount}")?;
        }
        let Self { reserved_cash, reserved_shares, due, .. } = self;
        write!(formatter, " until {due}, reserves {reserved_cash} and {reserved_shares} shares")?;
        write_names(formatter, self.client_order_id, self.name_count)
    }
}

/// Writes an outcome and its market.
fn write_outcome(
    formatter: &mut fmt::Formatter<'_>,
    (index, label): (u8, Option<&Text<Arc<str>>>),
    (market_index, market_id): (u32, Option<&Text<Arc<str>>>),
) -> fmt::Result {
    match label {
        Some(Text(label)) => write!(formatter, "{label:?}")?,
        None => write!(formatter, "outcome {index}")?,
    }
    write!(formatter, " in {}", MarketName(market_index, market_id))
}

/// Writes the client order id and the number of names, as the rest of a line.
fn write_names(
    formatter: &mut fmt::Formatter<'_>,
    client_order_id: Option<&str>,
    name_count: usize,
) -> fmt::Result {
    if let Some(name) = client_order_id {
        write!(formatter, ", client order id {name:?}")?;
    }
    match name_count {
        0 => Ok(()),
        1 => write!(formatter, ", 1 name"),
        count => write!(formatter, ", {count} names"),
    }
}

impl RestingFillRow {
    pub(super) fn new(filled: &RestingFilled) -> Self {
        let RestingFilled { order, fill, displayed, book_sequence, used } = filled;
        Self {
            order: order.get(),
            quantity: Text(fill.quantity),
            notional: Text(fill.notional),
            fee: Text(fill.fee),
            fee_rate: Text(fill.fee_rate),
            displayed: LevelRow::new(displayed),
            book_sequence: *book_sequence,
            used: used.iter().map(UsedLevelRow::new).collect(),
            balance: Text(fill.balance),
            position_shares: Text(fill.position_shares),
            position_cost: Text(fill.position_cost),
            at: Text(fill.at),
        }
    }
}

impl fmt::Display for FillRow<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { order, account, quantity, notional, fee, balance, .. } = self;
        let verb = if self.side == Side::Buy.as_str() { "buys" } else { "sells" };
        write!(formatter, "filled order {order}: account {account} {verb} {quantity} of ")?;
        self.write_outcome(formatter)?;
        match self.levels.as_slice() {
            [level] => write!(formatter, " at {}", level.price)?,
            [first, .., last] => {
                let count = self.levels.len();
                write!(formatter, " at {} to {} in {count} levels", first.price, last.price)?;
            }
            [] => {}
        }
        write!(formatter, ", notional {notional}, fee {fee}, balance {balance}")?;
        let Self { position_shares, position_cost, .. } = self;
        write!(formatter, ", holds {position_shares} that cost {position_cost}")?;
        self.write_names(formatter)
    }
}

impl FillRow<'_> {
    fn write_outcome(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let market = (self.market_index, self.market_id.as_ref());
        write_outcome(formatter, (self.outcome_index, self.outcome.as_ref()), market)
    }

    fn write_names(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_names(formatter, self.client_order_id, self.name_count)
    }
}

impl fmt::Display for PlacedRow<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { order_type, time_in_force, asked, taken, .. } = self;
        let FillRow { order, account, side, quantity, balance, .. } = taken;
        write!(
            formatter,
            "placed order {order}: account {account} {side} {order_type} {time_in_force} \
             {asked} of "
        )?;
        taken.write_outcome(formatter)?;
        if let Some(price) = self.limit_price {
            write!(formatter, " at {price}")?;
        }
        if let Some(at) = self.expires_at {
            write!(formatter, " until {at}")?;
        }
        if self.post_only {
            formatter.write_str(", post-only")?;
        }
        if self.awaited_book {
            formatter.write_str(", without a fresh book")?;
        }
        if self.delayed_ms > 0 {
            write!(formatter, ", held for {} ms", self.delayed_ms)?;
        }
        write!(formatter, ", took {quantity} for {}", taken.notional)?;
        write!(formatter, ", fee {}, balance {balance}", taken.fee)?;
        if let Some(reason) = self.end {
            write!(formatter, ", ended: {reason}")?;
        }
        taken.write_names(formatter)
    }
}

impl fmt::Display for RestingFillRow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { order, quantity, notional, fee, balance, displayed, .. } = self;
        let Self { position_shares, position_cost, .. } = self;
        write!(
            formatter,
            "filled {quantity} of open order {order}, notional {notional}, fee {fee}, balance \
             {balance}, holds {position_shares} that cost {position_cost}, book showed {} at {}",
            displayed.size, displayed.price
        )
    }
}
