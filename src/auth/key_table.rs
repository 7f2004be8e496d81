//! Every key of the server by the hash of its text, for any number of threads at once.
//!
//! Looking a key up takes no lock and as many steps among a million keys as among a thousand; what
//! grows is the share of them that miss the processor's cache.
//!
//! The table is fed from the decisions of the shards, which own the keys; it knows of a key only
//! what each request needs, and nothing of accounts. What limits a key is a type of the caller's
//! choice: the table only keeps it beside the key.
//!
//! A key that has ended stays for as long as its shard keeps it, so that its holder is told how it
//! ended.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::api_key::KeyHash;
use super::policy::Actor;
use crate::engine::key::{OVERLAP_SECONDS_MAX, Permissions};
use crate::ids::{AccountId, KeyId, Timestamp};
use crate::limits::tier::Tier;

/// The server holds at most this many keys, revoked ones included.
pub const KEYS_MAX: usize = 1 << 22;

/// The time of the last use is not written again within this time.
const LAST_USED_STEP_NS: u64 = 1_000_000_000;

/// The `last_used_ns` of a key that was never used.
const NEVER_NS: i64 = i64::MIN;

/// The `ends_at_ns` of a key that has no end. No time comes after it.
const ENDLESS_NS: i64 = i64::MAX;

/// The `ends_at_ns` of a key that was revoked. It comes before every other end.
const REVOKED_NS: i64 = i64::MIN;

/// All keys.
pub struct KeyTable<L> {
    entries: papaya::HashMap<KeyHash, Arc<KeyEntry<L>>, foldhash::fast::RandomState>,
    key_count_max: usize,
}

impl<L> KeyTable<L> {
    /// A table for at most so many keys: [`KEYS_MAX`] outside of tests.
    pub fn new(key_count_max: usize) -> Self {
        let entries = papaya::HashMap::builder().hasher(foldhash::fast::RandomState::default());
        Self { entries: entries.build(), key_count_max }
    }

    /// Whose key this text is, at this time; counts as a use of the key.
    ///
    /// A text that cannot be a key is refused without a digest.
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

    /// The key with this hash, whatever its condition.
    pub fn get(&self, hash: &KeyHash) -> Option<Arc<KeyEntry<L>>> {
        self.entries.pin().get(hash).cloned()
    }

    /// Shows what limits each key, in any order; a key that comes or goes meanwhile may be missed.
    pub fn for_each_limiter(&self, mut visit: impl FnMut(&L)) {
        self.entries.pin().values().for_each(|entry| visit(entry.limiter()));
    }

    /// Whether there is room for one more key. To be asked before a key is decided on.
    pub fn has_room(&self) -> bool {
        self.key_count() < self.key_count_max
    }

    /// How many keys there are, revoked ones included.
    pub fn key_count(&self) -> usize {
        self.entries.len()
    }

    /// Adds a key that its shard has decided on.
    ///
    /// It asks no more for room, since what is decided cannot be refused: the bound may be passed
    /// by as many keys as were being decided on at the same time. A shard adds and revokes in the
    /// order of its decisions, or a revocation could come before its key and be lost. It need not
    /// wait for the disk: nobody knows the text of a key before its creation is answered.
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

    /// Ends a key: every check that begins after this returns refuses it, on every thread.
    ///
    /// Returns the key, or `None` when it is not known.
    pub fn revoke(&self, hash: &KeyHash) -> Option<Arc<KeyEntry<L>>> {
        let entry = self.get(hash)?;
        entry.ends_at_ns.store(REVOKED_NS, Ordering::Release);
        Some(entry)
    }

    /// Gives a key an end: every check that begins after this returns refuses it from that time on,
    /// on every thread. An end never moves back.
    ///
    /// Returns the key, or `None` when it is not known.
    pub fn set_expiry(&self, hash: &KeyHash, expires_at: Timestamp) -> Option<Arc<KeyEntry<L>>> {
        let entry = self.get(hash)?;
        entry.ends_at_ns.fetch_min(expires_at.nanos(), Ordering::Release);
        Some(entry)
    }

    /// Takes a key out that has ended: it is not known any more, and makes room for another one.
    /// Whoever holds its entry still finds that it has ended.
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

/// What each request needs to know of a key.
#[derive(Debug)]
pub struct KeyEntry<L> {
    facts: KeyFacts,
    ends_at_ns: AtomicI64,
    last_used_ns: AtomicI64,
    limiter: Limiter<L>,
}

/// What limits a key.
#[derive(Debug)]
enum Limiter<L> {
    /// Its own.
    Own(L),
    /// That of the first key of its line, which it took over by rotation.
    Inherited(Arc<KeyEntry<L>>),
}

/// What a key is, as it was created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyFacts {
    /// The number by which clients name it.
    pub key_id: KeyId,
    /// Whose key it is.
    pub account_id: AccountId,
    /// How much it may ask for.
    pub tier: Tier,
    /// What it may do.
    pub permissions: Permissions,
    /// When it was created.
    pub created_at: Timestamp,
}

impl<L> KeyEntry<L> {
    /// A key without an end that is neither revoked nor used, with what limits it.
    pub const fn new(facts: KeyFacts, limiter: L) -> Self {
        Self {
            facts,
            ends_at_ns: AtomicI64::new(ENDLESS_NS),
            last_used_ns: AtomicI64::new(NEVER_NS),
            limiter: Limiter::Own(limiter),
        }
    }

    /// A key that takes the place of another one: what limits both is the same.
    ///
    /// It keeps the entry of the first key of its line alive, and of no other.
    pub fn successor(facts: KeyFacts, old: &Arc<Self>) -> Self {
        let first = match &old.limiter {
            Limiter::Own(_) => old,
            Limiter::Inherited(first) => first,
        };
        Self {
            facts,
            ends_at_ns: AtomicI64::new(ENDLESS_NS),
            last_used_ns: AtomicI64::new(NEVER_NS),
            limiter: Limiter::Inherited(first.clone()),
        }
    }

    /// What the key is.
    pub const fn facts(&self) -> &KeyFacts {
        &self.facts
    }

    /// The key as one who asks.
    pub const fn actor(&self) -> Actor {
        Actor::Key { permissions: self.facts.permissions, tier: self.facts.tier }
    }

    /// What limits the key.
    #[inline]
    pub fn limiter(&self) -> &L {
        match &self.limiter {
            Limiter::Own(limiter) => limiter,
            Limiter::Inherited(first) => first.limiter(),
        }
    }

    /// Whether the key may still be used at this time. A socket asks this again while it is open.
    ///
    /// An end that is further away than any overlap is a wrong clock's: the rotation ended the key.
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

    /// From when on the key is refused, if it was rotated.
    pub fn expires_at(&self) -> Option<Timestamp> {
        match self.ends_at_ns.load(Ordering::Acquire) {
            ENDLESS_NS | REVOKED_NS => None,
            nanos => Some(Timestamp::from_nanos(nanos)),
        }
    }

    /// Whether the key goes on for as long as nobody ends it: it was neither revoked nor rotated.
    pub fn is_lasting(&self) -> bool {
        self.ends_at_ns.load(Ordering::Acquire) == ENDLESS_NS
    }

    /// When the key was last used since the server started, to about a second.
    pub fn last_used(&self) -> Option<Timestamp> {
        match self.last_used_ns.load(Ordering::Relaxed) {
            NEVER_NS => None,
            nanos => Some(Timestamp::from_nanos(nanos)),
        }
    }

    /// Writes at most once a second, so that threads which share a key seldom share a store. It
    /// follows a clock that was set back.
    fn touch(&self, now: Timestamp) {
        let last_ns = self.last_used_ns.load(Ordering::Relaxed);
        if last_ns.abs_diff(now.nanos()) > LAST_USED_STEP_NS {
            self.last_used_ns.store(now.nanos(), Ordering::Relaxed);
        }
    }
}

/// Why a text opens nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyError {
    /// `INVALID_KEY`: no key has that text.
    #[error("the API key is not known")]
    Unknown,
    /// `KEY_DEACTIVATED`: it was a key until it was revoked.
    #[error("the API key was revoked")]
    Revoked,
    /// `KEY_EXPIRED`: it was a key for as long as it was meant to be one.
    #[error("the API key expired at {expires_at}")]
    Expired {
        /// When it ended.
        expires_at: Timestamp,
    },
}

/// A key with that hash is already there; it is left as it was.
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
    fn each_key_leads_to_its_entry() {
        let table = table(0..300);
        for number in 0..300 {
            let entry = authenticate(&table, number, NOW).unwrap();
            assert_eq!((entry.facts(), *entry.limiter()), (&facts(number), number));
        }
        assert_eq!(authenticate(&table, 300, NOW).unwrap_err(), KeyError::Unknown);
        assert_eq!(table.authenticate(b"", NOW).unwrap_err(), KeyError::Unknown);
        assert_eq!(table.authenticate(b"ps_live_zz", NOW).unwrap_err(), KeyError::Unknown);
        assert_eq!(table.key_count(), 300);
        let mut limiters = Vec::new();
        table.for_each_limiter(|&limiter| limiters.push(limiter));
        limiters.sort_unstable();
        assert_eq!(limiters, (0..300).collect::<Vec<_>>());
    }

    #[test]
    fn a_revoked_key_is_told_so_for_ever() {
        let table = table(0..2);
        let open_socket = authenticate(&table, 0, NOW).unwrap();
        assert_eq!(table.revoke(&raw(0).hash()).unwrap().facts(), &facts(0));
        assert_eq!(authenticate(&table, 0, NOW).unwrap_err(), KeyError::Revoked);
        assert_eq!(open_socket.check(NOW), Err(KeyError::Revoked));
        assert!(authenticate(&table, 1, NOW).is_ok());
        assert!(table.revoke(&raw(2).hash()).is_none());

        let again = table.insert(raw(0).hash(), KeyEntry::new(facts(0), 0));
        assert_eq!(again.unwrap_err(), DuplicateKey);
        assert_eq!(authenticate(&table, 0, NOW).unwrap_err(), KeyError::Revoked);
    }

    #[test]
    fn a_key_ends_at_its_time() {
        let table = table(0..1);
        let end_of_time = Timestamp::from_nanos(i64::MAX);
        let open_socket = authenticate(&table, 0, end_of_time).unwrap();
        assert!(open_socket.expires_at().is_none() && open_socket.is_lasting());
        assert!(table.set_expiry(&raw(1).hash(), NOW).is_none());
        table.set_expiry(&raw(0).hash(), NOW).unwrap();
        assert!(open_socket.expires_at() == Some(NOW) && !open_socket.is_lasting());
        let before = Timestamp::from_nanos(NOW.nanos() - 1);
        let expired = KeyError::Expired { expires_at: NOW };
        // The clock on the wall says, also when it was set back.
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
    fn a_line_of_successors_has_one_limiter_and_keeps_only_its_first_key() {
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
        table.for_each_limiter(|&limiter| limiters.push(limiter));
        limiters.sort_unstable();
        assert_eq!(limiters, [0, 1]);
    }

    #[test]
    fn the_last_use_is_known_to_a_second() {
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
    fn room_ends_at_the_bound() {
        let table = KeyTable::new(2);
        for (number, had_room) in [(0, true), (1, true), (2, false)] {
            assert_eq!(table.has_room(), had_room);
            table.insert(raw(number).hash(), KeyEntry::new(facts(number), ())).unwrap();
        }
        assert!(!table.has_room());
    }

    #[test]
    fn a_key_that_is_removed_makes_room_and_stays_ended_for_who_holds_it() {
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
    fn a_revocation_bites_at_once_on_every_thread() {
        const KEYS: u32 = 2000;
        let table = table(0..KEYS);
        // How many keys are surely revoked: those below it.
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
            // The table grows meanwhile, so that look-ups also meet one that is being moved.
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
