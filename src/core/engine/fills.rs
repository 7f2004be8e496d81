//! The fills of an account, numbered from 1 without gaps.
//!
//! An account whose orders all filled when they were placed needs no log: its n-th finished order
//! is its n-th fill. That no longer holds after its first
//! [`OrderPlaced`](crate::engine::event::OrderPlaced), so from then on the account logs each fill.
//! Earlier fills are still derived from the kept orders.

pub mod fill;
pub mod log;
pub mod turnover;
pub mod undo;
pub mod undone;

use std::sync::Arc;

use crate::engine::account::Account;
use crate::engine::contradiction::Flaw;
use crate::engine::fills::fill::Fill;
use crate::engine::fills::log::{FillLog, FillLogRow, LOGGED_FILLS_MAX, LoggedFill};
use crate::engine::order::open::BookSide;
use crate::engine::order::receipt::Order;
use crate::engine::state::State;
use crate::engine::state::view::{Observed, ROWS_PER_READ_MAX};
use crate::ids::{AccountId, Lsn, OrderId, Timestamp, condition};
use crate::market::book::Side;
use crate::money::FeeRate;
use crate::sizes::Size;

/// A fill of an account, with the venue's names for its market and outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FillRow {
    /// The fill's number within the account, from 1.
    pub number: u64,
    /// The order that filled.
    pub order: OrderId,
    /// The fill's number within its order, from 1.
    pub part: u32,
    /// The market's condition id.
    pub market_id: Arc<str>,
    /// The outcome's label.
    pub outcome: Arc<str>,
    /// Buy or sell.
    pub side: Side,
    /// The fill, with the account's balance and position after it.
    pub fill: Fill,
    /// The order's name from the request's body; `None` if there is none, or if the order was
    /// forgotten.
    pub client_order_id: Option<Box<str>>,
    /// When the fill was undone; `None` if it was not. An undone fill is a fact, but nothing that
    /// the account has or has traded counts it.
    pub undone_at: Option<Timestamp>,
}

/// A page of consecutive fills of an account, and the range of fills that are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FillPage {
    /// The number of the oldest fill that is kept; `newest + 1` if no fill is kept.
    pub oldest: u64,
    /// The number of the newest fill; 0 if the account never had a fill.
    pub newest: u64,
    /// Consecutive fills, oldest first.
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
    /// Only the fill with this number within this order.
    pub part_of: Option<(OrderId, u32)>,
    /// Only fills at or after this time.
    pub from: Option<Timestamp>,
    /// Only fills at or before this time.
    pub to: Option<Timestamp>,
}

/// A cursor into a list of fills, newest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FillCursor {
    /// Only fills before the one with this number.
    pub before: u64,
    /// The number of matching fills to skip first.
    pub skip: u64,
}

/// A fill, with the outcome's token and the time its order was placed.
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

/// The attributes of a fill that a [`FillFilter`] matches.
struct FillKey {
    order: OrderId,
    part: u32,
    on: BookSide,
    at: Timestamp,
}

/// The maximum number of fills that one read of a history examines.
const FILLS_PER_READ_MAX: Size = Size::new(2_000, 5);

impl FillCursor {
    /// Creates a cursor that starts at the newest fill and skips the first `skip` matching fills.
    pub const fn newest(skip: u64) -> Self {
        Self { before: u64::MAX, skip }
    }
}

impl PastFill {
    /// Whether the fill is known to have taken liquidity: it happened at placement, or it had a fee
    /// rate above 0, which fills of resting orders never have.
    pub fn is_taker(&self) -> bool {
        self.is_at_placement() || self.row.fill.fee_rate > FeeRate::ZERO
    }

    /// Whether the fill happened when its order was placed. False if the order was forgotten.
    pub fn is_at_placement(&self) -> bool {
        self.row.part == 1 && self.placed_at == Some(self.row.fill.at)
    }
}

impl FillPage {
    /// The page of an account that never had a fill.
    pub const EMPTY: Self = Self { oldest: 1, newest: 0, rows: Vec::new() };
}

impl Account {
    /// Returns the number of the oldest fill that is kept. If no fill is kept, returns the number
    /// of the newest fill plus 1.
    pub(in crate::engine) fn oldest_fill(&self) -> u64 {
        let next = self.fill_count_ever() + 1;
        let (logged_count, began_after) = match self.fill_log() {
            Some(log) => (log.fills.len() as u64, log.began_after),
            None => (0, next - 1),
        };
        let oldest_logged = next - logged_count;
        let oldest_order = self.order_count_ever() + 1 - self.kept_order_count() as u64;
        // Fills derived from older orders count only until the log drops its first fill. After
        // that, there is a gap before the log.
        if oldest_logged == began_after + 1 {
            oldest_order.min(oldest_logged)
        } else {
            oldest_logged
        }
    }

    /// Returns the logged fill with this number, if it is in the log.
    fn logged_fill(&self, number: u64) -> Option<&LoggedFill> {
        let log = self.fill_log()?;
        let newer_count = usize::try_from(self.fill_count_ever().checked_sub(number)?).ok()?;
        log.fills.get(log.fills.len().checked_sub(newer_count + 1)?)
    }

    /// Returns the slot of the order whose fill has this number. The fill must be kept and not
    /// logged.
    fn slot_of_fill(&self, number: u64) -> u32 {
        let newer_count = self.order_count_ever() - number;
        let slot =
            usize::try_from(newer_count).ok().and_then(|count| self.orders().nth_back(count));
        slot.expect("a kept fill has a row")
    }
}

impl State {
    /// Iterates over the fill logs of all accounts that have one, in id order.
    pub fn fill_logs(&self) -> impl Iterator<Item = FillLogRow<'_>> {
        self.accounts.iter().filter_map(|(_, account)| {
            let FillLog { began_after, fills } = account.fill_log()?;
            Some(FillLogRow { account: account.id, began_after: *began_after, fills })
        })
    }

    /// Starts the account's fill log. This happens before the account's first delayed order,
    /// because that order may end without a fill.
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

    /// Starts the account's fill log unless it has one. Call this before applying the account's
    /// first order that does not have to fill at once.
    pub(super) fn begin_fill_log(&mut self, account: u32) {
        let account = &mut self.accounts[account];
        if account.fill_log().is_none() {
            let log = FillLog::new(account.fill_count_ever());
            self.hash += log.beginning_term(account.id);
            account.set_fill_log(log);
        }
    }

    /// Appends the account's newest fill to the account's log, if it has one. The account must
    /// already have counted the fill.
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

    /// Returns up to `limit` fills of an account with numbers above `after`, oldest first. Fills
    /// that are no longer kept are left out. `None` if there is no such account.
    pub fn observe_fills(
        &self,
        account: AccountId,
        after: u64,
        limit: usize,
    ) -> Observed<Option<FillPage>> {
        let Some(account) = self.account(account) else {
            return Observed { value: None, lsn: Lsn::START };
        };
        let (oldest, newest) = (account.oldest_fill(), account.fill_count_ever());
        let numbers = oldest.max(after.saturating_add(1))..=newest;
        let rows = numbers.take(limit.min(ROWS_PER_READ_MAX));
        let rows = rows.map(|number| self.fill_row(account, number)).collect();
        // Every record with a fill also changes the account.
        let lsn = self.lsn_at(account.position_in_log);
        Observed { value: Some(FillPage { oldest, newest, rows }), lsn }
    }

    /// Returns up to `limit` fills of an account that match the filter, newest first, starting at
    /// the cursor. May return fewer even if more fills match. `None` if there is no such account.
    pub fn observe_fill_history(
        &self,
        account: AccountId,
        filter: &FillFilter,
        cursor: FillCursor,
        limit: usize,
    ) -> Observed<Option<FillHistory>> {
        let Some(account) = self.account(account) else {
            return Observed { value: None, lsn: Lsn::START };
        };
        let limit = limit.min(ROWS_PER_READ_MAX);
        let (oldest, newest) = (account.oldest_fill(), account.fill_count_ever());
        let FillCursor { before, mut skip } = cursor;
        let mut before = before.min(newest + 1);
        if *filter == FillFilter::default() {
            // Every fill matches, so skip them without examining each.
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
        // Every record with a fill also changes the account.
        let lsn = self.lsn_at(account.position_in_log);
        Observed { value: Some(FillHistory { fills, next }), lsn }
    }

    /// Returns the attributes of the fill with this number, which must be kept.
    fn fill_key(&self, account: &Account, number: u64) -> FillKey {
        if let Some(logged) = account.logged_fill(number) {
            let LoggedFill { order, part, market, outcome, side, fill } = *logged;
            return FillKey { order, part, on: BookSide { market, outcome, side }, at: fill.at };
        }
        let order = &self.orders[account.slot_of_fill(number)];
        FillKey { order: order.id(), part: 1, on: order.on(), at: order.placed_at() }
    }

    /// Iterates over the kept fills of an account, newest first.
    pub(in crate::engine) fn newest_fills(
        &self,
        account: &Account,
    ) -> impl Iterator<Item = LoggedFill> {
        let numbers = account.oldest_fill()..=account.fill_count_ever();
        numbers.rev().map(|number| self.kept_fill(account, number))
    }

    /// Returns the fill with this number, which must be kept, as the log has it or would have it.
    pub(in crate::engine) fn kept_fill(&self, account: &Account, number: u64) -> LoggedFill {
        account.logged_fill(number).copied().unwrap_or_else(|| {
            let order = &self.orders[account.slot_of_fill(number)];
            LoggedFill::new(order.id(), 1, order.on(), order.fill())
        })
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

    /// Returns the fill with this number, which must be kept.
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
                undone_at: account.undone_at(number),
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
            undone_at: account.undone_at(number),
        }
    }
}

#[cfg(test)]
pub(in crate::engine) mod tests;
