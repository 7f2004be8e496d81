//! How much a caller may ask for: exact sliding windows for each key, token buckets for each
//! network address, and the table of tiers that says how wide the windows are.
//!
//! Time arrives as nanoseconds of one monotonic clock, whose zero may be anywhere. This module
//! knows nothing of keys, requests, headers or status codes: it answers whether one more may pass,
//! what is left, and when one is sure to pass.

mod atomics;
pub mod bucket;
#[cfg(all(test, paperbourse_loom))]
mod model;
mod ring;
pub mod tier;
pub mod window;

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

/// The largest limit of a window, and the largest rate and burst of a bucket. A window this wide
/// costs its key 8 MB.
pub const LIMIT_MAX: u32 = 1_000_000;

/// What a window without a limit shows as its limit and as what is left of it.
pub const UNLIMITED_SHOWN: u32 = 2_147_483_647;

/// Times past this, 146 years after the zero of the clock, are read as this.
pub const CLOCK_NS_MAX: u64 = (1 << 62) - 1;

const SECOND_NS: u64 = 1_000_000_000;
const MINUTE_NS: u64 = 60 * SECOND_NS;

/// How many requests a window admits: 1 to [`LIMIT_MAX`], or any number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Limit(Option<NonZeroU32>);

/// A limit that no window can have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("limit `{text}` is neither a whole number from 1 to {LIMIT_MAX} nor `unlimited`")]
pub struct LimitError {
    /// What was given.
    pub text: Box<str>,
}

impl Limit {
    /// Any number of requests.
    pub const UNLIMITED: Self = Self(None);

    /// So many requests.
    pub fn new(count: u32) -> Result<Self, LimitError> {
        match NonZeroU32::new(count) {
            Some(limit) if count <= LIMIT_MAX => Ok(Self(Some(limit))),
            _ => Err(LimitError { text: count.to_string().into() }),
        }
    }

    /// How many requests, `None` for any number.
    pub fn get(self) -> Option<u32> {
        self.0.map(NonZeroU32::get)
    }

    /// The number that clients see.
    pub fn shown(self) -> u32 {
        self.get().unwrap_or(UNLIMITED_SHOWN)
    }

    /// A limit of the built-in table, checked when the crate is compiled.
    const fn constant(count: u32) -> Self {
        assert!(count <= LIMIT_MAX);
        match NonZeroU32::new(count) {
            Some(limit) => Self(Some(limit)),
            None => panic!("a limit admits at least one request"),
        }
    }
}

impl FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        if text == "unlimited" {
            return Ok(Self::UNLIMITED);
        }
        count_from_text(text, LIMIT_MAX)
            .and_then(|count| Self::new(count).ok())
            .ok_or_else(|| LimitError { text: text.into() })
    }
}

/// The form that [`Limit::from_str`] reads.
impl fmt::Display for Limit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(limit) => limit.fmt(formatter),
            None => formatter.write_str("unlimited"),
        }
    }
}

/// The seconds of a `Retry-After`: the wait rounded up, at least 1.
pub const fn retry_after_seconds(wait_ns: u64) -> u64 {
    let seconds = wait_ns.div_ceil(SECOND_NS);
    if seconds == 0 { 1 } else { seconds }
}

/// Digits that make a number from 1 to `count_max`.
fn count_from_text(text: &str, count_max: u32) -> Option<u32> {
    // The standard parser takes a plus sign, which is a slip on a command line.
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let count: u32 = text.parse().ok()?;
    (is_plain && (1..=count_max).contains(&count)).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_number_from_one_to_the_bound_or_unlimited() {
        for (text, expected) in [
            ("1", Some(Some(1))),
            ("0050", Some(Some(50))),
            ("1000000", Some(Some(LIMIT_MAX))),
            ("unlimited", Some(None)),
            ("1000001", None),
            ("0", None),
            ("", None),
            ("+5", None),
            ("-5", None),
            (" 5", None),
            ("5.0", None),
            ("4294967297", None),
            ("Unlimited", None),
        ] {
            assert_eq!(text.parse().ok().map(Limit::get), expected, "{text:?}");
        }
        assert_eq!(Limit::new(LIMIT_MAX).map(Limit::shown), Ok(LIMIT_MAX));
        assert_eq!(Limit::UNLIMITED.shown(), UNLIMITED_SHOWN);
        for (count, text) in [(0, "0"), (LIMIT_MAX + 1, "1000001")] {
            assert_eq!(Limit::new(count), Err(LimitError { text: text.into() }));
        }
    }

    #[test]
    fn retry_after_is_whole_seconds_rounded_up_and_at_least_one() {
        for (wait_ns, seconds) in [
            (0, 1),
            (1, 1),
            (SECOND_NS, 1),
            (SECOND_NS + 1, 2),
            (MINUTE_NS, 60),
            (u64::MAX, u64::MAX / SECOND_NS + 1),
        ] {
            assert_eq!(retry_after_seconds(wait_ns), seconds, "{wait_ns}");
        }
    }
}
