//! Markets, prices and books, read without involving a shard.

use std::sync::Arc;

use super::{Caller, Page, Service, ServiceError};
use paperbourse_core::engine::rejection::Rejection;
use paperbourse_core::ids::{OutcomeIndex, Timestamp};
use paperbourse_core::market::catalogue::{MarketInfo, MarketStatus};
use paperbourse_core::market::history::candle::{Candle, PricePoint, Span, Width};
use paperbourse_core::market::quote::QuotedBook;
use paperbourse_core::market::{Market, MarketSnapshot};
use paperbourse_core::money::Usd;

/// The volume above which a market is hot.
const HOT_VOLUME: Usd = Usd::from_micros(5_000_000_000);

/// Selects markets. Text comparisons ignore case.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MarketFilter {
    /// Only markets in all of these stages.
    pub stages: Vec<Stage>,
    /// Only markets whose question or slug contains this text.
    pub text: Option<SearchText>,
    /// Only markets whose category contains this text.
    pub category: Option<SearchText>,
    /// Only hot markets; see [`is_hot`].
    pub hot_only: bool,
}

/// Text to search for in other texts, ignoring case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SearchText {
    lower_case: Box<str>,
}

/// A stage of a market's life, by which lists can be filtered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Not closed.
    Active,
    /// Orders are accepted.
    Tradable,
    /// Closed, resolved or not.
    Closed,
    /// The payouts are final.
    Resolved,
}

/// The order of a list of markets. Markets that lack the value come last; markets with equal values
/// are sorted most traded first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MarketOrder {
    /// The value to compare.
    pub by: MarketValue,
    /// Whether the lowest value comes first instead of the highest.
    pub ascending: bool,
}

/// A value of a market to sort by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MarketValue {
    /// Total dollars traded.
    #[default]
    VolumeTotal,
    /// Dollars traded in the last 24 hours.
    Volume24h,
    /// The scheduled end.
    EndDate,
}

/// A page of a list of markets.
pub struct MarketPage {
    /// The markets of the page.
    pub markets: Vec<MarketSnapshot>,
    /// Whether more markets follow.
    pub has_more: bool,
}

/// A period of the venue's time, in seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Period {
    /// From the first time to the second, both in seconds since 1970.
    Between(i64, i64),
    /// The period that begins this long before the venue's newest price.
    Last(i64),
}

/// A snapshot of a market, and one of its outcomes.
pub struct OutcomeSnapshot {
    /// The market.
    pub market: MarketSnapshot,
    /// The outcome's index in the market.
    pub outcome: OutcomeIndex,
}

/// Whether a market is hot: its volume exceeds 5,000 dollars.
pub fn is_hot(info: &MarketInfo) -> bool {
    info.volume_total.is_some_and(|volume| volume > HOT_VOLUME)
}

impl SearchText {
    /// Creates a text to search for.
    pub fn new(text: &str) -> Self {
        Self { lower_case: text.to_lowercase().into() }
    }

    pub(super) fn is_in(&self, text: Option<&str>) -> bool {
        text.is_some_and(|text| text.to_lowercase().contains(&*self.lower_case))
    }
}

impl MarketFilter {
    fn matches(&self, info: &MarketInfo) -> bool {
        self.stages.iter().all(|stage| stage.matches(info.status))
            && (!self.hot_only || is_hot(info))
            && self.text.as_ref().is_none_or(|text| {
                text.is_in(info.question.as_deref()) || text.is_in(info.slug.as_deref())
            })
            && self.category.as_ref().is_none_or(|it| it.is_in(info.category.as_deref()))
    }
}

impl Stage {
    pub(super) const fn matches(self, status: MarketStatus) -> bool {
        match self {
            Self::Active => !status.is_closed(),
            Self::Tradable => status.is_tradable(),
            Self::Closed => status.is_closed(),
            Self::Resolved => matches!(status, MarketStatus::Resolved),
        }
    }
}

impl MarketOrder {
    /// Returns a sort key that yields this order.
    fn key(self, info: &MarketInfo) -> impl Ord + use<> {
        self.key_of(info.volume_total, info.volume_24h, info.end_date)
    }

    /// Returns the same key for something that has these values.
    pub(super) fn key_of(
        self,
        volume_total: Option<Usd>,
        volume_24h: Option<Usd>,
        end_date: Option<Timestamp>,
    ) -> impl Ord + use<> {
        let value = match self.by {
            MarketValue::VolumeTotal => volume_total.map(Usd::micros),
            MarketValue::Volume24h => volume_24h.map(Usd::micros),
            MarketValue::EndDate => end_date.map(Timestamp::nanos),
        };
        // The complement reverses the order and, unlike negation, exists for every number.
        let value = value.map(|value| if self.ascending { value } else { !value });
        (value.is_none(), value)
    }
}

impl MarketPage {
    /// Returns a page of these markets, which are in the order of the listing.
    pub(super) fn of<'m>(
        matching: impl Iterator<Item = &'m Arc<Market>>,
        order: MarketOrder,
        page: Page,
    ) -> Self {
        // The listing is already in this order.
        if order == MarketOrder::default() {
            return Self::cut(matching, page);
        }
        let mut sorted: Vec<_> = matching
            .enumerate()
            .map(|(place, market)| ((order.key(&market.info()), place), market))
            .collect();
        // Only the markets before the end of the page need to be sorted.
        let end = (page.offset + page.limit).min(sorted.len());
        if end < sorted.len() {
            sorted.select_nth_unstable_by(end, |left, right| left.0.cmp(&right.0));
        }
        sorted[..end].sort_unstable_by(|left, right| left.0.cmp(&right.0));
        Self::cut(sorted.into_iter().map(|(_, market)| market), page)
    }

    fn cut<'m>(mut markets: impl Iterator<Item = &'m Arc<Market>>, page: Page) -> Self {
        let of_page = markets.by_ref().skip(page.offset).take(page.limit);
        let snapshots = of_page.map(|market| market.snapshot()).collect();
        Self { markets: snapshots, has_more: markets.next().is_some() }
    }
}

impl Period {
    fn span(self, now: Timestamp) -> Span {
        let (from, to) = match self {
            Self::Between(from, to) => (from, to),
            Self::Last(seconds) => (now.seconds().saturating_sub(seconds), i64::MAX),
        };
        Span { from, to, present: None }
    }
}

impl OutcomeSnapshot {
    fn of(market: &Market, outcome: OutcomeIndex) -> Self {
        Self { market: market.snapshot(), outcome }
    }

    /// Returns the book that the outcome trades on.
    pub fn book(&self) -> Result<QuotedBook<'_>, ServiceError> {
        self.market.quoted(self.outcome).ok_or(ServiceError::NoBook)
    }
}

impl Service {
    /// Returns a page of the markets that match the filter.
    pub fn list_markets(
        &self,
        filter: &MarketFilter,
        order: MarketOrder,
        page: Page,
    ) -> MarketPage {
        let listing = self.markets.listing();
        let matching = listing.markets().iter().filter(|market| filter.matches(&market.info()));
        MarketPage::of(matching, order, page)
    }

    /// Returns the market with this condition id.
    pub fn market(&self, condition_id: &str) -> Result<MarketSnapshot, ServiceError> {
        Ok(self.find_market(condition_id)?.snapshot())
    }

    /// Returns the market with this slug.
    pub fn market_by_slug(&self, slug: &str) -> Result<MarketSnapshot, ServiceError> {
        let listing = self.markets.listing();
        let market = listing.by_slug(slug);
        let market = market.ok_or_else(|| ServiceError::SlugNotFound { slug: slug.into() })?;
        Ok(market.snapshot())
    }

    /// Returns the outcome with this label in a market, or the first outcome if no label is given.
    pub fn outcome_by_label(
        &self,
        condition_id: &str,
        label: Option<&str>,
    ) -> Result<OutcomeSnapshot, ServiceError> {
        let (market, outcome) = self.find_outcome(condition_id, label)?;
        Ok(OutcomeSnapshot::of(&market, outcome))
    }

    fn find_outcome(
        &self,
        condition_id: &str,
        label: Option<&str>,
    ) -> Result<(Arc<Market>, OutcomeIndex), ServiceError> {
        let market = self.find_market(condition_id)?;
        let info = market.info();
        let outcome = match label {
            None => OutcomeIndex(0),
            Some(label) => info.outcome(label).ok_or_else(|| Rejection::OutcomeNotFound {
                outcome: label.into(),
                labels: info.outcomes.iter().map(|outcome| outcome.label.clone()).collect(),
            })?,
        };
        drop(info);
        Ok((market, outcome))
    }

    /// Returns the outcome with this token.
    pub fn outcome_by_token(&self, token_id: &str) -> Result<OutcomeSnapshot, ServiceError> {
        let listing = self.markets.listing();
        let (market, outcome) = listing.by_token(token_id).ok_or(ServiceError::TokenNotFound)?;
        Ok(OutcomeSnapshot::of(market, outcome))
    }

    /// Returns the newest candles of an outcome within a span of time, oldest first. The label
    /// selects the outcome as in [`Self::outcome_by_label`].
    pub fn candles(
        &self,
        condition_id: &str,
        label: Option<&str>,
        width: Width,
        span: Span,
    ) -> Result<Vec<Candle>, ServiceError> {
        let (market, outcome) = self.find_outcome(condition_id, label)?;
        Ok(self.markets.candles(&market, outcome, width, span))
    }

    /// Returns the candles of the outcome with this token in a period, or an empty list if there is
    /// no such token.
    pub fn token_candles(&self, token_id: &str, width: Width, period: Period) -> Vec<Candle> {
        let span = period.span(self.markets.newest_price_at());
        let candles = |(market, outcome): (&Arc<Market>, _)| {
            self.markets.candles(market, outcome, width, span)
        };
        self.markets.listing().by_token(token_id).map(candles).unwrap_or_default()
    }

    /// Returns the prices of the outcome with this token at each multiple of a width in a period,
    /// and the newest price. The list is empty if there is no such token.
    pub fn token_prices(&self, token_id: &str, width: Width, period: Period) -> Vec<PricePoint> {
        let span = period.span(self.markets.newest_price_at());
        let points = |(market, outcome): (&Arc<Market>, _)| {
            self.markets.price_points(market, outcome, width, span)
        };
        self.markets.listing().by_token(token_id).map(points).unwrap_or_default()
    }

    /// Returns the markets with these condition ids, in the same order, with `None` for unknown
    /// ones.
    pub fn price_markets<'i>(
        &self,
        caller: &Caller,
        ids: &'i [Box<str>],
    ) -> Result<impl Iterator<Item = (&'i str, Option<MarketSnapshot>)> + use<'i>, ServiceError>
    {
        self.check_batch(caller, ids.len())?;
        let listing = self.markets.listing();
        Ok(ids
            .iter()
            .map(move |id| (&**id, listing.by_condition(id).map(|market| market.snapshot()))))
    }

    /// Rewrites a condition id to the listed spelling, which may differ in width or case.
    pub(super) fn name_as_listed(&self, condition_id: &mut Box<str>) {
        if let Some(listed) = self.markets.listed_name(condition_id) {
            *condition_id = (*listed).into();
        }
    }

    fn find_market(&self, condition_id: &str) -> Result<Arc<Market>, ServiceError> {
        let market = self.markets.by_condition(condition_id);
        market.ok_or_else(|| {
            let market_id = condition_id.into();
            self.explained(Rejection::MarketNotFound { market_id, meant: None }).into()
        })
    }

    /// If the request named the market by its slug or a token, adds to the refusal the market that
    /// was meant.
    #[cold]
    pub(super) fn explained(&self, rejection: Rejection) -> Rejection {
        let Rejection::MarketNotFound { market_id, meant: None } = rejection else {
            return rejection;
        };
        let listing = self.markets.listing();
        let id = |market: &Arc<Market>| market.info().condition_id.clone();
        let by_slug = listing.by_slug(&market_id).map(|market| ("slug", id(market)));
        let by_token = || listing.by_token(&market_id).map(|(market, _)| ("token", id(market)));
        let meant = by_slug.or_else(by_token);
        Rejection::MarketNotFound { market_id, meant }
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use proptest::prelude::*;

    use super::*;
    use paperbourse_core::market::Markets;

    fn info() -> MarketInfo {
        MarketInfo::bare_yes_no("0xabc")
    }

    #[test]
    fn hot_is_above_the_threshold() {
        for (volume, expected) in
            [(None, false), (Some(5_000_000_000), false), (Some(5_000_000_001), true)]
        {
            let market = MarketInfo { volume_total: volume.map(Usd::from_micros), ..info() };
            assert_eq!(is_hot(&market), expected, "{volume:?}");
            let filter = MarketFilter { hot_only: true, ..MarketFilter::default() };
            assert_eq!(filter.matches(&market), expected, "{volume:?}");
        }
    }

    #[test]
    fn filters_search_question_slug_and_category() {
        let market = MarketInfo {
            slug: Some("will-it-rain".into()),
            question: Some("Will it RAIN in Ålesund?".into()),
            category: Some("Weather".into()),
            status: MarketStatus::Closed,
            ..info()
        };
        let all = MarketFilter::default();
        let search = |text| Some(SearchText::new(text));
        for (filter, expected) in [
            (all.clone(), true),
            (MarketFilter { text: search("rain in å"), ..all.clone() }, true),
            (MarketFilter { text: search("IT-RAIN"), ..all.clone() }, true),
            (MarketFilter { text: search("weather"), ..all.clone() }, false),
            (MarketFilter { category: search("eath"), ..all.clone() }, true),
            (MarketFilter { category: search("rain"), ..all.clone() }, false),
            (MarketFilter { stages: vec![Stage::Active], ..all.clone() }, false),
            (MarketFilter { stages: vec![Stage::Closed], ..all.clone() }, true),
            (MarketFilter { stages: vec![Stage::Resolved], ..all.clone() }, false),
            (MarketFilter { stages: vec![Stage::Closed, Stage::Active], ..all }, false),
        ] {
            assert_eq!(filter.matches(&market), expected, "{filter:?}");
        }
        let bare = MarketFilter { text: Some(SearchText::new("")), ..MarketFilter::default() };
        assert!(!bare.matches(&info()), "a market without any text");
    }

    /// Volumes and the end date of a market. There are few possible values, so that some are equal.
    fn values() -> impl Strategy<Value = [Option<i64>; 3]> {
        prop::array::uniform3(prop::option::of(0..4_i64))
    }

    proptest! {
        /// Compares the pages with a full sort whose comparison spells out the order.
        #[test]
        fn pages_of_a_sorted_list_make_up_the_list(
            rows in prop::collection::vec(values(), 0..20),
            sorted_by in 0..3_usize,
            ascending in any::<bool>(),
            limit in 1..5_usize,
        ) {
            let mut infos: Vec<MarketInfo> = rows
                .iter()
                .enumerate()
                .map(|(number, values)| MarketInfo {
                    volume_total: values[0].map(Usd::from_micros),
                    volume_24h: values[1].map(Usd::from_micros),
                    end_date: values[2].map(Timestamp::from_nanos),
                    outcomes: Vec::new(),
                    ..MarketInfo::bare_yes_no(&number.to_string())
                })
                .collect();
            let markets = Markets::new();
            markets.list(infos.clone()).unwrap();
            let by = [MarketValue::VolumeTotal, MarketValue::Volume24h, MarketValue::EndDate];
            let order = MarketOrder { by: by[sorted_by], ascending };

            let mut listed = Vec::new();
            loop {
                let page = Page { limit, offset: listed.len() };
                let listing = markets.listing();
                let shown = MarketPage::of(listing.markets().iter(), order, page);
                let ids = shown.markets.iter().map(|it| it.info().condition_id.to_string());
                listed.extend(ids);
                if !shown.has_more {
                    break;
                }
                prop_assert_eq!(shown.markets.len(), limit);
            }
            let value = |info: &MarketInfo| {
                let number: usize = info.condition_id.parse().unwrap();
                rows[number][sorted_by]
            };
            infos.sort_by_key(|info| Reverse(info.volume_total));
            infos.sort_by(|left, right| match (value(left), value(right)) {
                (Some(left), Some(right)) if ascending => left.cmp(&right),
                (Some(left), Some(right)) => right.cmp(&left),
                (left, right) => left.is_none().cmp(&right.is_none()),
            });
            let expected: Vec<String> =
                infos.iter().map(|info| info.condition_id.to_string()).collect();
            prop_assert_eq!(listed, expected);
        }
    }
}
