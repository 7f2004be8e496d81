//! Markets, as the catalogue describes them and as they are priced now.

use super::price::write_prices;
use crate::http::json::write::{JsonObject, write_list, write_text};
use crate::market::catalogue::MarketInfo;
use crate::market::price::{MarketPrices, OutcomePrice};
use crate::money::{Price, Usd};

/// A market counts as hot when more than this was traded in it.
pub const HOT_VOLUME: Usd = Usd::from_micros(5_000_000_000);

/// Whether more than [`HOT_VOLUME`] was traded in it.
pub fn is_hot(info: &MarketInfo) -> bool {
    info.volume_total.is_some_and(|volume| volume > HOT_VOLUME)
}

/// A row of `GET /v1/markets`.
pub fn write_market_row(out: &mut Vec<u8>, info: &MarketInfo, prices: &MarketPrices) {
    let mut row = JsonObject::new(out);
    write_summary(&mut row, info, prices);
    row.end();
}

/// The answer to `GET /v1/markets/{condition_id}`: the row and more.
pub fn write_market(out: &mut Vec<u8>, info: &MarketInfo, prices: &MarketPrices) {
    let mut body = JsonObject::new(out);
    write_summary(&mut body, info, prices);
    body.null("event_group_id");
    body.text_or_null("event_title", info.event_title.as_deref());
    body.time_or_null("end_date", info.end_date);
    let is_winner = |index: usize| info.payouts.get(index) == Some(&Price::ONE);
    let winner = (0..info.outcomes.len()).find(|&index| is_winner(index));
    body.text_or_null("resolved_outcome", winner.map(|index| &*info.outcomes[index].label));
    body.flag("archived", false);
    body.null("archived_at");
    write_list(body.value("tokens"), info.outcomes.iter().enumerate(), |out, (index, outcome)| {
        let mut token = JsonObject::new(out);
        token.text("token_id", &outcome.token_id);
        token.text("outcome", &outcome.label);
        match prices.outcomes.get(index).and_then(OutcomePrice::price) {
            Some(price) => token.number("price", price.micros()),
            None => token.null("price"),
        }
        token.flag("winner", is_winner(index));
        token.end();
    });
    body.text("question_id", &info.condition_id);
    body.text_or_null("market_slug", info.slug.as_deref());
    body.flag("neg_risk", info.neg_risk);
    body.decimal("tick_size", info.tick.micros());
    body.decimal("min_order_size", info.order_size_min.micros());
    body.end();
}

fn write_summary(row: &mut JsonObject<'_>, info: &MarketInfo, prices: &MarketPrices) {
    row.text("condition_id", &info.condition_id);
    row.text_or_null("slug", info.slug.as_deref());
    row.text_or_null("question", info.question.as_deref());
    row.text_or_null("image_url", info.image_url.as_deref());
    row.text_or_null("category", info.category.as_deref());
    row.null("display_label");
    write_list(row.value("outcomes"), &info.outcomes, |out, outcome| {
        write_text(out, &outcome.label);
    });
    row.flag("active", !info.status.is_closed());
    row.flag("closed", info.status.is_closed());
    row.flag("accepting_orders", info.is_tradable());
    row.flag("is_hot", is_hot(info));
    write_list(row.value("clob_token_ids"), &info.outcomes, |out, outcome| {
        write_text(out, &outcome.token_id);
    });
    row.decimal_or_null("volume_24h", info.volume_24h.map(Usd::micros));
    row.decimal_or_null("volume_total", info.volume_total.map(Usd::micros));
    row.decimal_or_null("last_price", prices.buy().map(Price::micros));
    if prices.outcomes.iter().all(|shown| shown.shown.is_none()) {
        row.null("live_price");
    } else {
        let mut live = JsonObject::new(row.value("live_price"));
        write_prices(&mut live, info, prices);
        live.decimal_or_null("volume", info.volume_total.map(Usd::micros));
        live.end();
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::written;
    use super::*;
    use crate::ids::Timestamp;
    use crate::market::Market;
    use crate::market::catalogue::{MarketStatus, Outcome};

    fn prices(info: &MarketInfo) -> MarketPrices {
        MarketPrices::of(&Market::new(info.clone()).snapshot())
    }

    fn info() -> MarketInfo {
        let outcomes = ["Yes", "No"]
            .map(|label| Outcome { label: label.into(), token_id: format!("t-{label}").into() });
        MarketInfo::bare("0xabc", outcomes)
    }

    #[test]
    fn a_bare_market_has_nulls() {
        let row = written(|out| write_market_row(out, &info(), &prices(&info())));
        insta::assert_snapshot!("bare_row", row);
    }

    #[test]
    fn a_resolved_market_names_its_winner() {
        let market = MarketInfo {
            slug: Some("will-it".into()),
            question: Some("Will \"it\"?".into()),
            event_title: Some("It".into()),
            status: MarketStatus::Resolved,
            end_date: Some(Timestamp::from_seconds(1_800_000_000)),
            volume_24h: Some(Usd::from_micros(1_500_000)),
            volume_total: Some(Usd::from_micros(5_000_000_001)),
            payouts: vec![Price::ZERO, Price::ONE],
            ..info()
        };
        let shown = prices(&market);
        insta::assert_snapshot!("resolved", written(|out| write_market(out, &market, &shown)));
    }

    #[test]
    fn hot_is_above_the_threshold() {
        for (volume, expected) in
            [(None, false), (Some(5_000_000_000), false), (Some(5_000_000_001), true)]
        {
            let market = MarketInfo { volume_total: volume.map(Usd::from_micros), ..info() };
            assert_eq!(is_hot(&market), expected, "{volume:?}");
        }
    }
}
