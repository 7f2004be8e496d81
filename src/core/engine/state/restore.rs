//! Restores a state from rows.
//!
//! The rows come from disk and are not trusted. Each row is checked against the rows before it, and
//! all of them together against the head's counts and hash. An error names the row that does not
//! fit. A restored state depends on no LSN, since all of it is durable.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::engine::account::Account;
use crate::engine::account::extension::{NotedLevel, UsedLevel};
use crate::engine::account::ledger::Ledger;
use crate::engine::account::position::Position;
use crate::engine::admin::standing::{DEPOSITS_KEPT_MAX, Standing};
use crate::engine::comment::{COMMENTS_PER_ORDER_MAX, Comment};
use crate::engine::fills::log::{FillLog, LoggedFill};
use crate::engine::fills::undone::UndoneRow;
use crate::engine::key::Key;
use crate::engine::market::payout::{Decision, Payouts, Settlement};
use crate::engine::market::used::UsedMarket;
use crate::engine::order::heartbeats::INTERVAL_MS;
use crate::engine::order::order_state::OrderState;
use crate::engine::order::receipt::{Order, OrderRow};
use crate::engine::order::terms::Reserve;
use crate::engine::state::State;
use crate::engine::state::hash::StateHash;
use crate::engine::state::rows::{AccountRow, StateHead, UsedRow};
use crate::faults::{self, Fault};
use crate::ids::{AccountId, CommentId, KeyId, MarketIndex, OrderId, Timestamp};
use crate::money::{Shares, Usd};

/// The reason why rows cannot be restored to a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RestoreError {
    /// A row contradicts the rows before it.
    #[error("{kind} {id} {flaw}")]
    Row {
        /// The kind of row.
        kind: &'static str,
        /// The row's id.
        id: u64,
        /// The flaw, phrased to follow the kind and the id, such as "came before".
        flaw: &'static str,
    },
    /// The number of rows of a kind differs from the head's count.
    #[error("{found} of {expected} {kind}")]
    Count {
        /// The kind of row.
        kind: &'static str,
        /// The count in the head.
        expected: u64,
        /// The number of rows.
        found: u64,
    },
    /// The rows are consistent, but their hash differs from the head's.
    #[error("the rows hash to {found:016x} and the head says {expected:016x}")]
    Hash {
        /// The hash in the head.
        expected: u64,
        /// The hash of the rows.
        found: u64,
    },
}

/// Builds a state from rows, which must come in this order: markets, settled markets, accounts,
/// keys, finished orders, open orders, comments, settlements, decisions, fill logs, used levels and
/// undone fills. A restorer must not be used after an error.
#[derive(Debug)]
pub struct Restorer {
    head: StateHead,
    state: State,
    /// The oldest order that each account keeps, by account slot.
    oldest_orders: Vec<Option<OrderId>>,
    newest_key: Option<KeyId>,
    newest_comment: Option<CommentId>,
}

impl Restorer {
    /// Starts restoring the state with this head.
    pub fn new(head: StateHead) -> Self {
        let mut state = State::new(head.shard);
        state.sequence = head.sequence;
        state.keys_ever = head.keys_ever;
        state.orders_ever = head.orders_ever;
        state.comments_ever = head.comments_ever;
        let oldest_orders = Vec::new();
        Self { head, state, oldest_orders, newest_key: None, newest_comment: None }
    }

    /// Adds the next market, in index order.
    pub fn market(&mut self, market: UsedMarket) -> Result<(), RestoreError> {
        let id = self.state.markets.len() as u64;
        let inserted = self.state.insert_market(market, 0);
        inserted.ok_or(RestoreError::Row { kind: "market", id, flaw: "came before" })
    }

    /// Adds a market that is being settled or has been settled.
    pub fn settled(
        &mut self,
        market: MarketIndex,
        payouts: &Payouts,
        is_paid: bool,
    ) -> Result<(), RestoreError> {
        let error = |flaw| RestoreError::Row { kind: "settled market", id: market.0.into(), flaw };
        if self.state.is_settled(market) {
            return Err(error("came before"));
        }
        let settled = self.state.settle_market(market, payouts, is_paid, 0);
        settled.map_err(|_| error("is none of the markets, or pays what it cannot"))
    }

    /// Adds the settlement of the account's position with this index.
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
        let closed = state.accounts[slot].positions().get(position as usize);
        if closed.is_none_or(|closed| closed.is_open() || !state.is_settled(closed.market)) {
            return Err(error("is of no position that was settled"));
        }
        let account = &mut state.accounts[slot];
        if account.settlement(position).is_some() {
            return Err(error("came before"));
        }
        if account.add_settlement(position, settlement).is_some() {
            return Err(error("is one more than its account keeps"));
        }
        state.hash += settlement.term(account.id, position);
        Ok(())
    }

    /// Adds a settlement decision.
    pub fn decision(
        &mut self,
        decision: &Arc<Decision>,
        at: Timestamp,
    ) -> Result<(), RestoreError> {
        let id = self.state.decisions.len() as u64;
        let added = self.state.add_decision(decision, at, 0);
        added.map_err(|flaw| RestoreError::Row { kind: "decision", id, flaw })
    }

    /// Adds the next account, in id order. All accounts must come before the first key and order.
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
        // The converse is not an error: an account that keeps a single order has no finished order
        // left while its next order is open.
        if row.oldest_order.is_some() && row.order_count_ever == 0 {
            return Err(error("counts other orders than it keeps"));
        }
        let issuer = state.issuer(row.identity.issuer);
        let subject = row.identity.subject.into();
        let digest = *row.identity.digest;
        let granted = row.ledger.granted;
        let mut account = Account::opened(row.id, digest, issuer, subject, granted, row.opened_at);
        if row.order_count_ever > 0 || row.ledger.cash() != granted || !row.positions.is_empty() {
            // The open orders will add their reserves.
            account.set_ledger(Ledger { reserved: Usd::ZERO, ..row.ledger });
            account.set_order_count_ever(row.order_count_ever);
        }
        account.set_fill_surplus(row.fill_surplus);
        if let Some(interval_ms) = row.heartbeat_ms {
            if !INTERVAL_MS.contains(&interval_ms) {
                return Err(error("has a heartbeat out of range"));
            }
            account.set_heartbeat_ms(Some(interval_ms));
        }
        if let Some(resets) = row.resets {
            if resets.count == 0 || resets.balance < Usd::ZERO {
                return Err(error("has resets out of range"));
            }
            account.set_resets(resets);
        }
        if let Some(standing) = row.standing {
            if standing.is_empty() {
                return Err(error("has a standing without a reason"));
            }
            let erased = Standing { erased_at: standing.erased_at, ..Standing::default() };
            if standing.erased_at.is_some() && *standing != erased {
                return Err(error("is erased, and has something left"));
            }
            if standing.deposited < Usd::ZERO || standing.deposits.len() > DEPOSITS_KEPT_MAX {
                return Err(error("has deposits out of range"));
            }
            account.change_standing(|kept| *kept = standing.clone());
        }
        for position in row.positions {
            if position.closed_by_reset && (position.is_open() || row.resets.is_none()) {
                return Err(error("has a position closed by a reset that was not"));
            }
            check_position(state, position).map_err(error)?;
            account
                .add_position(*position)
                .ok_or_else(|| error("has two positions in one outcome"))?;
        }
        state.insert_account(account);
        self.oldest_orders.push(row.oldest_order);
        Ok(())
    }

    /// Adds the next key, in id order.
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

    /// Adds a finished order. The orders of an account must come in the order in which they
    /// finished. Skips orders that finished before the oldest order that the account keeps, since
    /// they were forgotten.
    pub fn order(&mut self, row: OrderRow) -> Result<(), RestoreError> {
        let OrderRow { placement, .. } = &row;
        let id = placement.order;
        let error = |flaw| RestoreError::Row { kind: "order", id: id.get(), flaw };
        let state = &mut self.state;
        if id.shard() != state.shard || id.counter() > state.orders_ever {
            return Err(error("is none that the shard has given"));
        }
        let account =
            state.account_slot(placement.account).ok_or_else(|| error("is of no account"))?;
        if state.accounts[account].is_erased() {
            // The order was forgotten when its account was erased.
            return Ok(());
        }
        let Some(oldest) = self.oldest_orders[account as usize] else {
            // The account may have forgotten all of its finished orders.
            let has_finished = state.accounts[account].order_count_ever() > 0;
            return has_finished
                .then_some(())
                .ok_or_else(|| error("is of an account that has none"));
        };
        let kept_count = state.accounts[account].kept_order_count();
        if kept_count == 0 && id != oldest {
            return Ok(());
        }
        if kept_count as u64 == state.accounts[account].order_count_ever() {
            return Err(error("is one more than its account has finished"));
        }
        check_order(state, &row).map_err(error)?;
        if row.is_open() {
            return Err(error("is open, and listed as finished"));
        }
        let order_state = row.order_state;
        let order = Order::pack(row, 0).ok_or_else(|| error("has numbers out of range"))?;
        state
            .insert_order(order, order_state, account)
            .ok_or_else(|| error("has a name that is used"))
    }

    /// Adds an open order. All open orders must come before the first comment.
    pub fn open_order(&mut self, row: OrderRow) -> Result<(), RestoreError> {
        let id = row.placement.order;
        let error = |flaw| RestoreError::Row { kind: "open order", id: id.get(), flaw };
        let state = &mut self.state;
        if id.shard() != state.shard || id.counter() > state.orders_ever {
            return Err(error("is none that the shard has given"));
        }
        let account = state.account_slot(row.placement.account);
        let account = account.ok_or_else(|| error("is of no account"))?;
        check_order(state, &row).map_err(error)?;
        let order_state =
            row.order_state.filter(OrderState::is_open).ok_or_else(|| error("is finished"))?;
        let settled = state.settled.get(&row.placement.market);
        if settled.is_some_and(|settled| settled.is_paid) {
            return Err(error("is in a market that is paid"));
        }
        if order_state.is_delayed != row.delay.is_some() {
            return Err(error("does not say how it is held"));
        }
        let delay = row.delay;
        let order = Order::pack(row, 0).ok_or_else(|| error("has numbers out of range"))?;
        let slot = state.place_with_order_state(order, order_state);
        let slot = slot.ok_or_else(|| error("has a name that is used"))?;
        match delay {
            Some(delay) => state.begin_delay(account, slot, delay),
            None => state.open_order(account, slot),
        }
        .map_err(error)?;
        if faults::is_on(Fault::ReserveNotRestored) {
            let on = state.priority_of(slot).on();
            state.accounts[account].release(on, order_state.reserve(on.side), Reserve::default());
        }
        Ok(())
    }

    /// Adds the displayed levels that an account's resting orders have taken from on one side of a
    /// book.
    pub fn used(&mut self, row: UsedRow) -> Result<(), RestoreError> {
        let UsedRow { account, on, levels } = row;
        let error =
            |flaw| RestoreError::Row { kind: "used levels of account", id: account.get(), flaw };
        let state = &mut self.state;
        let slot = state.account_slot(account).ok_or_else(|| error("are of no account"))?;
        let account = &mut state.accounts[slot];
        if !account.used_levels(on).is_empty() {
            return Err(error("came before"));
        }
        let mut prices = BTreeSet::new();
        if levels.is_empty() || !levels.iter().all(|it| prices.insert(it.price)) {
            return Err(error("are none, or two of a price"));
        }
        if !levels.iter().all(UsedLevel::is_possible) {
            return Err(error("are out of range"));
        }
        account.note_used(on, levels.into_iter().map(NotedLevel::unseen));
        if account.used_levels(on).is_empty() {
            return Err(error("are on a side where it has no open order"));
        }
        Ok(())
    }

    /// Adds an account's fill log, oldest fill first.
    pub fn fill_log(
        &mut self,
        account: AccountId,
        began_after: u64,
        fills: VecDeque<LoggedFill>,
    ) -> Result<(), RestoreError> {
        let error = |flaw| RestoreError::Row { kind: "log of account", id: account.get(), flaw };
        let state = &mut self.state;
        let slot = state.account_slot(account).ok_or_else(|| error("is of no account"))?;
        for LoggedFill { order, part, market, outcome, fill, .. } in &fills {
            let market = state.markets.get(market.0 as usize);
            if market.is_none_or(|market| outcome.index() >= market.outcomes.len()) {
                return Err(error("has a fill in no market"));
            }
            if order.shard() != state.shard || order.counter() > state.orders_ever {
                return Err(error("has a fill of an order that the shard has not given"));
            }
            if *part == 0 || fill.quantity <= Shares::ZERO {
                return Err(error("has a fill of nothing"));
            }
        }
        let account = &mut state.accounts[slot];
        if account.fill_log().is_some() {
            return Err(error("came before"));
        }
        let fill_count = account.fill_count_ever();
        let log = FillLog::restored(began_after, fills, fill_count)
            .ok_or_else(|| error("has more or fewer fills than its account counts"))?;
        state.hash += log.term(account.id, fill_count);
        account.set_fill_log(log);
        Ok(())
    }

    /// Adds an undone fill. Those of an account must come in the order of their numbers.
    pub fn undone_fill(&mut self, row: UndoneRow) -> Result<(), RestoreError> {
        let UndoneRow { account: id, number, fill } = row;
        let error = |flaw| RestoreError::Row { kind: "undone fill of account", id: id.get(), flaw };
        let state = &mut self.state;
        let slot = state.account_slot(id).ok_or_else(|| error("is of no account"))?;
        let account = &mut state.accounts[slot];
        let newest = account.fill_count_ever();
        if !(1..=fill.newest).contains(&number) || fill.newest > newest {
            return Err(error("is none that the account has had"));
        }
        if account.position(fill.market, fill.outcome).is_none() {
            return Err(error("is of no position"));
        }
        let last = account.undone_fills().and_then(|undone| undone.last_key_value());
        if last.is_some_and(|(&last, _)| last >= number) {
            return Err(error("comes behind a newer one"));
        }
        if account.remember_undone(number, fill).is_some() {
            return Err(error("is one more than its account remembers"));
        }
        state.hash += fill.term(id, number);
        Ok(())
    }

    /// Adds the next comment, in id order. Its order must already be restored.
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

    /// Returns the complete state if it matches the head.
    pub fn finish(self) -> Result<State, RestoreError> {
        let Self { head, mut state, oldest_orders, .. } = self;
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
        // Payments find unpaid positions by binary search.
        state.sort_unpaid_positions();
        Ok(state)
    }
}

/// Checks the rules that finished and open orders have in common.
fn check_order(state: &State, row: &OrderRow) -> Result<(), &'static str> {
    let OrderRow { placement, fill, order_state, .. } = row;
    if state.order(placement.order).is_some() {
        return Err("came before");
    }
    let market = state.markets.get(placement.market.0 as usize);
    if market.is_none_or(|market| placement.outcome.index() >= market.outcomes.len()) {
        return Err("is in no market");
    }
    let quantity_min = i64::from(order_state.is_none());
    if fill.quantity.micros() < quantity_min {
        return Err("is for no shares");
    }
    if order_state.is_some_and(|order_state| {
        !order_state.is_consistent() || fill.quantity > order_state.progress.filled
    }) {
        return Err("has a life that contradicts itself");
    }
    Ok(())
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
