//! Whether the process lives, and whether it is of use.

use hyper::StatusCode;

use super::Answer;
use crate::clock;
use crate::http::error::ApiError;
use crate::http::exchange::{Exchange, Stage};
use crate::http::json::write::JsonObject;
use crate::http::request::query::read_strict;
use crate::http::respond::Reply;
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
/// degraded: reads and accounts work, trades do not. So does a system clock that jumped.
fn ready(stage: &Stage, query: Option<&str>) -> Answer {
    let is_strict = read_strict(query)?;
    let Some(exchange) = stage.exchange().filter(|_| !stage.is_draining()) else {
        return Err(ApiError::not_ready());
    };
    let clock_trouble = clock::status().jump.map(|jump| jump.to_string());
    Ok(report(venue_trouble(exchange), clock_trouble.as_deref(), is_strict))
}

fn report(venue_trouble: Option<&str>, clock_trouble: Option<&str>, is_strict: bool) -> Reply {
    let is_degraded = venue_trouble.or(clock_trouble).is_some();
    let mut body = Vec::with_capacity(256);
    let mut object = JsonObject::new(&mut body);
    write_head(&mut object, if is_degraded { "degraded" } else { "ok" });
    let mut checks = JsonObject::new(object.value("checks"));
    write_check(&mut checks, "journal", None);
    write_check(&mut checks, "venue", venue_trouble);
    write_check(&mut checks, "clock", clock_trouble);
    checks.end();
    object.end();
    let is_refused = is_strict && is_degraded;
    let status = if is_refused { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    Reply::json(status, body)
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

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::clock::watch::{Change, Reading, Watch};

    #[test]
    fn a_clock_that_jumped_is_degraded() {
        const HOUR_NS: i64 = 3_600_000_000_000;
        let first = Reading { wall_ns: 10 * HOUR_NS, monotonic_ns: 0, uncertainty_ns: 0 };
        for (wall_ns, reason) in [
            (
                12 * HOUR_NS,
                "the system clock jumped ahead by 7200 s, and times go on without the jump",
            ),
            (
                9 * HOUR_NS,
                "the system clock jumped back by 3600 s, and times go on without the jump",
            ),
        ] {
            let change = Watch::new(first).compare(Reading { wall_ns, ..first });
            let Some(Change::Jumped(jump)) = change else { panic!("{change:?}") };
            for (is_strict, status) in [(false, 200), (true, 503)] {
                let reply = report(None, Some(&jump.to_string()), is_strict);
                assert_eq!(reply.status, status);
                let body: Value = serde_json::from_slice(&reply.body).unwrap();
                assert_eq!(body["status"], "degraded");
                assert_eq!(body["checks"]["clock"]["status"], "degraded");
                assert_eq!(body["checks"]["clock"]["reason"], reason);
                assert_eq!(body["checks"]["venue"]["status"], "ok");
            }
        }
    }
}
