//! `POST /v1/orders/batch`: orders that succeed or fail independently.

use schemars::JsonSchema;
use serde::Serialize;

use super::order_fields::{
    Named, ORDER_FIELDS, TRADE_FIELDS, Warned, idempotency_key, read_idempotency_key,
};
use super::orders::answer::OrderAnswer;
use super::orders::place::{count_placed, read_new_order};
use super::trade::read_order;
use crate::http::call::{Answer, Call};
use crate::http::error::ApiError;
use crate::http::fields::{Fields, KnownFields};
use crate::http::invalid::{FieldError, Invalid, Location, unless_invalid};
use crate::http::json::read::{Object, RawText};
use crate::http::reply::Reply;
use paperbourse_core::engine::command::{OrderNames, TradeOrder};
use paperbourse_core::engine::order::idempotency::{Fingerprint, NameHash, RequestedOrder as _};
use paperbourse_core::engine::order::payload::NewOrder;
use paperbourse_core::engine::order::receipt::OrderReceipt;
use paperbourse_core::engine::order::terms::OrderKind;
use paperbourse_core::wire::Decimal;
use paperbourse_exchange::service::PlaceRequest;

/// Maximum number of entries in a batch, whatever the caller's tier allows.
pub const BATCH_ENTRIES_MAX: usize = 100;

/// An entry with any of these fields is an order of any kind, and is read as by `POST /v1/orders`.
/// An entry without them is read as by `POST /trade`.
pub(in crate::http) const FIELDS_OF_ANY_KIND: [&str; 6] =
    ["order_type", "price", "amount", "time_in_force", "expiration", "post_only"];

pub(in crate::http) async fn place_batch(call: &Call<'_>) -> Answer {
    let read = read_batch_warned(&call.take_body(), idempotency_key(call).as_deref())?;
    let (requests, warnings) = read;
    call.service().check_batch(&call.caller, requests.len())?;
    let outcomes = call.service().place_all(&call.caller, &requests, call.context).await?;
    let outcomes = outcomes.into_iter().map(|outcome| {
        let outcome = outcome.map_err(ApiError::from);
        count_placed(call.metrics, &outcome);
        outcome
    });
    Ok(Reply::ok(&BatchAnswer::of(&requests, &outcomes.collect::<Vec<_>>(), warnings)))
}

/// Reads the body and the `Idempotency-Key` header, and returns the entries in order. The header
/// names the batch. Each entry without a name of its own gets two names derived from the name of
/// the batch: one by its index, and one by its content.
///
/// The tier's limit on entries is not checked here.
pub fn read_batch(
    body: &[u8],
    idempotency_key: Option<&[u8]>,
) -> Result<Vec<PlaceRequest>, Invalid> {
    read_batch_warned(body, idempotency_key).map(|(requests, _)| requests)
}

/// Warnings about the ignored fields of a batch.
struct BatchWarnings {
    /// Warnings about fields beside `orders`.
    batch: Vec<String>,
    /// Warnings about the fields of each entry, in order.
    entries: Vec<Vec<String>>,
}

/// The fields of a batch.
const BATCH_FIELDS: KnownFields =
    KnownFields { names: &["orders"], meant: &["orders"], other_names: &[], not_taken: &[] };

/// The fields of an entry that is read as a trade. An entry with any other field of an order is
/// read as an order of any kind.
const ENTRY_FIELDS: KnownFields = KnownFields { names: TRADE_FIELDS.names, ..ORDER_FIELDS };

fn read_batch_warned(
    body: &[u8],
    idempotency_key: Option<&[u8]>,
) -> Result<(Vec<PlaceRequest>, BatchWarnings), Invalid> {
    let mut errors = Vec::new();
    let header = read_idempotency_key(idempotency_key, &mut errors);
    let mut ignored = Vec::new();
    let entries = match Object::of_body(body) {
        Ok(object) => {
            let mut fields = Fields::new(object, Location::body(), &mut errors);
            let orders = fields.required("orders");
            let list =
                orders.and_then(|orders| fields.list("orders", orders, 1, BATCH_ENTRIES_MAX));
            ignored = fields.judge_unknown(&BATCH_FIELDS);
            list
        }
        Err(error) => {
            errors.push(error);
            None
        }
    };
    let location = Location::body().field("orders");
    let requests = entries.map(|entries| {
        let indexed = (0_u32..).zip(entries);
        let mut unnamed: Vec<Fingerprint> = Vec::new();
        let read = indexed.filter_map(|(index, entry)| {
            let location = location.element(index as usize);
            let ((order, client_order_id), warnings) = read_entry(entry, location, &mut errors)?;
            let names = match (client_order_id, header) {
                (None, Some(batch)) => {
                    let fingerprint = order.fingerprint();
                    // Equal entries need different names, so each name includes the number of equal
                    // entries before it.
                    let twins = unnamed.iter().filter(|&&other| other == fingerprint);
                    let twin_count = twins.fold(0, |count, _| count + 1);
                    unnamed.push(fingerprint);
                    OrderNames::of_batch_entry(batch, index, fingerprint, twin_count)
                }
                (name, _) => {
                    let hash = name.as_deref().map(NameHash::of_order);
                    OrderNames::new(hash, name)
                }
            };
            Some((PlaceRequest { order, names }, warnings))
        });
        let (requests, entries) = read.unzip();
        (requests, BatchWarnings { batch: ignored, entries })
    });
    unless_invalid(errors, requests)
}

fn read_entry(
    entry: RawText<'_>,
    location: Location,
    errors: &mut Vec<FieldError>,
) -> Option<Warned<Named<NewOrder>>> {
    let object = match Object::of_value(entry, &location) {
        Ok(object) => object,
        Err(error) => {
            errors.push(error);
            return None;
        }
    };
    let is_of_any_kind = FIELDS_OF_ANY_KIND.iter().any(|name| object.get(name).is_some());
    let mut fields = Fields::new(object, location, errors);
    let (order, known) = if is_of_any_kind {
        (read_new_order(&mut fields), &ORDER_FIELDS)
    } else {
        let trade = read_order(&mut fields);
        (trade.map(|(order, name)| (market_order(order), name)), &ENTRY_FIELDS)
    };
    let warnings = fields.judge_unknown(known);
    Some((order?, warnings))
}

/// Converts a trade to an order of any kind, with the same fingerprint.
fn market_order(trade: TradeOrder) -> NewOrder {
    let TradeOrder { market_id, outcome, side, quantity, expected_price, max_slippage_bps } = trade;
    NewOrder {
        market_id,
        outcome,
        side,
        kind: OrderKind::Market,
        quantity: Some(quantity),
        amount: None,
        price: None,
        time_in_force: None,
        expiration: None,
        post_only: false,
        expected_price,
        max_slippage_bps,
    }
}

/// The answer, in the order of the request.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "BatchResult")]
pub(in crate::http) struct BatchAnswer<'a> {
    /// One for each order.
    results: Vec<BatchResult<'a>>,
    /// How many orders were placed.
    succeeded: usize,
    /// How many orders were rejected.
    failed: usize,
    /// A sentence about each field beside `orders`; all were ignored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    warnings: Vec<String>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "BatchEntry")]
#[serde(untagged)]
#[expect(clippy::large_enum_variant, reason = "most entries of a batch are placed")]
enum BatchResult<'a> {
    Placed(OrderAnswer<'a>),
    Rejected(RejectedOrder<'a>),
}

/// An order that was refused. Clients of this API take any row with an `error` as refused.
#[derive(JsonSchema, Serialize)]
struct RejectedOrder<'a> {
    /// Always 0.
    order_id: u64,
    #[schemars(extend("const" = "REJECTED"))]
    status: &'static str,
    order_type: &'static str,
    #[schemars(extend("enum" = ["BUY", "SELL"]))]
    side: &'static str,
    /// The outcome's label, as requested.
    outcome: &'a str,
    price: Decimal,
    quantity: Decimal,
    notional: Decimal,
    fee: Decimal,
    /// The name that the client gave the order.
    client_order_id: Option<&'a str>,
    /// The code, as a single order would have got it.
    error: &'static str,
    /// What is wrong with the order.
    error_message: &'a str,
    /// A sentence about each field that was ignored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    warnings: Vec<String>,
}

impl<'a> BatchAnswer<'a> {
    fn of(
        requests: &'a [PlaceRequest],
        outcomes: &'a [Result<(OrderReceipt, bool), ApiError>],
        warnings: BatchWarnings,
    ) -> Self {
        assert_eq!(requests.len(), outcomes.len(), "each order has an outcome");
        assert_eq!(requests.len(), warnings.entries.len(), "each order has its own warnings");
        let entries = requests.iter().zip(outcomes).zip(warnings.entries);
        let results = entries.map(|((request, outcome), warnings)| match outcome {
            Ok((receipt, is_replay)) => {
                BatchResult::Placed(OrderAnswer::of(receipt, *is_replay, warnings))
            }
            Err(error) => BatchResult::Rejected(RejectedOrder::of(request, error, warnings)),
        });
        let succeeded = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        let failed = outcomes.len() - succeeded;
        Self { results: results.collect(), succeeded, failed, warnings: warnings.batch }
    }
}

impl<'a> RejectedOrder<'a> {
    fn of(request: &'a PlaceRequest, error: &'a ApiError, warnings: Vec<String>) -> Self {
        Self {
            order_id: 0,
            status: "REJECTED",
            order_type: request.order.kind.as_str(),
            side: request.order.side.as_str(),
            outcome: &request.order.outcome,
            price: Decimal::ZERO,
            quantity: request.order.quantity.map_or(Decimal::ZERO, Into::into),
            notional: Decimal::ZERO,
            fee: Decimal::ZERO,
            client_order_id: request.names.client_order_id(),
            error: error.code,
            error_message: &error.message,
            warnings,
        }
    }
}

#[cfg(test)]
mod tests;
