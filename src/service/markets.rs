//! Markets, prices and books, read without involving a shard.

use std::sync::Arc;

use super::{Caller, Page, Service, ServiceError};
use crate::engine::rejection::Rejection;
use crate::ids::OutcomeIndex;
use crate::market::catalogue::MarketInfo;
use crate::market::quote::QuotedBook;
use crate::market::{Market, MarketSnapshot};
use crate::money::Usd;

/// A market with a higher volume than this is hot.
const HOT_VOLUME: Usd = Usd::from_micros(5_000_000_000);

/// Selects markets. Text comparisons ignore case.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MarketFilter<'a> {
    /// Only markets whose question or slug contains this text.
    pub text: Option<&'a str>,
    /// Only markets whose category contains this text.
    pub category: Option<&'a str>,
    /// Only markets that are not closed.
    pub active_only: bool,
    /// Only hot markets; see [`is_hot`].
    pub hot_only: bool,
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

impl MarketFilter<'_> {
    fn matches(&self, info: &MarketInfo) -> bool {
        let contains = |text: &Option<Box<str>>, part: &str| {
            text.as_deref().is_some_and(|text| text.to_lowercase().contains(&part.to_lowercase()))
        };
        (!self.active_only || !info.status.is_closed())
            && (!self.hot_only || is_hot(info))
            && self
                .text
                .is_none_or(|text| contains(&info.question, text) || contains(&info.slug, text))
            && self.category.is_none_or(|category| contains(&info.category, category))
    }
}

impl OutcomeSnapshot {
    fn of(market: &Market, outcome: OutcomeIndex) -> Self {
        Self { market: market.snapshot(), outcome }
    }

    /// The book on which the outcome trades.
    pub fn book(&self) -> Result<QuotedBook<'_>, ServiceError> {
        self.market.quoted(self.outcome).ok_or(ServiceError::NoBook)
    }
}

impl Service {
    /// A page of the markets that match the filter, in listing order.
    pub fn list_markets(&self, filter: &MarketFilter<'_>, page: Page) -> Vec<MarketSnapshot> {
        let listing = self.markets.listing();
        let matching = listing.markets().iter().filter(|market| filter.matches(&market.info()));
        let page = matching.skip(page.offset).take(page.limit);
        page.map(|market| market.snapshot()).collect()
    }

    /// The market with this condition id.
    pub fn market(&self, condition_id: &str) -> Result<MarketSnapshot, ServiceError> {
        Ok(self.find_market(condition_id)?.snapshot())
    }

    /// The market with this slug.
    pub fn market_by_slug(&self, slug: &str) -> Result<MarketSnapshot, ServiceError> {
        let listing = self.markets.listing();
        let market = listing.by_slug(slug);
        let market = market.ok_or_else(|| Rejection::MarketNotFound { market_id: slug.into() })?;
        Ok(market.snapshot())
    }

    /// The outcome of a market with this label, by default the first.
    pub fn outcome_by_label(
        &self,
        condition_id: &str,
        label: Option<&str>,
    ) -> Result<OutcomeSnapshot, ServiceError> {
        let market = self.find_market(condition_id)?;
        let info = market.info();
        let outcome = match label {
            None => OutcomeIndex(0),
            Some(label) => info.outcome(label).ok_or_else(|| Rejection::OutcomeNotFound {
                outcome: label.into(),
                labels: info.outcomes.iter().map(|outcome| outcome.label.clone()).collect(),
            })?,
        };
        Ok(OutcomeSnapshot::of(&market, outcome))
    }

    /// The outcome with this token.
    pub fn outcome_by_token(&self, token_id: &str) -> Result<OutcomeSnapshot, ServiceError> {
        let listing = self.markets.listing();
        let (market, outcome) = listing.by_token(token_id).ok_or(ServiceError::TokenNotFound)?;
        Ok(OutcomeSnapshot::of(market, outcome))
    }

    /// The markets with these condition ids, in the same order; `None` for an unknown one.
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

    fn find_market(&self, condition_id: &str) -> Result<Arc<Market>, ServiceError> {
        let market = self.markets.by_condition(condition_id);
        market.ok_or_else(|| Rejection::MarketNotFound { market_id: condition_id.into() }.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::market::catalogue::MarketStatus;

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
        for (filter, expected) in [
            (all.clone(), true),
            (MarketFilter { text: Some("rain in å"), ..all.clone() }, true),
            (MarketFilter { text: Some("IT-RAIN"), ..all.clone() }, true),
            (MarketFilter { text: Some("weather"), ..all.clone() }, false),
            (MarketFilter { category: Some("eath"), ..all.clone() }, true),
            (MarketFilter { category: Some("rain"), ..all.clone() }, false),
            (MarketFilter { active_only: true, ..all }, false),
        ] {
            assert_eq!(filter.matches(&market), expected, "{filter:?}");
        }
        let bare = MarketFilter { text: Some(""), ..MarketFilter::default() };
        assert!(!bare.matches(&info()), "a market without any text");
    }
}
