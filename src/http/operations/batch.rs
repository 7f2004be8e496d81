//! `POST /v1/orders/batch`: market orders that succeed or fail independently.

use serde::Serialize;

use super::trade::{IDEMPOTENCY_KEY, read_idempotency_key, read_order};
use crate::engine::command::{OrderNames, TradeOrder};
use crate::engine::idempotency::NameHash;
use crate::engine::order::OrderReceipt;
use crate::http::call::{Answer, Call};
use crate::http::error::ApiError;
use crate::http::fields::Fields;
use crate::http::invalid::{FieldError, Invalid, Location, unless_invalid};
use crate::http::json::read::{Object, RawText};
use crate::http::json::value::{Decimal, Time};
use crate::http::reply::Reply;
use crate::service::{OrderRequest, PositionStatus};

/// The most entries of a batch, whatever the caller's tier allows.
pub const BATCH_ENTRIES_MAX: usize = 100;

/// Fields of an entry that belong to other kinds of orders.
const OTHER_KINDS: [&str; 3] = ["order_type", "price", "amount"];

pub(in crate::http) async fn place_batch(call: &Call<'_>) -> Answer {
    let requests = read_batch(&call.body, call.header(&IDEMPOTENCY_KEY).as_deref())?;
    let outcomes = call.service().trade_all(&call.caller, &requests, call.context).await?;
    let metrics = call.metrics;
    let outcomes: Vec<_> = outcomes
        .into_iter()
        .map(|outcome| {
            match &outcome {
                Ok((_, false)) => metrics.orders_filled.increment(),
                Ok((_, true)) => metrics.orders_replayed.increment(),
                Err(_) => metrics.orders_rejected.increment(),
            }
            outcome.map_err(ApiError::from)
        })
        .collect();
    Ok(Reply::ok(&BatchAnswer::of(&requests, &outcomes)))
}

/// Reads the body and the `Idempotency-Key` header, and returns the entries in order. The header
/// names the batch, and through it every entry without a name of its own.
///
/// The tier's limit on entries is not checked here.
pub fn read_batch(
    body: &[u8],
    idempotency_key: Option<&[u8]>,
) -> Result<Vec<OrderRequest>, Invalid> {
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
            Some(OrderRequest { order, names })
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
    // Other errors of such an entry would follow from the rules for its own kind.
    if is_other_kind { None } else { read_order(&mut fields) }
}

/// The answer, in the order of the request.
#[derive(Serialize)]
struct BatchAnswer<'a> {
    results: Vec<BatchResult<'a>>,
    succeeded: usize,
    failed: usize,
}

#[derive(Serialize)]
#[serde(untagged)]
enum BatchResult<'a> {
    Filled(FilledOrder<'a>),
    Rejected(RejectedOrder<'a>),
}

/// An order that filled, now or before.
#[derive(Serialize)]
struct FilledOrder<'a> {
    order_id: u64,
    status: &'static str,
    order_type: &'static str,
    side: &'static str,
    outcome: &'a str,
    price: Decimal,
    quantity: Decimal,
    notional: Decimal,
    fee: Decimal,
    filled_at: Time,
    price_source: &'static str,
    slippage_bps: Option<u32>,
    book_walk_levels: u32,
    account_balance: Decimal,
    position: FilledPosition<'a>,
    client_order_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_replay: Option<bool>,
}

#[derive(Serialize)]
struct FilledPosition<'a> {
    market_id: &'a str,
    outcome: &'a str,
    quantity: Decimal,
    avg_entry_price: Decimal,
    status: &'static str,
}

/// An order that was refused. Clients of this API take any row with an `error` as refused.
#[derive(Serialize)]
struct RejectedOrder<'a> {
    order_id: u64,
    status: &'static str,
    order_type: &'static str,
    side: &'static str,
    outcome: &'a str,
    price: Decimal,
    quantity: Decimal,
    notional: Decimal,
    fee: Decimal,
    client_order_id: Option<&'a str>,
    error: &'static str,
    error_message: &'a str,
}

impl<'a> BatchAnswer<'a> {
    fn of(
        requests: &'a [OrderRequest],
        outcomes: &'a [Result<(OrderReceipt, bool), ApiError>],
    ) -> Self {
        let results = requests.iter().zip(outcomes).map(|(request, outcome)| match outcome {
            Ok((receipt, is_replay)) => BatchResult::Filled(FilledOrder::of(receipt, *is_replay)),
            Err(error) => BatchResult::Rejected(RejectedOrder::of(request, error)),
        });
        let succeeded = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        Self { results: results.collect(), succeeded, failed: outcomes.len() - succeeded }
    }
}

impl<'a> FilledOrder<'a> {
    fn of(receipt: &'a OrderReceipt, is_replay: bool) -> Self {
        Self {
            order_id: receipt.order.get(),
            status: "FILLED",
            order_type: "market",
            side: receipt.side.as_str(),
            outcome: &receipt.outcome,
            price: receipt.fill.price().into(),
            quantity: receipt.fill.quantity.into(),
            notional: receipt.fill.notional.into(),
            fee: receipt.fill.fee.into(),
            filled_at: Time(receipt.fill.at),
            price_source: "book_walk",
            slippage_bps: receipt.slippage_bps,
            book_walk_levels: receipt.level_count.into(),
            account_balance: receipt.fill.balance.into(),
            position: FilledPosition {
                market_id: &receipt.market_id,
                outcome: &receipt.outcome,
                quantity: receipt.fill.position_shares.into(),
                avg_entry_price: receipt.fill.average_entry_price().into(),
                status: PositionStatus::of(receipt.fill.position_shares).as_str(),
            },
            client_order_id: receipt.client_order_id.as_deref(),
            is_replay: is_replay.then_some(true),
        }
    }
}

impl<'a> RejectedOrder<'a> {
    fn of(request: &'a OrderRequest, error: &'a ApiError) -> Self {
        Self {
            order_id: 0,
            status: "REJECTED",
            order_type: "market",
            side: request.order.side.as_str(),
            outcome: &request.order.outcome,
            price: Decimal::ZERO,
            quantity: request.order.quantity.into(),
            notional: Decimal::ZERO,
            fee: Decimal::ZERO,
            client_order_id: request.names.client_order_id(),
            error: error.code,
            error_message: &error.message,
        }
    }
}

#[cfg(test)]
mod tests;
