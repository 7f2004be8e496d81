//! Trades, their comments, batches, and orders read back.

use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};

use super::{Answer, Call};
use crate::engine::idempotency::NameHash;
use crate::engine::view::OrderFilter;
use crate::http::error::ApiError;
use crate::http::request::comment::read_comment;
use crate::http::request::order::{TradeRequest, read_batch};
use crate::http::request::path::read_id;
use crate::http::request::query::{OrderStatus, OrdersQuery, read_comments_page};
use crate::http::respond::Reply;
use crate::http::respond::comment::{write_comment, write_comments};
use crate::http::respond::key::write_message;
use crate::http::respond::order::{BatchResult, write_batch, write_order_row, write_orders};
use crate::http::respond::trade::write_trade;
use crate::ids::OrderId;
use crate::service::{BatchEntry, OrderList};

static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

pub(super) async fn trade(call: &Call<'_>) -> Answer {
    let TradeRequest { order, names } =
        TradeRequest::read(&call.body, call.header(&IDEMPOTENCY_KEY).as_deref())?;
    let metrics = call.metrics;
    let traded = match call.exchange.service.trade(&call.caller, order, names, call.visit) {
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

pub(super) async fn place_batch(call: &Call<'_>) -> Answer {
    let requests = read_batch(&call.body, call.header(&IDEMPOTENCY_KEY).as_deref())?;
    let entries = requests
        .iter()
        .map(|TradeRequest { order, names }| BatchEntry {
            order: order.clone(),
            names: names.clone(),
        })
        .collect();
    let outcomes = call.exchange.service.trade_all(&call.caller, entries, call.visit).await?;
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
    let results: Vec<_> = requests
        .iter()
        .zip(&outcomes)
        .map(|(request, outcome)| match outcome {
            Ok((receipt, is_replay)) => BatchResult::Filled { receipt, is_replay: *is_replay },
            Err(error) => BatchResult::Rejected {
                order: &request.order,
                client_order_id: request.names.client_order_id(),
                error,
            },
        })
        .collect();
    let mut body = Vec::with_capacity(64 + 512 * results.len());
    write_batch(&mut body, &results);
    Ok(Reply::json(StatusCode::OK, body))
}

pub(super) async fn list(call: &Call<'_>) -> Answer {
    let query = OrdersQuery::read(call.query())?;
    let service = &call.exchange.service;
    // So far every order that exists has filled.
    let is_none = query.status.is_some_and(|status| status != OrderStatus::Filled);
    let list = if is_none {
        OrderList::default()
    } else if let Some(name) = &query.client_order_id {
        let name = NameHash::of_order(name);
        let found = service.order_named(&call.caller, name, call.visit).await?;
        let orders: Vec<_> = found
            .into_iter()
            .filter(|receipt| query.side.is_none_or(|side| side == receipt.side))
            .filter(|receipt| {
                query.market_id.as_deref().is_none_or(|market| market == &*receipt.market_id)
            })
            .collect();
        OrderList { orders, has_more: false }
    } else {
        let market_id = query.market_id.as_deref().map(Into::into);
        let filter = OrderFilter { market_id, side: query.side };
        let page = query.page;
        service.orders(&call.caller, filter, page.offset, page.limit, call.visit).await?
    };
    let mut body = Vec::with_capacity(96 + 384 * list.orders.len());
    write_orders(&mut body, &list.orders, list.has_more);
    Ok(Reply::json(StatusCode::OK, body))
}

pub(super) async fn get(call: &Call<'_>, order_id: &str) -> Answer {
    let order: Option<OrderId> = read_id(order_id)?;
    let receipt = call.exchange.service.order(&call.caller, order, call.visit).await?;
    let mut body = Vec::with_capacity(384);
    write_order_row(&mut body, &receipt);
    Ok(Reply::json(StatusCode::OK, body))
}

pub(super) async fn comment(call: &Call<'_>, order_id: &str) -> Answer {
    let order: Result<Option<OrderId>, _> = read_id(order_id);
    let content = read_comment(&call.body);
    // Both are read before either is refused: every failing field is told.
    let (order, content) = ApiError::both(order.map_err(Into::into), content)?;
    let service = &call.exchange.service;
    let comment = service.comment(&call.caller, order, content, call.visit).await?;
    call.metrics.comments_added.increment();
    let mut body = Vec::with_capacity(128 + comment.content.len());
    write_comment(&mut body, &comment);
    Ok(Reply::json(StatusCode::OK, body))
}

pub(super) async fn comments(call: &Call<'_>, order_id: &str) -> Answer {
    let order: Result<Option<OrderId>, _> = read_id(order_id);
    let (order, page) =
        ApiError::both(order.map_err(Into::into), read_comments_page(call.query()))?;
    let service = &call.exchange.service;
    let comments = service.comments(order, page.offset, page.limit, call.visit).await?;
    let mut body = Vec::with_capacity(64 + 256 * comments.len());
    write_comments(&mut body, &comments);
    Ok(Reply::json(StatusCode::OK, body))
}

pub(super) async fn delete_comment(call: &Call<'_>, comment_id: &str) -> Answer {
    let comment = read_id(comment_id)?;
    call.exchange.service.delete_comment(&call.caller, comment, call.visit).await?;
    let mut body = Vec::with_capacity(64);
    write_message(&mut body, "The comment is deleted.");
    Ok(Reply::json(StatusCode::OK, body))
}
