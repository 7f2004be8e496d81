//! Gamma, the venue's catalogue of markets and events: below `/gamma`, and at the root for requests
//! to a host whose name begins with `gamma-api`, which are those of programs with a fixed address.
//!
//! Keys have the venue's names and forms. What this server does not know is left out, and a filter
//! by it finds nothing.

mod empty;
mod events;
mod markets;
mod query;
mod search;

use std::borrow::Cow;

use hyper::header::HeaderValue;

use super::get;
use crate::http::call::Call;
use crate::http::json::write::{JsonObject, write_text};
use crate::http::operation::Operation;
use crate::http::route::decode;

/// The folder of the rows.
pub(in crate::http) const FOLDER: &str = "/gamma";

/// How the name of the venue's host begins.
const HOST: &[u8] = b"gamma-api";

/// Maximum size of a page, in bytes.
const PAGE_BYTES_MAX: usize = 8 << 20;

/// The table, searched from the top with [`segment`].
pub static GAMMA: [Operation; 29] = [
    get("/gamma/markets", markets::list),
    get("/gamma/markets/keyset", markets::list_by_cursor),
    get("/gamma/markets/slug/{slug}", markets::get_by_slug),
    get("/gamma/markets/{id}", markets::get),
    get("/gamma/markets/{id}/tags", markets::tags),
    get("/gamma/events", events::list),
    get("/gamma/events/keyset", events::list_by_cursor),
    get("/gamma/events/slug/{slug}", events::get_by_slug),
    get("/gamma/events/{id}", events::get),
    get("/gamma/events/{id}/tags", events::tags),
    get("/gamma/public-search", search::search),
    get("/gamma/status", empty::status),
    get("/gamma/tags", empty::list),
    get("/gamma/tags/slug/{slug}", empty::no_slug),
    get("/gamma/tags/slug/{slug}/related-tags", empty::list),
    get("/gamma/tags/slug/{slug}/related-tags/tags", empty::list),
    get("/gamma/tags/{id}", empty::no_id),
    get("/gamma/tags/{id}/related-tags", empty::list),
    get("/gamma/tags/{id}/related-tags/tags", empty::list),
    get("/gamma/series", empty::list),
    get("/gamma/series/{id}", empty::no_id),
    get("/gamma/sports", empty::list),
    get("/gamma/sports/market-types", empty::market_types),
    get("/gamma/teams", empty::list),
    get("/gamma/comments", empty::list),
    get("/gamma/comments/keyset", empty::comments),
    get("/gamma/comments/user_address/{address}", empty::list),
    get("/gamma/comments/{id}", empty::list),
    get("/gamma/public-profile", empty::no_profile),
];

/// Whether requests to this host are for Gamma.
pub(in crate::http) fn is_host(host: Option<&HeaderValue>) -> bool {
    let name = host.and_then(|host| host.as_bytes().get(..HOST.len()));
    name.is_some_and(|name| name.eq_ignore_ascii_case(HOST))
}

/// Whether a path lies in Gamma's folder.
pub(in crate::http) fn is_below_folder(path: &str) -> bool {
    path.strip_prefix(FOLDER).is_some_and(|rest| rest.starts_with('/'))
}

/// Returns the parameter of a path that matches a row, or empty text if the row has none; `None` if
/// the path does not match. The path may lack the folder.
pub(in crate::http) fn segment<'p>(operation: &Operation, path: &'p str) -> Option<&'p str> {
    let path = if is_below_folder(path) { &path[FOLDER.len()..] } else { path };
    operation.path.segment_below(FOLDER, path)
}

/// Returns the path's parameter, percent-decoded.
fn parameter<'a>(call: &Call<'a>) -> Cow<'a, str> {
    let segment = segment(call.operation, call.head.uri.path());
    segment.and_then(decode).expect("the path matched the operation's pattern")
}

/// Writes a list of texts as the venue does: as JSON inside of a string.
fn write_texts<T: AsRef<str>>(
    row: &mut JsonObject<'_>,
    name: &'static str,
    texts: impl IntoIterator<Item = T>,
) {
    let mut list = vec![b'['];
    for text in texts {
        if list.len() > 1 {
            list.extend_from_slice(b", ");
        }
        write_text(&mut list, text.as_ref());
    }
    list.push(b']');
    row.text(name, str::from_utf8(&list).expect("it was written from text"));
}

/// Writes a text if it is known.
fn write_known(row: &mut JsonObject<'_>, name: &'static str, text: Option<&str>) {
    if let Some(text) = text {
        row.text(name, text);
    }
}

#[cfg(test)]
mod tests;
