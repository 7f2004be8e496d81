//! Markets grouped by event, read without involving a shard.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use hashbrown::HashTable;

use super::markets::{SearchText, is_hot};
use super::{Page, Service};
use paperbourse_core::market::{Listing, Market, MarketSnapshot};

/// Selects events. Text comparisons ignore case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventFilter {
    /// Only events with this text in their title or in the question of a market.
    pub text: Option<SearchText>,
    /// Only events whose category contains this text.
    pub category: Option<SearchText>,
    /// Only events whose category does not contain this text.
    pub excluded_category: Option<SearchText>,
    /// Only events with a hot market; see [`is_hot`].
    pub hot_only: bool,
}

/// A page of a list of events.
pub struct EventPage {
    /// The events of the page.
    pub events: Vec<EventMarkets>,
    /// Number of matching events on all pages.
    pub total: usize,
}

/// The markets of an event.
pub struct EventMarkets {
    /// The markets: open ones first, then most traded first; at least one.
    pub markets: Vec<MarketSnapshot>,
    /// Number of markets of the event, including those left out of `markets`.
    pub market_count: usize,
    /// Whether any of the event's markets is hot.
    pub is_hot: bool,
}

impl Service {
    /// Returns a page of the events that have an open market, with at most `markets_max` markets
    /// each. The event with the most traded market comes first. A market without an event counts as
    /// an event of its own.
    pub fn list_events(&self, filter: &EventFilter, page: Page, markets_max: usize) -> EventPage {
        EventPage::of(&self.markets.listing(), filter, page, markets_max)
    }
}

impl EventPage {
    fn of(listing: &Listing, filter: &EventFilter, page: Page, markets_max: usize) -> Self {
        let mut groups = groups(listing.markets().iter());
        groups.retain(|group| filter.matches(group));
        let total = groups.len();
        let shown = groups.into_iter().skip(page.offset).take(page.limit);
        let events = shown.map(|mut group| {
            let is_hot = group.iter().any(|market| is_hot(&market.info()));
            group.sort_by_key(|market| market.info().status.is_closed());
            let market_count = group.len();
            let markets = group.iter().take(markets_max).map(|market| market.snapshot()).collect();
            EventMarkets { markets, market_count, is_hot }
        });
        Self { events: events.collect(), total }
    }
}

/// Groups markets by event. Events, and the markets of each, stay in order.
pub(super) fn groups<'m>(
    markets: impl Iterator<Item = &'m Arc<Market>>,
) -> Vec<Vec<&'m Arc<Market>>> {
    let mut groups: Vec<Vec<&Arc<Market>>> = Vec::new();
    let hasher = foldhash::fast::RandomState::default();
    // Places in `groups`, by the hashes of events. The events themselves stay in the descriptions,
    // so that no id is copied.
    let mut places: HashTable<usize> = HashTable::new();
    for market in markets {
        let info = market.info();
        let Some(event) = &info.event else {
            groups.push(vec![market]);
            continue;
        };
        let hash_of = |id: &str| hasher.hash_one(id);
        let is_it = |place: &usize| is_of_event(groups[*place][0], &event.id);
        if let Some(place) = places.find(hash_of(&event.id), is_it) {
            groups[*place].push(market);
        } else {
            places.insert_unique(hash_of(&event.id), groups.len(), |place| {
                let first = groups[*place][0].info();
                hash_of(first.event.as_ref().map_or("", |event| &event.id))
            });
            groups.push(vec![market]);
        }
    }
    groups
}

fn is_of_event(market: &Market, event_id: &str) -> bool {
    market.info().event.as_ref().is_some_and(|event| &*event.id == event_id)
}

impl EventFilter {
    fn matches(&self, group: &[&Arc<Market>]) -> bool {
        let any = |is_it: &dyn Fn(&Market) -> bool| group.iter().any(|market| is_it(market));
        let is_in_category = |category: &SearchText| {
            any(&|market| category.is_in(market.info().category.as_deref()))
        };
        let has_text = |text: &SearchText| {
            any(&|market| {
                let info = market.info();
                let title = info.event.as_ref().and_then(|event| event.title.as_deref());
                text.is_in(title) || text.is_in(info.question.as_deref())
            })
        };
        any(&|market| !market.info().status.is_closed())
            && (!self.hot_only || any(&|market| is_hot(&market.info())))
            && self.excluded_category.as_ref().is_none_or(|it| !is_in_category(it))
            && self.category.as_ref().is_none_or(is_in_category)
            && self.text.as_ref().is_none_or(has_text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paperbourse_core::market::Markets;
    use paperbourse_core::market::catalogue::{Event, MarketInfo, MarketStatus};
    use paperbourse_core::money::Usd;

    fn market(id: &str, event: Option<&str>, volume_usd: i64) -> MarketInfo {
        MarketInfo {
            question: Some(format!("Does {id} happen?").into()),
            category: Some(if id == "goal" { "Sports" } else { "Weather" }.into()),
            event: event.map(|event| Event {
                id: event.into(),
                slug: None,
                title: Some(format!("All of {event}").into()),
            }),
            volume_total: Some(Usd::from_micros(volume_usd * 1_000_000)),
            outcomes: Vec::new(),
            ..MarketInfo::bare_yes_no(id)
        }
    }

    #[test]
    fn markets_are_grouped_by_event() {
        let closed = |info| MarketInfo { status: MarketStatus::Closed, ..info };
        let markets = Markets::new();
        let infos = vec![
            market("rain", Some("sky"), 6_000),
            closed(market("snow", Some("sky"), 9_000)),
            market("hail", Some("sky"), 7_000),
            market("goal", Some("match"), 8_000),
            // This market has the id of an event, but is not part of it.
            market("sky", None, 10),
            closed(market("flood", Some("sea"), 9_500)),
            market("tide", None, 20),
        ];
        markets.list(infos).unwrap();
        let list = |filter: &EventFilter, page: Page, markets_max: usize| {
            let page = EventPage::of(&markets.listing(), filter, page, markets_max);
            let events = page.events.iter().map(|event| {
                let ids = event.markets.iter().map(|it| it.info().condition_id.to_string());
                let hot = if event.is_hot { " hot" } else { "" };
                format!("{} of {}{hot}", ids.collect::<Vec<_>>().join(" "), event.market_count)
            });
            (events.collect::<Vec<_>>().join(", "), page.total)
        };
        let all =
            EventFilter { text: None, category: None, excluded_category: None, hot_only: false };
        let search = |text| Some(SearchText::new(text));
        let first = Page { limit: 9, offset: 0 };
        for (filter, page, markets_max, expected, total) in [
            (
                all.clone(),
                first,
                9,
                "hail rain snow of 3 hot, goal of 1 hot, tide of 1, sky of 1",
                4,
            ),
            (all.clone(), Page { limit: 1, offset: 0 }, 2, "hail rain of 3 hot", 4),
            (all.clone(), Page { limit: 2, offset: 1 }, 1, "goal of 1 hot, tide of 1", 4),
            (all.clone(), Page { limit: 1, offset: 4 }, 1, "", 4),
            (
                EventFilter { hot_only: true, ..all.clone() },
                first,
                1,
                "hail of 3 hot, goal of 1 hot",
                2,
            ),
            (
                EventFilter { excluded_category: search("Sports"), ..all.clone() },
                first,
                1,
                "hail of 3 hot, tide of 1, sky of 1",
                3,
            ),
            (
                EventFilter { category: search("sport"), ..all.clone() },
                first,
                1,
                "goal of 1 hot",
                1,
            ),
            (
                EventFilter { text: search("ALL OF SKY"), ..all.clone() },
                first,
                1,
                "hail of 3 hot",
                1,
            ),
            (
                EventFilter { text: search("does snow"), ..all.clone() },
                first,
                1,
                "hail of 3 hot",
                1,
            ),
            (EventFilter { text: search("flood"), ..all }, first, 1, "", 0),
        ] {
            let listed = list(&filter, page, markets_max);
            assert_eq!(listed, (expected.to_owned(), total), "{filter:?}");
        }
    }
}
