//! A fill as a trade of the venue's CLOB.
//!
//! Here nobody is on the other side of a fill, and no transaction settles it. Clients fail on a
//! trade without either, and some wait until a trade has a transaction, so both are made up.

use std::borrow::Cow;

use serde::Serialize;

use super::settlement::Stage;
use super::{
    CONFIRMED, MakerOrderRow, Party, Seconds, fee_rate_bps, hash_of, order_id, transaction_hash,
};
use paperbourse_clob::signature::address::{ADDRESS_BYTES, Address};
use paperbourse_core::engine::fills::PastFill;
use paperbourse_core::engine::fills::fill::Fill;
use paperbourse_core::engine::order::receipt::OrderReceipt;
use paperbourse_core::ids::{OrderId, condition};
use paperbourse_core::market::book::Side;
use paperbourse_core::money::Usd;
use paperbourse_core::wire::Decimal;

/// The owner of whatever nobody owns.
const NOBODY: &str = "00000000-0000-0000-0000-000000000000";

/// A trade, as of the side that took liquidity.
#[derive(Serialize)]
pub(crate) struct TradeRow<'a> {
    /// The number of the caller's order and that of the fill within it.
    id: String,
    taker_order_id: Cow<'a, str>,
    market: Cow<'a, str>,
    asset_id: &'a str,
    side: &'static str,
    /// In shares.
    size: Decimal,
    fee_rate_bps: Decimal,
    price: Decimal,
    pub(crate) status: &'static str,
    /// In seconds since 1970.
    match_time: Seconds,
    last_update: Seconds,
    outcome: &'a str,
    bucket_index: u32,
    /// The taker's API key.
    owner: &'a str,
    /// The taker's wallet.
    maker_address: String,
    transaction_hash: String,
    /// The side that the caller was on.
    trader_side: &'static str,
    /// The order that rested.
    maker_orders: [MakerOrderRow<'a>; 1],
}

/// A fill of one's own order.
pub(crate) struct Trade<'a> {
    pub(crate) order: OrderId,
    /// The fill's number within the order.
    pub(crate) part: u32,
    pub(crate) market_id: &'a str,
    pub(crate) token_id: &'a str,
    pub(crate) outcome: &'a str,
    pub(crate) side: Side,
    pub(crate) fill: &'a Fill,
    pub(crate) client_order_id: Option<&'a str>,
    pub(crate) is_taker: bool,
}

impl<'a> From<&'a PastFill> for Trade<'a> {
    fn from(past: &'a PastFill) -> Self {
        let PastFill { row, token_id, .. } = past;
        Self {
            order: row.order,
            part: row.part,
            market_id: &row.market_id,
            token_id,
            outcome: &row.outcome,
            side: row.side,
            fill: &row.fill,
            client_order_id: row.client_order_id.as_deref(),
            is_taker: past.is_taker(),
        }
    }
}

impl<'a> Trade<'a> {
    /// Returns a fill of an order, with this number within the order.
    pub(crate) fn of_order(
        receipt: &'a OrderReceipt,
        token_id: &'a str,
        part: u32,
        fill: &'a Fill,
        is_taker: bool,
    ) -> Self {
        Self {
            order: receipt.order,
            part,
            market_id: &receipt.market_id,
            token_id,
            outcome: &receipt.outcome,
            side: receipt.side,
            fill,
            client_order_id: receipt.client_order_id.as_deref(),
            is_taker,
        }
    }
}

/// One of the two orders of a trade.
struct Half<'a> {
    order_id: Cow<'a, str>,
    owner: &'a str,
    wallet: Address,
    side: Side,
    fee_rate_bps: Decimal,
}

impl<'a> Half<'a> {
    fn own(trade: &Trade<'a>, party: &Party<'a>) -> Self {
        Self {
            order_id: order_id(trade.order, trade.client_order_id),
            owner: party.owner,
            wallet: party.wallet,
            side: trade.side,
            fee_rate_bps: fee_rate_bps(trade.fill),
        }
    }

    /// Makes up the other one.
    fn made_up(trade: &Trade<'a>) -> Self {
        Self {
            order_id: hash_of("counterparty", trade.order, trade.part).into(),
            owner: NOBODY,
            wallet: Address::from_bytes([0; ADDRESS_BYTES]),
            side: trade.side.opposite(),
            fee_rate_bps: Usd::ZERO.into(),
        }
    }
}

impl<'a> TradeRow<'a> {
    /// Returns the row of a trade whose settlement is this far. Only a settled one has a
    /// transaction.
    pub(crate) fn in_stage(mut self, stage: Stage) -> Self {
        if stage != Stage::Confirmed {
            self.status = stage.status();
            self.transaction_hash.clear();
        }
        self
    }

    pub(crate) fn of(trade: &Trade<'a>, party: &Party<'a>) -> Self {
        let &Trade { order, part, token_id, outcome, fill, is_taker, .. } = trade;
        let (own, other) = (Half::own(trade, party), Half::made_up(trade));
        let (taker, maker) = if is_taker { (own, other) } else { (other, own) };
        Self {
            id: format!("{order}-{part}"),
            taker_order_id: taker.order_id,
            market: condition::wide(trade.market_id),
            asset_id: token_id,
            side: taker.side.as_str(),
            size: fill.quantity.into(),
            fee_rate_bps: taker.fee_rate_bps,
            price: fill.price().into(),
            status: CONFIRMED,
            match_time: Seconds(fill.at),
            last_update: Seconds(fill.at),
            outcome,
            bucket_index: 0,
            owner: taker.owner,
            maker_address: taker.wallet.checksummed(),
            transaction_hash: transaction_hash(order, part),
            trader_side: if is_taker { "TAKER" } else { "MAKER" },
            maker_orders: [MakerOrderRow {
                order_id: maker.order_id.into_owned(),
                owner: maker.owner.to_owned(),
                maker_address: maker.wallet.checksummed(),
                matched_amount: fill.quantity.into(),
                price: fill.price().into(),
                fee_rate_bps: maker.fee_rate_bps,
                asset_id: token_id,
                outcome,
                side: maker.side.as_str(),
            }],
        }
    }
}
