//! Balances, positions and settlements of an account.

use super::markets::OutcomeSnapshot;
use super::{Caller, RequestContext, Service, ServiceError};
use paperbourse_core::engine::State;
use paperbourse_core::engine::account::ledger::Ledger;
use paperbourse_core::engine::admin::reset::ResetAccount;
use paperbourse_core::engine::fills::{FillCursor, FillFilter, FillHistory};
use paperbourse_core::engine::state::view::{
    AccountPage, PositionRow, Profile, SettlementFilter, SettlementPage,
};
use paperbourse_core::ids::AccountId;
use paperbourse_core::market::price::{MarketPrices, OutcomePrice};
use paperbourse_core::money::{Notional, Price, Shares, Usd};

/// An account's money and the value of its positions.
#[derive(Clone, PartialEq, Debug)]
pub struct Balance {
    /// The account's money.
    pub ledger: Ledger,
    /// The balance at opening or after the last reset, plus all deposits since. Profit is measured
    /// from here.
    pub starting_balance: Usd,
    /// Value of all open positions. A position without a price counts at cost.
    pub position_value: Usd,
}

/// An account's money, its open positions and its trading record.
#[derive(Clone, PartialEq, Debug)]
pub struct Portfolio {
    /// The money and the value of the open positions.
    pub balance: Balance,
    /// The open positions, oldest first.
    pub open: Vec<MarkedPosition>,
    /// Number of fills that the account has ever had.
    pub fill_count: u64,
    /// Number of closed positions, except those closed by a reset.
    pub closed_count: usize,
    /// Number of the positions in `closed_count` that made a profit.
    pub won_count: usize,
}

/// A reset of an account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccountReset {
    /// The account's cash after the reset.
    pub balance: Usd,
    /// Number of open orders that the reset ended.
    pub order_count: usize,
    /// Number of open positions that the reset closed.
    pub position_count: u32,
}

/// The status of a position, and how it was closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PositionStatus {
    /// The position holds shares.
    Open,
    /// All its shares were sold or settled.
    Closed,
    /// A reset of the account closed the position.
    ClosedByReset,
}

/// A position marked to market.
#[derive(Clone, PartialEq, Debug)]
pub struct MarkedPosition {
    /// The position.
    pub row: PositionRow,
    /// Displayed price of the outcome, if it has one.
    pub price: Option<Price>,
    /// The market's question, if the market is still listed and has one.
    pub question: Option<Box<str>>,
}

/// An account with all its positions. Everything but the positions is from the last read.
pub(super) struct Statement {
    /// The last page of the account that was read, without its positions.
    pub(super) page: AccountPage,
    /// Number of fills when the first positions were read.
    pub(super) fill_count_before: u64,
    pub(super) positions: Vec<PositionRow>,
}

/// An account's holdings, marked to market.
struct Holdings {
    ledger: Ledger,
    starting_balance: Usd,
    fill_count: u64,
    positions: Vec<MarkedPosition>,
}

impl Holdings {
    fn balance(&self) -> Balance {
        let open = self.positions.iter().filter(|marked| marked.row.position.is_open());
        let position_value =
            open.map(|marked| marked.value().unwrap_or(marked.row.position.cost)).sum();
        let Self { ledger, starting_balance, .. } = *self;
        Balance { ledger, starting_balance, position_value }
    }
}

impl Balance {
    /// Returns the cash plus the value of the positions.
    pub fn total(&self) -> Usd {
        self.ledger.cash() + self.position_value
    }

    /// Returns the profit or loss relative to the starting balance.
    pub fn profit(&self) -> Usd {
        self.total() - self.starting_balance
    }
}

impl PositionStatus {
    /// Returns the status of a position that holds `shares`.
    pub fn of(shares: Shares) -> Self {
        if shares > Shares::ZERO { Self::Open } else { Self::Closed }
    }

    /// Returns the name used in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "OPEN",
            Self::Closed => "CLOSED",
            Self::ClosedByReset => "CLOSED_BY_RESET",
        }
    }
}

impl MarkedPosition {
    /// Returns shares × price, rounded down to a micro-dollar, or `None` without a price.
    pub fn value(&self) -> Option<Usd> {
        self.price.map(|price| Notional::of(price, self.row.position.shares).floor())
    }

    /// Returns the profit or loss if the shares were sold at the displayed price, or `None` without
    /// a price.
    pub fn unrealised(&self) -> Option<Usd> {
        self.value().map(|value| value - self.row.position.cost)
    }

    /// Returns whether the position is open or, if not, how it was closed.
    pub fn status(&self) -> PositionStatus {
        let position = &self.row.position;
        if position.closed_by_reset {
            PositionStatus::ClosedByReset
        } else {
            PositionStatus::of(position.shares)
        }
    }
}

impl Service {
    /// Returns the profile of the caller's account: its owner, its money, and its number of keys.
    pub async fn profile(
        &self,
        caller: &Caller,
        context: RequestContext<'_>,
    ) -> Result<Profile, ServiceError> {
        let now = context.moment.now;
        let mut reads = self.reads(caller.account()?, context);
        reads.next(move |state, account| state.observe_profile(account, now)).await
    }

    /// Resets the caller's account: ends its open orders, closes its open positions, and sets its
    /// cash to the starting balance. An account with very many open orders needs several visits to
    /// its shard. If the shard refuses a later visit, the orders ended by earlier visits stay
    /// ended.
    pub async fn reset(
        &self,
        caller: &Caller,
        context: RequestContext<'_>,
    ) -> Result<AccountReset, ServiceError> {
        let account = caller.account()?;
        let mut order_count = 0;
        loop {
            let command = ResetAccount(account);
            let visit = self.shards.execute(account.shard(), command, context.waiters).await?;
            order_count += visit.order_count;
            if let Some(balance) = visit.balance {
                let position_count = visit.position_count;
                return Ok(AccountReset { balance, order_count, position_count });
            }
        }
    }

    /// Returns the balance of the caller's account.
    pub async fn balance(
        &self,
        caller: &Caller,
        context: RequestContext<'_>,
    ) -> Result<Balance, ServiceError> {
        Ok(self.holdings(caller.account()?, context).await?.balance())
    }

    /// Returns the cash of the caller's account, what open orders hold back included.
    pub async fn cash(
        &self,
        caller: &Caller,
        context: RequestContext<'_>,
    ) -> Result<Usd, ServiceError> {
        let without_positions = |state: &State, id| state.observe_account(id, usize::MAX);
        let page = self.reads(caller.account()?, context).next(without_positions).await?;
        Ok(page.ledger.cash())
    }

    /// Returns the shares of an outcome that the caller's account holds, those that open sales hold
    /// back included.
    pub async fn shares(
        &self,
        caller: &Caller,
        held: &OutcomeSnapshot,
        context: RequestContext<'_>,
    ) -> Result<Shares, ServiceError> {
        let (market_id, outcome) = (held.market.info().condition_id.clone(), held.outcome);
        let of = move |state: &State, id| state.observe_shares(id, &market_id, outcome);
        self.reads(caller.account()?, context).next(of).await
    }

    /// Returns the balance, the open positions and the trading record of the caller's account.
    pub async fn portfolio(
        &self,
        caller: &Caller,
        context: RequestContext<'_>,
    ) -> Result<Portfolio, ServiceError> {
        let holdings = self.holdings(caller.account()?, context).await?;
        let balance = holdings.balance();
        let (open, closed): (Vec<_>, Vec<_>) =
            holdings.positions.into_iter().partition(|marked| marked.row.position.is_open());
        let closed: Vec<_> =
            closed.into_iter().filter(|it| it.status() == PositionStatus::Closed).collect();
        let has_won = |marked: &&MarkedPosition| marked.row.position.realised > Usd::ZERO;
        Ok(Portfolio {
            balance,
            open,
            fill_count: holdings.fill_count,
            closed_count: closed.len(),
            won_count: closed.iter().filter(has_won).count(),
        })
    }

    /// Returns the positions of the caller's account, oldest first. `is_open` selects only the open
    /// or only the closed ones.
    pub async fn positions(
        &self,
        caller: &Caller,
        is_open: Option<bool>,
        context: RequestContext<'_>,
    ) -> Result<Vec<MarkedPosition>, ServiceError> {
        let mut positions = self.holdings(caller.account()?, context).await?.positions;
        let fits = |marked: &MarkedPosition| {
            is_open.is_none_or(|is_open| marked.row.position.is_open() == is_open)
        };
        positions.retain(fits);
        Ok(positions)
    }

    async fn holdings(
        &self,
        account: AccountId,
        context: RequestContext<'_>,
    ) -> Result<Holdings, ServiceError> {
        let Statement { page, positions, .. } = self.statement(account, context).await?;
        Ok(Holdings {
            ledger: page.ledger,
            starting_balance: page.baseline,
            fill_count: page.fill_count,
            positions: positions.into_iter().map(|row| self.mark(row)).collect(),
        })
    }

    /// Reads the account with all its positions, in as many reads of the account's shard as
    /// necessary.
    pub(super) async fn statement(
        &self,
        account: AccountId,
        context: RequestContext<'_>,
    ) -> Result<Statement, ServiceError> {
        let mut reads = self.reads(account, context);
        let mut positions = Vec::new();
        let mut fill_count_before = None;
        loop {
            let offset = positions.len();
            let mut page =
                reads.next(move |state, account| state.observe_account(account, offset)).await?;
            positions.append(&mut page.positions);
            let fill_count_before = *fill_count_before.get_or_insert(page.fill_count);
            if !page.has_more {
                return Ok(Statement { page, fill_count_before, positions });
            }
        }
    }

    /// Returns at most `limit` fills of the caller's account that match the filter, newest first,
    /// in as many reads of the account's shard as necessary.
    pub async fn fill_history(
        &self,
        caller: &Caller,
        filter: FillFilter,
        from: FillCursor,
        limit: usize,
        context: RequestContext<'_>,
    ) -> Result<FillHistory, ServiceError> {
        self.fill_history_of(caller.account()?, filter, from, limit, context).await
    }

    /// Returns at most `limit` fills of an account, like [`Self::fill_history`].
    pub async fn fill_history_of(
        &self,
        account: AccountId,
        filter: FillFilter,
        from: FillCursor,
        limit: usize,
        context: RequestContext<'_>,
    ) -> Result<FillHistory, ServiceError> {
        let mut reads = self.reads(account, context);
        let mut list = FillHistory { fills: Vec::new(), next: Some(from) };
        while let Some(from) = list.next.filter(|_| list.fills.len() < limit) {
            let page = reads.fills(filter.clone(), from, limit - list.fills.len()).await?;
            list.fills.extend(page.fills);
            list.next = page.next;
        }
        Ok(list)
    }

    /// Reads fills of the caller's account once. May return fewer than `limit` even if more match.
    pub async fn fill_page(
        &self,
        caller: &Caller,
        filter: FillFilter,
        from: FillCursor,
        limit: usize,
        context: RequestContext<'_>,
    ) -> Result<FillHistory, ServiceError> {
        self.reads(caller.account()?, context).fills(filter, from, limit).await
    }

    /// Returns at most `limit` settlements of the caller's account that match the filter, newest
    /// position first. Only positions with a number below `before` are included.
    pub async fn settlements(
        &self,
        caller: &Caller,
        filter: SettlementFilter,
        before: Option<u64>,
        limit: usize,
        context: RequestContext<'_>,
    ) -> Result<SettlementPage, ServiceError> {
        self.settlements_of(caller.account()?, filter, before, limit, context).await
    }

    /// Returns at most `limit` settlements of an account, like [`Self::settlements`].
    pub(super) async fn settlements_of(
        &self,
        account: AccountId,
        filter: SettlementFilter,
        before: Option<u64>,
        limit: usize,
        context: RequestContext<'_>,
    ) -> Result<SettlementPage, ServiceError> {
        let mut reads = self.reads(account, context);
        let mut list = SettlementPage { rows: Vec::new(), next: before };
        loop {
            let page =
                reads.settlements(filter.clone(), list.next, limit - list.rows.len()).await?;
            list.rows.extend(page.rows);
            list.next = page.next;
            if list.next.is_none() || list.rows.len() >= limit {
                return Ok(list);
            }
        }
    }

    /// Reads settlements of the caller's account once. May return fewer than `limit` even if more
    /// match.
    pub async fn settlement_page(
        &self,
        caller: &Caller,
        filter: SettlementFilter,
        before: Option<u64>,
        limit: usize,
        context: RequestContext<'_>,
    ) -> Result<SettlementPage, ServiceError> {
        self.reads(caller.account()?, context).settlements(filter, before, limit).await
    }

    pub(super) fn mark(&self, row: PositionRow) -> MarkedPosition {
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
