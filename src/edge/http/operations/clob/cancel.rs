//! Cancelling orders: one, a list, those of a market or an outcome, or all.
//!
//! Clients name orders by what their wallet has signed. An order that cannot be cancelled is named
//! with the venue's reason, whatever the reason is here; bots look for its last words.

use std::borrow::Cow;

use serde::Deserialize;

use super::prices::write_map;
use super::request::{Name, each_once};
use super::{Awaited, object};
use crate::http::call::Call;
use crate::http::error::ClobError;
use crate::http::json::write::{write_list, write_text};
use crate::http::reply::Reply;
use crate::rows::order_id;
use paperbourse_core::engine::order::idempotency::NameHash;
use paperbourse_core::engine::rejection::Rejection;
use paperbourse_exchange::service::CancelRequest;
use paperbourse_exchange::shard::Refusal;

/// Maximum number of orders that a request may name.
const ORDERS_MAX: usize = 3_000;

/// Why an order was not cancelled.
const NOT_OPEN: &str = "order can't be found - already canceled or matched";

/// The body of `DELETE /order`.
#[derive(Deserialize)]
struct One<'a> {
    #[serde(borrow, rename = "orderID")]
    order_id: Cow<'a, str>,
}

/// The body of `DELETE /cancel-market-orders`. Empty text selects everything, as clients that name
/// only one of both send it for the other.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Selection<'a> {
    #[serde(borrow)]
    market: Option<Cow<'a, str>>,
    #[serde(borrow)]
    asset_id: Option<Cow<'a, str>>,
}

pub(super) async fn one(call: &Call<'_>) -> Awaited {
    let sent = call.take_body();
    let One { order_id } = serde_json::from_slice(&sent).map_err(|_| ClobError::INVALID_ORDER)?;
    cancel(call, vec![order_id]).await
}

pub(super) async fn list(call: &Call<'_>) -> Awaited {
    let sent = call.take_body();
    let ids: Vec<Name<'_>> = serde_json::from_slice(&sent).map_err(|_| ClobError::INVALID_ORDER)?;
    if ids.len() > ORDERS_MAX {
        let text = format!("Too many orders in payload, max allowed: {ORDERS_MAX}");
        return Err(ClobError::refused(text).into());
    }
    cancel(call, each_once(ids.into_iter().map(|Name(id)| id))).await
}

pub(super) async fn all(call: &Call<'_>) -> Awaited {
    cancel_selected(call, CancelRequest::default()).await
}

pub(super) async fn in_market(call: &Call<'_>) -> Awaited {
    let sent = call.take_body();
    let selection = match sent.trim_ascii() {
        [] => Selection::default(),
        body => serde_json::from_slice(body).map_err(|_| ClobError::INVALID_ORDER)?,
    };
    let [market_id, token_id] = [selection.market, selection.asset_id]
        .map(|text| text.filter(|text| !text.is_empty()).map(Into::into));
    cancel_selected(call, CancelRequest { market_id, token_id }).await
}

async fn cancel(call: &Call<'_>, ids: Vec<Cow<'_, str>>) -> Awaited {
    let names: Vec<_> = ids.iter().map(|id| NameHash::of_order(id)).collect();
    let outcomes = call.service().cancel_named(&call.caller, &names, call.context).await?;
    let mut cancelled = Vec::with_capacity(ids.len());
    let mut refused = Vec::new();
    for (id, outcome) in ids.into_iter().zip(outcomes) {
        match outcome {
            Ok(_) => {
                call.metrics.orders_cancelled.increment();
                cancelled.push(id);
            }
            Err(Refusal::Rejected(Rejection::OrderNotFound | Rejection::NotCancellable { .. })) => {
                refused.push((id, NOT_OPEN.to_owned()));
            }
            Err(refusal) => refused.push((id, refusal.to_string())),
        }
    }
    Ok(answer(cancelled, refused))
}

async fn cancel_selected(call: &Call<'_>, request: CancelRequest) -> Awaited {
    let orders = call.service().cancel_all(&call.caller, request, call.context).await?;
    let names = call.service().names_of(&call.caller, &orders, call.context).await?;
    let ids = orders.iter().zip(&names).map(|(&order, name)| {
        call.metrics.orders_cancelled.increment();
        order_id(order, name.as_deref())
    });
    Ok(answer(ids.collect(), Vec::new()))
}

fn answer(cancelled: Vec<Cow<'_, str>>, refused: Vec<(Cow<'_, str>, String)>) -> Reply {
    object(|body| {
        write_list(body.value("canceled"), cancelled, |out, id| write_text(out, &id));
        write_map(body.value("not_canceled"), refused, |out, reason| write_text(out, &reason));
    })
}
