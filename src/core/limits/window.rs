//! The windows of one key. No trailing second or minute admits more requests than its limit, and no
//! request is refused that could have been admitted.
//!
//! Time is counted in ticks of 128 ns, of which a second and a minute have a whole number. A window
//! of length W that ends at t is half-open: (t − W, t]. An admission is stamped with the later of
//! the caller's clock and the key's newest stamp, so that stamps never decrease although threads
//! may arrive in another order than they read the clock. The windows are exact with respect to
//! these stamps. Only admissions are stamped: a refused request costs its key nothing.
//!
//! # Places
//!
//! A decision changes one word, a slot of the key's log. The log is reached through the
//! [`Windows`] in the key's place. Now and then the log must be replaced, and the windows in
//! the place with it: decisions return the new ones, and whoever owns the place puts them there if
//! it still holds the old. [`KeyLimiter`] is a place by itself; the table of keys has one in every
//! entry, which the guard of a lookup protects, so that no reference is counted.
//!
//! # Memory
//!
//! An unused key takes the 32 bytes of its [`Windows`] and nothing on the heap. The first request
//! allocates a log of a few stamps. When the log is full of stamps that still count, it is sealed
//! and replaced by one of twice the size, up to the limit of the longest window: 1.2 kB for 300 a
//! minute. Once all stamps have left the windows, a release frees the
//! log.
//!
//! One number stands in for what was freed: the time from which it no longer counts. No later stamp
//! is lower, not even that of a thread that read the clock long before, so the windows stay exact.
//! The number comes into the place with the windows that have no log, after the log was sealed: a
//! decision either finds it there or fails on the seal.
//!
//! # Time
//!
//! A stamp has 31 bits and counts from the beginning of its log: it lasts 274 seconds. A log that
//! is older is replaced like one that is full, whoever finds out first, by one that begins with the
//! oldest stamp that still counts. A key that returns after years finds its log too old.
//!
//! # Keys that share their windows
//!
//! The successors of a key count in its windows. Each has a place of its own, with the same log. A
//! sealed log that is shared holds the one that replaces it, and each place follows when its key is
//! used, or to the newest log in a release: the place of a key that ended holds no more logs than
//! its line has gone through since.
//!
//! The keys may have different limits, if only while their tier changes. Each request is decided on
//! by those of its own key, so a shared log keeps a minute even for a key without a limit per
//! minute.
//!
//! # New limits
//!
//! Limits may change at any time; each decision reads both once. What was admitted stays counted as
//! far back as the windows reach that were limited until then: a window that was unlimited has kept
//! no stamps.

mod usage;
mod windows;

use std::sync::Arc;

use super::atomics::Place;
use super::retry_after_seconds;
use super::tier::TierLimits;
pub use usage::WindowLimits;
pub use windows::Windows;

/// Slots in the first log of a key. Model checks start with two, so that the log grows at once.
const CAPACITY_MIN: usize = if cfg!(paperbourse_loom) { 2 } else { 8 };

/// The windows of one holder with their limits, shared by all threads without a lock.
pub struct KeyLimiter {
    limits: WindowLimits,
    /// Empty before the first request.
    place: Place<Arc<Windows>>,
}

/// The outcome of one request, and what the key has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// Whether the request may pass.
    pub is_admitted: bool,
    /// The one-second window, after this decision.
    pub per_second: Allowance,
    /// The 60-second window, after this decision.
    pub per_minute: Allowance,
    /// Time from the caller's `now` until one more request is sure to be admitted, if nothing else
    /// is sent; 0 if it would be at once. Exact to the nanosecond.
    pub wait_ns: u64,
    /// The time that the decision was made for: the caller's, rounded down to a tick, or the key's
    /// newest stamp if that is later (an unlimited key keeps no stamps). An admitted request gets
    /// this stamp.
    pub stamp_ns: u64,
}

/// The state of one window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowance {
    /// Requests per window, [`UNLIMITED_SHOWN`](super::UNLIMITED_SHOWN) if unlimited.
    pub limit: u32,
    /// How many more requests this window would admit now.
    pub remaining: u32,
}

impl KeyLimiter {
    /// Empty windows for a key of this tier.
    pub fn new(limits: &TierLimits) -> Self {
        Self { limits: WindowLimits::new(limits), place: Place::new(None) }
    }

    /// Decides by these limits from now on.
    pub fn set_limits(&self, limits: &TierLimits) {
        self.limits.set(limits);
    }

    /// Decides about one request, and counts it if it is admitted.
    pub fn decide(&self, now_ns: u64) -> Decision {
        let limits = self.limits.get();
        loop {
            let held = self.place.load();
            match windows_in(held.as_ref()).decide(limits, now_ns) {
                Ok(decision) => return decision,
                Err(next) => self.place.replace(&held, Some(Arc::new(next))),
            }
        }
    }

    /// What [`KeyLimiter::decide`] would find, without counting anything: `is_admitted` says
    /// whether a request would be admitted, and the remaining counts do not include it.
    pub fn peek(&self, now_ns: u64) -> Decision {
        windows_in(self.place.load().as_ref()).peek(self.limits.get(), now_ns)
    }

    /// Frees the log if no stamp counts any more at this time, which has no effect on later
    /// decisions. To be called periodically for every key.
    pub fn release(&self, now_ns: u64) {
        let held = self.place.load();
        if let Some(next) = windows_in(held.as_ref()).release(self.limits.get(), now_ns) {
            self.place.replace(&held, Some(Arc::new(next)));
        }
    }

    /// A limiter that shares the windows of this one.
    pub fn successor(&self, limits: &TierLimits) -> Self {
        loop {
            let held = self.place.load();
            match windows_in(held.as_ref()).share(self.limits.get()) {
                Ok(windows) => {
                    let place = Place::new(Some(Arc::new(windows)));
                    return Self { limits: WindowLimits::new(limits), place };
                }
                Err(next) => self.place.replace(&held, Some(Arc::new(next))),
            }
        }
    }

    /// The memory of the windows. Limiters that share a log count a part of it each.
    pub fn owned_bytes(&self) -> usize {
        let held = self.place.load();
        let windows = 2 * size_of::<usize>() + size_of::<Windows>();
        held.as_ref().map_or(0, |held| windows + held.owned_bytes())
    }

    /// Whether no window holds a stamp, so that forgetting the key would change nothing.
    pub fn is_idle(&self, now_ns: u64) -> bool {
        let decision = self.peek(now_ns);
        [decision.per_second, decision.per_minute]
            .into_iter()
            .all(|allowance| allowance.remaining == allowance.limit)
    }
}

/// The windows in the place of a [`KeyLimiter`].
fn windows_in(held: Option<&Arc<Windows>>) -> &Windows {
    static NEVER_USED: Windows = Windows::empty();
    held.map_or(&NEVER_USED, |windows| windows)
}

impl Decision {
    /// The value of `Retry-After` for a refused client, in seconds: a single request after that
    /// wait succeeds.
    pub const fn retry_after_seconds(&self) -> u64 {
        retry_after_seconds(self.wait_ns)
    }
}

#[cfg(test)]
#[cfg(not(paperbourse_loom))]
mod tests;
