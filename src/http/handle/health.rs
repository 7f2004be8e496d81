//! Whether the process lives, and whether it is of use.

use hyper::StatusCode;

use super::Answer;
use crate::http::error::ApiError;
use crate::http::exchange::{Exchange, Stage};
use crate::http::request::query::read_strict;
use crate::http::respond::Reply;
use crate::http::respond::json::JsonObject;
use crate::http::route::Route;
use crate::ids::Timestamp;

/// The answer to a question about health; `None` to every other.
pub(super) fn answer(route: &Route<'_>, stage: &Stage, query: Option<&str>) -> Option<Answer> {
    match route {
        Route::Health => Some(Ok(alive("ok"))),
        Route::HealthLive => Some(Ok(alive("alive"))),
        Route::HealthReady => Some(ready(stage, query)),
        _ => None,
    }
}

fn alive(status: &'static str) -> Reply {
    let mut body = Vec::with_capacity(96);
    let mut object = JsonObject::new(&mut body);
    write_head(&mut object, status);
    object.end();
    Reply::json(StatusCode::OK, body)
}

/// Ready from the end of recovery to the begin of draining. A venue that shows nothing makes it
/// degraded: reads and accounts work, trades do not.
fn ready(stage: &Stage, query: Option<&str>) -> Answer {
    let is_strict = read_strict(query)?;
    let Some(exchange) = stage.exchange().filter(|_| !stage.is_draining()) else {
        return Err(ApiError::not_ready());
    };
    let trouble = venue_trouble(exchange);
    let mut body = Vec::with_capacity(192);
    let mut object = JsonObject::new(&mut body);
    write_head(&mut object, if trouble.is_some() { "degraded" } else { "ok" });
    let mut checks = JsonObject::new(object.value("checks"));
    write_check(&mut checks, "journal", None);
    write_check(&mut checks, "venue", trouble);
    checks.end();
    object.end();
    let is_refused = is_strict && trouble.is_some();
    let status = if is_refused { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    Ok(Reply::json(status, body))
}

fn write_head(object: &mut JsonObject<'_>, status: &str) {
    object.text("status", status);
    object.time("timestamp", Timestamp::now());
    object.text("version", env!("CARGO_PKG_VERSION"));
}

fn write_check(checks: &mut JsonObject<'_>, name: &'static str, trouble: Option<&str>) {
    let mut check = JsonObject::new(checks.value(name));
    check.text("status", if trouble.is_some() { "degraded" } else { "ok" });
    if let Some(reason) = trouble {
        check.text("reason", reason);
    }
    check.end();
}

/// What keeps every trade from filling, if anything does.
pub(super) fn venue_trouble(exchange: &Exchange) -> Option<&'static str> {
    let listing = exchange.service.markets().listing();
    if listing.markets().is_empty() {
        return Some("no market is listed");
    }
    let is_of_use =
        |market: &std::sync::Arc<crate::market::Market>| market.snapshot().has_fresh_book();
    if listing.markets().iter().any(is_of_use) {
        None
    } else {
        Some("no open market has a fresh order book")
    }
}
