//! A stored key.

use super::heap::text_bytes;
use super::key::{KEY_PREFIX_BYTES_MAX, Key, KeyGrant, OVERLAP_SECONDS_MAX, Permissions};
use super::slab::{PackedSlot, Row};
use super::state_hash::{StateHash, Term, TermKind};
use crate::ids::{AccountId, KeyId, Timestamp};
use crate::limits::tier::Tier;

/// The packed form of a [`Key`].
#[derive(Clone, Debug)]
pub(super) struct KeyRow {
    pub(super) id: KeyId,
    created_by: Option<KeyId>,
    created_at: Timestamp,
    /// Meaningful only with [`FLAG_REVOKED`].
    revoked_at: Timestamp,
    /// Meaningful only with [`FLAG_EXPIRES`].
    expires_at: Timestamp,
    name: Option<Box<str>>,
    pub(super) hash: [u8; 32],
    prefix: [u8; KEY_PREFIX_BYTES_MAX],
    /// The counter of the account.
    account: u32,
    /// The next older key of the account.
    pub(super) older: Option<PackedSlot>,
    pub(super) kept_maker: Option<PackedSlot>,
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
    /// Packs a key that is next newer than `older`; `None` if a field is out of range.
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

    pub(super) fn revoked_at(&self) -> Option<Timestamp> {
        (self.flags & FLAG_REVOKED != 0).then_some(self.revoked_at)
    }

    pub(super) const fn tier(&self) -> Tier {
        self.tier
    }

    pub(super) fn set_tier(&mut self, tier: Tier) {
        self.tier = tier;
    }

    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The memory of the name.
    pub(super) fn owned_bytes(&self) -> usize {
        self.name.as_ref().map_or(0, |name| text_bytes(name.len()))
    }

    pub(super) fn rename(&mut self, name: Option<Box<str>>) {
        self.name = name;
    }

    /// Sets the expiry; `None` if the key has one or is revoked.
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

    /// Whether the key is accepted at `now`.
    pub(super) fn is_active(&self, now: Timestamp) -> bool {
        let is_ahead = |end: Timestamp| end.is_ahead(now, OVERLAP_SECONDS_MAX);
        self.revoked_at().is_none() && self.expires_at().is_none_or(is_ahead)
    }

    /// Whether the key is accepted at `now` and was not rotated.
    pub(super) fn is_lasting(&self, now: Timestamp) -> bool {
        self.is_active(now) && self.expires_at().is_none()
    }

    /// The unpacked key; `kept_maker` must be the id of the key in that slot.
    pub(super) fn unpacked(&self, kept_maker: Option<KeyId>) -> Key {
        let prefix = &self.prefix[..self.prefix_bytes.into()];
        let prefix = std::str::from_utf8(prefix).expect("it was packed from a text");
        Key {
            id: self.id,
            account: self.account(),
            grant: KeyGrant {
                hash: self.hash,
                prefix: prefix.into(),
                name: self.name.clone(),
                tier: self.tier,
                permissions: self.permissions,
                expires_at: self.expires_at(),
            },
            created_by: self.created_by,
            kept_maker,
            created_at: self.created_at,
            revoked_at: self.revoked_at(),
        }
    }

    /// The key's term in the state hash; `kept_maker` must be the id of the key in that slot.
    pub(super) fn term(&self, kept_maker: Option<KeyId>) -> StateHash {
        Term::new(TermKind::Key)
            .number(self.id.get())
            .number(self.account.into())
            .number(self.created_by.map_or(0, KeyId::get))
            .number(kept_maker.map_or(0, KeyId::get))
            .signed(self.created_at.nanos())
            .optional(self.revoked_at().map(Timestamp::nanos))
            .optional(self.expires_at().map(Timestamp::nanos))
            .number(u64::from(self.permissions.bits()) << 8 | self.tier as u64)
            .bytes(&self.hash)
            .bytes(&self.prefix[..self.prefix_bytes.into()])
            .optional_text(self.name.as_deref())
            .finish()
    }
}
