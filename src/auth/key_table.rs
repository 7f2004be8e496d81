//! Every key on the server, indexed by its hash and shared by all threads.
//!
//! A lookup takes no lock, and as many steps among a million keys as among a thousand; only the
//! share of cache misses grows.
//!
//! The shards own the keys and feed the table with their decisions. It holds only what each request
//! needs to know about a key, and nothing about accounts. The rate limiter is a type of the
//! caller's choice, which the table merely stores with the key.
//!
//! A key that has ended stays for as long as its shard keeps it, so that its holder learns why it
//! no longer works.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};

use super::api_key::KeyHash;
use super::policy::Actor;
use crate::engine::key::{OVERLAP_SECONDS_MAX, Permissions};
use crate::ids::{AccountId, KeyId, Timestamp};
use crate::limits::tier::Tier;

/// Most keys on the server, including revoked ones.
pub const KEYS_MAX: usize = 1 << 22;

/// Resolution of the time of last use.
const LAST_USED_STEP_NS: u64 = 1_000_000_000;

/// The `last_used_ns` of an unused key.
const NEVER_NS: i64 = i64::MIN;

/// The `ends_at_ns` of a key without an end; later than any time.
const ENDLESS_NS: i64 = i64::MAX;

/// The `ends_at_ns` of a revoked key; earlier than any other end.
const REVOKED_NS: i64 = i64::MIN;

/// All keys of the server, by hash; `L` is the type of their limiters.
pub struct KeyTable<L> {
    entries: papaya::HashMap<KeyHash, Arc<KeyEntry<L>>, foldhash::fast::RandomState>,
    key_count_max: usize,
}

impl<L> KeyTable<L> {
    /// A table for at most `key_count_max` keys: [`KEYS_MAX`] outside tests.
    pub fn new(key_count_max: usize) -> Self {
        let entries = papaya::HashMap::builder().hasher(foldhash::fast::RandomState::default());
        Self { entries: entries.build(), key_count_max }
    }

    /// Authenticates a presented text at the time `now`; counts as a use of the key.
    ///
    /// A text that cannot be a key is refused without hashing it.
    pub fn authenticate(
        &self,
        presented: &[u8],
        now: Timestamp,
    ) -> Result<Arc<KeyEntry<L>>, KeyError> {
        let hash = KeyHash::of_presented(presented).ok_or(KeyError::Unknown)?;
        let entry = self.get(&hash).ok_or(KeyError::Unknown)?;
        entry.check(now)?;
        entry.touch(now);
        Ok(entry)
    }

    /// The key with this hash, valid or not.
    pub fn get(&self, hash: &KeyHash) -> Option<Arc<KeyEntry<L>>> {
        self.entries.pin().get(hash).cloned()
    }

    /// Visits each key with its limiter, in any order. May miss keys added or removed during the
    /// call.
    pub fn for_each_limiter(&self, mut visit: impl FnMut(&KeyEntry<L>, &L)) {
        self.entries.pin().values().for_each(|entry| visit(entry, entry.limiter()));
    }

    /// Whether there is room for one more key. Ask before deciding to create one.
    pub fn has_room(&self) -> bool {
        self.key_count() < self.key_count_max
    }

    /// How many keys there are, including revoked ones.
    pub fn key_count(&self) -> usize {
        self.entries.len()
    }

    /// The memory of the table, without what the limiters own. How full it is, is an estimate.
    pub fn bytes(&self) -> usize {
        let entry = size_of::<KeyEntry<L>>() + 2 * size_of::<usize>();
        let place = size_of::<(KeyHash, Arc<KeyEntry<L>>)>() + 2 * (size_of::<usize>() + 1);
        self.key_count() * (entry + place)
    }

    /// Adds a key that its shard has decided to create.
    ///
    /// Does not check for room, since a decision cannot be undone: the limit may be exceeded by as
    /// many keys as are being decided on concurrently. A shard must add and revoke in the order of
    /// its decisions, or a revocation could come before its key and be lost. It need not wait for
    /// the disk: nobody knows a key's text before its creation is answered.
    pub fn insert(
        &self,
        hash: KeyHash,
        entry: KeyEntry<L>,
    ) -> Result<Arc<KeyEntry<L>>, DuplicateKey> {
        let entry = Arc::new(entry);
        match self.entries.pin().try_insert(hash, Arc::clone(&entry)) {
            Ok(_) => Ok(entry),
            Err(_) => Err(DuplicateKey),
        }
    }

    /// Revokes a key: every check that starts after this returns refuses it, on every thread.
    ///
    /// Returns the key, or `None` if it is unknown.
    pub fn revoke(&self, hash: &KeyHash) -> Option<Arc<KeyEntry<L>>> {
        let entry = self.get(hash)?;
        entry.ends_at_ns.store(REVOKED_NS, Ordering::Release);
        Some(entry)
    }

    /// Gives a key an end: every check that starts after this returns refuses it from that time on,
    /// on every thread. A later end never replaces an earlier one.
    ///
    /// Returns the key, or `None` if it is unknown.
    pub fn set_expiry(&self, hash: &KeyHash, expires_at: Timestamp) -> Option<Arc<KeyEntry<L>>> {
        let entry = self.get(hash)?;
        entry.ends_at_ns.fetch_min(expires_at.nanos(), Ordering::Release);
        Some(entry)
    }

    /// Removes a key that has ended, which makes room for another one. Whoever holds its entry
    /// still sees that it has ended.
    pub fn remove(&self, hash: &KeyHash) {
        self.entries.pin().remove(hash);
    }
}

impl<L> fmt::Debug for KeyTable<L> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("KeyTable");
        shown.field("key_count", &self.key_count()).finish_non_exhaustive()
    }
}

/// What each request needs to know about a key.
#[derive(Debug)]
pub struct KeyEntry<L> {
    /// But for the tier.
    facts: KeyFacts,
    /// The tier's place in [`Tier::ALL`].
    tier: AtomicU8,
    ends_at_ns: AtomicI64,
    last_used_ns: AtomicI64,
    limiter: Limiter<L>,
}

#[derive(Debug)]
enum Limiter<L> {
    Own(L),
    /// The limiter of the first key in its line of rotations.
    Inherited(Arc<KeyEntry<L>>),
}

/// The facts about a key. Only an operator can change one of them, its tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyFacts {
    /// The id by which clients refer to it.
    pub key_id: KeyId,
    /// The account it belongs to.
    pub account_id: AccountId,
    /// Its tier, which sets its rate limits.
    pub tier: Tier,
    /// What it may do.
    pub permissions: Permissions,
    /// When it was created.
    pub created_at: Timestamp,
}

impl<L> KeyEntry<L> {
    /// A key without an end, not yet used, with its own limiter.
    pub const fn new(facts: KeyFacts, limiter: L) -> Self {
        Self {
            facts,
            tier: AtomicU8::new(facts.tier as u8),
            ends_at_ns: AtomicI64::new(ENDLESS_NS),
            last_used_ns: AtomicI64::new(NEVER_NS),
            limiter: Limiter::Own(limiter),
        }
    }

    /// A key that replaces `old` and shares its limiter.
    ///
    /// It keeps only the entry of the first key in its line alive.
    pub fn successor(facts: KeyFacts, old: &Arc<Self>) -> Self {
        let first = match &old.limiter {
            Limiter::Own(_) => old,
            Limiter::Inherited(first) => first,
        };
        Self {
            facts,
            tier: AtomicU8::new(facts.tier as u8),
            ends_at_ns: AtomicI64::new(ENDLESS_NS),
            last_used_ns: AtomicI64::new(NEVER_NS),
            limiter: Limiter::Inherited(first.clone()),
        }
    }

    /// The key's facts.
    #[inline]
    pub fn facts(&self) -> KeyFacts {
        let tier = Tier::ALL[usize::from(self.tier.load(Ordering::Acquire))];
        KeyFacts { tier, ..self.facts }
    }

    /// Changes the tier: every call of [`Self::facts`] that starts after this returns has it.
    pub fn set_tier(&self, tier: Tier) {
        self.tier.store(tier as u8, Ordering::Release);
    }

    /// The key as a caller.
    pub fn actor(&self) -> Actor {
        let KeyFacts { permissions, tier, .. } = self.facts();
        Actor::Key { permissions, tier }
    }

    /// The key's rate limiter.
    #[inline]
    pub fn limiter(&self) -> &L {
        match &self.limiter {
            Limiter::Own(limiter) => limiter,
            Limiter::Inherited(first) => first.limiter(),
        }
    }

    /// Whether the key may be used at this time. Sockets ask again while they are open.
    ///
    /// An end further away than the longest overlap was set by a wrong clock: the rotation has
    /// ended the key.
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

    /// The time from which the key is refused, if it was rotated.
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

    /// When the key was last used since the server started, to within about a second.
    pub fn last_used(&self) -> Option<Timestamp> {
        match self.last_used_ns.load(Ordering::Relaxed) {
            NEVER_NS => None,
            nanos => Some(Timestamp::from_nanos(nanos)),
        }
    }

    /// Writes at most once a second, so that threads sharing a key seldom contend for a store.
    /// Follows a clock that was set back.
    fn touch(&self, now: Timestamp) {
        let last_ns = self.last_used_ns.load(Ordering::Relaxed);
        if last_ns.abs_diff(now.nanos()) > LAST_USED_STEP_NS {
            self.last_used_ns.store(now.nanos(), Ordering::Relaxed);
        }
    }
}

/// Why a key is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyError {
    /// `INVALID_KEY`: no key has this text.
    #[error("the API key is not known")]
    Unknown,
    /// `KEY_DEACTIVATED`: the key was revoked.
    #[error("the API key was revoked")]
    Revoked,
    /// `KEY_EXPIRED`: the overlap after its rotation is over.
    #[error("the API key expired at {expires_at}")]
    Expired {
        /// When it expired.
        expires_at: Timestamp,
    },
}

/// A key with this hash exists already; it is left unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("two keys have the same hash")]
pub struct DuplicateKey;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::auth::api_key::RawKey;

    const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

    fn raw(number: u32) -> RawKey {
        let mut secret = [0; 32];
        secret[..4].copy_from_slice(&number.to_le_bytes());
        RawKey::from_secret(secret)
    }

    fn facts(number: u32) -> KeyFacts {
        KeyFacts {
            key_id: KeyId::from_raw(64 + u64::from(number)).unwrap(),
            account_id: AccountId::from_raw(64).unwrap(),
            tier: Tier::Pro,
            permissions: Permissions::DEFAULT,
            created_at: NOW,
        }
    }

    fn table(numbers: std::ops::Range<u32>) -> KeyTable<u32> {
        let table = KeyTable::new(KEYS_MAX);
        for number in numbers {
            table.insert(raw(number).hash(), KeyEntry::new(facts(number), number)).unwrap();
        }
        table
    }

    fn authenticate(
        table: &KeyTable<u32>,
        number: u32,
        now: Timestamp,
    ) -> Result<Arc<KeyEntry<u32>>, KeyError> {
        table.authenticate(raw(number).expose().as_bytes(), now)
    }

    #[test]
    fn each_key_finds_its_entry() {
        let table = table(0..300);
        for number in 0..300 {
            let entry = authenticate(&table, number, NOW).unwrap();
            assert_eq!((entry.facts(), *entry.limiter()), (facts(number), number));
        }
        assert_eq!(authenticate(&table, 300, NOW).unwrap_err(), KeyError::Unknown);
        assert_eq!(table.authenticate(b"", NOW).unwrap_err(), KeyError::Unknown);
        assert_eq!(table.authenticate(b"ps_live_zz", NOW).unwrap_err(), KeyError::Unknown);
        assert_eq!(table.key_count(), 300);
        let mut limiters = Vec::new();
        table.for_each_limiter(|_, &limiter| limiters.push(limiter));
        limiters.sort_unstable();
        assert_eq!(limiters, (0..300).collect::<Vec<_>>());
    }

    #[test]
    fn a_revoked_key_stays_revoked() {
        let table = table(0..2);
        let open_socket = authenticate(&table, 0, NOW).unwrap();
        assert_eq!(table.revoke(&raw(0).hash()).unwrap().facts(), facts(0));
        assert_eq!(authenticate(&table, 0, NOW).unwrap_err(), KeyError::Revoked);
        assert_eq!(open_socket.check(NOW), Err(KeyError::Revoked));
        assert!(authenticate(&table, 1, NOW).is_ok());
        assert!(table.revoke(&raw(2).hash()).is_none());

        let again = table.insert(raw(0).hash(), KeyEntry::new(facts(0), 0));
        assert_eq!(again.unwrap_err(), DuplicateKey);
        assert_eq!(authenticate(&table, 0, NOW).unwrap_err(), KeyError::Revoked);
    }

    #[test]
    fn a_key_expires_at_its_end() {
        let table = table(0..1);
        let end_of_time = Timestamp::from_nanos(i64::MAX);
        let open_socket = authenticate(&table, 0, end_of_time).unwrap();
        assert!(open_socket.expires_at().is_none() && open_socket.is_lasting());
        assert!(table.set_expiry(&raw(1).hash(), NOW).is_none());
        table.set_expiry(&raw(0).hash(), NOW).unwrap();
        assert!(open_socket.expires_at() == Some(NOW) && !open_socket.is_lasting());
        let before = Timestamp::from_nanos(NOW.nanos() - 1);
        let expired = KeyError::Expired { expires_at: NOW };
        // The clock passed in decides, even when it was set back.
        for (now, expected) in
            [(before, Ok(())), (NOW, Err(expired)), (before, Ok(())), (end_of_time, Err(expired))]
        {
            assert_eq!(authenticate(&table, 0, now).map(|_| ()), expected);
            assert_eq!(open_socket.check(now), expected);
        }
        table.revoke(&raw(0).hash()).unwrap();
        assert_eq!(authenticate(&table, 0, NOW).unwrap_err(), KeyError::Revoked);
        table.set_expiry(&raw(0).hash(), end_of_time).unwrap();
        assert_eq!(authenticate(&table, 0, NOW).unwrap_err(), KeyError::Revoked);
    }

    #[test]
    fn successors_share_one_limiter_and_keep_only_the_first_key_alive() {
        let table = table(0..2);
        let first = table.get(&raw(0).hash()).unwrap();
        let mut old = first.clone();
        for number in 10..14 {
            let entry = KeyEntry::successor(facts(number), &old);
            assert!(
                matches!(&entry.limiter, Limiter::Inherited(kept) if Arc::ptr_eq(kept, &first))
            );
            old = table.insert(raw(number).hash(), entry).unwrap();
        }
        for number in [0, 10, 11, 12] {
            assert_eq!(*authenticate(&table, number, NOW).unwrap().limiter(), 0, "{number}");
            table.remove(&raw(number).hash());
        }
        assert_eq!(*authenticate(&table, 13, NOW).unwrap().limiter(), 0);
        assert_eq!(*authenticate(&table, 1, NOW).unwrap().limiter(), 1);
        let mut limiters = Vec::new();
        table.for_each_limiter(|_, &limiter| limiters.push(limiter));
        limiters.sort_unstable();
        assert_eq!(limiters, [0, 1]);
    }

    #[test]
    fn the_last_use_is_recorded_to_within_a_second() {
        let table = table(0..1);
        let entry = table.get(&raw(0).hash()).unwrap();
        assert_eq!(entry.last_used(), None);
        for (millis, expected) in
            [(0, 0), (999, 0), (1000, 0), (1001, 1001), (2000, 1001), (9000, 9000), (-5000, -5000)]
        {
            let at = |millis| Timestamp::from_millis(NOW.millis() + millis);
            authenticate(&table, 0, at(millis)).unwrap();
            assert_eq!(entry.last_used(), Some(at(expected)), "{millis}");
        }
        table.revoke(&raw(0).hash());
        authenticate(&table, 0, Timestamp::from_nanos(i64::MAX)).unwrap_err();
        assert_eq!(entry.last_used(), Some(Timestamp::from_millis(NOW.millis() - 5000)));
    }

    #[test]
    fn there_is_room_up_to_the_limit() {
        let table = KeyTable::new(2);
        for (number, had_room) in [(0, true), (1, true), (2, false)] {
            assert_eq!(table.has_room(), had_room);
            table.insert(raw(number).hash(), KeyEntry::new(facts(number), ())).unwrap();
        }
        assert!(!table.has_room());
    }

    #[test]
    fn a_removed_key_makes_room_and_stays_revoked_for_its_holders() {
        let table = KeyTable::new(1);
        table.insert(raw(0).hash(), KeyEntry::new(facts(0), ())).unwrap();
        let open_socket = table.revoke(&raw(0).hash()).unwrap();
        assert!(!table.has_room());
        table.remove(&raw(0).hash());
        let found = table.authenticate(raw(0).expose().as_bytes(), NOW);
        assert_eq!(found.unwrap_err(), KeyError::Unknown);
        assert!(table.has_room());
        assert_eq!(open_socket.check(NOW), Err(KeyError::Revoked));
    }

    #[test]
    fn a_revocation_takes_effect_at_once_on_every_thread() {
        const KEYS: u32 = 2000;
        let table = table(0..KEYS);
        // All keys below this one are revoked.
        let revoked = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    loop {
                        let known = u32::try_from(revoked.load(Ordering::Acquire)).unwrap();
                        if let Some(newest) = known.checked_sub(1) {
                            let found = authenticate(&table, newest, NOW).map(|_| ());
                            assert_eq!(found, Err(KeyError::Revoked));
                        }
                        if known == KEYS {
                            break;
                        }
                    }
                });
            }
            // Growing the table makes lookups meet entries that are being moved.
            for number in 0..KEYS {
                let added = number + KEYS;
                table.insert(raw(added).hash(), KeyEntry::new(facts(added), added)).unwrap();
                table.revoke(&raw(number).hash()).unwrap();
                revoked.fetch_add(1, Ordering::Release);
            }
        });
        for number in 0..2 * KEYS {
            assert_eq!(authenticate(&table, number, NOW).is_err(), number < KEYS, "{number}");
        }
    }
}
