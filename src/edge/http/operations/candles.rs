//! The price of an outcome over time.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Serialize;

use super::order_fields::OUTCOME_CHARACTERS_MAX;
use crate::http::call::{Answer, Call};
use crate::http::error::ApiError;
use crate::http::parameter::Parameter;
use crate::http::query::{Bound, Query};
use crate::http::reply::Reply;
use paperbourse_core::market::history::candle::{Candle, Span, Width};
use paperbourse_core::wire::Decimal;

/// The supported intervals.
const INTERVALS: [&str; 8] = ["1m", "5m", "15m", "1h", "6h", "1d", "1w", "max"];

pub(in crate::http) const QUERY: [Parameter; 4] = [
    Parameter::text(
        "outcome",
        1,
        OUTCOME_CHARACTERS_MAX,
        "the outcome's label, by default the first",
    ),
    Parameter::choice("interval", &INTERVALS, "the width of a candle, by default an hour"),
    Parameter::seconds("start_time", "only candles from this time on"),
    Parameter::seconds("end_time", "only candles up to this time"),
];

pub(in crate::http) fn list(call: &Call<'_>) -> Answer {
    let wanted = read_candles(call.query())?;
    let label = wanted.label.as_deref();
    let candles = call.service().candles(&call.parameter(), label, wanted.width, wanted.span)?;
    Ok(Reply::ok(&candles.iter().map(CandleRow::of).collect::<Vec<_>>()))
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct CandlesQuery<'a> {
    label: Option<Cow<'a, str>>,
    width: Width,
    span: Span,
}

/// Reads the query. By default, candles are an hour wide.
fn read_candles(mut query: Query<'_>) -> Result<CandlesQuery<'_>, ApiError> {
    let label = query.text("outcome", 1, OUTCOME_CHARACTERS_MAX);
    let interval = query.get("interval").unwrap_or("1h".into());
    let from = query.seconds("start_time", Bound::From).unwrap_or(i64::MIN);
    let to = query.seconds("end_time", Bound::To).unwrap_or(i64::MAX);
    query.finish(())?;
    let width = width(&interval).ok_or_else(|| ApiError::invalid_interval(&INTERVALS))?;
    Ok(CandlesQuery { label, width, span: Span { from, to, present: None } })
}

/// Returns the width of an interval's candles; `None` if the interval is not supported.
fn width(interval: &str) -> Option<Width> {
    match interval {
        "1m" => Width::minutes(1),
        "5m" => Width::minutes(5),
        "15m" => Width::minutes(15),
        "1h" => Width::hours(1),
        "6h" => Width::hours(6),
        "1d" | "max" => Width::hours(24),
        "1w" => Width::hours(7 * 24),
        _ => None,
    }
}

/// The prices of an outcome in one interval.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Candle")]
pub(in crate::http) struct CandleRow {
    #[serde(flatten)]
    prices: PricesRow,
    /// The shares traded on this exchange.
    v: Decimal,
}

/// A candle without its volume.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "CandlePrices")]
pub(in crate::http) struct PricesRow {
    /// The start, in seconds since 1970.
    t: i64,
    /// The first price.
    o: Decimal,
    /// The highest price.
    h: Decimal,
    /// The lowest price.
    l: Decimal,
    /// The last price.
    c: Decimal,
}

impl CandleRow {
    fn of(candle: &Candle) -> Self {
        Self { prices: PricesRow::of(candle), v: candle.volume.into() }
    }
}

impl PricesRow {
    pub(super) fn of(candle: &Candle) -> Self {
        let Candle { start, open, high, low, close, .. } = *candle;
        Self { t: start, o: open.into(), h: high.into(), l: low.into(), c: close.into() }
    }
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;

    use super::*;
    use crate::http::query::tests::query;
    use paperbourse_core::money::{Price, Shares};

    fn read(text: &str) -> Result<CandlesQuery<'_>, ApiError> {
        read_candles(query("GET /v1/markets/0xa/candles", Some(text)))
    }

    #[test]
    fn every_interval_has_its_width() {
        let minutes =
            |interval| read(&format!("interval={interval}")).unwrap().width.seconds() / 60;
        assert_eq!(INTERVALS.map(minutes), [1, 5, 15, 60, 360, 1_440, 10_080, 1_440]);
    }

    #[test]
    fn candles_are_of_an_hour_and_unbounded_unless_the_request_says_more() {
        let width = Width::hours(1).unwrap();
        let span = Span { from: i64::MIN, to: i64::MAX, present: None };
        assert_eq!(read(""), Ok(CandlesQuery { label: None, width, span }));
        let text = "outcome=No&interval=5m&start_time=60&end_time=1970-01-01T00:02:00Z";
        let (width, span) = (Width::minutes(5).unwrap(), Span { from: 60, to: 120, ..span });
        assert_eq!(read(text), Ok(CandlesQuery { label: Some("No".into()), width, span }));
        for interval in ["", "1M", "1H", "2h", "60", "MAX", "1h "] {
            let error = read(&format!("interval={interval}")).unwrap_err();
            assert_eq!((error.status, error.code), (StatusCode::BAD_REQUEST, "INVALID_INTERVAL"));
        }
        let error = read("interval=2h&start_time=soon&outcome=").unwrap_err();
        assert_eq!((error.code, error.fields.len()), ("VALIDATION_FAILED", 2));
    }

    #[test]
    fn an_unsupported_interval_is_answered_with_the_supported_ones() {
        let body = String::from_utf8(ApiError::invalid_interval(&INTERVALS).body()).unwrap();
        insta::assert_snapshot!(body);
    }

    #[test]
    fn a_candle_is_shown_in_text() {
        let price = Price::from_micros;
        let candle = Candle {
            start: 1_784_578_680,
            open: price(500_000),
            high: price(555_000),
            low: price(0),
            close: price(1_000_000),
            volume: Shares::from_micros(12_500_000),
        };
        let rows = [candle, Candle { volume: Shares::ZERO, ..candle }].map(|it| CandleRow::of(&it));
        insta::assert_snapshot!(serde_json::to_string(&rows).unwrap());
    }
}
