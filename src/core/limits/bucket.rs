//! Token buckets for callers without a valid key (one per network address), for the keys and
//! sockets that an account creates, and for the frames of one socket.
//!
//! A bucket holds up to `burst` tokens and gains one per interval. Its entire state is the time at
//! which it will be full again. Tokens and waits follow from that by integer arithmetic, so no
//! rounding error ever accumulates.

use std::hash::{BuildHasher, Hash, RandomState};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::{CLOCK_NS_MAX, LIMIT_MAX, MINUTE_NS, SECOND_NS, count_from_text, retry_after_seconds};
use crate::ids::AccountId;

/// Number of addresses that can have their own bucket at the same time. A table takes 2 MB, even
/// when empty.
pub const ADDRESSES_MAX: usize = ADDRESS_SETS * SET_ENTRIES;

/// Number of accounts that can have their own bucket at the same time. A table takes 0.7 MB, even
/// when empty.
pub const ACCOUNTS_MAX: usize = ACCOUNT_SETS * SET_ENTRIES;

const ADDRESS_SETS: usize = 8192;
const ACCOUNT_SETS: usize = 4096;
const SET_ENTRIES: usize = 8;

/// A bucket's refill rate and capacity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BucketRule {
    /// Time to gain one token.
    interval_ns: u64,
    /// Time to gain a full burst.
    capacity_ns: u64,
}

/// The rate at which something may happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rate {
    /// No limit.
    Unlimited,
    /// Limited by a bucket with this rule.
    Limited(BucketRule),
}

/// An account's limits, except those on its requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccountRates {
    /// Rate of creating or rotating keys.
    pub keys: Rate,
    /// Rate of opening sockets.
    pub sockets: Rate,
}

/// Limits per network address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressRules {
    /// Limit on requests without a credential.
    pub public: BucketRule,
    /// Limit on opening accounts.
    pub bootstrap: BucketRule,
    /// Limit on presenting invalid credentials.
    pub failures: BucketRule,
}

/// The error for a rate or burst that is out of range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a rate of {rate} with a burst of {burst}: both must be from 1 to {LIMIT_MAX}")]
pub struct BucketRuleError {
    /// Tokens per second or minute.
    pub rate: u32,
    /// Tokens in a full bucket.
    pub burst: u32,
}

/// The error for text that is not a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not RATE/BURST, for example 10/20, with both from 1 to {LIMIT_MAX}")]
pub struct BucketRuleTextError;

/// The outcome of drawing a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Draw {
    /// Whether the bucket had a token, which was then taken.
    pub is_admitted: bool,
    /// Whole tokens left.
    pub remaining: u32,
    /// Time from `now` until the bucket has a token, exact to the nanosecond; 0 if it has one.
    pub wait_ns: u64,
}

/// A bucket with a single owner.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    rule: BucketRule,
    full_at_ns: u64,
}

/// One bucket per client address, in a fixed amount of memory.
///
/// IPv6 addresses count by their /64, which is what a provider assigns to one customer. An
/// IPv4-mapped IPv6 address counts as IPv4.
pub struct AddressTable<S = RandomState>(BucketTable<Origin, S>);

/// One bucket per account, in a fixed amount of memory.
pub struct AccountTable {
    is_limited: AtomicBool,
    buckets: BucketTable<AccountId, RandomState>,
}

/// One bucket per holder, in a fixed amount of memory.
///
/// A holder hashes to a set of eight entries. It keeps its entry until its bucket is full again, at
/// which point forgetting it changes nothing: **no holder ever evicts another**, so an abuser
/// cannot reset its bucket by flooding the table with fresh addresses. While all eight entries are
/// in use, the set's other holders share one extra bucket with the same rule. They may be refused
/// because of their neighbours, and a holder that later finds a free entry starts with a full
/// bucket. Filling every set takes tens of thousands of holders that all draw faster than their
/// buckets refill; targeting a single set takes the hasher's secret.
struct BucketTable<H, S> {
    hasher: S,
    /// The number of sets is a power of two.
    sets: Box<[Mutex<Set<H>>]>,
}

struct Set<H> {
    /// Copy of the table's rule. A change of the rule converts the set's buckets under the same
    /// lock.
    rule: BucketRule,
    entries: [Entry<H>; SET_ENTRIES],
    /// The bucket shared by the holders that find no free entry.
    shared_full_at_ns: u64,
}

struct Entry<H> {
    /// `None` until the entry is first used.
    holder: Option<H>,
    full_at_ns: u64,
}

/// The unit that counts as one client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// A single IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 /64, by its first four segments.
    V6Network([u16; 4]),
}

impl BucketRule {
    /// Reads of public routes without a credential.
    pub const PUBLIC_READS: Self = Self::constant(10, SECOND_NS, 20);
    /// Accounts opened from one address.
    pub const BOOTSTRAP: Self = Self::constant(1, MINUTE_NS, 5);
    /// Invalid credentials from one address.
    pub const FAILED_CREDENTIALS: Self = Self::constant(10, SECOND_NS, 50);
    /// Keys created by one account.
    pub const KEYS: Self = Self::constant(10, MINUTE_NS, 10);
    /// Sockets opened by one account. The burst is twice the largest tier's cap on open sockets, so
    /// that all of them can reconnect at once.
    pub const SOCKETS: Self = Self::constant(5, SECOND_NS, 100);
    /// Frames that a client sends on one socket.
    pub const SOCKET_FRAMES: Self = Self::constant(20, SECOND_NS, 50);
    /// Connections that one worker accepts itself. A second bucket with this rule limits the
    /// connections that other workers accept for it. Without these limits, clients that reconnect
    /// as soon as they are dismissed would starve the connected ones.
    pub const ACCEPTS: Self = Self::constant(2_000, SECOND_NS, 1_000);

    /// Returns a rule of `rate` tokens per second, at most `burst` at once, both from 1 to
    /// [`LIMIT_MAX`]. The time per token is rounded up to a nanosecond.
    pub const fn per_second(rate: u32, burst: u32) -> Result<Self, BucketRuleError> {
        Self::new(rate, SECOND_NS, burst)
    }

    /// Returns a rule of `rate` tokens per minute, at most `burst` at once, both from 1 to
    /// [`LIMIT_MAX`]. The time per token is rounded up to a nanosecond.
    pub const fn per_minute(rate: u32, burst: u32) -> Result<Self, BucketRuleError> {
        Self::new(rate, MINUTE_NS, burst)
    }

    /// Parses `RATE/BURST`, with the rate in tokens per second.
    pub fn per_second_from_text(text: &str) -> Result<Self, BucketRuleTextError> {
        Self::from_text(text, SECOND_NS)
    }

    /// Parses `RATE/BURST`, with the rate in tokens per minute.
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

    /// Converts the time at which a bucket will be full from the `old` rule to this one. The bucket
    /// still lacks the same number of tokens, but at most a full burst.
    fn full_at_ns(self, full_at_ns: u64, old: Self, now_ns: u64) -> u64 {
        let missing_ns = u128::from(full_at_ns.saturating_sub(now_ns));
        let missing_ns = missing_ns * u128::from(self.interval_ns) / u128::from(old.interval_ns);
        now_ns + u64::try_from(missing_ns).unwrap_or(u64::MAX).min(self.capacity_ns)
    }

    /// Takes a token, if there is one, from the bucket that will be full again at `full_at_ns`.
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

/// The documented defaults.
impl Default for AddressRules {
    fn default() -> Self {
        Self {
            public: BucketRule::PUBLIC_READS,
            bootstrap: BucketRule::BOOTSTRAP,
            failures: BucketRule::FAILED_CREDENTIALS,
        }
    }
}

impl AccountRates {
    /// No limits.
    pub const UNLIMITED: Self = Self { keys: Rate::Unlimited, sockets: Rate::Unlimited };
}

impl Rate {
    /// Parses `RATE/BURST`, with the rate in tokens per second, or `unlimited`.
    pub fn per_second_from_text(text: &str) -> Result<Self, BucketRuleTextError> {
        Self::from_text(text, BucketRule::per_second_from_text)
    }

    /// Parses `RATE/BURST`, with the rate in tokens per minute, or `unlimited`.
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
    /// Returns the value of `Retry-After` for a refused client, in seconds. A single request after
    /// that wait succeeds.
    pub const fn retry_after_seconds(&self) -> u64 {
        retry_after_seconds(self.wait_ns)
    }
}

impl TokenBucket {
    /// Returns a full bucket.
    pub const fn new(rule: BucketRule) -> Self {
        Self { rule, full_at_ns: 0 }
    }

    /// Takes a token if there is one.
    pub fn draw(&mut self, now_ns: u64) -> Draw {
        self.rule.draw(&mut self.full_at_ns, now_ns)
    }
}

impl<S: BuildHasher> AddressTable<S> {
    /// Creates a table of full buckets. The hasher must have a secret key, since clients choose
    /// their own addresses.
    pub fn new(rule: BucketRule, hasher: S) -> Self {
        Self(BucketTable::new(rule, hasher, ADDRESS_SETS))
    }

    /// Takes a token from this address's bucket if there is one.
    pub fn draw(&self, address: IpAddr, now_ns: u64) -> Draw {
        self.0.draw(Origin::of(address), now_ns)
    }

    /// Applies another rule from now on. Every bucket still lacks the same number of tokens.
    pub fn set_rule(&self, rule: BucketRule, now_ns: u64) {
        self.0.set_rule(rule, now_ns);
    }
}

impl AccountTable {
    /// Creates a table of full buckets. The hasher's secret keeps callers from targeting a single
    /// set.
    pub fn new(rate: Rate, hasher: RandomState) -> Self {
        let (is_limited, rule) = match rate {
            Rate::Unlimited => (false, BucketRule::KEYS),
            Rate::Limited(rule) => (true, rule),
        };
        Self {
            is_limited: AtomicBool::new(is_limited),
            buckets: BucketTable::new(rule, hasher, ACCOUNT_SETS),
        }
    }

    /// Takes a token from this account's bucket if there is one. Returns `None` if accounts are not
    /// limited.
    pub fn draw(&self, account: AccountId, now_ns: u64) -> Option<Draw> {
        self.is_limited.load(Ordering::Relaxed).then(|| self.buckets.draw(account, now_ns))
    }

    /// Applies another rate from now on. Every bucket still lacks the same number of tokens.
    pub fn set_rate(&self, rate: Rate, now_ns: u64) {
        if let Rate::Limited(rule) = rate {
            self.buckets.set_rule(rule, now_ns);
        }
        self.is_limited.store(matches!(rate, Rate::Limited(_)), Ordering::Relaxed);
    }
}

impl<H: Copy + Eq + Hash, S: BuildHasher> BucketTable<H, S> {
    fn new(rule: BucketRule, hasher: S, set_count: usize) -> Self {
        assert!(set_count.is_power_of_two(), "{set_count} sets cannot be masked");
        let sets = (0..set_count).map(|_| Mutex::new(Set::empty(rule))).collect();
        Self { hasher, sets }
    }

    fn draw(&self, holder: H, now_ns: u64) -> Draw {
        let mask = self.sets.len() as u64 - 1;
        let index = usize::try_from(self.hasher.hash_one(holder) & mask)
            .expect("a masked hash is an index into the sets");
        let mut set = self.sets[index].lock();
        let rule = set.rule;
        rule.draw(set.bucket_of(holder, now_ns), now_ns)
    }

    fn set_rule(&self, rule: BucketRule, now_ns: u64) {
        let now_ns = now_ns.min(CLOCK_NS_MAX);
        self.sets.iter().for_each(|set| set.lock().set_rule(rule, now_ns));
    }
}

impl<H: Copy + Eq> Set<H> {
    const fn empty(rule: BucketRule) -> Self {
        Self {
            rule,
            entries: [const { Entry { holder: None, full_at_ns: 0 } }; SET_ENTRIES],
            shared_full_at_ns: 0,
        }
    }

    fn set_rule(&mut self, rule: BucketRule, now_ns: u64) {
        let old = std::mem::replace(&mut self.rule, rule);
        let entries = self.entries.iter_mut().map(|entry| &mut entry.full_at_ns);
        for full_at_ns in entries.chain([&mut self.shared_full_at_ns]) {
            *full_at_ns = rule.full_at_ns(*full_at_ns, old, now_ns);
        }
    }

    fn bucket_of(&mut self, holder: H, now_ns: u64) -> &mut u64 {
        let own = self.entries.iter().position(|entry| entry.holder == Some(holder));
        let index =
            own.or_else(|| self.entries.iter().position(|entry| entry.full_at_ns <= now_ns));
        match index {
            Some(index) => {
                let entry = &mut self.entries[index];
                // A full bucket is as good as a new one, so its entry can change hands.
                entry.holder = Some(holder);
                &mut entry.full_at_ns
            }
            None => &mut self.shared_full_at_ns,
        }
    }
}

impl Origin {
    /// Returns the client that this address belongs to.
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
