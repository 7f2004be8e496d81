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
mod orders;
pub mod settlement;

pub use access::{Admission, Caller, Denied, SocketCaller, TokenCaller};
pub use accounts::{MarkedPosition, Portfolio};
pub use keys::{KeyListing, NewKey, NewKeyRequest};
pub use orders::{BatchEntry, OrderList};

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::auth::api_key::KeyHash;
use crate::auth::identity::IdentitySource;
use crate::auth::key_table::{KEYS_MAX, KeyEntry, KeyFacts, KeyTable};
use crate::auth::ws_token::WsTokens;
use crate::engine::State;
use crate::engine::event::Event;
use crate::engine::key::KeyGrant;
use crate::engine::rejection::Rejection;
use crate::ids::{AccountId, KeyId, Timestamp};
use crate::journal::Waiters;
use crate::limits::bucket::AddressRules;
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
}

/// When a request is served: read once, passed down.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The time on the wall.
    pub now: Timestamp,
    /// Nanoseconds of the monotonic clock, since the service was made.
    pub monotonic_ns: u64,
}

/// Who sends a request, and where its waits are parked.
#[derive(Clone, Copy)]
pub struct Visit<'a> {
    /// When.
    pub moment: Moment,
    /// From which address.
    pub address: IpAddr,
    /// The waits of the worker that serves it.
    pub waiters: &'a Arc<Waiters>,
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
            access: AccessLimits::new(parts.address_rules),
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

    /// The account that a caller acts on; a token's may not exist yet.
    async fn account(&self, caller: &Caller, visit: Visit<'_>) -> Result<AccountId, ServiceError> {
        match caller {
            Caller::Key(key) => Ok(key.facts().account_id),
            Caller::Token(token) => {
                let digest = token.identity.digest;
                self.shards
                    .observe(token.identity.shard(), visit.waiters, move |state| {
                        state.observe_identity(&digest)
                    })
                    .await?
                    .ok_or_else(|| Rejection::AccountNotFound.into())
            }
            Caller::Anonymous => Err(Denied::MissingCredential.into()),
        }
    }
}

/// Puts every key that the states hold into a new table: at start.
pub fn key_table<'a>(
    states: impl Iterator<Item = &'a State>,
    tiers: &Tiers,
) -> Result<Keys, ServiceError> {
    let keys = Keys::new(KEYS_MAX);
    for key in states.flat_map(State::keys) {
        if !keys.has_room() {
            return Err(ServiceError::KeysFull);
        }
        insert_key(&keys, key.id, key.account, &key.grant, key.created_at, tiers);
        if key.revoked_at.is_some() {
            keys.revoke(&KeyHash::from_bytes(key.grant.hash));
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
        Event::KeyCreated { key, account, grant, at, .. } => {
            insert_key(&keys, *key, *account, grant, *at, &tiers);
        }
        Event::KeyExpirySet { key, expires_at } => {
            keys.set_expiry(&hash_of(state, *key), *expires_at);
        }
        Event::KeyRevoked { key, .. } => drop(keys.revoke(&hash_of(state, *key))),
        Event::KeyForgotten { key } => keys.remove(&hash_of(state, *key)),
        _ => {}
    })
}

fn insert_key(
    keys: &Keys,
    key_id: KeyId,
    account_id: AccountId,
    grant: &KeyGrant,
    created_at: Timestamp,
    tiers: &Tiers,
) {
    let facts = KeyFacts {
        key_id,
        account_id,
        tier: grant.tier,
        permissions: grant.permissions,
        created_at,
    };
    let hash = KeyHash::from_bytes(grant.hash);
    let entry = KeyEntry::new(facts, KeyLimiter::new(tiers.get(grant.tier)));
    keys.insert(hash, entry).expect("two keys of 256 random bits are never the same");
    if let Some(expires_at) = grant.expires_at {
        keys.set_expiry(&hash, expires_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::command::{Command, CreateKey, Identity, Owner};
    use crate::engine::key::{ENDED_KEYS_PER_ACCOUNT_MAX, Permissions};
    use crate::engine::{Rules, Verdict};
    use crate::ids::{Place, ShardId};

    /// The table knows the keys that the shard keeps, whether it watched them or was built anew.
    #[test]
    fn the_table_forgets_what_the_shard_forgets() {
        let tiers = Tiers::default();
        let watching = Arc::new(Keys::new(KEYS_MAX));
        let observer = key_observer(watching.clone(), tiers.clone());
        let mut state = State::new(ShardId::of_digest(0));
        let mut run = |command: Command| {
            let verdict = state.decide(&command, None, Timestamp::EPOCH, &Rules::default());
            let Ok(Verdict::Happens(events)) = verdict else { panic!("{verdict:?}") };
            events.iter().for_each(|event| observer(event, &state));
            state.apply(&events, Place::START);
            state.clone()
        };
        let hash = |number: u8| [number; 32];
        let owner = Identity { digest: [0; 32], issuer: "i".into(), subject: "s".into() };
        for number in 1..=110 {
            let grant = KeyGrant {
                hash: hash(number),
                prefix: "ps_live_01234567".into(),
                name: None,
                tier: Tier::Free,
                permissions: Permissions::DEFAULT,
                expires_at: None,
            };
            let owner = Owner::Identity(owner.clone());
            let create = CreateKey { owner, is_bootstrap: false, created_by: None, grant };
            let made = run(Command::CreateKey(create));
            let key = made.keys().last().unwrap();
            let (account, key) = (key.account, key.id);
            let state = run(Command::RevokeKey { account, key, descendants: false });
            let anew = key_table([&state].into_iter(), &tiers).unwrap();
            for keys in [&*watching, &anew] {
                let kept = usize::from(number).min(ENDED_KEYS_PER_ACCOUNT_MAX + 1);
                assert_eq!(keys.key_count(), kept);
                let newest = keys.get(&KeyHash::from_bytes(hash(number))).unwrap();
                assert!(newest.check(Timestamp::EPOCH).is_err(), "it is revoked");
            }
        }
        assert!(watching.get(&KeyHash::from_bytes(hash(9))).is_none());
        assert!(watching.get(&KeyHash::from_bytes(hash(10))).is_some());
    }
}
