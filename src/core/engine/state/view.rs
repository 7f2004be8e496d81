//! Reads of a shard's state. Each read does a bounded amount of work and returns the LSN of the
//! newest record that its result depends on.

use std::sync::Arc;

use crate::engine::account::Account;
use crate::engine::account::ledger::Ledger;
use crate::engine::account::position::Position;
use crate::engine::admin::standing::Deposit;
use crate::engine::comment::Comment;
use crate::engine::key::Key;
use crate::engine::market::payout::Settlement;
use crate::engine::order::idempotency::NameHash;
use crate::engine::order::order_state::OrderState;
use crate::engine::order::receipt::{Order, OrderReceipt};
use crate::engine::order::terms::OrderStatus;
use crate::engine::state::State;
use crate::ids::{AccountId, KeyId, Lsn, OrderId, OutcomeIndex, Timestamp, condition};
use crate::limits::tier::Tier;
use crate::market::book::Side;
use crate::money::{Shares, Usd};

/// The maximum number of rows that one read returns. Longer lists take several reads.
pub const ROWS_PER_READ_MAX: usize = 200;

/// The maximum number of orders that one read examines, whether or not they match its filter.
const ORDERS_PER_READ_MAX: usize = 2_000;

/// The maximum number of settlements that one read examines.
const SETTLEMENTS_PER_READ_MAX: usize = 2_000;

/// A value read from the state, and the newest record that it depends on. The value must not be
/// disclosed before that record is durable.
#[derive(Clone, PartialEq, Debug)]
pub struct Observed<T> {
    /// The value.
    pub value: T,
    /// The LSN of the newest record that the value depends on.
    pub lsn: Lsn,
}

impl<T> Observed<Option<T>> {
    /// Creates the result of a read that found nothing. The result depends on the record at
    /// `lsn`, which may have removed the value.
    const fn nothing(lsn: Lsn) -> Self {
        Self { value: None, lsn }
    }
}

/// A position, with the venue's names for its market and outcome.
#[derive(Clone, PartialEq, Debug)]
pub struct PositionRow {
    /// The position's number within the account, from 1, in the order of opening.
    pub number: u64,
    /// The market's condition id.
    pub market_id: Arc<str>,
    /// The outcome's label.
    pub outcome: Arc<str>,
    /// The outcome's index in the market.
    pub outcome_index: OutcomeIndex,
    /// The shares, their cost and the realised profit.
    pub position: Position,
    /// The part of the position's shares that open sales reserve.
    pub reserved: Shares,
}

/// An account's money and a page of its positions, at one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct AccountPage {
    /// The account's id.
    pub account: AccountId,
    /// The account's money.
    pub ledger: Ledger,
    /// The balance against which profit is measured.
    pub baseline: Usd,
    /// When the account was opened.
    pub opened_at: Timestamp,
    /// When the account was last reset, if ever.
    pub reset_at: Option<Timestamp>,
    /// The kept deposits since the account was opened or last reset, oldest first.
    pub deposits: Vec<Deposit>,
    /// The number of fills the account has ever had.
    pub fill_count: u64,
    /// At most [`ROWS_PER_READ_MAX`] positions.
    pub positions: Vec<PositionRow>,
    /// Whether more positions follow this page.
    pub has_more: bool,
}

/// An account's owner, money and number of keys, at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Profile {
    /// The account's id.
    pub account: AccountId,
    /// The owner's identifier at the issuer of their access tokens.
    pub subject: Box<str>,
    /// When the account was opened.
    pub opened_at: Timestamp,
    /// The account's money.
    pub ledger: Ledger,
    /// The balance against which profit is measured.
    pub baseline: Usd,
    /// The number of times the account was reset.
    pub reset_count: u32,
    /// The number of active keys.
    pub active_key_count: usize,
}

/// An order in a list, with the token of its outcome.
#[derive(Clone, PartialEq, Debug)]
pub struct ListedOrder {
    /// The order.
    pub receipt: OrderReceipt,
    /// The token of the outcome.
    pub token_id: Arc<str>,
}

/// Selects orders of an account.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OrderFilter {
    /// Only orders in the market with this condition id.
    pub market_id: Option<Box<str>>,
    /// Only orders in the outcome with this token.
    pub token_id: Option<Box<str>>,
    /// Only orders on this side.
    pub side: Option<Side>,
    /// Only orders with this status.
    pub status: Option<OrderStatus>,
    /// Only orders placed at or after this time.
    pub from: Option<Timestamp>,
    /// Only orders placed at or before this time.
    pub to: Option<Timestamp>,
}

/// A cursor into a list of an account's orders: first the open orders, newest first, and then the
/// finished orders, most recently finished first. The cursor stays valid even if the list changes
/// between two reads. An order that finishes between them may be listed twice, once as open and
/// once as finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrderCursor {
    /// Continues with the open orders below this counter, and then with the finished orders.
    Open {
        /// The counter of the last open order examined.
        before: u64,
    },
    /// Continues with the finished orders below this number.
    Finished {
        /// The number of the last finished order examined. Numbers count all orders that the
        /// account ever finished.
        before: u64,
    },
}

/// A page of an account's orders.
#[derive(Clone, PartialEq, Debug)]
pub struct OrderPage {
    /// The orders that match the filter.
    pub orders: Vec<ListedOrder>,
    /// The cursor of the next read; `None` if no orders follow this page.
    pub next: Option<OrderCursor>,
}

/// Selects settlements of an account.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SettlementFilter {
    /// Only settlements in the market with this condition id.
    pub market_id: Option<Box<str>>,
    /// Only settlements at or after this time.
    pub from: Option<Timestamp>,
    /// Only settlements at or before this time.
    pub to: Option<Timestamp>,
}

/// A settlement, with the venue's names for the position's market and outcome.
#[derive(Clone, PartialEq, Debug)]
pub struct SettlementRow {
    /// The position's number within the account, from 1.
    pub number: u64,
    /// The market's condition id.
    pub market_id: Arc<str>,
    /// The outcome's label.
    pub outcome: Arc<str>,
    /// The settlement.
    pub settlement: Settlement,
}

/// A page of an account's settlements, newest position first.
#[derive(Clone, PartialEq, Debug)]
pub struct SettlementPage {
    /// The settlements that match the filter.
    pub rows: Vec<SettlementRow>,
    /// The number of the last position examined, which is the `before` of the next read; `None` if
    /// there are no older settlements.
    pub next: Option<u64>,
}

impl State {
    /// Looks up the account of the identity with this digest.
    pub fn observe_identity(&self, digest: &[u8; 32]) -> Observed<Option<AccountId>> {
        let account = self.account_of(digest).map(Account::id);
        let lsn = account.map_or_else(|| self.no_identity_lsn(), |it| self.account_lsn(it));
        Observed { value: account, lsn }
    }

    /// Looks up the account of the identity with this digest, and the tier set by an operator.
    pub fn observe_owner(&self, digest: &[u8; 32]) -> Observed<Option<(AccountId, Option<Tier>)>> {
        let Observed { value, lsn } = self.observe_identity(digest);
        let tier = |account| self.account(account).and_then(Account::tier);
        Observed { value: value.map(|account| (account, tier(account))), lsn }
    }

    /// Iterates over the SHA-256 hashes of an account's stored keys.
    pub fn key_hashes_of(&self, account: AccountId) -> impl Iterator<Item = [u8; 32]> + '_ {
        let account = self.account(account).into_iter();
        account.flat_map(|account| self.keys_of(account)).map(|key| key.hash)
    }

    /// Returns an account's money, and a page of its positions after the first `offset`.
    pub fn observe_account(
        &self,
        account: AccountId,
        offset: usize,
    ) -> Observed<Option<AccountPage>> {
        let Some(account) = self.account(account) else {
            return Observed::nothing(Lsn::START);
        };
        let page = account.positions().iter().enumerate().skip(offset).take(ROWS_PER_READ_MAX);
        let positions = page.map(|(index, position)| {
            let market = self.used_market(position.market);
            PositionRow {
                number: index as u64 + 1,
                market_id: market.condition_id.clone(),
                outcome: market.label(position.outcome),
                outcome_index: position.outcome,
                position: *position,
                reserved: account.reserved_shares(position.market, position.outcome),
            }
        });
        let began_at = account.resets().map_or(account.opened_at, |resets| resets.at);
        let deposits = account.deposits().iter().filter(|deposit| deposit.at >= began_at);
        let value = AccountPage {
            account: account.id,
            ledger: account.ledger(),
            baseline: account.baseline(),
            opened_at: account.opened_at,
            reset_at: account.resets().map(|resets| resets.at),
            deposits: deposits.copied().collect(),
            fill_count: account.fill_count_ever(),
            positions: positions.collect(),
            has_more: account.positions().len() > offset.saturating_add(ROWS_PER_READ_MAX),
        };
        Observed { value: Some(value), lsn: self.lsn_at(account.position_in_log) }
    }

    /// Returns an account's shares of an outcome, those that open sales reserve included.
    pub fn observe_shares(
        &self,
        account: AccountId,
        market_id: &str,
        outcome: OutcomeIndex,
    ) -> Observed<Option<Shares>> {
        let Some(account) = self.account(account) else {
            return Observed::nothing(Lsn::START);
        };
        let market = self.market_named(market_id);
        let position = market.and_then(|market| account.position(market, outcome));
        let shares = position.map_or(Shares::ZERO, |position| position.shares);
        Observed { value: Some(shares), lsn: self.lsn_at(account.position_in_log) }
    }

    /// Returns an account's owner, money and number of active keys at `now`.
    pub fn observe_profile(&self, account: AccountId, now: Timestamp) -> Observed<Option<Profile>> {
        let Some(account) = self.account(account) else {
            return Observed::nothing(Lsn::START);
        };
        let profile = Profile {
            account: account.id,
            subject: account.subject.clone(),
            opened_at: account.opened_at,
            ledger: account.ledger(),
            baseline: account.baseline(),
            reset_count: account.resets().map_or(0, |resets| resets.count),
            active_key_count: self.keys_of(account).filter(|key| key.is_active(now)).count(),
        };
        Observed { value: Some(profile), lsn: self.lsn_at(account.position_in_log) }
    }

    /// Returns an order, if it belongs to this account.
    pub fn observe_order(
        &self,
        account: AccountId,
        order: OrderId,
    ) -> Observed<Option<OrderReceipt>> {
        let Observed { value, lsn } = self.observe_listed(account, order);
        Observed { value: value.map(|listed| listed.receipt), lsn }
    }

    /// Returns an order with the token of its outcome, if the order belongs to this account.
    pub fn observe_listed(
        &self,
        account: AccountId,
        order: OrderId,
    ) -> Observed<Option<ListedOrder>> {
        let lsn = self.order_lsn(order);
        let own = self.order(order).filter(|order| order.account() == account);
        Observed { value: own.map(|order| self.listed(order)), lsn }
    }

    /// Returns the account's order with this name.
    pub fn observe_named(
        &self,
        account: AccountId,
        name: NameHash,
    ) -> Observed<Option<ListedOrder>> {
        match self.order_named(account, name) {
            Some(order) => self.observe_listed(account, order.id()),
            None => Observed::nothing(self.lsn_at(self.last_removal)),
        }
    }

    /// Returns up to `limit` of an account's orders that match the filter, starting at the cursor.
    /// May return fewer even if more orders match.
    pub fn observe_orders(
        &self,
        account: AccountId,
        filter: &OrderFilter,
        from: OrderCursor,
        limit: usize,
    ) -> Observed<Option<OrderPage>> {
        let Some(account) = self.account(account) else {
            return Observed::nothing(Lsn::START);
        };
        let limit = limit.min(ROWS_PER_READ_MAX);
        // If the filter has a status, either only open or only finished orders can match.
        let is_among = |is_open| {
            filter.status.is_none_or(|status| is_open == (status == OrderStatus::Pending))
        };
        let (open_end, finished_end) = match from {
            OrderCursor::Open { before } => (before, u64::MAX),
            OrderCursor::Finished { before } => (0, before),
        };
        let open_end = if is_among(true) { open_end } else { 0 };
        let finished_end = if is_among(false) { finished_end } else { 0 };
        let open = account.open_orders_before(open_end).rev();
        let open = open.map(|(before, slot)| (OrderCursor::Open { before }, slot));
        let finished = account.orders_before(finished_end).rev();
        let finished = finished.map(|(before, slot)| (OrderCursor::Finished { before }, slot));
        let mut rows = open.chain(finished).peekable();
        let mut page = OrderPage { orders: Vec::new(), next: None };
        for _ in 0..ORDERS_PER_READ_MAX {
            if page.orders.len() == limit {
                break;
            }
            let Some((cursor, slot)) = rows.next() else { break };
            // Set even for an order that does not match, so that a filtered read always makes
            // progress.
            page.next = rows.peek().map(|_| cursor);
            if self.order_matches(slot, filter) {
                page.orders.push(self.listed(&self.orders[slot]));
            }
        }
        Observed { value: Some(page), lsn: self.lsn_at(account.position_in_log) }
    }

    pub(in crate::engine) fn listed(&self, order: &Order) -> ListedOrder {
        let token_id = self.used_market(order.market()).token(order.outcome()).clone();
        ListedOrder { receipt: self.receipt(order), token_id }
    }

    fn order_matches(&self, slot: u32, filter: &OrderFilter) -> bool {
        let order = &self.orders[slot];
        let market = self.used_market(order.market());
        filter.fits(
            (&market.condition_id, market.token(order.outcome()), order.side()),
            order.placed_at(),
            self.orders.order_state(slot).as_ref(),
        )
    }

    /// Returns up to `limit` of an account's settlements that match the filter, newest position
    /// first, starting below the position number `before`. May return fewer even if more
    /// settlements match.
    pub fn observe_settlements(
        &self,
        account: AccountId,
        filter: &SettlementFilter,
        before: Option<u64>,
        limit: usize,
    ) -> Observed<Option<SettlementPage>> {
        let Some(account) = self.account(account) else {
            return Observed::nothing(Lsn::START);
        };
        let limit = limit.min(ROWS_PER_READ_MAX);
        // A position's number is its index plus one.
        let end = before
            .map_or(u32::MAX, |number| u32::try_from(number.saturating_sub(1)).unwrap_or(u32::MAX));
        let mut newest_first = account.settlements().range(..end).rev().peekable();
        let mut page = SettlementPage { rows: Vec::new(), next: None };
        let mut examined_count = 0;
        while page.rows.len() < limit && examined_count < SETTLEMENTS_PER_READ_MAX {
            let Some((&place, settlement)) = newest_first.next() else {
                break;
            };
            examined_count += 1;
            let number = u64::from(place) + 1;
            page.next = newest_first.peek().map(|_| number);
            let position = &account.positions()[place as usize];
            let market = self.used_market(position.market);
            if filter.matches(&market.condition_id, settlement.at) {
                page.rows.push(SettlementRow {
                    number,
                    market_id: market.condition_id.clone(),
                    outcome: market.label(position.outcome),
                    settlement: *settlement,
                });
            }
        }
        Observed { value: Some(page), lsn: self.lsn_at(account.position_in_log) }
    }

    /// Returns up to `limit` comments of an order after the first `offset`, oldest first, but never
    /// more than [`ROWS_PER_READ_MAX`]; `None` if there is no such order.
    pub fn observe_comments(
        &self,
        order: OrderId,
        offset: usize,
        limit: usize,
    ) -> Observed<Option<Vec<Comment>>> {
        let lsn = self.comments_lsn(order);
        if self.order(order).is_none() {
            return Observed::nothing(lsn);
        }
        let ids = self.comments_of.get(&order).map_or(&[][..], |comments| &comments.ids);
        let page = ids.iter().skip(offset).take(limit.min(ROWS_PER_READ_MAX));
        let comments = page.filter_map(|&id| self.comment(id)).cloned().collect();
        Observed { value: Some(comments), lsn }
    }

    /// Returns the SHA-256 hash of the raw key with this id.
    pub fn observe_key_hash(&self, key: KeyId) -> Observed<Option<[u8; 32]>> {
        match self.keys.slot(key).map(|slot| &self.keys[slot]) {
            Some(key) => Observed { value: Some(key.hash), lsn: self.account_lsn(key.account()) },
            None => Observed::nothing(self.absence_lsn(key.shard(), key.counter(), self.keys_ever)),
        }
    }

    /// Returns a key if it belongs to this account.
    pub fn observe_key(&self, account: AccountId, key: KeyId) -> Observed<Option<Key>> {
        let own = self.account(account).and_then(|account| {
            self.keys_of(account).find(|row| row.id == key).map(|row| self.unpacked(row))
        });
        // A record that forgets a key also changes the account, so this LSN covers the absence of
        // a key too.
        Observed { value: own, lsn: self.account_lsn(account) }
    }

    /// Returns the newest [`ROWS_PER_READ_MAX`] keys of an account, oldest first.
    pub fn observe_keys(&self, account: AccountId) -> Observed<Option<Vec<Key>>> {
        let Some(account) = self.account(account) else {
            return Observed::nothing(Lsn::START);
        };
        let newest = self.keys_of(account).take(ROWS_PER_READ_MAX);
        let mut keys: Vec<Key> = newest.map(|key| self.unpacked(key)).collect();
        keys.reverse();
        Observed { value: Some(keys), lsn: self.lsn_at(account.position_in_log) }
    }
}

impl OrderCursor {
    /// The cursor at the start of a list.
    pub const START: Self = Self::Open { before: u64::MAX };
}

impl OrderFilter {
    /// Whether the filter selects the order.
    pub fn matches(&self, listed: &ListedOrder) -> bool {
        let ListedOrder { receipt, token_id } = listed;
        let on = (&*receipt.market_id, &**token_id, receipt.side);
        self.fits(on, receipt.fill.at, receipt.order_state.as_deref())
    }

    fn fits(
        &self,
        (in_market, of_token, on_side): (&str, &str, Side),
        placed_at: Timestamp,
        order_state: Option<&OrderState>,
    ) -> bool {
        let Self { market_id, token_id, side, status, from, to } = self;
        market_id.as_deref().is_none_or(|id| condition::is_same(id, in_market))
            && token_id.as_deref().is_none_or(|id| id == of_token)
            && side.is_none_or(|side| side == on_side)
            && from.is_none_or(|from| from <= placed_at)
            && to.is_none_or(|to| placed_at <= to)
            && status.is_none_or(|status| {
                status == order_state.map_or(OrderStatus::Filled, OrderState::status)
            })
    }
}

impl SettlementFilter {
    fn matches(&self, market_id: &str, at: Timestamp) -> bool {
        self.market_id.as_ref().is_none_or(|id| condition::is_same(id, market_id))
            && self.from.is_none_or(|from| from <= at)
            && self.to.is_none_or(|to| at <= to)
    }
}
