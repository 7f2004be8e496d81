//! The tiers of keys and accounts, and the limits of each.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::{LIMIT_MAX, Limit, count_from_text};

/// Largest number of orders per batch that any tier may have.
pub const BATCH_MAX: u32 = 100;

/// Largest number of open sockets per account that any tier may have.
pub const SOCKETS_MAX: u32 = 1_000;

/// Largest number of markets per price socket that any tier may have, unless it may have all
/// markets.
pub const SOCKET_MARKETS_MAX: u32 = 10_000;

/// A caller's level of trust. Later tiers are trusted more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Tier {
    /// The default.
    #[default]
    Free,
    /// For active traders.
    Pro,
    /// For whole firms.
    Enterprise,
}

/// The limits of one tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TierLimits {
    /// Requests per key in any trailing second.
    pub requests_per_second: Limit,
    /// Requests per key in any trailing 60 seconds.
    pub requests_per_minute: Limit,
    /// Open sockets per account, 1 to [`SOCKETS_MAX`].
    pub sockets_max: u32,
    /// Orders per batch, 1 to [`BATCH_MAX`].
    pub batch_max: u32,
    /// Markets per price socket.
    pub socket_markets_max: MarketsMax,
}

/// The number of markets that a price socket may subscribe to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MarketsMax {
    /// This many markets, 1 to [`SOCKET_MARKETS_MAX`].
    Count(u32),
    /// All markets, one by one or as `*`.
    All,
}

/// The limits of every tier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tiers([TierLimits; Tier::ALL.len()]);

/// The limits now in force for every tier. They can be replaced while requests are served.
#[derive(Debug)]
pub struct TierTable(ArcSwap<Tiers>);

/// New limits for one tier, in the format of the command line:
/// `NAME=PER_SECOND/PER_MINUTE/SOCKETS/BATCH/MARKETS`, where a rate may be `unlimited` and the
/// markets `all`. Without `MARKETS`, the tier's default number applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TierSetting {
    /// The tier to change.
    pub tier: Tier,
    /// The tier's new limits.
    pub limits: TierLimits,
}

/// The error for text that is not a [`TierSetting`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TierSettingError {
    /// The text is not a name with four or five numbers.
    #[error(
        "`{text}` does not read NAME=PER_SECOND/PER_MINUTE/SOCKETS/BATCH[/MARKETS], \
         for example pro=20/1200/10/20/200"
    )]
    Form {
        /// The whole text.
        text: Box<str>,
    },
    /// No tier has this name.
    #[error("unknown tier `{name}`: use free, pro or enterprise")]
    Name {
        /// The rejected name.
        name: Box<str>,
    },
    /// A rate is not a [`Limit`].
    #[error(
        "{field} of tier {tier} is `{text}`: use a whole number from 1 to {LIMIT_MAX}, \
         or `unlimited`"
    )]
    Rate {
        /// The tier.
        tier: Tier,
        /// The name of the rate.
        field: &'static str,
        /// The rejected text.
        text: Box<str>,
    },
    /// A cap is not a number within its bounds.
    #[error("{field} of tier {tier} is `{text}`: use a whole number from 1 to {count_max}")]
    Cap {
        /// The tier.
        tier: Tier,
        /// The name of the cap.
        field: &'static str,
        /// The rejected text.
        text: Box<str>,
        /// The largest accepted value.
        count_max: u32,
    },
    /// The markets of a socket are neither a number within their bounds nor `all`.
    #[error(
        "markets per socket of tier {tier} is `{text}`: use a whole number from 1 to \
         {SOCKET_MARKETS_MAX}, or `all`"
    )]
    Markets {
        /// The tier.
        tier: Tier,
        /// The rejected text.
        text: Box<str>,
    },
}

impl Tier {
    /// All tiers, lowest first.
    pub const ALL: [Self; 3] = [Self::Free, Self::Pro, Self::Enterprise];

    /// Returns the name used on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Pro => "pro",
            Self::Enterprise => "enterprise",
        }
    }

    /// Returns the tier with this name, which is case-sensitive, or `None`.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tier| tier.as_str() == name)
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl Tiers {
    /// Returns the limits of this tier.
    pub fn get(&self, tier: Tier) -> &TierLimits {
        &self.0[tier as usize]
    }

    /// Replaces the limits of one tier.
    pub fn set(&mut self, setting: TierSetting) {
        self.0[setting.tier as usize] = setting.limits;
    }

    /// Iterates over the tiers with their limits, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = (Tier, &TierLimits)> {
        Tier::ALL.into_iter().zip(&self.0)
    }
}

impl TierTable {
    /// Creates a table that starts with these tiers.
    pub fn new(tiers: Tiers) -> Self {
        Self(ArcSwap::from_pointee(tiers))
    }

    /// Returns the current limits of this tier.
    pub fn get(&self, tier: Tier) -> TierLimits {
        *self.0.load().get(tier)
    }

    /// Returns the current limits of all tiers.
    pub fn all(&self) -> Arc<Tiers> {
        self.0.load_full()
    }

    /// Replaces the limits of all tiers.
    pub fn replace(&self, tiers: Tiers) {
        self.0.store(Arc::new(tiers));
    }
}

impl Default for Tiers {
    fn default() -> Self {
        const fn row(
            [second, minute]: [u32; 2],
            sockets_max: u32,
            batch_max: u32,
            socket_markets_max: MarketsMax,
        ) -> TierLimits {
            TierLimits {
                requests_per_second: Limit::constant(second),
                requests_per_minute: Limit::constant(minute),
                sockets_max,
                batch_max,
                socket_markets_max,
            }
        }
        const {
            Self([
                row([5, 300], 2, 5, MarketsMax::Count(50)),
                row([20, 1200], 10, 20, MarketsMax::Count(200)),
                row([50, 3000], 50, 50, MarketsMax::All),
            ])
        }
    }
}

impl FromStr for TierSetting {
    type Err = TierSettingError;

    fn from_str(text: &str) -> Result<Self, TierSettingError> {
        let form = || TierSettingError::Form { text: text.into() };
        let (name, numbers) = text.split_once('=').ok_or_else(form)?;
        let mut parts = numbers.split('/');
        let [Some(second), Some(minute), Some(sockets), Some(batch), markets, None] =
            std::array::from_fn(|_| parts.next())
        else {
            return Err(form());
        };
        let tier = Tier::parse(name).ok_or_else(|| TierSettingError::Name { name: name.into() })?;
        let rate = |field, text: &str| {
            text.parse::<Limit>().map_err(|_| TierSettingError::Rate {
                tier,
                field,
                text: text.into(),
            })
        };
        let cap = |field, text: &str, count_max| {
            count_from_text(text, count_max).ok_or_else(|| TierSettingError::Cap {
                tier,
                field,
                text: text.into(),
                count_max,
            })
        };
        let limits = TierLimits {
            requests_per_second: rate("requests per second", second)?,
            requests_per_minute: rate("requests per minute", minute)?,
            sockets_max: cap("open sockets", sockets, SOCKETS_MAX)?,
            batch_max: cap("orders in a batch", batch, BATCH_MAX)?,
            socket_markets_max: match markets {
                None => Tiers::default().get(tier).socket_markets_max,
                Some(text) => MarketsMax::from_text(text)
                    .ok_or_else(|| TierSettingError::Markets { tier, text: text.into() })?,
            },
        };
        Ok(Self { tier, limits })
    }
}

/// Formats the setting the way [`TierSetting::from_str`] reads it.
impl fmt::Display for TierSetting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TierLimits {
            requests_per_second,
            requests_per_minute,
            sockets_max,
            batch_max,
            socket_markets_max,
        } = self.limits;
        write!(
            formatter,
            "{}={requests_per_second}/{requests_per_minute}/{sockets_max}/{batch_max}/\
             {socket_markets_max}",
            self.tier
        )
    }
}

impl MarketsMax {
    fn from_text(text: &str) -> Option<Self> {
        match text {
            "all" => Some(Self::All),
            _ => count_from_text(text, SOCKET_MARKETS_MAX).map(Self::Count),
        }
    }

    /// Returns the number of markets, or `None` for all.
    pub const fn count(self) -> Option<u32> {
        match self {
            Self::Count(count) => Some(count),
            Self::All => None,
        }
    }
}

/// Formats the number the way a [`TierSetting`] spells it.
impl fmt::Display for MarketsMax {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(formatter),
            Self::All => formatter.write_str("all"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_have_names_and_an_order() {
        for tier in Tier::ALL {
            assert_eq!(Tier::parse(tier.as_str()), Some(tier));
        }
        assert!(Tier::ALL.is_sorted());
        for name in ["", "Free", "free ", "gold"] {
            assert_eq!(Tier::parse(name), None, "{name:?}");
        }
    }

    #[test]
    fn the_default_table_is_the_documented_one() {
        let mut tiers = Tiers::default();
        let text = |tiers: &Tiers| {
            let rows = tiers.iter().map(|(tier, &limits)| TierSetting { tier, limits }.to_string());
            rows.collect::<Vec<_>>()
        };
        assert_eq!(
            text(&tiers),
            ["free=5/300/2/5/50", "pro=20/1200/10/20/200", "enterprise=50/3000/50/50/all"]
        );

        tiers.set("pro=unlimited/7/8/9".parse().unwrap());
        assert_eq!(
            text(&tiers),
            ["free=5/300/2/5/50", "pro=unlimited/7/8/9/200", "enterprise=50/3000/50/50/all"]
        );
        assert_eq!(tiers.get(Tier::Pro).requests_per_second, Limit::UNLIMITED);
        assert_eq!(tiers.get(Tier::Enterprise).batch_max, 50);
    }

    #[test]
    fn settings_round_trip() {
        for text in [
            "free=1/1/1/1/1",
            "pro=unlimited/unlimited/1000/100/10000",
            "enterprise=1000000/1000000/1/1/1",
            "free=unlimited/1/1/1/all",
        ] {
            assert_eq!(text.parse::<TierSetting>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_refused_setting_says_what_to_write() {
        let form = |text| {
            format!(
                "`{text}` does not read NAME=PER_SECOND/PER_MINUTE/SOCKETS/BATCH[/MARKETS], \
                 for example pro=20/1200/10/20/200"
            )
        };
        let markets = |text| {
            format!(
                "markets per socket of tier pro is `{text}`: use a whole number from 1 to 10000, \
                 or `all`"
            )
        };
        let rate = "use a whole number from 1 to 1000000, or `unlimited`";
        for (text, expected) in [
            ("", form("")),
            ("free", form("free")),
            ("free=", form("free=")),
            ("free=1/2/3", form("free=1/2/3")),
            ("free=1/2/3/4/5/6", form("free=1/2/3/4/5/6")),
            ("Free=1/2/3/4", "unknown tier `Free`: use free, pro or enterprise".into()),
            ("=1/2/3/4", "unknown tier ``: use free, pro or enterprise".into()),
            ("free=0/2/3/4", format!("requests per second of tier free is `0`: {rate}")),
            ("pro=1/x/3/4", format!("requests per minute of tier pro is `x`: {rate}")),
            ("pro=1/1000001/3/4", format!("requests per minute of tier pro is `1000001`: {rate}")),
            (
                "pro=1/2/unlimited/4",
                "open sockets of tier pro is `unlimited`: use a whole number from 1 to 1000".into(),
            ),
            (
                "pro=1/2/1001/4",
                "open sockets of tier pro is `1001`: use a whole number from 1 to 1000".into(),
            ),
            (
                "pro=1/2/3/0",
                "orders in a batch of tier pro is `0`: use a whole number from 1 to 100".into(),
            ),
            (
                "pro=1/2/3/101",
                "orders in a batch of tier pro is `101`: use a whole number from 1 to 100".into(),
            ),
            ("pro=1/2/3/4/0", markets("0")),
            ("pro=1/2/3/4/10001", markets("10001")),
            ("pro=1/2/3/4/*", markets("*")),
        ] {
            assert_eq!(text.parse::<TierSetting>().unwrap_err().to_string(), expected);
        }
    }
}
