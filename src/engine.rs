//! One shard's state: what may happen to it ([`State::decide`]) and what has happened to it
//! ([`State::apply`]).
//!
//! The engine is pure. It has no clock, no randomness and no I/O: the time and the quote come in
//! as arguments, so the same events always fold to the same state, and recovery is that fold.
//!
//! `decide` looks and never changes: it refuses with a reason, finds an earlier order that the
//! request names, or returns the facts that would follow. `apply` changes and never refuses: a fact
//! that contradicts the state ends the process, because the state or the fact is wrong. Facts that
//! come from a disk go through [`State::replay`], which is the same but tells instead.

pub mod account;
pub mod command;
pub mod comment;
pub mod contradiction;
pub mod event;
pub mod fee;
pub mod idempotency;
pub mod key;
pub mod order;
pub mod position;
pub mod rejection;
pub mod restore;
pub mod rows;
pub mod settlement;
pub mod state_hash;
pub mod view;

mod apply;
mod decide;
mod key_row;
mod order_table;
mod slab;
mod trade;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasher as _;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use account::Account;
use command::{Command, Identity, Owner};
use comment::{Comment, OrderComments};
use event::Events;
use idempotency::NameHash;
use key::Key;
use key_row::KeyRow;
use order::{Order, OrderReceipt};
use order_table::OrderTable;
use rejection::Rejection;
use settlement::{Decided, SettledMarket};
use slab::{Slab, Table};
use state_hash::StateHash;

use crate::ids::{
    AccountId, CommentId, KeyId, MarketIndex, OrderId, OutcomeIndex, Place, ShardId, Timestamp,
};
use crate::market::catalogue::Outcome;
use crate::market::quote::Quote;
use crate::money::Usd;

/// How many finished orders of an account are kept when the operator does not say.
pub const KEPT_ORDERS_MAX_DEFAULT: u32 = 100_000;

/// What the operator decides about accounts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// What a new account starts with.
    pub starting_balance: Usd,
    /// How many active keys an account may have.
    pub active_keys_max: u32,
    /// How many finished orders of an account are kept, with their names and comments: the newest.
    /// At least 1.
    pub kept_orders_max: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            starting_balance: Usd::from_micros(1_000_000_000),
            active_keys_max: 5,
            kept_orders_max: KEPT_ORDERS_MAX_DEFAULT,
        }
    }
}

/// What follows from a command that was not refused.
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

/// The state of one shard.
///
/// Places are kept as positions in the shard's log, 0 for what is on disk since before the start.
#[derive(Clone, Debug)]
pub struct State {
    shard: ShardId,
    /// The log that its records go to.
    log: u8,
    /// The record that was applied last; records are contiguous within a shard.
    sequence: u64,
    /// Accounts are never taken away: each stands at its counter less 1.
    accounts: Slab<Account>,
    keys: Table<KeyRow>,
    keys_ever: u64,
    orders: OrderTable,
    orders_ever: u64,
    comments: BTreeMap<CommentId, Comment>,
    comments_ever: u64,
    /// The comments of each order that has any.
    comments_of: HashMap<OrderId, OrderComments, RandomState>,
    /// The newest record that took an order, a key or a comment away: its position in the log.
    last_removal: u64,
    markets: Vec<UsedMarket>,
    /// The record that introduced each of them: its position in the log.
    introductions: Vec<u64>,
    /// Whoever has vouched for an account: one issuer, or as many as there ever were.
    issuers: Vec<Box<str>>,
    account_of: HashTable<u32>,
    hasher: RandomState,
    market_of: HashMap<Arc<str>, MarketIndex, RandomState>,
    /// Markets that this shard settles or has settled: no order touches them again.
    settled: BTreeMap<MarketIndex, SettledMarket>,
    /// Positions with shares, each by the slot of its account: what a settlement has to pay.
    open_positions: BTreeSet<(MarketIndex, u32, OutcomeIndex)>,
    /// How markets were resolved whose decisions are kept here, by condition id: at most one for
    /// each market that some shard has used.
    decisions: BTreeMap<Arc<str>, Decided>,
    hash: StateHash,
}

impl State {
    /// A shard to which nothing has happened.
    pub fn new(shard: ShardId) -> Self {
        Self {
            shard,
            log: 0,
            sequence: 0,
            accounts: Slab::new(),
            keys: Table::new(),
            keys_ever: 0,
            orders: OrderTable::new(),
            orders_ever: 0,
            comments: BTreeMap::new(),
            comments_ever: 0,
            comments_of: HashMap::default(),
            last_removal: 0,
            markets: Vec::new(),
            introductions: Vec::new(),
            issuers: Vec::new(),
            account_of: HashTable::new(),
            hasher: RandomState::default(),
            market_of: HashMap::default(),
            settled: BTreeMap::new(),
            open_positions: BTreeSet::new(),
            decisions: BTreeMap::new(),
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

    /// What would follow from a command, at this time, on this quote; nothing changes. `quote` is
    /// that of the market that a trade names, `None` where there is no such market.
    pub fn decide(
        &self,
        command: &Command,
        quote: Option<&Quote<'_>>,
        now: Timestamp,
        rules: &Rules,
    ) -> Result<Verdict, Rejection> {
        match command {
            Command::OpenAccount(identity) => self.decide_open(identity, now, rules),
            Command::CreateKey(create) => self.decide_create_key(create, now, rules),
            Command::RenameKey { account, key, name, asked_with } => {
                self.decide_rename(*account, *key, name.as_deref(), *asked_with, now)
            }
            Command::RotateKey(rotate) => self.decide_rotate(rotate, now),
            Command::RevokeKey { account, key, descendants } => {
                self.decide_revoke(*account, *key, *descendants, now)
            }
            Command::Trade(trade) => trade::decide(self, trade, quote, now, rules),
            Command::Comment { order, author, content } => {
                self.decide_comment(*order, *author, content, now)
            }
            Command::DeleteComment { comment, author } => self.decide_delete(*comment, *author),
            Command::DecideSettlement(decision) => self.decide_settlement(decision, now),
            Command::Settle(decision) => self.decide_settle(decision, now),
        }
    }

    /// The account with this id.
    pub fn account(&self, id: AccountId) -> Option<&Account> {
        self.account_slot(id).map(|slot| &self.accounts[slot])
    }

    fn account_slot(&self, id: AccountId) -> Option<u32> {
        let slot = u32::try_from(id.counter() - 1).ok()?;
        (id.shard() == self.shard && (slot as usize) < self.accounts.len()).then_some(slot)
    }

    /// The account of an identity.
    pub fn account_of(&self, digest: &[u8; 32]) -> Option<&Account> {
        let is_it = |&slot: &u32| self.accounts[slot].digest == *digest;
        let slot = self.account_of.find(self.hasher.hash_one(digest), is_it)?;
        Some(&self.accounts[*slot])
    }

    /// The key with this id, unless it was forgotten.
    pub fn key(&self, id: KeyId) -> Option<Key> {
        self.keys.slot(id).map(|slot| self.unpacked(&self.keys[slot]))
    }

    /// The order with this id, unless it was forgotten.
    pub fn order(&self, id: OrderId) -> Option<&Order> {
        self.orders.get(id)
    }

    /// The comment with this id, unless it was deleted or forgotten with its order.
    pub fn comment(&self, id: CommentId) -> Option<&Comment> {
        self.comments.get(&id)
    }

    /// The order that an account calls by this name.
    pub fn order_named(&self, account: AccountId, name: NameHash) -> Option<&Order> {
        self.orders.named(account, name)
    }

    /// The newest record that an answer to this command rests on, when the command changes nothing.
    pub fn rests_on(&self, command: &Command) -> Place {
        let owner_place = |owner: &Owner| match owner {
            Owner::Account(account) => self.account_place(*account),
            Owner::Identity(identity) => self.identity_place(identity),
        };
        match command {
            Command::OpenAccount(identity) => self.identity_place(identity),
            Command::CreateKey(create) => owner_place(&create.owner),
            Command::RotateKey(rotate) => self.account_place(rotate.account),
            Command::RenameKey { account, .. } | Command::RevokeKey { account, .. } => {
                self.account_place(*account)
            }
            Command::Trade(trade) => {
                owner_place(&trade.owner).max(self.settled_place(&trade.order().market_id))
            }
            Command::Comment { order, .. } => self.comments_place(*order),
            Command::DeleteComment { comment, .. } => match self.comment(*comment) {
                Some(comment) => self.comments_place(comment.order),
                None => self.absence_place(comment.shard(), comment.counter(), self.comments_ever),
            },
            // Decisions are never taken away: that there is none rests on nothing.
            Command::DecideSettlement(decision) => self
                .decision(&decision.condition_id)
                .map_or(Place::START, |decided| self.place_at(decided.position_in_log)),
            Command::Settle(decision) => self.settled_place(&decision.condition_id),
        }
    }

    /// The newest record that this refusal of a command rests on.
    pub fn refusal_rests_on(&self, command: &Command, rejection: &Rejection) -> Place {
        let market = match (rejection, command) {
            // It tells how this shard has used the market.
            (Rejection::MarketChanged, Command::Trade(trade)) => &*trade.order().market_id,
            (Rejection::MarketChanged, Command::Settle(decision)) => &*decision.condition_id,
            _ => return self.rests_on(command),
        };
        self.rests_on(command).max(self.introduction_place(market))
    }

    /// What it rests on that a market is settled, if it is.
    fn settled_place(&self, condition_id: &str) -> Place {
        let market = self.market_of.get(condition_id);
        let settled = market.and_then(|market| self.settled.get(market));
        settled.map_or(Place::START, |settled| self.place_at(settled.position_in_log))
    }

    /// What it rests on which outcomes this shard has used a market with, if it has.
    fn introduction_place(&self, condition_id: &str) -> Place {
        let market = self.market_of.get(condition_id);
        market.map_or(Place::START, |market| self.place_at(self.introductions[market.0 as usize]))
    }

    fn identity_place(&self, identity: &Identity) -> Place {
        // Accounts are never taken away: that there is none rests on nothing.
        self.account_of(&identity.digest)
            .map_or(Place::START, |account| self.place_at(account.position_in_log))
    }

    fn account_place(&self, account: AccountId) -> Place {
        self.account(account).map_or(Place::START, |account| self.place_at(account.position_in_log))
    }

    /// What an order rests on, with the comments that it has, or that there is none with this id.
    fn order_place(&self, order: OrderId) -> Place {
        let Some(row) = self.order(order) else {
            return self.absence_place(order.shard(), order.counter(), self.orders_ever);
        };
        let comments = self.comments_of.get(&order);
        let commented = comments.map_or(0, |comments| comments.position_in_log);
        self.place_at(row.position_in_log().max(commented))
    }

    /// What the comments of an order rest on, and the order itself. One without comments may have
    /// had some.
    fn comments_place(&self, order: OrderId) -> Place {
        let place = self.order_place(order);
        let has_comments = self.comments_of.contains_key(&order);
        if has_comments { place } else { place.max(self.place_at(self.last_removal)) }
    }

    /// What it rests on that something is not there: the newest removal, if it was there once.
    fn absence_place(&self, shard: ShardId, counter: u64, counter_max: u64) -> Place {
        let was_there = shard == self.shard && counter <= counter_max;
        if was_there { self.place_at(self.last_removal) } else { Place::START }
    }

    fn place_at(&self, position_in_log: u64) -> Place {
        match position_in_log {
            0 => Place::START,
            position => Place::new(self.log, position),
        }
    }

    /// The markets that the shard has used.
    pub fn used_markets(&self) -> &[UsedMarket] {
        &self.markets
    }

    /// A market that the shard has used.
    pub fn used_market(&self, market: MarketIndex) -> &UsedMarket {
        &self.markets[market.0 as usize]
    }

    /// What answers about an order are written from.
    pub fn receipt(&self, order: &Order) -> OrderReceipt {
        order.receipt(self.used_market(order.market()))
    }
}

impl UsedMarket {
    /// Whether these outcomes mean what was meant when the market was first used. Labels may be
    /// mended; tokens are what pays.
    fn is_still(&self, outcomes: &[Outcome]) -> bool {
        let tokens = outcomes.iter().map(|outcome| &outcome.token_id);
        self.outcomes.iter().map(|(_, token_id)| token_id).eq(tokens)
    }

    /// The label of an outcome.
    pub fn label(&self, outcome: OutcomeIndex) -> Arc<str> {
        self.outcomes[outcome.index()].0.clone()
    }
}

/// No client gets this far: a shard would have to hold 2⁴⁷ records of one kind.
const IDS_EXHAUSTED: Rejection = Rejection::Broken { rule: "a shard has used all of its ids" };

#[cfg(test)]
mod tests;
