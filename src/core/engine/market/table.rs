//! The markets that a shard has used. The first order in a market introduces it to the shard.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::engine::contradiction::{Flaw, NOT_NEXT};
use crate::engine::event::Event;
use crate::engine::market::used::UsedMarket;
use crate::engine::order::open::BookSide;
use crate::engine::rejection::Rejection;
use crate::engine::state::State;
use crate::ids::{MarketIndex, OutcomeIndex, condition};
use crate::market::book::Side;
use crate::market::catalogue::{Fees, MarketStatus};
use crate::market::quote::{Quote, QuotedBook};

impl State {
    /// Returns the index that the next market introduced to this shard will get.
    pub(in crate::engine) fn next_market(&self) -> MarketIndex {
        MarketIndex(u32::try_from(self.markets.len()).expect("fewer markets than a u32 counts"))
    }

    pub(in crate::engine) fn introduce_market(
        &mut self,
        index: MarketIndex,
        condition_id: &Arc<str>,
        outcomes: &[(Arc<str>, Arc<str>)],
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        if index.0 as usize != self.markets.len() {
            return Err(Flaw::market(index, NOT_NEXT));
        }
        // Copy the texts that appear in answers: each answer changes their reference counts, and
        // shards must not contend for these counts. Tokens stay shared: each order compares them
        // with the quote's tokens, which is fast as long as both are the same allocation.
        let outcomes = outcomes.iter().map(|(label, token)| (Arc::from(&**label), token.clone()));
        let market =
            UsedMarket { condition_id: Arc::from(&**condition_id), outcomes: outcomes.collect() };
        let inserted = self.insert_market(market, position_in_log);
        inserted.ok_or(Flaw::market(index, "was introduced before"))
    }

    /// Appends a market; `None` if the shard already has it.
    pub(in crate::engine) fn insert_market(
        &mut self,
        market: UsedMarket,
        position_in_log: u64,
    ) -> Option<()> {
        let index = u32::try_from(self.markets.len()).ok()?;
        if self.market_of.contains_key(&market.condition_id) {
            return None;
        }
        self.market_of.insert(market.condition_id.clone(), MarketIndex(index));
        self.hash += market.term(index);
        self.market_text_bytes += market.text_bytes();
        self.markets.push(market);
        self.introductions.push(position_in_log);
        self.is_settled.push(false);
        self.holders.push(VecDeque::new());
        Some(())
    }
}

/// The market and outcome of an order. Both have been checked to accept orders.
pub(in crate::engine) struct OpenMarket<'a, 'q> {
    pub(in crate::engine) quote: &'a Quote<'q>,
    pub(in crate::engine) outcome: OutcomeIndex,
    /// The market's index in the shard, if the shard has used the market.
    pub(in crate::engine) used: Option<MarketIndex>,
    /// The market's index in the shard, or the index it will get when it is introduced.
    pub(in crate::engine) index: MarketIndex,
}

impl<'a, 'q> OpenMarket<'a, 'q> {
    /// Finds the market and the outcome, and checks that they accept orders. The order of the
    /// checks is part of the API.
    #[inline]
    pub(in crate::engine) fn of(
        state: &State,
        quote: Option<&'a Quote<'q>>,
        market_id: &str,
        label: &str,
    ) -> Result<Self, Rejection> {
        let used = state.market_named(market_id);
        // Check this first: the catalogue may have dropped a resolved market, which must not be
        // reported as unknown.
        if used.is_some_and(|market| state.is_settled(market)) {
            return Err(Rejection::MarketClosed { status: MarketStatus::Resolved });
        }
        let Some(quote) = quote else {
            return Err(Rejection::MarketNotFound { market_id: market_id.into(), meant: None });
        };
        debug_assert!(condition::is_same(quote.condition_id, market_id), "another market");
        let Some(outcome) = quote.outcome(label) else {
            return Err(Rejection::OutcomeNotFound {
                outcome: label.into(),
                labels: quote.outcomes.iter().map(|outcome| outcome.label.clone()).collect(),
            });
        };
        let index = used.unwrap_or_else(|| state.next_market());
        let market = Self { quote, outcome, used, index };
        market.check_open()?;
        Ok(market)
    }

    /// Returns the market of an existing order, if it still accepts orders.
    pub(in crate::engine) fn again(
        state: &State,
        quote: Option<&'a Quote<'q>>,
        index: MarketIndex,
        outcome: OutcomeIndex,
    ) -> Result<Self, Rejection> {
        if state.is_settled(index) {
            return Err(Rejection::MarketClosed { status: MarketStatus::Resolved });
        }
        let quote = quote.ok_or_else(|| {
            let market_id = (&*state.used_market(index).condition_id).into();
            Rejection::MarketNotFound { market_id, meant: None }
        })?;
        let market = Self { quote, outcome, used: Some(index), index };
        market.check_open()?;
        Ok(market)
    }

    fn check_open(&self) -> Result<(), Rejection> {
        let quote = self.quote;
        if !quote.status.is_tradable() {
            if quote.is_placeholder && quote.status == MarketStatus::Paused {
                return Err(Rejection::MarketUnnamed);
            }
            return Err(Rejection::MarketClosed { status: quote.status });
        }
        if quote.fees == Fees::Unsupported {
            return Err(Rejection::FeesUnsupported);
        }
        Ok(())
    }

    /// Returns the side of the book on which an order would rest.
    pub(in crate::engine) const fn side(&self, side: Side) -> BookSide {
        BookSide { market: self.index, outcome: self.outcome, side }
    }

    /// Returns the book that the outcome trades on, unless there is none or it is stale.
    #[inline]
    pub(in crate::engine) fn fresh_book(&self) -> Option<QuotedBook<'q>> {
        self.quote.book(self.outcome).filter(|quoted| !quoted.book.stale)
    }

    /// Returns the rejection of an order that needs a fresh book when there is none.
    #[cold]
    pub(in crate::engine) fn without_book(&self) -> Rejection {
        let book_at = self.quote.book(self.outcome).map(|quoted| quoted.book.updated_at);
        Rejection::VenueUnavailable { book_at }
    }

    /// Checks that the market still has the tokens that it had when the shard first used it.
    #[inline]
    pub(in crate::engine) fn check_tokens(&self, state: &State) -> Result<(), Rejection> {
        match self.used {
            Some(used) if !state.used_market(used).is_still(self.quote.outcomes) => {
                Err(Rejection::MarketChanged)
            }
            _ => Ok(()),
        }
    }
}

/// Creates the event that introduces a quoted market.
pub(in crate::engine) fn introduction(index: MarketIndex, quote: &Quote<'_>) -> Event {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ShardId;

    #[test]
    fn the_texts_of_each_answer_are_the_shards_own() {
        let text = |text: &str| Arc::<str>::from(text);
        let (condition_id, outcomes) = (text("0x01"), [(text("Yes"), text("1"))]);
        let mut state = State::new(ShardId::new(0).unwrap());
        let index = MarketIndex(0);
        state.introduce_market(index, &condition_id, &outcomes, 1).unwrap();
        let market = state.used_market(index);
        assert_eq!(market.condition_id, condition_id);
        assert_eq!(market.outcomes, outcomes);
        assert_eq!(Arc::strong_count(&condition_id), 1);
        assert_eq!(Arc::strong_count(&outcomes[0].0), 1);
    }
}
