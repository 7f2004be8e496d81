//! The use cases: the only place that knows markets, shards, limits and credentials together.
//!
//! A method takes who calls and what they ask, typed and validated, and answers with domain values
//! or with the reason why not. It knows nothing of HTTP: no header, no status, no JSON.

mod access;
mod accounts;
#[cfg(test)]
mod clocks;
mod comments;
mod keys;
mod markets;
mod orders;
pub mod settlement;

pub use access::{Admission, Caller, Denied, Makes, SocketCaller, TokenCaller};
pub use accounts::{Balance, MarkedPosition, PositionStatus};
pub use keys::{KeyListing, NewKey, NewKeyRequest};
pub use markets::{MarketFilter, ShownOutcome, is_hot};
pub use orders::{OrderList, OrderRequest, OrderStatus, OrdersRequest};

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::auth::api_key::KeyHash;
use crate::auth::identity::IdentitySource;
use crate::auth::key_table::{KEYS_MAX, KeyEntry, KeyFacts, KeyTable};
use crate::auth::ws_token::WsTokens;
use crate::engine::State;
use crate::engine::event::Event;
use crate::engine::key::{Key, KeyGrant};
use crate::engine::rejection::Rejection;
use crate::ids::Timestamp;
use crate::journal::Waiters;
use crate::limits::bucket::{AccountRates, AddressRules};
use crate::limits::tier::{Tier, Tiers};
use crate::limits::window::KeyLimiter;
use crate::market::Markets;
use crate::shard::{Refusal, Shards};
use access::AccessLimits;

/// The table of keys, each with its limiter.
pub type Keys = KeyTable<KeyLimiter>;

/// Everything that requests are served from.
pub struct Service {
    markets: Arc<Markets>,
    shards: Arc<Shards>,
    keys: Arc<Keys>,
    issuer: IdentitySource,
    ws_tokens: WsTokens,
    tiers: Tiers,
    /// What a token may ask for that does not say.
    default_tier: Tier,
    access: AccessLimits,
    started: Instant,
}

/// What a service is made of.
pub struct Parts {
    /// The markets that the venue's feed publishes.
    pub markets: Arc<Markets>,
    /// The shards, recovered.
    pub shards: Arc<Shards>,
    /// The keys of all shards.
    pub keys: Arc<Keys>,
    /// Who vouches for identities.
    pub issuer: IdentitySource,
    /// Signs the tokens for sockets.
    pub ws_tokens: WsTokens,
    /// The limits of each tier.
    pub tiers: Tiers,
    /// What a token may ask for that does not say.
    pub default_tier: Tier,
    /// The limits of callers without a valid key, by their address; none without them.
    pub address_rules: Option<AddressRules>,
    /// The limits of accounts besides those of their requests.
    pub account_rates: AccountRates,
}

/// The time at which a request is served: read once and passed down.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The wall clock.
    pub now: Timestamp,
    /// Nanoseconds since the service was created, by the monotonic clock.
    pub monotonic_ns: u64,
}

/// What a use case needs to know about the request it serves.
#[derive(Clone, Copy)]
pub struct RequestContext<'a> {
    /// When it is served.
    pub moment: Moment,
    /// The address it came from.
    pub address: IpAddr,
    /// Wakes the requests of its worker that wait for the disk.
    pub waiters: &'a Arc<Waiters>,
}

/// Which part of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// How many rows at most.
    pub limit: usize,
    /// How many rows to leave out first.
    pub offset: usize,
}

/// Why a use case has come to nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ServiceError {
    /// The shard did not do it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The caller may not ask for it.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// More entries than the caller's tier allows in one request.
    #[error("{count} entries in one request: the tier {} allows {batch_max}", .tier.as_str())]
    BatchTooLong {
        /// How many came.
        count: usize,
        /// How many may come.
        batch_max: u32,
        /// The caller's tier.
        tier: Tier,
    },
    /// No outcome of any market has the token.
    #[error("no outcome has this token")]
    TokenNotFound,
    /// The venue has named no book for the outcome.
    #[error("no order book is known for this outcome")]
    NoBook,
    /// The table of keys is full.
    #[error("the server has as many keys as it can hold")]
    KeysFull,
    /// The system gave no random bytes for a new key.
    #[error("the system gives no random bytes")]
    NoRandomBytes,
}

impl From<Rejection> for ServiceError {
    fn from(rejection: Rejection) -> Self {
        Self::Refused(Refusal::Rejected(rejection))
    }
}

impl Service {
    /// A service made of these parts.
    pub fn new(parts: Parts) -> Self {
        Self {
            markets: parts.markets,
            shards: parts.shards,
            keys: parts.keys,
            issuer: parts.issuer,
            ws_tokens: parts.ws_tokens,
            tiers: parts.tiers,
            default_tier: parts.default_tier,
            access: AccessLimits::new(parts.address_rules, parts.account_rates),
            started: Instant::now(),
        }
    }

    /// This moment.
    pub fn moment(&self) -> Moment {
        let elapsed_ns = self.started.elapsed().as_nanos();
        Moment {
            now: Timestamp::now(),
            monotonic_ns: u64::try_from(elapsed_ns).unwrap_or(u64::MAX),
        }
    }

    /// The markets.
    pub fn markets(&self) -> &Arc<Markets> {
        &self.markets
    }

    /// The limits of each tier.
    pub fn tiers(&self) -> &Tiers {
        &self.tiers
    }

    /// How many keys there are.
    pub fn key_count(&self) -> usize {
        self.keys.key_count()
    }
}

/// Puts every key that the states hold into a new table: at start.
pub fn key_table<'a>(
    states: impl Iterator<Item = &'a State>,
    tiers: &Tiers,
) -> Result<Keys, ServiceError> {
    let keys = Keys::new(KEYS_MAX);
    for state in states {
        // By id, so that a key comes behind the one whose place it took.
        for key in state.keys() {
            if !keys.has_room() {
                return Err(ServiceError::KeysFull);
            }
            let maker = key.created_by.and_then(|maker| state.key(maker));
            let old = maker.filter(|maker| key.succeeds(maker));
            let old = old.and_then(|old| keys.get(&KeyHash::from_bytes(old.grant.hash)));
            insert_key(&keys, facts_of(&key), &key.grant, old.as_ref(), tiers);
            if key.revoked_at.is_some() {
                keys.revoke(&KeyHash::from_bytes(key.grant.hash));
            }
        }
    }
    Ok(keys)
}

/// What the shards call at once when an event is applied, so in the order of the shard: a new key
/// enters the table, a rotated one gets its end, a revoked one is refused from then on, a forgotten
/// one is not known any more.
///
/// None of it waits for the disk. To refuse too early is the safe side. And nobody can use a key
/// that is not on disk yet, since its text leaves only with an answer that waits for that; but a
/// key that entered the table later than its own revocation would stay good.
pub fn key_observer(keys: Arc<Keys>, tiers: Tiers) -> crate::shard::Observer {
    let hash_of = |state: &State, key| {
        let key = state.key(key).expect("it was made by an earlier record");
        KeyHash::from_bytes(key.grant.hash)
    };
    Box::new(move |event, state| match event {
        Event::KeyCreated { key, account, grant, created_by, at } => {
            let facts = KeyFacts {
                key_id: *key,
                account_id: *account,
                tier: grant.tier,
                permissions: grant.permissions,
                created_at: *at,
            };
            // A key that has an end makes no others: this one takes its place.
            let maker = created_by.and_then(|maker| keys.get(&hash_of(state, maker)));
            let old = maker.filter(|maker| !maker.is_lasting());
            insert_key(&keys, facts, grant, old.as_ref(), &tiers);
        }
        Event::KeyExpirySet { key, expires_at } => {
            keys.set_expiry(&hash_of(state, *key), *expires_at);
        }
        Event::KeyRevoked { key, .. } => drop(keys.revoke(&hash_of(state, *key))),
        Event::KeyForgotten { key } => keys.remove(&hash_of(state, *key)),
        _ => {}
    })
}

const fn facts_of(key: &Key) -> KeyFacts {
    KeyFacts {
        key_id: key.id,
        account_id: key.account,
        tier: key.grant.tier,
        permissions: key.grant.permissions,
        created_at: key.created_at,
    }
}

/// Puts a key into the table: with windows of its own, or with those of the `old` one whose place
/// it takes.
fn insert_key(
    keys: &Keys,
    facts: KeyFacts,
    grant: &KeyGrant,
    old: Option<&Arc<KeyEntry<KeyLimiter>>>,
    tiers: &Tiers,
) {
    let hash = KeyHash::from_bytes(grant.hash);
    let entry = match old {
        Some(old) => KeyEntry::successor(facts, old),
        None => KeyEntry::new(facts, KeyLimiter::new(tiers.get(facts.tier))),
    };
    keys.insert(hash, entry).expect("two keys of 256 random bits are never the same");
    if let Some(expires_at) = grant.expires_at {
        keys.set_expiry(&hash, expires_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::command::{CreateKey, Identity, Owner, RevokeKey, RotateKey};
    use crate::engine::key::{ENDED_KEYS_PER_ACCOUNT_MAX, OVERLAP_SECONDS_MAX, Permissions};
    use crate::engine::{Command, Rules, Verdict};
    use crate::ids::{KeyId, Place, ShardId};

    /// A shard, and a table that watches it.
    struct World {
        state: State,
        watching: Arc<Keys>,
        observer: crate::shard::Observer,
    }

    impl World {
        fn new() -> Self {
            let watching = Arc::new(Keys::new(KEYS_MAX));
            let observer = key_observer(watching.clone(), Tiers::default());
            Self { state: State::new(ShardId::of_digest(0)), watching, observer }
        }

        fn run(&mut self, now: Timestamp, command: &impl Command) {
            let verdict = self.state.decide(command, None, now, &Rules::default());
            let Ok(Verdict::Happens(events, _)) = verdict else { panic!("nothing happens") };
            events.iter().for_each(|event| (self.observer)(event, &self.state));
            self.state.apply(&events, Place::START);
        }

        /// Makes a key whose hash is so many times this byte; the newest key of the shard.
        fn create(&mut self, now: Timestamp, hash: u8, created_by: Option<KeyId>) -> Key {
            let grant = KeyGrant {
                hash: [hash; 32],
                prefix: "ps_live_01234567".into(),
                name: None,
                tier: Tier::Free,
                permissions: Permissions::DEFAULT,
                expires_at: None,
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
                    asked_with: None,
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

        /// The table of the next start.
        fn anew(&self) -> Keys {
            key_table([&self.state].into_iter(), &Tiers::default()).unwrap()
        }
    }

    fn entry(keys: &Keys, hash: u8) -> Option<Arc<KeyEntry<KeyLimiter>>> {
        keys.get(&KeyHash::from_bytes([hash; 32]))
    }

    /// The table knows the keys that the shard keeps, whether it watched them or was built anew.
    #[test]
    fn the_table_forgets_what_the_shard_forgets() {
        let mut world = World::new();
        for number in 1..=110 {
            let key = world.create(Timestamp::EPOCH, number, None);
            world.revoke(Timestamp::EPOCH, &key);
            for keys in [&*world.watching, &world.anew()] {
                let kept = usize::from(number).min(ENDED_KEYS_PER_ACCOUNT_MAX + 1);
                assert_eq!(keys.key_count(), kept);
                let newest = entry(keys, number).unwrap();
                assert!(newest.check(Timestamp::EPOCH).is_err(), "it is revoked");
            }
        }
        assert!(entry(&world.watching, 9).is_none());
        assert!(entry(&world.watching, 10).is_some());
    }

    /// Keys of one line count in the same windows, before a start and after it; no others do.
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
        for keys in [&*world.watching, &world.anew()] {
            for (line, now_ns) in lines.into_iter().zip((1..).map(|second| second * 1_000_000_000))
            {
                // Free keys may send five a second.
                for number in 0..5 {
                    let hash = line[number % line.len()];
                    let decision = entry(keys, hash).unwrap().limiter().decide(now_ns);
                    assert!(decision.is_admitted, "request {number} of {line:?}");
                }
                for &hash in line {
                    let decision = entry(keys, hash).unwrap().limiter().decide(now_ns);
                    assert!(!decision.is_admitted, "key {hash} of {line:?}");
                }
            }
            assert!(entry(keys, beside.grant.hash[0]).unwrap().is_lasting());
        }
    }
}
