//! Markets and events that are selected by names and values, as clients of the venue's catalogue
//! do.

use std::cmp::Reverse;
use std::sync::Arc;

use super::events::groups;
use super::markets::{MarketOrder, MarketPage, SearchText, Stage};
use super::{Page, Service};
use paperbourse_core::ids::{Timestamp, condition};
use paperbourse_core::market::catalogue::{MarketInfo, MarketStatus};
use paperbourse_core::market::{Listing, Market, MarketSnapshot};
use paperbourse_core::money::Usd;

/// Returns a number that stands for a market where only numbers can: the FNV-1a hash of its
/// condition id as listed, without the lowest 11 bits, so that each reader of JSON can hold it. Two
/// of 200,000 markets share one in a case of 450,000.
pub fn market_number(condition_id: &str) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    condition_id.bytes().fold(BASIS, step) >> 11
}

/// The least and the greatest value that is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds<T> {
    /// The least value; `None` for any.
    pub min: Option<T>,
    /// The greatest value; `None` for any.
    pub max: Option<T>,
}

/// Selects markets. An empty list of names is no condition. Lists of names may have duplicates.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MarketSearch {
    /// Only markets with one of these numbers; see [`market_number`].
    pub numbers: Vec<u64>,
    /// Only markets with one of these condition ids, in any spelling.
    pub condition_ids: Vec<Box<str>>,
    /// Only markets with one of these tokens.
    pub token_ids: Vec<Box<str>>,
    /// Only markets with one of these slugs. If several share one, the most traded is meant.
    pub slugs: Vec<Box<str>>,
    /// Only markets of one of these events; see [`EventSearch::ids`].
    pub event_ids: Vec<Box<str>>,
    /// Only markets in all of these stages.
    pub stages: Vec<Stage>,
    /// Only markets of which the venue has, or has not, published what trading needs.
    pub is_active: Option<bool>,
    /// Only markets with so many dollars traded.
    pub volume: Bounds<Usd>,
    /// Only markets that are scheduled to end then.
    pub end_date: Bounds<Timestamp>,
    /// The order of the list.
    pub order: MarketOrder,
}

/// Selects events. An empty list of names is no condition.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EventSearch {
    /// Only events with one of these ids. A market without an event counts as an event of its own,
    /// with the market's number as its id, its slug, and its question as the title.
    pub ids: Vec<Box<str>>,
    /// Only events with one of these slugs.
    pub slugs: Vec<Box<str>>,
    /// Only events without an open market, or those with one.
    pub is_closed: Option<bool>,
    /// Only events with, or without, a market that is active; see [`MarketSearch::is_active`].
    pub is_active: Option<bool>,
    /// Only events with this text in their title.
    pub title: Option<SearchText>,
    /// Only events with this text in their title or in a market's question.
    pub text: Option<SearchText>,
    /// Only events with so many dollars traded.
    pub volume: Bounds<Usd>,
    /// Only events that are scheduled to end then.
    pub end_date: Bounds<Timestamp>,
    /// The order of the list; if absent, the event with the most traded market comes first.
    pub order: Option<MarketOrder>,
}

/// A page of a list of events.
pub struct FoundEvents {
    /// The events of the page.
    pub events: Vec<FoundEvent>,
    /// Number of matching events on all pages.
    pub total: usize,
}

/// An event with all its listed markets.
pub struct FoundEvent {
    /// The markets, most traded first; at least one.
    pub markets: Vec<MarketSnapshot>,
    /// What the markets have together.
    pub totals: EventTotals,
}

/// What the listed markets of an event have together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventTotals {
    /// Whether any market is active; see [`MarketSearch::is_active`].
    pub is_active: bool,
    /// Whether every market is closed.
    pub is_closed: bool,
    /// The sum of the known volumes.
    pub volume_total: Option<Usd>,
    /// The sum of the known volumes of the last 24 hours.
    pub volume_24h: Option<Usd>,
    /// The last scheduled end.
    pub end_date: Option<Timestamp>,
}

impl<T> Default for Bounds<T> {
    fn default() -> Self {
        Self { min: None, max: None }
    }
}

impl<T: Ord + Copy> Bounds<T> {
    /// Whether a value is within the bounds. An unknown value is only if there are none.
    fn has(self, value: Option<T>) -> bool {
        let is_in = |min: Option<T>, max: Option<T>, value: T| {
            min.is_none_or(|min| value >= min) && max.is_none_or(|max| value <= max)
        };
        match value {
            Some(value) => is_in(self.min, self.max, value),
            None => self.min.is_none() && self.max.is_none(),
        }
    }
}

impl MarketSearch {
    /// Returns a page of the markets of a listing that match.
    fn page(&self, listing: &Listing, page: Page) -> MarketPage {
        let matches = |market: &&Arc<Market>| self.matches(&market.info());
        match self.named(listing) {
            Some(named) => MarketPage::of(named.into_iter().filter(matches), self.order, page),
            None => MarketPage::of(listing.markets().iter().filter(matches), self.order, page),
        }
    }

    /// Returns the markets with the names of one kind for which there is an index, most traded
    /// first; `None` if no such names are given.
    fn named<'l>(&self, listing: &'l Listing) -> Option<Vec<&'l Arc<Market>>> {
        let mut named: Vec<_> = if !self.condition_ids.is_empty() {
            self.condition_ids.iter().filter_map(|id| listing.by_condition(id)).collect()
        } else if !self.token_ids.is_empty() {
            let found = self.token_ids.iter().filter_map(|id| listing.by_token(id));
            found.map(|(market, _)| market).collect()
        } else if !self.slugs.is_empty() {
            self.slugs.iter().filter_map(|slug| listing.by_slug(slug)).collect()
        } else {
            return None;
        };
        named.sort_by_cached_key(|market| {
            let info = market.info();
            (Reverse(info.volume_total), info.condition_id.clone())
        });
        named.dedup_by(|left, right| Arc::ptr_eq(left, right));
        Some(named)
    }

    fn matches(&self, info: &MarketInfo) -> bool {
        let is_token = |id: &str| info.outcomes.iter().any(|outcome| &*outcome.token_id == id);
        self.stages.iter().all(|stage| stage.matches(info.status))
            && self.is_active.is_none_or(|is_active| is_active == has_begun(info))
            && self.volume.has(info.volume_total)
            && self.end_date.has(info.end_date)
            && is_any(&self.slugs, |slug| info.slug.as_deref() == Some(slug))
            && is_any(&self.token_ids, is_token)
            && is_any(&self.condition_ids, |id| condition::is_same(&info.condition_id, id))
            && is_any(&self.event_ids, |id| is_event(info, id))
            && (self.numbers.is_empty()
                || self.numbers.contains(&market_number(&info.condition_id)))
    }
}

impl EventSearch {
    fn page(&self, listing: &Listing, page: Page) -> FoundEvents {
        let is_named = |market: &&Arc<Market>| self.names(&market.info());
        let mut groups: Vec<_> = groups(listing.markets().iter().filter(is_named))
            .into_iter()
            .map(|group| (EventTotals::of(&group), group))
            .filter(|(totals, group)| self.matches(totals, group))
            .collect();
        if let Some(order) = self.order {
            groups.sort_by_cached_key(|(it, _)| {
                order.key_of(it.volume_total, it.volume_24h, it.end_date)
            });
        }
        let total = groups.len();
        let shown = groups.into_iter().skip(page.offset).take(page.limit);
        let events = shown.map(|(totals, group)| FoundEvent {
            markets: group.into_iter().map(|market| market.snapshot()).collect(),
            totals,
        });
        FoundEvents { events: events.collect(), total }
    }

    /// Whether the event of a market has one of the names that are looked for.
    fn names(&self, info: &MarketInfo) -> bool {
        is_any(&self.slugs, |slug| event_slug(info) == Some(slug))
            && is_any(&self.ids, |id| is_event(info, id))
    }

    fn matches(&self, totals: &EventTotals, group: &[&Arc<Market>]) -> bool {
        let is_titled = |text: &SearchText| text.is_in(event_title(&group[0].info()));
        let asks = |text: &SearchText| {
            group.iter().any(|market| text.is_in(market.info().question.as_deref()))
        };
        self.is_closed.is_none_or(|is_closed| is_closed == totals.is_closed)
            && self.is_active.is_none_or(|is_active| is_active == totals.is_active)
            && self.volume.has(totals.volume_total)
            && self.end_date.has(totals.end_date)
            && self.title.as_ref().is_none_or(is_titled)
            && self.text.as_ref().is_none_or(|text| is_titled(text) || asks(text))
    }
}

impl EventTotals {
    fn of(group: &[&Arc<Market>]) -> Self {
        let mut totals = Self {
            is_active: false,
            is_closed: true,
            volume_total: None,
            volume_24h: None,
            end_date: None,
        };
        for market in group {
            let info = market.info();
            totals.is_active |= has_begun(&info);
            totals.is_closed &= info.status.is_closed();
            totals.volume_total = sum(totals.volume_total, info.volume_total);
            totals.volume_24h = sum(totals.volume_24h, info.volume_24h);
            totals.end_date = totals.end_date.max(info.end_date);
        }
        totals
    }
}

impl Service {
    /// Returns a page of the markets that match.
    pub fn search_markets(&self, search: &MarketSearch, page: Page) -> MarketPage {
        search.page(&self.markets.listing(), page)
    }

    /// Returns a page of the events that match, with all their listed markets.
    pub fn search_events(&self, search: &EventSearch, page: Page) -> FoundEvents {
        search.page(&self.markets.listing(), page)
    }
}

/// Whether the list is empty or has a name that fits.
fn is_any(names: &[Box<str>], fits: impl Fn(&str) -> bool) -> bool {
    names.is_empty() || names.iter().any(|name| fits(name))
}

/// Whether the venue has published what trading needs. It calls closed markets active, too.
fn has_begun(info: &MarketInfo) -> bool {
    info.status != MarketStatus::Hydrating
}

/// Whether this is the id of the market's event.
fn is_event(info: &MarketInfo, id: &str) -> bool {
    match &info.event {
        Some(event) => &*event.id == id,
        None => id.parse() == Ok(market_number(&info.condition_id)),
    }
}

fn event_slug(info: &MarketInfo) -> Option<&str> {
    info.event.as_ref().map_or(info.slug.as_deref(), |event| event.slug.as_deref())
}

fn event_title(info: &MarketInfo) -> Option<&str> {
    info.event.as_ref().map_or(info.question.as_deref(), |event| event.title.as_deref())
}

/// Returns the sum of two volumes that may be unknown.
fn sum(left: Option<Usd>, right: Option<Usd>) -> Option<Usd> {
    let (Some(one), Some(other)) = (left, right) else { return left.or(right) };
    one.checked_add(other).or(left)
}

#[cfg(test)]
mod tests {
    use super::super::markets::MarketValue;
    use super::*;
    use paperbourse_core::market::Markets;
    use paperbourse_core::market::catalogue::{Event, Outcome};

    fn market(id: &str, event: Option<&str>, volume_usd: i64) -> MarketInfo {
        let token =
            |label: &str| Outcome { label: label.into(), token_id: format!("{id}-{label}").into() };
        MarketInfo {
            slug: Some(format!("will-{id}").into()),
            question: Some(format!("Does {id} happen?").into()),
            event: event.map(|event| Event {
                id: event.into(),
                slug: Some(format!("about-{event}").into()),
                title: Some(format!("All of {event}").into()),
            }),
            volume_total: Some(Usd::from_micros(volume_usd * 1_000_000)),
            end_date: Some(Timestamp::from_seconds(volume_usd)),
            ..MarketInfo::bare(id, [token("Yes"), token("No")])
        }
    }

    /// Four markets of three events, the last of which is the market itself.
    fn listing() -> Markets {
        let markets = Markets::new();
        let closed = MarketStatus::Closed;
        let infos = vec![
            market("rain", Some("sky"), 60),
            MarketInfo { status: closed, ..market("snow", Some("sky"), 90) },
            MarketInfo { status: closed, ..market("flood", Some("sea"), 80) },
            MarketInfo { volume_total: None, ..market("tide", None, 70) },
        ];
        markets.list(infos).unwrap();
        markets
    }

    const ALL: Page = Page { limit: 9, offset: 0 };

    fn names(texts: &[&str]) -> Vec<Box<str>> {
        texts.iter().map(|&text| text.into()).collect()
    }

    fn ids(markets: &[MarketSnapshot]) -> String {
        let ids = markets.iter().map(|market| market.info().condition_id.to_string());
        ids.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_number_is_that_of_the_documented_hash() {
        // FNV-1a of nothing and of "a", as published.
        assert_eq!(market_number(""), 0xcbf2_9ce4_8422_2325 >> 11);
        assert_eq!(market_number("a"), 0xaf63_dc4c_8601_ec8c >> 11);
        assert!(market_number("a") < 1 << 53);
    }

    #[test]
    fn markets_are_found_by_each_name_and_value() {
        let markets = listing();
        let seconds = |seconds| Some(Timestamp::from_seconds(seconds));
        let dollars = |dollars: i64| Some(Usd::from_micros(dollars * 1_000_000));
        let none = MarketSearch::default();
        let of = |search: MarketSearch| ids(&search.page(&markets.listing(), ALL).markets);
        assert_eq!(of(none.clone()), "snow flood rain tide");
        for (search, expected) in [
            (
                MarketSearch {
                    condition_ids: names(&["tide", "snow", "x", "tide"]),
                    ..none.clone()
                },
                "snow tide",
            ),
            (MarketSearch { token_ids: names(&["rain-No", "rain-Yes"]), ..none.clone() }, "rain"),
            (
                MarketSearch { slugs: names(&["will-rain", "will-snow"]), ..none.clone() },
                "snow rain",
            ),
            (
                MarketSearch {
                    slugs: names(&["will-rain", "will-snow"]),
                    condition_ids: names(&["rain", "flood"]),
                    ..none.clone()
                },
                "rain",
            ),
            (MarketSearch { numbers: vec![7, market_number("flood")], ..none.clone() }, "flood"),
            (MarketSearch { event_ids: names(&["sky"]), ..none.clone() }, "snow rain"),
            (MarketSearch { stages: vec![Stage::Closed], ..none.clone() }, "snow flood"),
            (MarketSearch { is_active: Some(false), ..none.clone() }, ""),
            (
                MarketSearch { volume: Bounds { min: dollars(80), max: None }, ..none.clone() },
                "snow flood",
            ),
            // A volume that is unknown may be any.
            (
                MarketSearch { volume: Bounds { min: None, max: dollars(80) }, ..none.clone() },
                "flood rain",
            ),
            (
                MarketSearch {
                    end_date: Bounds { min: seconds(70), max: seconds(80) },
                    order: MarketOrder { by: MarketValue::EndDate, ascending: true },
                    ..none
                },
                "tide flood",
            ),
        ] {
            assert_eq!(of(search.clone()), expected, "{search:?}");
        }
    }

    #[test]
    fn events_are_found_by_each_name_and_value() {
        let markets = listing();
        let none = EventSearch::default();
        let of = |search: &EventSearch, page: Page| {
            let found = search.page(&markets.listing(), page);
            let events = found.events.iter().map(|event| format!("[{}]", ids(&event.markets)));
            (events.collect::<String>(), found.total)
        };
        let tide = market_number("tide").to_string();
        let text = |text: &str| Some(SearchText::new(text));
        let by = |by, ascending| Some(MarketOrder { by, ascending });
        let seconds = |seconds| Some(Timestamp::from_seconds(seconds));
        let dollars = |dollars: i64| Some(Usd::from_micros(dollars * 1_000_000));
        for (search, expected) in [
            (none.clone(), "[snow rain][flood][tide]"),
            (EventSearch { ids: names(&["sea", &tide]), ..none.clone() }, "[flood][tide]"),
            (EventSearch { slugs: names(&["about-sky"]), ..none.clone() }, "[snow rain]"),
            (EventSearch { slugs: names(&["will-tide", "will-rain"]), ..none.clone() }, "[tide]"),
            (EventSearch { is_closed: Some(true), ..none.clone() }, "[flood]"),
            (EventSearch { is_active: Some(false), ..none.clone() }, ""),
            (EventSearch { title: text("ALL OF"), ..none.clone() }, "[snow rain][flood]"),
            (EventSearch { title: text("does rain"), ..none.clone() }, ""),
            (EventSearch { text: text("does rain"), ..none.clone() }, "[snow rain]"),
            (
                EventSearch { volume: Bounds { min: dollars(150), max: None }, ..none.clone() },
                "[snow rain]",
            ),
            (
                EventSearch { end_date: Bounds { min: None, max: seconds(80) }, ..none.clone() },
                "[flood][tide]",
            ),
            (
                EventSearch { order: by(MarketValue::EndDate, true), ..none.clone() },
                "[tide][flood][snow rain]",
            ),
        ] {
            let events = expected.matches('[').count();
            assert_eq!(of(&search, ALL), (expected.to_owned(), events), "{search:?}");
        }
        let second = of(&none, Page { limit: 1, offset: 1 });
        assert_eq!(second, ("[flood]".to_owned(), 3));
    }
}
