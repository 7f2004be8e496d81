//! What a caller may do, and what keys it may create.
//!
//! Pure. The one rule that must never break: no chain of keys creating keys ends with more than
//! the first of them could have handed out.

use crate::engine::key::{Permission, Permissions};
use crate::limits::tier::Tier;

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
