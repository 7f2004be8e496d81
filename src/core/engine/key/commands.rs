//! Creating, renaming, rotating, revoking and forgetting keys.

use smallvec::{SmallVec, smallvec};

use crate::engine::account::Account;
use crate::engine::account::opening::Actor;
use crate::engine::command::{CreateKey, RenameKey, RevokeKey, RotateKey};
use crate::engine::contradiction::{Flaw, NOT_KEPT, NOT_NEXT};
use crate::engine::decide::{Command, Given, IDS_EXHAUSTED, Verdict};
use crate::engine::event::{Event, Events};
use crate::engine::key::stored::KeyRow;
use crate::engine::key::{
    ENDED_KEYS_PER_ACCOUNT_MAX, Key, KeyGrant, OVERLAPPING_KEYS_PER_ACCOUNT_MAX,
};
use crate::engine::rejection::Rejection;
use crate::engine::state::State;
use crate::engine::state::hash::StateHash;
use crate::engine::state::slab::PackedSlot;
use crate::faults::{self, Fault};
use crate::ids::{KeyId, Lsn, Timestamp};

/// The maximum number of ended keys that creating a key forgets. It is more than one, so that an
/// account over the limit shrinks, and bounded, so that the command's work is bounded too.
const FORGOTTEN_PER_KEY_MAX: usize = 2;

impl Command for CreateKey {
    type Subject = KeyId;
    type Answer = Key;

    fn decide(&self, state: &State, given: Given<'_, '_>) -> Result<Verdict<KeyId>, Rejection> {
        let now = given.now;
        let actor = state.actor(&self.owner)?;
        state.require_lasting(self.created_by, now)?;
        if let Actor::Known(account) = actor {
            // The tier was checked when the request arrived, but an operator may have lowered it
            // since.
            let is_above = account.tier().is_some_and(|highest| self.grant.tier > highest);
            if is_above && !faults::is_on(Fault::TierIgnored) {
                return Err(Rejection::TierNotAuthorized);
            }
            if self.is_bootstrap && state.keys_of(account).any(|key| key.is_active(now)) {
                return Err(Rejection::BootstrapNotAllowed);
            }
        }
        state.created(actor, self.created_by, given, |_| Ok(self.grant.clone()))
    }

    fn answer(state: &State, key: KeyId, _: bool) -> Key {
        state.key(key).expect("just created")
    }

    fn depends_on(&self, state: &State) -> Lsn {
        state.owner_lsn(&self.owner)
    }
}

impl Command for RenameKey {
    type Subject = KeyId;
    type Answer = Key;

    fn decide(&self, state: &State, given: Given<'_, '_>) -> Result<Verdict<KeyId>, Rejection> {
        let Self { account, key, ref name, caller_key } = *self;
        let account = state.writable_account(account)?;
        state.require_lasting(caller_key, given.now)?;
        if state.key_of(account, key)?.name() == name.as_deref() {
            return Ok(Verdict::Already(key));
        }
        Ok(Verdict::Happens(smallvec![Event::KeyRenamed { key, name: name.clone() }], key))
    }

    fn answer(state: &State, key: KeyId, _: bool) -> Key {
        state.key(key).expect("a key that was just found or renamed")
    }

    fn depends_on(&self, state: &State) -> Lsn {
        state.account_lsn(self.account)
    }
}

/// The new key counts as created by the old one, so revoking the old one with its descendants also
/// revokes the new one.
impl Command for RotateKey {
    type Subject = KeyId;
    type Answer = Key;

    fn decide(&self, state: &State, given: Given<'_, '_>) -> Result<Verdict<KeyId>, Rejection> {
        let now = given.now;
        let account = state.writable_account(self.account)?;
        state.require_lasting(self.caller_key, now)?;
        let old = state.key_of(account, self.key)?;
        if !old.is_active(now) {
            return Err(Rejection::KeyEnded);
        }
        if let Some(expires_at) = old.expires_at() {
            return Err(Rejection::KeyRotated { expires_at });
        }
        let is_overlapping = |key: &&KeyRow| key.is_active(now) && !key.is_lasting(now);
        let overlapping_keys_max = OVERLAPPING_KEYS_PER_ACCOUNT_MAX;
        if self.overlap_seconds > 0
            && state.keys_of(account).filter(is_overlapping).count() >= overlapping_keys_max
        {
            return Err(Rejection::OverlapLimitExceeded { overlapping_keys_max });
        }
        let key = KeyId::new(state.shard, state.keys_ever + 1).ok_or(IDS_EXHAUSTED)?;
        let forgotten = state.forgotten_keys(account, now);
        let mut events: Events =
            forgotten.into_iter().map(|key| Event::KeyForgotten { key }).collect();
        // Without an overlap the key is revoked for good: an expiry would be undone if the clock
        // were set back.
        events.push(match i64::from(self.overlap_seconds) {
            0 => Event::KeyRevoked { key: old.id, at: now },
            seconds => Event::KeyExpirySet {
                key: old.id,
                expires_at: Timestamp::from_nanos(
                    now.nanos().saturating_add(seconds * 1_000_000_000),
                ),
            },
        });
        // A random key takes the place of a wallet's, so it is none of the wallet's.
        let grant = KeyGrant {
            hash: self.hash,
            prefix: self.prefix.clone(),
            wallet: None,
            ..state.unpacked(old).grant
        };
        events.push(Event::KeyCreated {
            key,
            account: self.account,
            grant,
            created_by: Some(old.id),
            at: now,
        });
        Ok(Verdict::Happens(events, key))
    }

    fn answer(state: &State, key: KeyId, _: bool) -> Key {
        state.key(key).expect("just created")
    }

    fn depends_on(&self, state: &State) -> Lsn {
        state.account_lsn(self.account)
    }
}

impl Command for RevokeKey {
    type Subject = ();
    type Answer = ();

    fn decide(&self, state: &State, given: Given<'_, '_>) -> Result<Verdict<()>, Rejection> {
        let account = state.writable_account(self.account)?;
        state.key_of(account, self.key)?;
        let ended = state.revoked_with(self.key, self.descendants, account);
        if ended.is_empty() {
            return Ok(Verdict::Already(()));
        }
        // One record for the whole family, so that a crash cannot leave some descendants active.
        let revoked = |key| Event::KeyRevoked { key, at: given.now };
        Ok(Verdict::Happens(ended.into_iter().map(revoked).collect(), ()))
    }

    fn answer(_: &State, (): (), _: bool) {}

    fn depends_on(&self, state: &State) -> Lsn {
        state.account_lsn(self.account)
    }
}

impl State {
    /// Returns what creates the actor's next key: opens a new account, and forgets old keys of a
    /// known one. `grant` gets the key's id. Fails if the account has no room for another key.
    pub(in crate::engine) fn created(
        &self,
        actor: Actor<'_>,
        created_by: Option<KeyId>,
        given: Given<'_, '_>,
        grant: impl FnOnce(KeyId) -> Result<KeyGrant, Rejection>,
    ) -> Result<Verdict<KeyId>, Rejection> {
        let Given { now, rules, .. } = given;
        let mut events = Events::from_iter(actor.opening(now, rules));
        if let Actor::Known(account) = actor {
            let lasting_count = self.keys_of(account).filter(|key| key.is_lasting(now)).count();
            if lasting_count >= rules.active_keys_max as usize {
                let active_keys_max = rules.active_keys_max;
                return Err(Rejection::KeyLimitExceeded { active_keys_max });
            }
            let forgotten = self.forgotten_keys(account, now);
            events.extend(forgotten.into_iter().map(|key| Event::KeyForgotten { key }));
        }
        let key = KeyId::new(self.shard, self.keys_ever + 1).ok_or(IDS_EXHAUSTED)?;
        let (account, grant) = (actor.id(), grant(key)?);
        events.push(Event::KeyCreated { key, account, grant, created_by, at: now });
        Ok(Verdict::Happens(events, key))
    }

    /// Returns the key with this id, unless it was forgotten.
    pub fn key(&self, id: KeyId) -> Option<Key> {
        self.keys.slot(id).map(|slot| self.unpacked(&self.keys[slot]))
    }

    /// Rejects a caller whose key has been revoked or has expired since the caller was
    /// authenticated, so that no key is created after its creator was revoked with all descendants.
    /// Also rejects a caller whose key was rotated.
    fn require_lasting(&self, caller_key: Option<KeyId>, now: Timestamp) -> Result<(), Rejection> {
        let Some(id) = caller_key else { return Ok(()) };
        let key = self.keys.slot(id).map(|slot| &self.keys[slot]);
        match key.filter(|key| key.is_active(now)) {
            None => Err(Rejection::MakerEnded),
            Some(key) if !key.is_lasting(now) => Err(Rejection::MakerRotated),
            Some(_) => Ok(()),
        }
    }

    fn key_of(&self, account: &Account, key: KeyId) -> Result<&KeyRow, Rejection> {
        self.keys_of(account).find(|own| own.id == key).ok_or(Rejection::KeyNotFound)
    }

    pub(in crate::engine) fn add_key(
        &mut self,
        key: Key,
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        let (id, account) = (key.id, key.account);
        let counter = id.counter();
        if id.shard() != self.shard || Some(counter) != self.keys_ever.checked_add(1) {
            return Err(Flaw::key(id, NOT_NEXT));
        }
        if let Some(wallet) = key.grant.wallet
            && let Some(account) = self.account(account)
            && self.key_of_wallet(account, &wallet).is_some()
        {
            return Err(Flaw::key(id, "is of a wallet that has one for its nonce"));
        }
        self.keys_ever = counter;
        self.insert_key(key)
            .ok_or(Flaw::key(id, "is of no account, or was made with a key of none"))?;
        self.touch_account(account, position_in_log);
        Ok(())
    }

    /// Applies `change` to a stored key. `change` returns `None` if it contradicts the key.
    pub(in crate::engine) fn change_key(
        &mut self,
        id: KeyId,
        position_in_log: u64,
        change: impl FnOnce(&mut KeyRow) -> Option<()>,
    ) -> Result<(), Flaw> {
        let slot = self.keys.slot(id).ok_or(Flaw::key(id, NOT_KEPT))?;
        self.hash -= self.key_term(&self.keys[slot]);
        change(&mut self.keys[slot]).ok_or(Flaw::key(id, "has an end already"))?;
        self.hash += self.key_term(&self.keys[slot]);
        self.touch_account(self.keys[slot].account(), position_in_log);
        Ok(())
    }

    pub(in crate::engine) fn forget_key(
        &mut self,
        id: KeyId,
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        let slot = self.keys.slot(id).ok_or(Flaw::key(id, NOT_KEPT))?;
        let account = self.keys[slot].account();
        self.remove_key(id);
        self.touch_account(account, position_in_log);
        self.last_removal = position_in_log;
        Ok(())
    }

    /// Unpacks a stored key.
    pub(in crate::engine) fn unpacked(&self, row: &KeyRow) -> Key {
        row.unpacked(self.kept_maker(row))
    }

    fn kept_maker(&self, row: &KeyRow) -> Option<KeyId> {
        row.kept_maker().map(|slot| self.keys[slot.get()].id)
    }

    /// Iterates over an account's keys, newest first.
    pub(in crate::engine) fn keys_of(&self, account: &Account) -> impl Iterator<Item = &KeyRow> {
        let row = |slot: PackedSlot| &self.keys[slot.get()];
        std::iter::successors(account.newest_key.map(row), move |key| key.older.map(row))
    }

    /// Returns an account's keys, oldest first.
    pub(in crate::engine) fn keys_oldest_first(&self, account: &Account) -> Vec<&KeyRow> {
        let mut keys: Vec<_> = self.keys_of(account).collect();
        keys.reverse();
        keys
    }

    /// Returns the keys to revoke with `root`: `root` itself and, if `descendants` is set, every
    /// key that it created directly or indirectly. Keys that are already revoked are left out.
    /// Expired keys are included: if the clock that expired them turns out to have been ahead, they
    /// must not become valid again.
    pub(in crate::engine) fn revoked_with(
        &self,
        root: KeyId,
        descendants: bool,
        account: &Account,
    ) -> SmallVec<[KeyId; 4]> {
        let mut ended: SmallVec<[KeyId; 4]> = SmallVec::new();
        let mut family: SmallVec<[KeyId; 8]> = SmallVec::from_slice(&[root]);
        // Oldest first, so a key comes after its creator.
        for key in self.keys_oldest_first(account) {
            let is_family = key.id == root
                || (descendants
                    && self.kept_maker(key).is_some_and(|maker| family.contains(&maker)));
            if is_family {
                family.push(key.id);
                if key.revoked_at().is_none() {
                    ended.push(key.id);
                }
            }
        }
        ended
    }

    /// Returns the keys that the account forgets when it gets a new key at `now`: the oldest ended
    /// keys beyond [`ENDED_KEYS_PER_ACCOUNT_MAX`], at most [`FORGOTTEN_PER_KEY_MAX`].
    pub(in crate::engine) fn forgotten_keys(
        &self,
        account: &Account,
        now: Timestamp,
    ) -> SmallVec<[KeyId; FORGOTTEN_PER_KEY_MAX]> {
        let keys = self.keys_oldest_first(account);
        let ended = || keys.iter().filter(|key| !key.is_active(now));
        let excess = ended().count().saturating_sub(ENDED_KEYS_PER_ACCOUNT_MAX);
        ended().take(excess.min(FORGOTTEN_PER_KEY_MAX)).map(|key| key.id).collect()
    }

    /// Returns the key's term in the state hash.
    pub(in crate::engine) fn key_term(&self, row: &KeyRow) -> StateHash {
        row.term(self.kept_maker(row))
    }

    /// Adds a key as the newest of its account. Returns `None` if the account or the creator does
    /// not exist or a field is out of range.
    pub(in crate::engine) fn insert_key(&mut self, key: Key) -> Option<()> {
        let slot_of = |maker: KeyId| {
            let slot = self.keys.slot(maker)?;
            (self.keys[slot].account() == key.account).then(|| PackedSlot::new(slot))
        };
        let kept_maker = match key.kept_maker {
            Some(maker) => Some(slot_of(maker)?),
            None => None,
        };
        let account_index = self.account_slot(key.account)?;
        let row = KeyRow::pack(key, kept_maker, self.accounts[account_index].newest_key)?;
        self.hash += self.key_term(&row);
        let slot = self.keys.insert(row);
        self.accounts[account_index].newest_key = Some(PackedSlot::new(slot));
        Some(())
    }

    /// Removes a key. Keys that it created get its own creator as their kept creator.
    pub(in crate::engine) fn remove_key(&mut self, id: KeyId) {
        let slot = self.keys.slot(id).expect("the key is kept");
        let removed = PackedSlot::new(slot);
        self.hash -= self.key_term(&self.keys[slot]);
        let account =
            self.account_slot(self.keys[slot].account()).expect("every key has an account");
        let mut newer = None;
        let mut next = self.accounts[account].newest_key;
        while let Some(at) = next.filter(|&at| at != removed) {
            if self.keys[at.get()].kept_maker() == Some(removed) {
                self.hash -= self.key_term(&self.keys[at.get()]);
                let kept_maker = self.keys[slot].kept_maker();
                self.keys[at.get()].set_kept_maker(kept_maker);
                self.hash += self.key_term(&self.keys[at.get()]);
            }
            newer = Some(at);
            next = self.keys[at.get()].older;
        }
        // Keys created by the removed key are newer, so the loop has visited all of them.
        let older = self.keys[slot].older;
        match newer {
            None => self.accounts[account].newest_key = older,
            Some(newer) => self.keys[newer.get()].older = older,
        }
        self.keys.remove(slot);
    }
}
