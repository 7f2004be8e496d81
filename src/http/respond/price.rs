//! What markets cost now.

use crate::http::json::write::{JsonObject, write_list};
use crate::market::catalogue::MarketInfo;
use crate::market::price::{MarketPrices, PriceSource};
use crate::money::Price;

/// An item of the answer to `POST /v1/prices/batch`.
pub fn write_price(out: &mut Vec<u8>, info: &MarketInfo, prices: &MarketPrices) {
    let mut row = JsonObject::new(out);
    row.text("condition_id", &info.condition_id);
    write_prices(&mut row, info, prices);
    row.end();
}

/// The item of a market that is not known.
pub fn write_unpriced(out: &mut Vec<u8>, condition_id: &str) {
    let mut row = JsonObject::new(out);
    row.text("condition_id", condition_id);
    row.end();
}

/// The fields that tell what a market costs, wherever they stand.
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
