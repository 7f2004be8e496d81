//! The rate limits, with the names under which metrics count their refusals.

use paperbourse_core::limits::tier::Tier;

/// A rate limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RateRule {
    /// Requests of a key or an identity per second, by its tier.
    Second(Tier),
    /// Requests of a key or an identity per minute, by its tier.
    Minute(Tier),
    /// Requests without a credential, by address.
    Address,
    /// Accounts opened, by address.
    Accounts,
    /// Wrong credentials, by address.
    Failures,
    /// Keys created, by account.
    Keys,
    /// Sockets opened, by account.
    Sockets,
    /// Identities with access tokens at the same time, on the whole server.
    Identities,
}

impl RateRule {
    /// All rules, each at its [`index`](Self::index).
    pub const ALL: [Self; 12] = [
        Self::Second(Tier::Free),
        Self::Second(Tier::Pro),
        Self::Second(Tier::Enterprise),
        Self::Minute(Tier::Free),
        Self::Minute(Tier::Pro),
        Self::Minute(Tier::Enterprise),
        Self::Address,
        Self::Accounts,
        Self::Failures,
        Self::Keys,
        Self::Sockets,
        Self::Identities,
    ];

    /// Returns the rule's index in [`ALL`](Self::ALL).
    pub const fn index(self) -> usize {
        const TIERS: usize = Tier::ALL.len();
        match self {
            Self::Second(tier) => tier as usize,
            Self::Minute(tier) => TIERS + tier as usize,
            Self::Address => 2 * TIERS,
            Self::Accounts => 2 * TIERS + 1,
            Self::Failures => 2 * TIERS + 2,
            Self::Keys => 2 * TIERS + 3,
            Self::Sockets => 2 * TIERS + 4,
            Self::Identities => 2 * TIERS + 5,
        }
    }

    /// Returns the name used in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Second(_) => "second",
            Self::Minute(_) => "minute",
            Self::Address => "address",
            Self::Accounts => "accounts",
            Self::Failures => "failures",
            Self::Keys => "keys",
            Self::Sockets => "sockets",
            Self::Identities => "identities",
        }
    }

    /// Returns a name for whatever the rule limits, shown to the refused caller. Returns `None` for
    /// the limits of a key, which clients know.
    pub const fn subject(self) -> Option<&'static str> {
        match self {
            Self::Second(_) | Self::Minute(_) => None,
            Self::Address => Some("requests without a key from this address"),
            Self::Accounts => Some("new accounts from this address"),
            Self::Failures => Some("wrong credentials from this address"),
            Self::Keys => Some("new keys of this account"),
            Self::Sockets => Some("new sockets of this account"),
            Self::Identities => Some("people with access tokens on this server"),
        }
    }

    /// Returns the tier that sets the limit, if there is one.
    pub const fn tier(self) -> Option<Tier> {
        match self {
            Self::Second(tier) | Self::Minute(tier) => Some(tier),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_listed_in_the_order_of_their_index() {
        for (index, rule) in RateRule::ALL.into_iter().enumerate() {
            assert_eq!(rule.index(), index, "{rule:?}");
        }
    }
}
