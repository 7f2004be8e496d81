//! Applying facts: the only way in which a state changes.

use std::sync::Arc;

use super::account::Account;
use super::command::Identity;
use super::comment::Comment;
use super::event::{Event, OrderFilled};
use super::key::Key;
use super::order::{Order, name_term};
use super::position::Position;
use super::state_hash::{Term, TermKind};
use super::{CommentSlot, State, UsedMarket, index, next_counter};
use crate::ids::{AccountId, CommentId, KeyId, MarketIndex, Place, Timestamp};
use crate::money::{Shares, Usd};

impl State {
    /// Applies the events of the next record. `place` is where the journal holds it.
    ///
    /// # Panics
    ///
    /// When an event contradicts the state: the process must end, since one of them is wrong.
    pub fn apply(&mut self, events: &[Event], place: Place) {
        self.sequence += 1;
        for event in events {
            self.apply_event(event, place);
        }
    }

    fn apply_event(&mut self, event: &Event, place: Place) {
        match event {
            Event::AccountOpened { account, identity, granted, at } => {
                self.open_account(*account, identity, *granted, *at, place);
            }
            Event::KeyCreated { key, account, grant, created_by, at } => {
                self.add_key(
                    Key {
                        id: *key,
                        account: *account,
                        grant: grant.clone(),
                        created_by: *created_by,
                        created_at: *at,
                        revoked_at: None,
                    },
                    place,
                );
            }
            Event::KeyRevoked { key, at } => self.revoke_key(*key, *at, place),
            Event::MarketIntroduced { index, condition_id, outcomes } => {
                self.introduce_market(*index, condition_id, outcomes);
            }
            Event::OrderFilled(fill) => self.fill_order(fill, place),
            Event::CommentAdded { comment, order, author, content, at } => {
                self.add_comment(
                    Comment {
                        id: *comment,
                        order: *order,
                        author: *author,
                        content: content.clone(),
                        at: *at,
                    },
                    place,
                );
            }
            Event::CommentDeleted { comment } => self.delete_comment(*comment, place),
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
        place: Place,
    ) {
        assert_eq!(id.shard(), self.shard, "an account of another shard");
        assert_eq!(id.counter(), next_counter(&self.accounts), "accounts are numbered in order");
        let mut account = Account::opened(id, identity.clone(), granted, at);
        account.last_place = place;
        let before = self.account_of.insert(identity.digest, id);
        assert_eq!(before, None, "one account for each identity");
        self.hash += account.term();
        self.accounts.push(account);
    }

    fn add_key(&mut self, key: Key, place: Place) {
        assert_eq!(key.id.shard(), self.shard, "a key of another shard");
        assert_eq!(key.id.counter(), next_counter(&self.keys), "keys are numbered in order");
        let account = self.account_mut(key.account);
        account.keys.push(key.id);
        account.last_place = place;
        self.hash += key.term();
        self.keys.push(key);
    }

    fn revoke_key(&mut self, id: KeyId, at: Timestamp, place: Place) {
        let key = &mut self.keys[index(id.counter())];
        assert_eq!(key.id, id, "a key of this shard");
        self.hash -= key.term();
        key.revoked_at = Some(at);
        self.hash += key.term();
        let account = key.account;
        self.account_mut(account).last_place = place;
    }

    fn introduce_market(
        &mut self,
        market: MarketIndex,
        condition_id: &Arc<str>,
        outcomes: &[(Arc<str>, Arc<str>)],
    ) {
        assert_eq!(market.0 as usize, self.markets.len(), "markets are numbered in order");
        let before = self.market_of.insert(condition_id.clone(), market);
        assert_eq!(before, None, "a market is introduced once");
        let term = Term::new(TermKind::Market).number(market.0.into());
        let term = outcomes.iter().fold(term.bytes(condition_id.as_bytes()), |term, outcome| {
            term.bytes(outcome.0.as_bytes()).bytes(outcome.1.as_bytes())
        });
        self.hash += term.finish();
        self.markets
            .push(UsedMarket { condition_id: condition_id.clone(), outcomes: outcomes.to_vec() });
    }

    fn fill_order(&mut self, fill: &OrderFilled, place: Place) {
        assert_eq!(
            fill.order.counter(),
            next_counter(&self.orders),
            "orders are numbered in order"
        );
        assert_eq!(fill.order.shard(), self.shard, "an order of another shard");
        let taken: Shares = fill.levels.iter().map(|level| level.size).sum();
        assert_eq!(taken, fill.quantity, "an order is what it took");
        let market = &self.markets[fill.market.0 as usize];
        assert!(fill.outcome.index() < market.outcomes.len(), "an outcome that the market has");
        let account = &mut self.accounts[index(fill.account.counter())];
        assert_eq!(account.id, fill.account, "an account of this shard");
        self.hash -= account.term();
        account.ledger = account
            .ledger
            .after_fill(fill.side, fill.notional, fill.fee)
            .expect("the sums were checked when the fill was decided");
        assert_eq!(account.ledger.cash(), fill.balance, "money is conserved");
        assert!(fill.balance >= Usd::ZERO, "no fill leaves a debt");
        account.orders.push(fill.order);
        account.last_place = place;
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

        for &name in &fill.names {
            let before = self.order_of.insert((fill.account, name), fill.order);
            assert_eq!(before, None, "a name stands for one order");
            self.hash += name_term(fill.order, name);
        }
        let order = Order::filled(fill, place);
        self.hash += order.term();
        self.orders.push(order);
    }

    fn add_comment(&mut self, comment: Comment, place: Place) {
        let counter = comment.id.counter();
        assert_eq!(counter, next_counter(&self.comments), "comments are numbered in order");
        assert_eq!(comment.id.shard(), self.shard, "a comment of another shard");
        let order = &mut self.orders[index(comment.order.counter())];
        assert_eq!(order.id, comment.order, "an order of this shard");
        order.comments.push(comment.id);
        order.last_place = place;
        self.hash += comment.term();
        self.comments.push(CommentSlot::Written(comment));
    }

    fn delete_comment(&mut self, id: CommentId, place: Place) {
        let slot = &mut self.comments[index(id.counter())];
        let before = std::mem::replace(slot, CommentSlot::Deleted(place));
        let CommentSlot::Written(comment) = before else {
            panic!("a comment is deleted once");
        };
        self.hash -= comment.term();
        let order = &mut self.orders[index(comment.order.counter())];
        order.comments.retain(|&other| other != id);
        order.last_place = place;
    }

    fn account_mut(&mut self, id: AccountId) -> &mut Account {
        let account = &mut self.accounts[index(id.counter())];
        assert_eq!(account.id, id, "an account of this shard");
        account
    }
}
