//! What a caller may do, and what keys it may create.
//!
//! Pure. The one rule that must never break: no chain of keys creating keys ends with more than
//! the first of them could have handed out.

use crate::limits::tier::Tier;

/// Something that a key may be allowed to do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Permission {
    /// Reading what is not public, and the sockets.
    Read,
    /// Orders, trades and comments.
    Trade,
    /// Managing all keys of the account. It implies neither of the others, but may create keys
    /// that have them.
    Admin,
}

impl Permission {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Self; 3] = [Self::Read, Self::Trade, Self::Admin];

    /// Its name in requests and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Trade => "trade",
            Self::Admin => "admin",
        }
    }

    /// The permission with exactly this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|permission| permission.as_str() == name)
    }

    const fn bit(self) -> u8 {
        match self {
            Self::Read => 1,
            Self::Trade => 2,
            Self::Admin => 4,
        }
    }
}

/// A set of permissions, never empty.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Permissions(u8);

impl Permissions {
    /// Every permission: what a token stands for.
    pub const ALL: Self =
        Self(Permission::Read.bit() | Permission::Trade.bit() | Permission::Admin.bit());

    /// What a key gets when nothing is asked for: reading and trading.
    pub const DEFAULT: Self = Self(Permission::Read.bit() | Permission::Trade.bit());

    /// The set of these; `None` when there are none.
    pub fn of(permissions: impl IntoIterator<Item = Permission>) -> Option<Self> {
        let bits = permissions.into_iter().fold(0, |bits, permission| bits | permission.bit());
        Self::from_bits(bits)
    }

    /// The set that a caller listed by name. Order and repetition mean nothing.
    pub fn from_names<'a>(
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, PermissionsError> {
        let mut known = Vec::new();
        let mut unknown = Vec::new();
        for (index, name) in names.into_iter().enumerate() {
            match Permission::from_name(name) {
                Some(permission) => known.push(permission),
                None => unknown.push(index),
            }
        }
        if !unknown.is_empty() {
            return Err(PermissionsError::Unknown { indexes: unknown });
        }
        Self::of(known).ok_or(PermissionsError::Empty)
    }

    /// The set that was stored as these bits; `None` when no set is stored so.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits == 0 || bits & !Self::ALL.0 != 0 { None } else { Some(Self(bits)) }
    }

    /// The bits to store: 1 for reading, 2 for trading, 4 for managing keys.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether this permission is in the set.
    pub const fn allows(self, permission: Permission) -> bool {
        self.0 & permission.bit() != 0
    }

    /// Whether the other set holds all of these.
    pub const fn is_subset_of(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// The permissions of the set, always in the order of [`Permission::ALL`].
    pub fn as_list(self) -> impl Iterator<Item = Permission> {
        Permission::ALL.into_iter().filter(move |permission| self.allows(*permission))
    }
}

impl Default for Permissions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Why a list of names is not a set of permissions.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PermissionsError {
    /// A key that may do nothing is of no use.
    #[error("no permission is listed")]
    Empty,
    /// Some names are not those of a permission.
    #[error("not the name of a permission: {} of the list", indexes.len())]
    Unknown {
        /// Where in the list they stand, from 0.
        indexes: Vec<usize>,
    },
}

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Actor {
    /// The holder of an API key.
    Key {
        /// What the key may do.
        permissions: Permissions,
        /// The key's tier.
        tier: Tier,
    },
    /// The holder of an access token: the owner of the account in person.
    Token {
        /// The highest tier that the account is entitled to.
        entitled_tier: Tier,
    },
}

impl Actor {
    /// What the caller may do.
    pub const fn permissions(self) -> Permissions {
        match self {
            Self::Key { permissions, .. } => permissions,
            Self::Token { .. } => Permissions::ALL,
        }
    }

    /// The tier at which the caller is served, and the highest that it can hand out.
    pub const fn tier(self) -> Tier {
        match self {
            Self::Key { tier, .. } => tier,
            Self::Token { entitled_tier } => entitled_tier,
        }
    }

    /// Refuses a caller without this permission.
    pub fn require(self, permission: Permission) -> Result<(), PolicyError> {
        if self.permissions().allows(permission) {
            Ok(())
        } else {
            Err(PolicyError::InsufficientPermission { missing: permission })
        }
    }

    /// Whether the caller may create a key of its account with these permissions and this tier.
    ///
    /// With `admin` any permission may be handed out, the caller's own or not; a tier above the
    /// caller's own never.
    pub fn may_create(self, permissions: Permissions, tier: Tier) -> Result<(), PolicyError> {
        let own = self.permissions();
        if !own.allows(Permission::Admin) {
            for permission in permissions.as_list() {
                self.require(permission)?;
            }
        }
        if tier > self.tier() {
            return Err(PolicyError::TierNotAuthorized { asked: tier, highest: self.tier() });
        }
        Ok(())
    }
}

/// Why the caller may not do what it asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PolicyError {
    /// `INSUFFICIENT_PERMISSION`: the credential lacks a permission, to use it or to hand it out.
    #[error("the credential lacks the permission `{}`", missing.as_str())]
    InsufficientPermission {
        /// The first one that is lacking.
        missing: Permission,
    },
    /// `TIER_NOT_AUTHORIZED`: the tier is above what the caller can hand out.
    #[error("the tier `{}` is above `{}`, the highest allowed", asked.as_str(), highest.as_str())]
    TierNotAuthorized {
        /// What was asked for.
        asked: Tier,
        /// What would have been granted.
        highest: Tier,
    },
}

#[cfg(test)]
mod tests;
