//! `POST /v1/orders`: an order of any kind.

use std::borrow::Cow;

use hyper::header::HeaderValue;

use super::answer::OrderAnswer;
use crate::http::call::{Answer, Call};
use crate::http::error::ApiError;
use crate::http::fields::{Fields, Range};
use crate::http::invalid::Invalid;
use crate::http::json::read::RawText;
use crate::http::operations::order_fields::{
    Named, ORDER_FIELDS, PRICES, REPLAYED, Warned, idempotency_key, read_client_order_id,
    read_expected_price, read_market_id, read_max_slippage_bps, read_named, read_outcome,
    read_quantity, read_side,
};
use crate::http::reply::Reply;
use crate::telemetry::Metrics;
use paperbourse_core::engine::command::TradeOrder;
use paperbourse_core::engine::order::payload::{NamedTimeInForce, NewOrder};
use paperbourse_core::engine::order::receipt::OrderReceipt;
use paperbourse_core::engine::order::terms::{OrderKind, OrderStatus};
use paperbourse_core::ids::Timestamp;
use paperbourse_core::money::{MICROS_PER_UNIT, Price, Rounding, Usd};
use paperbourse_exchange::service::PlaceRequest;

pub(in crate::http) const KINDS: [(&str, OrderKind); 2] =
    [("market", OrderKind::Market), ("limit", OrderKind::Limit)];

pub(in crate::http) const TIMES_IN_FORCE: [(&str, NamedTimeInForce); 5] = [
    ("GTC", NamedTimeInForce::Gtc),
    ("GTD", NamedTimeInForce::Gtd),
    ("FOK", NamedTimeInForce::Fok),
    ("FAK", NamedTimeInForce::Fak),
    ("IOC", NamedTimeInForce::Fak),
];

/// Maximum expiration, in unix seconds: the last second that a [`Timestamp`] holds.
const EXPIRATION_MAX: i64 = i64::MAX / 1_000_000_000;

pub(in crate::http) async fn place(call: &Call<'_>) -> Answer {
    let (request, warnings) =
        read_place_warned(&call.take_body(), idempotency_key(call).as_deref())?;
    let placed = call.service().place(&call.caller, request, call.context).await;
    let placed = placed.map_err(ApiError::from);
    count_placed(call.metrics, &placed);
    let (receipt, is_replay) = placed?;
    let mut reply = Reply::ok(&OrderAnswer::of(&receipt, is_replay, warnings));
    if is_replay {
        reply.headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(reply)
}

/// Counts an order by its result at placement: rejected, replayed, filled, rested or killed.
pub(in crate::http::operations) fn count_placed<E>(
    metrics: &Metrics,
    placed: &Result<(OrderReceipt, bool), E>,
) {
    let counter = match placed {
        Err(_) => &metrics.orders_rejected,
        Ok((_, true)) => &metrics.orders_replayed,
        Ok((receipt, false)) => {
            match receipt.order_state.as_ref().map(|order_state| order_state.status()) {
                None | Some(OrderStatus::Filled) => &metrics.orders_filled,
                Some(OrderStatus::Pending) => &metrics.orders_rested,
                Some(OrderStatus::Cancelled | OrderStatus::Expired) => &metrics.orders_killed,
            }
        }
    };
    counter.increment();
}

/// Reads the body and the `Idempotency-Key` header.
pub fn read_place(body: &[u8], idempotency_key: Option<&[u8]>) -> Result<PlaceRequest, Invalid> {
    read_place_warned(body, idempotency_key).map(|(request, _)| request)
}

fn read_place_warned(
    body: &[u8],
    idempotency_key: Option<&[u8]>,
) -> Result<Warned<PlaceRequest>, Invalid> {
    let make = |order, names| PlaceRequest { order, names };
    read_named(body, idempotency_key, &ORDER_FIELDS, read_new_order, make)
}

/// Reads the order and its name from the body. An invalid field adds an error, and is left out if
/// it is optional. Whether the fields fit together is checked later, because a replay takes
/// precedence.
pub(in crate::http::operations) fn read_new_order(
    fields: &mut Fields<'_, '_>,
) -> Option<Named<NewOrder>> {
    let market_id = read_market_id(fields);
    let outcome = read_outcome(fields);
    let side = read_side(fields);
    let kind = fields
        .optional("order_type")
        .map_or(Some(OrderKind::Market), |value| fields.choice("order_type", value, &KINDS));
    let quantity = fields.optional("quantity").and_then(|value| read_quantity(fields, value));
    let amount = fields.optional("amount").and_then(|value| {
        // A share costs at most a dollar, so no order costs more than the maximum quantity.
        let range = Range { above: Some(0), min: 0, max: TradeOrder::QUANTITY_MAX.micros() };
        fields.micros("amount", value, Rounding::TowardZero, &range).map(Usd::from_micros)
    });
    let price = fields.optional("price").and_then(|value| {
        fields.micros("price", value, Rounding::HalfEven, &PRICES).map(Price::from_micros)
    });
    let time_in_force = fields
        .optional("time_in_force")
        .and_then(|value| fields.choice("time_in_force", value, &TIMES_IN_FORCE));
    let expiration = fields.optional("expiration").and_then(|value| read_expiration(fields, value));
    let post_only = fields.optional("post_only").and_then(|value| fields.flag("post_only", value));
    let expected_price = read_expected_price(fields);
    let max_slippage_bps = read_max_slippage_bps(fields);
    let client_order_id = read_client_order_id(fields);
    let order = NewOrder {
        market_id: market_id?.into(),
        outcome: outcome?.into(),
        side: side?,
        kind: kind?,
        quantity,
        amount,
        price,
        time_in_force,
        expiration,
        post_only: post_only.unwrap_or(false),
        expected_price,
        max_slippage_bps,
    };
    Some((order, client_order_id.map(Cow::into)))
}

/// Reads unix seconds. A value in milliseconds gets an error that says so.
fn read_expiration<'a>(fields: &mut Fields<'a, '_>, value: RawText<'a>) -> Option<Timestamp> {
    let (RawText::Plain(text) | RawText::Other(text)) = value;
    let is_in_millis =
        (12..=14).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_digit());
    if is_in_millis {
        let seconds = &text[..text.len() - 3];
        let message = format!("should be unix seconds, such as {seconds}, not milliseconds");
        fields.note("expiration", "less_than_equal", message);
        return None;
    }
    let range = Range { above: None, min: 0, max: EXPIRATION_MAX * MICROS_PER_UNIT };
    fields.integer("expiration", value, &range).map(Timestamp::from_seconds)
}

#[cfg(test)]
mod tests;
