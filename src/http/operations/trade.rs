//! `POST /trade`: a market order, answered with its result in numbers.

use std::borrow::Cow;

use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use smallvec::SmallVec;

use crate::engine::command::{OrderNames, TradeOrder};
use crate::engine::idempotency::NameHash;
use crate::engine::order::OrderReceipt;
use crate::http::call::{Answer, Call};
use crate::http::error::ApiError;
use crate::http::fields::{Fields, Range};
use crate::http::invalid::{FieldError, Invalid, Location, unless_invalid};
use crate::http::json::read::{Object, RawText};
use crate::http::json::write::write_text;
use crate::http::reply::Reply;
use crate::market::book::Side;
use crate::money::{MICROS_PER_UNIT, Price, Rounding, Shares, write_micros};
use crate::service::{OrderRequest, PositionStatus};

/// The most characters of a market id.
pub const MARKET_ID_CHARACTERS_MAX: usize = 256;
/// The most characters of an outcome's label.
pub const OUTCOME_CHARACTERS_MAX: usize = 200;
/// The most characters of a client's name for an order, in the header or the body.
pub const ORDER_NAME_CHARACTERS_MAX: usize = 256;

pub(super) static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

pub(in crate::http) async fn trade(call: &Call<'_>) -> Answer {
    let request = read_trade(&call.body, call.header(&IDEMPOTENCY_KEY).as_deref())?;
    let metrics = call.metrics;
    let traded = match call.service().trade(&call.caller, request, call.context) {
        Ok(durable) => durable.await.map_err(ApiError::from),
        Err(denied) => Err(denied.into()),
    };
    let (receipt, is_replay) = traded.inspect_err(|_| metrics.orders_rejected.increment())?;
    let mut body = Vec::with_capacity(512);
    write_trade(&mut body, &receipt);
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
    let mut errors = Vec::new();
    let header = read_idempotency_key(idempotency_key, &mut errors);
    let order = match Object::of_body(body) {
        Ok(object) => {
            let mut fields = Fields::new(object, Location::body(), &mut errors);
            read_order(&mut fields)
        }
        Err(error) => {
            errors.push(error);
            None
        }
    };
    let request = order.map(|(order, client_order_id)| {
        let names = [header, client_order_id.as_deref()].into_iter().flatten();
        let hashes: SmallVec<[_; 2]> = names.map(NameHash::of_order).collect();
        OrderRequest { order, names: OrderNames::new(hashes, client_order_id) }
    });
    unless_invalid(errors, request)
}

/// Reads the order and its name from the body. Invalid fields add errors, and optional ones are
/// then left out.
pub(super) fn read_order(fields: &mut Fields<'_, '_>) -> Option<(TradeOrder, Option<Box<str>>)> {
    let market_id = fields
        .required("market_id")
        .and_then(|value| fields.bounded_text("market_id", value, 1, MARKET_ID_CHARACTERS_MAX));
    let outcome = fields
        .required("outcome")
        .and_then(|value| fields.bounded_text("outcome", value, 1, OUTCOME_CHARACTERS_MAX));
    let side = fields.required("side").and_then(|value| read_side(fields, value));
    let quantity = fields.required("quantity").and_then(|value| {
        let max = TradeOrder::QUANTITY_MAX.micros();
        let range = Range { above: Some(0), min: 0, max };
        fields.micros("quantity", value, Rounding::TowardZero, &range).map(Shares::from_micros)
    });
    let expected_price = optional(fields, "expected_price", |fields, value| {
        let range = Range { above: None, min: 0, max: Price::ONE.micros() };
        fields.micros("expected_price", value, Rounding::HalfEven, &range).map(Price::from_micros)
    });
    let max_slippage_bps = optional(fields, "max_slippage_bps", |fields, value| {
        let range = Range { above: None, min: 0, max: 10_000 * MICROS_PER_UNIT };
        let bps = fields.integer("max_slippage_bps", value, &range)?;
        Some(u16::try_from(bps).expect("at most 10,000"))
    });
    let client_order_id = optional(fields, "client_order_id", |fields, value| {
        fields.bounded_text("client_order_id", value, 0, ORDER_NAME_CHARACTERS_MAX)
    });
    let order = TradeOrder {
        market_id: market_id?.into(),
        outcome: outcome?.into(),
        side: side?,
        quantity: quantity?,
        expected_price,
        max_slippage_bps,
    };
    let name = client_order_id.filter(|name| !name.is_empty()).map(Cow::into);
    Some((order, name))
}

fn read_side(fields: &mut Fields<'_, '_>, value: RawText<'_>) -> Option<Side> {
    match value.get() {
        "\"BUY\"" => Some(Side::Buy),
        "\"SELL\"" => Some(Side::Sell),
        _ => {
            fields.note("side", "enum", "should be BUY or SELL");
            None
        }
    }
}

/// An optional field; null means absent.
fn optional<'a, 'e, T>(
    fields: &mut Fields<'a, 'e>,
    name: &str,
    read: impl FnOnce(&mut Fields<'a, 'e>, RawText<'a>) -> Option<T>,
) -> Option<T> {
    fields.optional(name).and_then(|value| read(fields, value))
}

/// The name in the header; an empty one counts as absent, an invalid one adds an error.
pub(super) fn read_idempotency_key<'h>(
    header: Option<&'h [u8]>,
    errors: &mut Vec<FieldError>,
) -> Option<&'h str> {
    let value = header.filter(|value| !value.is_empty())?;
    let is_visible = value.iter().all(u8::is_ascii_graphic);
    if is_visible && value.len() <= ORDER_NAME_CHARACTERS_MAX {
        return std::str::from_utf8(value).ok();
    }
    let (kind, message) = if is_visible {
        ("string_too_long", "should have at most 256 characters")
    } else {
        ("string_pattern_mismatch", "should be visible ASCII characters without spaces")
    };
    errors.push(FieldError {
        location: Location::of("header").field("idempotency-key"),
        kind,
        message: message.into(),
    });
    None
}

/// Writes the answer to a trade or to its replay.
pub fn write_trade(out: &mut Vec<u8>, receipt: &OrderReceipt) {
    let mut buffer = itoa::Buffer::new();
    let order_id = buffer.format(receipt.order.get());
    // The most frequent answer: field names are written together with their punctuation.
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
    out.extend_from_slice(b"\"}}");
}

#[cfg(test)]
pub(super) mod tests;
