//! The state of one shard, and the record that each part of it depends on.

pub mod footprint;
pub mod hash;
pub(in crate::engine) mod heap;
pub(in crate::engine) mod overlay;
pub mod restore;
pub mod rows;
pub(in crate::engine) mod slab;
pub mod view;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::BuildHasher as _;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::engine::account::Account;
use crate::engine::command::{Identity, Owner};
use crate::engine::comment::{Comment, OrderComments};
use crate::engine::key::stored::KeyRow;
use crate::engine::market::payout::{Decided, SettledMarket};
use crate::engine::market::used::UsedMarket;
use crate::engine::order::hold::Holds;
use crate::engine::order::idempotency::NameHash;
use crate::engine::order::open::OpenOrders;
use crate::engine::order::receipt::Order;
use crate::engine::order::silences::Silences;
use crate::engine::order::table::OrderTable;
use crate::engine::state::hash::StateHash;
use crate::engine::state::slab::{Slab, Table};
use crate::ids::{
    AccountId, CommentId, MarketIndex, OrderId, OutcomeIndex, Place, ShardId, condition,
};

/// The state of one shard.
///
/// Places are stored as positions in the shard's log, with 0 for anything that has been durable
/// since before the start.
#[derive(Clone, Debug)]
pub struct State {
    pub(super) shard: ShardId,
    /// The log that the shard writes to.
    pub(super) log: u8,
    /// The number of the newest record; records are numbered without gaps.
    pub(super) sequence: u64,
    /// The place of the newest erasure in the log; 0 if there was none since the snapshot.
    pub(super) last_erasure: u64,
    /// Accounts are never removed, so the slot of each is its counter less 1.
    pub(super) accounts: Slab<Account>,
    pub(super) keys: Table<KeyRow>,
    pub(super) keys_ever: u64,
    pub(super) orders: OrderTable,
    pub(super) orders_ever: u64,
    pub(super) open: OpenOrders,
    pub(super) holds: Holds,
    pub(super) silences: Silences,
    pub(super) comments: BTreeMap<CommentId, Comment>,
    pub(super) comments_ever: u64,
    /// The comments by author.
    pub(super) comments_by: BTreeSet<(AccountId, CommentId)>,
    /// The memory of the comments' texts.
    pub(super) comment_text_bytes: usize,
    /// The comments of each order that has some.
    pub(super) comments_of: HashMap<OrderId, OrderComments, RandomState>,
    /// The log position of the newest record that removed an order, a key or a comment.
    pub(super) last_removal: u64,
    pub(super) markets: Vec<UsedMarket>,
    /// The memory of the texts that are the shard's own.
    pub(super) market_text_bytes: usize,
    /// The log position of the record that introduced each market.
    pub(super) introductions: Vec<u64>,
    /// The issuers of all accounts' identities; usually one.
    pub(super) issuers: Vec<Box<str>>,
    pub(super) account_of: HashTable<u32>,
    pub(super) hasher: RandomState,
    pub(super) market_of: HashMap<Arc<str>, MarketIndex, RandomState>,
    /// Markets that this shard settles or has settled. They take no more orders.
    pub(super) settled: BTreeMap<MarketIndex, SettledMarket>,
    /// Whether each market is one of those, which every order asks.
    pub(super) is_settled: Vec<bool>,
    /// The positions in each market, by account slot and outcome: all that there ever were, since
    /// a trade only appends its account's first, until a settlement begins and leaves those that it
    /// must pay, in order. That first look takes as long as there are positions.
    pub(super) holders: Vec<VecDeque<(u32, OutcomeIndex)>>,
    /// The settlement decisions that this shard keeps, by condition id: at most one for each market
    /// that some shard has used.
    pub(super) decisions: BTreeMap<Arc<str>, Decided>,
    pub(super) hash: StateHash,
}

impl State {
    /// The state of a new shard.
    pub fn new(shard: ShardId) -> Self {
        Self {
            shard,
            log: 0,
            sequence: 0,
            last_erasure: 0,
            accounts: Slab::new(),
            keys: Table::new(),
            keys_ever: 0,
            orders: OrderTable::new(),
            orders_ever: 0,
            open: OpenOrders::default(),
            holds: Holds::default(),
            silences: Silences::default(),
            comments: BTreeMap::new(),
            comments_ever: 0,
            comments_by: BTreeSet::new(),
            comment_text_bytes: 0,
            comments_of: HashMap::default(),
            last_removal: 0,
            markets: Vec::new(),
            market_text_bytes: 0,
            introductions: Vec::new(),
            issuers: Vec::new(),
            account_of: HashTable::new(),
            hasher: RandomState::default(),
            market_of: HashMap::default(),
            settled: BTreeMap::new(),
            is_settled: Vec::new(),
            holders: Vec::new(),
            decisions: BTreeMap::new(),
            hash: StateHash::default(),
        }
    }

    /// The shard's id.
    pub const fn shard(&self) -> ShardId {
        self.shard
    }

    /// The number of records applied.
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The hash of the whole state.
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
        let matches = |&slot: &u32| self.accounts[slot].digest == *digest;
        let slot = self.account_of.find(self.hasher.hash_one(digest), matches)?;
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

    /// The order of an account with this name.
    pub fn order_named(&self, account: AccountId, name: NameHash) -> Option<&Order> {
        self.orders.named(account, name)
    }

    /// Whether the shard settles or has settled a market.
    #[inline]
    pub fn is_settled(&self, market: MarketIndex) -> bool {
        self.is_settled.get(market.0 as usize).is_some_and(|&is_settled| is_settled)
    }

    /// The shard's index of a market, however its name is written.
    #[inline]
    pub(super) fn market_named(&self, condition_id: &str) -> Option<MarketIndex> {
        condition::find(condition_id, |name| self.market_of.get(name).copied())
    }

    /// The newest record of a market's settlement, if there is one.
    pub(super) fn settled_place(&self, condition_id: &str) -> Place {
        let market = self.market_named(condition_id);
        let settled = market.and_then(|market| self.settled.get(&market));
        settled.map_or(Place::START, |settled| self.place_at(settled.position_in_log))
    }

    /// The record that introduced a market to this shard, if it has used the market.
    pub(super) fn introduction_place(&self, condition_id: &str) -> Place {
        let market = self.market_named(condition_id);
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
        match self.account_of(&identity.digest) {
            Some(account) => self.place_at(account.position_in_log),
            None => self.no_identity_place(),
        }
    }

    /// What the absence of an identity depends on: its account may have been erased.
    pub(super) fn no_identity_place(&self) -> Place {
        self.place_at(self.last_erasure)
    }

    pub(super) fn account_place(&self, account: AccountId) -> Place {
        self.account(account).map_or(Place::START, |account| self.place_at(account.position_in_log))
    }

    /// The newest record that an order and its comments depend on, or the absence of the order.
    pub(super) fn order_place(&self, order: OrderId) -> Place {
        let Some(row) = self.order(order) else {
            return self.absence_place(order.shard(), order.counter(), self.orders_ever);
        };
        let comments = self.comments_of.get(&order);
        let commented = comments.map_or(0, |comments| comments.position_in_log);
        self.place_at(row.position_in_log().max(commented))
    }

    /// Like [`Self::order_place`], but if the order has no comments, it covers the removal of those
    /// that it may have had.
    pub(super) fn comments_place(&self, order: OrderId) -> Place {
        let place = self.order_place(order);
        let has_comments = self.comments_of.contains_key(&order);
        if has_comments { place } else { place.max(self.place_at(self.last_removal)) }
    }

    /// The newest record that the absence of an id depends on: the newest removal, or none if the
    /// id was never assigned.
    pub(super) fn absence_place(&self, shard: ShardId, counter: u64, counter_max: u64) -> Place {
        let was_assigned = shard == self.shard && counter <= counter_max;
        if was_assigned { self.place_at(self.last_removal) } else { Place::START }
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

    /// Notes that the record at this position changed an account.
    pub(super) fn touch_account(&mut self, id: AccountId, position_in_log: u64) {
        self.account_mut(id).position_in_log = position_in_log;
    }

    pub(super) fn account_mut(&mut self, id: AccountId) -> &mut Account {
        let slot = self.account_slot(id).expect("every stored row has an account");
        &mut self.accounts[slot]
    }
}
