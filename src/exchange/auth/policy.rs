//! The permissions of callers, and the keys they may create.
//!
//! Pure. The invariant: however long a chain of keys that create keys, no key in it has more rights
//! than the first key could have granted.

use paperbourse_core::engine::key::{Permission, Permissions};
use paperbourse_core::limits::tier::Tier;

/// An authenticated caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Actor {
    /// The holder of an API key.
    Key {
        /// The key's permissions.
        permissions: Permissions,
        /// The key's tier.
        tier: Tier,
    },
    /// The holder of an access token: the account's owner in person.
    Token {
        /// The highest tier that the account is entitled to.
        entitled_tier: Tier,
    },
}

impl Actor {
    /// Returns the caller's permissions.
    pub const fn permissions(self) -> Permissions {
        match self {
            Self::Key { permissions, .. } => permissions,
            Self::Token { .. } => Permissions::ALL,
        }
    }

    /// Returns the tier at which the caller is served, which is also the highest tier that it can
    /// grant.
    pub const fn tier(self) -> Tier {
        match self {
            Self::Key { tier, .. } => tier,
            Self::Token { entitled_tier } => entitled_tier,
        }
    }

    /// Refuses a caller that lacks this permission.
    pub fn require(self, permission: Permission) -> Result<(), PolicyError> {
        if self.permissions().allows(permission) {
            Ok(())
        } else {
            Err(PolicyError::InsufficientPermission { missing: permission })
        }
    }

    /// Checks whether the caller may create a key on its account with these permissions and this
    /// tier.
    ///
    /// `admin` may grant any permission, even one it lacks. No caller may grant a tier above its
    /// own.
    pub fn may_create(self, permissions: Permissions, tier: Tier) -> Result<(), PolicyError> {
        let own = self.permissions();
        if !own.allows(Permission::Admin) {
            for permission in permissions.iter() {
                self.require(permission)?;
            }
        }
        if tier > self.tier() {
            return Err(PolicyError::TierNotAuthorized { asked: tier, highest: self.tier() });
        }
        Ok(())
    }
}

/// The reason why a caller is not allowed to do something.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PolicyError {
    /// `INSUFFICIENT_PERMISSION`: the credential lacks a permission that it tried to use or grant.
    #[error("the credential lacks the permission `{}`", missing.as_str())]
    InsufficientPermission {
        /// The first missing permission.
        missing: Permission,
    },
    /// `TIER_NOT_AUTHORIZED`: the tier is above what the caller can grant.
    #[error("the tier `{}` is above `{}`, the highest allowed", asked.as_str(), highest.as_str())]
    TierNotAuthorized {
        /// The requested tier.
        asked: Tier,
        /// The highest tier that the caller can grant.
        highest: Tier,
    },
}

#[cfg(test)]
mod tests;
