//! The windows of one key: in no trailing second or minute are more requests admitted than the
//! limit, and none is refused that could have been admitted.
//!
//! A window of length W that ends at t is half-open, (t − W, t]. An admission is stamped with the
//! later of the caller's clock and the key's newest stamp, so that stamps never fall although
//! threads read the clock in another order than they arrive in; the windows are exact about these
//! stamps. Only admissions are stamped: a refused request costs its key nothing.
//!
//! # Memory
//!
//! A key that nobody uses takes the 24 bytes of its [`KeyLimiter`] and nothing on the heap. The
//! first request allocates a log of a few stamps. Where it is full of stamps that still count, it
//! is sealed and one of twice the size takes its place, up to the limit of the longest window,
//! rounded up to a power of two: 4 kB for 300 a minute. Once all of them have left the windows,
//! [`KeyLimiter::release`] gives everything back.
//!
//! What is forgotten then is remembered as one number, the `floor`: the moment from which on it
//! does not count any more. No later stamp is lower, not even that of a thread that has read the
//! clock long before, and so the windows stay exact. The floor rises before the log goes, and after
//! the log was sealed: a decision that reads the floor once it has the log sees all that came
//! before, or fails for the seal.

use super::atomics::{AtomicU64, Loaded, Ordering, Place};
use super::ring::{Counts, View, log};
use super::tier::TierLimits;
use super::{CLOCK_NS_MAX, Limit, MINUTE_NS, SECOND_NS, UNLIMITED_SHOWN, retry_after_seconds};

/// The slots of the first log of a key: a cache line. Models grow at once.
const CAPACITY_MIN: usize = if cfg!(paperbourse_loom) { 1 } else { 8 };

/// The windows of one key, shared by all threads and without a lock.
pub struct KeyLimiter {
    /// In any trailing second and minute.
    limits: [Limit; 2],
    /// No stamp is lower: whatever was forgotten has left all windows that end here or later.
    floor_ns: AtomicU64,
    /// The stamps that still count; none while there are none.
    log: Place<Counts, AtomicU64>,
}

#[cfg(not(paperbourse_loom))]
const _: () = assert!(size_of::<KeyLimiter>() == 24, "the documented size of an idle key");

/// Whether a request may pass, and what the key can expect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// Whether it may pass.
    pub is_admitted: bool,
    /// The window of one second, after this decision.
    pub per_second: Allowance,
    /// The window of 60 seconds, after this decision.
    pub per_minute: Allowance,
    /// From the caller's now to the first moment at which one more request is sure to be admitted
    /// if nothing else is sent; 0 when that is at once. A nanosecond sooner it would be refused.
    pub wait_ns: u64,
    /// The time that the decision was made for: the caller's, or the key's newest stamp if that is
    /// later (a key without limits keeps none). The stamp of the request if it was admitted.
    pub stamp_ns: u64,
}

/// What a window admits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowance {
    /// Requests in any window, [`UNLIMITED_SHOWN`] for any number.
    pub limit: u32,
    /// How many more would be admitted at this moment as far as this window goes.
    pub remaining: u32,
}

#[derive(Clone, Copy)]
struct Window {
    limit: Limit,
    length_ns: u64,
}

/// What a window holds at one moment.
#[derive(Clone, Copy)]
struct Usage {
    count: u32,
    /// The oldest stamp in it; the moment itself while it is empty.
    oldest_ns: u64,
}

impl KeyLimiter {
    /// The windows of a key of this tier, empty.
    pub fn new(limits: &TierLimits) -> Self {
        Self {
            limits: [limits.requests_per_second, limits.requests_per_minute],
            floor_ns: AtomicU64::new(0),
            log: Place::empty(),
        }
    }

    /// Decides about one request, and counts it if it is admitted.
    pub fn decide(&self, now_ns: u64) -> Decision {
        let now_ns = now_ns.min(CLOCK_NS_MAX);
        let Some(retention_ns) = self.retention_ns() else {
            return self.decision(now_ns, now_ns, Self::unused(now_ns));
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
            let (stamp_ns, mut usages) = self.usages(&view, now_ns);
            if !self.has_room(usages) {
                if view.is_current() {
                    return self.decision(now_ns, stamp_ns, usages);
                }
            } else if view.overwritten_ns().is_some_and(|overwritten_ns| {
                stamp_ns.saturating_sub(overwritten_ns) < retention_ns
            }) {
                // It still counts: the key needs more room.
                view.seal();
            } else if view.append(stamp_ns) {
                let [in_second, in_minute] = &mut usages;
                in_second.count += 1;
                in_minute.count += 1;
                view.leave_counted(in_second.count, in_minute.count);
                let decision = self.decision(now_ns, stamp_ns, usages);
                return Decision { is_admitted: true, ..decision };
            }
        }
    }

    /// What [`KeyLimiter::decide`] would find, without counting anything: `is_admitted` tells
    /// whether a request would be, and what remains is what remains before it.
    pub fn peek(&self, now_ns: u64) -> Decision {
        let now_ns = now_ns.min(CLOCK_NS_MAX);
        loop {
            let loaded = self.log.load();
            let Some(ring) = loaded.as_ref() else {
                let stamp_ns = now_ns.max(self.floor_ns());
                return self.decision(now_ns, stamp_ns, Self::unused(stamp_ns));
            };
            // A log that is sealed tells what its successor will.
            let view = View::of(ring);
            let (stamp_ns, usages) = self.usages(&view, now_ns);
            if view.is_current() {
                return self.decision(now_ns, stamp_ns, usages);
            }
        }
    }

    /// Gives back all memory if no stamp counts any more at this time, which changes nothing for
    /// the key. To be called now and then for every key.
    pub fn release(&self, now_ns: u64) {
        let now_ns = now_ns.min(CLOCK_NS_MAX);
        let loaded = self.log.load();
        let (Some(ring), Some(retention_ns)) = (loaded.as_ref(), self.retention_ns()) else {
            return;
        };
        let view = View::of(ring);
        let counts_no_more = |newest_ns| newest_ns + retention_ns <= now_ns;
        if !view.is_sealed() && view.newest_ns().is_none_or(counts_no_more) && view.seal() {
            self.succeed(&loaded, &View::of(ring), now_ns, retention_ns);
        }
    }

    /// Whether forgetting everything would change nothing: no window holds a stamp any more.
    pub fn is_idle(&self, now_ns: u64) -> bool {
        let decision = self.peek(now_ns);
        [decision.per_second, decision.per_minute]
            .into_iter()
            .all(|allowance| allowance.remaining == allowance.limit)
    }

    /// Puts a log with the stamps that still count in the place of one that is sealed, as `sealed`
    /// shows it, or none where none does. Of several threads that try, one succeeds.
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

    /// For how long a stamp counts: the length of the longest window that has a limit.
    fn retention_ns(&self) -> Option<u64> {
        let [second, minute] = self.limits;
        let of_second = second.get().map(|_| SECOND_NS);
        minute.get().map(|_| MINUTE_NS).or(of_second)
    }

    fn floor_ns(&self) -> u64 {
        self.floor_ns.load(Ordering::Acquire)
    }

    fn windows(&self) -> [Window; 2] {
        let [second, minute] = self.limits;
        [
            Window { limit: second, length_ns: SECOND_NS },
            Window { limit: minute, length_ns: MINUTE_NS },
        ]
    }

    fn unused(now_ns: u64) -> [Usage; 2] {
        [Usage { count: 0, oldest_ns: now_ns }; 2]
    }

    fn has_room(&self, usages: [Usage; 2]) -> bool {
        let ([second, minute], [in_second, in_minute]) = (self.limits, usages);
        in_second.count < second.shown() && in_minute.count < minute.shown()
    }

    /// The time that a decision is made for, and what the windows that end then hold.
    fn usages(&self, view: &View<'_>, now_ns: u64) -> (u64, [Usage; 2]) {
        let stamp_ns = now_ns.max(self.floor_ns()).max(view.newest_ns().unwrap_or(0));
        let [second, minute] = self.windows();
        let (in_second, in_minute) = view.counted();
        let in_second = second.usage(view, stamp_ns, in_second);
        (stamp_ns, [in_second, minute.usage(view, stamp_ns, in_minute)])
    }

    /// The answer to a request that would come after these usages.
    fn decision(&self, now_ns: u64, stamp_ns: u64, usages: [Usage; 2]) -> Decision {
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
    /// The whole seconds to tell a client that was refused: waiting that long and sending one
    /// request succeeds.
    pub const fn retry_after_seconds(&self) -> u64 {
        retry_after_seconds(self.wait_ns)
    }
}

impl Window {
    /// How many of the stamps lie in the window that ends at `end_ns`, which is no earlier than any
    /// of them. There are never more than the limit, so older ones need no look.
    ///
    /// Most often the newest decision has `counted` as many, or one has left the window since;
    /// where it is neither, the search is by halves.
    #[inline]
    fn usage(self, view: &View<'_>, end_ns: u64, counted: u32) -> Usage {
        let candidates = self.limit.get().map_or(0, u64::from).min(view.len());
        // Another thread may put a later stamp under the view; the view is then not confirmed.
        let is_inside = |age: u64| end_ns.saturating_sub(view.stamp_ns(age)) < self.length_ns;
        let counted = u64::from(counted).min(candidates);
        // Ages up to `inside` are in the window, from `outside` on they are not.
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

    /// Until one more request fits. A full window has room once its oldest stamp has left it.
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
