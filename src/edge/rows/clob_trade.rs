//! A fill as a trade of the venue's CLOB.
//!
//! Here nobody is on the other side of a fill, and no transaction settles it. Clients fail on a
//! trade without either, and some wait until a trade has a transaction, so both are made up.

use std::borrow::Cow;

use serde::Serialize;

use super::{
    CONFIRMED, MakerOrderRow, Party, Seconds, fee_rate_bps, hash_of, order_id, transaction_hash,
};
use paperbourse_clob::signature::address::{ADDRESS_BYTES, Address};
use paperbourse_core::engine::fills::{FillRow, PastFill};
use paperbourse_core::ids::condition;
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
    status: &'static str,
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

/// One of the two orders of a trade.
struct Half<'a> {
    order_id: Cow<'a, str>,
    owner: &'a str,
    wallet: Address,
    side: Side,
    fee_rate_bps: Decimal,
}

impl<'a> Half<'a> {
    fn own(row: &'a FillRow, party: &Party<'a>) -> Self {
        Self {
            order_id: order_id(row.order, row.client_order_id.as_deref()),
            owner: party.owner,
            wallet: party.wallet,
            side: row.side,
            fee_rate_bps: fee_rate_bps(&row.fill),
        }
    }

    /// Makes up the other one.
    fn made_up(row: &'a FillRow) -> Self {
        Self {
            order_id: hash_of("counterparty", row.order, row.part).into(),
            owner: NOBODY,
            wallet: Address::from_bytes([0; ADDRESS_BYTES]),
            side: row.side.opposite(),
            fee_rate_bps: Usd::ZERO.into(),
        }
    }
}

impl<'a> TradeRow<'a> {
    pub(crate) fn of(past: &'a PastFill, party: &Party<'a>) -> Self {
        let PastFill { row, token_id, .. } = past;
        let fill = &row.fill;
        let (own, other) = (Half::own(row, party), Half::made_up(row));
        let is_taker = past.is_taker();
        let (taker, maker) = if is_taker { (own, other) } else { (other, own) };
        Self {
            id: format!("{}-{}", row.order, row.part),
            taker_order_id: taker.order_id,
            market: condition::wide(&row.market_id),
            asset_id: token_id,
            side: taker.side.as_str(),
            size: fill.quantity.into(),
            fee_rate_bps: taker.fee_rate_bps,
            price: fill.price().into(),
            status: CONFIRMED,
            match_time: Seconds(fill.at),
            last_update: Seconds(fill.at),
            outcome: &row.outcome,
            bucket_index: 0,
            owner: taker.owner,
            maker_address: taker.wallet.checksummed(),
            transaction_hash: transaction_hash(row.order, row.part),
            trader_side: if is_taker { "TAKER" } else { "MAKER" },
            maker_orders: [MakerOrderRow {
                order_id: maker.order_id.into_owned(),
                owner: maker.owner.to_owned(),
                maker_address: maker.wallet.checksummed(),
                matched_amount: fill.quantity.into(),
                price: fill.price().into(),
                fee_rate_bps: maker.fee_rate_bps,
                asset_id: token_id,
                outcome: &row.outcome,
                side: maker.side.as_str(),
            }],
        }
    }
}
