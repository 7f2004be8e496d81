//! Markets: descriptions and current prices. Bots poll them, so the answers are written straight
//! into the buffer.

use std::borrow::Cow;

use hyper::StatusCode;

use super::prices::write_prices;
use crate::http::call::{Answer, Call};
use crate::http::cursor::Cursor;
use crate::http::invalid::Invalid;
use crate::http::json::write::{JsonObject, write_list, write_text};
use crate::http::parameter::{Parameter, words};
use crate::http::query::{OFFSET_MAX, Query};
use crate::http::reply::Reply;
use paperbourse_core::market::MarketSnapshot;
use paperbourse_core::market::catalogue::MarketInfo;
use paperbourse_core::market::price::{MarketPrices, OutcomePrice};
use paperbourse_core::money::{Price, Usd};
use paperbourse_exchange::service::{
    MarketFilter, MarketOrder, MarketPage, MarketValue, Page, SearchText, Stage, is_hot,
};

/// Maximum number of rows in a list.
const ROWS_MAX: usize = 200;
/// Maximum length of a search text, in characters.
pub(super) const SEARCH_CHARACTERS_MAX: usize = 120;

/// The values that a list can be sorted by, including their names in the venue's API.
const SORTS: [(&str, MarketValue); 8] = [
    ("volume_total", MarketValue::VolumeTotal),
    ("volume", MarketValue::VolumeTotal),
    ("volume_num", MarketValue::VolumeTotal),
    ("volumeNum", MarketValue::VolumeTotal),
    ("volume_24h", MarketValue::Volume24h),
    ("volume24hr", MarketValue::Volume24h),
    ("end_date", MarketValue::EndDate),
    ("endDate", MarketValue::EndDate),
];
const STATUSES: [(&str, Stage); 3] =
    [("active", Stage::Active), ("closed", Stage::Closed), ("resolved", Stage::Resolved)];

pub(in crate::http) const QUERY: [Parameter; 14] = [
    Parameter::limit(50, ROWS_MAX),
    Parameter::OFFSET,
    Parameter::text(
        "q",
        0,
        SEARCH_CHARACTERS_MAX,
        "only markets with this text in their question or slug",
    ),
    Parameter::text("search", 0, SEARCH_CHARACTERS_MAX, "the older name of `q`"),
    CATEGORY,
    Parameter::choice("status", &words(&STATUSES), "only markets in this stage"),
    Parameter::flag("closed", "only closed markets, or only open ones"),
    Parameter::flag("active_only", "only open markets"),
    HOT_ONLY,
    Parameter::choice("sort", &words(&SORTS), "what to sort by"),
    Parameter::flag("ascending", "whether the least comes first"),
    Parameter::flag("envelope", "whether to wrap the rows in a page with a cursor"),
    Parameter::cursor("next_cursor"),
    Parameter::cursor("cursor"),
];

pub(super) const CATEGORY: Parameter =
    Parameter::text("category", 0, SEARCH_CHARACTERS_MAX, "only in categories with this text");
pub(super) const HOT_ONLY: Parameter =
    Parameter::flag("hot_only", "only markets that are traded much today");

pub(in crate::http) fn list(call: &Call<'_>) -> Answer {
    let MarketsQuery { page, is_enveloped, stages, text, category, hot_only, order } =
        read_markets(call.query())?;
    let [text, category] = [text, category].map(|text| text.as_deref().map(SearchText::new));
    let filter = MarketFilter { stages, text, category, hot_only };
    let shown = call.service().list_markets(&filter, order, page);
    let mut body = Vec::with_capacity(128 + 768 * shown.markets.len());
    if is_enveloped {
        write_page(&mut body, &shown, page);
    } else {
        write_rows(&mut body, &shown.markets);
    }
    Ok(Reply::json(StatusCode::OK, body))
}

pub(in crate::http) fn get(call: &Call<'_>) -> Answer {
    Ok(show(&call.service().market(&call.parameter())?))
}

pub(in crate::http) fn get_by_slug(call: &Call<'_>) -> Answer {
    Ok(show(&call.service().market_by_slug(&call.parameter())?))
}

fn show(market: &MarketSnapshot) -> Reply {
    let mut body = Vec::with_capacity(1536);
    write_market(&mut body, market.info(), &MarketPrices::of(market));
    Reply::json(StatusCode::OK, body)
}

#[derive(PartialEq, Debug)]
struct MarketsQuery<'a> {
    page: Page,
    /// Whether the rows come with a cursor, as in the venue's API.
    is_enveloped: bool,
    stages: Vec<Stage>,
    text: Option<Cow<'a, str>>,
    category: Option<Cow<'a, str>>,
    hot_only: bool,
    order: MarketOrder,
}

/// Reads the query. `search` is the older name of `q`, and `cursor` that of `next_cursor`. A cursor
/// replaces the offset.
fn read_markets(mut query: Query<'_>) -> Result<MarketsQuery<'_>, Invalid> {
    let mut page = query.page(50, ROWS_MAX);
    let cursor = query.cursor("next_cursor").or_else(|| query.cursor("cursor"));
    match cursor {
        Some(Cursor::At(offset)) => page.offset = offset,
        Some(Cursor::End) => page.offset = OFFSET_MAX,
        None => {}
    }
    let stages = [
        query.flag("active_only").then_some(Stage::Active),
        query.flag_or_none("closed").map(|it| if it { Stage::Closed } else { Stage::Active }),
        query.choice("status", &STATUSES),
    ];
    let request = MarketsQuery {
        page,
        is_enveloped: query.flag_or_none("envelope").unwrap_or(cursor.is_some()),
        stages: stages.into_iter().flatten().collect(),
        text: query
            .text("q", 0, SEARCH_CHARACTERS_MAX)
            .or_else(|| query.text("search", 0, SEARCH_CHARACTERS_MAX)),
        category: query.text("category", 0, SEARCH_CHARACTERS_MAX),
        hot_only: query.flag("hot_only"),
        order: MarketOrder {
            by: query.choice("sort", &SORTS).unwrap_or_default(),
            ascending: query.flag("ascending"),
        },
    };
    query.finish(request)
}

/// Writes a page in the form of the venue's API.
fn write_page(out: &mut Vec<u8>, shown: &MarketPage, page: Page) {
    let next = if shown.has_more { Cursor::At(page.offset + page.limit) } else { Cursor::End };
    let mut body = JsonObject::new(out);
    write_rows(body.value("data"), &shown.markets);
    body.text("next_cursor", &next.to_string());
    body.integer("limit", page.limit as u64);
    body.integer("count", shown.markets.len() as u64);
    body.end();
}

fn write_rows(out: &mut Vec<u8>, markets: &[MarketSnapshot]) {
    write_list(out, markets, |out, market| {
        write_market_row(out, market.info(), &MarketPrices::of(market));
    });
}

pub(super) fn write_market_row(out: &mut Vec<u8>, info: &MarketInfo, prices: &MarketPrices) {
    let mut row = JsonObject::new(out);
    write_summary(&mut row, info, prices);
    row.end();
}

/// Writes a market: the fields of a row in a list, and more.
fn write_market(out: &mut Vec<u8>, info: &MarketInfo, prices: &MarketPrices) {
    let mut body = JsonObject::new(out);
    write_summary(&mut body, info, prices);
    body.text_or_null("event_group_id", info.event.as_ref().map(|event| &*event.id));
    let title = info.event.as_ref().and_then(|event| event.title.as_deref());
    body.text_or_null("event_title", title);
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
        let price = prices.outcomes.get(index).and_then(OutcomePrice::price);
        token.number_or_null("price", price.map(Price::micros));
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
    // Some clients require an `id` in each row, and request the market by it.
    row.text("id", &info.condition_id);
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
    use super::*;
    use crate::http::invalid::tests::errors_of;
    use crate::http::json::write::written;
    use crate::http::query::tests::query;
    use paperbourse_core::ids::Timestamp;
    use paperbourse_core::market::Market;
    use paperbourse_core::market::catalogue::{Event, MarketStatus};

    fn prices(info: &MarketInfo) -> MarketPrices {
        MarketPrices::of(&Market::new(info.clone()).snapshot())
    }

    fn info() -> MarketInfo {
        MarketInfo::bare_yes_no("0xabc")
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
            event: Some(Event { id: "7".into(), slug: None, title: Some("It".into()) }),
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
    fn markets_are_searched_by_either_name() {
        let read = |text| read_markets(query("GET /v1/markets", Some(text)));
        assert_eq!(
            read("search=old&q=a+b%26&active_only=TRUE&hot_only=0&category=%C3%A9&limit=200"),
            Ok(MarketsQuery {
                page: Page { limit: 200, offset: 0 },
                is_enveloped: false,
                stages: vec![Stage::Active],
                text: Some(Cow::Borrowed("a b&")),
                category: Some(Cow::Borrowed("é")),
                hot_only: false,
                order: MarketOrder::default(),
            })
        );
        assert_eq!(read("search=old").unwrap().text.as_deref(), Some("old"));
        assert_eq!(read("q=%FF+%zz").unwrap().text.as_deref(), Some("\u{fffd} %zz"));
        let long = format!("q={}&active_only=maybe&limit=201", "x".repeat(121));
        assert_eq!(
            errors_of(&read(&long)),
            [
                "query.limit: less_than_equal",
                "query.active_only: bool_parsing",
                "query.q: string_too_long"
            ]
        );
    }

    #[test]
    fn a_cursor_takes_the_place_of_an_offset() {
        let read = |text| {
            let query = read_markets(query("GET /v1/markets", Some(text)));
            query.map(|query| (query.page.offset, query.is_enveloped))
        };
        for (text, expected) in [
            ("offset=3", (3, false)),
            ("offset=3&envelope=1", (3, true)),
            ("offset=3&next_cursor=MTA=", (10, true)),
            ("cursor=MTA%3D", (10, true)),
            ("next_cursor=", (0, true)),
            ("next_cursor=MTA=&cursor=MjA=", (10, true)),
            ("next_cursor=LTE=&envelope=false", (OFFSET_MAX, false)),
        ] {
            assert_eq!(read(text), Ok(expected), "{text}");
        }
        // A billion and one.
        for text in ["next_cursor=10", "next_cursor=MTAwMDAwMDAwMQ=="] {
            assert_eq!(errors_of(&read(text)), ["query.next_cursor: value_error"], "{text}");
        }
    }
}
