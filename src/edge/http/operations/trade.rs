//! `POST /trade`: a market order. Amounts in the answer are JSON numbers.

use std::borrow::Cow;

use hyper::StatusCode;
use hyper::header::HeaderValue;

use super::order_fields::{
    Named, REPLAYED, TRADE_FIELDS, Warned, idempotency_key, read_client_order_id,
    read_expected_price, read_market_id, read_max_slippage_bps, read_named, read_outcome,
    read_quantity, read_side,
};
use crate::http::call::{Answer, Call};
use crate::http::fields::Fields;
use crate::http::invalid::Invalid;
use crate::http::json::write::{write_list, write_text};
use crate::http::reply::Reply;
use paperbourse_core::engine::command::TradeOrder;
use paperbourse_core::engine::order::receipt::OrderReceipt;
use paperbourse_core::money::write_micros;
use paperbourse_exchange::service::{OrderRequest, PositionStatus};

pub(in crate::http) async fn trade(call: &Call<'_>) -> Answer {
    let (request, warnings) =
        read_trade_warned(&call.take_body(), idempotency_key(call).as_deref())?;
    let metrics = call.metrics;
    let traded = call.service().trade(&call.caller, request, call.context);
    // A `match` that awaits the trade's future would store it twice.
    let durable = traded.inspect_err(|_| metrics.orders_rejected.increment())?;
    let (receipt, is_replay) =
        durable.await.inspect_err(|_| metrics.orders_rejected.increment())?;
    let mut body = Vec::with_capacity(512);
    write_trade(&mut body, &receipt);
    if !warnings.is_empty() {
        add_warnings(&mut body, &warnings);
    }
    let mut reply = Reply::json(StatusCode::OK, body);
    if is_replay {
        metrics.orders_replayed.increment();
        reply.headers.insert(REPLAYED, HeaderValue::from_static("true"));
    } else {
        metrics.orders_filled.increment();
    }
    Ok(reply)
}

/// Reads the body and the `Idempotency-Key` header.
pub fn read_trade(body: &[u8], idempotency_key: Option<&[u8]>) -> Result<OrderRequest, Invalid> {
    read_trade_warned(body, idempotency_key).map(|(request, _)| request)
}

#[inline]
fn read_trade_warned(
    body: &[u8],
    idempotency_key: Option<&[u8]>,
) -> Result<Warned<OrderRequest>, Invalid> {
    let make = |order, names| OrderRequest { order, names };
    read_named(body, idempotency_key, &TRADE_FIELDS, read_order, make)
}

/// Reads the order and its name from the body. An invalid field adds an error, and is left out if
/// it is optional.
#[inline]
pub(super) fn read_order(fields: &mut Fields<'_, '_>) -> Option<Named<TradeOrder>> {
    let market_id = read_market_id(fields);
    let outcome = read_outcome(fields);
    let side = read_side(fields);
    let quantity = fields.required("quantity").and_then(|value| read_quantity(fields, value));
    let expected_price = read_expected_price(fields);
    let max_slippage_bps = read_max_slippage_bps(fields);
    let client_order_id = read_client_order_id(fields);
    let order = TradeOrder {
        market_id: market_id?.into(),
        outcome: outcome?.into(),
        side: side?,
        quantity: quantity?,
        expected_price,
        max_slippage_bps,
    };
    Some((order, client_order_id.map(Cow::into)))
}

/// Adds the warnings about the request to an answer, which must be a JSON object.
#[cold]
pub(in crate::http) fn add_warnings(object: &mut Vec<u8>, warnings: &[String]) {
    let end = object.pop();
    assert_eq!(end, Some(b'}'), "an object has an end");
    let comma = if object.last() == Some(&b'{') { "" } else { "," };
    object.extend_from_slice(comma.as_bytes());
    object.extend_from_slice(b"\"warnings\":");
    write_list(object, warnings, |out, warning| write_text(out, warning));
    object.push(b'}');
}

/// Writes the answer to a trade or to its replay.
pub fn write_trade(out: &mut Vec<u8>, receipt: &OrderReceipt) {
    let mut buffer = itoa::Buffer::new();
    let order_id = buffer.format(receipt.order.get());
    // This is the most frequent answer, so field names are written together with their punctuation.
    out.extend_from_slice(b"{\"order_id\":");
    out.extend_from_slice(order_id.as_bytes());
    out.extend_from_slice(b",\"status\":\"FILLED\",\"price\":");
    write_micros(out, receipt.fill.price().micros());
    out.extend_from_slice(b",\"quantity\":");
    write_micros(out, receipt.fill.quantity.micros());
    out.extend_from_slice(b",\"notional\":");
    write_micros(out, receipt.fill.notional.micros());
    out.extend_from_slice(b",\"fee\":");
    write_micros(out, receipt.fill.fee.micros());
    out.extend_from_slice(b",\"account_balance\":");
    write_micros(out, receipt.fill.balance.micros());
    out.extend_from_slice(b",\"position\":{\"market_id\":");
    write_text(out, &receipt.market_id);
    out.extend_from_slice(b",\"outcome\":");
    write_text(out, &receipt.outcome);
    out.extend_from_slice(b",\"quantity\":");
    write_micros(out, receipt.fill.position_shares.micros());
    out.extend_from_slice(b",\"avg_entry_price\":");
    write_micros(out, receipt.fill.average_entry_price().micros());
    out.extend_from_slice(b",\"status\":\"");
    out.extend_from_slice(PositionStatus::of(receipt.fill.position_shares).as_str().as_bytes());
    out.extend_from_slice(b"\"}");
    let delayed_ms =
        receipt.order_state.as_ref().map_or(0, |order_state| order_state.terms.delayed_ms);
    if delayed_ms > 0 {
        out.extend_from_slice(b",\"held_ms\":");
        out.extend_from_slice(buffer.format(delayed_ms).as_bytes());
    }
    out.push(b'}');
}

#[cfg(test)]
pub(super) mod tests;
