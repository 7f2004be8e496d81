//! The listed markets at one moment, indexed by name.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use hashbrown::HashTable;
use parking_lot::Mutex;

use super::{MARKETS_MAX, Market, Markets, MarketsByName};
use crate::ids::{OutcomeIndex, condition};

/// The markets at one moment, with indexes by name.
#[derive(Default)]
pub struct Listing {
    /// Most traded first, which is the order of the listing endpoint.
    pub(super) markets: Vec<Arc<Market>>,
    pub(super) by_condition: MarketsByName,
    by_token: HashMap<Arc<str>, (Arc<Market>, OutcomeIndex), foldhash::fast::RandomState>,
    by_slug: SlugIndex,
}

/// Places of markets in the listing, by the hashes of their slugs. The slugs themselves stay in the
/// descriptions, so a new listing copies none of them.
#[derive(Default)]
struct SlugIndex {
    places: HashTable<u32>,
    hasher: foldhash::fast::RandomState,
}

impl Listing {
    pub(super) fn of(mut markets: Vec<Arc<Market>>) -> Self {
        markets.sort_by_cached_key(|market| std::cmp::Reverse(market.info().volume_total));
        let mut by_condition = HashMap::default();
        let mut by_token = HashMap::default();
        let by_slug = SlugIndex::of(&markets);
        for market in &markets {
            let info = market.info();
            by_condition.insert(info.condition_id.clone(), market.clone());
            for (index, outcome) in (0_u8..).zip(&info.outcomes) {
                if !outcome.token_id.is_empty() {
                    by_token
                        .insert(outcome.token_id.clone(), (market.clone(), OutcomeIndex(index)));
                }
            }
        }
        Self { markets, by_condition, by_token, by_slug }
    }

    /// Returns all markets, most traded first.
    pub fn markets(&self) -> &[Arc<Market>] {
        &self.markets
    }

    /// Returns the market with this condition id, in any spelling.
    pub fn by_condition(&self, condition_id: &str) -> Option<&Arc<Market>> {
        condition::find(condition_id, |name| self.by_condition.get(name))
    }

    /// Returns the market with this slug, or the most traded one if several share it.
    pub fn by_slug(&self, slug: &str) -> Option<&Arc<Market>> {
        self.by_slug.find(&self.markets, slug)
    }

    /// Returns the market and the outcome of this token.
    pub fn by_token(&self, token_id: &str) -> Option<(&Arc<Market>, OutcomeIndex)> {
        self.by_token.get(token_id).map(|(market, outcome)| (market, *outcome))
    }
}

/// The newly listed markets that nobody has taken yet; `None` until that is asked for.
#[derive(Default)]
pub(super) struct NewlyListed(Mutex<Option<Vec<Arc<Market>>>>);

impl NewlyListed {
    pub(super) fn add<'m>(&self, markets: impl Iterator<Item = &'m Arc<Market>>) {
        if let Some(list) = &mut *self.0.lock() {
            list.extend(markets.cloned());
            list.truncate(MARKETS_MAX);
        }
    }
}

impl Markets {
    /// Takes the markets that were listed since the last call. The first call starts to keep them,
    /// and returns none. Only one task may call this.
    pub fn newly_listed(&self) -> Vec<Arc<Market>> {
        std::mem::take(self.newly_listed.0.lock().get_or_insert_default())
    }
}

impl SlugIndex {
    fn of(markets: &[Arc<Market>]) -> Self {
        let mut index = Self { places: HashTable::with_capacity(markets.len()), ..Self::default() };
        for (place, market) in (0_u32..).zip(markets) {
            let info = market.info();
            let Some(slug) = info.slug.as_deref() else { continue };
            if index.find(markets, slug).is_none() {
                let hash_of = |place: &u32| {
                    index.hasher.hash_one(markets[*place as usize].info().slug.as_deref())
                };
                index.places.insert_unique(index.hasher.hash_one(Some(slug)), place, hash_of);
            }
        }
        index
    }

    fn find<'m>(&self, markets: &'m [Arc<Market>], slug: &str) -> Option<&'m Arc<Market>> {
        let is_it = |place: &u32| markets[*place as usize].info().slug.as_deref() == Some(slug);
        let place = self.places.find(self.hasher.hash_one(Some(slug)), is_it)?;
        Some(&markets[*place as usize])
    }
}
