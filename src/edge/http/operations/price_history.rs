//! The price of an outcome over time, in the venue's form.

use std::borrow::Cow;

use hyper::StatusCode;

use super::candles::PricesRow;
use crate::http::call::{Answer, Call};
use crate::http::error::ApiError;
use crate::http::json::write::{JsonObject, write_list};
use crate::http::parameter::{Parameter, words};
use crate::http::query::{Bound, Query};
use crate::http::reply::Reply;
use paperbourse_core::market::history::candle::{PricePoint, Width};
use paperbourse_exchange::service::Period;

/// The supported intervals.
const INTERVALS: [&str; 7] = ["1h", "6h", "1d", "1w", "1m", "max", "all"];

/// Maximum `fidelity`, in minutes: 30 days.
const FIDELITY_MAX: usize = 30 * 24 * 60;

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

pub(in crate::http) const QUERY: [Parameter; 7] = [
    Parameter::own("market", TOKEN, "the outcome's token").required(),
    Parameter::own("token_id", TOKEN, "another name of `market`"),
    Parameter::seconds("startTs", "only prices from this time on"),
    Parameter::seconds("endTs", "only prices up to this time"),
    Parameter::choice(
        "interval",
        &INTERVALS,
        "without times, how far to look back, by default an hour",
    ),
    Parameter::number("fidelity", 1, FIDELITY_MAX, "minutes between two prices").default(1),
    Parameter::choice(
        "format",
        &words(&FORMATS),
        "`pm` for prices in the venue's form, the default, or `ohlcv` for candles",
    ),
];

/// A token may be any text: an unknown one has no prices.
const TOKEN: &str = ".+";

const FORMATS: [(&str, Format); 2] = [("pm", Format::Points), ("ohlcv", Format::Candles)];

pub(in crate::http) fn list(call: &Call<'_>) -> Answer {
    let wanted = read_history(call.query())?;
    let HistoryQuery { token_id, width, period, format } = &wanted;
    match format {
        Format::Points => {
            let points = call.service().token_prices(token_id, *width, *period);
            let mut body = Vec::with_capacity(32 + 32 * points.len());
            write_points(&mut body, &points);
            Ok(Reply::json(StatusCode::OK, body))
        }
        Format::Candles => {
            let candles = call.service().token_candles(token_id, *width, *period);
            Ok(Reply::ok(&candles.iter().map(PricesRow::of).collect::<Vec<_>>()))
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct HistoryQuery<'a> {
    token_id: Cow<'a, str>,
    width: Width,
    period: Period,
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    Points,
    Candles,
}

/// Reads the query. Without times, the period is the last `interval`, by default an hour.
fn read_history(mut query: Query<'_>) -> Result<HistoryQuery<'_>, ApiError> {
    let token_id = query.get("market").or_else(|| query.get("token_id"));
    let from = query.seconds("startTs", Bound::From);
    let to = query.seconds("endTs", Bound::To);
    let fidelity = query.number("fidelity", 1, FIDELITY_MAX).unwrap_or(1);
    let format = query.choice("format", &FORMATS).unwrap_or(Format::Points);
    let interval = query.get("interval").unwrap_or("1h".into());
    query.finish(())?;
    let token_id = token_id.filter(|token_id| !token_id.is_empty());
    let token_id = token_id.ok_or_else(ApiError::missing_token_id)?;
    let last = last(&interval).ok_or_else(|| ApiError::invalid_interval(&INTERVALS))?;
    let period = match (from, to) {
        (None, None) => last,
        _ => Period::Between(from.unwrap_or(i64::MIN), to.unwrap_or(i64::MAX)),
    };
    let width = u32::try_from(fidelity).ok().and_then(Width::near);
    let width = width.expect("a fidelity is a small number above 0");
    Ok(HistoryQuery { token_id, width, period, format })
}

/// Returns the period that an `interval` stands for; `None` if it is invalid.
pub(in crate::http) fn last(interval: &str) -> Option<Period> {
    match interval {
        "1h" => Some(Period::Last(HOUR)),
        "6h" => Some(Period::Last(6 * HOUR)),
        "1d" => Some(Period::Last(DAY)),
        "1w" => Some(Period::Last(7 * DAY)),
        "1m" => Some(Period::Last(30 * DAY)),
        "max" | "all" => Some(Period::Between(i64::MIN, i64::MAX)),
        _ => None,
    }
}

/// Writes the points in the venue's form: prices are JSON numbers.
fn write_points(out: &mut Vec<u8>, points: &[PricePoint]) {
    let mut body = JsonObject::new(out);
    write_list(body.value("history"), points, |out, point| {
        let mut object = JsonObject::new(out);
        object.integer("t", u64::try_from(point.at).expect("no price is from before 1970"));
        object.number("p", point.price.micros());
        object.end();
    });
    body.end();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::json::write::written;
    use crate::http::query::tests::query;
    use paperbourse_core::money::Price;

    fn read(text: &str) -> Result<HistoryQuery<'_>, ApiError> {
        read_history(query("GET /v1/prices-history", Some(text)))
    }

    #[test]
    fn a_history_is_of_the_last_hour_unless_the_request_says_more() {
        let period = |text: &str| read(&format!("market=1{text}")).unwrap().period;
        for (text, expected) in [
            ("", Period::Last(3_600)),
            ("&interval=6h", Period::Last(21_600)),
            ("&interval=1d", Period::Last(86_400)),
            ("&interval=1w", Period::Last(604_800)),
            ("&interval=1m", Period::Last(2_592_000)),
            ("&interval=max", Period::Between(i64::MIN, i64::MAX)),
            ("&interval=all", Period::Between(i64::MIN, i64::MAX)),
            ("&startTs=60", Period::Between(60, i64::MAX)),
            ("&endTs=60.5", Period::Between(i64::MIN, 60)),
            ("&startTs=60&endTs=120&interval=1d", Period::Between(60, 120)),
        ] {
            assert_eq!(period(text), expected, "{text}");
        }
    }

    #[test]
    fn a_fidelity_is_in_minutes() {
        let seconds = |text: &str| read(&format!("market=1{text}")).unwrap().width.seconds();
        for (text, expected) in [
            ("", 60),
            ("&fidelity=59", 59 * 60),
            ("&fidelity=60", 3_600),
            ("&fidelity=119", 3_600),
            ("&fidelity=43200", 43_200 * 60),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }

    #[test]
    fn a_history_is_of_one_token() {
        let token = |text| read(text).map(|it| it.token_id.into_owned()).map_err(|it| it.code);
        for (text, expected) in [
            ("market=12", Ok("12")),
            ("token_id=12", Ok("12")),
            ("token_id=34&market=12", Ok("12")),
            ("market=0xabc", Ok("0xabc")),
            ("", Err("INVALID_TOKEN_ID")),
            ("market=", Err("INVALID_TOKEN_ID")),
            ("market=12&interval=5m", Err("INVALID_INTERVAL")),
            ("market=12&interval=", Err("INVALID_INTERVAL")),
            ("market=12&startTs=1&interval=5m", Err("INVALID_INTERVAL")),
            ("fidelity=0", Err("VALIDATION_FAILED")),
            ("market=12&fidelity=43201", Err("VALIDATION_FAILED")),
            ("market=12&fidelity=1.5", Err("VALIDATION_FAILED")),
            ("market=12&startTs=1784578686071", Err("VALIDATION_FAILED")),
            ("market=12&format=csv", Err("VALIDATION_FAILED")),
        ] {
            assert_eq!(token(text), expected.map(str::to_owned), "{text}");
        }
    }

    #[test]
    fn prices_are_numbers_in_the_venues_form() {
        let point = |at, micros| PricePoint { at, price: Price::from_micros(micros) };
        let text = written(|out| write_points(out, &[point(60, 0), point(120, 555_000)]));
        assert_eq!(text, r#"{"history":[{"t":60,"p":0},{"t":120,"p":0.555}]}"#);
        assert_eq!(written(|out| write_points(out, &[])), r#"{"history":[]}"#);
    }
}
