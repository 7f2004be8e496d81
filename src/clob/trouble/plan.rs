//! How often each kind of trouble comes, as text and as rules.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::{Extent, Kind};

/// The longest delay or window, in milliseconds: an hour.
const LENGTH_MS_MAX: u32 = 3_600_000;

/// Maximum number of wallets with rules of their own.
const WALLETS_MAX: usize = 1_000;

/// How often trouble of a kind comes, and how long it takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The probability, in millionths.
    pub probability_ppm: u32,
    /// The length, in milliseconds; `0..=0` for kinds without one.
    pub length_ms: RangeInclusive<u32>,
}

/// What trouble is wanted. As text, a list like `seed=7,lost=2%,lag=30%:2s-50s`, where
/// `WALLET.lost=50%` is a rule for one wallet. `off` as a probability is none.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Plan {
    /// The seed of all draws.
    pub seed: u64,
    rules: BTreeMap<Kind, Rule>,
    /// Rules of single wallets, by address in lower case. They replace those above.
    own_rules: BTreeMap<Box<str>, BTreeMap<Kind, Rule>>,
}

/// Why a text is not a plan.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanFlaw {
    /// An entry has no `=`.
    #[error("{0:?} should be KIND=PROBABILITY or KIND=PROBABILITY:LENGTH, such as late=1%:5s")]
    Entry(String),
    /// No kind has this name.
    #[error("{0:?} is not a kind of trouble; there are {names}", names = names())]
    Kind(String),
    /// The seed is not an integer from 0 to 2^64 - 1.
    #[error("the seed {0:?} is not an integer from 0 to 18446744073709551615")]
    Seed(String),
    /// The probability is not a percentage from 0 to 100.
    #[error("the probability {0:?} should be from 0% to 100%, or off; it has at most 4 decimals")]
    Probability(String),
    /// The length is not a time from 1 ms to an hour, or from one such time to a longer one.
    #[error("the length {0:?} should be a time such as 500ms, 5s or 2s-50s, of an hour at most")]
    Length(String),
    /// The kind has no length.
    #[error("{0} has no length")]
    NoLength(&'static str),
    /// The wallet is not an address.
    #[error("{0:?} is not the address of a wallet, 0x and 40 hexadecimal digits")]
    Wallet(String),
    /// A kind is named twice for the same wallets.
    #[error("{0} is named twice")]
    Repeated(String),
    /// Too many wallets have rules of their own.
    #[error("at most {WALLETS_MAX} wallets can have rules of their own")]
    Wallets,
}

fn names() -> String {
    Kind::ALL.map(Kind::name).join(", ")
}

impl Plan {
    /// Returns the rule for a kind and a wallet, or for requests without a wallet; `None` if
    /// trouble of this kind never comes.
    pub fn rule(&self, kind: Kind, wallet: Option<&str>) -> Option<&Rule> {
        let own = wallet.and_then(|wallet| self.own_rules.get(wallet)?.get(&kind));
        own.or_else(|| self.rules.get(&kind)).filter(|rule| rule.probability_ppm > 0)
    }

    /// Whether trouble of a kind ever comes to anybody.
    pub fn has(&self, kind: Kind) -> bool {
        let own = self.own_rules.values().filter_map(|rules| rules.get(&kind));
        self.rules.get(&kind).into_iter().chain(own).any(|rule| rule.probability_ppm > 0)
    }

    /// Whether no trouble ever comes.
    pub fn is_quiet(&self) -> bool {
        let mut all = self.rules.values().chain(self.own_rules.values().flat_map(BTreeMap::values));
        all.all(|rule| rule.probability_ppm == 0)
    }
}

impl FromStr for Plan {
    type Err = PlanFlaw;

    fn from_str(text: &str) -> Result<Self, PlanFlaw> {
        let mut plan = Self::default();
        let mut has_seed = false;
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let Some((name, value)) = entry.split_once('=') else {
                return Err(PlanFlaw::Entry(entry.into()));
            };
            if name == "seed" {
                plan.seed = value.parse().map_err(|_| PlanFlaw::Seed(value.into()))?;
                if std::mem::replace(&mut has_seed, true) {
                    return Err(PlanFlaw::Repeated(name.into()));
                }
                continue;
            }
            let (wallet, kind) = match name.split_once('.') {
                Some((wallet, kind)) => (Some(address(wallet)?), kind),
                None => (None, name),
            };
            let kind = Kind::named(kind).ok_or_else(|| PlanFlaw::Kind(kind.into()))?;
            let rules = match wallet {
                Some(wallet) => plan.own_rules.entry(wallet).or_default(),
                None => &mut plan.rules,
            };
            if rules.insert(kind, Rule::parse(kind, value)?).is_some() {
                return Err(PlanFlaw::Repeated(name.into()));
            }
            if plan.own_rules.len() > WALLETS_MAX {
                return Err(PlanFlaw::Wallets);
            }
        }
        Ok(plan)
    }
}

/// Returns the address of a wallet in lower case.
fn address(text: &str) -> Result<Box<str>, PlanFlaw> {
    let digits = text.strip_prefix("0x").filter(|digits| digits.len() == 40);
    let is_hex = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    match digits.filter(|digits| is_hex(digits)) {
        Some(_) => Ok(text.to_ascii_lowercase().into()),
        None => Err(PlanFlaw::Wallet(text.into())),
    }
}

impl Rule {
    fn parse(kind: Kind, text: &str) -> Result<Self, PlanFlaw> {
        let (probability, length) = match text.split_once(':') {
            Some((probability, length)) => (probability, Some(length)),
            None => (text, None),
        };
        let flaw = || PlanFlaw::Probability(probability.into());
        let probability_ppm = probability_ppm(probability).ok_or_else(flaw)?;
        let length_ms = match (kind.extent(), length) {
            (Extent::Once, None) => 0..=0,
            (Extent::Once, Some(_)) => return Err(PlanFlaw::NoLength(kind.name())),
            (Extent::Delay(usual_ms) | Extent::Window(usual_ms), None) => usual_ms..=usual_ms,
            (_, Some(text)) => lengths_ms(text).ok_or_else(|| PlanFlaw::Length(text.into()))?,
        };
        Ok(Self { probability_ppm, length_ms })
    }
}

/// Parses a percentage with up to four decimals, exactly.
fn probability_ppm(text: &str) -> Option<u32> {
    if text == "off" {
        return Some(0);
    }
    let (whole, decimals) = text
        .strip_suffix('%')?
        .split_once('.')
        .map_or_else(|| (text.trim_end_matches('%'), ""), |(whole, decimals)| (whole, decimals));
    let is_number = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number(whole) || !is_number(decimals) || decimals.len() > 4 || whole.is_empty() {
        return None;
    }
    let whole: u32 = whole.parse().ok().filter(|whole| *whole <= 100)?;
    let decimals: u32 = format!("{decimals:0<4}").parse().ok()?;
    Some(whole * 10_000 + decimals).filter(|ppm| *ppm <= 1_000_000)
}

fn lengths_ms(text: &str) -> Option<RangeInclusive<u32>> {
    let (shortest, longest) = text.split_once('-').unwrap_or((text, text));
    let (shortest, longest) = (length_ms(shortest)?, length_ms(longest)?);
    (shortest <= longest).then_some(shortest..=longest)
}

fn length_ms(text: &str) -> Option<u32> {
    let (digits, unit_ms) = match text.strip_suffix("ms") {
        Some(digits) => (digits, 1),
        None => (text.strip_suffix('s')?, 1_000),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let number: u32 = digits.parse().ok().filter(|_| is_number)?;
    number.checked_mul(unit_ms).filter(|length| (1..=LENGTH_MS_MAX).contains(length))
}

/// Writes a text that parses to this plan.
impl fmt::Display for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "seed={}", self.seed)?;
        for (kind, rule) in &self.rules {
            write!(out, ",{}={}", kind.name(), Shown(*kind, rule))?;
        }
        for (wallet, rules) in &self.own_rules {
            for (kind, rule) in rules {
                write!(out, ",{wallet}.{}={}", kind.name(), Shown(*kind, rule))?;
            }
        }
        Ok(())
    }
}

/// A rule as plans write it.
struct Shown<'a>(Kind, &'a Rule);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(kind, Rule { probability_ppm, length_ms }) = self;
        let (whole, decimals) = (probability_ppm / 10_000, probability_ppm % 10_000);
        match (whole, decimals) {
            (0, 0) => write!(out, "off")?,
            (_, 0) => write!(out, "{whole}%")?,
            _ => {
                let decimals = format!("{decimals:04}");
                write!(out, "{whole}.{}%", decimals.trim_end_matches('0'))?;
            }
        }
        if kind.extent() == Extent::Once {
            return Ok(());
        }
        let (shortest, longest) = (*length_ms.start(), *length_ms.end());
        write!(out, ":{}", Length(shortest))?;
        if shortest < longest {
            write!(out, "-{}", Length(longest))?;
        }
        Ok(())
    }
}

/// A length in milliseconds, as plans write it.
struct Length(u32);

impl fmt::Display for Length {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ms if ms % 1_000 == 0 => write!(out, "{}s", ms / 1_000),
            ms => write!(out, "{ms}ms"),
        }
    }
}
