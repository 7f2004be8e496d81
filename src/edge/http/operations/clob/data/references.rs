//! What is known of tokens and events without their holders: markets, payouts, prices and volumes.

use paperbourse_core::ids::condition;
use paperbourse_core::market::MarketSnapshot;
use paperbourse_core::market::catalogue::MarketInfo;
use paperbourse_core::market::history::candle::{PricePoint, Width};
use paperbourse_core::money::{Price, Usd};
use paperbourse_exchange::service::{EventSearch, FoundEvent, Page, Period};

use super::request::{Bounds, Parameters};
use super::{data, list, page, rows};
use crate::http::call::Call;
use crate::http::error::ClobError;
use crate::http::json::write::{JsonObject, write_list};
use crate::http::operations::clob::{Answer, request};
use crate::http::operations::price_history;

/// How many tokens, markets and events a request may name, as at the venue.
const TOKENS_MAX: usize = 50;
const MARKETS_MAX: usize = 10;
const EVENTS_MAX: usize = 20;

/// Number of points in a page of prices.
const POINTS: Bounds = Bounds { default: 1_000, most: 10_000, offset_max: 0 };

/// The most seconds between two prices, a day.
const STEP_SECONDS_MAX: usize = 86_400;

/// Length of a condition id with 31 bytes, which markets of protocol V2 have.
const SHORT_ID_CHARACTERS: usize = 64;

/// Describes tokens, or all tokens of markets. Unknown ones are left out.
pub(in crate::http::operations::clob) fn tokens(call: &Call<'_>) -> Answer {
    let parameters = Parameters(call.head.uri.query());
    let token_ids = parameters.list(&["token_id"]);
    let market_ids = parameters.selection()?.markets;
    let is_one_kind = token_ids.is_empty() != market_ids.is_empty();
    if !is_one_kind || token_ids.len() > TOKENS_MAX || market_ids.len() > MARKETS_MAX {
        return Err(ClobError::INVALID_PAYLOAD);
    }
    let of_tokens = token_ids.iter().filter_map(|id| request::find(call, id));
    let of_tokens: Vec<(MarketSnapshot, usize)> =
        of_tokens.map(|it| (it.market, it.outcome.0.into())).collect();
    let markets: Vec<MarketSnapshot> =
        market_ids.iter().filter_map(|id| call.service().market(id).ok()).collect();
    let of_markets = markets
        .iter()
        .flat_map(|market| (0..market.info().outcomes.len()).map(move |index| (market, index)));
    let found = of_tokens.iter().map(|(market, index)| (market, *index)).chain(of_markets);
    Ok(rows(found, 640, |out, (market, index)| write_token(out, market.info(), index)))
}

fn write_token(out: &mut Vec<u8>, info: &MarketInfo, index: usize) {
    let module = match (info.condition_id.len() == SHORT_ID_CHARACTERS, info.neg_risk) {
        (false, _) => "v1_ctf",
        (true, false) => "binary",
        (true, true) => "neg_risk",
    };
    let opposite = if info.outcomes.len() == 2 { info.outcomes.get(1 - index) } else { None };
    let mut row = JsonObject::new(out);
    row.text("token_id", &info.outcomes[index].token_id);
    row.text("condition_id", &condition::wide(&info.condition_id));
    row.null("structural_condition_id");
    row.word("module", module);
    row.integer("outcome_index", index as u64);
    row.integer("clob_index", index as u64);
    row.text("outcome", &info.outcomes[index].label);
    row.text_or_null("opposite_token_id", opposite.map(|it| &*it.token_id));
    row.flag("resolved", !info.payouts.is_empty());
    row.number_or_null("final_price", info.payouts.get(index).copied().map(Price::micros));
    row.text_or_null("title", info.question.as_deref());
    row.text_or_null("market_slug", info.slug.as_deref());
    row.flag("closed", info.status.is_closed());
    row.flag("neg_risk", info.neg_risk);
    row.null("neg_risk_market_id");
    row.null("question_index");
    // Clients read a number of 32 bits here.
    let event_id = info.event.as_ref().and_then(|event| event.id.parse::<i32>().ok());
    match event_id.and_then(|id| u64::try_from(id).ok()) {
        Some(id) => row.integer("event_id", id),
        None => row.null("event_id"),
    }
    row.text_or_null("event_slug", info.event.as_ref().and_then(|it| it.slug.as_deref()));
    row.end();
}

/// Returns the volumes of one event and its markets, in a list.
pub(in crate::http::operations::clob) fn live_volume(call: &Call<'_>) -> Answer {
    let found = events(call, "id")?;
    Ok(list(found, 4_096, |out, event| {
        let mut row = JsonObject::new(out);
        row.number("total", total(&[&event]));
        write_list(row.value("markets"), volumes(&event), |out, (market_id, volume)| {
            let mut row = JsonObject::new(out);
            row.text("market", &market_id);
            row.number("value", volume);
            row.end();
        });
        row.end();
    }))
}

/// Returns the volume of some events together and of each of their markets.
pub(in crate::http::operations::clob) fn live_volume_v2(call: &Call<'_>) -> Answer {
    let found = events(call, "event_id")?;
    Ok(data(|body| {
        body.number("taker_volume_total", total(&found.iter().collect::<Vec<_>>()));
        let volumes = found.iter().flat_map(volumes);
        write_list(body.value("conditions"), volumes, |out, (market_id, volume)| {
            let mut row = JsonObject::new(out);
            row.text("condition_id", &market_id);
            row.number("taker_volume", volume);
            row.end();
        });
    }))
}

/// Finds the events that the parameter with this name lists.
fn events(call: &Call<'_>, name: &str) -> Result<Vec<FoundEvent>, ClobError> {
    let ids = Parameters(call.head.uri.query()).list(&[name]);
    if ids.is_empty() || ids.len() > EVENTS_MAX {
        return Err(ClobError::INVALID_PAYLOAD);
    }
    let search = EventSearch { ids, ..EventSearch::default() };
    Ok(call.service().search_events(&search, Page { limit: EVENTS_MAX, offset: 0 }).events)
}

/// Returns the sum of the known volumes, in millionths.
fn total(events: &[&FoundEvent]) -> i64 {
    events.iter().filter_map(|event| event.totals.volume_total).map(Usd::micros).sum()
}

/// Iterates over the markets whose volume is known, in millionths.
fn volumes(event: &FoundEvent) -> impl Iterator<Item = (String, i64)> {
    event.markets.iter().filter_map(|market| {
        let info = market.info();
        let volume = info.volume_total?.micros();
        Some((condition::wide(&info.condition_id).into_owned(), volume))
    })
}

/// Lists the prices of a token in pages, oldest first.
pub(in crate::http::operations::clob) fn prices(call: &Call<'_>) -> Answer {
    let wanted = PricesQuery::read(Parameters(call.head.uri.query()))?;
    let PricesQuery { token_id, period, width, after, limit, is_last_only } = wanted;
    let mut points = call.service().token_prices(&token_id, width, period);
    if is_last_only {
        points.drain(..points.len().saturating_sub(1));
    }
    points.retain(|point| after.is_none_or(|after| point.at > after));
    let has_more = limit > 0 && points.len() > limit;
    points.truncate(limit);
    let next = points.last().filter(|_| has_more).map(|last| last.at.to_string());
    let step = if is_last_only { 0 } else { width.seconds().unsigned_abs() };
    Ok(page(points, 64, next.as_deref(), |out, point| write_point(out, point, step)))
}

fn write_point(out: &mut Vec<u8>, point: PricePoint, step_seconds: u64) {
    let mut row = JsonObject::new(out);
    row.integer("timestamp", point.at.unsigned_abs());
    row.number("price", point.price.micros());
    row.integer("resolution_seconds", step_seconds);
    row.end();
}

/// Which prices are asked for.
#[derive(PartialEq, Eq, Debug)]
struct PricesQuery {
    token_id: Box<str>,
    period: Period,
    width: Width,
    /// Only later points, in seconds since 1970.
    after: Option<i64>,
    limit: usize,
    /// Only the newest one.
    is_last_only: bool,
}

impl PricesQuery {
    /// Reads the query. A period is the last `interval`, from `start` to `end`, or up to `as_of`.
    fn read(parameters: Parameters<'_>) -> Result<Self, ClobError> {
        let token_id = parameters.text("token_id").ok_or(ClobError::INVALID_TOKEN)?;
        let seconds = |name| {
            let seconds = parameters.whole(name)?;
            Ok::<_, ClobError>(seconds.map(|it| i64::try_from(it).unwrap_or(i64::MAX)))
        };
        let (start, end) = (seconds("start")?, seconds("end")?);
        let (as_of, after) = (seconds("as_of")?, seconds("cursor")?);
        let interval = parameters.text("interval");
        let last = interval.as_deref().map(price_history::last);
        let period = match (last, start, as_of) {
            (Some(Some(last)), None, None) if end.is_none() => last,
            (None, Some(start), None) => Period::Between(start, end.unwrap_or(i64::MAX)),
            (None, None, Some(as_of)) if end.is_none() => Period::Between(i64::MIN, as_of),
            _ => return Err(ClobError::INVALID_PAYLOAD),
        };
        let step = parameters.whole("bucket_seconds")?.unwrap_or(60).clamp(60, STEP_SECONDS_MAX);
        let width = u32::try_from(step / 60).ok().and_then(Width::near);
        Ok(Self {
            token_id: token_id.into(),
            period,
            width: width.expect("a step is at least a minute"),
            after,
            limit: parameters.part(POINTS)?.limit,
            is_last_only: as_of.is_some(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<PricesQuery, ClobError> {
        PricesQuery::read(Parameters(Some(query)))
    }

    #[test]
    fn prices_are_of_one_period() {
        for (query, expected) in [
            ("interval=6h", Some(Period::Last(21_600))),
            ("interval=max", Some(Period::Between(i64::MIN, i64::MAX))),
            ("start=60", Some(Period::Between(60, i64::MAX))),
            ("start=60&end=120", Some(Period::Between(60, 120))),
            ("as_of=120", Some(Period::Between(i64::MIN, 120))),
            ("", None),
            ("interval=1y", None),
            ("interval=6h&start=60", None),
            ("interval=6h&end=60", None),
            ("as_of=120&end=60", None),
            ("start=now", None),
            ("start=60&cursor=x", None),
        ] {
            let period = read(&format!("token_id=7&{query}")).map(|it| it.period).ok();
            assert_eq!(period, expected, "{query}");
        }
        assert_eq!(read("interval=6h"), Err(ClobError::INVALID_TOKEN));
    }

    #[test]
    fn a_step_is_in_seconds() {
        for (query, seconds) in [
            ("", 60),
            ("&bucket_seconds=1", 60),
            ("&bucket_seconds=600", 600),
            ("&bucket_seconds=86400", 86_400),
            ("&bucket_seconds=99999999999999999999", 86_400),
        ] {
            let width = read(&format!("token_id=7&interval=1d{query}")).unwrap().width;
            assert_eq!(width.seconds(), seconds, "{query}");
        }
    }

    #[test]
    fn a_token_names_its_market_and_its_payout() {
        let mut info = MarketInfo::bare_yes_no(&format!("0x{}", "0a".repeat(31)));
        info.payouts = vec![Price::ZERO, Price::ONE];
        let mut out = Vec::new();
        write_token(&mut out, &info, 1);
        let row: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(row["condition_id"].as_str().map(str::len), Some(66));
        assert_eq!((&row["module"], &row["outcome"]), (&"binary".into(), &"No".into()));
        assert_eq!((&row["resolved"], &row["final_price"]), (&true.into(), &1.into()));
        assert_eq!(row["event_id"], serde_json::Value::Null);
    }
}
