//! The value of an account at each full hour.
//!
//! Nothing is stored for this: it is computed from the account's own records, which are read in
//! parts. Everything is shown as of the last read of the account's positions. Later events are left
//! out, so concurrent trading does not affect the result.

use std::collections::HashMap;
use std::sync::Arc;

use super::accounts::Statement;
use super::{Caller, RequestContext, Service, ServiceError};
use paperbourse_core::engine::account::equity::{Equity, EquityPoint, Holding, Move, Payment};
use paperbourse_core::engine::account::position::Position;
use paperbourse_core::engine::admin::standing::Deposit;
use paperbourse_core::engine::fills::fill::Fill;
use paperbourse_core::engine::fills::{FillCursor, FillFilter, FillRow, PastFill};
use paperbourse_core::engine::market::payout::{SETTLEMENTS_PER_ACCOUNT_MAX, Settlement};
use paperbourse_core::engine::state::view::{SettlementFilter, SettlementRow};
use paperbourse_core::ids::{AccountId, Timestamp};
use paperbourse_core::market::book::Side;
use paperbourse_core::money::{Shares, Usd};

/// Maximum number of hours in one answer: 90 days, for which prices are kept.
pub const EQUITY_HOURS_MAX: u32 = paperbourse_core::market::history::HOURS_KEPT;

/// Maximum number of fills that one request reads. If there are more, the series begins at the
/// oldest fill that was read.
const FILLS_MAX: usize = if cfg!(test) { 40 } else { 10_000 };

/// Maximum number of prices that one request looks up. An account with too many positions for this
/// limit gets fewer hours.
const PRICES_MAX: usize = if cfg!(test) { 300 } else { 1_000_000 };

/// Number of points after which the worker lets other requests run first, which takes about 0.1 ms
/// to reach.
const POINTS_PER_TURN: usize = 1_000;

const HOUR_SECONDS: i64 = 3_600;

/// The value of an account over time, and the basis of its profit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EquityHistory {
    /// One point per full hour, and a last one for the present.
    pub equity: Equity,
    /// The balance at opening or after the last reset, plus all deposits since.
    starting_balance: Usd,
    /// The deposits since opening or the last reset, oldest first.
    deposits: Vec<Deposit>,
}

impl EquityHistory {
    /// Returns the account's profit or loss up to this point. Deposits count as neither.
    pub fn profit(&self, point: &EquityPoint) -> Usd {
        let later = self.deposits.iter().filter(|deposit| deposit.at > point.at);
        let later: Usd = later.map(|deposit| deposit.amount).sum();
        point.total() - (self.starting_balance - later)
    }
}

/// Fills of an account, newest first.
struct Fills {
    rows: Vec<PastFill>,
    /// Whether these are all fills since the account was opened or last reset.
    is_all: bool,
}

/// The records of an account, prepared for valuation.
struct Records<'s> {
    statement: &'s Statement,
    /// Index of each position, by market and outcome.
    position_of: HashMap<(&'s str, &'s str), usize>,
    /// The changes of each position, oldest first.
    moves: Vec<Vec<Move>>,
    payments: Vec<Payment>,
    /// The time at which the records begin, and the cash at that time.
    start: (Timestamp, Usd),
}

impl Service {
    /// Returns the value of the caller's account at the newest full hours and now: at most `hours`
    /// points. Hours before the account was opened or last reset are left out.
    pub async fn equity(
        &self,
        caller: &Caller,
        hours: u32,
        context: RequestContext<'_>,
    ) -> Result<EquityHistory, ServiceError> {
        let account = caller.account()?;
        let statement = self.statement(account, context).await?;
        let now = context.moment.now;
        let moments = |count: usize| {
            let hour = now.seconds().div_euclid(HOUR_SECONDS);
            let oldest = hour.saturating_sub(i64::try_from(count).unwrap_or(i64::MAX));
            let full = (oldest..=hour).map(|hour| Timestamp::from_seconds(hour * HOUR_SECONDS));
            let mut moments: Vec<_> = full.filter(|full| *full < now).chain([now]).collect();
            moments.drain(..moments.len().saturating_sub(count));
            moments
        };
        let hours = hours.clamp(1, EQUITY_HOURS_MAX) as usize;
        let fills = self.fills_since(account, moments(hours)[0], &statement, context).await?;
        let mut records = Records::new(&statement);
        records.add_fills(fills, now);
        records.add_deposits(now);
        let from = Some(records.start.0);
        let filter = SettlementFilter { from, ..SettlementFilter::default() };
        let most = SETTLEMENTS_PER_ACCOUNT_MAX;
        let settled = self.settlements(caller, filter, None, most, context).await?;
        records.add_settlements(&settled.rows, now);
        records.close(now);

        let held: Vec<usize> = records.held().collect();
        let count = (PRICES_MAX / held.len().max(1)).clamp(1, hours);
        let mut equity = Equity::new(moments(count), records.start, &records.payments);
        let mut point_count = 0;
        for index in held {
            let row = &statement.positions[index];
            let market = self.markets.by_condition(&row.market_id);
            let shown = self.mark(row.clone()).price;
            let held = Holding { shares: row.position.shares, cost: row.position.cost };
            equity.add(held, &records.moves[index], |at| {
                if at == now {
                    return shown;
                }
                let market = market.as_ref()?;
                self.markets.past_price(market, row.outcome_index, at, now)
            });
            point_count += equity.points().len();
            if point_count >= POINTS_PER_TURN {
                point_count = 0;
                tokio::task::yield_now().await;
            }
        }
        let page = statement.page;
        Ok(EquityHistory { equity, starting_balance: page.baseline, deposits: page.deposits })
    }

    /// Returns the fills since `first`, newest first, and the last fill before it, which gives the
    /// cash up to that moment. Fills from before the last reset are left out.
    async fn fills_since(
        &self,
        account: AccountId,
        first: Timestamp,
        statement: &Statement,
        context: RequestContext<'_>,
    ) -> Result<Fills, ServiceError> {
        let mut reads = self.reads(account, context);
        let mut fills = Fills { rows: Vec::new(), is_all: false };
        let mut next = Some(FillCursor { before: statement.page.fill_count + 1, skip: 0 });
        while let Some(cursor) = next {
            let limit = FILLS_MAX - fills.rows.len();
            let page = reads.fills(FillFilter::default(), cursor, limit).await?;
            for past in page.fills {
                let at = past.row.fill.at;
                // If a wrong clock gave a fill the time of the reset, the balances show a gap.
                if statement.page.reset_at.is_some_and(|reset_at| at <= reset_at) {
                    return Ok(Fills { is_all: true, ..fills });
                }
                fills.rows.push(past);
                if at <= first {
                    return Ok(fills);
                }
            }
            next = page.next.filter(|_| fills.rows.len() < FILLS_MAX);
        }
        fills.is_all = fills.rows.last().is_none_or(|oldest| oldest.row.number == 1);
        Ok(fills)
    }
}

impl<'s> Records<'s> {
    fn new(statement: &'s Statement) -> Self {
        let deposits = statement.page.deposits.iter();
        let deposited: Usd = deposits.map(|deposit| deposit.amount).sum();
        let began_at = statement.page.reset_at.unwrap_or(statement.page.opened_at);
        let rows = statement.positions.iter().enumerate();
        let position_of = rows.map(|(index, row)| ((&*row.market_id, &*row.outcome), index));
        Self {
            statement,
            position_of: position_of.collect(),
            moves: vec![Vec::new(); statement.positions.len()],
            payments: Vec::new(),
            // Deposits that are no longer kept count as if they had been made before the start.
            start: (began_at, statement.page.baseline - deposited),
        }
    }

    fn position(&self, market_id: &Arc<str>, outcome: &Arc<str>) -> Option<usize> {
        self.position_of.get(&(&**market_id, &**outcome)).copied()
    }

    /// Adds the fills, which are newest first. A fill that a wrong clock dated later than the next
    /// fill gets the time of the next fill.
    fn add_fills(&mut self, mut fills: Fills, now: Timestamp) {
        let mut next_at = now;
        for past in &mut fills.rows {
            next_at = next_at.min(past.row.fill.at);
            past.row.fill.at = next_at;
        }
        for PastFill { row, .. } in fills.rows.iter().rev() {
            let fill = &row.fill;
            let (quantity, notional) = (fill.quantity, fill.notional);
            let after = Holding { shares: fill.position_shares, cost: fill.position_cost };
            let (amount, before) = match row.side {
                Side::Buy => (
                    -(notional + fill.fee),
                    Holding { shares: after.shares - quantity, cost: after.cost - notional },
                ),
                // The cost of the sold shares is known only from earlier fills, if these are kept.
                Side::Sell => (
                    notional - fill.fee,
                    Holding { shares: after.shares + quantity, cost: after.cost + notional },
                ),
            };
            if self.payments.is_empty() && !fills.is_all {
                self.start = (fill.at, fill.balance - amount);
            }
            self.payments.push(Payment { at: fill.at, amount, balance: Some(fill.balance) });
            if let Some(position) = self.position(&row.market_id, &row.outcome) {
                self.moves[position].push(Move { at: fill.at, before, after });
            }
        }
        for PastFill { row, .. } in &fills.rows {
            if let Some(undone_at) = row.undone_at {
                self.undo(row, undone_at.max(row.fill.at).min(now));
            }
        }
    }

    /// Takes a fill back at the time at which it was undone. Until the next fill in its outcome,
    /// the cost of the shares held is an estimate, which counts only while they have no price.
    fn undo(&mut self, row: &FillRow, at: Timestamp) {
        let Fill { quantity, notional, fee, .. } = row.fill;
        let amount = match row.side {
            Side::Buy => notional + fee,
            Side::Sell => fee - notional,
        };
        self.payments.push(Payment { at, amount, balance: None });
        let Some(position) = self.position(&row.market_id, &row.outcome) else { return };
        let moves = &mut self.moves[position];
        let place = moves.partition_point(|earlier| earlier.at <= at);
        let Some(before) = place.checked_sub(1).map(|last| moves[last].after) else { return };
        let after = match row.side {
            Side::Buy => Holding {
                shares: (before.shares - quantity).max(Shares::ZERO),
                cost: (before.cost - notional).max(Usd::ZERO),
            },
            Side::Sell => {
                Holding { shares: before.shares + quantity, cost: before.cost + notional }
            }
        };
        moves.insert(place, Move { at, before, after });
    }

    /// Adds the deposits made since the time at which the records begin.
    fn add_deposits(&mut self, now: Timestamp) {
        let start = self.start.0;
        let deposits = self.statement.page.deposits.iter().filter(|deposit| deposit.at >= start);
        let payments = deposits.map(|deposit| Payment {
            at: deposit.at.min(now),
            amount: deposit.amount,
            balance: None,
        });
        self.payments.extend(payments);
    }

    /// Adds settlements, in any order. If a position was still open when it was read, its
    /// settlement happened later and is left out.
    fn add_settlements(&mut self, rows: &[SettlementRow], now: Timestamp) {
        for row in rows {
            let index = usize::try_from(row.number - 1).unwrap_or(usize::MAX);
            let read = self.statement.positions.get(index);
            if read.is_none_or(|it| it.position.is_open()) {
                continue;
            }
            let Settlement { shares, cost, payout, at, .. } = row.settlement;
            let moves = &mut self.moves[index];
            let at = moves.last().map_or(at, |last| at.max(last.at)).min(now);
            self.payments.push(Payment { at, amount: payout, balance: None });
            moves.push(Move { at, before: Holding { shares, cost }, after: Holding::NONE });
        }
        // The sort is stable: fills at the same time keep their order.
        self.payments.sort_by_key(|payment| payment.at);
    }

    /// Adds the current cash and holdings as the last point, so that the effect of a settlement
    /// that is no longer kept still shows.
    fn close(&mut self, now: Timestamp) {
        let Statement { page, fill_count_before, positions } = self.statement;
        let cash = page.ledger.cash();
        self.payments.push(Payment { at: now, amount: Usd::ZERO, balance: Some(cash) });
        if *fill_count_before != page.fill_count {
            // A position may have been read before its newest fill.
            return;
        }
        for (moves, row) in self.moves.iter_mut().zip(positions) {
            if let Some(last) = moves.last_mut() {
                let Position { shares, cost, .. } = row.position;
                last.after = Holding { shares, cost };
            }
        }
    }

    /// Returns the indices of the positions that have ever held shares.
    fn held(&self) -> impl Iterator<Item = usize> {
        let all = self.moves.iter().zip(&self.statement.positions).enumerate();
        let held = all.filter(|(_, (moves, row))| !moves.is_empty() || row.position.is_open());
        held.map(|(index, _)| index)
    }
}

#[cfg(test)]
mod tests;
