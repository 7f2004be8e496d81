//! The arithmetic of both windows: their contents at one moment, and the decision that follows.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Allowance, Decision};
use crate::limits::ring::View;
use crate::limits::tier::TierLimits;
use crate::limits::{LIMIT_MAX, Limit, MINUTE_NS, SECOND_NS, TICK_NS, UNLIMITED_SHOWN};

/// The length of a minute in ticks.
pub(super) const MINUTE_TICKS: u32 = ticks(MINUTE_NS);

/// The limits of a key's windows. They can be replaced while requests are being decided: each
/// decision reads both at once.
#[derive(Debug)]
pub struct WindowLimits(
    /// Per minute in the upper half, per second in the lower; 0 means unlimited. A decision may use
    /// old or new limits, so the model checker need not see this.
    AtomicU64,
);

/// The limits that apply to one decision: per second and per minute.
#[derive(Clone, Copy)]
pub struct Limits([Limit; 2]);

#[derive(Clone, Copy)]
struct Window {
    limit: Limit,
    length: u32,
}

/// The contents of a window at one moment.
#[derive(Clone, Copy)]
pub(super) struct Usage {
    pub(super) count: u32,
    /// The oldest stamp in the window, or the window's end if the window is empty.
    pub(super) oldest: u32,
    /// The slot of the oldest stamp, or the slot to be written next if the window is empty.
    pub(super) tail: usize,
}

/// The moment for which a decision is made.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    /// The caller's clock, in nanoseconds.
    pub(super) now_ns: u64,
    /// Time of the log's stamp 1, in ticks of the clock.
    pub(super) since: u64,
    /// The end of the windows, in ticks of the log.
    pub(super) end: u32,
}

impl WindowLimits {
    /// Creates the limits of this tier.
    pub fn new(limits: &TierLimits) -> Self {
        Self(AtomicU64::new(Limits::of(limits).packed()))
    }

    /// Applies these limits from now on.
    pub fn set(&self, limits: &TierLimits) {
        self.0.store(Limits::of(limits).packed(), Ordering::Relaxed);
    }

    /// Returns the limits in force.
    #[inline]
    pub fn get(&self) -> Limits {
        Limits::from_packed(self.0.load(Ordering::Relaxed))
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

    /// Returns how long a stamp counts, in ticks: the length of the longest limited window, or
    /// `None` if neither is limited.
    #[inline]
    pub(super) fn retention(self) -> Option<u32> {
        let [second, minute] = self.0;
        let of_second = second.get().map(|_| ticks(SECOND_NS));
        minute.get().map(|_| MINUTE_TICKS).or(of_second)
    }

    /// Returns the maximum number of stamps that these limits can admit within `retention` ticks, a
    /// whole number of seconds.
    pub(super) fn stamps_max(self, retention: u32) -> usize {
        let [second, minute] = self.0.map(|limit| limit.get().unwrap_or(LIMIT_MAX));
        let seconds = retention / ticks(SECOND_NS);
        second.saturating_mul(seconds).min(minute).min(LIMIT_MAX) as usize
    }

    fn windows(self) -> [Window; 2] {
        let [second, minute] = self.0;
        [
            Window { limit: second, length: ticks(SECOND_NS) },
            Window { limit: minute, length: MINUTE_TICKS },
        ]
    }

    /// Returns the usage of both windows that end at `end`. The `tails` are the slots where the
    /// windows began at an earlier decision.
    #[inline]
    pub(super) fn usages(self, view: &View<'_>, end: u32, tails: [usize; 2]) -> [Usage; 2] {
        let [second, minute] = self.windows();
        // Both slots are loaded before either is used, because a load may take a while.
        let [in_second, in_minute] = tails.map(|tail| (tail, view.stamp_in(tail)));
        [second.usage(view, end, in_second), minute.usage(view, end, in_minute)]
    }

    #[inline]
    pub(super) fn has_room(self, usages: [Usage; 2]) -> bool {
        let ([second, minute], [in_second, in_minute]) = (self.0, usages);
        in_second.count < second.shown() && in_minute.count < minute.shown()
    }

    /// Returns the decision on a request, given the usage of both windows.
    #[inline]
    pub(super) fn decision(self, moment: Moment, usages: [Usage; 2]) -> Decision {
        let [second, minute] = self.windows();
        let [in_second, in_minute] = usages;
        Decision {
            is_admitted: self.has_room(usages),
            per_second: second.allowance(in_second),
            per_minute: minute.allowance(in_minute),
            wait_ns: second.wait_ns(in_second, moment).max(minute.wait_ns(in_minute, moment)),
            stamp_ns: moment.tick(moment.end) * TICK_NS,
        }
    }

    /// Returns the decision on a request that finds both windows empty.
    pub(super) fn decision_at(self, now_ns: u64, tick: u64) -> Decision {
        let moment = Moment { now_ns, since: tick, end: 1 };
        self.decision(moment, [Usage { count: 0, oldest: moment.end, tail: 0 }; 2])
    }
}

impl Moment {
    /// Returns the time of a stamp, in ticks of the clock.
    fn tick(self, stamp: u32) -> u64 {
        self.since + u64::from(stamp) - 1
    }
}

impl Window {
    /// Counts the stamps in the window that ends at `end`, which is no earlier than any of them.
    /// The count stops at the limit, so older stamps need not be read.
    ///
    /// The search starts at the stamp that was the oldest in the window at the last decision, and
    /// continues in steps of doubling length. Usually few stamps have left the window since, and
    /// their slots are in the same block.
    #[inline]
    fn usage(self, view: &View<'_>, end: u32, (tail, first): (usize, Option<u32>)) -> Usage {
        let candidates = self.limit.get().unwrap_or(0).min(count(view.len_max()));
        // Another thread may overwrite a stamp under this view, but then the view is not confirmed.
        let holds = |stamp: u32| stamp > 0 && end.saturating_sub(stamp) < self.length;
        let is_inside = |age: u32| holds(view.stamp(age as usize));
        let counted = first.map_or(0, |_| count(view.age(tail)));
        let (counted, first) = match first {
            Some(stamp) if counted <= candidates => (counted, stamp),
            _ => (0, 0),
        };
        // Ages up to `inside` are in the window; ages from `outside` on are not.
        let (mut inside, mut outside) = (counted, counted);
        let mut step = 1;
        if counted > 0 && !holds(first) {
            inside = counted - 1;
            while inside > 0 && !is_inside(inside) {
                outside = inside;
                step *= 2;
                inside = inside.saturating_sub(step);
            }
        } else {
            outside += 1;
            while outside <= candidates && is_inside(outside) {
                inside = outside;
                step *= 2;
                outside = (outside + step).min(candidates + 1);
            }
        }
        while outside - inside > 1 {
            let age = inside.midpoint(outside);
            if is_inside(age) {
                inside = age;
            } else {
                outside = age;
            }
        }
        Usage {
            count: inside,
            oldest: if inside == 0 { end } else { view.stamp(inside as usize) },
            tail: view.slot(inside as usize),
        }
    }

    /// Returns the nanoseconds until one more request fits. A full window has room once its oldest
    /// stamp has left it.
    #[inline]
    fn wait_ns(self, usage: Usage, moment: Moment) -> u64 {
        if usage.count < self.limit.shown() {
            return 0;
        }
        let free_at = moment.tick(usage.oldest) + u64::from(self.length);
        // Cannot underflow: the oldest stamp is still in a window that ends no earlier than now.
        free_at * TICK_NS - moment.now_ns
    }

    #[inline]
    fn allowance(self, usage: Usage) -> Allowance {
        let remaining = match self.limit.get() {
            Some(limit) => limit - usage.count,
            None => UNLIMITED_SHOWN,
        };
        Allowance { limit: self.limit.shown(), remaining }
    }
}

/// Converts a length of time to ticks.
#[expect(clippy::cast_possible_truncation, reason = "a minute has fewer than 2^31 ticks")]
const fn ticks(length_ns: u64) -> u32 {
    assert!(length_ns.is_multiple_of(TICK_NS) && length_ns <= MINUTE_NS);
    (length_ns / TICK_NS) as u32
}

/// Converts a number of slots to the type of a count.
#[expect(clippy::cast_possible_truncation, reason = "a log has room for the largest limit")]
const fn count(slots: usize) -> u32 {
    slots as u32
}
