//! The use cases: the only module that combines markets, shards, limits and credentials.
//!
//! A method takes the caller and a typed, validated request, and returns domain values or an error.
//! It is independent of HTTP: no headers, no status codes, no JSON.

mod access;
mod accounts;
mod author_gates;
#[cfg(test)]
mod clocks;
mod comments;
mod equity;
mod events;
mod executions;
mod footprint;
mod heartbeat_chains;
mod keys;
mod managed;
mod markets;
pub mod matcher;
#[cfg(test)]
mod memory;
mod orders;
mod public;
mod rate_rule;
mod reads;
mod search;
pub mod settlement;
mod undo;
mod updown;
mod wallets;

pub use access::{Admission, Caller, Denied, Makes, SocketCaller, TokenCaller, Wallet};
pub use accounts::{AccountReset, Balance, MarkedPosition, Portfolio, PositionStatus};
pub use equity::{EQUITY_HOURS_MAX, EquityHistory};
pub use events::{EventFilter, EventMarkets, EventPage};
pub use heartbeat_chains::HeartbeatId;
pub use keys::{KeyListing, NewKey, NewKeyRequest};
pub use markets::{
    MarketFilter, MarketOrder, MarketPage, MarketValue, OutcomeSnapshot, Period, SearchText, Stage,
    is_hot,
};
pub use orders::{
    CancelRequest, ChainedBeat, OnlyOrder, OrderList, OrderRequest, OrdersRequest, PlaceRequest,
};
pub use paperbourse_core::clock::Moment;
pub use public::TradedPosition;
pub use rate_rule::RateRule;
pub use search::{
    Bounds, EventSearch, EventTotals, FoundEvent, FoundEvents, MarketSearch, market_number,
};
pub use undo::UndoOutcome;
pub use updown::UpDownList;
pub use wallets::{KnownWallets, WrongMasterKey};

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::Instant;

use crate::auth::api_key::KeyHash;
use crate::auth::identity::IdentitySource;
use crate::auth::key_table::{KEYS_MAX, KeyEntry, KeyFacts, KeyTable};
use crate::auth::ws_token::WsTokens;
use crate::shard::{DelayedOrders, OpenOrderBoard, Refusal, Room, Shards};
use access::{AccessLimits, limit_by_tier};
use author_gates::AuthorGates;
use heartbeat_chains::HeartbeatChains;
use paperbourse_clob::credentials::MasterKey;
use paperbourse_core::engine::State;
use paperbourse_core::engine::admin::standing::Act;
use paperbourse_core::engine::event::Event;
use paperbourse_core::engine::key::{Key, KeyGrant};
use paperbourse_core::engine::rejection::Rejection;
use paperbourse_core::ids::ShardId;
use paperbourse_core::limits::bucket::{AccountRates, AddressRules};
use paperbourse_core::limits::tier::{Tier, TierLimits, TierTable, Tiers};
use paperbourse_core::market::Markets;
use paperbourse_store::journal::Waiters;
use wallets::WalletContracts;

/// All keys of the server, each with its rate limiter.
pub type Keys = KeyTable;

/// Serves the use cases.
pub struct Service {
    markets: Arc<Markets>,
    shards: Arc<Shards>,
    keys: Arc<Keys>,
    issuer: IdentitySource,
    ws_tokens: WsTokens,
    tiers: Arc<TierTable>,
    /// The tier of an access token that names none, as an index in [`Tier::ALL`].
    default_tier: AtomicU8,
    access: AccessLimits,
    authors: AuthorGates,
    heartbeat_chains: HeartbeatChains,
    /// The key from which the credentials of wallets are derived; `None` if wallets may not call.
    master_key: Option<Arc<MasterKey>>,
    contracts: WalletContracts,
}

/// The parts of a [`Service`].
pub struct Parts {
    /// The markets that the venue's feed publishes.
    pub markets: Arc<Markets>,
    /// The recovered shards.
    pub shards: Arc<Shards>,
    /// The keys of all shards.
    pub keys: Arc<Keys>,
    /// Verifies access tokens.
    pub issuer: IdentitySource,
    /// Signs and verifies socket tokens.
    pub ws_tokens: WsTokens,
    /// The limits of each tier.
    pub tiers: Arc<TierTable>,
    /// The tier of an access token that names none.
    pub default_tier: Tier,
    /// Limits per address for callers without a valid key; `None` for no limits.
    pub address_rules: Option<AddressRules>,
    /// The limits of an account other than those on its requests.
    pub account_rates: AccountRates,
}

/// The limits that can change while requests are served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The limits of each tier.
    pub tiers: Tiers,
    /// The tier of an access token that names none.
    pub default_tier: Tier,
    /// Limits per address for callers without a valid key; `None` for no limits.
    pub address_rules: Option<AddressRules>,
    /// The limits of an account other than those on its requests.
    pub account_rates: AccountRates,
}

/// The context in which a use case serves a request.
#[derive(Clone, Copy)]
pub struct RequestContext<'a> {
    /// The time at which the request is served.
    pub moment: Moment,
    /// The client's address.
    pub address: IpAddr,
    /// Wakes this worker's requests that wait for the disk.
    pub waiters: &'a Arc<Waiters>,
}

/// A page of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// Maximum number of rows to return.
    pub limit: usize,
    /// Number of rows to skip.
    pub offset: usize,
}

/// The error of a failed use case.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ServiceError {
    /// The shard refused the command.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The caller is not allowed to do this.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The batch has more entries than the caller's tier allows.
    #[error("{count} entries in one request: the tier {} allows {batch_max}", .tier.as_str())]
    BatchTooLong {
        /// Number of entries sent.
        count: usize,
        /// Maximum number of entries that the tier allows.
        batch_max: u32,
        /// The caller's tier.
        tier: Tier,
    },
    /// No market has the slug.
    #[error("no market has the slug {slug}")]
    SlugNotFound {
        /// The slug in the request.
        slug: Box<str>,
    },
    /// No outcome of any market has the token.
    #[error("no outcome has this token")]
    TokenNotFound,
    /// The wallet does not exist, or belongs to another account.
    #[error("no such wallet")]
    WalletNotFound,
    /// The venue has not published a book for the outcome.
    #[error("no order book is known for this outcome")]
    NoBook,
    /// The table of keys is full.
    #[error("the server has as many keys as it can hold")]
    KeysFull,
    /// The operating system supplied no random bytes for a new key or a heartbeat's name.
    #[error("the system gives no random bytes")]
    NoRandomBytes,
}

impl From<Rejection> for ServiceError {
    fn from(rejection: Rejection) -> Self {
        Self::Refused(Refusal::Rejected(rejection))
    }
}

impl Service {
    /// Assembles a service from its parts.
    pub fn new(parts: Parts) -> Self {
        Self {
            markets: parts.markets,
            shards: parts.shards,
            keys: parts.keys,
            issuer: parts.issuer,
            ws_tokens: parts.ws_tokens,
            tiers: parts.tiers,
            default_tier: AtomicU8::new(parts.default_tier as u8),
            access: AccessLimits::new(parts.address_rules, parts.account_rates),
            authors: AuthorGates::default(),
            heartbeat_chains: HeartbeatChains::default(),
            master_key: None,
            contracts: WalletContracts::default(),
        }
    }

    /// Reads both clocks.
    pub fn moment(&self) -> Moment {
        Moment::at(Instant::now())
    }

    /// Returns the markets.
    pub fn markets(&self) -> &Arc<Markets> {
        &self.markets
    }

    /// Returns the shards, for those who follow what happens in them.
    pub fn shards(&self) -> &Arc<Shards> {
        &self.shards
    }

    /// Waits until every fill so far is counted in the volumes of candles. Used at shutdown.
    pub async fn deliver_facts(&self) {
        self.shards.deliver_facts().await;
    }

    /// Returns the counts of all accounts' open orders.
    pub fn open_orders(&self) -> &OpenOrderBoard {
        self.shards.open_orders()
    }

    /// Returns the orders that wait for the venue's delay.
    pub fn delayed_orders(&self) -> &DelayedOrders {
        self.shards.delayed_orders()
    }

    /// Runs a task once a shard is known to make progress, which is soon unless the shard hangs.
    pub fn when_shard_progresses(
        &self,
        shard: ShardId,
        task: impl FnOnce() + Clone + Send + 'static,
    ) {
        self.shards.when_it_progresses(shard, task);
    }

    /// Returns the number of accounts.
    pub fn account_count(&self) -> usize {
        self.shards.account_count()
    }

    /// Returns the memory watch's verdict on whether the process may use more memory.
    pub fn room(&self) -> &Room {
        self.shards.room()
    }

    /// Returns the limits of each tier.
    pub fn tiers(&self) -> &TierTable {
        &self.tiers
    }

    /// Returns the number of keys in the table.
    pub fn key_count(&self) -> usize {
        self.keys.key_count()
    }
}

/// Builds the key table at startup from the recovered states.
pub fn key_table<'a>(
    states: impl Iterator<Item = &'a State>,
    tiers: &Tiers,
) -> Result<Keys, ServiceError> {
    let keys = Keys::new(KEYS_MAX);
    for state in states {
        // Ordered by id, so a key comes after the one it replaced.
        for key in state.keys() {
            if !keys.has_room() {
                return Err(ServiceError::KeysFull);
            }
            let maker = key.created_by.and_then(|maker| state.key(maker));
            let old = maker.filter(|maker| key.succeeds(maker));
            let old = old.map(|old| KeyHash::from_bytes(old.grant.hash));
            let limits = *tiers.get(key.grant.tier);
            insert_key(&keys, facts_of(&key), &key.grant, old.as_ref(), limits);
            if key.revoked_at.is_some() {
                keys.revoke(&KeyHash::from_bytes(key.grant.hash));
            }
        }
    }
    Ok(keys)
}

/// Returns an observer that keeps the key table in step with the shards. A shard calls the observer
/// for each event that it applies, in the shard's own order: a created key is inserted, a rotated
/// one gets its expiry, a revoked one is refused from then on, and a forgotten one is removed. An
/// operator may give all keys of an account another tier, or erase them with the account. A
/// recovery calls the observer as well, for a table that was built from the states at some earlier
/// record.
///
/// An event that contradicts the state changes nothing in the table. The state then refuses the
/// event.
///
/// The table does not wait for the disk. Refusing a key too early is safe. Accepting a new key
/// early is safe, too: no client has the key before the answer that carries it, and that answer
/// waits for the disk. A key inserted after its own revocation, however, would stay valid.
pub fn key_observer(keys: Arc<Keys>, tiers: Arc<TierTable>) -> crate::shard::Observer {
    let hash_of = |state: &State, key| Some(KeyHash::from_bytes(state.key(key)?.grant.hash));
    Box::new(move |event, state| match event {
        Event::KeyCreated { key, account, grant, created_by, .. } => {
            let facts = KeyFacts {
                key_id: *key,
                account_id: *account,
                tier: grant.tier,
                permissions: grant.permissions,
            };
            // A key with an expiry was rotated and may not create keys, so the new key is its
            // replacement.
            let maker = created_by.and_then(|maker| hash_of(state, maker));
            let is_rotated = |hash: &KeyHash| keys.get(hash).is_some_and(|key| !key.is_lasting());
            let old = maker.filter(is_rotated);
            insert_key(&keys, facts, grant, old.as_ref(), tiers.get(grant.tier));
            // The limits may have changed before the key was in the table to be updated.
            if let Some(entry) = keys.get(&KeyHash::from_bytes(grant.hash)) {
                limit_by_tier(&entry, &tiers);
            }
        }
        Event::KeyExpirySet { key, expires_at } => {
            if let Some(hash) = hash_of(state, *key) {
                keys.set_expiry(&hash, *expires_at);
            }
        }
        Event::KeyRevoked { key, .. } => {
            if let Some(hash) = hash_of(state, *key) {
                keys.revoke(&hash);
            }
        }
        Event::KeyForgotten { key } => {
            if let Some(hash) = hash_of(state, *key) {
                keys.remove(&hash);
            }
        }
        Event::OperatorActed(acted) => {
            if acted.act == Act::Erase {
                keys.erase_account(acted.account);
                for hash in state.key_hashes_of(acted.account).map(KeyHash::from_bytes) {
                    // Other holders of the entry must see that the key has ended.
                    keys.revoke(&hash);
                    keys.remove(&hash);
                }
            }
            if let Act::Tier(tier) = acted.act {
                // Ended keys are included, because other keys share their limiters.
                for hash in state.key_hashes_of(acted.account) {
                    if let Some(entry) = keys.get(&KeyHash::from_bytes(hash)) {
                        entry.set_tier(tier);
                        limit_by_tier(&entry, &tiers);
                    }
                }
            }
        }
        _ => {}
    })
}

const fn facts_of(key: &Key) -> KeyFacts {
    KeyFacts {
        key_id: key.id,
        account_id: key.account,
        tier: key.grant.tier,
        permissions: key.grant.permissions,
    }
}

/// Inserts a key into the table. Its requests count in the rate-limit windows of the `old` key that
/// it replaces, or else in windows of its own.
fn insert_key(
    keys: &Keys,
    facts: KeyFacts,
    grant: &KeyGrant,
    old: Option<&KeyHash>,
    limits: TierLimits,
) {
    let hash = KeyHash::from_bytes(grant.hash);
    keys.insert(hash, KeyEntry::new(facts, &limits).granted_to(grant.wallet), old)
        .expect("two keys of 256 random bits are never the same");
    if let Some(expires_at) = grant.expires_at {
        keys.set_expiry(&hash, expires_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paperbourse_core::engine::command::{CreateKey, Identity, Owner, RevokeKey, RotateKey};
    use paperbourse_core::engine::key::{
        ENDED_KEYS_PER_ACCOUNT_MAX, OVERLAP_SECONDS_MAX, Permissions,
    };
    use paperbourse_core::engine::{Command, Rules, Verdict};
    use paperbourse_core::ids::{KeyId, Lsn, Timestamp};

    /// A shard and a key table that follows it.
    struct World {
        state: State,
        live_table: Arc<Keys>,
        observer: crate::shard::Observer,
    }

    impl World {
        fn new() -> Self {
            let live_table = Arc::new(Keys::new(KEYS_MAX));
            let observer =
                key_observer(live_table.clone(), Arc::new(TierTable::new(Tiers::default())));
            Self { state: State::new(ShardId::of_digest(0)), live_table, observer }
        }

        fn run(&mut self, now: Timestamp, command: &impl Command) {
            let verdict = self.state.decide(command, None, now, &Rules::default());
            let Ok(Verdict::Happens(events, _)) = verdict else { panic!("no events") };
            events.iter().for_each(|event| (self.observer)(event, &self.state));
            self.state.apply(&events, Lsn::START);
        }

        /// Creates a key whose hash is this byte repeated.
        fn create(&mut self, now: Timestamp, hash: u8, created_by: Option<KeyId>) -> Key {
            let grant = KeyGrant {
                hash: [hash; 32],
                prefix: "ps_live_01234567".into(),
                name: None,
                tier: Tier::Free,
                permissions: Permissions::DEFAULT,
                expires_at: None,
                wallet: None,
            };
            let identity = Identity { digest: [0; 32], issuer: "i".into(), subject: "s".into() };
            let owner = Owner::Identity(identity);
            let create = CreateKey { owner, is_bootstrap: false, created_by, grant };
            self.run(now, &create);
            self.state.keys().last().unwrap()
        }

        fn rotate(&mut self, now: Timestamp, hash: u8, old: &Key, overlap_seconds: u32) -> Key {
            self.run(
                now,
                &RotateKey {
                    account: old.account,
                    key: old.id,
                    caller_key: None,
                    overlap_seconds,
                    hash: [hash; 32],
                    prefix: "ps_live_01234567".into(),
                },
            );
            self.state.keys().last().unwrap()
        }

        fn revoke(&mut self, now: Timestamp, key: &Key) {
            let (account, key) = (key.account, key.id);
            self.run(now, &RevokeKey { account, key, descendants: false });
        }

        /// Builds the table that a restart would build.
        fn rebuilt_table(&self) -> Keys {
            key_table([&self.state].into_iter(), &Tiers::default()).unwrap()
        }
    }

    fn entry(keys: &Keys, hash: u8) -> Option<Arc<KeyEntry>> {
        keys.get(&KeyHash::from_bytes([hash; 32]))
    }

    /// The table holds the keys that the shard keeps, whether it followed the shard or was rebuilt.
    #[test]
    fn the_table_forgets_what_the_shard_forgets() {
        let mut world = World::new();
        for number in 1..=110 {
            let key = world.create(Timestamp::EPOCH, number, None);
            world.revoke(Timestamp::EPOCH, &key);
            for keys in [&*world.live_table, &world.rebuilt_table()] {
                let kept = usize::from(number).min(ENDED_KEYS_PER_ACCOUNT_MAX + 1);
                assert_eq!(keys.key_count(), kept);
                let newest = entry(keys, number).unwrap();
                assert!(newest.check(Timestamp::EPOCH).is_err(), "it is revoked");
            }
        }
        assert!(entry(&world.live_table, 9).is_none());
        assert!(entry(&world.live_table, 10).is_some());
    }

    /// A key and its successors share their windows, before and after a restart. Other keys do not.
    #[test]
    fn a_successor_counts_in_the_windows_of_its_predecessor() {
        let mut world = World::new();
        let at = |millis: i64| Timestamp::from_millis(1_000_000 + millis);
        let first = world.create(at(0), 1, None);
        let beside = world.create(at(1), 2, Some(first.id));
        let second = world.rotate(at(2), 3, &first, 3_600);
        let third = world.rotate(at(3), 4, &second, 0);
        let fourth = world.rotate(at(4), 5, &third, OVERLAP_SECONDS_MAX);
        world.revoke(at(5), &fourth);
        world.create(at(5), 6, None);
        let lines: [&[u8]; 3] = [&[1, 3, 4, 5], &[2], &[6]];
        for keys in [&*world.live_table, &world.rebuilt_table()] {
            for (line, now_ns) in lines.into_iter().zip((1..).map(|second| second * 1_000_000_000))
            {
                // The free tier allows five requests a second.
                for number in 0..5 {
                    let hash = line[number % line.len()];
                    let decision = keys.decide(&KeyHash::from_bytes([hash; 32]), now_ns).unwrap();
                    assert!(decision.is_admitted, "request {number} of {line:?}");
                }
                for &hash in line {
                    let decision = keys.decide(&KeyHash::from_bytes([hash; 32]), now_ns).unwrap();
                    assert!(!decision.is_admitted, "key {hash} of {line:?}");
                }
            }
            assert!(entry(keys, beside.grant.hash[0]).unwrap().is_lasting());
        }
    }
}
