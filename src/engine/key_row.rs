//! A key as its shard keeps it, and the keys of one account.

use smallvec::SmallVec;

use super::State;
use super::account::Account;
use super::key::{
    ENDED_KEYS_PER_ACCOUNT_MAX, KEY_PREFIX_BYTES_MAX, Key, KeyGrant, OVERLAP_SECONDS_MAX,
    Permissions,
};
use super::slab::{PackedSlot, Row};
use super::state_hash::{StateHash, Term, TermKind};
use crate::ids::{AccountId, KeyId, Timestamp};
use crate::limits::tier::Tier;

/// Every new key forgets at most so many: the work of a command is bounded, and still an account
/// that has too many comes to have fewer.
const FORGOTTEN_PER_KEY_MAX: usize = 2;

/// The packed form of a [`Key`].
#[derive(Clone, Debug)]
pub(super) struct KeyRow {
    pub(super) id: KeyId,
    created_by: Option<KeyId>,
    created_at: Timestamp,
    /// Means something only with [`FLAG_REVOKED`].
    revoked_at: Timestamp,
    /// Means something only with [`FLAG_EXPIRES`].
    expires_at: Timestamp,
    name: Option<Box<str>>,
    pub(super) hash: [u8; 32],
    prefix: [u8; KEY_PREFIX_BYTES_MAX],
    /// The counter of the account.
    account: u32,
    /// The next older key of the account.
    pub(super) older: Option<PackedSlot>,
    kept_maker: Option<PackedSlot>,
    prefix_bytes: u8,
    tier: Tier,
    permissions: Permissions,
    flags: u8,
}

const _: () = assert!(size_of::<Option<KeyRow>>() <= 120, "a million keys are 120 MB");

const FLAG_REVOKED: u8 = 1;
const FLAG_EXPIRES: u8 = 1 << 1;

impl Row for KeyRow {
    type Id = KeyId;

    fn id(&self) -> KeyId {
        self.id
    }

    fn counter(id: KeyId) -> u64 {
        id.counter()
    }
}

impl KeyRow {
    /// The packed form of a key, in front of `older`. `None` when something is outside of what a
    /// key can have.
    pub(super) fn pack(
        key: Key,
        kept_maker: Option<PackedSlot>,
        older: Option<PackedSlot>,
    ) -> Option<Self> {
        let grant = key.grant;
        let mut prefix = [0; KEY_PREFIX_BYTES_MAX];
        prefix.get_mut(..grant.prefix.len())?.copy_from_slice(grant.prefix.as_bytes());
        let flags = if key.revoked_at.is_some() { FLAG_REVOKED } else { 0 }
            | if grant.expires_at.is_some() { FLAG_EXPIRES } else { 0 };
        Some(Self {
            id: key.id,
            created_by: key.created_by,
            created_at: key.created_at,
            revoked_at: key.revoked_at.unwrap_or_default(),
            expires_at: grant.expires_at.unwrap_or_default(),
            name: grant.name,
            hash: grant.hash,
            prefix,
            account: u32::try_from(key.account.counter()).ok()?,
            older,
            kept_maker,
            prefix_bytes: u8::try_from(grant.prefix.len()).ok()?,
            tier: grant.tier,
            permissions: grant.permissions,
            flags,
        })
    }

    pub(super) fn account(&self) -> AccountId {
        AccountId::new(self.id.shard(), self.account.into()).expect("it was packed from an id")
    }

    pub(super) fn expires_at(&self) -> Option<Timestamp> {
        (self.flags & FLAG_EXPIRES != 0).then_some(self.expires_at)
    }

    fn revoked_at(&self) -> Option<Timestamp> {
        (self.flags & FLAG_REVOKED != 0).then_some(self.revoked_at)
    }

    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(super) fn rename(&mut self, name: Option<Box<str>>) {
        self.name = name;
    }

    /// Gives it an end; `None` when it has one.
    pub(super) fn set_expiry(&mut self, expires_at: Timestamp) -> Option<()> {
        if self.flags != 0 {
            return None;
        }
        self.expires_at = expires_at;
        self.flags |= FLAG_EXPIRES;
        Some(())
    }

    pub(super) fn revoke(&mut self, at: Timestamp) {
        self.revoked_at = at;
        self.flags |= FLAG_REVOKED;
    }

    /// Whether it is accepted at `now`.
    pub(super) fn is_active(&self, now: Timestamp) -> bool {
        let is_ahead = |end: Timestamp| end.is_ahead(now, OVERLAP_SECONDS_MAX);
        self.revoked_at().is_none() && self.expires_at().is_none_or(is_ahead)
    }

    /// Whether it is accepted at `now` and no other key has taken its place.
    pub(super) fn is_lasting(&self, now: Timestamp) -> bool {
        self.is_active(now) && self.expires_at().is_none()
    }
}

impl State {
    /// All fields of a key.
    pub(super) fn unpacked(&self, row: &KeyRow) -> Key {
        let prefix = &row.prefix[..row.prefix_bytes.into()];
        let prefix = std::str::from_utf8(prefix).expect("it was packed from a text");
        Key {
            id: row.id,
            account: row.account(),
            grant: KeyGrant {
                hash: row.hash,
                prefix: prefix.into(),
                name: row.name.clone(),
                tier: row.tier,
                permissions: row.permissions,
                expires_at: row.expires_at(),
            },
            created_by: row.created_by,
            kept_maker: self.kept_maker(row),
            created_at: row.created_at,
            revoked_at: row.revoked_at(),
        }
    }

    fn kept_maker(&self, row: &KeyRow) -> Option<KeyId> {
        row.kept_maker.map(|slot| self.keys[slot.get()].id)
    }

    /// The keys of an account, newest first.
    pub(super) fn keys_of(&self, account: &Account) -> impl Iterator<Item = &KeyRow> {
        let row = |slot: PackedSlot| &self.keys[slot.get()];
        std::iter::successors(account.newest_key.map(row), move |key| key.older.map(row))
    }

    /// The keys of an account, oldest first.
    pub(super) fn keys_oldest_first(&self, account: &Account) -> Vec<&KeyRow> {
        let mut keys: Vec<_> = self.keys_of(account).collect();
        keys.reverse();
        keys
    }

    /// The keys that end with `root`: itself, and on request every key made with it or with one of
    /// those, unless they were revoked before. A key whose overlap is over is among them: should
    /// the clock that ended it prove to be ahead, the key must not come back.
    pub(super) fn revoked_with(
        &self,
        root: KeyId,
        descendants: bool,
        account: &Account,
    ) -> SmallVec<[KeyId; 4]> {
        let mut ended: SmallVec<[KeyId; 4]> = SmallVec::new();
        let mut family: SmallVec<[KeyId; 8]> = SmallVec::from_slice(&[root]);
        // Oldest first, so a key comes behind its maker.
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

    /// The keys that the account forgets when it gets another one at `now`: the oldest that have
    /// ended, as far as there are more of them than it keeps.
    pub(super) fn forgotten_keys(
        &self,
        account: &Account,
        now: Timestamp,
    ) -> SmallVec<[KeyId; FORGOTTEN_PER_KEY_MAX]> {
        let keys = self.keys_oldest_first(account);
        let ended = || keys.iter().filter(|key| !key.is_active(now));
        let excess = ended().count().saturating_sub(ENDED_KEYS_PER_ACCOUNT_MAX);
        ended().take(excess.min(FORGOTTEN_PER_KEY_MAX)).map(|key| key.id).collect()
    }

    /// The key's term in the state hash.
    pub(super) fn key_term(&self, key: &KeyRow) -> StateHash {
        Term::new(TermKind::Key)
            .number(key.id.get())
            .number(key.account.into())
            .number(key.created_by.map_or(0, KeyId::get))
            .number(self.kept_maker(key).map_or(0, KeyId::get))
            .signed(key.created_at.nanos())
            .optional(key.revoked_at().map(Timestamp::nanos))
            .optional(key.expires_at().map(Timestamp::nanos))
            .number(u64::from(key.permissions.bits()) << 8 | key.tier as u64)
            .bytes(&key.hash)
            .bytes(&key.prefix[..key.prefix_bytes.into()])
            .optional_text(key.name.as_deref())
            .finish()
    }

    /// Puts a key in front of the others of its account. `None` when it cannot be one of them.
    pub(super) fn insert_key(&mut self, key: Key) -> Option<()> {
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

    /// Takes a key away. What was made with it goes on as if its maker had made it.
    pub(super) fn remove_key(&mut self, id: KeyId) {
        let slot = self.keys.slot(id).expect("a key that is kept");
        let removed = PackedSlot::new(slot);
        self.hash -= self.key_term(&self.keys[slot]);
        let account = self.account_slot(self.keys[slot].account()).expect("a key has an account");
        let mut newer = None;
        let mut next = self.accounts[account].newest_key;
        while let Some(at) = next.filter(|&at| at != removed) {
            if self.keys[at.get()].kept_maker == Some(removed) {
                self.hash -= self.key_term(&self.keys[at.get()]);
                self.keys[at.get()].kept_maker = self.keys[slot].kept_maker;
                self.hash += self.key_term(&self.keys[at.get()]);
            }
            newer = Some(at);
            next = self.keys[at.get()].older;
        }
        // Keys made with it are newer, so all of them were met on the way.
        let older = self.keys[slot].older;
        match newer {
            None => self.accounts[account].newest_key = older,
            Some(newer) => self.keys[newer.get()].older = older,
        }
        self.keys.remove(slot);
    }
}
