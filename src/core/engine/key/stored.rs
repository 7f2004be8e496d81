//! Packed storage of keys.

use smallvec::SmallVec;

use crate::engine::key::{
    KEY_MARKER, KEY_PREFIX_BYTES_MAX, Key, KeyGrant, OVERLAP_SECONDS_MAX, Permissions, WalletGrant,
    generation_of,
};
use crate::engine::state::hash::{StateHash, Term, TermKind};
use crate::engine::state::heap::text_bytes;
use crate::engine::state::slab::{PackedSlot, Row};
use crate::ids::{AccountId, KeyId, Timestamp};
use crate::limits::tier::Tier;

/// The packed form of a [`Key`].
#[derive(Clone, Debug)]
pub(in crate::engine) struct KeyRow {
    pub(in crate::engine) id: KeyId,
    created_at: Timestamp,
    pub(in crate::engine) hash: [u8; 32],
    extras: Option<Box<Extras>>,
    /// The hexadecimal digits of a usual prefix. Meaningful only if the extras have no prefix.
    prefix_digits: u32,
    /// The counter of the account's id. The account is in the same shard as the key.
    account: u32,
    /// The next older key of the account.
    pub(in crate::engine) older: Option<PackedSlot>,
    tier: Tier,
    permissions: Permissions,
}

const _: () = assert!(size_of::<Option<KeyRow>>() <= 72, "a million keys are 72 MB");

/// Fields that most keys do not need, since most keys are created with an access token, have no
/// name, and do not expire.
#[derive(Clone, Debug, Default)]
struct Extras {
    created_by: Option<KeyId>,
    name: Option<Box<str>>,
    /// The prefix, if it is not a usual one.
    prefix: Option<Box<str>>,
    wallet: Option<Box<WalletGrant>>,
    /// Meaningful only with [`FLAG_REVOKED`].
    revoked_at: Timestamp,
    /// Meaningful only with [`FLAG_EXPIRES`].
    expires_at: Timestamp,
    kept_maker: Option<PackedSlot>,
    flags: u8,
}

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
    /// Packs a key. `older` is the slot of the account's next older key. Returns `None` if a field
    /// is out of range.
    pub(in crate::engine) fn pack(
        key: Key,
        kept_maker: Option<PackedSlot>,
        older: Option<PackedSlot>,
    ) -> Option<Self> {
        let KeyGrant { hash, prefix, name, tier, permissions, expires_at, wallet } = key.grant;
        let has_generation = wallet.is_none() || generation_of(key.id).is_some();
        if prefix.len() > KEY_PREFIX_BYTES_MAX || !has_generation {
            return None;
        }
        let prefix_digits = usual_digits(&prefix);
        let flags = if key.revoked_at.is_some() { FLAG_REVOKED } else { 0 }
            | if expires_at.is_some() { FLAG_EXPIRES } else { 0 };
        let extras = Extras {
            created_by: key.created_by,
            name,
            prefix: prefix_digits.is_none().then_some(prefix),
            wallet: wallet.map(Box::new),
            revoked_at: key.revoked_at.unwrap_or_default(),
            expires_at: expires_at.unwrap_or_default(),
            kept_maker,
            flags,
        };
        Some(Self {
            id: key.id,
            created_at: key.created_at,
            hash,
            extras: (!extras.is_empty()).then(|| Box::new(extras)),
            prefix_digits: prefix_digits.unwrap_or_default(),
            account: u32::try_from(key.account.counter()).ok()?,
            older,
            tier,
            permissions,
        })
    }

    pub(in crate::engine) fn account(&self) -> AccountId {
        AccountId::new(self.id.shard(), self.account.into()).expect("it was packed from an id")
    }

    fn prefix(&self) -> SmallVec<[u8; KEY_PREFIX_BYTES_MAX]> {
        let other = self.extras.as_ref().and_then(|extras| extras.prefix.as_deref());
        match other {
            Some(other) => SmallVec::from_slice(other.as_bytes()),
            None => usual_prefix(self.prefix_digits).into(),
        }
    }

    fn has(&self, flag: u8) -> Option<&Extras> {
        self.extras.as_deref().filter(|extras| extras.flags & flag != 0)
    }

    fn extras_mut(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    fn drop_empty_extras(&mut self) {
        self.extras.take_if(|extras| extras.is_empty());
    }

    pub(in crate::engine) fn expires_at(&self) -> Option<Timestamp> {
        self.has(FLAG_EXPIRES).map(|extras| extras.expires_at)
    }

    pub(in crate::engine) fn revoked_at(&self) -> Option<Timestamp> {
        self.has(FLAG_REVOKED).map(|extras| extras.revoked_at)
    }

    fn created_by(&self) -> Option<KeyId> {
        self.extras.as_ref()?.created_by
    }

    pub(in crate::engine) fn kept_maker(&self) -> Option<PackedSlot> {
        self.extras.as_ref()?.kept_maker
    }

    pub(in crate::engine) fn set_kept_maker(&mut self, kept_maker: Option<PackedSlot>) {
        self.extras_mut().kept_maker = kept_maker;
        self.drop_empty_extras();
    }

    pub(in crate::engine) const fn tier(&self) -> Tier {
        self.tier
    }

    pub(in crate::engine) fn set_tier(&mut self, tier: Tier) {
        self.tier = tier;
    }

    pub(in crate::engine) fn name(&self) -> Option<&str> {
        self.extras.as_ref()?.name.as_deref()
    }

    pub(in crate::engine) fn wallet(&self) -> Option<&WalletGrant> {
        self.extras.as_ref()?.wallet.as_deref()
    }

    /// Returns the heap memory of the extras, in bytes.
    pub(in crate::engine) fn owned_bytes(&self) -> usize {
        let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |it| text_bytes(it.len()));
        let extras = self.extras.as_deref();
        let wallet = |it: &Extras| it.wallet.as_ref().map_or(0, |_| size_of::<WalletGrant>());
        extras.map_or(0, |it| size_of::<Extras>() + text(&it.name) + text(&it.prefix) + wallet(it))
    }

    pub(in crate::engine) fn rename(&mut self, name: Option<Box<str>>) {
        self.extras_mut().name = name;
        self.drop_empty_extras();
    }

    /// Sets the expiry. Returns `None` if the key already has an expiry or is revoked.
    pub(in crate::engine) fn set_expiry(&mut self, expires_at: Timestamp) -> Option<()> {
        let extras = self.extras_mut();
        if extras.flags != 0 {
            return None;
        }
        extras.expires_at = expires_at;
        extras.flags |= FLAG_EXPIRES;
        Some(())
    }

    pub(in crate::engine) fn revoke(&mut self, at: Timestamp) {
        let extras = self.extras_mut();
        extras.revoked_at = at;
        extras.flags |= FLAG_REVOKED;
    }

    /// Whether the key is accepted at `now`.
    pub(in crate::engine) fn is_active(&self, now: Timestamp) -> bool {
        let is_ahead = |end: Timestamp| end.is_ahead(now, OVERLAP_SECONDS_MAX);
        self.revoked_at().is_none() && self.expires_at().is_none_or(is_ahead)
    }

    /// Whether the key was revoked or rotated.
    pub(in crate::engine) fn has_end(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.flags != 0)
    }

    /// Whether the key is accepted at `now` and was not rotated.
    pub(in crate::engine) fn is_lasting(&self, now: Timestamp) -> bool {
        self.is_active(now) && self.expires_at().is_none()
    }

    /// Unpacks the key. `kept_maker` must be the id of the key in the slot [`Self::kept_maker`].
    pub(in crate::engine) fn unpacked(&self, kept_maker: Option<KeyId>) -> Key {
        Key {
            id: self.id,
            account: self.account(),
            grant: KeyGrant {
                hash: self.hash,
                prefix: std::str::from_utf8(&self.prefix()).expect("it was a text").into(),
                name: self.name().map(Into::into),
                tier: self.tier,
                permissions: self.permissions,
                expires_at: self.expires_at(),
                wallet: self.wallet().copied(),
            },
            created_by: self.created_by(),
            kept_maker,
            created_at: self.created_at,
            revoked_at: self.revoked_at(),
        }
    }

    /// Returns the key's term in the state hash. `kept_maker` must be the id of the key in the slot
    /// [`Self::kept_maker`].
    pub(in crate::engine) fn term(&self, kept_maker: Option<KeyId>) -> StateHash {
        let mut term = Term::new(TermKind::Key)
            .number(self.id.get())
            .number(self.account.into())
            .number(self.created_by().map_or(0, KeyId::get))
            .number(kept_maker.map_or(0, KeyId::get))
            .signed(self.created_at.nanos())
            .optional(self.revoked_at().map(Timestamp::nanos))
            .optional(self.expires_at().map(Timestamp::nanos))
            .number(u64::from(self.permissions.bits()) << 8 | self.tier as u64)
            .bytes(&self.hash)
            .bytes(&self.prefix())
            .optional_text(self.name())
            .finish();
        if let Some(WalletGrant { address, nonce }) = self.wallet() {
            term += Term::new(TermKind::WalletGrant)
                .pair(self.id.get(), *nonce)
                .bytes(address)
                .finish();
        }
        term
    }
}

impl Extras {
    const fn is_empty(&self) -> bool {
        let Self { created_by, name, prefix, wallet, kept_maker, flags, .. } = self;
        created_by.is_none()
            && name.is_none()
            && prefix.is_none()
            && wallet.is_none()
            && kept_maker.is_none()
            && *flags == 0
    }
}

/// Builds the prefix of a key created by this server: the marker and eight hexadecimal digits.
fn usual_prefix(digits: u32) -> [u8; KEY_PREFIX_BYTES_MAX] {
    let mut prefix = [0; KEY_PREFIX_BYTES_MAX];
    let (marker, places) = prefix.split_at_mut(KEY_MARKER.len());
    marker.copy_from_slice(KEY_MARKER.as_bytes());
    for (place, byte) in places.iter_mut().rev().enumerate() {
        let digit = digits >> (4 * place) & 0xf;
        *byte = b"0123456789abcdef"[digit as usize];
    }
    prefix
}

/// Parses the digits of a usual prefix; `None` for any other prefix.
fn usual_digits(prefix: &str) -> Option<u32> {
    let digits = u32::from_str_radix(prefix.strip_prefix(KEY_MARKER)?, 16).ok()?;
    // `from_str_radix` also accepts capitals, a sign and fewer digits, which are not usual.
    (usual_prefix(digits) == *prefix.as_bytes()).then_some(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a key without any extras, except possibly its prefix.
    fn plain_key(prefix: &str) -> Key {
        Key {
            id: KeyId::from_raw(64).unwrap(),
            account: AccountId::from_raw(64).unwrap(),
            grant: KeyGrant {
                hash: [7; 32],
                prefix: prefix.into(),
                name: None,
                tier: Tier::Free,
                permissions: Permissions::DEFAULT,
                expires_at: None,
                wallet: None,
            },
            created_by: None,
            kept_maker: None,
            created_at: Timestamp::EPOCH,
            revoked_at: None,
        }
    }

    #[test]
    fn a_key_that_lost_its_extras_takes_no_memory_for_them() {
        let mut row = KeyRow::pack(plain_key("ps_live_01234567"), None, None).unwrap();
        let maker = PackedSlot::new(0);
        row.rename(None);
        row.set_kept_maker(None);
        assert_eq!(row.owned_bytes(), 0, "nothing was set");
        row.rename(Some("bot".into()));
        row.set_kept_maker(Some(maker));
        row.rename(None);
        assert!(row.owned_bytes() > 0 && row.kept_maker().is_some());
        row.set_kept_maker(None);
        assert_eq!(row.owned_bytes(), 0, "neither is left");
        row.revoke(Timestamp::EPOCH);
        row.rename(None);
        assert_eq!(row.revoked_at(), Some(Timestamp::EPOCH));
    }

    #[test]
    fn every_prefix_is_kept_as_it_was() {
        let check = |prefix: &str, is_usual: bool| {
            let key = plain_key(prefix);
            let row = KeyRow::pack(key.clone(), None, None).unwrap();
            assert_eq!(row.unpacked(None), key);
            assert_eq!(row.extras.is_none(), is_usual, "{prefix}");
        };
        check("ps_live_01234567", true);
        check("ps_live_ffffffff", true);
        check("ps_live_00000000", true);
        check("ps_live_0123456F", false);
        check("ps_live_+1234567", false);
        check("ps_live_1234567", false);
        check("ps_live_", false);
        check("ps_test_01234567", false);
        check("", false);
    }
}
