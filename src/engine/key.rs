//! API keys as an account's state: what a key may do, and whether it still may.

use crate::ids::{AccountId, KeyId, Timestamp};
use crate::limits::tier::Tier;

/// One thing that a key can be allowed to do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Permission {
    /// Every read that is not public, and the sockets.
    Read,
    /// Orders, trades, comments.
    Trade,
    /// All keys of the account.
    Admin,
}

impl Permission {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Self; 3] = [Self::Read, Self::Trade, Self::Admin];

    /// As the wire writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Trade => "trade",
            Self::Admin => "admin",
        }
    }

    /// The permission with this name.
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
    /// What a key may do when its maker did not say.
    pub const DEFAULT: Self = Self(Permission::Read.bit() | Permission::Trade.bit());
    /// Everything: what an access token may do with its own account.
    pub const ALL: Self = Self(Self::DEFAULT.0 | Permission::Admin.bit());

    /// These permissions; `None` when there are none.
    pub fn of(permissions: impl IntoIterator<Item = Permission>) -> Option<Self> {
        let bits = permissions.into_iter().fold(0, |bits, permission| bits | permission.bit());
        Self::from_bits(bits)
    }

    /// The set as the journal stores it; `None` for what is not one.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits == 0 || bits & !Self::ALL.0 != 0 { None } else { Some(Self(bits)) }
    }

    /// The journal's form.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether this is allowed.
    pub const fn allows(self, permission: Permission) -> bool {
        self.0 & permission.bit() != 0
    }

    /// Whether all of these are also in `other`.
    pub const fn is_subset_of(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// The permissions in their fixed order.
    pub fn iter(self) -> impl Iterator<Item = Permission> {
        Permission::ALL.into_iter().filter(move |&permission| self.allows(permission))
    }
}

/// The shown part of a raw key is at most this long.
pub const KEY_PREFIX_BYTES_MAX: usize = 16;

/// An account keeps this many keys that have ended, the newest.
pub const ENDED_KEYS_PER_ACCOUNT_MAX: usize = 100;

/// A key that was rotated works on for at most so long: 30 days.
pub const OVERLAP_SECONDS_MAX: u32 = 30 * 24 * 3600;

/// A key that was rotated works on for so long when nobody says: a day.
pub const OVERLAP_SECONDS_DEFAULT: u32 = 24 * 3600;

/// An account has at most this many keys that were rotated and still work. They do not count among
/// its active keys, and rotating on and on must not make keys without end.
pub const OVERLAPPING_KEYS_PER_ACCOUNT_MAX: usize = 20;

/// What a key is and may do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyGrant {
    /// SHA-256 of the raw key, which is kept nowhere.
    pub hash: [u8; 32],
    /// The first characters of the raw key, for people to tell keys apart; at most
    /// [`KEY_PREFIX_BYTES_MAX`] bytes.
    pub prefix: Box<str>,
    /// What its owner calls it; at most 100 characters.
    pub name: Option<Box<str>>,
    /// How much it may ask.
    pub tier: Tier,
    /// What it may do.
    pub permissions: Permissions,
    /// When it ends by itself: only a key that was rotated does. What it still may do in between
    /// is said at [`Key::is_rotated`].
    pub expires_at: Option<Timestamp>,
}

/// A key of an account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    /// Its id.
    pub id: KeyId,
    /// Whose.
    pub account: AccountId,
    /// What it is and may do.
    pub grant: KeyGrant,
    /// With which key it was made, or whose place it took; none for a token.
    pub created_by: Option<KeyId>,
    /// The nearest key in the line of its makers that the account still keeps. It ends with that
    /// one's descendants, also when keys between the two were forgotten.
    pub kept_maker: Option<KeyId>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was ended.
    pub revoked_at: Option<Timestamp>,
}

impl Key {
    /// Whether it is accepted at `now`.
    pub fn is_active(&self, now: Timestamp) -> bool {
        let is_ahead = |end: Timestamp| end.is_ahead(now, OVERLAP_SECONDS_MAX);
        self.revoked_at.is_none() && self.grant.expires_at.is_none_or(is_ahead)
    }

    /// Whether it took the place of `old` by a rotation, rather than being made with it: a rotation
    /// gives the old key its end, at once or whole seconds after the new one was made.
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

    /// Whether another key has taken its place. Until its end it does all that it did, but for
    /// making, rotating and renaming keys, and it does not count among the active ones.
    pub const fn is_rotated(&self) -> bool {
        self.grant.expires_at.is_some()
    }
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
