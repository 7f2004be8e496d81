//! Token buckets: for callers without a valid key, by network address; for what an account makes
//! and opens; and for the frames of one socket.
//!
//! A bucket holds up to `burst` tokens and gains one each interval. Its whole state is the moment
//! at which it is full again; whole tokens and waits follow from it by integer arithmetic, so
//! nothing is ever rounded while it runs.

use std::hash::{BuildHasher, Hash, RandomState};
use std::net::{IpAddr, Ipv4Addr};

use parking_lot::Mutex;

use super::{CLOCK_NS_MAX, LIMIT_MAX, MINUTE_NS, SECOND_NS, count_from_text, retry_after_seconds};
use crate::ids::AccountId;

/// How many addresses have a bucket of their own at a time: a table takes 2 MB, always.
pub const ADDRESSES_MAX: usize = ADDRESS_SETS * SET_ENTRIES;

/// How many accounts have a bucket of their own at a time: a table takes 0.6 MB, always.
pub const ACCOUNTS_MAX: usize = ACCOUNT_SETS * SET_ENTRIES;

const ADDRESS_SETS: usize = 8192;
const ACCOUNT_SETS: usize = 4096;
const SET_ENTRIES: usize = 8;

/// How fast a bucket fills and how much it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BucketRule {
    /// For one token.
    interval_ns: u64,
    /// For all tokens of a burst.
    capacity_ns: u64,
}

/// How often something may happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rate {
    /// Any number of times.
    Unlimited,
    /// As often as a bucket of this rule has a token.
    Limited(BucketRule),
}

/// What each account is limited in besides its requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccountRates {
    /// Keys that are made, anew or by rotation.
    pub keys: Rate,
    /// Sockets that are opened.
    pub sockets: Rate,
}

/// The rules of the callers that are limited by address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressRules {
    /// Requests without a credential.
    pub public: BucketRule,
    /// Accounts that are opened.
    pub bootstrap: BucketRule,
    /// Credentials that turn out to be wrong.
    pub failures: BucketRule,
}

/// A rule that no bucket can have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a rate of {rate} with a burst of {burst}: both must be from 1 to {LIMIT_MAX}")]
pub struct BucketRuleError {
    /// Tokens in a second or in a minute.
    pub rate: u32,
    /// Tokens of a full bucket.
    pub burst: u32,
}

/// Text that is no rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not RATE/BURST, for example 10/20, with both from 1 to {LIMIT_MAX}")]
pub struct BucketRuleTextError;

/// Whether a token was there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Draw {
    /// Whether the request may pass; it took a token then.
    pub is_admitted: bool,
    /// Whole tokens left.
    pub remaining: u32,
    /// From the caller's now to the first moment with a token; 0 when there is one. A nanosecond
    /// sooner there is none.
    pub wait_ns: u64,
}

/// One bucket with one owner.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    rule: BucketRule,
    full_at_ns: u64,
}

/// A bucket for each client address, in memory that never grows.
///
/// IPv6 addresses count by their /64, which is what one customer of a network has; an IPv4 address
/// that came in IPv6 form counts as what it is.
pub struct AddressTable<S = RandomState>(BucketTable<Origin, S>);

/// A bucket for each account, in memory that never grows; none where nothing is limited.
pub struct AccountTable(Option<BucketTable<AccountId, RandomState>>);

/// A bucket for each holder, in memory that never grows.
///
/// A holder is hashed to a set of eight entries. It keeps its entry until its bucket is full again,
/// at which point forgetting it changes nothing: **no holder is ever pushed out by another**, so
/// fresh ones cannot be used to wash an old one clean. While all eight entries of a set are in use,
/// the other holders of that set share one more bucket of the same rule: they may be refused for
/// what their neighbours did, and one that then finds an entry starts with a full bucket there. To
/// bring that about in all sets takes tens of thousands of holders that all draw faster than their
/// buckets fill; to aim at one set takes the hasher's secret.
struct BucketTable<H, S> {
    rule: BucketRule,
    hasher: S,
    /// A power of two.
    sets: Box<[Mutex<Set<H>>]>,
}

struct Set<H> {
    entries: [Entry<H>; SET_ENTRIES],
    /// The bucket of those who find no entry.
    shared_full_at_ns: u64,
}

struct Entry<H> {
    /// Nobody at first.
    holder: Option<H>,
    full_at_ns: u64,
}

/// What counts as one client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// An address.
    V4(Ipv4Addr),
    /// A /64, by its first half.
    V6Network([u16; 4]),
}

impl BucketRule {
    /// Reads of public routes without a credential.
    pub const PUBLIC_READS: Self = Self::constant(10, SECOND_NS, 20);
    /// Accounts that are opened from one address.
    pub const BOOTSTRAP: Self = Self::constant(1, MINUTE_NS, 5);
    /// Credentials that turn out to be wrong.
    pub const FAILED_CREDENTIALS: Self = Self::constant(10, SECOND_NS, 50);
    /// Keys that one account makes.
    pub const KEYS: Self = Self::constant(10, MINUTE_NS, 10);
    /// Sockets that one account opens: twice as many at once as the largest tier may have open, so
    /// that all of them can come back together.
    pub const SOCKETS: Self = Self::constant(5, SECOND_NS, 100);
    /// Frames that a client sends on a socket.
    pub const SOCKET_FRAMES: Self = Self::constant(20, SECOND_NS, 50);

    /// `rate` tokens a second, at most `burst` at once, both from 1 to [`LIMIT_MAX`]. The time for
    /// one token is rounded up to a nanosecond.
    pub const fn per_second(rate: u32, burst: u32) -> Result<Self, BucketRuleError> {
        Self::new(rate, SECOND_NS, burst)
    }

    /// `rate` tokens a minute, at most `burst` at once, both from 1 to [`LIMIT_MAX`]. The time for
    /// one token is rounded up to a nanosecond.
    pub const fn per_minute(rate: u32, burst: u32) -> Result<Self, BucketRuleError> {
        Self::new(rate, MINUTE_NS, burst)
    }

    /// `RATE/BURST`, with the rate in tokens a second.
    pub fn per_second_from_text(text: &str) -> Result<Self, BucketRuleTextError> {
        Self::from_text(text, SECOND_NS)
    }

    /// `RATE/BURST`, with the rate in tokens a minute.
    pub fn per_minute_from_text(text: &str) -> Result<Self, BucketRuleTextError> {
        Self::from_text(text, MINUTE_NS)
    }

    fn from_text(text: &str, period_ns: u64) -> Result<Self, BucketRuleTextError> {
        let number = |text| count_from_text(text, LIMIT_MAX).ok_or(BucketRuleTextError);
        let (rate, burst) = text.split_once('/').ok_or(BucketRuleTextError)?;
        Self::new(number(rate)?, period_ns, number(burst)?).map_err(|_| BucketRuleTextError)
    }

    const fn new(rate: u32, period_ns: u64, burst: u32) -> Result<Self, BucketRuleError> {
        if rate == 0 || rate > LIMIT_MAX || burst == 0 || burst > LIMIT_MAX {
            return Err(BucketRuleError { rate, burst });
        }
        let interval_ns = period_ns.div_ceil(rate as u64);
        Ok(Self { interval_ns, capacity_ns: interval_ns * burst as u64 })
    }

    const fn constant(rate: u32, period_ns: u64, burst: u32) -> Self {
        match Self::new(rate, period_ns, burst) {
            Ok(rule) => rule,
            Err(_) => panic!("the built-in rules are within bounds"),
        }
    }

    /// Takes a token out of the bucket that is full again at `full_at_ns`, if it holds one.
    fn draw(self, full_at_ns: &mut u64, now_ns: u64) -> Draw {
        let now_ns = now_ns.min(CLOCK_NS_MAX);
        let full_after_draw_ns = now_ns.max(*full_at_ns) + self.interval_ns;
        let missing_ns = full_after_draw_ns - now_ns;
        if missing_ns > self.capacity_ns {
            let wait_ns = missing_ns - self.capacity_ns;
            return Draw { is_admitted: false, remaining: 0, wait_ns };
        }
        *full_at_ns = full_after_draw_ns;
        let left_ns = self.capacity_ns - missing_ns;
        Draw {
            is_admitted: true,
            remaining: u32::try_from(left_ns / self.interval_ns)
                .expect("a bucket holds at most its burst"),
            wait_ns: self.interval_ns.saturating_sub(left_ns),
        }
    }
}

impl AccountRates {
    /// None of it is limited.
    pub const UNLIMITED: Self = Self { keys: Rate::Unlimited, sockets: Rate::Unlimited };
}

impl Rate {
    /// `RATE/BURST`, with the rate in tokens a second, or `unlimited`.
    pub fn per_second_from_text(text: &str) -> Result<Self, BucketRuleTextError> {
        Self::from_text(text, BucketRule::per_second_from_text)
    }

    /// `RATE/BURST`, with the rate in tokens a minute, or `unlimited`.
    pub fn per_minute_from_text(text: &str) -> Result<Self, BucketRuleTextError> {
        Self::from_text(text, BucketRule::per_minute_from_text)
    }

    fn from_text(
        text: &str,
        rule: impl FnOnce(&str) -> Result<BucketRule, BucketRuleTextError>,
    ) -> Result<Self, BucketRuleTextError> {
        if text == "unlimited" { Ok(Self::Unlimited) } else { rule(text).map(Self::Limited) }
    }
}

impl Draw {
    /// The whole seconds to tell a client that was refused: waiting that long and sending one
    /// request succeeds.
    pub const fn retry_after_seconds(&self) -> u64 {
        retry_after_seconds(self.wait_ns)
    }
}

impl TokenBucket {
    /// A full bucket.
    pub const fn new(rule: BucketRule) -> Self {
        Self { rule, full_at_ns: 0 }
    }

    /// Takes a token if there is one.
    pub fn draw(&mut self, now_ns: u64) -> Draw {
        self.rule.draw(&mut self.full_at_ns, now_ns)
    }
}

impl<S: BuildHasher> AddressTable<S> {
    /// A table of full buckets. The hasher must be keyed with a secret: clients choose their
    /// addresses.
    pub fn new(rule: BucketRule, hasher: S) -> Self {
        Self(BucketTable::new(rule, hasher, ADDRESS_SETS))
    }

    /// Takes a token out of the bucket of this address if there is one.
    pub fn draw(&self, address: IpAddr, now_ns: u64) -> Draw {
        self.0.draw(Origin::of(address), now_ns)
    }
}

impl AccountTable {
    /// A table of full buckets. The hasher's secret keeps callers from aiming at one set.
    pub fn new(rate: Rate, hasher: RandomState) -> Self {
        Self(match rate {
            Rate::Unlimited => None,
            Rate::Limited(rule) => Some(BucketTable::new(rule, hasher, ACCOUNT_SETS)),
        })
    }

    /// Takes a token out of the bucket of this account if there is one; nothing where accounts have
    /// no buckets.
    pub fn draw(&self, account: AccountId, now_ns: u64) -> Option<Draw> {
        Some(self.0.as_ref()?.draw(account, now_ns))
    }
}

impl<H: Copy + Eq + Hash, S: BuildHasher> BucketTable<H, S> {
    fn new(rule: BucketRule, hasher: S, set_count: usize) -> Self {
        assert!(set_count.is_power_of_two(), "{set_count} sets cannot be masked");
        Self { rule, hasher, sets: (0..set_count).map(|_| Mutex::new(Set::EMPTY)).collect() }
    }

    fn draw(&self, holder: H, now_ns: u64) -> Draw {
        let mask = self.sets.len() as u64 - 1;
        let index = usize::try_from(self.hasher.hash_one(holder) & mask)
            .expect("what is below the number of sets is an index");
        let mut set = self.sets[index].lock();
        self.rule.draw(set.bucket_of(holder, now_ns), now_ns)
    }
}

impl<H: Copy + Eq> Set<H> {
    const EMPTY: Self = Self {
        entries: [const { Entry { holder: None, full_at_ns: 0 } }; SET_ENTRIES],
        shared_full_at_ns: 0,
    };

    fn bucket_of(&mut self, holder: H, now_ns: u64) -> &mut u64 {
        let own = self.entries.iter().position(|entry| entry.holder == Some(holder));
        let index =
            own.or_else(|| self.entries.iter().position(|entry| entry.full_at_ns <= now_ns));
        match index {
            Some(index) => {
                let entry = &mut self.entries[index];
                // A bucket that is full at this moment is as good as a new one.
                entry.holder = Some(holder);
                &mut entry.full_at_ns
            }
            None => &mut self.shared_full_at_ns,
        }
    }
}

impl Origin {
    /// Who has this address.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => {
                let [first, second, third, fourth, ..] = address.segments();
                Self::V6Network([first, second, third, fourth])
            }
        }
    }
}

#[cfg(test)]
mod tests;
