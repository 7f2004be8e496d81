//! Events with their markets.

use std::borrow::Cow;

use hyper::StatusCode;

use super::markets::{CATEGORY, HOT_ONLY, SEARCH_CHARACTERS_MAX, write_market_row};
use crate::http::call::{Answer, Call};
use crate::http::invalid::Invalid;
use crate::http::json::write::{JsonObject, write_list};
use crate::http::parameter::Parameter;
use crate::http::query::Query;
use crate::http::reply::Reply;
use paperbourse_core::market::price::MarketPrices;
use paperbourse_exchange::service::{EventFilter, EventMarkets, Page, SearchText};

/// Maximum number of events in a list.
const EVENTS_MAX: usize = 200;
/// Number of markets listed per event if the request has no `markets_per_event`.
const MARKETS_PER_EVENT_DEFAULT: usize = 20;
/// Maximum number of markets listed per event.
const MARKETS_PER_EVENT_MAX: usize = 100;
/// Maximum number of markets in an answer.
const MARKETS_MAX: usize = 4_000;

pub(in crate::http) const QUERY: [Parameter; 7] = [
    Parameter::limit(50, EVENTS_MAX),
    Parameter::OFFSET,
    Parameter::number(
        "markets_per_event",
        1,
        MARKETS_PER_EVENT_MAX,
        "the most markets to list of each event",
    )
    .default(MARKETS_PER_EVENT_DEFAULT),
    Parameter::text(
        "search",
        0,
        SEARCH_CHARACTERS_MAX,
        "only events with this text in their title or in a market's question or slug",
    ),
    CATEGORY,
    Parameter::flag("include_sports", "whether to list sports, by default true"),
    HOT_ONLY,
];

pub(in crate::http) fn list(call: &Call<'_>) -> Answer {
    let EventsQuery { page, markets_max, text, category, has_sports, hot_only } =
        read_events(call.query())?;
    let [text, category] = [text, category].map(|text| text.as_deref().map(SearchText::new));
    let excluded_category = (!has_sports).then(|| SearchText::new("sports"));
    let filter = EventFilter { text, category, excluded_category, hot_only };
    let shown = call.service().list_events(&filter, page, markets_max);
    let market_count: usize = shown.events.iter().map(|event| event.markets.len()).sum();
    let mut body = Vec::with_capacity(128 + 256 * shown.events.len() + 768 * market_count);
    let mut object = JsonObject::new(&mut body);
    write_list(object.value("events"), &shown.events, write_event);
    object.integer("total", shown.total as u64);
    object.integer("limit", page.limit as u64);
    object.integer("offset", page.offset as u64);
    object.end();
    Ok(Reply::json(StatusCode::OK, body))
}

#[derive(PartialEq, Debug)]
struct EventsQuery<'a> {
    page: Page,
    markets_max: usize,
    text: Option<Cow<'a, str>>,
    category: Option<Cow<'a, str>>,
    has_sports: bool,
    hot_only: bool,
}

fn read_events(mut query: Query<'_>) -> Result<EventsQuery<'_>, Invalid> {
    let page = query.page(50, EVENTS_MAX);
    let markets_max = query.number("markets_per_event", 1, MARKETS_PER_EVENT_MAX);
    let markets_max = markets_max.unwrap_or(MARKETS_PER_EVENT_DEFAULT);
    if page.limit * markets_max > MARKETS_MAX {
        let message = format!("times the limit should be at most {MARKETS_MAX}");
        query.note("markets_per_event", "less_than_equal", message);
    }
    let request = EventsQuery {
        page,
        markets_max,
        text: query.text("search", 0, SEARCH_CHARACTERS_MAX),
        category: query.text("category", 0, SEARCH_CHARACTERS_MAX),
        has_sports: query.flag_or_none("include_sports").unwrap_or(true),
        hot_only: query.flag("hot_only"),
    };
    query.finish(request)
}

fn write_event(out: &mut Vec<u8>, shown: &EventMarkets) {
    let first = shown.markets[0].info();
    let (id, slug, title) = match &first.event {
        Some(event) => (&*event.id, &event.slug, &event.title),
        None => (&*first.condition_id, &first.slug, &first.question),
    };
    let mut row = JsonObject::new(out);
    row.text("id", id);
    row.text_or_null("slug", slug.as_deref());
    row.text_or_null("title", title.as_deref());
    row.text_or_null("image", first.image_url.as_deref());
    row.text_or_null("category", first.category.as_deref());
    row.time_or_null("end_date", shown.markets.iter().filter_map(|it| it.info().end_date).max());
    row.flag("is_hot", shown.is_hot);
    row.integer("market_count", shown.market_count as u64);
    write_list(row.value("markets"), &shown.markets, |out, market| {
        write_market_row(out, market.info(), &MarketPrices::of(market));
    });
    row.end();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::invalid::tests::errors_of;
    use crate::http::query::tests::query;

    #[test]
    fn an_answer_has_a_bounded_number_of_markets() {
        let read = |text| read_events(query("GET /v1/events", Some(text)));
        for (text, expected) in [
            ("", (50, 20)),
            ("limit=200", (200, 20)),
            ("limit=40&markets_per_event=100", (40, 100)),
        ] {
            let query = read(text).unwrap();
            assert_eq!((query.page.limit, query.markets_max), expected, "{text}");
        }
        for (text, expected) in [
            ("limit=201", "query.limit: less_than_equal"),
            ("markets_per_event=0", "query.markets_per_event: greater_than_equal"),
            ("limit=41&markets_per_event=100", "query.markets_per_event: less_than_equal"),
            ("limit=200&markets_per_event=21", "query.markets_per_event: less_than_equal"),
            ("include_sports=x", "query.include_sports: bool_parsing"),
        ] {
            assert_eq!(errors_of(&read(text)), [expected], "{text}");
        }
        let given = read("search=a+b&category=c&include_sports=false&hot_only=true").unwrap();
        assert_eq!((given.text.as_deref(), given.category.as_deref()), (Some("a b"), Some("c")));
        assert_eq!((given.has_sports, given.hot_only), (false, true));
    }
}
