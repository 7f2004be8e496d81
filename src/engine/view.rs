//! Reads of a shard, each of bounded work, and the place that each rests on.

use std::sync::Arc;

use super::account::{Account, Ledger};
use super::comment::Comment;
use super::idempotency::NameHash;
use super::key::Key;
use super::order::OrderReceipt;
use super::payout::Settlement;
use super::position::Position;
use super::state::State;
use crate::ids::{AccountId, KeyId, OrderId, OutcomeIndex, Place, Timestamp};
use crate::market::book::Side;

/// One read of a shard returns at most this many rows; longer lists take several.
pub const ROWS_PER_READ_MAX: usize = 200;

/// One read looks at no more orders than this for those that a filter lets through.
const ORDERS_PER_READ_MAX: usize = 2_000;

/// The same of settlements.
const SETTLEMENTS_PER_READ_MAX: usize = 2_000;

/// Something that was read, and the newest record that it rests on. Nobody may be told before that
/// record is durable.
#[derive(Clone, PartialEq, Debug)]
pub struct Observed<T> {
    /// What was read.
    pub value: T,
    /// What it rests on.
    pub place: Place,
}

impl<T> Observed<Option<T>> {
    /// Nothing was found, which rests on what took it away.
    const fn nothing(place: Place) -> Self {
        Self { value: None, place }
    }
}

/// A position and the market that it is in, by the names that the venue uses.
#[derive(Clone, PartialEq, Debug)]
pub struct PositionRow {
    /// Its number within the account, from 1, in the order of opening.
    pub number: u64,
    /// The market's condition id.
    pub market_id: Arc<str>,
    /// The outcome's label.
    pub outcome: Arc<str>,
    /// Which outcome of the market.
    pub outcome_index: OutcomeIndex,
    /// The holding.
    pub position: Position,
}

/// An account's money and a page of its positions, of one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct AccountPage {
    /// The account.
    pub account: AccountId,
    /// Its money.
    pub ledger: Ledger,
    /// At most [`ROWS_PER_READ_MAX`] positions.
    pub positions: Vec<PositionRow>,
    /// Whether there are more behind the page.
    pub has_more: bool,
}

/// Which orders of an account are wanted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OrderFilter {
    /// Only of the market with this condition id.
    pub market_id: Option<Box<str>>,
    /// Only of this side.
    pub side: Option<Side>,
}

/// A page of an account's orders, newest first.
#[derive(Clone, PartialEq, Debug)]
pub struct OrderPage {
    /// Those that the filter lets through.
    pub orders: Vec<OrderReceipt>,
    /// How many orders of the account were looked at, from the newest on: where to go on.
    pub looked_at: usize,
    /// Whether there are older ones.
    pub has_more: bool,
}

/// Which settlements of an account are wanted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SettlementFilter {
    /// Only of the market with this condition id.
    pub market_id: Option<Box<str>>,
    /// Only of this time and later.
    pub from: Option<Timestamp>,
    /// Only of this time and before.
    pub to: Option<Timestamp>,
}

/// A settlement and the position that it paid, by the names that the venue uses.
#[derive(Clone, PartialEq, Debug)]
pub struct SettlementRow {
    /// The position's number within the account, from 1.
    pub number: u64,
    /// The market's condition id.
    pub market_id: Arc<str>,
    /// The outcome's label.
    pub outcome: Arc<str>,
    /// What was paid.
    pub settlement: Settlement,
}

/// A page of an account's settlements, the newest position first.
#[derive(Clone, PartialEq, Debug)]
pub struct SettlementPage {
    /// Those that the filter lets through.
    pub rows: Vec<SettlementRow>,
    /// The last position that was looked at, if there are older settlements: where to go on.
    pub next: Option<u64>,
}

impl State {
    /// The account of an identity.
    pub fn observe_identity(&self, digest: &[u8; 32]) -> Observed<Option<AccountId>> {
        let account = self.account_of(digest).map(Account::id);
        // Accounts are never taken away: that there is none rests on nothing.
        let place = account.map_or(Place::START, |account| self.account_place(account));
        Observed { value: account, place }
    }

    /// Money and positions, from the `offset`-th position on.
    pub fn observe_account(
        &self,
        account: AccountId,
        offset: usize,
    ) -> Observed<Option<AccountPage>> {
        let Some(account) = self.account(account) else {
            return Observed::nothing(Place::START);
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
            }
        });
        let value = AccountPage {
            account: account.id,
            ledger: account.ledger(),
            positions: positions.collect(),
            has_more: account.positions().len() > offset.saturating_add(ROWS_PER_READ_MAX),
        };
        Observed { value: Some(value), place: self.place_at(account.position_in_log) }
    }

    /// An order of this account.
    pub fn observe_order(
        &self,
        account: AccountId,
        order: OrderId,
    ) -> Observed<Option<OrderReceipt>> {
        let place = self.order_place(order);
        let own = self.order(order).filter(|order| order.account() == account);
        Observed { value: own.map(|order| self.receipt(order)), place }
    }

    /// The order that this account calls by a name.
    pub fn observe_named(
        &self,
        account: AccountId,
        name: NameHash,
    ) -> Observed<Option<OrderReceipt>> {
        match self.order_named(account, name) {
            Some(order) => self.observe_order(account, order.id()),
            None => Observed::nothing(self.place_at(self.last_removal)),
        }
    }

    /// Orders of an account, newest first, from the `offset`-th newest on; at most `limit`.
    pub fn observe_orders(
        &self,
        account: AccountId,
        filter: &OrderFilter,
        offset: usize,
        limit: usize,
    ) -> Observed<Option<OrderPage>> {
        let Some(account) = self.account(account) else {
            return Observed::nothing(Place::START);
        };
        let limit = limit.min(ROWS_PER_READ_MAX);
        let mut orders = Vec::new();
        let total = account.kept_order_count();
        let mut looked_at = offset.min(total);
        let newest_first = account.orders().rev().skip(offset).take(ORDERS_PER_READ_MAX);
        for order in newest_first.map(|slot| &self.orders[slot]) {
            if orders.len() == limit {
                break;
            }
            looked_at += 1;
            let market = self.used_market(order.market());
            let is_market = filter.market_id.as_ref().is_none_or(|id| **id == *market.condition_id);
            if is_market && filter.side.is_none_or(|side| side == order.side()) {
                orders.push(self.receipt(order));
            }
        }
        let page = OrderPage { orders, looked_at, has_more: looked_at < total };
        Observed { value: Some(page), place: self.place_at(account.position_in_log) }
    }

    /// Settlements of an account, the newest position first, from the one before a position on; at
    /// most `limit`.
    pub fn observe_settlements(
        &self,
        account: AccountId,
        filter: &SettlementFilter,
        before: Option<u64>,
        limit: usize,
    ) -> Observed<Option<SettlementPage>> {
        let Some(account) = self.account(account) else {
            return Observed::nothing(Place::START);
        };
        let limit = limit.min(ROWS_PER_READ_MAX);
        // A position's number is its place and one more.
        let end = before
            .map_or(u32::MAX, |number| u32::try_from(number.saturating_sub(1)).unwrap_or(u32::MAX));
        let mut newest_first = account.settlements().range(..end).rev().peekable();
        let mut page = SettlementPage { rows: Vec::new(), next: None };
        let mut looked_at = 0;
        while page.rows.len() < limit && looked_at < SETTLEMENTS_PER_READ_MAX {
            let Some((&place, settlement)) = newest_first.next() else {
                break;
            };
            looked_at += 1;
            let number = u64::from(place) + 1;
            page.next = newest_first.peek().map(|_| number);
            let position = &account.positions()[place as usize];
            let market = self.used_market(position.market);
            if filter.lets_through(&market.condition_id, settlement.at) {
                page.rows.push(SettlementRow {
                    number,
                    market_id: market.condition_id.clone(),
                    outcome: market.label(position.outcome),
                    settlement: *settlement,
                });
            }
        }
        Observed { value: Some(page), place: self.place_at(account.position_in_log) }
    }

    /// Comments of an order, oldest first; `None` when there is no such order. At most
    /// [`ROWS_PER_READ_MAX`].
    pub fn observe_comments(
        &self,
        order: OrderId,
        offset: usize,
        limit: usize,
    ) -> Observed<Option<Vec<Comment>>> {
        let place = self.comments_place(order);
        if self.order(order).is_none() {
            return Observed::nothing(place);
        }
        let ids = self.comments_of.get(&order).map_or(&[][..], |comments| &comments.ids);
        let page = ids.iter().skip(offset).take(limit.min(ROWS_PER_READ_MAX));
        let comments = page.filter_map(|&id| self.comment(id)).cloned().collect();
        Observed { value: Some(comments), place }
    }

    /// The hash of a key.
    pub fn observe_key_hash(&self, key: KeyId) -> Observed<Option<[u8; 32]>> {
        match self.keys.slot(key).map(|slot| &self.keys[slot]) {
            Some(key) => {
                Observed { value: Some(key.hash), place: self.account_place(key.account()) }
            }
            None => {
                Observed::nothing(self.absence_place(key.shard(), key.counter(), self.keys_ever))
            }
        }
    }

    /// A key of this account.
    pub fn observe_key(&self, account: AccountId, key: KeyId) -> Observed<Option<Key>> {
        let own = self.account(account).and_then(|account| {
            self.keys_of(account).find(|row| row.id == key).map(|row| self.unpacked(row))
        });
        // What it had and has no more was forgotten by a record that changed it.
        Observed { value: own, place: self.account_place(account) }
    }

    /// The newest keys of an account, oldest of them first; at most [`ROWS_PER_READ_MAX`].
    pub fn observe_keys(&self, account: AccountId) -> Observed<Option<Vec<Key>>> {
        let Some(account) = self.account(account) else {
            return Observed::nothing(Place::START);
        };
        let newest = self.keys_of(account).take(ROWS_PER_READ_MAX);
        let mut keys: Vec<Key> = newest.map(|key| self.unpacked(key)).collect();
        keys.reverse();
        Observed { value: Some(keys), place: self.place_at(account.position_in_log) }
    }
}

impl SettlementFilter {
    fn lets_through(&self, market_id: &str, at: Timestamp) -> bool {
        self.market_id.as_ref().is_none_or(|id| **id == *market_id)
            && self.from.is_none_or(|from| from <= at)
            && self.to.is_none_or(|to| at <= to)
    }
}
