//! The windows of one key: in no trailing second or minute are more requests admitted than the
//! limit, and none is refused that could have been admitted.
//!
//! A window of length W that ends at t is half-open, (t − W, t]. An admission is stamped with the
//! later of the caller's clock and the key's newest stamp, so that stamps never fall although
//! threads read the clock in another order than they arrive in; the windows are exact about these
//! stamps. Only admissions are stamped: a refused request costs its key nothing.

use std::sync::OnceLock;

use super::ring::{Ring, View};
use super::tier::TierLimits;
use super::{CLOCK_NS_MAX, Limit, MINUTE_NS, SECOND_NS, UNLIMITED_SHOWN, retry_after_seconds};

/// The windows of one key, shared by all threads and without a lock. Stamps take 8 bytes for each
/// request of the larger limit, allocated at the first decision; nothing when both are unlimited.
pub struct KeyLimiter {
    windows: [Window; 2],
    ring: OnceLock<Ring>,
}

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
            windows: [
                Window { limit: limits.requests_per_second, length_ns: SECOND_NS },
                Window { limit: limits.requests_per_minute, length_ns: MINUTE_NS },
            ],
            ring: OnceLock::new(),
        }
    }

    /// Decides about one request, and counts it if it is admitted.
    pub fn decide(&self, now_ns: u64) -> Decision {
        let now_ns = now_ns.min(CLOCK_NS_MAX);
        let Some(capacity) = self.capacity() else {
            return self.decision(now_ns, now_ns, self.unused(now_ns));
        };
        let ring = self.ring.get_or_init(|| Ring::new(capacity));
        loop {
            let view = ring.view();
            let (stamp_ns, mut usages) = self.usages(&view, now_ns);
            if !self.has_room(usages) {
                if view.is_current() {
                    return self.decision(now_ns, stamp_ns, usages);
                }
            } else if view.append(stamp_ns) {
                for usage in &mut usages {
                    usage.count += 1;
                }
                let decision = self.decision(now_ns, stamp_ns, usages);
                return Decision { is_admitted: true, ..decision };
            }
        }
    }

    /// What [`KeyLimiter::decide`] would find, without counting anything: `is_admitted` tells
    /// whether a request would be, and what remains is what remains before it.
    pub fn peek(&self, now_ns: u64) -> Decision {
        let now_ns = now_ns.min(CLOCK_NS_MAX);
        let Some(ring) = self.ring.get() else {
            return self.decision(now_ns, now_ns, self.unused(now_ns));
        };
        loop {
            let view = ring.view();
            let (stamp_ns, usages) = self.usages(&view, now_ns);
            if view.is_current() {
                return self.decision(now_ns, stamp_ns, usages);
            }
        }
    }

    /// Whether forgetting everything would change nothing: no window holds a stamp any more.
    pub fn is_idle(&self, now_ns: u64) -> bool {
        let decision = self.peek(now_ns);
        [decision.per_second, decision.per_minute]
            .into_iter()
            .all(|allowance| allowance.remaining == allowance.limit)
    }

    /// How many stamps decide: those of the larger limit. `None` without a limit.
    fn capacity(&self) -> Option<usize> {
        self.windows.iter().filter_map(|window| window.limit.get()).max().map(count_to_usize)
    }

    fn unused(&self, now_ns: u64) -> [Usage; 2] {
        self.windows.map(|_| Usage { count: 0, oldest_ns: now_ns })
    }

    fn has_room(&self, usages: [Usage; 2]) -> bool {
        self.windows.iter().zip(usages).all(|(window, usage)| usage.count < window.limit.shown())
    }

    /// The time that a decision is made for, and what the windows that end then hold.
    fn usages(&self, view: &View<'_>, now_ns: u64) -> (u64, [Usage; 2]) {
        let newest_ns = if view.len() == 0 { 0 } else { view.stamp_ns(1) };
        let stamp_ns = now_ns.max(newest_ns);
        (stamp_ns, self.windows.map(|window| window.usage(view, stamp_ns)))
    }

    /// The answer to a request that would come after these usages.
    fn decision(&self, now_ns: u64, stamp_ns: u64, usages: [Usage; 2]) -> Decision {
        let [second, minute] = self.windows;
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
    fn usage(self, view: &View<'_>, end_ns: u64) -> Usage {
        let candidates = self.limit.get().map_or(0, count_to_usize).min(view.len());
        // Another thread may put a later stamp under the view; the view is then not confirmed.
        let is_inside = |age: usize| end_ns.saturating_sub(view.stamp_ns(age)) < self.length_ns;
        // Ages up to `inside` are in the window, from `outside` on they are not. The oldest
        // candidate comes first: under load, when it matters, it settles the question.
        let (mut inside, mut outside) = (0, candidates + 1);
        let mut age = candidates;
        while outside - inside > 1 {
            if is_inside(age) {
                inside = age;
            } else {
                outside = age;
            }
            age = inside.midpoint(outside);
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

fn count_to_usize(count: u32) -> usize {
    usize::try_from(count).expect("a limit is below a million")
}

#[cfg(test)]
#[cfg(not(paperbourse_loom))]
mod tests;
