//! Applying facts: the only way in which a state changes.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use super::account::Account;
use super::command::Identity;
use super::comment::Comment;
use super::event::{Event, OrderFilled};
use super::key::Key;
use super::order::{Order, OrderRow};
use super::position::Position;
use super::state_hash::{StateHash, Term, TermKind};
use super::{State, UsedMarket};
use crate::ids::{AccountId, CommentId, KeyId, MarketIndex, OrderId, Place, Timestamp};
use crate::money::{Shares, Usd};

impl State {
    /// Applies the events of the next record. `place` is where the journal holds it.
    ///
    /// # Panics
    ///
    /// When an event contradicts the state: the process must end, since one of them is wrong.
    pub fn apply(&mut self, events: &[Event], place: Place) {
        self.sequence += 1;
        self.log = place.log;
        for event in events {
            self.apply_event(event, place.position);
        }
    }

    fn apply_event(&mut self, event: &Event, position_in_log: u64) {
        match event {
            Event::AccountOpened { account, identity, granted, at } => {
                self.open_account(*account, identity, *granted, *at, position_in_log);
            }
            Event::KeyCreated { key, account, grant, created_by, at } => {
                let key = Key {
                    id: *key,
                    account: *account,
                    grant: grant.clone(),
                    created_by: *created_by,
                    kept_maker: *created_by,
                    created_at: *at,
                    revoked_at: None,
                };
                self.add_key(key, position_in_log);
            }
            Event::KeyRevoked { key, at } => self.revoke_key(*key, *at, position_in_log),
            Event::KeyForgotten { key } => self.forget_key(*key, position_in_log),
            Event::MarketIntroduced { index, condition_id, outcomes } => {
                self.introduce_market(*index, condition_id, outcomes);
            }
            Event::OrderFilled(fill) => self.fill_order(fill, position_in_log),
            Event::OrderForgotten { order } => self.forget_order(*order, position_in_log),
            Event::CommentAdded { comment, order, author, content, at } => {
                let comment = Comment {
                    id: *comment,
                    order: *order,
                    author: *author,
                    content: content.clone(),
                    at: *at,
                };
                assert_eq!(comment.id.shard(), self.shard, "a comment of another shard");
                self.comments_ever += 1;
                let counter = comment.id.counter();
                assert_eq!(counter, self.comments_ever, "comments are numbered in order");
                self.insert_comment(comment, position_in_log);
            }
            Event::CommentDeleted { comment } => self.delete_comment(*comment, position_in_log),
            Event::StateChecked { hash } => {
                assert_eq!(
                    *hash,
                    self.hash,
                    "shard {} differs at record {} from the state that wrote it",
                    self.shard.get(),
                    self.sequence
                );
            }
        }
    }

    fn open_account(
        &mut self,
        id: AccountId,
        identity: &Identity,
        granted: Usd,
        at: Timestamp,
        position_in_log: u64,
    ) {
        assert_eq!(id.shard(), self.shard, "an account of another shard");
        let counter = self.accounts.len() as u64 + 1;
        assert_eq!(id.counter(), counter, "accounts are numbered in order");
        assert!(self.account_of(&identity.digest).is_none(), "one account for each identity");
        let issuer = self.issuer(&identity.issuer);
        let subject = identity.subject.clone();
        let mut account = Account::opened(id, identity.digest, issuer, subject, granted, at);
        account.position_in_log = position_in_log;
        self.insert_account(account);
    }

    /// Adds an account behind the others.
    pub(super) fn insert_account(&mut self, account: Account) {
        self.hash += account.identity_term();
        self.hash += account.term();
        for position in account.positions() {
            self.hash += position.term(account.id);
        }
        let hash = self.hasher.hash_one(account.digest);
        let slot = self.accounts.insert(account);
        let (accounts, hasher) = (&self.accounts, &self.hasher);
        let hash_at = |&slot: &u32| hasher.hash_one(accounts[slot].digest);
        self.account_of.insert_unique(hash, slot, hash_at);
    }

    /// The number of an issuer, a new one if it has never vouched for anybody.
    pub(super) fn issuer(&mut self, issuer: &str) -> u32 {
        let known = self.issuers.iter().position(|known| **known == *issuer);
        let index = known.unwrap_or_else(|| {
            self.issuers.push(issuer.into());
            self.issuers.len() - 1
        });
        u32::try_from(index).expect("fewer issuers than a u32 counts")
    }

    fn add_key(&mut self, key: Key, position_in_log: u64) {
        assert_eq!(key.id.shard(), self.shard, "a key of another shard");
        self.keys_ever += 1;
        assert_eq!(key.id.counter(), self.keys_ever, "keys are numbered in order");
        let account = key.account;
        self.insert_key(key).expect("a key of an account, made with a key that it keeps");
        self.account_mut(account).position_in_log = position_in_log;
    }

    fn revoke_key(&mut self, id: KeyId, at: Timestamp, position_in_log: u64) {
        let slot = self.keys.slot(id.get()).expect("a key of this shard");
        self.hash -= self.key_term(&self.keys[slot]);
        self.keys[slot].revoke(at);
        self.hash += self.key_term(&self.keys[slot]);
        self.account_mut(self.keys[slot].account()).position_in_log = position_in_log;
    }

    fn forget_key(&mut self, id: KeyId, position_in_log: u64) {
        let account = self.key(id).expect("a key of this shard").account;
        self.remove_key(id);
        self.account_mut(account).position_in_log = position_in_log;
        self.last_removal = position_in_log;
    }

    fn introduce_market(
        &mut self,
        market: MarketIndex,
        condition_id: &Arc<str>,
        outcomes: &[(Arc<str>, Arc<str>)],
    ) {
        assert_eq!(market.0 as usize, self.markets.len(), "markets are numbered in order");
        let market = UsedMarket { condition_id: condition_id.clone(), outcomes: outcomes.to_vec() };
        self.insert_market(market).expect("a market is introduced once");
    }

    /// Adds a market behind the others. `None` when it is there already.
    pub(super) fn insert_market(&mut self, market: UsedMarket) -> Option<()> {
        let index = u32::try_from(self.markets.len()).ok()?;
        if self.market_of.contains_key(&market.condition_id) {
            return None;
        }
        self.market_of.insert(market.condition_id.clone(), MarketIndex(index));
        self.hash += market.term(index);
        self.markets.push(market);
        Some(())
    }

    fn fill_order(&mut self, fill: &OrderFilled, position_in_log: u64) {
        self.orders_ever += 1;
        assert_eq!(fill.order.counter(), self.orders_ever, "orders are numbered in order");
        assert_eq!(fill.order.shard(), self.shard, "an order of another shard");
        let taken: Shares = fill.levels.iter().map(|level| level.size).sum();
        assert_eq!(taken, fill.quantity, "an order is what it took");
        let market = &self.markets[fill.market.0 as usize];
        assert!(fill.outcome.index() < market.outcomes.len(), "an outcome that the market has");

        let slot = self.account_slot(fill.account).expect("an account of this shard");
        let account = &mut self.accounts[slot];
        self.hash -= account.term();
        let ledger = account
            .ledger()
            .after_fill(fill.side, fill.notional, fill.fee)
            .expect("the sums were checked when the fill was decided");
        assert_eq!(ledger.cash(), fill.balance, "money is conserved");
        assert!(fill.balance >= Usd::ZERO, "no fill leaves a debt");
        account.set_ledger(ledger);
        account.set_order_count_ever(account.order_count_ever() + 1);
        account.position_in_log = position_in_log;
        self.hash += account.term();

        let before = account
            .position(fill.market, fill.outcome)
            .copied()
            .unwrap_or(Position::empty(fill.market, fill.outcome));
        let after = before
            .after_fill(fill.side, fill.quantity, fill.notional)
            .expect("the position was checked when the fill was decided");
        assert_eq!(after.shares, fill.position_shares, "shares are conserved");
        assert_eq!(after.cost, fill.position_cost, "cost is conserved");
        if let Some(before) = account.set_position(after) {
            self.hash -= before.term(fill.account);
        }
        self.hash += after.term(fill.account);

        let order = Order::pack(OrderRow::filled(fill), position_in_log)
            .expect("numbers that an order can have");
        self.insert_order(order, slot).expect("a name stands for one order");
    }

    /// Adds an order behind the others of its account, which is in this slot. `None` when a name
    /// of it is that of another one.
    pub(super) fn insert_order(&mut self, order: Order, account_slot: u32) -> Option<()> {
        self.hash += order.term();
        let slot = self.orders.insert(order)?;
        self.accounts[account_slot].push_order(slot);
        Some(())
    }

    fn forget_order(&mut self, id: OrderId, position_in_log: u64) {
        let slot = self.orders.slot(id).expect("an order that is kept");
        let account = self.account_mut(self.orders[slot].account());
        assert_eq!(account.pop_order(), Some(slot), "an account forgets its oldest order");
        account.position_in_log = position_in_log;
        self.hash -= self.orders.remove(slot).term();
        for comment in self.comments_of.remove(&id).unwrap_or_default().ids {
            let comment = self.comments.remove(&comment).expect("a comment of the order");
            self.hash -= comment.term();
        }
        self.last_removal = position_in_log;
    }

    /// Adds a comment behind the others of its order.
    pub(super) fn insert_comment(&mut self, comment: Comment, position_in_log: u64) {
        assert!(self.order(comment.order).is_some(), "an order that is kept");
        let comments = self.comments_of.entry(comment.order).or_default();
        comments.ids.push(comment.id);
        comments.position_in_log = position_in_log;
        self.hash += comment.term();
        self.comments.insert(comment.id, comment);
    }

    fn delete_comment(&mut self, id: CommentId, position_in_log: u64) {
        let comment = self.comments.remove(&id).expect("a comment that is there");
        self.hash -= comment.term();
        let comments = self.comments_of.get_mut(&comment.order).expect("it was on an order");
        comments.ids.retain(|&other| other != id);
        comments.position_in_log = position_in_log;
        if comments.ids.is_empty() {
            self.comments_of.remove(&comment.order);
        }
        self.last_removal = position_in_log;
    }

    fn account_mut(&mut self, id: AccountId) -> &mut Account {
        let slot = self.account_slot(id).expect("an account of this shard");
        &mut self.accounts[slot]
    }
}

impl UsedMarket {
    /// The market's term in the state hash.
    pub(super) fn term(&self, index: u32) -> StateHash {
        let term = Term::new(TermKind::Market).number(index.into());
        let term = term.bytes(self.condition_id.as_bytes());
        let outcomes = self.outcomes.iter();
        outcomes
            .fold(term, |term, (label, token_id)| {
                term.bytes(label.as_bytes()).bytes(token_id.as_bytes())
            })
            .finish()
    }
}
