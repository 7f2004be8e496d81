//! The state of one shard: what stands in it, and the record that each part of it rests on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasher as _;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::account::Account;
use super::command::{Identity, Owner};
use super::comment::{Comment, OrderComments};
use super::idempotency::NameHash;
use super::key_row::KeyRow;
use super::order::Order;
use super::order_table::OrderTable;
use super::payout::{Decided, SettledMarket};
use super::slab::{Slab, Table};
use super::state_hash::StateHash;
use super::used_market::UsedMarket;
use crate::ids::{AccountId, CommentId, MarketIndex, OrderId, OutcomeIndex, Place, ShardId};

/// The state of one shard.
///
/// Places are kept as positions in the shard's log, 0 for what is on disk since before the start.
#[derive(Clone, Debug)]
pub struct State {
    pub(super) shard: ShardId,
    /// The log that its records go to.
    pub(super) log: u8,
    /// The record that was applied last; records are contiguous within a shard.
    pub(super) sequence: u64,
    /// Accounts are never taken away: each stands at its counter less 1.
    pub(super) accounts: Slab<Account>,
    pub(super) keys: Table<KeyRow>,
    pub(super) keys_ever: u64,
    pub(super) orders: OrderTable,
    pub(super) orders_ever: u64,
    pub(super) comments: BTreeMap<CommentId, Comment>,
    pub(super) comments_ever: u64,
    /// The comments of each order that has any.
    pub(super) comments_of: HashMap<OrderId, OrderComments, RandomState>,
    /// The newest record that took an order, a key or a comment away: its position in the log.
    pub(super) last_removal: u64,
    pub(super) markets: Vec<UsedMarket>,
    /// The record that introduced each of them: its position in the log.
    pub(super) introductions: Vec<u64>,
    /// Whoever has vouched for an account: one issuer, or as many as there ever were.
    pub(super) issuers: Vec<Box<str>>,
    pub(super) account_of: HashTable<u32>,
    pub(super) hasher: RandomState,
    pub(super) market_of: HashMap<Arc<str>, MarketIndex, RandomState>,
    /// Markets that this shard settles or has settled: no order touches them again.
    pub(super) settled: BTreeMap<MarketIndex, SettledMarket>,
    /// Positions with shares, each by the slot of its account: what a settlement has to pay.
    pub(super) open_positions: BTreeSet<(MarketIndex, u32, OutcomeIndex)>,
    /// How markets were resolved whose decisions are kept here, by condition id: at most one for
    /// each market that some shard has used.
    pub(super) decisions: BTreeMap<Arc<str>, Decided>,
    pub(super) hash: StateHash,
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

    /// The account with this id.
    pub fn account(&self, id: AccountId) -> Option<&Account> {
        self.account_slot(id).map(|slot| &self.accounts[slot])
    }

    pub(super) fn account_slot(&self, id: AccountId) -> Option<u32> {
        let slot = u32::try_from(id.counter() - 1).ok()?;
        (id.shard() == self.shard && (slot as usize) < self.accounts.len()).then_some(slot)
    }

    /// The account of an identity.
    pub fn account_of(&self, digest: &[u8; 32]) -> Option<&Account> {
        let is_it = |&slot: &u32| self.accounts[slot].digest == *digest;
        let slot = self.account_of.find(self.hasher.hash_one(digest), is_it)?;
        Some(&self.accounts[*slot])
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

    /// What it rests on that a market is settled, if it is.
    pub(super) fn settled_place(&self, condition_id: &str) -> Place {
        let market = self.market_of.get(condition_id);
        let settled = market.and_then(|market| self.settled.get(market));
        settled.map_or(Place::START, |settled| self.place_at(settled.position_in_log))
    }

    /// What it rests on which outcomes this shard has used a market with, if it has.
    pub(super) fn introduction_place(&self, condition_id: &str) -> Place {
        let market = self.market_of.get(condition_id);
        market.map_or(Place::START, |market| self.place_at(self.introductions[market.0 as usize]))
    }

    /// The newest record that changed the account of an owner.
    pub(super) fn owner_place(&self, owner: &Owner) -> Place {
        match owner {
            Owner::Account(account) => self.account_place(*account),
            Owner::Identity(identity) => self.identity_place(identity),
        }
    }

    pub(super) fn identity_place(&self, identity: &Identity) -> Place {
        // Accounts are never taken away: that there is none rests on nothing.
        self.account_of(&identity.digest)
            .map_or(Place::START, |account| self.place_at(account.position_in_log))
    }

    pub(super) fn account_place(&self, account: AccountId) -> Place {
        self.account(account).map_or(Place::START, |account| self.place_at(account.position_in_log))
    }

    /// What an order rests on, with the comments that it has, or that there is none with this id.
    pub(super) fn order_place(&self, order: OrderId) -> Place {
        let Some(row) = self.order(order) else {
            return self.absence_place(order.shard(), order.counter(), self.orders_ever);
        };
        let comments = self.comments_of.get(&order);
        let commented = comments.map_or(0, |comments| comments.position_in_log);
        self.place_at(row.position_in_log().max(commented))
    }

    /// What the comments of an order rest on, and the order itself. One without comments may have
    /// had some.
    pub(super) fn comments_place(&self, order: OrderId) -> Place {
        let place = self.order_place(order);
        let has_comments = self.comments_of.contains_key(&order);
        if has_comments { place } else { place.max(self.place_at(self.last_removal)) }
    }

    /// What it rests on that something is not there: the newest removal, if it was there once.
    pub(super) fn absence_place(&self, shard: ShardId, counter: u64, counter_max: u64) -> Place {
        let was_there = shard == self.shard && counter <= counter_max;
        if was_there { self.place_at(self.last_removal) } else { Place::START }
    }

    pub(super) fn place_at(&self, position_in_log: u64) -> Place {
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

    /// The account of something that is kept, which this record has changed.
    pub(super) fn touch_account(&mut self, id: AccountId, position_in_log: u64) {
        self.account_mut(id).position_in_log = position_in_log;
    }

    pub(super) fn account_mut(&mut self, id: AccountId) -> &mut Account {
        let slot = self.account_slot(id).expect("what is kept has an account");
        &mut self.accounts[slot]
    }
}
