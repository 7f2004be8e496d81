//! Reads the fields that all orders have, whichever operation places them, and the names of orders.

use std::borrow::Cow;

use hyper::header::HeaderName;
use smallvec::SmallVec;

use crate::http::call::Call;
use crate::http::fields::{Fields, KnownFields, NOT_OF_TRADES, OTHER_NAMES, Range};
use crate::http::invalid::{FieldError, Invalid, Location, unless_invalid};
use crate::http::json::read::{Object, RawText};
use crate::http::parameter::{Parameter, words};
use crate::http::request_headers::Sent;
use paperbourse_core::engine::command::{OrderNames, TradeOrder};
use paperbourse_core::engine::order::idempotency::NameHash;
use paperbourse_core::market::book::Side;
use paperbourse_core::money::{MICROS_PER_UNIT, Price, Rounding, Shares};

/// Maximum length of a market id, in characters.
pub const MARKET_ID_CHARACTERS_MAX: usize = 256;
/// Maximum length of an outcome's label, in characters.
pub const OUTCOME_CHARACTERS_MAX: usize = 200;
/// Maximum length of a client's name for an order, in the header or the body, in characters.
pub const ORDER_NAME_CHARACTERS_MAX: usize = 256;

/// The header with a name for the order.
static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
pub(in crate::http) const NAME_HEADER: [Parameter; 1] = [Parameter::own(
    "Idempotency-Key",
    "^[!-~]{0,256}$",
    "a name for the order, like `client_order_id`; of a batch, for each order without one",
)];

/// The header that marks a repeated answer.
pub(super) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

pub(in crate::http) const SIDES: [(&str, Side); 2] = [("BUY", Side::Buy), ("SELL", Side::Sell)];

pub(super) const SIDE: Parameter =
    Parameter::choice("side", &words(&SIDES), "only purchases or only sales");

/// The range of a price.
pub(super) const PRICES: Range = Range { above: None, min: 0, max: Price::ONE.micros() };

const NAMES_IN_TRADES: &[&str] = &[
    "market_id",
    "outcome",
    "side",
    "quantity",
    "expected_price",
    "max_slippage_bps",
    "client_order_id",
];

const NAMES_IN_ORDERS: &[&str] = &[
    "market_id",
    "outcome",
    "side",
    "order_type",
    "quantity",
    "amount",
    "price",
    "time_in_force",
    "expiration",
    "post_only",
    "expected_price",
    "max_slippage_bps",
    "client_order_id",
];

/// The fields of `POST /trade`.
pub(super) const TRADE_FIELDS: KnownFields = KnownFields {
    names: NAMES_IN_TRADES,
    meant: NAMES_IN_TRADES,
    other_names: &OTHER_NAMES,
    not_taken: &NOT_OF_TRADES,
};

/// The fields of `POST /v1/orders`.
pub(super) const ORDER_FIELDS: KnownFields = KnownFields {
    names: NAMES_IN_ORDERS,
    meant: NAMES_IN_ORDERS,
    other_names: &OTHER_NAMES,
    not_taken: &[],
};

/// The content of a body, and the name that the client gave the order.
pub(super) type Named<T> = (T, Option<Box<str>>);

/// A request, and a sentence about each of its fields that was ignored.
pub(super) type Warned<R> = (R, Vec<String>);

/// Reads the body of a request for one order. `make` builds the request from the order and its
/// names, which come from the body and the header.
#[inline]
pub(super) fn read_named<T, R>(
    body: &[u8],
    idempotency_key: Option<&[u8]>,
    known: &KnownFields,
    read: impl FnOnce(&mut Fields<'_, '_>) -> Option<Named<T>>,
    make: impl FnOnce(T, OrderNames) -> R,
) -> Result<Warned<R>, Invalid> {
    let mut errors = Vec::new();
    let header = read_idempotency_key(idempotency_key, &mut errors);
    let order = match Object::of_body(body) {
        Ok(object) => {
            let mut fields = Fields::new(object, Location::body(), &mut errors);
            let order = read(&mut fields);
            let warnings = fields.judge_unknown(known);
            order.map(|order| (order, warnings))
        }
        Err(error) => {
            errors.push(error);
            None
        }
    };
    let named = order.map(|((order, client_order_id), warnings)| {
        let names = [header, client_order_id.as_deref()].into_iter().flatten();
        let hashes: SmallVec<[_; 2]> = names.map(NameHash::of_order).collect();
        (make(order, OrderNames::new(hashes, client_order_id)), warnings)
    });
    unless_invalid(errors, named)
}

#[inline]
pub(super) fn read_market_id<'a>(fields: &mut Fields<'a, '_>) -> Option<Cow<'a, str>> {
    let value = fields.required("market_id")?;
    fields.bounded_text("market_id", value, 1, MARKET_ID_CHARACTERS_MAX)
}

#[inline]
pub(super) fn read_outcome<'a>(fields: &mut Fields<'a, '_>) -> Option<Cow<'a, str>> {
    let value = fields.required("outcome")?;
    fields.bounded_text("outcome", value, 1, OUTCOME_CHARACTERS_MAX)
}

/// Reads the side, ignoring case.
#[inline]
pub(super) fn read_side(fields: &mut Fields<'_, '_>) -> Option<Side> {
    match fields.required("side")? {
        RawText::Plain("BUY") => Some(Side::Buy),
        RawText::Plain("SELL") => Some(Side::Sell),
        value => fields.choice("side", value, &SIDES),
    }
}

#[inline]
pub(super) fn read_quantity<'a>(fields: &mut Fields<'a, '_>, value: RawText<'a>) -> Option<Shares> {
    let range = Range { above: Some(0), min: 0, max: TradeOrder::QUANTITY_MAX.micros() };
    fields.micros("quantity", value, Rounding::TowardZero, &range).map(Shares::from_micros)
}

#[inline]
pub(super) fn read_expected_price(fields: &mut Fields<'_, '_>) -> Option<Price> {
    let value = fields.optional("expected_price")?;
    fields.micros("expected_price", value, Rounding::HalfEven, &PRICES).map(Price::from_micros)
}

#[inline]
pub(super) fn read_max_slippage_bps(fields: &mut Fields<'_, '_>) -> Option<u16> {
    let value = fields.optional("max_slippage_bps")?;
    let range = Range { above: None, min: 0, max: 10_000 * MICROS_PER_UNIT };
    let bps = fields.integer("max_slippage_bps", value, &range)?;
    Some(u16::try_from(bps).expect("at most 10,000"))
}

/// Reads the order's name from the body; an empty name counts as absent.
#[inline]
pub(super) fn read_client_order_id<'a>(fields: &mut Fields<'a, '_>) -> Option<Cow<'a, str>> {
    let value = fields.optional("client_order_id")?;
    let name = fields.bounded_text("client_order_id", value, 0, ORDER_NAME_CHARACTERS_MAX)?;
    (!name.is_empty()).then_some(name)
}

/// Returns the value of the `Idempotency-Key` header, which names the order.
pub(super) fn idempotency_key<'a>(call: &Call<'a>) -> Option<Cow<'a, [u8]>> {
    match call.headers.idempotency_key {
        Sent::Never => None,
        Sent::Once(value) => Some(Cow::Borrowed(value.as_bytes())),
        Sent::Repeatedly(_) => call.header(&IDEMPOTENCY_KEY),
    }
}

/// Reads the order's name from the header. An empty name counts as absent; an invalid one adds an
/// error.
pub(super) fn read_idempotency_key<'h>(
    header: Option<&'h [u8]>,
    errors: &mut Vec<FieldError>,
) -> Option<&'h str> {
    let value = header.filter(|value| !value.is_empty())?;
    // Checking every byte is faster than stopping at the first bad one, because most names are
    // valid.
    let is_visible =
        value.iter().fold(true, |is_visible, byte| is_visible & byte.is_ascii_graphic());
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
