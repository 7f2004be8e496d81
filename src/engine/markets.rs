//! The markets that a shard has used. The first order in a market introduces it to the shard.

use std::sync::Arc;

use super::contradiction::{Flaw, NOT_NEXT};
use super::event::Event;
use super::state::State;
use super::used_market::UsedMarket;
use crate::ids::MarketIndex;
use crate::market::quote::Quote;

impl State {
    /// The index of the next market introduced to this shard.
    pub(super) fn next_market(&self) -> MarketIndex {
        MarketIndex(u32::try_from(self.markets.len()).expect("fewer markets than a u32 counts"))
    }

    pub(super) fn introduce_market(
        &mut self,
        index: MarketIndex,
        condition_id: &Arc<str>,
        outcomes: &[(Arc<str>, Arc<str>)],
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        if index.0 as usize != self.markets.len() {
            return Err(Flaw::market(index, NOT_NEXT));
        }
        let market = UsedMarket { condition_id: condition_id.clone(), outcomes: outcomes.to_vec() };
        let inserted = self.insert_market(market, position_in_log);
        inserted.ok_or(Flaw::market(index, "was introduced before"))
    }

    /// Appends a market; `None` if it is already there.
    pub(super) fn insert_market(&mut self, market: UsedMarket, position_in_log: u64) -> Option<()> {
        let index = u32::try_from(self.markets.len()).ok()?;
        if self.market_of.contains_key(&market.condition_id) {
            return None;
        }
        self.market_of.insert(market.condition_id.clone(), MarketIndex(index));
        self.hash += market.term(index);
        self.markets.push(market);
        self.introductions.push(position_in_log);
        Some(())
    }
}

/// The event that introduces a quoted market.
pub(super) fn introduction(index: MarketIndex, quote: &Quote<'_>) -> Event {
    Event::MarketIntroduced {
        index,
        condition_id: quote.condition_id.clone(),
        outcomes: quote
            .outcomes
            .iter()
            .map(|outcome| (outcome.label.clone(), outcome.token_id.clone()))
            .collect(),
    }
}
