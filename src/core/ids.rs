//! Identifiers: shards, record ids, log sequence numbers, and points in time.
//!
//! Every id that a client sees is `counter × 64 + shard`, where the counter is part of that shard's
//! state. Ids are unique without a global counter, and the id alone identifies the owning shard.

pub mod condition;

use std::cmp::Ordering;
use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

/// Number of shards. Ids carry the shard in their low bits, and the data format depends on the
/// number of shards, so it is fixed and independent of the number of workers.
pub const SHARD_COUNT: usize = SHARDS as usize;

const SHARDS: u8 = 64;

/// Largest id, chosen so that ids survive clients that store numbers as doubles.
pub const ID_MAX: u64 = (1 << 53) - 1;

/// Tolerance for a clock that is set back. An expiry time further ahead than its maximum lifetime
/// plus this tolerance counts as expired.
const CLOCK_SECONDS_BACK_MAX: i64 = 24 * 3_600;

/// One of the [`SHARD_COUNT`] independent shards of the state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ShardId(u8);

impl ShardId {
    /// Returns the shard with this index, or `None` if it is out of range.
    pub fn new(index: u8) -> Option<Self> {
        (usize::from(index) < SHARD_COUNT).then_some(Self(index))
    }

    /// Returns the shard of an account: the first byte of the digest of the account's identity,
    /// modulo the number of shards.
    pub const fn of_digest(first_byte: u8) -> Self {
        Self(first_byte % SHARDS)
    }

    /// Returns the shard's index in an array of shards.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the shard's number as stored in the journal.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Iterates over all shards in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..SHARDS).map(Self)
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(NonZeroU64);

        impl $name {
            /// Returns the id of the `counter`-th record of its kind in `shard`; counters start at
            /// 1.
            ///
            /// Returns `None` if the counter is 0 or the id would be past [`ID_MAX`].
            pub fn new(shard: ShardId, counter: u64) -> Option<Self> {
                if counter == 0 {
                    return None;
                }
                let value = counter.checked_mul(u64::from(SHARDS))? + u64::from(shard.0);
                Self::from_raw(value)
            }

            /// Returns the id with this value, as read from a client or the journal, or `None` if
            /// it is out of range.
            pub fn from_raw(value: u64) -> Option<Self> {
                if value < u64::from(SHARDS) || value > ID_MAX {
                    return None;
                }
                NonZeroU64::new(value).map(Self)
            }

            /// Returns the number shown to clients.
            pub const fn get(self) -> u64 {
                self.0.get()
            }

            /// Returns the shard that owns the record.
            pub const fn shard(self) -> ShardId {
                ShardId(self.0.get().to_le_bytes()[0] % SHARDS)
            }

            /// Returns the record's counter, from 1, among the records of its kind in the shard.
            pub const fn counter(self) -> u64 {
                self.0.get() / SHARDS as u64
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

id! {
    /// A trading account.
    AccountId
}
id! {
    /// An API key.
    KeyId
}
id! {
    /// An order, filled or not.
    OrderId
}
id! {
    /// A comment on an order.
    CommentId
}

/// A market's index within one shard, in order of first use. Meaningless outside that shard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MarketIndex(pub u32);

/// An outcome's index within its market, in the venue's order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OutcomeIndex(pub u8);

impl OutcomeIndex {
    /// Returns the index in the market's list of outcomes.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A log sequence number: the place of a record in its log. LSNs of the same log are ordered, those
/// of different logs are not. Only a journal assigns them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Lsn {
    /// The number of the log.
    pub log: u8,
    /// The number of the record in its log, from 1.
    pub position: u64,
}

impl Lsn {
    /// The LSN before the first record of every log. It stands for anything that depends on no
    /// record, and is always durable.
    pub const START: Self = Self { log: 0, position: 0 };

    /// Returns the LSN of the record with this number, from 1. Meant for journals, and for tests
    /// that stand in for one.
    pub const fn new(log: u8, position: u64) -> Self {
        Self { log, position }
    }

    /// Returns the later of two LSNs of the same log.
    pub fn max(self, other: Self) -> Self {
        debug_assert!(self.partial_cmp(&other).is_some(), "{self:?} and {other:?}");
        if self.position >= other.position { self } else { other }
    }

    /// Returns the record's number in its log, from 1.
    pub const fn position(self) -> u64 {
        self.position
    }
}

impl PartialOrd for Lsn {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let is_comparable = self.log == other.log || *self == Self::START || *other == Self::START;
        is_comparable.then(|| self.position.cmp(&other.position))
    }
}

/// A wall-clock time, in nanoseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Returns the time `millis` milliseconds later.
    pub const fn after_ms(self, millis: u32) -> Self {
        Self(self.0.saturating_add(millis as i64 * 1_000_000))
    }

    /// Midnight UTC on 1 January 1970.
    pub const EPOCH: Self = Self(0);

    /// Returns the time `nanos` nanoseconds after the epoch.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Returns the time `millis` milliseconds after the epoch, clamped to the range of nanoseconds.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Returns the time `seconds` seconds after the epoch, clamped to the range of nanoseconds.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// Whether `now` is before this expiry time, which was set at most `seconds_max` seconds ahead.
    ///
    /// An expiry time further ahead was set while the clock was fast. It counts as expired, so that
    /// something meant to last a minute does not last for years.
    pub const fn is_ahead(self, now: Self, seconds_max: u32) -> bool {
        let seconds = self.0.saturating_sub(now.0).div_euclid(1_000_000_000);
        now.0 < self.0 && seconds <= seconds_max as i64 + CLOCK_SECONDS_BACK_MAX
    }

    /// Returns the nanoseconds since 1970.
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// Returns the whole microseconds since 1970, rounded down.
    pub const fn micros(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// Returns the whole milliseconds since 1970, rounded down.
    pub const fn millis(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// Returns the whole seconds since 1970, rounded down.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000_000)
    }
}

/// Formats as RFC 3339 in UTC to the microsecond, with `Z`: `2026-11-21T06:12:00.25Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.micros()) {
            Ok(time) => time.fmt(formatter),
            Err(_) => unreachable!("an i64 of nanoseconds ends in the year 2262"),
        }
    }
}

/// The error for text that is not a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected a time with its zone, up to the year 2262, such as 2026-11-24T10:00:00Z")]
pub struct NotATime;

/// Parses RFC 3339 in any time zone.
impl FromStr for Timestamp {
    type Err = NotATime;

    fn from_str(text: &str) -> Result<Self, NotATime> {
        let time: jiff::Timestamp = text.parse().map_err(|_| NotATime)?;
        i64::try_from(time.as_nanosecond()).map(Self).map_err(|_| NotATime)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Timestamp({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_identifies_its_shard() {
        let shard = ShardId::new(7).unwrap();
        let id = OrderId::new(shard, 3).unwrap();
        assert_eq!(id.get(), 3 * 64 + 7);
        assert_eq!((id.shard(), id.counter()), (shard, 3));
        assert_eq!(OrderId::from_raw(id.get()), Some(id));
    }

    #[test]
    fn ids_have_bounds() {
        let shard = ShardId::new(63).unwrap();
        assert_eq!(OrderId::new(shard, 0), None);
        assert_eq!(OrderId::from_raw(0), None);
        assert_eq!(OrderId::from_raw(63), None, "counters start at 1");
        assert!(OrderId::from_raw(64).is_some());
        assert!(OrderId::from_raw(ID_MAX).is_some());
        assert_eq!(OrderId::from_raw(ID_MAX + 1), None);
        assert_eq!(OrderId::new(shard, u64::MAX), None);
        assert_eq!(ShardId::new(64), None);
    }

    #[test]
    fn an_expiry_too_far_ahead_counts_as_expired() {
        const DAY: i64 = 24 * 3_600;
        let now = Timestamp::from_seconds(1_800_000_000);
        for (seconds, is_ahead) in [
            (-1, false),
            (0, false),
            (1, true),
            (60, true),
            (60 + DAY, true),
            (61 + DAY, false),
            (i64::MAX, false),
            (i64::MIN, false),
        ] {
            let end = Timestamp::from_seconds(now.seconds().saturating_add(seconds));
            assert_eq!(end.is_ahead(now, 60), is_ahead, "{seconds}");
        }
    }

    #[test]
    fn timestamps_are_formatted_as_rfc_3339() {
        assert_eq!(Timestamp::EPOCH.to_string(), "1970-01-01T00:00:00Z");
        assert_eq!(
            Timestamp::from_millis(1_784_578_686_071).to_string(),
            "2026-07-20T20:18:06.071Z"
        );
        assert_eq!(Timestamp::from_nanos(i64::MAX).millis(), i64::MAX / 1_000_000);
    }

    #[test]
    fn timestamps_are_read_in_any_zone() {
        let time = Timestamp::from_millis(1_784_578_686_071);
        for text in ["2026-07-20T20:18:06.071Z", "2026-07-20T22:18:06.071+02:00"] {
            assert_eq!(text.parse(), Ok(time), "{text}");
        }
        for text in ["2026-07-20T20:18:06", "2026-07-20", "now", "", "9999-01-01T00:00:00Z"] {
            assert_eq!(text.parse::<Timestamp>(), Err(NotATime), "{text}");
        }
    }
}
