//! The windows of one key. No trailing second or minute admits more requests than its limit, and no
//! request is refused that could have been admitted.
//!
//! A window of length W that ends at t is half-open: (t − W, t]. An admission is stamped with the
//! later of the caller's clock and the key's newest stamp, so that stamps never decrease although
//! threads may arrive in another order than they read the clock. The windows are exact with respect
//! to these stamps. Only admissions are stamped: a refused request costs its key nothing.
//! # Memory
//!
//! An unused key takes the 24 bytes of its [`KeyLimiter`] and nothing on the heap. The first
//! request allocates a log of a few stamps. When the log is full of stamps that still count, it is
//! sealed and replaced by one of twice the size, up to the limit of the longest window, rounded up
//! to a power of two: 4 kB for 300 a minute. Once all stamps have left the windows,
//! [`KeyLimiter::release`] frees the log.
//!
//! One number, the `floor`, stands in for what was freed: the time from which it no longer counts.
//! No later stamp is lower, not even that of a thread that read the clock long before, so the
//! windows stay exact. The floor rises after the log was sealed and before it is freed: a decision
//! that reads the floor after loading the log either sees all that came before or fails on the
//! seal.
//!
//! # New limits
//!
//! Limits may change at any time; each decision reads both once. What was admitted stays counted as
//! far back as the windows reach that were limited until then: a window that was unlimited has kept
//! no stamps.

use std::num::NonZeroU32;
use std::sync::atomic;

use super::atomics::{AtomicU64, Loaded, Ordering, Place};
use super::ring::{Counts, View, log};
use super::tier::TierLimits;
use super::{CLOCK_NS_MAX, Limit, MINUTE_NS, SECOND_NS, UNLIMITED_SHOWN, retry_after_seconds};

/// Slots in the first log of a key: one cache line. Model checks start with one slot, so that the
/// log grows at once.
const CAPACITY_MIN: usize = if cfg!(paperbourse_loom) { 1 } else { 8 };

/// The windows of one key, shared by all threads without a lock.
pub struct KeyLimiter {
    /// Per minute in the upper half, per second in the lower; 0 is unlimited. A decision may use
    /// old or new limits, so the model checker need not see this.
    limits: atomic::AtomicU64,
    /// No stamp is lower: everything freed has left all windows that end here or later.
    floor_ns: AtomicU64,
    /// The stamps that still count; empty while there are none.
    log: Place<Counts, AtomicU64>,
}

#[cfg(not(paperbourse_loom))]
const _: () = assert!(size_of::<KeyLimiter>() == 24, "the documented size of an idle key");

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
    /// The time that the decision was made for: the caller's, or the key's newest stamp if that is
    /// later (an unlimited key keeps no stamps). An admitted request gets this stamp.
    pub stamp_ns: u64,
}

/// The state of one window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowance {
    /// Requests per window, [`UNLIMITED_SHOWN`] if unlimited.
    pub limit: u32,
    /// How many more requests this window would admit now.
    pub remaining: u32,
}

/// The limits that one decision goes by: per second and per minute.
#[derive(Clone, Copy)]
struct Limits([Limit; 2]);

#[derive(Clone, Copy)]
struct Window {
    limit: Limit,
    length_ns: u64,
}

/// What a window holds at one moment.
#[derive(Clone, Copy)]
struct Usage {
    count: u32,
    /// The oldest stamp in the window, or its end if it is empty.
    oldest_ns: u64,
}

impl KeyLimiter {
    /// Empty windows for a key of this tier.
    pub fn new(limits: &TierLimits) -> Self {
        Self {
            limits: atomic::AtomicU64::new(Limits::of(limits).packed()),
            floor_ns: AtomicU64::new(0),
            log: Place::empty(),
        }
    }

    /// Decides by these limits from now on.
    pub fn set_limits(&self, limits: &TierLimits) {
        self.limits.store(Limits::of(limits).packed(), atomic::Ordering::Relaxed);
    }

    /// Decides about one request, and counts it if it is admitted.
    pub fn decide(&self, now_ns: u64) -> Decision {
        let now_ns = now_ns.min(CLOCK_NS_MAX);
        let limits = self.limits();
        let Some(retention_ns) = limits.retention_ns() else {
            return limits.decision(now_ns, now_ns, Self::unused(now_ns));
        };
        loop {
            let loaded = self.log.load();
            let Some(ring) = loaded.as_ref() else {
                self.log.replace(&loaded, Some(log(CAPACITY_MIN, std::iter::empty())));
                continue;
            };
            let view = View::of(ring);
            if view.is_sealed() {
                self.succeed(&loaded, &view, now_ns, retention_ns);
                continue;
            }
            let (stamp_ns, mut usages) = self.usages(limits, &view, now_ns);
            if !limits.has_room(usages) {
                if view.is_current() {
                    return limits.decision(now_ns, stamp_ns, usages);
                }
            } else if view.overwritten_ns().is_some_and(|overwritten_ns| {
                stamp_ns.saturating_sub(overwritten_ns) < retention_ns
            }) {
                // The overwritten stamp would still count: the log must grow.
                view.seal();
            } else if view.append(stamp_ns) {
                let [in_second, in_minute] = &mut usages;
                in_second.count += 1;
                in_minute.count += 1;
                view.leave_counted(in_second.count, in_minute.count);
                let decision = limits.decision(now_ns, stamp_ns, usages);
                return Decision { is_admitted: true, ..decision };
            }
        }
    }

    /// What [`KeyLimiter::decide`] would find, without counting anything: `is_admitted` says
    /// whether a request would be admitted, and the remaining counts do not include it.
    pub fn peek(&self, now_ns: u64) -> Decision {
        let now_ns = now_ns.min(CLOCK_NS_MAX);
        let limits = self.limits();
        loop {
            let loaded = self.log.load();
            let Some(ring) = loaded.as_ref() else {
                let stamp_ns = now_ns.max(self.floor_ns());
                return limits.decision(now_ns, stamp_ns, Self::unused(stamp_ns));
            };
            // A sealed log shows the same stamps as its successor.
            let view = View::of(ring);
            let (stamp_ns, usages) = self.usages(limits, &view, now_ns);
            if view.is_current() {
                return limits.decision(now_ns, stamp_ns, usages);
            }
        }
    }

    /// Frees all memory if no stamp counts any more at this time, which has no effect on later
    /// decisions. To be called periodically for every key.
    pub fn release(&self, now_ns: u64) {
        let now_ns = now_ns.min(CLOCK_NS_MAX);
        let loaded = self.log.load();
        let Some(ring) = loaded.as_ref() else { return };
        // An unlimited key may become limited again.
        let retention_ns = self.limits().retention_ns().unwrap_or(MINUTE_NS);
        let view = View::of(ring);
        let counts_no_more = |newest_ns| newest_ns + retention_ns <= now_ns;
        if !view.is_sealed() && view.newest_ns().is_none_or(counts_no_more) && view.seal() {
            self.succeed(&loaded, &View::of(ring), now_ns, retention_ns);
        }
    }

    /// The memory of the log.
    pub fn owned_bytes(&self) -> usize {
        self.log.load().as_ref().map_or(0, |ring| View::of(ring).bytes())
    }

    /// Whether no window holds a stamp, so that forgetting the key would change nothing.
    pub fn is_idle(&self, now_ns: u64) -> bool {
        let decision = self.peek(now_ns);
        [decision.per_second, decision.per_minute]
            .into_iter()
            .all(|allowance| allowance.remaining == allowance.limit)
    }

    /// Replaces a sealed log, seen through `sealed`, by one with the stamps that still count, or by
    /// none if no stamp does. If several threads try, one succeeds.
    #[cold]
    fn succeed(
        &self,
        current: &Loaded<Counts, AtomicU64>,
        sealed: &View<'_>,
        now_ns: u64,
        retention_ns: u64,
    ) {
        debug_assert!(sealed.is_sealed(), "a log that can still grow has no successor");
        let newest_ns = sealed.newest_ns().unwrap_or(0);
        if sealed.len() == 0 || newest_ns + retention_ns <= now_ns {
            if sealed.len() > 0 {
                self.floor_ns.fetch_max(newest_ns + retention_ns, Ordering::AcqRel);
            }
            self.log.replace(current, None);
            return;
        }
        let counts = |&age: &u64| newest_ns - sealed.stamp_ns(age) < retention_ns;
        let mut stamps: Vec<u64> =
            (1..=sealed.len()).take_while(counts).map(|age| sealed.stamp_ns(age)).collect();
        stamps.reverse();
        self.log.replace(current, Some(log(CAPACITY_MIN, stamps.into_iter())));
    }

    fn limits(&self) -> Limits {
        Limits::from_packed(self.limits.load(atomic::Ordering::Relaxed))
    }

    fn floor_ns(&self) -> u64 {
        self.floor_ns.load(Ordering::Acquire)
    }

    fn unused(now_ns: u64) -> [Usage; 2] {
        [Usage { count: 0, oldest_ns: now_ns }; 2]
    }

    /// The time that a decision is made for, and what the windows ending then hold.
    fn usages(&self, limits: Limits, view: &View<'_>, now_ns: u64) -> (u64, [Usage; 2]) {
        let stamp_ns = now_ns.max(self.floor_ns()).max(view.newest_ns().unwrap_or(0));
        let [second, minute] = limits.windows();
        let (in_second, in_minute) = view.counted();
        let in_second = second.usage(view, stamp_ns, in_second);
        (stamp_ns, [in_second, minute.usage(view, stamp_ns, in_minute)])
    }
}

impl Limits {
    fn of(limits: &TierLimits) -> Self {
        Self([limits.requests_per_second, limits.requests_per_minute])
    }

    fn packed(self) -> u64 {
        let [second, minute] = self.0.map(|limit| u64::from(limit.get().unwrap_or(0)));
        minute << u32::BITS | second
    }

    #[expect(clippy::cast_possible_truncation, reason = "each half was packed from a u32")]
    fn from_packed(packed: u64) -> Self {
        let limit = |count| Limit(NonZeroU32::new(count));
        Self([limit(packed as u32), limit((packed >> u32::BITS) as u32)])
    }

    /// How long a stamp counts: the length of the longest limited window; `None` if neither is
    /// limited.
    fn retention_ns(self) -> Option<u64> {
        let [second, minute] = self.0;
        let of_second = second.get().map(|_| SECOND_NS);
        minute.get().map(|_| MINUTE_NS).or(of_second)
    }

    fn windows(self) -> [Window; 2] {
        let [second, minute] = self.0;
        [
            Window { limit: second, length_ns: SECOND_NS },
            Window { limit: minute, length_ns: MINUTE_NS },
        ]
    }

    fn has_room(self, usages: [Usage; 2]) -> bool {
        let ([second, minute], [in_second, in_minute]) = (self.0, usages);
        in_second.count < second.shown() && in_minute.count < minute.shown()
    }

    /// The decision about a request that comes after these usages.
    fn decision(self, now_ns: u64, stamp_ns: u64, usages: [Usage; 2]) -> Decision {
        let [second, minute] = self.windows();
        let [in_second, in_minute] = usages;
        let wait_ns = second.wait_ns(in_second, now_ns).max(minute.wait_ns(in_minute, now_ns));
        Decision {
            is_admitted: self.has_room(usages),
            per_second: second.allowance(in_second),
            per_minute: minute.allowance(in_minute),
            wait_ns,
            stamp_ns,
        }
    }
}

impl Decision {
    /// The value of `Retry-After` for a refused client, in seconds: a single request after that
    /// wait succeeds.
    pub const fn retry_after_seconds(&self) -> u64 {
        retry_after_seconds(self.wait_ns)
    }
}

impl Window {
    /// Counts the stamps in the window that ends at `end_ns`, which is no earlier than any of them.
    /// More than the limit are as many as the limit, so older ones need no look.
    ///
    /// Usually there are as many as the last decision `counted`, or one has left since; otherwise a
    /// binary search finds the number.
    #[inline]
    fn usage(self, view: &View<'_>, end_ns: u64, counted: u32) -> Usage {
        let candidates = self.limit.get().map_or(0, u64::from).min(view.len());
        // Another thread may overwrite a stamp under this view; the view then fails to confirm.
        let is_inside = |age: u64| end_ns.saturating_sub(view.stamp_ns(age)) < self.length_ns;
        let counted = u64::from(counted).min(candidates);
        // Ages up to `inside` lie in the window; ages from `outside` do not.
        let (mut inside, mut outside) = if counted > 0 && !is_inside(counted) {
            if counted == 1 || is_inside(counted - 1) {
                (counted - 1, counted)
            } else {
                (0, counted - 1)
            }
        } else if counted == candidates || !is_inside(counted + 1) {
            (counted, counted + 1)
        } else {
            (counted + 1, candidates + 1)
        };
        while outside - inside > 1 {
            let age = inside.midpoint(outside);
            if is_inside(age) {
                inside = age;
            } else {
                outside = age;
            }
        }
        Usage {
            count: u32::try_from(inside).expect("a limit is a u32"),
            oldest_ns: if inside == 0 { end_ns } else { view.stamp_ns(inside) },
        }
    }

    /// Time until one more request fits. A full window has room once its oldest stamp has left it.
    fn wait_ns(self, usage: Usage, now_ns: u64) -> u64 {
        if usage.count < self.limit.shown() {
            return 0;
        }
        let free_at_ns = usage.oldest_ns + self.length_ns;
        free_at_ns - now_ns
    }

    fn allowance(self, usage: Usage) -> Allowance {
        let remaining = match self.limit.get() {
            Some(limit) => limit - usage.count,
            None => UNLIMITED_SHOWN,
        };
        Allowance { limit: self.limit.shown(), remaining }
    }
}

#[cfg(test)]
#[cfg(not(paperbourse_loom))]
mod tests;
