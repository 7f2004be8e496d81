//! What an account holds, and what its outcomes cost now.

use super::{Caller, RequestContext, Service, ServiceError};
use crate::engine::account::Ledger;
use crate::engine::rejection::Rejection;
use crate::engine::view::{PositionRow, SettlementFilter, SettlementPage};
use crate::market::price::{MarketPrices, OutcomePrice};
use crate::money::{Notional, Price, Shares, Usd};

/// An account's money, and what its positions are worth.
#[derive(Clone, PartialEq, Debug)]
pub struct Balance {
    /// The money.
    pub ledger: Ledger,
    /// What all open positions are worth, those without a price at their cost.
    pub position_value: Usd,
}

/// Whether a position holds shares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PositionStatus {
    /// It does.
    Open,
    /// It did.
    Closed,
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

impl Balance {
    /// The money and the positions.
    pub fn total(&self) -> Usd {
        self.ledger.cash() + self.position_value
    }

    /// What the account has won or lost of what it was given.
    pub fn profit(&self) -> Usd {
        self.total() - self.ledger.granted
    }
}

impl PositionStatus {
    /// The status of a position that holds so many shares.
    pub fn of(shares: Shares) -> Self {
        if shares > Shares::ZERO { Self::Open } else { Self::Closed }
    }

    /// As the wire writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "OPEN",
            Self::Closed => "CLOSED",
        }
    }
}

impl MarkedPosition {
    /// What the shares are worth, rounded down to a micro-dollar; `None` without a price.
    pub fn value(&self) -> Option<Usd> {
        self.price.map(|price| Notional::of(price, self.row.position.shares).floor())
    }

    /// What a sale at the displayed price would win or lose; `None` without a price.
    pub fn unrealised(&self) -> Option<Usd> {
        self.value().map(|value| value - self.row.position.cost)
    }

    /// Whether it holds shares.
    pub fn status(&self) -> PositionStatus {
        PositionStatus::of(self.row.position.shares)
    }
}

impl Service {
    /// The caller's money, and what the positions are worth.
    pub async fn balance(
        &self,
        caller: &Caller,
        context: RequestContext<'_>,
    ) -> Result<Balance, ServiceError> {
        let (ledger, positions) = self.holdings(caller, context).await?;
        let open = positions.iter().filter(|marked| marked.row.position.is_open());
        let position_value =
            open.map(|marked| marked.value().unwrap_or(marked.row.position.cost)).sum();
        Ok(Balance { ledger, position_value })
    }

    /// The positions of the caller's account, oldest first: those with this status, all when not
    /// said.
    pub async fn positions(
        &self,
        caller: &Caller,
        status: Option<PositionStatus>,
        context: RequestContext<'_>,
    ) -> Result<Vec<MarkedPosition>, ServiceError> {
        let (_, mut positions) = self.holdings(caller, context).await?;
        positions.retain(|marked| status.is_none_or(|status| marked.status() == status));
        Ok(positions)
    }

    /// Everything that the caller's account holds, in as many reads of its shard as that takes. The
    /// ledger is that of the last read.
    async fn holdings(
        &self,
        caller: &Caller,
        context: RequestContext<'_>,
    ) -> Result<(Ledger, Vec<MarkedPosition>), ServiceError> {
        let account = caller.account()?;
        let mut positions = Vec::new();
        loop {
            let offset = positions.len();
            let page = self
                .shards
                .observe(account.shard(), context.waiters, move |state| {
                    state.observe_account(account, offset)
                })
                .await?
                .ok_or(Rejection::AccountNotFound)?;
            positions.extend(page.positions.into_iter().map(|row| self.mark(row)));
            if !page.has_more {
                return Ok((page.ledger, positions));
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
        context: RequestContext<'_>,
    ) -> Result<SettlementPage, ServiceError> {
        let account = caller.account()?;
        let mut list = SettlementPage { rows: Vec::new(), next: before };
        loop {
            let (filter, next) = (filter.clone(), list.next);
            let wanted = limit - list.rows.len();
            let page = self
                .shards
                .observe(account.shard(), context.waiters, move |state| {
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
