//! Orders as clients send them, one or a batch, and the names that they give to them.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::engine::command::{OrderNames, TradeOrder};
use crate::engine::idempotency::NameHash;
use crate::http::fields::{Fields, Range};
use crate::http::invalid::{FieldError, Invalid, Location, unless_invalid};
use crate::http::json::read::{Object, RawText};
use crate::market::book::Side;
use crate::money::{MICROS_PER_UNIT, Price, Rounding, Shares};

/// The venue's name of a market has at most this many characters.
pub const MARKET_ID_CHARACTERS_MAX: usize = 256;
/// The label of an outcome has at most this many characters.
pub const OUTCOME_CHARACTERS_MAX: usize = 200;
/// A name that a client gives to an order has at most this many characters, in either place.
pub const ORDER_NAME_CHARACTERS_MAX: usize = 256;
/// No batch holds more entries than this, whatever the caller's tier allows.
pub const BATCH_ENTRIES_MAX: usize = 100;

/// Fields that make an entry of a batch another kind of order.
const OTHER_KINDS: [&str; 3] = ["order_type", "price", "amount"];

/// An order as it was sent to `/trade`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TradeRequest {
    /// What to buy or sell.
    pub order: TradeOrder,
    /// What the client calls it.
    pub names: OrderNames,
}

impl TradeRequest {
    /// Reads the body and the `Idempotency-Key` header of `POST /trade`.
    pub fn read(body: &[u8], idempotency_key: Option<&[u8]>) -> Result<Self, Invalid> {
        let mut errors = Vec::new();
        let header = read_idempotency_key(idempotency_key, &mut errors);
        let request = match Object::of_body(body) {
            Ok(object) => {
                let mut fields = Fields::new(object, Location::body(), &mut errors);
                read_trade(&mut fields)
            }
            Err(error) => {
                errors.push(error);
                None
            }
        };
        let request = request.map(|(order, client_order_id)| {
            let names = [header, client_order_id.as_deref()].into_iter().flatten();
            let hashes: SmallVec<[_; 2]> = names.map(NameHash::of_order).collect();
            Self { order, names: OrderNames::new(hashes, client_order_id) }
        });
        unless_invalid(errors, request)
    }
}

/// Reads the body and the `Idempotency-Key` header of `POST /v1/orders/batch`: the entries in their
/// order. The header names the batch, and with it every entry that does not name itself.
///
/// Whether the caller's tier allows so many is not decided here.
pub fn read_batch(
    body: &[u8],
    idempotency_key: Option<&[u8]>,
) -> Result<Vec<TradeRequest>, Invalid> {
    let mut errors = Vec::new();
    let header = read_idempotency_key(idempotency_key, &mut errors);
    let entries = match Object::of_body(body) {
        Ok(object) => {
            let mut fields = Fields::new(object, Location::body(), &mut errors);
            let orders = fields.required("orders");
            orders.and_then(|orders| fields.list("orders", orders, 1, BATCH_ENTRIES_MAX))
        }
        Err(error) => {
            errors.push(error);
            None
        }
    };
    let location = Location::body().field("orders");
    let requests = entries.map(|entries| {
        let indexed = (0_u32..).zip(entries);
        let read = indexed.filter_map(|(index, entry)| {
            let location = location.element(index as usize);
            let (order, client_order_id) = read_entry(entry, location, &mut errors)?;
            let name = match (&client_order_id, header) {
                (Some(name), _) => Some(NameHash::of_order(name)),
                (None, Some(batch)) => Some(NameHash::of_batch_entry(batch, index)),
                (None, None) => None,
            };
            let names = OrderNames::new(name, client_order_id);
            Some(TradeRequest { order, names })
        });
        read.collect()
    });
    unless_invalid(errors, requests)
}

fn read_entry(
    entry: RawText<'_>,
    location: Location,
    errors: &mut Vec<FieldError>,
) -> Option<(TradeOrder, Option<Box<str>>)> {
    let object = match Object::of_value(entry, &location) {
        Ok(object) => object,
        Err(error) => {
            errors.push(error);
            return None;
        }
    };
    let mut fields = Fields::new(object, location, errors);
    let mut is_other_kind = false;
    for name in OTHER_KINDS {
        if fields.optional(name).is_some() {
            is_other_kind = true;
            let message = "batches take market orders as POST /trade does, without this field";
            fields.note(name, "unsupported", message);
        }
    }
    // What else such an entry lacks follows from the rules of its own kind.
    if is_other_kind { None } else { read_trade(&mut fields) }
}

/// The order and the name in its body. What cannot be used is noted, and where it is optional left
/// out.
fn read_trade(fields: &mut Fields<'_, '_>) -> Option<(TradeOrder, Option<Box<str>>)> {
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

/// A field that may be absent, or null, which is the same.
fn optional<'a, 'e, T>(
    fields: &mut Fields<'a, 'e>,
    name: &str,
    read: impl FnOnce(&mut Fields<'a, 'e>, RawText<'a>) -> Option<T>,
) -> Option<T> {
    fields.optional(name).and_then(|value| read(fields, value))
}

/// The name in the header; an empty one is none. What is not a name is noted.
fn read_idempotency_key<'h>(
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

#[cfg(test)]
mod tests;
