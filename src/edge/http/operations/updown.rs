//! Markets on whether a price goes up or down within a window of time. Bots poll them, so the
//! answers are written straight into the buffer.

use std::borrow::Cow;

use hyper::StatusCode;

use crate::http::call::{Answer, Call};
use crate::http::invalid::Invalid;
use crate::http::json::write::{JsonObject, write_decimal, write_list, write_text};
use crate::http::parameter::{Parameter, words};
use crate::http::query::Query;
use crate::http::reply::Reply;
use paperbourse_core::market::MarketSnapshot;
use paperbourse_core::market::catalogue::{MarketInfo, MarketStatus};
use paperbourse_core::market::price::{MarketPrices, OutcomePrice};
use paperbourse_core::market::updown::{Interval, UpDown, shown_window};
use paperbourse_core::money::Price;
use paperbourse_exchange::service::UpDownList;

/// Number of rows in a list if the request has no `limit`.
const ROWS_DEFAULT: usize = 200;
/// Maximum number of rows in a list.
const ROWS_MAX: usize = 500;
/// Maximum length of an asset's symbol in a query, in characters.
const ASSET_CHARACTERS_MAX: usize = 64;

pub(in crate::http) const QUERY: [Parameter; 3] = [
    ASSET,
    Parameter::choice("interval", &words(&INTERVALS), "only markets of this length"),
    Parameter::limit(ROWS_DEFAULT, ROWS_MAX),
];

pub(in crate::http) const ASSET_QUERY: [Parameter; 1] = [ASSET];

const ASSET: Parameter =
    Parameter::text("asset", 1, ASSET_CHARACTERS_MAX, "only markets on the price of this asset");

const INTERVALS: [(&str, Interval); 5] = {
    let mut intervals = [("", Interval::Day); 5];
    let mut index = 0;
    while index < intervals.len() {
        intervals[index] = (Interval::ALL[index].as_str(), Interval::ALL[index]);
        index += 1;
    }
    intervals
};

pub(in crate::http) fn list(call: &Call<'_>) -> Answer {
    let UpDownQuery { asset, interval, limit } = read_list(call.query())?;
    let shown = call.service().list_updown(asset.as_deref(), interval, limit);
    let mut body = Vec::with_capacity(512 + 1536 * shown.markets.len());
    let mut object = JsonObject::new(&mut body);
    write_list(object.value("markets"), &shown.markets, |out, (updown, market)| {
        write_row(out, updown, market);
    });
    object.integer("total", shown.total as u64);
    write_intervals(&mut object, &shown);
    let assets = shown.asset_counts.iter().map(|(asset, count)| (asset.as_str(), *count));
    write_counts(object.value("asset_counts"), assets.clone());
    write_list(object.value("available_assets"), assets, |out, (asset, _)| write_text(out, asset));
    // This server has no prices of currencies. Clients expect a map by asset here.
    write_counts(object.value("crypto_prices"), std::iter::empty());
    object.time("timestamp", call.context.moment.now);
    object.end();
    Ok(Reply::json(StatusCode::OK, body))
}

pub(in crate::http) fn list_intervals(call: &Call<'_>) -> Answer {
    let mut query = call.query();
    let asset = read_asset(&mut query);
    let asset = query.finish(asset)?;
    let shown = call.service().list_updown(asset.as_deref(), None, 0);
    let mut body = Vec::with_capacity(256);
    let mut object = JsonObject::new(&mut body);
    object.text_or_null("asset", asset.as_deref());
    write_intervals(&mut object, &shown);
    object.time("timestamp", call.context.moment.now);
    object.end();
    Ok(Reply::json(StatusCode::OK, body))
}

struct UpDownQuery<'a> {
    asset: Option<Cow<'a, str>>,
    interval: Option<Interval>,
    limit: usize,
}

fn read_list(mut query: Query<'_>) -> Result<UpDownQuery<'_>, Invalid> {
    let request = UpDownQuery {
        asset: read_asset(&mut query),
        interval: query.choice("interval", &INTERVALS),
        limit: query.number("limit", 1, ROWS_MAX).unwrap_or(ROWS_DEFAULT),
    };
    query.finish(request)
}

fn read_asset<'a>(query: &mut Query<'a>) -> Option<Cow<'a, str>> {
    query.text("asset", 1, ASSET_CHARACTERS_MAX)
}

fn write_intervals(object: &mut JsonObject<'_>, shown: &UpDownList) {
    let counts = Interval::ALL.map(Interval::as_str).into_iter().zip(shown.interval_counts);
    write_counts(object.value("interval_counts"), counts.clone());
    let available = counts.filter(|(_, count)| *count > 0);
    write_list(object.value("available_intervals"), available, |out, (interval, _)| {
        write_text(out, interval);
    });
}

/// Writes a JSON object that maps each name to its count.
fn write_counts<'n>(out: &mut Vec<u8>, counts: impl Iterator<Item = (&'n str, usize)>) {
    out.push(b'{');
    for (index, (name, count)) in counts.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_text(out, name);
        out.push(b':');
        out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
    }
    out.push(b'}');
}

fn write_row(out: &mut Vec<u8>, updown: &UpDown, market: &MarketSnapshot) {
    let (info, prices) = (market.info(), MarketPrices::of(market));
    let (date, hours) = info.question.as_deref().map(shown_window).unwrap_or_default();
    let mut row = JsonObject::new(out);
    row.text_or_null("event_id", info.event.as_ref().map(|event| &*event.id));
    row.text("condition_id", &info.condition_id);
    row.text_or_null("slug", info.slug.as_deref());
    row.text_or_null("title", info.question.as_deref());
    row.null("description");
    row.text_or_null("asset", updown.asset.as_deref());
    row.text_or_null("interval", updown.interval.map(Interval::as_str));
    row.text_or_null("date_display", date);
    row.text_or_null("time_range", hours);
    row.time_or_null("start_date", updown.start);
    row.time_or_null("end_date", updown.end);
    row.flag("active", !info.status.is_closed());
    row.flag("closed", info.status.is_closed());
    row.flag("resolved", info.status == MarketStatus::Resolved);
    // The price to beat is a currency's price, which this server does not have.
    row.null("group_item_threshold");
    row.null("event_metadata_ptb");
    write_list(row.value("tags"), [""; 0], write_text);
    row.text_or_null("image", info.image_url.as_deref());
    row.text_or_null("icon", info.image_url.as_deref());
    write_live_price(&mut row, &prices);
    write_list(row.value("markets"), [()], |out, ()| write_market(out, info, &prices));
    row.end();
}

/// Writes the prices as JSON numbers, unlike everywhere else under `/v1`: clients expect it here.
fn write_live_price(row: &mut JsonObject<'_>, prices: &MarketPrices) {
    let mut live = JsonObject::new(row.value("live_price"));
    live.number_or_null("buy", prices.buy().map(Price::micros));
    live.number_or_null("sell", prices.sell().map(Price::micros));
    live.time_or_null("updated_at", prices.updated_at());
    if prices.stale {
        live.flag("stale", true);
    }
    live.end();
}

/// Writes the outcomes as JSON lists inside strings, which clients decode a second time.
fn write_market(out: &mut Vec<u8>, info: &MarketInfo, prices: &MarketPrices) {
    let mut market = JsonObject::new(out);
    market.text("id", &info.condition_id);
    market.text("condition_id", &info.condition_id);
    market.text_or_null("question", info.question.as_deref());
    market.text("outcomes", &encoded(&info.outcomes, |out, it| write_text(out, &it.label)));
    let shown = prices.outcomes.iter().map(OutcomePrice::price);
    let write_price = |out: &mut Vec<u8>, price: Option<Price>| match price {
        Some(price) => write_decimal(out, price.micros()),
        None => out.extend_from_slice(b"null"),
    };
    market.text("outcome_prices", &encoded(shown, write_price));
    market.text("token_ids", &encoded(&info.outcomes, |out, it| write_text(out, &it.token_id)));
    market.end();
}

/// Returns a list as JSON text.
fn encoded<T>(elements: impl IntoIterator<Item = T>, write: impl FnMut(&mut Vec<u8>, T)) -> String {
    let mut list = Vec::new();
    write_list(&mut list, elements, write);
    String::from_utf8(list).expect("JSON is UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::invalid::tests::errors_of;
    use crate::http::json::write::written;
    use crate::http::query::tests::query;
    use paperbourse_core::ids::Timestamp;
    use paperbourse_core::market::Market;
    use paperbourse_core::market::catalogue::Outcome;

    #[test]
    fn a_row_names_the_window_and_encodes_its_lists() {
        let outcomes = [("Up", "7"), ("Down \"\"", "8")];
        let outcomes =
            outcomes.map(|(label, id)| Outcome { label: label.into(), token_id: id.into() });
        let mut info = MarketInfo {
            slug: Some("hype-updown-5m-1782287400".into()),
            question: Some("Hyperliquid Up or Down - June 24, 3:50AM-3:55AM ET".into()),
            image_url: Some("https://example.org/hype.png".into()),
            ..MarketInfo::bare("0xabc", outcomes)
        };
        let updown = UpDown {
            asset: Some("HYPE".into()),
            interval: Some(Interval::FiveMinutes),
            start: Some(Timestamp::from_seconds(1_782_287_400)),
            end: Some(Timestamp::from_seconds(1_782_287_700)),
        };
        let show = |info: &MarketInfo, updown: &UpDown| {
            let market = Market::new(info.clone()).snapshot();
            written(|out| write_row(out, updown, &market))
        };
        let unpriced = show(&info, &updown);
        info.status = MarketStatus::Resolved;
        info.payouts = vec![Price::ONE, Price::ZERO];
        let resolved = show(&info, &UpDown::default());
        insta::assert_snapshot!(format!("{unpriced}\n{resolved}"));
    }

    #[test]
    fn an_interval_is_named_in_any_case() {
        let read = |text| {
            let query = read_list(query("GET /v1/markets/updown", Some(text)));
            query.map(|it| (it.asset.map(Cow::into_owned), it.interval, it.limit))
        };
        let hour = Some(Interval::Hour);
        assert_eq!(read("asset=btc&interval=1h&limit=500"), Ok((Some("btc".into()), hour, 500)));
        assert_eq!(read("interval=DAILY"), Ok((None, Some(Interval::Day), ROWS_DEFAULT)));
        for (text, expected) in [
            ("interval=2H", "query.interval: enum"),
            ("asset=", "query.asset: string_too_short"),
            ("limit=501", "query.limit: less_than_equal"),
        ] {
            assert_eq!(errors_of(&read(text)), [expected], "{text}");
        }
    }
}
