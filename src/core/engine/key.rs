//! API keys: their permissions, rotation and expiry.

pub(in crate::engine) mod commands;
pub(in crate::engine) mod stored;
pub(in crate::engine) mod wallet;

use crate::ids::{AccountId, KeyId, Timestamp};
use crate::limits::tier::Tier;

/// A permission of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Permission {
    /// Allows private reads and WebSocket connections.
    Read,
    /// Allows trading and commenting.
    Trade,
    /// Allows managing all keys of the account.
    Admin,
}

impl Permission {
    /// All permissions, in display order.
    pub const ALL: [Self; 3] = [Self::Read, Self::Trade, Self::Admin];

    /// Returns the permission's name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Trade => "trade",
            Self::Admin => "admin",
        }
    }

    /// Returns the permission with this name; case-sensitive.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|permission| permission.as_str() == name)
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of permissions, never empty.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Permissions(u8);

impl Permissions {
    /// The permissions of a key created without an explicit list.
    pub const DEFAULT: Self = Self(Permission::Read.bit() | Permission::Trade.bit());
    /// All permissions, which an access token has on its own account.
    pub const ALL: Self = Self(Self::DEFAULT.0 | Permission::Admin.bit());

    /// Creates a set of these permissions; `None` if there are none.
    pub fn of(permissions: impl IntoIterator<Item = Permission>) -> Option<Self> {
        let bits = permissions.into_iter().fold(0, |bits, permission| bits | permission.bit());
        Self::from_bits(bits)
    }

    /// Decodes a set from the journal; `None` if it is not a valid set.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits == 0 || bits & !Self::ALL.0 != 0 { None } else { Some(Self(bits)) }
    }

    /// Encodes the set for the journal.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether the set contains this permission.
    pub const fn allows(self, permission: Permission) -> bool {
        self.0 & permission.bit() != 0
    }

    /// Whether `other` contains all of these permissions.
    pub const fn is_subset_of(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// Iterates over the permissions in display order.
    pub fn iter(self) -> impl Iterator<Item = Permission> {
        Permission::ALL.into_iter().filter(move |&permission| self.allows(permission))
    }
}

/// The first characters of every raw key.
pub const KEY_MARKER: &str = "ps_live_";

/// The maximum length of a raw key's displayed prefix, in bytes.
pub const KEY_PREFIX_BYTES_MAX: usize = 16;

/// The maximum number of revoked or expired keys an account keeps. The oldest are forgotten first.
pub const ENDED_KEYS_PER_ACCOUNT_MAX: usize = 100;

/// The maximum time a rotated key keeps working: 30 days.
pub const OVERLAP_SECONDS_MAX: u32 = 30 * 24 * 3600;

/// The default time a rotated key keeps working: one day.
pub const OVERLAP_SECONDS_DEFAULT: u32 = 24 * 3600;

/// The maximum number of rotated keys of an account that still work. They do not count as active
/// keys, so without this limit repeated rotation could create any number of working keys.
pub const OVERLAPPING_KEYS_PER_ACCOUNT_MAX: usize = 20;

/// The properties of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyGrant {
    /// SHA-256 of the raw key, which is not stored.
    pub hash: [u8; 32],
    /// The first characters of the raw key, displayed so that people can identify keys; at most
    /// [`KEY_PREFIX_BYTES_MAX`] bytes.
    pub prefix: Box<str>,
    /// The owner's name for the key; at most 100 characters.
    pub name: Option<Box<str>>,
    /// The tier whose limits apply to the key.
    pub tier: Tier,
    /// The key's permissions.
    pub permissions: Permissions,
    /// When the key expires. Only rotated keys expire; see [`Key::is_rotated`] for their
    /// restrictions until then.
    pub expires_at: Option<Timestamp>,
    /// The wallet to which the key was granted; `None` if an access token or another key created
    /// it.
    pub wallet: Option<WalletGrant>,
}

/// Number of bytes of a wallet's address.
pub const WALLET_ADDRESS_BYTES: usize = 20;

/// A wallet to which a key was granted, because it has signed for one.
///
/// The raw key is not random but derived from these facts, [`Key::generation`] and a secret of the
/// server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WalletGrant {
    /// The address of the wallet.
    pub address: [u8; WALLET_ADDRESS_BYTES],
    /// The number by which the wallet tells its keys apart. It has one active key for each.
    pub nonce: u64,
}

/// A key of an account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    /// The key's id.
    pub id: KeyId,
    /// The account that the key belongs to.
    pub account: AccountId,
    /// The key's properties.
    pub grant: KeyGrant,
    /// The key that created this one, or that this one replaced; `None` if an access token created
    /// it.
    pub created_by: Option<KeyId>,
    /// The nearest direct or indirect creator that the account still keeps. Revoking that key with
    /// its descendants revokes this one too, even if keys between the two were forgotten.
    pub kept_maker: Option<KeyId>,
    /// When the key was created.
    pub created_at: Timestamp,
    /// When the key was revoked; `None` if it was not.
    pub revoked_at: Option<Timestamp>,
}

impl Key {
    /// Returns the number that tells the key of a wallet from those that it had for the same nonce
    /// before: the key's number within its shard.
    ///
    /// It is not counted for each nonce, since an account forgets ended keys: a count that began
    /// anew would bring credentials back that were deleted.
    pub fn generation(&self) -> u32 {
        generation_of(self.id).expect("no key of a wallet has a greater number")
    }

    /// Whether the key is accepted at `now`.
    pub fn is_active(&self, now: Timestamp) -> bool {
        let is_ahead = |end: Timestamp| end.is_ahead(now, OVERLAP_SECONDS_MAX);
        self.revoked_at.is_none() && self.grant.expires_at.is_none_or(is_ahead)
    }

    /// Whether this key replaced `old` by rotation, rather than being created by a caller that used
    /// `old`. A rotation revokes the old key when it creates the new one, or sets it to expire a
    /// whole number of seconds later.
    pub fn succeeds(&self, old: &Self) -> bool {
        const SECOND_NS: i64 = 1_000_000_000;
        let made_at_ns = self.created_at.nanos();
        let is_at_rotation = match (old.grant.expires_at, old.revoked_at) {
            (Some(expires_at), _) => {
                let overlap_ns = expires_at.nanos().saturating_sub(made_at_ns);
                overlap_ns > 0 && overlap_ns % SECOND_NS == 0
            }
            (None, Some(revoked_at)) => revoked_at == self.created_at,
            (None, None) => false,
        };
        is_at_rotation && self.created_by == Some(old.id)
    }

    /// Whether the key was revoked or rotated.
    pub const fn has_end(&self) -> bool {
        self.revoked_at.is_some() || self.is_rotated()
    }

    /// Whether another key has replaced this one. Until it expires, a rotated key works as before,
    /// except that it may not create, rotate or rename keys. It does not count as an active key.
    pub const fn is_rotated(&self) -> bool {
        self.grant.expires_at.is_some()
    }
}

/// Returns [`Key::generation`] of the key with this id; `None` if it can be no key of a wallet.
pub fn generation_of(key: KeyId) -> Option<u32> {
    u32::try_from(key.counter()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_never_empty_and_keeps_its_order() {
        assert_eq!(Permissions::of([]), None);
        assert_eq!(Permissions::from_bits(0), None);
        assert_eq!(Permissions::from_bits(8), None);
        let set = Permissions::of([Permission::Admin, Permission::Read]).unwrap();
        assert_eq!(set.iter().collect::<Vec<_>>(), [Permission::Read, Permission::Admin]);
        assert_eq!(Permissions::from_bits(set.bits()), Some(set));
        assert!(set.is_subset_of(Permissions::ALL));
        assert!(!set.is_subset_of(Permissions::DEFAULT));
        assert_eq!(Permission::from_name("trade"), Some(Permission::Trade));
        assert_eq!(Permission::from_name("Trade"), None);
    }
}
