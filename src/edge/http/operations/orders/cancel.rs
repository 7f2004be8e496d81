//! Cancels open orders: one by its id, all of them, or all in a market or an outcome.

use hyper::header::HeaderName;
use schemars::JsonSchema;
use serde::Serialize;

use crate::http::call::{Answer, Call};
use crate::http::error::ApiError;
use crate::http::fields::Fields;
use crate::http::invalid::{FieldError, Invalid, Location, unless_invalid};
use crate::http::json::read::Object;
use crate::http::operations::order_fields::MARKET_ID_CHARACTERS_MAX;
use crate::http::parameter::Parameter;
use crate::http::query::Query;
use crate::http::reply::Reply;
use crate::rows::stage::{Amounts, Stage};
use paperbourse_core::engine::order::cancel::Cancelled;
use paperbourse_core::engine::order::terms::Reserve;
use paperbourse_core::ids::OrderId;
use paperbourse_core::money::Price;
use paperbourse_core::wire::{Decimal, Time};
use paperbourse_exchange::service::CancelRequest;

const CONFIRMATION: HeaderName = HeaderName::from_static("x-confirm-cancel-all");

pub(in crate::http) const CONFIRM_HEADER: [Parameter; 1] = [Parameter::flag(
    "X-Confirm-Cancel-All",
    "whether to cancel all open orders; the parameter `confirm` does the same",
)];

/// The names of the market and of the token, in the query and in the body.
const SELECTORS: [&str; 2] = ["market", "asset_id"];

pub(in crate::http) const CONFIRM_QUERY: [Parameter; 1] =
    [Parameter::flag("confirm", "whether to cancel all open orders; the header does the same")];

pub(in crate::http) const SELECT_QUERY: [Parameter; 2] = [
    Parameter::text(
        SELECTORS[0],
        0,
        MARKET_ID_CHARACTERS_MAX,
        "only orders in this market, by its condition id",
    ),
    Parameter::text(
        SELECTORS[1],
        0,
        MARKET_ID_CHARACTERS_MAX,
        "only orders in this outcome, by its token",
    ),
];

pub(in crate::http) async fn cancel(call: &Call<'_>) -> Answer {
    let order = call.id(OrderId::from_raw)?;
    let cancelled = call.service().cancel(&call.caller, order, call.context).await?;
    call.metrics.orders_cancelled.increment();
    Ok(Reply::ok(&CancelAnswer::of(&cancelled)))
}

/// `POST /v1/cancel-all`, which must be confirmed.
pub(in crate::http) async fn cancel_all_confirmed(call: &Call<'_>) -> Answer {
    let mut query = call.query();
    let by_query = query.flag("confirm");
    query.finish(())?;
    let by_header = call.header(&CONFIRMATION);
    let by_header = by_header.is_some_and(|value| value.eq_ignore_ascii_case(b"true"));
    if !by_query && !by_header {
        return Err(ApiError::confirmation_required());
    }
    cancel_all(call).await
}

/// `DELETE /v1/cancel-all`, which the venue's own clients send without a confirmation.
pub(in crate::http) async fn cancel_all(call: &Call<'_>) -> Answer {
    cancel_selected(call, CancelRequest::default()).await
}

pub(in crate::http) async fn cancel_in_market(call: &Call<'_>) -> Answer {
    let request = read_cancel(call.query(), &call.take_body())?;
    cancel_selected(call, request).await
}

async fn cancel_selected(call: &Call<'_>, request: CancelRequest) -> Answer {
    let orders = call.service().cancel_all(&call.caller, request, call.context).await?;
    for _ in &orders {
        call.metrics.orders_cancelled.increment();
    }
    let canceled = orders.iter().map(|order| order.get().to_string()).collect();
    Ok(Reply::ok(&CancelAllAnswer { canceled, not_canceled: NotCanceled {} }))
}

/// Reads what to cancel from the query, or else from the body. Empty text counts as absent, because
/// clients send it for parameters that they leave out.
fn read_cancel(mut query: Query<'_>, body: &[u8]) -> Result<CancelRequest, ApiError> {
    let sent =
        SELECTORS.map(|name| query.filled_text(name, MARKET_ID_CHARACTERS_MAX).map(Into::into));
    let ([market, token], [body_market, body_token]) =
        ApiError::both(query.finish(sent), read_cancel_body(body))?;
    let request =
        CancelRequest { market_id: market.or(body_market), token_id: token.or(body_token) };
    if request == CancelRequest::default() {
        return Err(ApiError::from(FieldError {
            location: Location::of("query").field("market"),
            kind: "missing",
            message: "market or asset_id is required, in the query or the body".into(),
        }));
    }
    Ok(request)
}

fn read_cancel_body(body: &[u8]) -> Result<[Option<Box<str>>; 2], Invalid> {
    if body.trim_ascii().is_empty() {
        return Ok([None, None]);
    }
    let object = Object::of_body(body)?;
    let mut errors = Vec::new();
    let mut fields = Fields::new(object, Location::body(), &mut errors);
    let sent = SELECTORS.map(|name| {
        let value = fields.optional(name)?;
        let text = fields.bounded_text(name, value, 0, MARKET_ID_CHARACTERS_MAX)?;
        (!text.is_empty()).then(|| text.into())
    });
    unless_invalid(errors, Some(sent))
}

/// A cancelled order.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "CancelledOrder")]
pub(in crate::http) struct CancelAnswer<'a> {
    /// The order's id.
    order_id: u64,
    #[schemars(extend("enum" = ["PENDING", "FILLED", "CANCELLED", "EXPIRED"]))]
    status: &'static str,
    #[schemars(extend("enum" = ["market", "limit"]))]
    order_type: &'static str,
    #[schemars(extend("enum" = ["BUY", "SELL"]))]
    side: &'static str,
    /// The outcome's label.
    outcome: &'a str,
    /// The worst price that the order accepts.
    price: Decimal,
    /// In shares.
    quantity: Decimal,
    /// The dollars that are free again.
    notional: Decimal,
    /// Always 0.
    fee: Decimal,
    /// When the newest fill happened.
    filled_at: Option<Time>,
    /// The name that the client gave the order.
    client_order_id: Option<&'a str>,
    /// A market order that fills at once is `FOK`.
    #[schemars(extend("enum" = ["GTC", "GTD", "FOK", "FAK"]))]
    time_in_force: &'static str,
    /// Null for a market order.
    limit_price: Option<Decimal>,
    #[serde(flatten)]
    amounts: Amounts,
    /// The shares that are free again.
    released_quantity: Decimal,
    /// When the order was cancelled.
    cancelled_at: Option<Time>,
    /// Why the order ended before it was filled, such as `user` or `gtd_expired`.
    cancelled_reason: Option<&'static str>,
}

impl<'a> CancelAnswer<'a> {
    fn of(cancelled: &'a Cancelled) -> Self {
        let Cancelled { receipt, released: Reserve { cash, shares } } = cancelled;
        let stage = Stage::now(receipt);
        Self {
            order_id: receipt.order.get(),
            status: stage.status().as_str(),
            order_type: stage.kind().as_str(),
            side: receipt.side.as_str(),
            outcome: &receipt.outcome,
            price: stage.worst_price().unwrap_or(Price::ZERO).into(),
            quantity: stage.quantity().into(),
            notional: (*cash).into(),
            fee: Decimal::ZERO,
            filled_at: stage.filled_at().map(Time),
            client_order_id: receipt.client_order_id.as_deref(),
            time_in_force: stage.time_in_force().as_str(),
            limit_price: stage.limit_price().map(Into::into),
            amounts: stage.amounts(),
            released_quantity: (*shares).into(),
            cancelled_at: stage.end().map(|end| Time(end.at)),
            cancelled_reason: stage.end().map(|end| end.reason.as_str()),
        }
    }
}

/// The ids of cancelled orders, oldest first.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "CancelledOrders")]
pub(in crate::http) struct CancelAllAnswer {
    /// The ids.
    canceled: Vec<String>,
    /// Always empty.
    not_canceled: NotCanceled,
}

/// The orders that could not be cancelled, by id. There are none: an order that is not open is not
/// selected.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "NotCancelled")]
struct NotCanceled {}

#[cfg(test)]
mod tests;
