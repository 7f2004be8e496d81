//! Gamma's markets: one by one, and in pages by row number or by cursor.

use hyper::StatusCode;

use super::query::Parameters;
use super::{PAGE_BYTES_MAX, empty, parameter, write_known, write_texts};
use crate::http::call::Call;
use crate::http::cursor::Cursor;
use crate::http::error::ClobError;
use crate::http::json::write::{JsonObject, write_list};
use crate::http::operations::clob::Answer;
use crate::http::operations::clob::markets::{seconds_delay, shown_base_fee};
use crate::http::reply::Reply;
use paperbourse_core::ids::{Timestamp, condition};
use paperbourse_core::market::MarketSnapshot;
use paperbourse_core::market::catalogue::{FeeExponent, Fees, MarketInfo, MarketStatus};
use paperbourse_core::market::price::{MarketPrices, OutcomePrice};
use paperbourse_core::money::{Price, Usd, write_micros};
use paperbourse_exchange::service::{MarketPage, MarketSearch, Page, Stage, market_number};

/// Maximum number of rows in a page.
const ROWS_MAX: usize = 500;
/// Maximum number of rows in a page that is asked for by cursor, the venue's.
const CURSOR_ROWS_MAX: usize = 100;
/// Most rows are shorter, in bytes.
const ROW_BYTES: usize = 1536;

/// Filters by what is not known here.
const UNKNOWN: [&str; 20] = [
    "cyom",
    "featured",
    "game_id",
    "liquidity_max",
    "liquidity_min",
    "liquidity_num_max",
    "liquidity_num_min",
    "market_maker_address",
    "onchain_event_ids",
    "position_ids",
    "question_ids",
    "request_ids",
    "resolution_status",
    "rewards_min_size",
    "rfq_enabled",
    "sports_market_types",
    "start_date_max",
    "start_date_min",
    "tag_id",
    "version",
];

pub(super) fn list(call: &Call<'_>) -> Answer {
    let parameters = Parameters::of(call);
    let found = find(call, &parameters, parameters.page(ROWS_MAX)?)?;
    let mut body = Vec::with_capacity(16 + ROW_BYTES * found.markets.len());
    write_list(&mut body, &found.markets, |out, market| write_market(out, market, Form::Whole));
    if body.len() > PAGE_BYTES_MAX {
        return Err(ClobError::TOO_LARGE);
    }
    Ok(Reply::json(StatusCode::OK, body))
}

/// Returns a page that ends with the cursor of the next one, if there is one.
pub(super) fn list_by_cursor(call: &Call<'_>) -> Answer {
    let parameters = Parameters::of(call);
    let page = parameters.page_by_cursor(CURSOR_ROWS_MAX)?;
    let found = find(call, &parameters, page)?;
    let mut out = Vec::with_capacity(64 + ROW_BYTES * found.markets.len());
    let mut body = JsonObject::new(&mut out);
    write_list(body.value("markets"), &found.markets, |out, market| {
        write_market(out, market, Form::Whole);
    });
    if found.has_more {
        body.text("next_cursor", &Cursor::At(page.offset + page.limit).to_string());
    }
    body.end();
    Ok(Reply::json(StatusCode::OK, out))
}

pub(super) fn get(call: &Call<'_>) -> Answer {
    Ok(show(&by_id(call)?))
}

pub(super) fn get_by_slug(call: &Call<'_>) -> Answer {
    let market = call.service().market_by_slug(&parameter(call));
    Ok(show(&market.map_err(|_| ClobError::NO_SLUG)?))
}

/// Returns the tags of a market, of which it has none.
pub(super) fn tags(call: &Call<'_>) -> Answer {
    by_id(call)?;
    empty::list(call)
}

fn by_id(call: &Call<'_>) -> Result<MarketSnapshot, ClobError> {
    let number = parameter(call).parse().map_err(|_| ClobError::invalid_field("id"))?;
    let search = MarketSearch { numbers: vec![number], ..MarketSearch::default() };
    let found = call.service().search_markets(&search, Page { limit: 1, offset: 0 });
    found.markets.into_iter().next().ok_or(ClobError::NO_ID)
}

fn show(market: &MarketSnapshot) -> Reply {
    let mut body = Vec::with_capacity(ROW_BYTES);
    write_market(&mut body, market, Form::Whole);
    Reply::json(StatusCode::OK, body)
}

fn find(call: &Call<'_>, parameters: &Parameters<'_>, page: Page) -> Result<MarketPage, ClobError> {
    let Some(search) = read(parameters)? else {
        return Ok(MarketPage { markets: Vec::new(), has_more: false });
    };
    Ok(call.service().search_markets(&search, page))
}

/// Reads what is looked for; `None` if nothing can be found.
fn read(parameters: &Parameters<'_>) -> Result<Option<MarketSearch>, ClobError> {
    // As at the venue, closed markets are listed only if they are asked for.
    let is_closed = parameters.flag("closed")?.unwrap_or(false);
    let mut stages = vec![if is_closed { Stage::Closed } else { Stage::Active }];
    let resolution = parameters.get("uma_resolution_status");
    if resolution == Some("resolved") {
        stages.push(Stage::Resolved);
    }
    let ids = parameters.all("id");
    let numbers = ids.iter().map(|id| id.parse().map_err(|_| ClobError::invalid_field("id")));
    let search = MarketSearch {
        numbers: numbers.collect::<Result<_, _>>()?,
        condition_ids: parameters.all("condition_ids"),
        token_ids: parameters.all("clob_token_ids"),
        slugs: parameters.all("slug"),
        event_ids: parameters.all("event_id"),
        stages,
        is_active: parameters.flag("active")?,
        volume: parameters.dollars("volume_num_min", "volume_num_max")?,
        end_date: parameters.times("end_date_min", "end_date_max")?,
        order: parameters.order("order")?.unwrap_or_default(),
    };
    // Whether a dispute or a proposal is pending is not known.
    let finds_nothing = parameters.has_any(&UNKNOWN)
        || parameters.flag("archived")? == Some(true)
        || resolution.is_some_and(|status| status != "resolved");
    Ok((!finds_nothing).then_some(search))
}

/// How a market is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// With its event.
    Whole,
    /// As part of its event.
    OfEvent,
}

pub(super) fn write_market(out: &mut Vec<u8>, market: &MarketSnapshot, form: Form) {
    let info = market.info();
    let mut row = JsonObject::new(out);
    write_description(&mut row, info);
    write_prices(&mut row, info, &MarketPrices::of(market));
    write_terms(&mut row, info);
    if form == Form::Whole {
        write_list(row.value("events"), [()], |out, ()| {
            let mut event = JsonObject::new(out);
            write_event_names(&mut event, info);
            event.end();
        });
    }
    row.end();
}

/// Writes the names of a market's event. A market without one is an event of its own.
pub(super) fn write_event_names(row: &mut JsonObject<'_>, info: &MarketInfo) {
    if let Some(event) = &info.event {
        row.text("id", &event.id);
        write_known(row, "slug", event.slug.as_deref());
        write_known(row, "title", event.title.as_deref());
    } else {
        row.text("id", itoa::Buffer::new().format(market_number(&info.condition_id)));
        write_known(row, "slug", info.slug.as_deref());
        write_known(row, "title", info.question.as_deref());
    }
}

fn write_description(row: &mut JsonObject<'_>, info: &MarketInfo) {
    row.text("id", itoa::Buffer::new().format(market_number(&info.condition_id)));
    write_known(row, "question", info.question.as_deref());
    row.text("conditionId", &condition::wide(&info.condition_id));
    write_known(row, "slug", info.slug.as_deref());
    if let Some(end) = info.end_date {
        row.time("endDate", end);
        row.text("endDateIso", &day(end));
    }
    write_known(row, "category", info.category.as_deref());
    write_known(row, "image", info.image_url.as_deref());
    write_texts(row, "outcomes", info.outcomes.iter().map(|outcome| &outcome.label));
    let tokens = info.outcomes.iter().map(|outcome| &outcome.token_id);
    if tokens.clone().all(|token_id| !token_id.is_empty()) {
        write_texts(row, "clobTokenIds", tokens);
    }
    // The venue calls closed markets active too.
    row.flag("active", info.status != MarketStatus::Hydrating);
    row.flag("closed", info.status.is_closed());
    row.flag("archived", false);
    row.flag("enableOrderBook", !info.status.is_closed());
    row.flag("acceptingOrders", info.is_tradable());
    if info.status == MarketStatus::Resolved {
        row.word("umaResolutionStatus", "resolved");
    }
    if let Some(volume) = info.volume_total.map(Usd::micros) {
        row.decimal("volume", volume);
        row.number("volumeNum", volume);
    }
    if let Some(volume) = info.volume_24h.map(Usd::micros) {
        row.number("volume24hr", volume);
    }
}

/// Writes the prices of all outcomes, if all are known, and the best ones of the first.
fn write_prices(row: &mut JsonObject<'_>, info: &MarketInfo, prices: &MarketPrices) {
    let shown: Option<Vec<Price>> = prices.outcomes.iter().map(OutcomePrice::price).collect();
    if let Some(shown) = shown.filter(|shown| shown.len() == info.outcomes.len()) {
        write_texts(row, "outcomePrices", shown.into_iter().map(text));
    }
    let Some(first) = prices.outcomes.first() else { return };
    let mut number = |name, price: Option<Price>| {
        if let Some(price) = price {
            row.number(name, price.micros());
        }
    };
    number("bestBid", first.best_bid);
    number("bestAsk", first.best_ask);
    number("lastTradePrice", first.last_trade.map(|trade| trade.price));
    if let (Some(bid), Some(ask)) = (first.best_bid, first.best_ask) {
        row.number("spread", ask.micros() - bid.micros());
    }
}

fn write_terms(row: &mut JsonObject<'_>, info: &MarketInfo) {
    row.number("orderPriceMinTickSize", info.tick.micros());
    row.number("orderMinSize", info.order_size_min.micros());
    row.flag("negRisk", info.neg_risk);
    row.integer("makerBaseFee", shown_base_fee(info));
    row.integer("takerBaseFee", shown_base_fee(info));
    row.flag("feesEnabled", info.fees != Fees::Free);
    if let Fees::Curve(curve) = info.fees {
        let mut fees = JsonObject::new(row.value("feeSchedule"));
        fees.integer("exponent", if curve.exponent == FeeExponent::One { 1 } else { 2 });
        fees.number("rate", curve.rate.micros());
        fees.flag("takerOnly", true);
        // Makers get nothing here.
        fees.integer("rebateRate", 0);
        fees.end();
    }
    if info.taker_delay_ms > 0 {
        row.integer("secondsDelay", seconds_delay(info));
    }
    if let Some(start) = info.books_cleared_at {
        row.text("gameStartTime", &game_start(start));
        row.flag("clearBookOnStart", true);
    }
}

/// Returns the decimal text of a price.
fn text(price: Price) -> String {
    let mut text = Vec::with_capacity(8);
    write_micros(&mut text, price.micros());
    String::from_utf8(text).expect("digits and a point")
}

/// Returns the day of a time, in UTC.
fn day(time: Timestamp) -> String {
    let mut text = time.to_string();
    text.truncate("2026-01-02".len());
    text
}

/// Returns the start of a game as the venue writes it: `2026-01-02 03:04:05+00`.
fn game_start(time: Timestamp) -> String {
    time.to_string().replacen('T', " ", 1).replace('Z', "+00")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::json::write::written;
    use paperbourse_core::market::Market;
    use paperbourse_core::market::catalogue::{Event, FeeCurve, Outcome};
    use paperbourse_core::money::FeeRate;

    fn row(info: MarketInfo) -> String {
        let market = Market::new(info).snapshot();
        written(|out| write_market(out, &market, Form::Whole)).replace(",\"", ",\n\"")
    }

    #[test]
    fn a_market_of_which_little_is_known_lacks_the_rest() {
        let outcomes =
            ["A \"1\"", "Ä", "C"].map(|label| Outcome { label: label.into(), token_id: "".into() });
        let info = MarketInfo {
            status: MarketStatus::Hydrating,
            fees: Fees::Unsupported,
            ..MarketInfo::bare("0xabc", outcomes)
        };
        insta::assert_snapshot!(row(info));
    }

    #[test]
    fn a_resolved_game_has_everything() {
        let info = MarketInfo {
            slug: Some("game".into()),
            question: Some("Who wins?".into()),
            category: Some("Sports".into()),
            image_url: Some("https://example.org/game.png".into()),
            event: Some(Event { id: "7".into(), slug: Some("cup".into()), title: None }),
            status: MarketStatus::Resolved,
            fees: Fees::Curve(FeeCurve {
                rate: FeeRate::from_micros(30_000),
                exponent: FeeExponent::Two,
            }),
            neg_risk: true,
            end_date: Some(Timestamp::from_seconds(1_800_000_000)),
            books_cleared_at: Some(Timestamp::from_seconds(1_799_000_000)),
            taker_delay_ms: 2_500,
            volume_24h: Some(Usd::from_micros(1_500_000)),
            volume_total: Some(Usd::from_micros(2_500_001)),
            payouts: vec![Price::ZERO, Price::ONE],
            ..MarketInfo::bare_yes_no("0xabc")
        };
        insta::assert_snapshot!(row(info));
    }
}
