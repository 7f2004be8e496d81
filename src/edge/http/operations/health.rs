//! Liveness and readiness, answered to every caller, even while the server is starting.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::HeaderMap;
use schemars::JsonSchema;
use serde::Serialize;

use crate::build::{self, BUILD, Build};
use crate::http::app::{AppState, Server};
use crate::http::call::Answer;
use crate::http::error::ApiError;
use crate::http::parameter::Parameter;
use crate::http::query::Query;
use crate::http::reply::Reply;
use paperbourse_core::clock;
use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::Market;
use paperbourse_core::wire::Time;

pub(in crate::http) fn health() -> Reply {
    Reply::ok(&Health::now("ok"))
}

pub(in crate::http) fn live() -> Reply {
    Reply::ok(&Health::now("alive"))
}

pub(in crate::http) const READY_QUERY: [Parameter; 1] =
    [Parameter::flag("strict", "whether a degraded server counts as not ready")];

/// Reports readiness, which lasts from the end of recovery until draining begins. Without fresh
/// books from the venue, the server is degraded: reads and accounts work, trades do not. A jump of
/// the system clock or a lack of memory degrades it too. With `strict`, a degraded server is not
/// ready.
pub(in crate::http) fn ready(server: &Server, _: &HeaderMap, mut query: Query<'_>) -> Answer {
    let is_strict = query.flag("strict");
    let is_strict = query.finish(is_strict)?;
    let troubles = troubles(server).ok_or_else(ApiError::not_ready)?;
    Ok(report(&troubles, is_strict))
}

/// The conditions that degrade a ready server.
#[derive(Default)]
pub(super) struct Troubles {
    venue: Option<&'static str>,
    memory: Option<&'static str>,
    clock: Option<String>,
}

impl Troubles {
    /// Returns the first trouble, if there is any.
    pub(super) fn first(&self) -> Option<&str> {
        self.venue.or(self.memory).or(self.clock.as_deref())
    }
}

/// Returns the server's troubles; `None` while it starts or drains.
pub(super) fn troubles(server: &Server) -> Option<Troubles> {
    let is_serving = !server.is_draining() && server.may_answer();
    let app = server.app().filter(|_| is_serving)?;
    let clock = clock::status().jump.map(|jump| jump.to_string());
    Some(Troubles { venue: venue_trouble(app), memory: memory_trouble(app), clock })
}

fn report(troubles: &Troubles, is_strict: bool) -> Reply {
    let is_degraded = troubles.first().is_some();
    let answer = Readiness {
        health: Health::now(if is_degraded { "degraded" } else { "ok" }),
        build: &BUILD,
        checks: Checks {
            journal: Check::of(None),
            venue: Check::of(troubles.venue),
            memory: Check::of(troubles.memory),
            clock: Check::of(troubles.clock.as_deref()),
        },
    };
    let is_refused = is_strict && is_degraded;
    let status = if is_refused { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    Reply::of(status, &answer)
}

#[derive(JsonSchema, Serialize)]
pub(in crate::http) struct Health {
    /// `ok`, `alive` or `degraded`.
    status: &'static str,
    /// The server's time.
    timestamp: Time,
    /// The server's version.
    version: &'static str,
}

#[derive(JsonSchema, Serialize)]
pub(in crate::http) struct Readiness<'a> {
    #[serde(flatten)]
    health: Health,
    build: &'static Build,
    /// What the status is made of.
    checks: Checks<'a>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ReadinessChecks")]
struct Checks<'a> {
    journal: Check<'a>,
    venue: Check<'a>,
    memory: Check<'a>,
    clock: Check<'a>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ReadinessCheck")]
struct Check<'a> {
    #[schemars(extend("enum" = ["ok", "degraded"]))]
    status: &'static str,
    /// What is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

impl Health {
    fn now(status: &'static str) -> Self {
        Self { status, timestamp: Time(Timestamp::now()), version: build::VERSION }
    }
}

impl<'a> Check<'a> {
    fn of(trouble: Option<&'a str>) -> Self {
        Self { status: if trouble.is_some() { "degraded" } else { "ok" }, reason: trouble }
    }
}

/// Returns the reason why trades cannot be relied on to fill, if there is one.
pub(super) fn venue_trouble(app: &AppState) -> Option<&'static str> {
    trouble_of(app.service.markets().listing().markets())
}

/// Returns the reason why no book can be relied on, if there is one. A fresh book that no hash can
/// confirm or contradict, as in a market that has never traded, counts only if no open market has a
/// provable book: it looks fresh whatever has happened to the other books.
fn trouble_of(markets: &[Arc<Market>]) -> Option<&'static str> {
    if markets.is_empty() {
        return Some("no market is listed");
    }
    let (mut is_any_fresh, mut is_any_provable) = (false, false);
    for market in markets {
        let snapshot = market.snapshot();
        let is_fresh = snapshot.has_fresh_book();
        let is_provable = snapshot.info().is_tradable() && snapshot.is_provable();
        if is_fresh && is_provable {
            return None;
        }
        is_any_fresh |= is_fresh;
        is_any_provable |= is_provable;
    }
    match (is_any_fresh, is_any_provable) {
        (false, _) => Some("no open market has a fresh order book"),
        (true, true) => Some("no open market that has ever traded has a fresh order book"),
        (true, false) => None,
    }
}

/// Says what is refused for lack of memory, if anything is.
pub(super) fn memory_trouble(app: &AppState) -> Option<&'static str> {
    let room = app.service.room();
    if room.is_full() {
        Some("the memory limit is reached: new accounts, keys, orders and comments are refused")
    } else if !room.has_room_for_readers() {
        Some("memory is close to its limit: new sockets and price streams are refused")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use paperbourse_core::clock::watch::{Change, Reading, Watch};
    use paperbourse_core::ids::OutcomeIndex;
    use paperbourse_core::market::Markets;
    use paperbourse_core::market::book::{Book, Ladder, LastTrade};
    use paperbourse_core::market::catalogue::{MarketInfo, MarketStatus};
    use paperbourse_core::money::{Price, Shares};

    /// The status of a market, and for the book of each outcome whether it is stale and has traded.
    type Listed<'a> = (MarketStatus, &'a [(bool, bool)]);

    const FRESH: (bool, bool) = (false, true);
    const STALE: (bool, bool) = (true, true);
    const FRESH_UNTRADED: (bool, bool) = (false, false);
    const STALE_UNTRADED: (bool, bool) = (true, false);

    fn trouble(listed: &[Listed<'_>]) -> Option<&'static str> {
        let markets = Markets::new();
        let ids = (0..listed.len()).map(|number| format!("0x{number}"));
        let infos = ids.zip(listed).map(|(id, &(status, _))| {
            let mut info = MarketInfo::bare_yes_no(&id);
            for outcome in &mut info.outcomes {
                outcome.token_id = format!("{id}-{}", outcome.label).into();
            }
            MarketInfo { status, ..info }
        });
        markets.list(infos.collect()).unwrap();
        for (number, (_, books)) in listed.iter().enumerate() {
            let market = markets.by_condition(&format!("0x{number}")).unwrap();
            for (outcome, &(stale, has_traded)) in (0..).map(OutcomeIndex).zip(*books) {
                let (price, size, at) =
                    (Price::from_micros(500_000), Shares::ZERO, Timestamp::EPOCH);
                let trade = LastTrade { price, size, side: None, at };
                let mut book = Book::new(Ladder::default(), at);
                (book.stale, book.last_trade) = (stale, has_traded.then_some(trade));
                markets.publish(&market, outcome, Arc::new(book));
            }
        }
        trouble_of(markets.listing().markets())
    }

    #[test]
    fn a_market_that_never_traded_does_not_vouch_for_the_others() {
        fn open(books: &[(bool, bool)]) -> Listed<'_> {
            (MarketStatus::Open, books)
        }
        let none_fresh = Some("no open market has a fresh order book");
        let none_proven = Some("no open market that has ever traded has a fresh order book");
        for (listed, expected) in [
            (&[][..], Some("no market is listed")),
            (&[open(&[])], none_fresh),
            (&[open(&[FRESH, FRESH])], None),
            (&[open(&[STALE, FRESH])], None),
            (&[open(&[STALE, STALE])], none_fresh),
            (&[open(&[STALE, STALE]), open(&[FRESH, FRESH])], None),
            // At first, nothing has traded.
            (&[open(&[FRESH_UNTRADED, FRESH_UNTRADED])], None),
            (&[open(&[STALE_UNTRADED, STALE_UNTRADED])], none_fresh),
            (&[open(&[STALE, STALE]), open(&[FRESH_UNTRADED, FRESH_UNTRADED])], none_proven),
            (&[open(&[FRESH_UNTRADED, FRESH_UNTRADED]), open(&[STALE, STALE])], none_proven),
            (&[open(&[FRESH, FRESH]), open(&[FRESH_UNTRADED, FRESH_UNTRADED])], None),
            // A trade in one outcome is also a trade in the other.
            (&[open(&[STALE, STALE]), open(&[FRESH_UNTRADED, FRESH])], None),
            (&[open(&[]), open(&[FRESH_UNTRADED])], None),
            // No order fills in these markets, however fresh or stale their books are.
            (&[(MarketStatus::Paused, &[FRESH, FRESH])], none_fresh),
            (&[(MarketStatus::Closed, &[FRESH, FRESH]), open(&[STALE])], none_fresh),
            (&[(MarketStatus::Paused, &[STALE, STALE]), open(&[FRESH_UNTRADED])], None),
        ] {
            assert_eq!(trouble(listed), expected, "{listed:?}");
        }
    }

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
                let reply = report(
                    &Troubles { clock: Some(jump.to_string()), ..Troubles::default() },
                    is_strict,
                );
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
