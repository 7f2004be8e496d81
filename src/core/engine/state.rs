//! The state of one shard, and the journal record that each part of it depends on.

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
use crate::engine::order::delay::Delays;
use crate::engine::order::idempotency::NameHash;
use crate::engine::order::open::OpenOrders;
use crate::engine::order::receipt::Order;
use crate::engine::order::silences::Silences;
use crate::engine::order::table::OrderTable;
use crate::engine::state::hash::StateHash;
use crate::engine::state::slab::{Slab, Table};
use crate::ids::{
    AccountId, CommentId, Lsn, MarketIndex, OrderId, OutcomeIndex, ShardId, condition,
};

/// The state of one shard.
///
/// LSNs are stored as positions in the shard's log. Position 0 stands for anything that
/// was already durable when the process started.
#[derive(Clone, Debug)]
pub struct State {
    pub(super) shard: ShardId,
    /// The log that the shard writes to.
    pub(super) log: u8,
    /// The number of the newest record; records are numbered without gaps.
    pub(super) sequence: u64,
    /// The log position of the newest erasure of an account; 0 if there was none since the
    /// snapshot.
    pub(super) last_erasure: u64,
    /// Accounts are never removed, so an account's slot is its counter minus 1.
    pub(super) accounts: Slab<Account>,
    pub(super) keys: Table<KeyRow>,
    pub(super) keys_ever: u64,
    pub(super) orders: OrderTable,
    pub(super) orders_ever: u64,
    pub(super) open: OpenOrders,
    pub(super) delays: Delays,
    pub(super) silences: Silences,
    pub(super) comments: BTreeMap<CommentId, Comment>,
    pub(super) comments_ever: u64,
    /// The ids of the comments, by author.
    pub(super) comments_by: BTreeSet<(AccountId, CommentId)>,
    /// The heap memory of all comment texts, in bytes.
    pub(super) comment_text_bytes: usize,
    /// The comments by order. Orders without comments have no entry.
    pub(super) comments_of: HashMap<OrderId, OrderComments, RandomState>,
    /// The log position of the newest record that removed an order, a key or a comment.
    pub(super) last_removal: u64,
    pub(super) markets: Vec<UsedMarket>,
    /// The heap memory of the market texts that this shard owns, in bytes.
    pub(super) market_text_bytes: usize,
    /// The log position of the record that introduced each market.
    pub(super) introductions: Vec<u64>,
    /// The issuers of all accounts' identities; usually there is only one.
    pub(super) issuers: Vec<Box<str>>,
    pub(super) account_of: HashTable<u32>,
    pub(super) hasher: RandomState,
    pub(super) market_of: HashMap<Arc<str>, MarketIndex, RandomState>,
    /// Markets that this shard is settling or has settled. They accept no more orders.
    pub(super) settled: BTreeMap<MarketIndex, SettledMarket>,
    /// Whether each market has an entry in `settled`, by index. Every order checks this.
    pub(super) is_settled: Vec<bool>,
    /// The positions in each market, by account slot and outcome. Until a settlement begins, the
    /// list holds every position ever opened, since trades only ever append to it. The settlement
    /// first drops the closed positions and sorts the open ones, which it must pay. That pass is
    /// linear in the number of positions.
    pub(super) holders: Vec<VecDeque<(u32, OutcomeIndex)>>,
    /// The settlement decisions that this shard keeps, by condition id: at most one for each market
    /// that any shard has used.
    pub(super) decisions: BTreeMap<Arc<str>, Decided>,
    pub(super) hash: StateHash,
}

impl State {
    /// Creates the state of a new shard.
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
            delays: Delays::default(),
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

    /// Returns the shard's id.
    pub const fn shard(&self) -> ShardId {
        self.shard
    }

    /// Returns the number of records applied.
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns the hash of the whole state.
    pub const fn hash(&self) -> StateHash {
        self.hash
    }

    /// Returns the account with this id, if this shard has opened it.
    pub fn account(&self, id: AccountId) -> Option<&Account> {
        self.account_slot(id).map(|slot| &self.accounts[slot])
    }

    pub(super) fn account_slot(&self, id: AccountId) -> Option<u32> {
        let slot = u32::try_from(id.counter() - 1).ok()?;
        (id.shard() == self.shard && (slot as usize) < self.accounts.len()).then_some(slot)
    }

    /// Returns the account of the identity with this digest.
    pub fn account_of(&self, digest: &[u8; 32]) -> Option<&Account> {
        let matches = |&slot: &u32| self.accounts[slot].digest == *digest;
        let slot = self.account_of.find(self.hasher.hash_one(digest), matches)?;
        Some(&self.accounts[*slot])
    }

    /// Returns the order with this id, unless it was forgotten.
    pub fn order(&self, id: OrderId) -> Option<&Order> {
        self.orders.get(id)
    }

    /// Returns the comment with this id, unless it was deleted or forgotten with its order.
    pub fn comment(&self, id: CommentId) -> Option<&Comment> {
        self.comments.get(&id)
    }

    /// Returns the account's order with this name.
    pub fn order_named(&self, account: AccountId, name: NameHash) -> Option<&Order> {
        self.orders.named(account, name)
    }

    /// Whether the shard is settling or has settled a market.
    #[inline]
    pub fn is_settled(&self, market: MarketIndex) -> bool {
        self.is_settled.get(market.0 as usize).is_some_and(|&is_settled| is_settled)
    }

    /// Returns the index of the market with this condition id, in any spelling, if the shard has
    /// used the market.
    #[inline]
    pub(super) fn market_named(&self, condition_id: &str) -> Option<MarketIndex> {
        condition::find(condition_id, |name| self.market_of.get(name).copied())
    }

    /// Returns the LSN of the newest record of a market's settlement, or [`Lsn::START`] if
    /// there is no such record.
    pub(super) fn settled_lsn(&self, condition_id: &str) -> Lsn {
        let market = self.market_named(condition_id);
        let settled = market.and_then(|market| self.settled.get(&market));
        settled.map_or(Lsn::START, |settled| self.lsn_at(settled.position_in_log))
    }

    /// Returns the LSN of the record that introduced a market to this shard, or [`Lsn::START`]
    /// if the shard has not used it.
    pub(super) fn introduction_lsn(&self, condition_id: &str) -> Lsn {
        let market = self.market_named(condition_id);
        market.map_or(Lsn::START, |market| self.lsn_at(self.introductions[market.0 as usize]))
    }

    /// Returns the LSN of the newest record that changed the owner's account.
    pub(super) fn owner_lsn(&self, owner: &Owner) -> Lsn {
        match owner {
            Owner::Account(account) => self.account_lsn(*account),
            Owner::Identity(identity) => self.identity_lsn(identity),
        }
    }

    pub(super) fn identity_lsn(&self, identity: &Identity) -> Lsn {
        match self.account_of(&identity.digest) {
            Some(account) => self.lsn_at(account.position_in_log),
            None => self.no_identity_lsn(),
        }
    }

    /// Returns the LSN that the absence of an identity depends on: the newest erasure, which may
    /// have removed its account.
    pub(super) fn no_identity_lsn(&self) -> Lsn {
        self.lsn_at(self.last_erasure)
    }

    pub(super) fn account_lsn(&self, account: AccountId) -> Lsn {
        self.account(account).map_or(Lsn::START, |account| self.lsn_at(account.position_in_log))
    }

    /// Returns the LSN of the newest record that an order and its comments depend on. If the
    /// order is absent, returns the LSN that its absence depends on.
    pub(super) fn order_lsn(&self, order: OrderId) -> Lsn {
        let Some(row) = self.order(order) else {
            return self.absence_lsn(order.shard(), order.counter(), self.orders_ever);
        };
        let comments = self.comments_of.get(&order);
        let commented = comments.map_or(0, |comments| comments.position_in_log);
        self.lsn_at(row.position_in_log().max(commented))
    }

    /// Like [`Self::order_lsn`], but if the order has no comments, also covers the newest
    /// removal, which may have deleted them.
    pub(super) fn comments_lsn(&self, order: OrderId) -> Lsn {
        let lsn = self.order_lsn(order);
        let has_comments = self.comments_of.contains_key(&order);
        if has_comments { lsn } else { lsn.max(self.lsn_at(self.last_removal)) }
    }

    /// Returns the LSN that the absence of an id depends on: the newest removal, or
    /// [`Lsn::START`] if the id was never assigned.
    pub(super) fn absence_lsn(&self, shard: ShardId, counter: u64, counter_max: u64) -> Lsn {
        let was_assigned = shard == self.shard && counter <= counter_max;
        if was_assigned { self.lsn_at(self.last_removal) } else { Lsn::START }
    }

    pub(super) fn lsn_at(&self, position_in_log: u64) -> Lsn {
        match position_in_log {
            0 => Lsn::START,
            position => Lsn::new(self.log, position),
        }
    }

    /// Returns the markets that the shard has used, by index.
    pub fn used_markets(&self) -> &[UsedMarket] {
        &self.markets
    }

    /// Returns the market with this index.
    ///
    /// # Panics
    ///
    /// If the shard has not used a market with this index.
    pub fn used_market(&self, market: MarketIndex) -> &UsedMarket {
        &self.markets[market.0 as usize]
    }

    /// Marks an account as changed by the record at this log position.
    pub(super) fn touch_account(&mut self, id: AccountId, position_in_log: u64) {
        self.account_mut(id).position_in_log = position_in_log;
    }

    pub(super) fn account_mut(&mut self, id: AccountId) -> &mut Account {
        let slot = self.account_slot(id).expect("every stored row has an account");
        &mut self.accounts[slot]
    }
}
