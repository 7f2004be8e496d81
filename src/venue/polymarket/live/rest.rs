//! Requests to Gamma, the CLOB service and the data API, within their rate limits.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use hyper::Uri;
use hyper::http::uri::InvalidUri;
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::value::RawValue;

use super::budget::Budget;
use super::{LiveConfig, MarketFilter, Tap};
use crate::client::{Client, ClientError};
use crate::polymarket::wire::{Bounded, Description, WireError, clob, data, gamma, lenient};
use crate::tape::Folder;
use paperbourse_core::ids::condition;
use paperbourse_core::limits::bucket::BucketRule;

/// Maximum size of an answer, in bytes. A page of 100 markets has about 2 MB.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Number of markets per page: the maximum that Gamma allows.
pub(super) const PAGE_MARKETS_MAX: usize = 100;

/// Maximum number of rows in a page, which is more than the venue sends for any request.
const ROWS_PER_PAGE_MAX: usize = 2_000;

/// Maximum number of markets in a page of events, which is more than the venue sends.
const MARKETS_PER_EVENT_PAGE_MAX: usize = 20_000;

/// Number of events per page. Events in families of short markets have one market each.
const PAGE_EVENTS_MAX: usize = 100;

/// Maximum number of markets in one request. Their ids make its address about 6 KB long.
pub(super) const NAMED_MARKETS_MAX: usize = 50;

/// The path of resolutions in the data API.
pub(super) const RESOLUTIONS_PATH: &str = "/v2/resolutions";

/// Maximum number of idle connections to each service.
const KEPT_CONNECTIONS_MAX: usize = 4;

/// A tenth of the venue's limit for lists of markets, which is 300 in 10 s.
const GAMMA_RULE: Result<BucketRule, paperbourse_core::limits::bucket::BucketRuleError> =
    BucketRule::per_second(3, 10);

/// A tenth of the venue's limit for books, which is 500 in 10 s.
const CLOB_RULE: Result<BucketRule, paperbourse_core::limits::bucket::BucketRuleError> =
    BucketRule::per_second(5, 10);

/// Descriptions of single markets have no limit of their own. This is a fortieth of the limit for
/// the whole CLOB service, which is 9,000 in 10 s.
const COMPACT_RULE: Result<BucketRule, paperbourse_core::limits::bucket::BucketRuleError> =
    BucketRule::per_second(20, 40);

/// The path of compact descriptions in the CLOB service.
pub(super) const COMPACT_PATH: &str = "/clob-markets/";

/// A tenth of the venue's limit for the whole data API, which is 1,000 in 10 s.
const DATA_RULE: Result<BucketRule, paperbourse_core::limits::bucket::BucketRuleError> =
    BucketRule::per_second(10, 20);

/// A client for the three services.
pub(super) struct Rest {
    client: Client,
    gamma: Service,
    clob: Service,
    /// The CLOB service's compact descriptions, with a budget of their own so that they do not
    /// delay requests for books.
    compact: Service,
    data: Service,
    tap: Tap,
}

struct Service {
    name: &'static str,
    /// The folder for the service's answers on a tape.
    folder: Folder,
    /// The base address, without a trailing slash.
    base: String,
    budget: Budget,
}

/// An error from a request.
#[derive(Debug, thiserror::Error)]
pub(super) enum RestError {
    /// The address is malformed.
    #[error("{address} is not an address: {source}")]
    Address {
        /// The address, without its query.
        address: String,
        /// The syntax error.
        source: InvalidUri,
    },
    /// The request did not get a usable answer.
    #[error("{name} at {address}: {source}")]
    Client {
        /// The name of the service.
        name: &'static str,
        /// The address, without its query.
        address: String,
        /// The error of the HTTP client.
        source: ClientError,
    },
    /// The answer cannot be parsed.
    #[error("{name} at {address}: {source}")]
    Answer {
        /// The name of the service.
        name: &'static str,
        /// The address, without its query.
        address: String,
        /// The parse error.
        source: serde_json::Error,
    },
}

/// A page of markets. Each market is parsed on its own, so that an unreadable one does not affect
/// the others.
pub(super) struct Page {
    pub(super) markets: Vec<Result<Description, WireError>>,
    /// The cursor of the next page; `None` on the last page.
    pub(super) next_cursor: Option<String>,
}

/// A page of `/events/keyset`.
#[derive(Deserialize)]
struct EventPageObject<'a> {
    #[serde(borrow)]
    events: Rows<'a>,
    next_cursor: Option<String>,
}

/// The rows of a page.
type Rows<'a> = Bounded<&'a RawValue, ROWS_PER_PAGE_MAX>;

/// A page of `/markets/keyset`.
#[derive(Deserialize)]
pub(super) struct PageObject<'a> {
    #[serde(borrow)]
    pub(super) markets: Rows<'a>,
    next_cursor: Option<String>,
}

impl Rest {
    pub(super) fn new(config: &LiveConfig, tap: Tap) -> Self {
        let service = |name, folder, base: &Uri, rule: Result<_, _>| Service {
            name,
            folder,
            base: base.to_string().trim_end_matches('/').to_owned(),
            budget: Budget::new(
                rule.expect("the built-in rates are within bounds"),
                config.timing.refusals,
            ),
        };
        Self {
            client: Client::new(
                (*config.tls).clone(),
                config.timing.answer_timeout,
                KEPT_CONNECTIONS_MAX,
            ),
            gamma: service("Gamma", Folder::Gamma, &config.gamma, GAMMA_RULE),
            clob: service("CLOB", Folder::Clob, &config.clob, CLOB_RULE),
            compact: service("CLOB", Folder::Clob, &config.clob, COMPACT_RULE),
            data: service("data API", Folder::Clob, &config.data, DATA_RULE),
            tap,
        }
    }

    /// Requests a page of open markets, highest 24-hour volume first. If the filter names series,
    /// the markets whose events end soonest come first instead.
    pub(super) async fn page(
        &self,
        filter: &MarketFilter,
        cursor: Option<&str>,
    ) -> Result<Page, RestError> {
        let order = if filter.series.is_empty() {
            format!("/markets/keyset?limit={PAGE_MARKETS_MAX}&order=volume24hr&ascending=false")
        } else {
            format!("/events/keyset?limit={PAGE_EVENTS_MAX}&order=endDate&ascending=true")
        };
        let mut address = format!("{}{order}&active=true&closed=false", self.gamma.base);
        add(&mut address, "series_id", &filter.series);
        add(&mut address, "tag_id", &filter.tags);
        if filter.series.is_empty() {
            add(&mut address, "slug", &filter.slugs);
            add_condition_ids(&mut address, &filter.condition_ids);
        }
        add(&mut address, "after_cursor", cursor);
        let body = self.get(&self.gamma, &address).await?;
        let page = if filter.series.is_empty() { read_page(&body) } else { read_events(&body) };
        let Page { markets, next_cursor } =
            page.map_err(|source| unreadable(&self.gamma, &address, source))?;
        // The last page has either no cursor or the cursor `LTE=`. A cursor that does not advance
        // would loop forever.
        let next_cursor = next_cursor
            .filter(|next| !next.is_empty() && next != "LTE=" && Some(next.as_str()) != cursor);
        Ok(Page { markets, next_cursor })
    }

    /// Requests the open event with this slug, and returns the slugs of its markets; empty if there
    /// is no such event.
    pub(super) async fn market_slugs(&self, event_slug: &str) -> Result<Vec<Box<str>>, RestError> {
        let mut address = format!("{}/events/keyset?limit=1&closed=false", self.gamma.base);
        add(&mut address, "slug", Some(event_slug));
        let body = self.get(&self.gamma, &address).await?;
        let page =
            read_events(&body).map_err(|source| unreadable(&self.gamma, &address, source))?;
        let infos = page.markets.into_iter().flatten().map(|description| description.info);
        let of_event = infos.filter(|info| {
            info.event.as_ref().is_some_and(|event| event.slug.as_deref() == Some(event_slug))
        });
        Ok(of_event.filter_map(|info| info.slug).collect())
    }

    /// Requests descriptions of these markets, at most [`NAMED_MARKETS_MAX`]. Returns only the
    /// closed markets if `closed`, and otherwise only those that are not closed.
    pub(super) async fn markets(
        &self,
        condition_ids: &[Arc<str>],
        closed: bool,
    ) -> Result<Vec<Result<Description, WireError>>, RestError> {
        self.named(condition_ids, closed, &MarketFilter::default()).await
    }

    /// Requests descriptions of these new markets, at most [`NAMED_MARKETS_MAX`]. Returns those
    /// that match the filter's tags and series.
    pub(super) async fn announced(
        &self,
        condition_ids: &[Arc<str>],
        filter: &MarketFilter,
    ) -> Result<Vec<Result<Description, WireError>>, RestError> {
        self.named(condition_ids, false, filter).await
    }

    async fn named(
        &self,
        condition_ids: &[Arc<str>],
        closed: bool,
        filter: &MarketFilter,
    ) -> Result<Vec<Result<Description, WireError>>, RestError> {
        let mut address =
            format!("{}/markets/keyset?closed={closed}&limit={NAMED_MARKETS_MAX}", self.gamma.base);
        add_condition_ids(&mut address, condition_ids);
        add(&mut address, "tag_id", &filter.tags);
        let body = self.get(&self.gamma, &address).await?;
        let is_of_series = |row: &&RawValue| {
            let is_wanted = |id: &str| filter.series.iter().any(|series| series == id);
            filter.series.is_empty() || gamma::series(row.get()).iter().any(|id| is_wanted(id))
        };
        let read = |text: &str| {
            let page: PageObject<'_> = serde_json::from_str(text)?;
            let rows = page.markets.0.into_iter().filter(is_of_series);
            Ok(rows.map(|row| gamma::market(row.get())).collect())
        };
        leniently(&body, read).map_err(|source| unreadable(&self.gamma, &address, source))
    }

    /// Waits until the budget allows one call of [`Self::books`].
    pub(super) async fn books_ready(&self) {
        self.clob.budget.ready().await;
    }

    /// Requests the CLOB service's long description of a market.
    pub(super) async fn clob_market(
        &self,
        condition_id: &str,
    ) -> Result<Result<Description, WireError>, RestError> {
        let id = condition::wide(condition_id);
        let address = format!("{}/markets/{}", self.clob.base, Encoded(&id));
        let body = self.get(&self.clob, &address).await?;
        // Text that is not UTF-8 is not JSON either, so it fails to parse.
        Ok(clob::long_market(&String::from_utf8_lossy(&body)))
    }

    /// Requests the CLOB service's compact description of a market.
    pub(super) async fn compact_market(
        &self,
        condition_id: &str,
    ) -> Result<Result<Description, WireError>, RestError> {
        let id = condition::wide(condition_id);
        let address = format!("{}{COMPACT_PATH}{}", self.compact.base, Encoded(&id));
        let body = self.get(&self.compact, &address).await?;
        Ok(clob::compact_market(&String::from_utf8_lossy(&body)))
    }

    /// Requests the data API's resolution of a market, if it has one.
    pub(super) async fn resolution(
        &self,
        gamma: &Description,
    ) -> Result<Result<Option<Description>, WireError>, RestError> {
        let id = condition::wide(&gamma.info.condition_id);
        let address = format!("{}{RESOLUTIONS_PATH}?condition={}", self.data.base, Encoded(&id));
        let body = self.get(&self.data, &address).await?;
        Ok(data::resolution(&String::from_utf8_lossy(&body), gamma))
    }

    /// Requests the books of these tokens, at most `BOOKS_PER_REQUEST_MAX`, as text for
    /// [`clob::books`]. The venue omits tokens without a book. Await [`Self::books_ready`] first.
    pub(super) async fn books(&self, token_ids: &[Arc<str>]) -> Result<Bytes, RestError> {
        let address = format!("{}/books", self.clob.base);
        let json = books_wanted(token_ids);
        let uri = uri(&address)?;
        let result = self.client.post(uri, "application/json", json, ANSWER_BYTES_MAX).await;
        self.clob.check(&address, result)
    }

    async fn get(&self, service: &Service, address: &str) -> Result<Bytes, RestError> {
        let uri = uri(address)?;
        service.budget.ready().await;
        let result = self.client.get(uri, ANSWER_BYTES_MAX).await;
        self.tap.answer(service.folder, &address[service.base.len()..], &result);
        service.check(address, result)
    }
}

impl Service {
    /// Records the outcome of a request in the budget, and logs a refusal.
    fn check(&self, address: &str, result: Result<Bytes, ClientError>) -> Result<Bytes, RestError> {
        if let Some(pause) = self.budget.note(&result)
            && let Err(error) = &result
        {
            let (service, pause_s) = (self.name, pause.as_secs());
            tracing::warn!(service, %error, pause_s, "request refused, pausing requests");
        }
        let address = without_query(address);
        result.map_err(|source| RestError::Client { name: self.name, address, source })
    }
}

/// Returns the body of a request for the books of these tokens.
pub(super) fn books_wanted(token_ids: &[Arc<str>]) -> Vec<u8> {
    let rows: Vec<String> =
        token_ids.iter().map(|id| format!(r#"{{"token_id":"{id}"}}"#)).collect();
    format!("[{}]", rows.join(",")).into_bytes()
}

/// Adds a query parameter once per value.
fn add(address: &mut String, name: &str, values: impl IntoIterator<Item = impl AsRef<str>>) {
    for value in values {
        let _ = write!(address, "&{name}={}", Encoded(value.as_ref()));
    }
}

/// Adds the condition ids of markets, in every form that Gamma may use.
fn add_condition_ids(address: &mut String, ids: &[impl AsRef<str>]) {
    add(address, "condition_ids", ids.iter().flat_map(|id| condition::catalogued(id.as_ref())));
}

/// Parses a page of `/markets/keyset`.
pub(super) fn read_page(body: &[u8]) -> Result<Page, serde_json::Error> {
    leniently(body, page_of)
}

fn page_of(text: &str) -> Result<Page, serde_json::Error> {
    let page: PageObject<'_> = serde_json::from_str(text)?;
    let markets = page.markets.0.into_iter().map(|row| gamma::market(row.get())).collect();
    Ok(Page { markets, next_cursor: page.next_cursor })
}

/// Parses a page of `/events/keyset` into the markets of its events.
pub(super) fn read_events(body: &[u8]) -> Result<Page, serde_json::Error> {
    leniently(body, events_of)
}

fn events_of(text: &str) -> Result<Page, serde_json::Error> {
    let page: EventPageObject<'_> = serde_json::from_str(text)?;
    let mut markets = Vec::new();
    for event in page.events.0 {
        match gamma::event(event.get()) {
            Ok(event_markets) => markets.extend(event_markets),
            Err(error) => markets.push(Err(error)),
        }
        if markets.len() > MARKETS_PER_EVENT_PAGE_MAX {
            let message = format!("more than {MARKETS_PER_EVENT_PAGE_MAX} markets in its events");
            return Err(serde_json::Error::custom(message));
        }
    }
    Ok(Page { markets, next_cursor: page.next_cursor })
}

/// Parses an answer. If that fails, parses the text again as rewritten by [`lenient`].
fn leniently<T>(
    body: &[u8],
    read: impl Fn(&str) -> Result<T, serde_json::Error>,
) -> Result<T, serde_json::Error> {
    // Text that is not UTF-8 is not JSON either, so it fails to parse.
    let text = String::from_utf8_lossy(body);
    read(&text).or_else(|error| read(&lenient(&text)).map_err(|_| error))
}

fn unreadable(service: &Service, address: &str, source: serde_json::Error) -> RestError {
    RestError::Answer { name: service.name, address: without_query(address), source }
}

/// Shortens an address for the log, since a query can have thousands of characters.
fn without_query(address: &str) -> String {
    address.split('?').next().unwrap_or_default().to_owned()
}

fn uri(address: &str) -> Result<Uri, RestError> {
    address.parse().map_err(|source| RestError::Address { address: without_query(address), source })
}

/// A query value that is percent-encoded when formatted.
pub(super) struct Encoded<'a>(pub(super) &'a str);

impl std::fmt::Display for Encoded<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for byte in self.0.bytes() {
            if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
                formatter.write_char(byte.into())?;
            } else {
                write!(formatter, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A short row takes a hundred times as much memory as its text.
    #[test]
    fn a_page_of_very_many_markets_is_refused() {
        let rows = |count: usize| vec!["0"; count].join(",");
        let events = |count: usize, of_each: usize| {
            let event = format!("{{\"markets\":[{}]}}", rows(of_each));
            format!("{{\"events\":[{}]}}", vec![event; count].join(","))
        };
        let read = |body: &str| read_events(body.as_bytes()).map(|page| page.markets.len());
        assert_eq!(read(&events(10, 2_000)).unwrap(), MARKETS_PER_EVENT_PAGE_MAX);
        let error = read(&events(11, 2_000)).map(drop).unwrap_err();
        assert_eq!(error.to_string(), "more than 20000 markets in its events");
        let page = |count| format!("{{\"markets\":[{}]}}", rows(count));
        let read = |body: &str| read_page(body.as_bytes()).map(|page| page.markets.len());
        assert_eq!(read(&page(ROWS_PER_PAGE_MAX)).unwrap(), ROWS_PER_PAGE_MAX);
        assert!(read(&page(ROWS_PER_PAGE_MAX + 1)).is_err());
    }

    #[test]
    fn query_values_are_percent_encoded() {
        assert_eq!(Encoded("MTAw=&a b/é~.-_").to_string(), "MTAw%3D%26a%20b%2F%C3%A9~.-_");
    }
}
