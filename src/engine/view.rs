//! Reads of a shard, each of bounded work, and the place that each rests on.

use std::sync::Arc;

use super::State;
use super::account::Ledger;
use super::comment::Comment;
use super::idempotency::NameHash;
use super::key::Key;
use super::order::OrderReceipt;
use super::position::Position;
use crate::ids::{AccountId, KeyId, OrderId, OutcomeIndex, Place};
use crate::market::book::Side;

/// One visit to a shard reads at most this many rows; longer lists take several.
pub const ROWS_PER_VISIT_MAX: usize = 200;

/// One visit looks at no more orders than this for those that a filter lets through.
const ORDERS_PER_VISIT_MAX: usize = 2_000;

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
    /// Nothing was found: that rests on no record, since what is not there was never taken away.
    const NOTHING: Self = Self { value: None, place: Place::START };
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
    /// At most [`ROWS_PER_VISIT_MAX`] positions.
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

impl State {
    /// The account of an identity.
    pub fn observe_identity(&self, digest: &[u8; 32]) -> Observed<Option<AccountId>> {
        self.account_of(digest).map_or(Observed::<Option<AccountId>>::NOTHING, |account| Observed {
            value: Some(account.id),
            place: account.last_place,
        })
    }

    /// Money and positions, from the `offset`-th position on.
    pub fn observe_account(
        &self,
        account: AccountId,
        offset: usize,
    ) -> Observed<Option<AccountPage>> {
        let Some(account) = self.account(account) else {
            return Observed::<Option<AccountPage>>::NOTHING;
        };
        let page = account.positions.iter().enumerate().skip(offset).take(ROWS_PER_VISIT_MAX);
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
            ledger: account.ledger,
            positions: positions.collect(),
            has_more: account.positions.len() > offset.saturating_add(ROWS_PER_VISIT_MAX),
        };
        Observed { value: Some(value), place: account.last_place }
    }

    /// An order of this account.
    pub fn observe_order(
        &self,
        account: AccountId,
        order: OrderId,
    ) -> Observed<Option<OrderReceipt>> {
        match self.order(order) {
            Some(order) if order.account == account => {
                Observed { value: Some(self.receipt(order)), place: order.last_place }
            }
            _ => Observed::<Option<OrderReceipt>>::NOTHING,
        }
    }

    /// The order that this account calls by a name.
    pub fn observe_named(
        &self,
        account: AccountId,
        name: NameHash,
    ) -> Observed<Option<OrderReceipt>> {
        match self.order_named(account, name) {
            Some(order) => self.observe_order(account, order.id),
            None => Observed::<Option<OrderReceipt>>::NOTHING,
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
            return Observed::<Option<OrderPage>>::NOTHING;
        };
        let limit = limit.min(ROWS_PER_VISIT_MAX);
        let mut orders = Vec::new();
        let mut looked_at = offset.min(account.orders.len());
        let newest_first = account.orders.iter().rev().skip(offset).take(ORDERS_PER_VISIT_MAX);
        for order in newest_first.filter_map(|&id| self.order(id)) {
            if orders.len() == limit {
                break;
            }
            looked_at += 1;
            let market = self.used_market(order.market);
            let is_market = filter.market_id.as_ref().is_none_or(|id| **id == *market.condition_id);
            if is_market && filter.side.is_none_or(|side| side == order.side) {
                orders.push(self.receipt(order));
            }
        }
        let total = account.orders.len();
        let page = OrderPage { orders, looked_at, has_more: looked_at < total };
        Observed { value: Some(page), place: account.last_place }
    }

    /// Comments of an order, oldest first; `None` when there is no such order. At most
    /// [`ROWS_PER_VISIT_MAX`].
    pub fn observe_comments(
        &self,
        order: OrderId,
        offset: usize,
        limit: usize,
    ) -> Observed<Option<Vec<Comment>>> {
        let Some(order) = self.order(order) else {
            return Observed::<Option<Vec<Comment>>>::NOTHING;
        };
        let page = order.comments.iter().skip(offset).take(limit.min(ROWS_PER_VISIT_MAX));
        let comments = page.filter_map(|&id| self.comment(id)).cloned().collect();
        Observed { value: Some(comments), place: order.last_place }
    }

    /// The hash of a key.
    pub fn observe_key_hash(&self, key: KeyId) -> Observed<Option<[u8; 32]>> {
        let key = self.key(key);
        let place = key.and_then(|key| self.account(key.account)).map(|account| account.last_place);
        Observed { value: key.map(|key| key.grant.hash), place: place.unwrap_or(Place::START) }
    }

    /// The newest keys of an account, oldest of them first; at most [`ROWS_PER_VISIT_MAX`].
    pub fn observe_keys(&self, account: AccountId) -> Observed<Option<Vec<Key>>> {
        let Some(account) = self.account(account) else {
            return Observed::<Option<Vec<Key>>>::NOTHING;
        };
        let skipped = account.keys.len().saturating_sub(ROWS_PER_VISIT_MAX);
        let keys = account.keys[skipped..].iter().filter_map(|&id| self.key(id)).cloned();
        Observed { value: Some(keys.collect()), place: account.last_place }
    }
}
