//! The limiters to compare. Each takes a key and a time and decides whether one more request is
//! admitted.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;
use std::ops::Add;
use std::sync::Arc;

use governor::clock::{Clock, Reference};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::keyed::DashMapStateStore;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use parking_lot::Mutex;

use paperbourse::auth::api_key::KeyHash;
use paperbourse::auth::key_table::{KEYS_MAX, KeyEntry, KeyFacts, KeyTable};
use paperbourse::engine::key::Permissions;
use paperbourse::ids::{AccountId, KeyId};
use paperbourse::limits::tier::{Tier, Tiers};

use super::former::FormerLimiter;
use super::{Decider, SECOND_NS};

type Middleware = NoOpMiddleware<BenchInstant>;
type Hasher = foldhash::fast::RandomState;

/// Both windows of a free key, looked up by the key's hash as for a request.
pub(super) struct Windows(KeyTable);

impl Windows {
    pub(super) fn new(keys: &[KeyHash]) -> Self {
        let table = KeyTable::new(KEYS_MAX);
        for (number, hash) in (0..).zip(keys) {
            let facts = KeyFacts {
                key_id: KeyId::from_raw(64 + number).expect("a small number"),
                account_id: AccountId::from_raw(64).expect("a small number"),
                tier: Tier::Free,
                permissions: Permissions::DEFAULT,
            };
            let entry = KeyEntry::new(facts, Tiers::default().get(Tier::Free));
            table.insert(*hash, entry, None).expect("all keys differ");
        }
        Self(table)
    }
}

impl Decider for Windows {
    fn is_admitted(&self, key: &KeyHash, now_ns: u64) -> bool {
        self.0.decide(key, now_ns).expect("every key is in the table").is_admitted
    }
}

/// The same windows as they were before, looked up by the key's hash and held by a counted pointer.
pub(super) struct Former(papaya::HashMap<KeyHash, Arc<FormerLimiter>, Hasher>);

impl Former {
    pub(super) fn new(keys: &[KeyHash]) -> Self {
        let table = papaya::HashMap::with_hasher(Hasher::default());
        for hash in keys {
            let limiter = FormerLimiter::new(Tiers::default().get(Tier::Free));
            table.pin().insert(*hash, Arc::new(limiter));
        }
        Self(table)
    }
}

impl Decider for Former {
    fn is_admitted(&self, key: &KeyHash, now_ns: u64) -> bool {
        let limiter = self.0.pin().get(key).expect("every key is in the table").clone();
        limiter.decide(now_ns).is_admitted
    }
}

/// The least that a lock can cost: in the table's entry, for two looks into a ring of 32-bit stamps
/// that say only whether a request is admitted. A thread waits for one that is preempted.
pub(super) struct Locked(papaya::HashMap<KeyHash, Mutex<LockedWindows>, Hasher>);

struct LockedWindows {
    ring: Box<[u32; 512]>,
    count: usize,
    newest: u64,
}

impl Locked {
    pub(super) fn new(keys: &[KeyHash]) -> Self {
        let table = papaya::HashMap::with_hasher(Hasher::default());
        for hash in keys {
            let windows = LockedWindows { ring: Box::new([0; 512]), count: 0, newest: 0 };
            table.pin().insert(*hash, Mutex::new(windows));
        }
        Self(table)
    }
}

impl Decider for Locked {
    fn is_admitted(&self, key: &KeyHash, now_ns: u64) -> bool {
        const SECOND: u32 = 7_812_500;
        let keys = self.0.pin();
        let mut windows = keys.get(key).expect("every key is in the table").lock();
        let now = (now_ns / 128).max(windows.newest);
        // Stamps wrap around after nine minutes; a key that was idle for as long is let through.
        let stamp = u32::try_from(now & u64::from(u32::MAX)).expect("masked");
        let has_room = |age: usize, length: u32| {
            let Some(index) = windows.count.checked_sub(age) else { return true };
            stamp.wrapping_sub(windows.ring[index % 512]) >= length
        };
        let is_admitted = has_room(5, SECOND) && has_room(300, 60 * SECOND);
        if is_admitted {
            let index = windows.count % 512;
            windows.ring[index] = stamp;
            windows.count += 1;
            windows.newest = now;
        }
        is_admitted
    }
}

thread_local! {
    /// The time of a thread's next decision. `governor` reads it from a clock; the others take it
    /// as an argument.
    static NOW_NS: Cell<u64> = const { Cell::new(0) };
}

#[derive(Clone, Copy, Debug)]
struct BenchClock;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct BenchInstant(u64);

impl Clock for BenchClock {
    type Instant = BenchInstant;

    fn now(&self) -> BenchInstant {
        BenchInstant(NOW_NS.get())
    }
}

impl Add<Nanos> for BenchInstant {
    type Output = Self;

    fn add(self, other: Nanos) -> Self {
        Self(self.0 + other.as_u64())
    }
}

impl Reference for BenchInstant {
    fn duration_since(&self, earlier: Self) -> Nanos {
        self.0.saturating_sub(earlier.0).into()
    }

    fn saturating_sub(&self, duration: Nanos) -> Self {
        Self(self.0.saturating_sub(duration.as_u64()))
    }
}

/// A bucket for a free key's second. A second bucket for its minute is left out.
fn quota() -> Quota {
    Quota::per_second(NonZeroU32::new(5).expect("more than nothing"))
}

/// A single key, without a lookup.
pub(super) struct Governor(RateLimiter<NotKeyed, InMemoryState, BenchClock, Middleware>);

impl Governor {
    pub(super) fn new() -> Self {
        NOW_NS.set(0);
        Self(RateLimiter::direct_with_clock(quota(), BenchClock))
    }
}

impl Decider for Governor {
    fn is_admitted(&self, _: &KeyHash, now_ns: u64) -> bool {
        NOW_NS.set(now_ns);
        self.0.check().is_ok()
    }
}

/// Keys in `governor`'s concurrent map, with the hasher of the server's table.
pub(super) struct GovernorByKey(
    RateLimiter<KeyHash, DashMapStateStore<KeyHash, Hasher>, BenchClock, Middleware>,
);

impl GovernorByKey {
    pub(super) fn new() -> Self {
        NOW_NS.set(0);
        let hasher = Hasher::default();
        Self(RateLimiter::dashmap_with_clock_and_hasher(quota(), BenchClock, hasher))
    }
}

impl Decider for GovernorByKey {
    fn is_admitted(&self, key: &KeyHash, now_ns: u64) -> bool {
        NOW_NS.set(now_ns);
        self.0.check_key(key).is_ok()
    }
}

type Logs = HashMap<KeyHash, VecDeque<u64>, Hasher>;

/// A log of each key's admissions in the last minute, in maps behind locks: exact for both windows
/// of a free key.
pub(super) struct LogByKey(Box<[Mutex<Logs>]>);

impl LogByKey {
    pub(super) fn new(lock_count: usize) -> Self {
        Self((0..lock_count).map(|_| Mutex::default()).collect())
    }
}

impl Decider for LogByKey {
    fn is_admitted(&self, key: &KeyHash, now_ns: u64) -> bool {
        // Hashes are uniformly distributed.
        let lock = usize::from(key.as_bytes()[0]) % self.0.len();
        let mut logs = self.0[lock].lock();
        let log = logs.entry(*key).or_default();
        let now_ns = log.back().map_or(now_ns, |&newest_ns| now_ns.max(newest_ns));
        while log.front().is_some_and(|&oldest_ns| now_ns - oldest_ns >= 60 * SECOND_NS) {
            log.pop_front();
        }
        let fifth_newest_ns = log.len().checked_sub(5).map(|index| log[index]);
        let is_admitted =
            log.len() < 300 && fifth_newest_ns.is_none_or(|ns| now_ns - ns >= SECOND_NS);
        if is_admitted {
            log.push_back(now_ns);
        }
        is_admitted
    }
}
