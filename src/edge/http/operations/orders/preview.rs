//! `POST /v1/orders/preview`: the effect that an order would have now.

use schemars::JsonSchema;
use serde::Serialize;

use super::place::read_new_order;
use crate::http::call::{Answer, Call};
use crate::http::error::ApiError;
use crate::http::operations::order_fields::{ORDER_FIELDS, read_named};
use crate::http::reply::Reply;
use paperbourse_core::engine::order::preview::Preview;
use paperbourse_core::engine::order::terms::{EndReason, OrderStatus};
use paperbourse_core::market::book::Side;
use paperbourse_core::money::Shares;
use paperbourse_core::wire::Decimal;

/// The error codes of a preview, which are those that the order itself would be refused with.
pub(in crate::http) const ERRORS: [&str; 18] = [
    "ACCOUNT_SUSPENDED",
    "INVALID_ORDER_PAYLOAD",
    "INVALID_ORDER_EXPIRATION",
    "INVALID_POST_ONLY_ORDER_TYPE",
    "MARKET_NOT_FOUND",
    "OUTCOME_NOT_FOUND",
    "MARKET_CLOSED",
    "INVALID_ORDER_MIN_TICK_SIZE",
    "INVALID_ORDER_MIN_SIZE",
    "VENUE_UNAVAILABLE",
    "INVALID_QUANTITY",
    "INSUFFICIENT_POSITION",
    "OPEN_ORDER_LIMIT_EXCEEDED",
    "INVALID_POST_ONLY_ORDER",
    "INSUFFICIENT_LIQUIDITY",
    "FOK_ORDER_NOT_FILLED_ERROR",
    "SLIPPAGE_EXCEEDED",
    "INSUFFICIENT_BALANCE",
];

pub(in crate::http) async fn preview(call: &Call<'_>) -> Answer {
    // Names are ignored: nothing is placed, so nothing can be replayed.
    let read = read_named(&call.take_body(), None, &ORDER_FIELDS, read_new_order, |order, _| order);
    let (order, warnings) = read?;
    let preview = call.service().preview(&call.caller, order, call.context).await;
    Ok(Reply::ok(&PreviewAnswer::of(&preview.map_err(ApiError::from)?, warnings)))
}

/// What an order would do if it were placed now. Nothing has been placed.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "OrderPreview")]
pub(in crate::http) struct PreviewAnswer<'a> {
    /// The market's condition id.
    market_id: &'a str,
    /// The outcome's label.
    outcome: &'a str,
    #[schemars(extend("enum" = ["BUY", "SELL"]))]
    side: &'static str,
    #[schemars(extend("enum" = ["market", "limit"]))]
    order_type: &'static str,
    #[schemars(extend("enum" = ["GTC", "GTD", "FOK", "FAK"]))]
    time_in_force: &'static str,
    /// What becomes of it at once. `PENDING` if a part rests.
    #[schemars(extend("enum" = ["PENDING", "FILLED", "CANCELLED"]))]
    status: &'static str,
    /// Why what is left is cancelled, such as `fok_not_filled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    cancelled_reason: Option<&'static str>,
    /// In shares; for an order for an amount, how many that buys.
    quantity: Decimal,
    /// The shares that fill at once.
    filled_quantity: Decimal,
    /// The shares that rest.
    resting_quantity: Decimal,
    /// The average price of what fills at once; null if nothing does.
    average_fill_price: Option<Decimal>,
    /// Price times quantity of what fills at once, in dollars, without the fee.
    notional: Decimal,
    /// The taker fee, in dollars.
    fee: Decimal,
    /// What is paid at once for a purchase, or received for a sale, in dollars, with the fee. Below
    /// 0 if the fee of a sale exceeds its proceeds.
    total: Decimal,
    /// The cash that the resting part of a purchase holds back, in dollars.
    reserved_cash: Decimal,
    /// The shares that the resting part of a sale holds back.
    reserved_shares: Decimal,
    /// The cash that is neither spent nor held back afterwards, in dollars.
    available_after: Decimal,
    /// How much worse than the best price, or than `expected_price`, it fills, in basis points.
    slippage_bps: Option<u32>,
    /// How many levels of the book it fills on.
    book_walk_levels: usize,
    /// How long the venue's delay holds the order, in milliseconds. It then meets the book of that
    /// moment, so that all of this may be otherwise.
    delay_ms: u32,
    /// A sentence about each field of the request that was ignored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    warnings: Vec<String>,
}

impl<'a> PreviewAnswer<'a> {
    fn of(preview: &'a Preview, warnings: Vec<String>) -> Self {
        let Preview { terms, fill, reserve, .. } = preview;
        let is_filled = fill.quantity > Shares::ZERO;
        let status = preview.status();
        let total = match preview.side {
            Side::Buy => fill.notional + fill.fee,
            Side::Sell => fill.notional - fill.fee,
        };
        let end = preview.end.filter(|_| status == OrderStatus::Cancelled);
        Self {
            market_id: &preview.market_id,
            outcome: &preview.outcome,
            side: preview.side.as_str(),
            order_type: terms.kind.as_str(),
            time_in_force: terms.time_in_force.as_str(),
            status: status.as_str(),
            cancelled_reason: end.map(EndReason::as_str),
            quantity: terms.quantity.into(),
            filled_quantity: fill.quantity.into(),
            resting_quantity: preview.resting().into(),
            average_fill_price: fill.notional.per_share(fill.quantity).map(Into::into),
            notional: fill.notional.into(),
            fee: fill.fee.into(),
            total: total.into(),
            reserved_cash: reserve.cash.into(),
            reserved_shares: reserve.shares.into(),
            available_after: preview.available.into(),
            slippage_bps: preview.slippage_bps.filter(|_| is_filled),
            book_walk_levels: preview.level_count,
            delay_ms: preview.delay_ms,
            warnings,
        }
    }
}
