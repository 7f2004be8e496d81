//! The windows as they were before stamps had 32 bits: a log of 64-bit stamps in nanoseconds, a
//! counted pointer to it, and two swaps for each append. An independent implementation, to
//! compare with.

use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwapAny, Guard};
use triomphe::ThinArc;

use paperbourse::limits::tier::TierLimits;
use paperbourse::limits::window::{Allowance, Decision};
use paperbourse::limits::{CLOCK_NS_MAX, Limit, UNLIMITED_SHOWN};

const SECOND_NS: u64 = 1_000_000_000;
const MINUTE_NS: u64 = 60 * SECOND_NS;

/// Slots in the first log of a key: one cache line. Model checks start with one slot, so that the
/// log grows at once.
const CAPACITY_MIN: usize = 8;

/// The windows of one key, shared by all threads without a lock.
pub(super) struct FormerLimiter {
    /// Per minute in the upper half, per second in the lower; 0 is unlimited. A decision may use
    /// old or new limits, so the model checker need not see this.
    limits: AtomicU64,
    /// No stamp is lower: everything freed has left all windows that end here or later.
    floor_ns: AtomicU64,
    /// The stamps that still count; empty while there are none.
    log: ArcSwapAny<Option<Ring>>,
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

impl FormerLimiter {
    /// Empty windows for a key of this tier.
    pub(super) fn new(limits: &TierLimits) -> Self {
        Self {
            limits: AtomicU64::new(Limits::of(limits).packed()),
            floor_ns: AtomicU64::new(0),
            log: ArcSwapAny::new(None),
        }
    }

    /// Decides about one request, and counts it if it is admitted.
    pub(super) fn decide(&self, now_ns: u64) -> Decision {
        let now_ns = now_ns.min(CLOCK_NS_MAX);
        let limits = self.limits();
        let Some(retention_ns) = limits.retention_ns() else {
            return limits.decision(now_ns, now_ns, Self::unused(now_ns));
        };
        loop {
            let loaded = self.log.load();
            let Some(ring) = loaded.as_ref() else {
                self.log.compare_and_swap(&*loaded, Some(log(CAPACITY_MIN, std::iter::empty())));
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

    /// Frees all memory if no stamp counts any more at this time, which has no effect on later
    /// decisions. To be called periodically for every key.
    pub(super) fn release(&self, now_ns: u64) {
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

    /// Replaces a sealed log, seen through `sealed`, by one with the stamps that still count, or by
    /// none if no stamp does. If several threads try, one succeeds.
    #[cold]
    fn succeed(
        &self,
        current: &Guard<Option<Ring>>,
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
            self.log.compare_and_swap(&**current, None);
            return;
        }
        let counts = |&age: &u64| newest_ns - sealed.stamp_ns(age) < retention_ns;
        let mut stamps: Vec<u64> =
            (1..=sealed.len()).take_while(counts).map(|age| sealed.stamp_ns(age)).collect();
        stamps.reverse();
        self.log.compare_and_swap(&**current, Some(log(CAPACITY_MIN, stamps.into_iter())));
    }

    fn limits(&self) -> Limits {
        Limits::from_packed(self.limits.load(Ordering::Relaxed))
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
        let limit = |count| Limit::new(count).unwrap_or(Limit::UNLIMITED);
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

const LAP_BIT: u64 = 1 << 63;
const SEAL_BIT: u64 = 1 << 62;
const STAMP_MASK: u64 = SEAL_BIT - 1;
const _: () = assert!(CLOCK_NS_MAX <= STAMP_MASK, "every clock time fits a slot");

/// The log: its counts and its slots in one allocation, so that the newest stamps of a short log
/// share a cache line with the counts. The number of slots is a power of two.
type Ring = ThinArc<Counts, AtomicU64>;

struct Counts {
    /// How many stamps were appended, or one less.
    head: AtomicU64,
    /// What the last decision counted in the second and in the minute: a hint where the next search
    /// starts. Correctness does not depend on it, so the model checker need not see it.
    counted: AtomicU64,
}

/// The log at one moment, provided that [`View::is_current`] or [`View::append`] confirms it.
struct View<'ring> {
    counts: &'ring Counts,
    slots: &'ring [AtomicU64],
    count: u64,
    /// The next slot, its old value, and the lap bit of its next stamp.
    next: usize,
    next_before: u64,
    lap_bit: u64,
}

/// A log with these stamps, oldest first, and room for at least one more.
fn log(capacity_min: usize, mut stamps: impl ExactSizeIterator<Item = u64>) -> Ring {
    let count = stamps.len();
    let capacity = (count + 1).max(capacity_min).next_power_of_two();
    let mut value = || stamps.next().map_or(0, |stamp_ns| LAP_BIT | stamp_ns);
    let counts = Counts { head: AtomicU64::new(count as u64), counted: AtomicU64::new(0) };
    Ring::from_header_and_iter(counts, (0..capacity).map(|_| AtomicU64::new(value())))
}

impl<'ring> View<'ring> {
    /// The log at this moment, not yet confirmed.
    #[inline]
    fn of(ring: &'ring Ring) -> Self {
        let (counts, slots) = (&ring.header.header, &ring.slice);
        let capacity = slots.len() as u64;
        loop {
            let count = counts.head.load(Ordering::Acquire);
            let next = index(count) & (slots.len() - 1);
            let lap_bit = if count & capacity == 0 { LAP_BIT } else { 0 };
            let next_before = slots[next].load(Ordering::Acquire);
            if next_before & LAP_BIT == lap_bit {
                counts.advance(count);
            } else if counts.head.load(Ordering::Acquire) == count {
                return Self { counts, slots, count, next, next_before, lap_bit };
            }
        }
    }

    /// How many stamps can be read, at most the capacity.
    #[inline]
    fn len(&self) -> u64 {
        self.count.min(self.slots.len() as u64)
    }

    /// Roughly what the last decision counted in the second and in the minute.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "each half was packed from a u32")]
    fn counted(&self) -> (u32, u32) {
        let packed = self.counts.counted.load(Ordering::Relaxed);
        (packed as u32, (packed >> u32::BITS) as u32)
    }

    /// Stores what was counted in the second and in the minute as a hint for the next decision.
    #[inline]
    fn leave_counted(&self, in_second: u32, in_minute: u32) {
        let packed = u64::from(in_minute) << u32::BITS | u64::from(in_second);
        self.counts.counted.store(packed, Ordering::Relaxed);
    }

    /// The stamp of the `age`-th newest append, counted from 1 up to [`View::len`].
    #[inline]
    fn stamp_ns(&self, age: u64) -> u64 {
        debug_assert!((1..=self.len()).contains(&age), "stamp {age} of {}", self.len());
        let slot = self.next.wrapping_sub(index(age)) & (self.slots.len() - 1);
        self.slots[slot].load(Ordering::Acquire) & STAMP_MASK
    }

    /// The newest stamp, if any.
    #[inline]
    fn newest_ns(&self) -> Option<u64> {
        (self.count > 0).then(|| self.stamp_ns(1))
    }

    /// The stamp that the next append overwrites, if any.
    #[inline]
    fn overwritten_ns(&self) -> Option<u64> {
        (self.count >= self.slots.len() as u64).then_some(self.next_before & STAMP_MASK)
    }

    /// Whether nothing was appended since the view was taken.
    #[inline]
    fn is_current(&self) -> bool {
        self.slots[self.next].load(Ordering::Acquire) == self.next_before
    }

    /// Whether the log is sealed: it will never change again.
    #[inline]
    fn is_sealed(&self) -> bool {
        self.next_before & SEAL_BIT != 0
    }

    /// Appends a stamp if nothing was appended since the view was taken; returns whether it did.
    ///
    /// The stamp must not be lower than the newest, and must be higher than the one it overwrites.
    #[inline]
    fn append(&self, stamp_ns: u64) -> bool {
        let is_appended = self.claim(stamp_ns);
        if is_appended {
            self.counts.advance(self.count);
        }
        is_appended
    }

    /// Seals the log if nothing was appended since the view was taken; returns whether it did.
    fn seal(&self) -> bool {
        self.write(self.next_before | SEAL_BIT)
    }

    #[inline]
    fn claim(&self, stamp_ns: u64) -> bool {
        debug_assert!(stamp_ns <= CLOCK_NS_MAX, "{stamp_ns} overflows into the flag bits");
        self.write(self.lap_bit | stamp_ns)
    }

    #[inline]
    fn write(&self, value: u64) -> bool {
        assert!(!self.is_sealed(), "a sealed log is never written");
        self.slots[self.next]
            .compare_exchange(self.next_before, value, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}

impl Counts {
    /// Counts stamp number `count`, which has been written. If the swap fails, another thread has
    /// counted it.
    fn advance(&self, count: u64) {
        let _ = self.head.compare_exchange(count, count + 1, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// The low bits of a stamp's number, which select its slot.
#[expect(clippy::cast_possible_truncation, reason = "only the low bits select the slot")]
const fn index(number: u64) -> usize {
    number as usize
}
