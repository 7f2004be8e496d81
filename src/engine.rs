//! One shard's state: what may happen to it ([`State::decide`]) and what has happened to it
//! ([`State::apply`]).
//!
//! The engine is pure. It has no clock, no randomness and no I/O: the time and the market come in
//! as arguments, so the same events always fold to the same state, and recovery is that fold.
//!
//! `decide` looks and never changes: it refuses with a reason, finds an earlier order that the
//! request names, or returns the facts that would follow. `apply` changes and never refuses: a fact
//! that contradicts the state ends the process, because the state or the journal is wrong.

pub mod account;
pub mod command;
pub mod comment;
pub mod event;
pub mod fee;
pub mod idempotency;
pub mod key;
pub mod order;
pub mod position;
pub mod rejection;
pub mod state_hash;
pub mod view;

mod trade;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use smallvec::smallvec;

use account::Account;
use command::{Command, CreateKey, Identity, Owner};
use comment::{COMMENTS_PER_ORDER_MAX, Comment};
use event::{Event, Events, OrderFilled};
use idempotency::NameHash;
use key::{Key, revoked_with};
use order::{Order, OrderReceipt};
use position::Position;
use rejection::Rejection;
use state_hash::{StateHash, Term, TermKind};

use crate::ids::{
    AccountId, CommentId, KeyId, MarketIndex, OrderId, OutcomeIndex, Place, ShardId, Timestamp,
};
use crate::market::MarketSnapshot;
use crate::money::Usd;

/// What the operator decides about accounts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// What a new account starts with.
    pub starting_balance: Usd,
    /// How many active keys an account may have.
    pub active_keys_max: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Self { starting_balance: Usd::from_micros(1_000_000_000), active_keys_max: 5 }
    }
}

/// What follows from a command that was not refused.
#[expect(clippy::large_enum_variant, reason = "most verdicts are the large one: no box is better")]
#[derive(Clone, PartialEq, Debug)]
pub enum Verdict {
    /// These facts, once they are applied and journaled.
    Happens(Events),
    /// Nothing: the request names an order that has filled before.
    Replay(OrderId),
    /// Nothing: what was asked for is already so.
    Already,
}

/// A market that the shard has used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsedMarket {
    /// The venue's name for it.
    pub condition_id: Arc<str>,
    /// Label and token of each outcome.
    pub outcomes: Vec<(Arc<str>, Arc<str>)>,
}

/// What is left of a comment.
#[derive(Clone, PartialEq, Debug)]
enum CommentSlot {
    Written(Comment),
    /// It was taken back by the record at this place.
    Deleted(Place),
}

/// The state of one shard.
#[derive(Clone, PartialEq, Debug)]
pub struct State {
    shard: ShardId,
    /// The record that was applied last; records are contiguous within a shard.
    sequence: u64,
    /// Each kind of record, by its counter less 1.
    accounts: Vec<Account>,
    keys: Vec<Key>,
    orders: Vec<Order>,
    comments: Vec<CommentSlot>,
    markets: Vec<UsedMarket>,
    account_of: HashMap<[u8; 32], AccountId, foldhash::fast::RandomState>,
    order_of: HashMap<(AccountId, NameHash), OrderId, foldhash::fast::RandomState>,
    market_of: HashMap<Arc<str>, MarketIndex, foldhash::fast::RandomState>,
    /// Markets that this shard has settled: no order touches them again.
    settled: HashSet<MarketIndex, foldhash::fast::RandomState>,
    hash: StateHash,
}

impl State {
    /// A shard to which nothing has happened.
    pub fn new(shard: ShardId) -> Self {
        Self {
            shard,
            sequence: 0,
            accounts: Vec::new(),
            keys: Vec::new(),
            orders: Vec::new(),
            comments: Vec::new(),
            markets: Vec::new(),
            account_of: HashMap::default(),
            order_of: HashMap::default(),
            market_of: HashMap::default(),
            settled: HashSet::default(),
            hash: StateHash::default(),
        }
    }

    /// Which shard this is.
    pub const fn shard(&self) -> ShardId {
        self.shard
    }

    /// How many records have been applied.
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The hash of everything in it.
    pub const fn hash(&self) -> StateHash {
        self.hash
    }

    /// What would follow from a command, at this time, in this market; nothing changes. `market`
    /// is the one that a trade names, `None` where there is no such market.
    pub fn decide(
        &self,
        command: &Command,
        market: Option<&MarketSnapshot>,
        now: Timestamp,
        rules: &Rules,
    ) -> Result<Verdict, Rejection> {
        match command {
            Command::OpenAccount(identity) => self.decide_open(identity, now, rules),
            Command::CreateKey(create) => self.decide_create_key(create, now, rules),
            Command::RevokeKey { account, key, descendants } => {
                self.decide_revoke(*account, *key, *descendants, now)
            }
            Command::Trade(trade) => trade::decide(self, trade, market, now, rules),
            Command::Comment { order, author, content } => {
                self.decide_comment(*order, *author, content, now)
            }
            Command::DeleteComment { comment, author } => self.decide_delete(*comment, *author),
        }
    }

    fn decide_open(
        &self,
        identity: &Identity,
        now: Timestamp,
        rules: &Rules,
    ) -> Result<Verdict, Rejection> {
        if self.account_of.contains_key(&identity.digest) {
            return Ok(Verdict::Already);
        }
        Ok(Verdict::Happens(smallvec![self.opening(identity, now, rules)?]))
    }

    fn decide_create_key(
        &self,
        create: &CreateKey,
        now: Timestamp,
        rules: &Rules,
    ) -> Result<Verdict, Rejection> {
        let (opening, account) = self.owner(&create.owner, now, rules)?;
        // A key that ends while its request is on its way makes no other key: what was revoked with
        // its descendants has none that came later.
        if let Some(maker) = create.created_by
            && !self.key(maker).is_some_and(|maker| maker.is_active(now))
        {
            return Err(Rejection::MakerEnded);
        }
        if let Some(account) = self.account(account) {
            let keys = account.keys.iter().filter_map(|&key| self.key(key));
            let active_count = keys.filter(|key| key.is_active(now)).count();
            if create.is_bootstrap && active_count > 0 {
                return Err(Rejection::BootstrapNotAllowed);
            }
            if active_count >= rules.active_keys_max as usize {
                let active_keys_max = rules.active_keys_max;
                return Err(Rejection::KeyLimitExceeded { active_keys_max });
            }
        }
        let key = KeyId::new(self.shard, next_counter(&self.keys)).ok_or(IDS_EXHAUSTED)?;
        let mut events = Events::from_iter(opening);
        events.push(Event::KeyCreated {
            key,
            account,
            grant: create.grant.clone(),
            created_by: create.created_by,
            at: now,
        });
        Ok(Verdict::Happens(events))
    }

    fn decide_revoke(
        &self,
        account: AccountId,
        key: KeyId,
        descendants: bool,
        now: Timestamp,
    ) -> Result<Verdict, Rejection> {
        let account = self.account(account).ok_or(Rejection::AccountNotFound)?;
        if !account.keys.contains(&key) {
            return Err(Rejection::KeyNotFound);
        }
        let keys = account.keys.iter().filter_map(|&key| self.key(key));
        let ended = revoked_with(key, descendants, now, keys);
        if ended.is_empty() {
            return Ok(Verdict::Already);
        }
        Ok(Verdict::Happens(
            ended.into_iter().map(|key| Event::KeyRevoked { key, at: now }).collect(),
        ))
    }

    fn decide_comment(
        &self,
        order: OrderId,
        author: AccountId,
        content: &str,
        now: Timestamp,
    ) -> Result<Verdict, Rejection> {
        let order = self.order(order).ok_or(Rejection::OrderNotFound)?;
        if order.comments.len() >= COMMENTS_PER_ORDER_MAX {
            return Err(Rejection::CommentLimitExceeded { comments_max: COMMENTS_PER_ORDER_MAX });
        }
        let comment =
            CommentId::new(self.shard, next_counter(&self.comments)).ok_or(IDS_EXHAUSTED)?;
        Ok(Verdict::Happens(smallvec![Event::CommentAdded {
            comment,
            order: order.id,
            author,
            content: content.into(),
            at: now,
        }]))
    }

    fn decide_delete(&self, comment: CommentId, author: AccountId) -> Result<Verdict, Rejection> {
        let comment = self.comment(comment).ok_or(Rejection::CommentNotFound)?;
        if comment.author != author {
            return Err(Rejection::CommentNotOwn);
        }
        Ok(Verdict::Happens(smallvec![Event::CommentDeleted { comment: comment.id }]))
    }

    /// The account that a command acts on, and the event that opens it if the command does.
    fn owner(
        &self,
        owner: &Owner,
        now: Timestamp,
        rules: &Rules,
    ) -> Result<(Option<Event>, AccountId), Rejection> {
        match owner {
            Owner::Account(account) => {
                self.account(*account).ok_or(Rejection::AccountNotFound)?;
                Ok((None, *account))
            }
            Owner::Identity(identity) => {
                if let Some(&account) = self.account_of.get(&identity.digest) {
                    return Ok((None, account));
                }
                let opening = self.opening(identity, now, rules)?;
                Ok((Some(opening), self.next_account()?))
            }
        }
    }

    fn opening(
        &self,
        identity: &Identity,
        now: Timestamp,
        rules: &Rules,
    ) -> Result<Event, Rejection> {
        assert_eq!(identity.shard(), self.shard, "an account lives in the shard of its identity");
        Ok(Event::AccountOpened {
            account: self.next_account()?,
            identity: identity.clone(),
            granted: rules.starting_balance,
            at: now,
        })
    }

    fn next_account(&self) -> Result<AccountId, Rejection> {
        AccountId::new(self.shard, next_counter(&self.accounts)).ok_or(IDS_EXHAUSTED)
    }

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
        assert_eq!(key.id.counter(), next_counter(&self.keys), "keys are numbered in order");
        let account = self.account_mut(key.account);
        account.keys.push(key.id);
        account.last_place = place;
        self.hash += key_term(&key);
        self.keys.push(key);
    }

    fn revoke_key(&mut self, id: KeyId, at: Timestamp, place: Place) {
        let key = &mut self.keys[index(id.counter())];
        assert_eq!(key.id, id, "a key of this shard");
        self.hash -= key_term(key);
        key.revoked_at = Some(at);
        self.hash += key_term(key);
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
        }
        let order = Order::filled(fill, place);
        self.hash += order.term();
        self.orders.push(order);
    }

    fn add_comment(&mut self, comment: Comment, place: Place) {
        let counter = comment.id.counter();
        assert_eq!(counter, next_counter(&self.comments), "comments are numbered in order");
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

    /// The account with this id.
    pub fn account(&self, id: AccountId) -> Option<&Account> {
        let account = self.accounts.get(index(id.counter()))?;
        (account.id == id).then_some(account)
    }

    /// The account of an identity.
    pub fn account_of(&self, digest: &[u8; 32]) -> Option<&Account> {
        self.account_of.get(digest).and_then(|&id| self.account(id))
    }

    /// The key with this id.
    pub fn key(&self, id: KeyId) -> Option<&Key> {
        let key = self.keys.get(index(id.counter()))?;
        (key.id == id).then_some(key)
    }

    /// All keys of the shard, oldest first: what the key table is built from at start.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// The order with this id.
    pub fn order(&self, id: OrderId) -> Option<&Order> {
        let order = self.orders.get(index(id.counter()))?;
        (order.id == id).then_some(order)
    }

    /// The comment with this id, unless it was deleted.
    pub fn comment(&self, id: CommentId) -> Option<&Comment> {
        match self.comments.get(index(id.counter()))? {
            CommentSlot::Written(comment) if comment.id == id => Some(comment),
            _ => None,
        }
    }

    /// The order that an account calls by this name.
    pub fn order_named(&self, account: AccountId, name: NameHash) -> Option<&Order> {
        self.order_of.get(&(account, name)).and_then(|&order| self.order(order))
    }

    /// The newest record that an answer to this command rests on, when the command changes nothing.
    pub fn rests_on(&self, command: &Command) -> Place {
        let account_place = |account| self.account(account).map(|account| account.last_place);
        let order_place = |order| self.order(order).map(|order| order.last_place);
        let owner_place = |owner: &Owner| match owner {
            Owner::Account(account) => account_place(*account),
            Owner::Identity(identity) => {
                self.account_of(&identity.digest).map(|account| account.last_place)
            }
        };
        let place = match command {
            Command::OpenAccount(identity) => {
                self.account_of(&identity.digest).map(|account| account.last_place)
            }
            Command::CreateKey(create) => owner_place(&create.owner),
            Command::RevokeKey { account, .. } => account_place(*account),
            Command::Trade(trade) => owner_place(&trade.owner),
            Command::Comment { order, .. } => order_place(*order),
            Command::DeleteComment { comment, .. } => {
                self.comments.get(index(comment.counter())).and_then(|slot| match slot {
                    CommentSlot::Written(comment) => order_place(comment.order),
                    CommentSlot::Deleted(place) => Some(*place),
                })
            }
        };
        // What was never there rests on nothing.
        place.unwrap_or(Place::START)
    }

    /// All accounts, oldest first.
    pub fn accounts(&self) -> &[Account] {
        &self.accounts
    }

    /// A market that the shard has used.
    pub fn used_market(&self, market: MarketIndex) -> &UsedMarket {
        &self.markets[market.0 as usize]
    }

    /// What answers about an order are written from.
    pub fn receipt(&self, order: &Order) -> OrderReceipt {
        let market = self.used_market(order.market);
        OrderReceipt {
            order: order.id,
            account: order.account,
            market_id: market.condition_id.clone(),
            outcome: market.label(order.outcome),
            side: order.side,
            quantity: order.quantity,
            notional: order.notional,
            fee: order.fee,
            balance: order.balance,
            position_shares: order.position_shares,
            position_cost: order.position_cost,
            level_count: order.level_count,
            slippage_bps: order.slippage_bps,
            client_order_id: order.client_order_id.clone(),
            at: order.at,
        }
    }
}

impl UsedMarket {
    /// The label of an outcome.
    pub fn label(&self, outcome: OutcomeIndex) -> Arc<str> {
        self.outcomes[outcome.index()].0.clone()
    }
}

/// No client gets this far: a shard would have to hold 2⁴⁷ records of one kind.
const IDS_EXHAUSTED: Rejection = Rejection::Broken { rule: "a shard has used all of its ids" };

/// The counter of the next record of a kind.
fn next_counter<T>(records: &[T]) -> u64 {
    records.len() as u64 + 1
}

/// Where the record with this counter is.
fn index(counter: u64) -> usize {
    usize::try_from(counter - 1).expect("counters start at 1 and fit the memory they count")
}

fn key_term(key: &Key) -> StateHash {
    Term::new(TermKind::Key)
        .number(key.id.get())
        .number(key.account.get())
        .bytes(&key.grant.hash)
        .number(u64::from(key.grant.permissions.bits()) << 8 | key.grant.tier as u64)
        .signed(key.revoked_at.map_or(0, Timestamp::nanos))
        .finish()
}

#[cfg(test)]
mod tests;
