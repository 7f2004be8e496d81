//! All keys of the server, indexed by hash and shared by all threads.
//!
//! A lookup takes no lock. It takes as many steps in a table of a million keys as in one of a
//! thousand; only the share of cache misses grows.
//!
//! The shards own the keys and update the table as they decide. The table holds only what every
//! request needs to know about its key: the key's facts, and the windows that limit its requests.
//! The limits are checked while the lookup's guard is held, so no reference count is touched. If
//! the windows need a new log, the whole entry is replaced by one with the same facts.
//!
//! The table also records which accounts were erased, and nothing else about accounts. An open
//! socket that depends on an access token, and so on no key, is closed because of this record.
//!
//! A key that has ended stays for as long as its shard keeps it, so that its holder can be told why
//! it no longer works.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};

use papaya::Operation;

use super::api_key::KeyHash;
use super::policy::Actor;
use paperbourse_core::engine::key::{OVERLAP_SECONDS_MAX, Permissions, WalletGrant};
use paperbourse_core::ids::{AccountId, KeyId, Timestamp};
use paperbourse_core::limits::tier::{Tier, TierLimits};
use paperbourse_core::limits::window::{Decision, WindowLimits, Windows};

/// Maximum number of keys on the server, including revoked ones.
pub const KEYS_MAX: usize = 1 << 22;

/// Resolution of the time of last use, in nanoseconds.
const LAST_USED_STEP_NS: u64 = 1_000_000_000;

/// The `last_used_ns` of an unused key.
const NEVER_NS: i64 = i64::MIN;

/// The `ends_at_ns` of a key without an end; later than any time.
const ENDLESS_NS: i64 = i64::MAX;

/// The `ends_at_ns` of a revoked key; earlier than any other end.
const REVOKED_NS: i64 = i64::MIN;

/// All keys of the server, by hash.
pub struct KeyTable {
    keys: papaya::HashMap<KeyHash, Held, foldhash::fast::RandomState>,
    key_count_max: usize,
    /// Accounts erased since the table was created. There is no limit, since each erased account
    /// keeps a row in its shard that is far larger than its entry here.
    erased: papaya::HashSet<AccountId, foldhash::fast::RandomState>,
}

/// The guard of a lookup, under which the table can be read.
type Pinned<'table> = papaya::HashMapRef<
    'table,
    KeyHash,
    Held,
    foldhash::fast::RandomState,
    papaya::LocalGuard<'table>,
>;

/// The table's value for one key.
struct Held {
    entry: Arc<KeyEntry>,
    /// The key's windows. They are never replaced alone, only together with the whole [`Held`].
    windows: Windows,
}

/// A presented key that may be used.
#[derive(Clone, Copy)]
pub struct Authenticated {
    /// The hash under which the table lists the key.
    pub hash: KeyHash,
    /// The key's facts at that moment.
    pub facts: KeyFacts,
}

impl KeyTable {
    /// Creates a table for at most `key_count_max` keys: [`KEYS_MAX`] outside tests.
    pub fn new(key_count_max: usize) -> Self {
        let keys = papaya::HashMap::builder().hasher(foldhash::fast::RandomState::default());
        let erased = papaya::HashSet::builder().hasher(foldhash::fast::RandomState::default());
        Self { keys: keys.build(), key_count_max, erased: erased.build() }
    }

    /// Authenticates a presented text at the time `now`, which counts as a use of the key.
    ///
    /// Text that cannot be a key is refused without being hashed.
    pub fn authenticate(
        &self,
        presented: &[u8],
        now: Timestamp,
    ) -> Result<Authenticated, KeyError> {
        self.authenticate_hash(KeyHash::of_presented(presented).ok_or(KeyError::Unknown)?, now)
    }

    /// Authenticates the key with this hash like [`Self::authenticate`].
    pub fn authenticate_hash(
        &self,
        hash: KeyHash,
        now: Timestamp,
    ) -> Result<Authenticated, KeyError> {
        let (key, ()) = self.authenticate_with(hash, now, |_, _, _| ())?;
        Ok(key)
    }

    /// Authenticates the key with this hash like [`Self::authenticate`] and decides like
    /// [`Self::decide`], in one lookup.
    pub fn admit(
        &self,
        hash: KeyHash,
        now: Timestamp,
        now_ns: u64,
    ) -> Result<(Authenticated, Decision), KeyError> {
        self.authenticate_with(hash, now, |keys, hash, held| {
            // If the key has just been removed, its last windows decide, and nothing is counted.
            decide(keys, hash, held, now_ns)
                .unwrap_or_else(|| held.windows.peek(held.entry.limits.get(), now_ns))
        })
    }

    fn authenticate_with<T>(
        &self,
        hash: KeyHash,
        now: Timestamp,
        then: impl for<'pinned> FnOnce(&'pinned Pinned<'_>, &KeyHash, &'pinned Held) -> T,
    ) -> Result<(Authenticated, T), KeyError> {
        let keys = self.keys.pin();
        let held = keys.get(&hash).ok_or(KeyError::Unknown)?;
        held.entry.check(now)?;
        held.entry.touch(now);
        let facts = held.entry.facts();
        Ok((Authenticated { hash, facts }, then(&keys, &hash, held)))
    }

    /// Decides whether a key may make one more request, and counts it if so. The key need not be
    /// valid. Returns `None` if there is no such key.
    pub fn decide(&self, hash: &KeyHash, now_ns: u64) -> Option<Decision> {
        let keys = self.keys.pin();
        decide(&keys, hash, keys.get(hash)?, now_ns)
    }

    /// Checks whether a key that was authenticated earlier may still be used at this time.
    pub fn check(&self, hash: &KeyHash, now: Timestamp) -> Result<(), KeyError> {
        self.keys.pin().get(hash).map_or(Err(KeyError::Revoked), |held| held.entry.check(now))
    }

    /// Returns the key with this hash, valid or not.
    pub fn get(&self, hash: &KeyHash) -> Option<Arc<KeyEntry>> {
        self.keys.pin().get(hash).map(|held| held.entry.clone())
    }

    /// Returns the id of the key with this hash, valid or not, and the wallet to which it was
    /// granted; `None` if there is no such key, or if it was granted to no wallet.
    pub fn wallet(&self, hash: &KeyHash) -> Option<(KeyId, WalletGrant)> {
        self.keys.pin().get(hash).and_then(|held| held.entry.wallet())
    }

    /// Returns any key that was granted to a wallet. May visit every key.
    pub fn any_wallet(&self) -> Option<(KeyHash, KeyId, WalletGrant)> {
        self.keys.pin().iter().find_map(|(hash, held)| {
            let (key, wallet) = held.entry.wallet()?;
            Some((*hash, key, wallet))
        })
    }

    /// Visits every key, in any order. Keys added or removed during the call may be missed.
    pub fn for_each(&self, mut visit: impl FnMut(&KeyEntry)) {
        self.keys.pin().values().for_each(|held| visit(&held.entry));
    }

    /// Frees the memory of windows that are empty at this time. Visits every key.
    pub fn release_windows(&self, now_ns: u64) {
        let keys = self.keys.pin();
        for (hash, held) in &keys {
            if let Some(next) = held.windows.release(held.entry.limits.get(), now_ns) {
                replace(&keys, hash, held, &next);
            }
        }
    }

    /// Returns the memory of all windows in bytes, each log counted once. Visits every key.
    pub fn window_bytes(&self) -> usize {
        self.keys.pin().values().map(|held| held.windows.owned_bytes()).sum()
    }

    /// Whether there is room for one more key. Checked before a key is created.
    pub fn has_room(&self) -> bool {
        self.key_count() < self.key_count_max
    }

    /// Returns the number of keys, including revoked ones.
    pub fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// Estimates the memory of the table in bytes, without that of the windows and wallets.
    pub fn bytes(&self) -> usize {
        let entry = size_of::<KeyEntry>() + 2 * size_of::<usize>();
        let links = 2 * (size_of::<usize>() + 1);
        self.key_count() * (entry + size_of::<(KeyHash, Held)>() + links)
            + self.erased.len() * (size_of::<AccountId>() + links)
    }

    /// Adds a key that its shard has decided to create. Its requests count in the windows of the
    /// key that it replaces, if that key is in the table, or else in windows of its own.
    ///
    /// Does not check for room, since a decision cannot be undone: the limit may be exceeded by the
    /// number of keys being decided concurrently. A shard must add and revoke keys in the order of
    /// its decisions, or a revocation could precede its key and be lost. It need not wait for the
    /// disk: no client has a key's text before its creation is answered.
    pub fn insert(
        &self,
        hash: KeyHash,
        entry: KeyEntry,
        replaces: Option<&KeyHash>,
    ) -> Result<Arc<KeyEntry>, DuplicateKey> {
        let keys = self.keys.pin();
        let windows = replaces.and_then(|old| share(&keys, old)).unwrap_or(Windows::empty());
        let entry = Arc::new(entry);
        match keys.try_insert(hash, Held { entry: entry.clone(), windows }) {
            Ok(_) => Ok(entry),
            Err(_) => Err(DuplicateKey),
        }
    }

    /// Revokes a key. Once this call has returned, every new check on any thread refuses the key.
    ///
    /// Returns the key, or `None` if it is unknown.
    pub fn revoke(&self, hash: &KeyHash) -> Option<Arc<KeyEntry>> {
        let entry = self.get(hash)?;
        entry.ends_at_ns.store(REVOKED_NS, Ordering::Release);
        Some(entry)
    }

    /// Sets the time from which a key is refused. Once this call has returned, every new check on
    /// any thread applies it. A later end never replaces an earlier one.
    ///
    /// Returns the key, or `None` if it is unknown.
    pub fn set_expiry(&self, hash: &KeyHash, expires_at: Timestamp) -> Option<Arc<KeyEntry>> {
        let entry = self.get(hash)?;
        entry.ends_at_ns.fetch_min(expires_at.nanos(), Ordering::Release);
        Some(entry)
    }

    /// Removes a key that has ended, which makes room for another one. Holders of its entry still
    /// see that it has ended.
    pub fn remove(&self, hash: &KeyHash) {
        self.keys.pin().remove(hash);
    }

    /// Records that an account was erased. Does not revoke the account's keys, which are revoked
    /// one by one.
    pub fn erase_account(&self, account: AccountId) {
        self.erased.pin().insert(account);
    }

    /// Whether an account was erased since the table was created.
    pub fn is_erased(&self, account: AccountId) -> bool {
        self.erased.pin().contains(&account)
    }
}

/// Decides one request. Returns `None` if the key is removed in the meantime.
#[inline]
fn decide<'pinned>(
    keys: &'pinned Pinned<'_>,
    hash: &KeyHash,
    mut held: &'pinned Held,
    now_ns: u64,
) -> Option<Decision> {
    loop {
        match held.windows.decide(held.entry.limits.get(), now_ns) {
            Ok(decision) => return Some(decision),
            Err(next) => replace(keys, hash, held, &next),
        }
        // Another thread may have replaced the entry first.
        held = keys.get(hash)?;
    }
}

/// Returns windows for another key, shared with the key of this hash, or `None` if there is no such
/// key.
fn share(keys: &Pinned<'_>, hash: &KeyHash) -> Option<Windows> {
    loop {
        let held = keys.get(hash)?;
        match held.windows.share(held.entry.limits.get()) {
            Ok(windows) => return Some(windows),
            Err(next) => replace(keys, hash, held, &next),
        }
    }
}

/// Replaces the windows of a key, if they are still the `held` ones.
#[cold]
fn replace(keys: &Pinned<'_>, hash: &KeyHash, held: &Held, next: &Windows) {
    keys.compute(*hash, |found| match found {
        Some((_, found)) if found.windows.are(&held.windows) => {
            let entry = held.entry.clone();
            Operation::Insert(Held { entry, windows: next.clone() })
        }
        _ => Operation::Abort(()),
    });
}

impl fmt::Debug for KeyTable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("KeyTable");
        shown.field("key_count", &self.key_count()).finish_non_exhaustive()
    }
}

/// The data about a key that every request needs, except for the key's windows.
#[derive(Debug)]
pub struct KeyEntry {
    limits: WindowLimits,
    ends_at_ns: AtomicI64,
    last_used_ns: AtomicI64,
    key_id: KeyId,
    account_id: AccountId,
    permissions: Permissions,
    /// The tier's index in [`Tier::ALL`].
    tier: AtomicU8,
    /// The wallet to which the key was granted. Boxed, since few keys have one.
    wallet: Option<Box<WalletGrant>>,
}

/// The facts about a key. Only its tier can change, and only an operator can change it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyFacts {
    /// The id that clients use for the key.
    pub key_id: KeyId,
    /// The account that the key belongs to.
    pub account_id: AccountId,
    /// The key's tier, which sets its rate limits.
    pub tier: Tier,
    /// The key's permissions.
    pub permissions: Permissions,
}

impl KeyFacts {
    /// Returns the rights of a caller that uses this key.
    pub fn actor(self) -> Actor {
        Actor::Key { permissions: self.permissions, tier: self.tier }
    }
}

impl KeyEntry {
    /// Creates the entry of a key without an end, not yet used.
    pub fn new(facts: KeyFacts, limits: &TierLimits) -> Self {
        Self {
            limits: WindowLimits::new(limits),
            ends_at_ns: AtomicI64::new(ENDLESS_NS),
            last_used_ns: AtomicI64::new(NEVER_NS),
            key_id: facts.key_id,
            account_id: facts.account_id,
            permissions: facts.permissions,
            tier: AtomicU8::new(facts.tier as u8),
            wallet: None,
        }
    }

    /// Sets the wallet to which the key was granted.
    #[must_use]
    pub fn granted_to(self, wallet: Option<WalletGrant>) -> Self {
        Self { wallet: wallet.map(Box::new), ..self }
    }

    /// Returns the key's id and the wallet to which it was granted, if it was granted to one.
    fn wallet(&self) -> Option<(KeyId, WalletGrant)> {
        Some((self.key_id, **self.wallet.as_ref()?))
    }

    /// Returns the key's facts.
    #[inline]
    pub fn facts(&self) -> KeyFacts {
        let tier = Tier::ALL[usize::from(self.tier.load(Ordering::Acquire))];
        let Self { key_id, account_id, permissions, .. } = *self;
        KeyFacts { key_id, account_id, tier, permissions }
    }

    /// Changes the tier. Once this call has returned, every new call of [`Self::facts`] returns the
    /// new tier.
    pub fn set_tier(&self, tier: Tier) {
        self.tier.store(tier as u8, Ordering::Release);
    }

    /// Applies these limits from now on.
    pub fn set_limits(&self, limits: &TierLimits) {
        self.limits.set(limits);
    }

    /// Checks whether the key may be used at this time. Sockets check again while they are open.
    ///
    /// If the end is further away than the longest overlap, it was set by a wrong clock. The key
    /// then counts as revoked, since it has been rotated.
    pub fn check(&self, now: Timestamp) -> Result<(), KeyError> {
        match self.ends_at_ns.load(Ordering::Acquire) {
            REVOKED_NS => Err(KeyError::Revoked),
            ENDLESS_NS => Ok(()),
            ends_at_ns => {
                let expires_at = Timestamp::from_nanos(ends_at_ns);
                if now >= expires_at {
                    Err(KeyError::Expired { expires_at })
                } else if !expires_at.is_ahead(now, OVERLAP_SECONDS_MAX) {
                    Err(KeyError::Revoked)
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Returns the time from which the key is refused, if it was rotated.
    pub fn expires_at(&self) -> Option<Timestamp> {
        match self.ends_at_ns.load(Ordering::Acquire) {
            ENDLESS_NS | REVOKED_NS => None,
            nanos => Some(Timestamp::from_nanos(nanos)),
        }
    }

    /// Whether the key has no end: it was neither revoked nor rotated.
    pub fn is_lasting(&self) -> bool {
        self.ends_at_ns.load(Ordering::Acquire) == ENDLESS_NS
    }

    /// Returns when the key was last used since the server started, to within about a second.
    pub fn last_used(&self) -> Option<Timestamp> {
        match self.last_used_ns.load(Ordering::Relaxed) {
            NEVER_NS => None,
            nanos => Some(Timestamp::from_nanos(nanos)),
        }
    }

    /// Records a use of the key. Writes at most once a second, so that threads sharing a key seldom
    /// contend for a store. If the clock is set back, the recorded time follows.
    fn touch(&self, now: Timestamp) {
        let last_ns = self.last_used_ns.load(Ordering::Relaxed);
        if last_ns.abs_diff(now.nanos()) > LAST_USED_STEP_NS {
            self.last_used_ns.store(now.nanos(), Ordering::Relaxed);
        }
    }
}

/// The reason why a key is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyError {
    /// `INVALID_KEY`: no key has this text.
    #[error("the API key is not known")]
    Unknown,
    /// `KEY_DEACTIVATED`: the key was revoked.
    #[error("the API key was revoked")]
    Revoked,
    /// `KEY_EXPIRED`: the overlap after the key's rotation is over.
    #[error("the API key expired at {expires_at}")]
    Expired {
        /// When the key expired.
        expires_at: Timestamp,
    },
}

/// The error for a key whose hash is already in the table. The table is left unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("two keys have the same hash")]
pub struct DuplicateKey;

#[cfg(test)]
mod tests;
