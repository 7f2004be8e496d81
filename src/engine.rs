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

mod apply;
mod decide;
mod trade;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use account::Account;
use command::{Command, Identity, Owner};
use comment::Comment;
use event::Events;
use idempotency::NameHash;
use key::Key;
use order::{Order, OrderReceipt};
use rejection::Rejection;
use state_hash::StateHash;

use crate::ids::{
    AccountId, CommentId, KeyId, MarketIndex, OrderId, OutcomeIndex, Place, ShardId, Timestamp,
};
use crate::market::MarketSnapshot;
use crate::market::catalogue::MarketInfo;
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
        let identity_place = |identity: &Identity| {
            self.account_of(&identity.digest).map(|account| account.last_place)
        };
        let owner_place = |owner: &Owner| match owner {
            Owner::Account(account) => account_place(*account),
            Owner::Identity(identity) => identity_place(identity),
        };
        let place = match command {
            Command::OpenAccount(identity) => identity_place(identity),
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
    /// Whether the catalogue means by each outcome what was meant when the market was first used.
    /// Labels may be mended; tokens are what pays.
    fn is_still(&self, info: &MarketInfo) -> bool {
        let tokens = info.outcomes.iter().map(|outcome| &outcome.token_id);
        self.outcomes.iter().map(|(_, token_id)| token_id).eq(tokens)
    }

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

#[cfg(test)]
mod tests;
