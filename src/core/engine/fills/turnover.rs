//! What an account has traded in each outcome: sums over its fills, for readers that want no rows.
//! Fills that were undone do not count.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::FILLS_PER_READ_MAX;
use crate::engine::account::Account;
use crate::engine::fills::fill::Fill;
use crate::engine::fills::log::LoggedFill;
use crate::engine::order::open::BookSide;
use crate::engine::state::State;
use crate::engine::state::view::{Observed, ROWS_PER_READ_MAX};
use crate::ids::{AccountId, Lsn, MarketIndex, OutcomeIndex, Timestamp};
use crate::market::book::Side;
use crate::money::{Shares, Usd};

/// The sums of the fills in one outcome. A sum that would exceed its range stays at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turnover {
    /// The market's index in the shard.
    pub market: MarketIndex,
    /// The outcome's index in the market.
    pub outcome: OutcomeIndex,
    /// The number of fills.
    pub fill_count: u64,
    /// The shares bought.
    pub bought: Shares,
    /// What they cost, without fees.
    pub bought_for: Usd,
    /// The fees of purchases.
    pub bought_fees: Usd,
    /// The shares sold.
    pub sold: Shares,
    /// What they brought, before fees.
    pub sold_for: Usd,
    /// The fees of sales.
    pub sold_fees: Usd,
    /// The time of the oldest fill.
    pub first_at: Timestamp,
    /// The time of the newest fill.
    pub last_at: Timestamp,
}

/// The sums of some of an account's fills.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TurnoverPage {
    /// The sums, one for each outcome.
    pub rows: Vec<Turnover>,
    /// The `before` of the next read; `None` if no older fill is kept.
    pub next: Option<u64>,
}

/// The venue's tokens of a position's outcome and of the one that pays if it does not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PositionTokens {
    /// The token of the position's outcome.
    pub token_id: Arc<str>,
    /// The label and the token of the other outcome; `None` unless the market has two.
    pub opposite: Option<(Arc<str>, Arc<str>)>,
}

impl Turnover {
    /// Sums of no fill.
    pub const fn empty(market: MarketIndex, outcome: OutcomeIndex, at: Timestamp) -> Self {
        Self {
            market,
            outcome,
            fill_count: 0,
            bought: Shares::ZERO,
            bought_for: Usd::ZERO,
            bought_fees: Usd::ZERO,
            sold: Shares::ZERO,
            sold_for: Usd::ZERO,
            sold_fees: Usd::ZERO,
            first_at: at,
            last_at: at,
        }
    }

    /// Adds the sums of other fills in the same outcome.
    pub fn add(&mut self, other: &Self) {
        let shares =
            |a: Shares, b: Shares| Shares::from_micros(a.micros().saturating_add(b.micros()));
        let usd = |a: Usd, b: Usd| Usd::from_micros(a.micros().saturating_add(b.micros()));
        self.fill_count += other.fill_count;
        self.bought = shares(self.bought, other.bought);
        self.bought_for = usd(self.bought_for, other.bought_for);
        self.bought_fees = usd(self.bought_fees, other.bought_fees);
        self.sold = shares(self.sold, other.sold);
        self.sold_for = usd(self.sold_for, other.sold_for);
        self.sold_fees = usd(self.sold_fees, other.sold_fees);
        self.first_at = self.first_at.min(other.first_at);
        self.last_at = self.last_at.max(other.last_at);
    }

    fn of(on: BookSide, fill: &Fill) -> Self {
        let Fill { quantity, notional, fee, at, .. } = *fill;
        let sums = Self { fill_count: 1, ..Self::empty(on.market, on.outcome, at) };
        match on.side {
            Side::Buy => Self { bought: quantity, bought_for: notional, bought_fees: fee, ..sums },
            Side::Sell => Self { sold: quantity, sold_for: notional, sold_fees: fee, ..sums },
        }
    }
}

impl State {
    /// Sums up an account's newest fills with numbers below `before`. The next read continues with
    /// older ones. `None` if there is no such account.
    pub fn observe_turnover(
        &self,
        account: AccountId,
        before: u64,
    ) -> Observed<Option<TurnoverPage>> {
        let Some(account) = self.account(account) else {
            return Observed { value: None, lsn: Lsn::START };
        };
        let oldest = account.oldest_fill();
        let end = before.min(account.fill_count_ever() + 1);
        let start = oldest.max(end.saturating_sub(FILLS_PER_READ_MAX.get() as u64));
        let mut rows: BTreeMap<(u32, u8), Turnover> = BTreeMap::new();
        for number in (start..end).filter(|&number| account.undone_at(number).is_none()) {
            let sums = self.turnover_of(account, number);
            let key = (sums.market.0, sums.outcome.0);
            rows.entry(key).and_modify(|row| row.add(&sums)).or_insert(sums);
        }
        let rows = rows.into_values().collect();
        let next = (start > oldest).then_some(start);
        // Every record with a fill also changes the account.
        let lsn = self.lsn_at(account.position_in_log);
        Observed { value: Some(TurnoverPage { rows, next }), lsn }
    }

    /// Returns the tokens of an account's positions after the first `offset`, at most
    /// [`ROWS_PER_READ_MAX`]. `None` if there is no such account.
    pub fn observe_tokens(
        &self,
        account: AccountId,
        offset: usize,
    ) -> Observed<Option<Vec<PositionTokens>>> {
        let Some(account) = self.account(account) else {
            return Observed { value: None, lsn: Lsn::START };
        };
        let page = account.positions().iter().skip(offset).take(ROWS_PER_READ_MAX);
        let tokens = page.map(|position| {
            let market = self.used_market(position.market);
            let opposite = match market.outcomes.as_slice() {
                [first, second] => {
                    Some(if position.outcome.index() == 0 { second } else { first }.clone())
                }
                _ => None,
            };
            PositionTokens { token_id: market.token(position.outcome).clone(), opposite }
        });
        let value = Some(tokens.collect());
        Observed { value, lsn: self.lsn_at(account.position_in_log) }
    }

    /// Returns the sums of the fill with this number, which must be kept.
    fn turnover_of(&self, account: &Account, number: u64) -> Turnover {
        let LoggedFill { market, outcome, side, fill, .. } = self.kept_fill(account, number);
        Turnover::of(BookSide { market, outcome, side }, &fill)
    }
}
