//! `POST /v1/prices/batch`: current prices of markets. Bots poll it, so the answer is written
//! straight into the buffer.

use hyper::StatusCode;

use super::order_fields::MARKET_ID_CHARACTERS_MAX;
use crate::http::call::{Answer, Call};
use crate::http::fields::{Fields, check_length};
use crate::http::invalid::{Invalid, Location, unless_invalid};
use crate::http::json::read::{self as json, Object};
use crate::http::json::write::{JsonObject, write_list};
use crate::http::reply::Reply;
use paperbourse_core::market::catalogue::MarketInfo;
use paperbourse_core::market::price::{MarketPrices, PriceSource};
use paperbourse_core::money::Price;

/// Maximum number of markets in a request, whatever the caller's tier allows.
pub(in crate::http) const MARKETS_MAX: usize = 50;

pub(in crate::http) fn list(call: &Call<'_>) -> Answer {
    let ids = read_prices(&call.take_body())?;
    let markets = call.service().price_markets(&call.caller, &ids)?;
    let mut body = Vec::with_capacity(64 + 384 * ids.len());
    write_list(&mut body, markets, |out, (id, market)| match market {
        Some(market) => write_price(out, market.info(), &MarketPrices::of(&market)),
        None => write_unpriced(out, id),
    });
    Ok(Reply::json(StatusCode::OK, body))
}

/// Reads the condition ids of the markets, in order. The tier's limit is not checked here.
pub fn read_prices(body: &[u8]) -> Result<Vec<Box<str>>, Invalid> {
    let mut errors = Vec::new();
    let mut fields = Fields::new(Object::of_body(body)?, Location::body(), &mut errors);
    let listed = fields
        .required("market_ids")
        .and_then(|value| fields.list("market_ids", value, 1, MARKETS_MAX));
    let markets = listed.map(|listed| {
        let mut markets = Vec::with_capacity(listed.len());
        for (index, element) in listed.into_iter().enumerate() {
            let checked = match json::text(element) {
                None => Err(("string_type", "should be a string".into())),
                Some(text) => check_length(&text, 1, MARKET_ID_CHARACTERS_MAX).map(|()| text),
            };
            match checked {
                Ok(market) => markets.push(market.into()),
                Err(mistake) => fields.note_element("market_ids", index, mistake),
            }
        }
        markets
    });
    unless_invalid(errors, markets)
}

fn write_price(out: &mut Vec<u8>, info: &MarketInfo, prices: &MarketPrices) {
    let mut row = JsonObject::new(out);
    row.text("condition_id", &info.condition_id);
    write_prices(&mut row, info, prices);
    row.end();
}

/// Writes the row of an unknown market.
fn write_unpriced(out: &mut Vec<u8>, condition_id: &str) {
    let mut row = JsonObject::new(out);
    row.text("condition_id", condition_id);
    row.end();
}

/// Writes a market's price fields, which several answers share.
pub(super) fn write_prices(row: &mut JsonObject<'_>, info: &MarketInfo, prices: &MarketPrices) {
    row.decimal_or_null("buy", prices.buy().map(Price::micros));
    row.decimal_or_null("sell", prices.sell().map(Price::micros));
    let outcomes = info.outcomes.iter().zip(&prices.outcomes);
    write_list(row.value("outcomes"), outcomes, |out, (outcome, shown)| {
        let mut row = JsonObject::new(out);
        row.text("label", &outcome.label);
        row.decimal_or_null("price", shown.price().map(Price::micros));
        row.text("token_id", &outcome.token_id);
        row.end();
    });
    row.text_or_null("source", prices.source().map(PriceSource::as_str));
    row.time_or_null("updated_at", prices.updated_at());
    if prices.stale {
        row.flag("stale", true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::invalid::tests::errors_of;

    #[test]
    fn markets_keep_their_order() {
        let markets = read_prices(br#"{"market_ids":["0xb","0xa","0xb"]}"#).unwrap();
        assert_eq!(markets, ["0xb".into(), "0xa".into(), Box::from("0xb")]);
        let longest = "m".repeat(MARKET_ID_CHARACTERS_MAX);
        let many = |count: usize, id: &str| {
            format!("{{\"market_ids\":[{}]}}", vec![format!("\"{id}\""); count].join(","))
        };
        let most = read_prices(many(MARKETS_MAX, &longest).as_bytes()).unwrap();
        assert_eq!(most.len(), MARKETS_MAX);
        for (body, expected) in [
            ("{}".to_owned(), &["body.market_ids: missing"][..]),
            (many(0, ""), &["body.market_ids: too_short"]),
            (many(MARKETS_MAX + 1, "m"), &["body.market_ids: too_long"]),
            (many(1, &(longest + "m")), &["body.market_ids.0: string_too_long"]),
            (
                r#"{"market_ids":["m","",null]}"#.to_owned(),
                &["body.market_ids.1: string_too_short", "body.market_ids.2: string_type"],
            ),
        ] {
            assert_eq!(errors_of(&read_prices(body.as_bytes())), expected, "{body}");
        }
    }
}
