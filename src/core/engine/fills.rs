//! The fills of an account, numbered from 1 without a hole.
//!
//! An account whose orders all filled when they were placed needs no log: its n-th finished order
//! is its n-th fill. From the first [`OrderPlaced`](crate::engine::event::OrderPlaced) on, that no
//! longer holds, so from then on the account logs each fill. Those before it still follow from the
//! kept orders.

pub mod fill;
pub mod log;

use std::sync::Arc;

use crate::engine::account::Account;
use crate::engine::contradiction::Flaw;
use crate::engine::fills::fill::Fill;
use crate::engine::fills::log::{FillLog, FillLogRow, LOGGED_FILLS_MAX, LoggedFill};
use crate::engine::order::open::BookSide;
use crate::engine::order::receipt::Order;
use crate::engine::state::State;
use crate::engine::state::view::{Observed, ROWS_PER_READ_MAX};
use crate::ids::{AccountId, OrderId, Place, Timestamp, condition};
use crate::market::book::Side;
use crate::money::FeeRate;
use crate::sizes::Size;

/// A fill of an account, with the venue's names for its market and outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FillRow {
    /// The number of the fill within the account, from 1.
    pub number: u64,
    /// The order that filled.
    pub order: OrderId,
    /// The number of the fill among those of its order, from 1.
    pub part: u32,
    /// The market's condition id.
    pub market_id: Arc<str>,
    /// The outcome's label.
    pub outcome: Arc<str>,
    /// Buy or sell.
    pub side: Side,
    /// What the fill gave, and what the account had afterwards.
    pub fill: Fill,
    /// The order's name from the request's body; `None` if there is none, or if the order was
    /// forgotten.
    pub client_order_id: Option<Box<str>>,
}

/// Consecutive fills of an account, and which ones are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FillPage {
    /// The number of the oldest fill that is kept; one above `newest` if none is.
    pub oldest: u64,
    /// The number of the newest fill; 0 if there was none.
    pub newest: u64,
    /// Fills without a hole, oldest first.
    pub rows: Vec<FillRow>,
}

/// Selects fills of an account.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FillFilter {
    /// Only fills in the market with this condition id.
    pub market_id: Option<Box<str>>,
    /// Only fills in the outcome with this token.
    pub token_id: Option<Box<str>>,
    /// Only fills on this side.
    pub side: Option<Side>,
    /// Only the fill with this number among those of this order.
    pub part_of: Option<(OrderId, u32)>,
    /// Only fills at or after this time.
    pub from: Option<Timestamp>,
    /// Only fills at or before this time.
    pub to: Option<Timestamp>,
}

/// Where a list of fills, newest first, goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FillCursor {
    /// Only fills before the one with this number.
    pub before: u64,
    /// How many of those that match to leave out first.
    pub skip: u64,
}

/// A fill, and when its order was placed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PastFill {
    /// The fill.
    pub row: FillRow,
    /// The token of the outcome.
    pub token_id: Arc<str>,
    /// When the order was placed; `None` if the order was forgotten.
    pub placed_at: Option<Timestamp>,
}

/// Fills of an account that match a filter, newest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FillHistory {
    /// The fills.
    pub fills: Vec<PastFill>,
    /// The cursor of the next read; `None` if no older fill is kept.
    pub next: Option<FillCursor>,
}

/// What a fill is selected by.
struct FillKey {
    order: OrderId,
    part: u32,
    on: BookSide,
    at: Timestamp,
}

/// The most fills that one read of a history examines.
const FILLS_PER_READ_MAX: Size = Size::new(2_000, 5);

impl FillCursor {
    /// The newest fills, without the first `skip` that match.
    pub const fn newest(skip: u64) -> Self {
        Self { before: u64::MAX, skip }
    }
}

impl PastFill {
    /// Whether the fill took liquidity, as far as can be told: it happened when the order was
    /// placed, or it was charged at a rate, which resting orders never are.
    pub fn is_taker(&self) -> bool {
        self.is_at_placement() || self.row.fill.fee_rate > FeeRate::ZERO
    }

    /// Whether the fill happened when the order was placed. False if the order was forgotten.
    pub fn is_at_placement(&self) -> bool {
        self.row.part == 1 && self.placed_at == Some(self.row.fill.at)
    }
}

impl FillPage {
    /// The page of an account that never had a fill.
    pub const EMPTY: Self = Self { oldest: 1, newest: 0, rows: Vec::new() };
}

impl Account {
    /// The number of the oldest fill that is kept; one above the newest if none is.
    fn oldest_fill(&self) -> u64 {
        let next = self.fill_count_ever() + 1;
        let (logged_count, began_after) = match self.fill_log() {
            Some(log) => (log.fills.len() as u64, log.began_after),
            None => (0, next - 1),
        };
        let oldest_logged = next - logged_count;
        let oldest_order = self.order_count_ever() + 1 - self.kept_order_count() as u64;
        // The orders from before the log count only while the log is whole.
        if oldest_logged == began_after + 1 {
            oldest_order.min(oldest_logged)
        } else {
            oldest_logged
        }
    }

    /// The logged fill with this number.
    fn logged_fill(&self, number: u64) -> Option<&LoggedFill> {
        let log = self.fill_log()?;
        let newer_count = usize::try_from(self.fill_count_ever().checked_sub(number)?).ok()?;
        log.fills.get(log.fills.len().checked_sub(newer_count + 1)?)
    }

    /// The slot of the order that is the fill with this number, which must be kept and not logged.
    fn slot_of_fill(&self, number: u64) -> u32 {
        let newer_count = self.order_count_ever() - number;
        let slot =
            usize::try_from(newer_count).ok().and_then(|count| self.orders().nth_back(count));
        slot.expect("a kept fill has a row")
    }
}

impl State {
    /// The logs of all accounts that have one, by account.
    pub fn fill_logs(&self) -> impl Iterator<Item = FillLogRow<'_>> {
        self.accounts.iter().filter_map(|(_, account)| {
            let FillLog { began_after, fills } = account.fill_log()?;
            Some(FillLogRow { account: account.id, began_after: *began_after, fills })
        })
    }

    /// Begins the account's log, before an order that may end without a fill is held.
    pub(super) fn log_fills_from_now(
        &mut self,
        id: AccountId,
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        let account = self.account_slot(id).ok_or(Flaw::account(id, "was never opened"))?;
        if self.accounts[account].fill_log().is_some() {
            return Err(Flaw::account(id, "logs its fills already"));
        }
        self.begin_fill_log(account);
        self.accounts[account].position_in_log = position_in_log;
        Ok(())
    }

    /// Begins the account's log, if it has not begun. Call it before the account's first order that
    /// need not fill at once.
    pub(super) fn begin_fill_log(&mut self, account: u32) {
        let account = &mut self.accounts[account];
        if account.fill_log().is_none() {
            let log = FillLog::new(account.fill_count_ever());
            self.hash += log.beginning_term(account.id);
            account.set_fill_log(log);
        }
    }

    /// Logs the account's newest fill, which it has counted already.
    #[inline]
    pub(super) fn log_fill(&mut self, account: u32, fill: impl FnOnce() -> LoggedFill) {
        let account = &mut self.accounts[account];
        if account.fill_log().is_none() {
            return;
        }
        let (id, number) = (account.id, account.fill_count_ever());
        if let Some(log) = account.fill_log_mut() {
            let fill = fill();
            self.hash += fill.term(id, number);
            if let Some(forgotten) = log.push(fill) {
                self.hash -= forgotten.term(id, number - LOGGED_FILLS_MAX.get() as u64);
            }
        }
    }

    /// The fills of an account from the one after number `after` on, oldest first; at most `limit`.
    /// Fills that are no longer kept are left out.
    pub fn observe_fills(
        &self,
        account: AccountId,
        after: u64,
        limit: usize,
    ) -> Observed<Option<FillPage>> {
        let Some(account) = self.account(account) else {
            return Observed { value: None, place: Place::START };
        };
        let (oldest, newest) = (account.oldest_fill(), account.fill_count_ever());
        let numbers = oldest.max(after.saturating_add(1))..=newest;
        let rows = numbers.take(limit.min(ROWS_PER_READ_MAX));
        let rows = rows.map(|number| self.fill_row(account, number)).collect();
        // Every record with a fill changes its account.
        let place = self.place_at(account.position_in_log);
        Observed { value: Some(FillPage { oldest, newest, rows }), place }
    }

    /// Fills of an account that match the filter, newest first, from the cursor on. At most
    /// `limit`, and possibly fewer although there are more.
    pub fn observe_fill_history(
        &self,
        account: AccountId,
        filter: &FillFilter,
        cursor: FillCursor,
        limit: usize,
    ) -> Observed<Option<FillHistory>> {
        let Some(account) = self.account(account) else {
            return Observed { value: None, place: Place::START };
        };
        let limit = limit.min(ROWS_PER_READ_MAX);
        let (oldest, newest) = (account.oldest_fill(), account.fill_count_ever());
        let FillCursor { before, mut skip } = cursor;
        let mut before = before.min(newest + 1);
        if *filter == FillFilter::default() {
            // All match, so nothing has to be examined.
            before = before.saturating_sub(std::mem::take(&mut skip));
        }
        let mut fills = Vec::new();
        for number in (oldest..before).rev().take(FILLS_PER_READ_MAX.get()) {
            if fills.len() == limit {
                break;
            }
            before = number;
            let key = self.fill_key(account, number);
            if !self.fill_matches(&key, filter) {
                continue;
            }
            if skip > 0 {
                skip -= 1;
                continue;
            }
            let row = self.fill_row(account, number);
            let placed_at = self.order(row.order).map(Order::placed_at);
            fills.push(PastFill { row, token_id: self.token_of(&key), placed_at });
        }
        let next = (before > oldest).then_some(FillCursor { before, skip });
        // Every record with a fill changes its account.
        let place = self.place_at(account.position_in_log);
        Observed { value: Some(FillHistory { fills, next }), place }
    }

    /// What the fill with this number is selected by. It must be kept.
    fn fill_key(&self, account: &Account, number: u64) -> FillKey {
        if let Some(logged) = account.logged_fill(number) {
            let LoggedFill { order, part, market, outcome, side, fill } = *logged;
            return FillKey { order, part, on: BookSide { market, outcome, side }, at: fill.at };
        }
        let order = &self.orders[account.slot_of_fill(number)];
        FillKey { order: order.id(), part: 1, on: order.on(), at: order.placed_at() }
    }

    fn fill_matches(&self, key: &FillKey, filter: &FillFilter) -> bool {
        let FillFilter { market_id, token_id, side, part_of, from, to } = filter;
        let market = self.used_market(key.on.market);
        side.is_none_or(|side| side == key.on.side)
            && part_of.is_none_or(|fill| fill == (key.order, key.part))
            && from.is_none_or(|from| from <= key.at)
            && to.is_none_or(|to| key.at <= to)
            && market_id.as_deref().is_none_or(|id| condition::is_same(id, &market.condition_id))
            && token_id.as_deref().is_none_or(|id| *id == **market.token(key.on.outcome))
    }

    fn token_of(&self, key: &FillKey) -> Arc<str> {
        self.used_market(key.on.market).token(key.on.outcome).clone()
    }

    /// The fill with this number, which must be kept.
    fn fill_row(&self, account: &Account, number: u64) -> FillRow {
        if let Some(logged) = account.logged_fill(number) {
            let market = self.used_market(logged.market);
            let client_order_id = self.order(logged.order).and_then(Order::client_order_id);
            return FillRow {
                number,
                order: logged.order,
                part: logged.part,
                market_id: market.condition_id.clone(),
                outcome: market.label(logged.outcome),
                side: logged.side,
                fill: logged.fill,
                client_order_id: client_order_id.map(Into::into),
            };
        }
        let receipt = self.receipt(&self.orders[account.slot_of_fill(number)]);
        FillRow {
            number,
            order: receipt.order,
            part: 1,
            market_id: receipt.market_id,
            outcome: receipt.outcome,
            side: receipt.side,
            fill: receipt.fill,
            client_order_id: receipt.client_order_id,
        }
    }
}

#[cfg(test)]
mod tests;
