//! Gamma's events with their markets: one by one, and in pages by row number or by cursor.

use hyper::StatusCode;

use super::markets::{Form, write_event_names, write_market};
use super::query::Parameters;
use super::{PAGE_BYTES_MAX, empty, parameter, write_known};
use crate::http::call::Call;
use crate::http::cursor::Cursor;
use crate::http::error::ClobError;
use crate::http::json::write::{JsonObject, write_list};
use crate::http::operations::clob::Answer;
use crate::http::reply::Reply;
use paperbourse_core::money::Usd;
use paperbourse_exchange::service::{EventSearch, FoundEvent, FoundEvents, Page, SearchText};

/// Maximum number of rows in a page.
const ROWS_MAX: usize = 500;

/// Filters by what is not known here.
const UNKNOWN: [&str; 24] = [
    "cyom",
    "ended",
    "event_date",
    "event_week",
    "exclude_tag_id",
    "featured",
    "featured_order",
    "game_id",
    "include_children",
    "liquidity_max",
    "liquidity_min",
    "live",
    "parent_event_id",
    "partner_slug",
    "recurrence",
    "series_id",
    "series_slug",
    "start_date_max",
    "start_date_min",
    "start_time_max",
    "start_time_min",
    "tag_id",
    "tag_slug",
    "version",
];

pub(super) fn list(call: &Call<'_>) -> Answer {
    let parameters = Parameters::of(call);
    let found = find(call, &parameters, parameters.page(ROWS_MAX)?)?;
    let mut body = Vec::with_capacity(4096);
    // Clients take a page that is shorter than they asked for as the last, so it cannot be cut.
    if write_events(&mut body, &found.events) < found.events.len() {
        return Err(ClobError::TOO_LARGE);
    }
    Ok(Reply::json(StatusCode::OK, body))
}

/// Returns a page that ends with the cursor of the next one, if there is one.
pub(super) fn list_by_cursor(call: &Call<'_>) -> Answer {
    let parameters = Parameters::of(call);
    let page = parameters.page_by_cursor(ROWS_MAX)?;
    let found = find(call, &parameters, page)?;
    let mut out = Vec::with_capacity(4096);
    let mut body = JsonObject::new(&mut out);
    let next = page.offset.saturating_add(write_events(body.value("events"), &found.events));
    if next < found.total {
        body.text("next_cursor", &Cursor::At(next).to_string());
    }
    body.end();
    Ok(Reply::json(StatusCode::OK, out))
}

pub(super) fn get(call: &Call<'_>) -> Answer {
    Ok(show(&by_id(call)?))
}

pub(super) fn get_by_slug(call: &Call<'_>) -> Answer {
    let slugs = vec![parameter(call).as_ref().into()];
    let search = EventSearch { slugs, ..EventSearch::default() };
    Ok(show(&first(call, &search).ok_or(ClobError::NO_SLUG)?))
}

/// Returns the tags of an event, of which it has none.
pub(super) fn tags(call: &Call<'_>) -> Answer {
    by_id(call)?;
    empty::list(call)
}

fn by_id(call: &Call<'_>) -> Result<FoundEvent, ClobError> {
    let search =
        EventSearch { ids: vec![parameter(call).as_ref().into()], ..EventSearch::default() };
    first(call, &search).ok_or(ClobError::NO_ID)
}

fn first(call: &Call<'_>, search: &EventSearch) -> Option<FoundEvent> {
    let found = call.service().search_events(search, Page { limit: 1, offset: 0 });
    found.events.into_iter().next()
}

fn show(event: &FoundEvent) -> Reply {
    let mut body = Vec::with_capacity(4096);
    write_event(&mut body, event);
    Reply::json(StatusCode::OK, body)
}

fn find(
    call: &Call<'_>,
    parameters: &Parameters<'_>,
    page: Page,
) -> Result<FoundEvents, ClobError> {
    let search = EventSearch {
        ids: parameters.all("id"),
        slugs: parameters.all("slug"),
        is_closed: parameters.flag("closed")?,
        is_active: parameters.flag("active")?,
        title: parameters.get("title_search").map(SearchText::new),
        text: None,
        volume: parameters.dollars("volume_min", "volume_max")?,
        end_date: parameters.times("end_date_min", "end_date_max")?,
        order: parameters.order("order")?,
    };
    if parameters.has_any(&UNKNOWN) || parameters.flag("archived")? == Some(true) {
        return Ok(FoundEvents { events: Vec::new(), total: 0 });
    }
    Ok(call.service().search_events(&search, page))
}

/// Writes a list of events, at least one and no more than fit into a page. Returns their number.
pub(super) fn write_events(out: &mut Vec<u8>, events: &[FoundEvent]) -> usize {
    let start = out.len();
    out.push(b'[');
    for (count, event) in events.iter().enumerate() {
        let end = out.len();
        if count > 0 {
            out.push(b',');
        }
        write_event(out, event);
        if count > 0 && out.len() - start > PAGE_BYTES_MAX {
            out.truncate(end);
            out.push(b']');
            return count;
        }
    }
    out.push(b']');
    events.len()
}

fn write_event(out: &mut Vec<u8>, event: &FoundEvent) {
    let (first, totals) = (event.markets[0].info(), event.totals);
    let mut row = JsonObject::new(out);
    write_event_names(&mut row, first);
    if let Some(end) = totals.end_date {
        row.time("endDate", end);
    }
    write_known(&mut row, "category", first.category.as_deref());
    write_known(&mut row, "image", first.image_url.as_deref());
    row.flag("active", totals.is_active);
    row.flag("closed", totals.is_closed);
    row.flag("archived", false);
    if let Some(volume) = totals.volume_total.map(Usd::micros) {
        row.number("volume", volume);
    }
    if let Some(volume) = totals.volume_24h.map(Usd::micros) {
        row.number("volume24hr", volume);
    }
    row.flag("enableOrderBook", !totals.is_closed);
    row.flag("negRisk", event.markets.iter().any(|market| market.info().neg_risk));
    write_list(row.value("markets"), &event.markets, |out, market| {
        write_market(out, market, Form::OfEvent);
    });
    write_list(row.value("series"), [(); 0], |_, ()| {});
    write_list(row.value("tags"), [(); 0], |_, ()| {});
    row.end();
}
