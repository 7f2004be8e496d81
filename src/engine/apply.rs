//! Applying facts: the only way in which a state changes.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use super::account::Account;
use super::command::Identity;
use super::comment::{COMMENTS_PER_ORDER_MAX, Comment};
use super::contradiction::{Contradiction, Flaw};
use super::event::{Event, OrderFilled};
use super::key::Key;
use super::key_row::KeyRow;
use super::order::Order;
use super::settlement::Decision;
use super::state_hash::{StateHash, Term, TermKind};
use super::{State, UsedMarket};
use crate::ids::{AccountId, CommentId, KeyId, MarketIndex, OrderId, Place, Timestamp};
use crate::market::book::Side;
use crate::money::{Shares, Usd};

/// Ids are given one after the other, each by the shard that keeps what it names.
const NOT_NEXT: &str = "is not the next one of the shard";

/// Only what is kept can change or go.
const NOT_KEPT: &str = "is not kept";

impl State {
    /// Applies the events of the next record, which a server has just decided. `place` is where the
    /// journal holds it.
    ///
    /// # Panics
    ///
    /// When an event contradicts the state: the process must end, since one of them is wrong.
    pub fn apply(&mut self, events: &[Event], place: Place) {
        if let Err(contradiction) = self.replay(events, place) {
            panic!("{contradiction}");
        }
    }

    /// Applies the events of the next record, which come from a disk: nothing about them is
    /// believed. After an error the state is of no use any more.
    pub fn replay(&mut self, events: &[Event], place: Place) -> Result<(), Contradiction> {
        // A shard would have to write for centuries.
        self.sequence = self.sequence.saturating_add(1);
        self.log = place.log;
        events
            .iter()
            .try_for_each(|event| self.apply_event(event, place.position))
            .map_err(|flaw| Contradiction { shard: self.shard, sequence: self.sequence, flaw })
    }

    fn apply_event(&mut self, event: &Event, position_in_log: u64) -> Result<(), Flaw> {
        match event {
            Event::AccountOpened { account, identity, granted, at } => {
                self.open_account(*account, identity, *granted, *at, position_in_log)
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
                self.add_key(key, position_in_log)
            }
            Event::KeyRenamed { key, name } => self.change_key(*key, position_in_log, |row| {
                row.rename(name.clone());
                Some(())
            }),
            Event::KeyExpirySet { key, expires_at } => {
                self.change_key(*key, position_in_log, |row| row.set_expiry(*expires_at))
            }
            Event::KeyRevoked { key, at } => self.change_key(*key, position_in_log, |row| {
                row.revoke(*at);
                Some(())
            }),
            Event::KeyForgotten { key } => self.forget_key(*key, position_in_log),
            Event::MarketIntroduced { index, condition_id, outcomes } => {
                self.introduce_market(*index, condition_id, outcomes, position_in_log)
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
                self.add_comment(comment, position_in_log)
            }
            Event::CommentDeleted { comment } => self.delete_comment(*comment, position_in_log),
            Event::SettlementDecided { decision, at } => {
                let made = self.add_decision(decision, *at, position_in_log);
                made.map_err(|flaw| Flaw::decision(Decision::home(&decision.condition_id), flaw))
            }
            Event::PositionsSettled(settled) => self.settle_positions(settled, position_in_log),
            Event::MarketSettled { market, payouts, at: _ } => {
                self.settle_market(*market, payouts, true, position_in_log)
            }
            Event::StateChecked { hash } if *hash == self.hash => Ok(()),
            Event::StateChecked { hash } => Err(Flaw::hash(*hash, self.hash)),
        }
    }

    fn open_account(
        &mut self,
        id: AccountId,
        identity: &Identity,
        granted: Usd,
        at: Timestamp,
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        let flaw = |flaw| Err(Flaw::account(id, flaw));
        if id.shard() != self.shard || id.counter() != self.accounts.len() as u64 + 1 {
            return flaw(NOT_NEXT);
        }
        if identity.shard() != self.shard {
            return flaw("is not in the shard of its identity");
        }
        if self.account_of(&identity.digest).is_some() {
            return flaw("has the identity of another one");
        }
        if granted < Usd::ZERO {
            return flaw("begins with a debt");
        }
        let issuer = self.issuer(&identity.issuer);
        let subject = identity.subject.clone();
        let mut account = Account::opened(id, identity.digest, issuer, subject, granted, at);
        account.position_in_log = position_in_log;
        self.insert_account(account);
        Ok(())
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
        let open = self.accounts[slot].positions().iter().filter(|position| position.is_open());
        let open = open.map(|position| (position.market, slot, position.outcome));
        self.open_positions.extend(open);
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

    fn add_key(&mut self, key: Key, position_in_log: u64) -> Result<(), Flaw> {
        let (id, account) = (key.id, key.account);
        let counter = id.counter();
        if id.shard() != self.shard || Some(counter) != self.keys_ever.checked_add(1) {
            return Err(Flaw::key(id, NOT_NEXT));
        }
        self.keys_ever = counter;
        self.insert_key(key)
            .ok_or(Flaw::key(id, "is of no account, or was made with a key of none"))?;
        self.touch_account(account, position_in_log);
        Ok(())
    }

    /// Changes a key that is kept; the change says `None` when it cannot follow.
    fn change_key(
        &mut self,
        id: KeyId,
        position_in_log: u64,
        change: impl FnOnce(&mut KeyRow) -> Option<()>,
    ) -> Result<(), Flaw> {
        let slot = self.keys.slot(id).ok_or(Flaw::key(id, NOT_KEPT))?;
        self.hash -= self.key_term(&self.keys[slot]);
        change(&mut self.keys[slot]).ok_or(Flaw::key(id, "has an end already"))?;
        self.hash += self.key_term(&self.keys[slot]);
        self.touch_account(self.keys[slot].account(), position_in_log);
        Ok(())
    }

    fn forget_key(&mut self, id: KeyId, position_in_log: u64) -> Result<(), Flaw> {
        let slot = self.keys.slot(id).ok_or(Flaw::key(id, NOT_KEPT))?;
        let account = self.keys[slot].account();
        self.remove_key(id);
        self.touch_account(account, position_in_log);
        self.last_removal = position_in_log;
        Ok(())
    }

    fn introduce_market(
        &mut self,
        index: MarketIndex,
        condition_id: &Arc<str>,
        outcomes: &[(Arc<str>, Arc<str>)],
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        if index.0 as usize != self.markets.len() {
            return Err(Flaw::market(index, NOT_NEXT));
        }
        let market = UsedMarket { condition_id: condition_id.clone(), outcomes: outcomes.to_vec() };
        let inserted = self.insert_market(market, position_in_log);
        inserted.ok_or(Flaw::market(index, "was introduced before"))
    }

    /// Adds a market behind the others. `None` when it is there already.
    pub(super) fn insert_market(&mut self, market: UsedMarket, position_in_log: u64) -> Option<()> {
        let index = u32::try_from(self.markets.len()).ok()?;
        if self.market_of.contains_key(&market.condition_id) {
            return None;
        }
        self.market_of.insert(market.condition_id.clone(), MarketIndex(index));
        self.hash += market.term(index);
        self.markets.push(market);
        self.introductions.push(position_in_log);
        Some(())
    }

    fn fill_order(&mut self, fill: &OrderFilled, position_in_log: u64) -> Result<(), Flaw> {
        let flaw = |flaw| Flaw::order(fill.order, flaw);
        let counter = fill.order.counter();
        if fill.order.shard() != self.shard || Some(counter) != self.orders_ever.checked_add(1) {
            return Err(flaw(NOT_NEXT));
        }
        self.orders_ever = counter;
        check_fill(fill).map_err(flaw)?;
        let market = self.markets.get(fill.market.0 as usize);
        if market.is_none_or(|market| fill.outcome.index() >= market.outcomes.len()) {
            return Err(flaw("is in no market"));
        }
        if self.settled.contains_key(&fill.market) {
            return Err(flaw("is in a settled market"));
        }

        let slot = self.account_slot(fill.account).ok_or(flaw("is of no account"))?;
        let account = &mut self.accounts[slot];
        let order = Order::filled(fill, position_in_log);
        let order = order.ok_or(flaw("has numbers out of range"))?;
        self.hash += order.term();
        // Before the account, so that the index of names is looked at while that is on its way.
        let order_slot = self.orders.insert(order).ok_or(flaw("has a name that is used"))?;

        self.hash += account.fill(fill).map_err(flaw)?;
        account.push_order(order_slot);
        account.position_in_log = position_in_log;
        let position = (fill.market, slot, fill.outcome);
        if fill.position_shares == Shares::ZERO {
            self.open_positions.remove(&position);
        } else if fill.side == Side::Buy && fill.position_shares == fill.quantity {
            self.open_positions.insert(position);
        }
        Ok(())
    }

    /// Adds an order behind the others of its account, which is in this slot. `None` when a name
    /// of it is that of another one.
    pub(super) fn insert_order(&mut self, order: Order, account_slot: u32) -> Option<()> {
        self.hash += order.term();
        let slot = self.orders.insert(order)?;
        self.accounts[account_slot].push_order(slot);
        Some(())
    }

    fn forget_order(&mut self, id: OrderId, position_in_log: u64) -> Result<(), Flaw> {
        let slot = self.orders.slot(id).ok_or(Flaw::order(id, NOT_KEPT))?;
        let account = self.account_mut(self.orders[slot].account());
        if account.pop_order() != Some(slot) {
            return Err(Flaw::order(id, "is not the oldest that its account keeps"));
        }
        account.position_in_log = position_in_log;
        self.hash -= self.orders.remove(slot).term();
        for comment in self.comments_of.remove(&id).unwrap_or_default().ids {
            let comment = self.comments.remove(&comment).expect("a comment of the order");
            self.hash -= comment.term();
        }
        self.last_removal = position_in_log;
        Ok(())
    }

    fn add_comment(&mut self, comment: Comment, position_in_log: u64) -> Result<(), Flaw> {
        let flaw = |flaw| Err(Flaw::comment(comment.id, flaw));
        let counter = comment.id.counter();
        if comment.id.shard() != self.shard || Some(counter) != self.comments_ever.checked_add(1) {
            return flaw(NOT_NEXT);
        }
        if self.order(comment.order).is_none() {
            return flaw("is on no order");
        }
        let comments = self.comments_of.get(&comment.order);
        if comments.is_some_and(|comments| comments.ids.len() >= COMMENTS_PER_ORDER_MAX) {
            return flaw("is one more than its order may have");
        }
        self.comments_ever = counter;
        self.insert_comment(comment, position_in_log);
        Ok(())
    }

    /// Adds a comment behind the others of its order, which is kept.
    pub(super) fn insert_comment(&mut self, comment: Comment, position_in_log: u64) {
        let comments = self.comments_of.entry(comment.order).or_default();
        comments.ids.push(comment.id);
        comments.position_in_log = position_in_log;
        self.hash += comment.term();
        self.comments.insert(comment.id, comment);
    }

    fn delete_comment(&mut self, id: CommentId, position_in_log: u64) -> Result<(), Flaw> {
        let comment = self.comments.remove(&id).ok_or(Flaw::comment(id, NOT_KEPT))?;
        self.hash -= comment.term();
        let comments = self.comments_of.get_mut(&comment.order).expect("it was on an order");
        comments.ids.retain(|&other| other != id);
        comments.position_in_log = position_in_log;
        if comments.ids.is_empty() {
            self.comments_of.remove(&comment.order);
        }
        self.last_removal = position_in_log;
        Ok(())
    }

    /// The account of something that is kept, which this record has changed.
    fn touch_account(&mut self, id: AccountId, position_in_log: u64) {
        self.account_mut(id).position_in_log = position_in_log;
    }

    fn account_mut(&mut self, id: AccountId) -> &mut Account {
        let slot = self.account_slot(id).expect("what is kept has an account");
        &mut self.accounts[slot]
    }
}

/// What must hold of every fill, whatever the state is. Sums and prices that are shown later come
/// from these numbers.
fn check_fill(fill: &OrderFilled) -> Result<(), &'static str> {
    let mut taken = Shares::ZERO;
    for level in &fill.levels {
        if level.size <= Shares::ZERO {
            return Err("takes no shares at a price");
        }
        taken = taken.checked_add(level.size).ok_or("takes more than there can be")?;
    }
    if taken != fill.quantity || taken == Shares::ZERO {
        return Err("is not what it took");
    }
    if !(0..=fill.quantity.micros()).contains(&fill.notional.micros()) {
        return Err("costs less than nothing or more than a dollar a share");
    }
    if fill.fee < Usd::ZERO {
        return Err("has a fee below zero");
    }
    Ok(())
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
