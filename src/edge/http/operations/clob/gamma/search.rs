//! Gamma's search, which finds events by their text.

use hyper::StatusCode;

use super::events::write_events;
use super::query::Parameters;
use crate::http::call::Call;
use crate::http::error::ClobError;
use crate::http::json::write::{JsonObject, write_list};
use crate::http::operations::clob::Answer;
use crate::http::query::OFFSET_MAX;
use crate::http::reply::Reply;
use paperbourse_exchange::service::{EventSearch, FoundEvents, Page, SearchText};

/// Number of events in a page if the request has no `limit_per_type`.
const EVENTS_DEFAULT: usize = 10;
/// Maximum number of events in a page.
const EVENTS_MAX: usize = 100;

/// Filters by what is not known here.
const UNKNOWN: [&str; 4] = ["events_tag", "exclude_tag_id", "presets", "recurrence"];

pub(super) fn search(call: &Call<'_>) -> Answer {
    let parameters = Parameters::of(call);
    let text = parameters.get("q").ok_or_else(|| ClobError::invalid_field("q"))?;
    let limit = parameters.number("limit_per_type")?.unwrap_or(EVENTS_DEFAULT);
    let limit = limit.clamp(1, EVENTS_MAX);
    let pages_before = parameters.number("page")?.unwrap_or(1).saturating_sub(1);
    let offset = pages_before.saturating_mul(limit).min(OFFSET_MAX);
    let mut search = EventSearch {
        text: Some(SearchText::new(text)),
        order: parameters.order("sort")?,
        ..EventSearch::default()
    };
    let mut finds_nothing = parameters.has_any(&UNKNOWN);
    match parameters.get("events_status") {
        None | Some("all") => {}
        Some("active" | "open") => search.is_closed = Some(false),
        Some("closed" | "resolved") => search.is_closed = Some(true),
        Some(_) => finds_nothing = true,
    }
    let found = if finds_nothing {
        FoundEvents { events: Vec::new(), total: 0 }
    } else {
        call.service().search_events(&search, Page { limit, offset })
    };
    let mut out = Vec::with_capacity(4096);
    let mut body = JsonObject::new(&mut out);
    // The next page begins after `limit` events, so that this one cannot be cut.
    if write_events(body.value("events"), &found.events) < found.events.len() {
        return Err(ClobError::TOO_LARGE);
    }
    write_list(body.value("tags"), [(); 0], |_, ()| {});
    write_list(body.value("profiles"), [(); 0], |_, ()| {});
    let mut pagination = JsonObject::new(body.value("pagination"));
    pagination.flag("hasMore", offset + found.events.len() < found.total);
    pagination.integer("totalResults", found.total as u64);
    pagination.end();
    body.end();
    Ok(Reply::json(StatusCode::OK, out))
}
