//! What a caller may do, and which keys it may create.
//!
//! Pure. The invariant: no chain of keys that create keys ever ends with more rights than the first
//! of them could have granted.

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
    /// The caller's permissions.
    pub const fn permissions(self) -> Permissions {
        match self {
            Self::Key { permissions, .. } => permissions,
            Self::Token { .. } => Permissions::ALL,
        }
    }

    /// The tier the caller is served at, and the highest it can grant.
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

    /// Whether the caller may create a key on its account with these permissions and this tier.
    ///
    /// `admin` may grant any permission, even one it lacks; nobody may grant a tier above their
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

/// Why the caller may not do what it asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PolicyError {
    /// `INSUFFICIENT_PERMISSION`: the credential lacks a permission that it wants to use or grant.
    #[error("the credential lacks the permission `{}`", missing.as_str())]
    InsufficientPermission {
        /// The first permission it lacks.
        missing: Permission,
    },
    /// `TIER_NOT_AUTHORIZED`: the tier is above what the caller can grant.
    #[error("the tier `{}` is above `{}`, the highest allowed", asked.as_str(), highest.as_str())]
    TierNotAuthorized {
        /// The tier asked for.
        asked: Tier,
        /// The highest tier the caller can grant.
        highest: Tier,
    },
}

#[cfg(test)]
mod tests;
