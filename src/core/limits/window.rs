//! The windows of one key. No trailing second or minute admits more requests than its limit, and no
//! request is refused that could have been admitted.
//!
//! Time is counted in ticks of 128 ns; a second and a minute are whole numbers of ticks. A window
//! of length W that ends at t is half-open: (t − W, t]. An admission is stamped with the later of
//! the caller's clock and the key's newest stamp, so stamps never decrease even if threads arrive
//! in a different order than they read the clock. The windows are exact with respect to these
//! stamps. Only admissions are stamped: a refused request costs its key nothing.
//!
//! # Places
//!
//! A decision changes one word, a slot of the key's log. The log is reached through the [`Windows`]
//! in the key's place. When the log must be replaced, so are the windows: the decision returns new
//! ones, and the owner of the place stores them if the place still holds the old ones. A
//! [`KeyLimiter`] has a place of its own. The table of keys has one in every entry, protected by
//! the guard of a lookup, so no references are counted.
//!
//! # Memory
//!
//! An unused key takes the 32 bytes of its [`Windows`] and nothing on the heap. The first request
//! allocates a log of a few stamps. When the log is full of stamps that still count, it is sealed
//! and replaced by one of twice the size, up to the limit of the longest window: 1.2 kB for 300 a
//! minute. Once all stamps have left the windows, a release frees the log.
//!
//! One number stands in for a freed log: the time from which the log no longer counts. No later
//! stamp is lower than this time, not even that of a thread that read its clock long before, so the
//! windows stay exact. The number is stored in the place after the log was sealed, as part of
//! windows that have no log. A decision therefore either finds the number or fails on the seal.
//!
//! # Time
//!
//! A stamp has 31 bits and counts from the beginning of its log, which is enough for 274 seconds. A
//! log older than that is replaced like a full one, by the first thread that notices. The new log
//! begins with the oldest stamp that still counts. A key that returns after years finds that its
//! log is too old.
//!
//! # Keys that share their windows
//!
//! A key and its successors share their windows. Each key has its own place, and all places have
//! the same log. A sealed shared log holds its replacement. A place follows to the replacement when
//! its key is used, and to the newest log when it is released. So after a release, the place of an
//! ended key keeps alive only the logs that its successors have used since.
//!
//! The keys may have different limits, if only while their tier changes. Each request is decided by
//! the limits of its own key, so a shared log keeps stamps for a minute even if a key has no limit
//! per minute.
//!
//! # New limits
//!
//! Limits may change at any time; each decision reads both limits at once. Earlier admissions stay
//! counted as far back as the windows that were limited at the time, since no stamps are kept for
//! an unlimited window.

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
    /// `None` before the first request.
    place: Place<Arc<Windows>>,
}

/// The outcome of one request, and the allowance that its key has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// Whether the request may pass.
    pub is_admitted: bool,
    /// State of the one-second window after this decision.
    pub per_second: Allowance,
    /// State of the 60-second window after this decision.
    pub per_minute: Allowance,
    /// Time from the caller's `now` until one more request is sure to be admitted, if no other is
    /// sent meanwhile; 0 if it would be admitted at once. Exact to the nanosecond.
    pub wait_ns: u64,
    /// The time for which the decision was made: the caller's `now`, rounded down to a tick, or the
    /// key's newest stamp if that is later (an unlimited key keeps no stamps). An admitted request
    /// gets this stamp.
    pub stamp_ns: u64,
}

/// The state of one window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowance {
    /// Requests per window; [`UNLIMITED_SHOWN`](super::UNLIMITED_SHOWN) if unlimited.
    pub limit: u32,
    /// Number of further requests that this window would admit now.
    pub remaining: u32,
}

impl KeyLimiter {
    /// Creates empty windows for a key of this tier.
    pub fn new(limits: &TierLimits) -> Self {
        Self { limits: WindowLimits::new(limits), place: Place::new(None) }
    }

    /// Applies these limits from now on.
    pub fn set_limits(&self, limits: &TierLimits) {
        self.limits.set(limits);
    }

    /// Decides whether one request may pass, and counts it if so.
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

    /// Decides like [`KeyLimiter::decide`], but counts nothing: `is_admitted` tells whether a
    /// request would be admitted, and the remaining counts do not include it.
    pub fn peek(&self, now_ns: u64) -> Decision {
        windows_in(self.place.load().as_ref()).peek(self.limits.get(), now_ns)
    }

    /// Frees the log if none of its stamps count at this time. Later decisions are unaffected.
    /// Meant to be called periodically for every key.
    pub fn release(&self, now_ns: u64) {
        let held = self.place.load();
        if let Some(next) = windows_in(held.as_ref()).release(self.limits.get(), now_ns) {
            self.place.replace(&held, Some(Arc::new(next)));
        }
    }

    /// Returns a limiter that shares the windows of this one.
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

    /// Returns the memory that the windows take, in bytes. Limiters that share a log each count a
    /// part of it.
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

/// Returns the windows in the place of a [`KeyLimiter`].
fn windows_in(held: Option<&Arc<Windows>>) -> &Windows {
    static NEVER_USED: Windows = Windows::empty();
    held.map_or(&NEVER_USED, |windows| windows)
}

impl Decision {
    /// Returns the value of `Retry-After` for a refused client, in seconds. A single request after
    /// that wait succeeds.
    pub const fn retry_after_seconds(&self) -> u64 {
        retry_after_seconds(self.wait_ns)
    }
}

#[cfg(test)]
#[cfg(not(paperbourse_loom))]
mod tests;
