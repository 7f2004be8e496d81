//! Rate limits: exact sliding windows for keys, token buckets for network addresses and accounts,
//! and the table of tiers that sizes the windows. Byte budgets are here, too.
//!
//! Times are nanoseconds of one monotonic clock with an arbitrary zero, passed in by the caller.
//! This module is independent of keys, requests, headers and status codes. It decides whether one
//! more request may pass, how many more are left, and when the next one is sure to pass.

mod atomics;
pub mod bucket;
pub mod budget;
#[cfg(all(test, paperbourse_loom))]
mod model;
mod ring;
pub mod tier;
pub mod window;

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

/// Largest limit of a window, and largest rate and burst of a bucket. A window of this size costs
/// its key 4 MB.
pub const LIMIT_MAX: u32 = 1_000_000;

/// The limit and the remaining count that an unlimited window reports.
pub const UNLIMITED_SHOWN: u32 = 2_147_483_647;

/// Largest usable time, 146 years after the clock's zero. Later times are clamped to it.
pub const CLOCK_NS_MAX: u64 = (1 << 62) - 1;

/// Resolution of the keys' windows, chosen so that a second and a minute are whole numbers of
/// ticks.
pub const TICK_NS: u64 = 128;

const SECOND_NS: u64 = 1_000_000_000;
const MINUTE_NS: u64 = 60 * SECOND_NS;

/// The number of requests that a window admits: 1 to [`LIMIT_MAX`], or unlimited.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Limit(Option<NonZeroU32>);

/// The error for a limit that is out of range or not a number.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("limit `{text}` is neither a whole number from 1 to {LIMIT_MAX} nor `unlimited`")]
pub struct LimitError {
    /// The rejected text.
    pub text: Box<str>,
}

impl Limit {
    /// The limit that admits every request.
    pub const UNLIMITED: Self = Self(None);

    /// Returns a limit of `count` requests. Fails if `count` is out of range.
    pub fn new(count: u32) -> Result<Self, LimitError> {
        match NonZeroU32::new(count) {
            Some(limit) if count <= LIMIT_MAX => Ok(Self(Some(limit))),
            _ => Err(LimitError { text: count.to_string().into() }),
        }
    }

    /// Returns the number of requests, or `None` if unlimited.
    pub fn get(self) -> Option<u32> {
        self.0.map(NonZeroU32::get)
    }

    /// Returns the number reported to clients.
    pub fn shown(self) -> u32 {
        self.get().unwrap_or(UNLIMITED_SHOWN)
    }

    /// Returns a built-in limit, checked at compile time.
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

/// Formats the limit the way [`Limit::from_str`] reads it.
impl fmt::Display for Limit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(limit) => limit.fmt(formatter),
            None => formatter.write_str("unlimited"),
        }
    }
}

/// Returns the value of `Retry-After` in seconds: the wait rounded up, at least 1.
pub const fn retry_after_seconds(wait_ns: u64) -> u64 {
    let seconds = wait_ns.div_ceil(SECOND_NS);
    if seconds == 0 { 1 } else { seconds }
}

/// Parses plain digits into a number from 1 to `count_max`.
fn count_from_text(text: &str, count_max: u32) -> Option<u32> {
    // The standard parser accepts a plus sign, which is a typo on a command line.
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let count: u32 = text.parse().ok()?;
    (is_plain && (1..=count_max).contains(&count)).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_number_in_range_or_unlimited() {
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
