//! What an account holds, and what its outcomes cost now.

use super::{Caller, Service, ServiceError, Visit};
use crate::engine::account::Ledger;
use crate::engine::rejection::Rejection;
use crate::engine::view::{PositionRow, SettlementFilter, SettlementPage};
use crate::market::price::{MarketPrices, OutcomePrice};
use crate::money::Price;

/// An account's money and positions.
#[derive(Clone, PartialEq, Debug)]
pub struct Portfolio {
    /// The money.
    pub ledger: Ledger,
    /// All positions, oldest first, closed ones too.
    pub positions: Vec<MarkedPosition>,
}

/// A position and what its market shows now.
#[derive(Clone, PartialEq, Debug)]
pub struct MarkedPosition {
    /// The position.
    pub row: PositionRow,
    /// The displayed price of its outcome, where there is one.
    pub price: Option<Price>,
    /// What the market asks, where it is still listed.
    pub question: Option<Box<str>>,
}

impl Service {
    /// Everything that the caller's account has, in as many visits to its shard as that takes. The
    /// money is that of the last visit.
    pub async fn portfolio(
        &self,
        caller: &Caller,
        visit: Visit<'_>,
    ) -> Result<Portfolio, ServiceError> {
        let account = caller.account()?;
        let mut positions = Vec::new();
        loop {
            let offset = positions.len();
            let page = self
                .shards
                .observe(account.shard(), visit.waiters, move |state| {
                    state.observe_account(account, offset)
                })
                .await?
                .ok_or(Rejection::AccountNotFound)?;
            positions.extend(page.positions.into_iter().map(|row| self.mark(row)));
            if !page.has_more {
                return Ok(Portfolio { ledger: page.ledger, positions });
            }
        }
    }

    /// Settlements of the caller's account, the newest position first: at most `limit` that the
    /// filter lets through, of positions before this one.
    pub async fn settlements(
        &self,
        caller: &Caller,
        filter: SettlementFilter,
        before: Option<u64>,
        limit: usize,
        visit: Visit<'_>,
    ) -> Result<SettlementPage, ServiceError> {
        let account = caller.account()?;
        let mut list = SettlementPage { rows: Vec::new(), next: before };
        loop {
            let (filter, next) = (filter.clone(), list.next);
            let wanted = limit - list.rows.len();
            let page = self
                .shards
                .observe(account.shard(), visit.waiters, move |state| {
                    state.observe_settlements(account, &filter, next, wanted)
                })
                .await?
                .ok_or(Rejection::AccountNotFound)?;
            list.rows.extend(page.rows);
            list.next = page.next;
            if list.next.is_none() || list.rows.len() >= limit {
                return Ok(list);
            }
        }
    }

    fn mark(&self, row: PositionRow) -> MarkedPosition {
        let Some(market) = self.markets.by_condition(&row.market_id) else {
            return MarkedPosition { row, price: None, question: None };
        };
        let snapshot = market.snapshot();
        let prices = MarketPrices::of(&snapshot);
        let shown = prices.outcomes.get(row.outcome_index.index());
        MarkedPosition {
            price: shown.and_then(OutcomePrice::price),
            question: snapshot.info().question.clone(),
            row,
        }
    }
}
