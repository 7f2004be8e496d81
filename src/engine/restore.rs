//! From rows back to a state.
//!
//! The rows come from a disk, so nothing about them is believed: each is checked against those in
//! front of it, the sum of all against the head and its hash, and what does not fit is an error
//! that names the row. A restored state rests on no place: all of it is on disk.

use std::sync::Arc;

use super::account::Account;
use super::comment::{COMMENTS_PER_ORDER_MAX, Comment};
use super::key::Key;
use super::order::{Order, OrderRow};
use super::payout::{Decision, Payouts, Settlement};
use super::position::Position;
use super::rows::{AccountRow, StateHead};
use super::state::State;
use super::state_hash::StateHash;
use super::used_market::UsedMarket;
use crate::ids::{AccountId, CommentId, KeyId, MarketIndex, OrderId, Timestamp};
use crate::money::{Shares, Usd};

/// Why rows are not a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RestoreError {
    /// A row does not fit to those in front of it.
    #[error("{kind} {id} {flaw}")]
    Row {
        /// What kind of row.
        kind: &'static str,
        /// Its id.
        id: u64,
        /// What is wrong with it.
        flaw: &'static str,
    },
    /// There are other rows than the head says.
    #[error("{found} of {expected} {kind}")]
    Count {
        /// Of which kind.
        kind: &'static str,
        /// How many the head says.
        expected: u64,
        /// How many came.
        found: u64,
    },
    /// The rows fit together, but they are not those that the hash was made of.
    #[error("the rows hash to {found:016x} and the head says {expected:016x}")]
    Hash {
        /// What the head says.
        expected: u64,
        /// What the rows hash to.
        found: u64,
    },
}

/// Puts a state together: first markets, then accounts, then keys, orders, comments, settlements
/// and decisions. After an error it is of no use any more.
#[derive(Debug)]
pub struct Restorer {
    head: StateHead,
    state: State,
    /// The oldest order that each account keeps, by the account's slot.
    oldest_orders: Vec<Option<OrderId>>,
    newest_key: Option<KeyId>,
    newest_comment: Option<CommentId>,
}

impl Restorer {
    /// Begins a state with this head.
    pub fn new(head: StateHead) -> Self {
        let mut state = State::new(head.shard);
        state.sequence = head.sequence;
        state.keys_ever = head.keys_ever;
        state.orders_ever = head.orders_ever;
        state.comments_ever = head.comments_ever;
        let oldest_orders = Vec::new();
        Self { head, state, oldest_orders, newest_key: None, newest_comment: None }
    }

    /// The next market, by index.
    pub fn market(&mut self, market: UsedMarket) -> Result<(), RestoreError> {
        let id = self.state.markets.len() as u64;
        let inserted = self.state.insert_market(market, 0);
        inserted.ok_or(RestoreError::Row { kind: "market", id, flaw: "came before" })
    }

    /// A market that is being settled or is settled.
    pub fn settled(
        &mut self,
        market: MarketIndex,
        payouts: &Payouts,
        is_paid: bool,
    ) -> Result<(), RestoreError> {
        let error = |flaw| RestoreError::Row { kind: "settled market", id: market.0.into(), flaw };
        if self.state.settled.contains_key(&market) {
            return Err(error("came before"));
        }
        let settled = self.state.settle_market(market, payouts, is_paid, 0);
        settled.map_err(|_| error("is none of the markets, or pays what it cannot"))
    }

    /// What an account was paid for a position, which is in this place among all that it ever had.
    pub fn settlement(
        &mut self,
        account: AccountId,
        position: u32,
        settlement: Settlement,
    ) -> Result<(), RestoreError> {
        let error =
            |flaw| RestoreError::Row { kind: "settlement of account", id: account.get(), flaw };
        let state = &mut self.state;
        let slot = state.account_slot(account).ok_or_else(|| error("is of no account"))?;
        let account = &mut state.accounts[slot];
        let closed = account.positions().get(position as usize);
        if closed
            .is_none_or(|closed| closed.is_open() || !state.settled.contains_key(&closed.market))
        {
            return Err(error("is of no position that was settled"));
        }
        if account.settlement(position).is_some() {
            return Err(error("came before"));
        }
        if account.add_settlement(position, settlement).is_some() {
            return Err(error("is one more than its account keeps"));
        }
        state.hash += settlement.term(account.id, position);
        Ok(())
    }

    /// How a market was resolved.
    pub fn decision(
        &mut self,
        decision: &Arc<Decision>,
        at: Timestamp,
    ) -> Result<(), RestoreError> {
        let id = self.state.decisions.len() as u64;
        let added = self.state.add_decision(decision, at, 0);
        added.map_err(|flaw| RestoreError::Row { kind: "decision", id, flaw })
    }

    /// The next account, by id. All of them come before the first key and the first order.
    pub fn account(&mut self, row: AccountRow<'_>) -> Result<(), RestoreError> {
        let error = |flaw| RestoreError::Row { kind: "account", id: row.id.get(), flaw };
        let state = &mut self.state;
        if row.id.shard() != state.shard || row.id.counter() != state.accounts.len() as u64 + 1 {
            return Err(error("is not the next one of the shard"));
        }
        if state.account_of(row.identity.digest).is_some() {
            return Err(error("has the identity of another one"));
        }
        let cash = row.ledger.checked_cash().ok_or_else(|| error("has sums out of range"))?;
        if cash < Usd::ZERO {
            return Err(error("has a debt"));
        }
        if row.oldest_order.is_some() != (row.order_count_ever > 0) {
            return Err(error("counts other orders than it keeps"));
        }
        let issuer = state.issuer(row.identity.issuer);
        let subject = row.identity.subject.into();
        let digest = *row.identity.digest;
        let granted = row.ledger.granted;
        let mut account = Account::opened(row.id, digest, issuer, subject, granted, row.opened_at);
        if row.order_count_ever > 0 || row.ledger.cash() != granted || !row.positions.is_empty() {
            account.set_ledger(row.ledger);
            account.set_order_count_ever(row.order_count_ever);
        }
        for position in row.positions {
            check_position(state, position).map_err(error)?;
            account
                .add_position(*position)
                .ok_or_else(|| error("has two positions in one outcome"))?;
        }
        state.insert_account(account);
        self.oldest_orders.push(row.oldest_order);
        Ok(())
    }

    /// The next key, by id.
    pub fn key(&mut self, key: Key) -> Result<(), RestoreError> {
        let id = key.id;
        let error = |flaw| RestoreError::Row { kind: "key", id: id.get(), flaw };
        if key.id.shard() != self.state.shard || key.id.counter() > self.state.keys_ever {
            return Err(error("is none that the shard has given"));
        }
        if self.newest_key.is_some_and(|newest| newest >= key.id) {
            return Err(error("comes behind a newer one"));
        }
        self.newest_key = Some(key.id);
        let inserted = self.state.insert_key(key);
        inserted.ok_or_else(|| error("is of no account, or was made with a key of none"))
    }

    /// An order, behind those of its account that finished before it. One that finished before the
    /// oldest that its account keeps is passed over: it was forgotten.
    pub fn order(&mut self, row: OrderRow) -> Result<(), RestoreError> {
        let OrderRow { placement, fill, .. } = &row;
        let id = placement.order;
        let error = |flaw| RestoreError::Row { kind: "order", id: id.get(), flaw };
        let state = &mut self.state;
        if id.shard() != state.shard || id.counter() > state.orders_ever {
            return Err(error("is none that the shard has given"));
        }
        let account =
            state.account_slot(placement.account).ok_or_else(|| error("is of no account"))?;
        let oldest = self.oldest_orders[account as usize]
            .ok_or_else(|| error("is of an account that has none"))?;
        let kept_count = state.accounts[account].kept_order_count();
        if kept_count == 0 && id != oldest {
            return Ok(());
        }
        if kept_count as u64 == state.accounts[account].order_count_ever() {
            return Err(error("is one more than its account has finished"));
        }
        if state.order(id).is_some() {
            return Err(error("came before"));
        }
        let market = state.markets.get(placement.market.0 as usize);
        if market.is_none_or(|market| placement.outcome.index() >= market.outcomes.len()) {
            return Err(error("is in no market"));
        }
        if fill.quantity <= Shares::ZERO {
            return Err(error("is for no shares"));
        }
        let order = Order::pack(row, 0).ok_or_else(|| error("has numbers out of range"))?;
        state.insert_order(order, account).ok_or_else(|| error("has a name that is used"))
    }

    /// The next comment, by id, behind the order that it is on.
    pub fn comment(&mut self, comment: Comment) -> Result<(), RestoreError> {
        let id = comment.id;
        let error = |flaw| RestoreError::Row { kind: "comment", id: id.get(), flaw };
        let state = &mut self.state;
        if id.shard() != state.shard || id.counter() > state.comments_ever {
            return Err(error("is none that the shard has given"));
        }
        if self.newest_comment.is_some_and(|newest| newest >= id) {
            return Err(error("comes behind a newer one"));
        }
        if state.order(comment.order).is_none() {
            return Err(error("is on no order"));
        }
        let comments = state.comments_of.get(&comment.order);
        if comments.is_some_and(|comments| comments.ids.len() >= COMMENTS_PER_ORDER_MAX) {
            return Err(error("is one more than its order may have"));
        }
        self.newest_comment = Some(id);
        state.insert_comment(comment, 0);
        Ok(())
    }

    /// The whole state, if the rows are what the head says.
    pub fn finish(self) -> Result<State, RestoreError> {
        let Self { head, state, oldest_orders, .. } = self;
        let found = state.accounts.len() as u64;
        if found != head.accounts_ever {
            let expected = head.accounts_ever;
            return Err(RestoreError::Count { kind: "accounts", expected, found });
        }
        for (account, oldest) in state.accounts.iter().map(|(_, row)| row).zip(oldest_orders) {
            if oldest.is_some() && account.kept_order_count() == 0 {
                let flaw = "lacks the oldest order that it keeps";
                return Err(RestoreError::Row { kind: "account", id: account.id.get(), flaw });
            }
        }
        if state.hash != head.hash {
            let [expected, found] = [head.hash, state.hash].map(StateHash::get);
            return Err(RestoreError::Hash { expected, found });
        }
        Ok(state)
    }
}

fn check_position(state: &State, position: &Position) -> Result<(), &'static str> {
    let market = state.markets.get(position.market.0 as usize);
    if market.is_none_or(|market| position.outcome.index() >= market.outcomes.len()) {
        return Err("has a position in no market");
    }
    if position.shares < Shares::ZERO || position.cost < Usd::ZERO {
        return Err("has a position below zero");
    }
    let settled = state.settled.get(&position.market);
    if position.is_open() && settled.is_some_and(|settled| settled.is_paid) {
        return Err("has a position in a market that is paid");
    }
    Ok(())
}
