//! The contents of a key's place: the windows that decide the key's requests until its log is
//! replaced.

use std::sync::atomic::{self, AtomicU64};

use super::usage::{Limits, MINUTE_TICKS, Moment, Usage};
use super::{CAPACITY_MIN, Decision};
use crate::limits::ring::{self, Ring, SLOTS_SPARE, STAMP_MAX, View};
use crate::limits::{CLOCK_NS_MAX, LIMIT_MAX, SECOND_NS, TICK_NS};

/// How far a thread's clock may lag behind the clock of the thread that begins a log. If it lags
/// further, its requests count at the log's beginning.
const LAG_TICKS: u64 = SECOND_NS / TICK_NS;

/// Number of bits in the largest slot number.
const SLOT_BITS: u32 = 20;
const _: () = assert!(SLOTS_MAX <= 1 << SLOT_BITS, "every slot has a number");

/// Maximum number of slots that a log needs.
const SLOTS_MAX: usize = LIMIT_MAX as usize + SLOTS_SPARE;

/// The windows of one key. Decisions change the log. When the log must be replaced, a decision
/// returns windows with the new log, to be stored in the same place if it still holds the old
/// windows.
pub struct Windows {
    /// The stamps that still count; `None` while there are none.
    log: Option<Ring>,
    /// Time of stamp 1, in ticks. Without a log, the earliest time at which a new log may begin:
    /// from then on, every freed stamp is too old to count.
    since: u64,
    /// The slot where the log is expected to continue, and the slots where the last decision found
    /// the oldest stamps of the minute and of the second. A wrong hint only makes a search longer,
    /// so the model checker need not see this field. It is next to the pointer to the log, so that
    /// all slots can be fetched at once.
    hint: AtomicU64,
}

#[cfg(not(paperbourse_loom))]
const _: () = assert!(size_of::<Windows>() == 32, "the documented size of an idle key");

/// Shares the log. Used to retry storing the windows in their place.
impl Clone for Windows {
    fn clone(&self) -> Self {
        let hint = AtomicU64::new(self.hint.load(atomic::Ordering::Relaxed));
        Self { log: self.log.clone(), since: self.since, hint }
    }
}

/// The slot numbers packed into a [`Windows::hint`].
struct Hint {
    next: usize,
    tails: [usize; 2],
}

impl Windows {
    /// Creates empty windows.
    pub const fn empty() -> Self {
        Self::beginning(0)
    }

    const fn beginning(since: u64) -> Self {
        Self { log: None, since, hint: AtomicU64::new(0) }
    }

    fn of(log: Ring) -> Self {
        Self { since: log.header.since, log: Some(log), hint: AtomicU64::new(0) }
    }

    /// Whether `held`, read from a place, is these windows rather than their successors.
    pub fn are(&self, held: &Self) -> bool {
        self.since == held.since
            && match (&self.log, &held.log) {
                (Some(own), Some(held)) => Ring::ptr_eq(own, held),
                (None, None) => true,
                _ => false,
            }
    }

    /// Decides whether one request may pass, and counts it if so. Returns `Err` with the windows
    /// that must replace these ones first.
    #[inline]
    pub fn decide(&self, limits: Limits, now_ns: u64) -> Result<Decision, Self> {
        let now_ns = now_ns.min(CLOCK_NS_MAX);
        let Some(retention) = limits.retention() else {
            return Ok(limits.decision_at(now_ns, now_ns / TICK_NS));
        };
        let Some(log) = &self.log else {
            return Err(self.begun(now_ns));
        };
        loop {
            let Hint { next, tails } = self.hint();
            let view = View::of(log, next);
            if view.is_sealed() {
                return Err(self.succeeded(log, &view, now_ns, limits));
            }
            let Some(moment) = moment(self.since, &view, now_ns) else {
                view.seal();
                continue;
            };
            let usages = limits.usages(&view, moment.end, tails);
            if !limits.has_room(usages) {
                if view.is_current() {
                    return Ok(limits.decision(moment, usages));
                }
            } else if let oldest @ 1.. = view.oldest_kept()
                && let age = moment.end.saturating_sub(oldest)
                && (age < retention || is_kept_for_others(log, age))
            {
                // The log would be full of stamps that count: it must grow.
                view.seal();
            } else if view.append(moment.end) {
                let usages = usages.map(|usage| Usage { count: usage.count + 1, ..usage });
                self.leave_hint(view.hint_after(), usages);
                let decision = limits.decision(moment, usages);
                return Ok(Decision { is_admitted: true, ..decision });
            }
        }
    }

    /// Decides like [`Windows::decide`], but counts nothing: `is_admitted` tells whether a request
    /// would be admitted, and the remaining counts do not include it.
    pub fn peek(&self, limits: Limits, now_ns: u64) -> Decision {
        let now_ns = now_ns.min(CLOCK_NS_MAX);
        let now = now_ns / TICK_NS;
        let unused = limits.decision_at(now_ns, now.max(self.since));
        let Some(mut log) = self.log.clone() else { return unused };
        loop {
            let since = log.header.since;
            let Hint { next, tails } = self.hint();
            let view = View::of(&log, next);
            if view.is_sealed()
                && let Some(next) = log.header.successor()
            {
                log = next;
                continue;
            }
            // A sealed log shows the same stamps as its successor.
            let Some(moment) = moment(since, &view, now_ns) else {
                if since_without(since, &view, MINUTE_TICKS) <= now {
                    return unused;
                }
                let copy = copy((since, false), &view, MINUTE_TICKS, limits);
                if view.is_current() {
                    log = copy;
                }
                continue;
            };
            let usages = limits.usages(&view, moment.end, tails);
            if view.is_current() {
                return limits.decision(moment, usages);
            }
        }
    }

    /// Frees the log if no stamp counts at this time. Returns the windows to store in its place, or
    /// `None` if these ones should stay. Later decisions are unaffected.
    ///
    /// Keys that share their windows continue with a log of the smallest size instead of none. If a
    /// shared log has been replaced, this returns windows with the newest log, so that an idle key
    /// does not keep alive every log that the other keys have used since.
    pub fn release(&self, limits: Limits, now_ns: u64) -> Option<Self> {
        let now = now_ns.min(CLOCK_NS_MAX) / TICK_NS;
        let mut newer: Option<Self> = None;
        loop {
            let windows = newer.as_ref().unwrap_or(self);
            let Some(log) = &windows.log else { return newer };
            let view = View::of(log, windows.hint().next);
            let is_shared = log.header.is_shared();
            if !view.is_sealed() {
                let since = since_without(windows.since, &view, retention(log, limits));
                let is_smallest = is_shared && log.slice.len() == CAPACITY_MIN;
                if since > now || is_smallest || !view.seal() {
                    return newer;
                }
                if !is_shared {
                    return Some(Self::beginning(since));
                }
            } else if !is_shared {
                // The thread that sealed it is about to replace it.
                return newer;
            }
            newer = Some(windows.succeeded(log, &view, now_ns, limits));
        }
    }

    /// Returns windows that share the log of these, for one more key. Returns `Err` with the
    /// windows that must replace these ones first.
    pub fn share(&self, limits: Limits) -> Result<Self, Self> {
        let Some(log) = &self.log else {
            let since = (self.since, true);
            return Err(Self::of(ring::log(since, CAPACITY_MIN, std::iter::empty())));
        };
        if log.header.is_shared() {
            return Ok(Self::of(log.clone()));
        }
        loop {
            let view = View::of(log, self.hint().next);
            if view.is_sealed() || view.seal() {
                return Err(Self::of(copy((self.since, true), &view, MINUTE_TICKS, limits)));
            }
        }
    }

    #[cfg(test)]
    #[cfg(not(paperbourse_loom))]
    pub(super) fn log(&self) -> Option<&Ring> {
        self.log.as_ref()
    }

    /// Returns the size of the log in bytes. If the log is shared, returns only these windows' part
    /// of it and of the logs that replace it, so that the parts of all keys add up to the whole.
    pub fn owned_bytes(&self) -> usize {
        let Some(log) = &self.log else { return 0 };
        let mut holders = Ring::strong_count(log);
        let mut bytes = ring::bytes(log) / holders;
        let mut successor = log.header.successor();
        while let Some(log) = successor {
            // The holders of this log include the previous log, whose part is divided among its own
            // holders. The reference held here does not count.
            let others = Ring::strong_count(&log).saturating_sub(1).max(1);
            holders = holders.saturating_mul(others);
            bytes += ring::bytes(&log) / holders;
            successor = log.header.successor();
        }
        bytes
    }

    /// Returns the windows with their first log.
    #[cold]
    fn begun(&self, now_ns: u64) -> Self {
        Self::of(empty(self.since, false, now_ns / TICK_NS))
    }

    /// Returns the windows that follow a sealed log, with the stamps that still count.
    #[cold]
    fn succeeded(&self, log: &Ring, sealed: &View<'_>, now_ns: u64, limits: Limits) -> Self {
        let retention = retention(log, limits);
        let now = now_ns / TICK_NS;
        let since = since_without(self.since, sealed, retention);
        let next = || {
            if since <= now {
                empty(since, log.header.is_shared(), now)
            } else {
                let header = &log.header;
                copy((self.since, header.is_shared()), sealed, retention, limits)
            }
        };
        let Some(place) = &log.header.next else { return Self::of(next()) };
        let mut agreed = place.load();
        if agreed.is_none() {
            place.replace(&agreed, Some(triomphe::Arc::new(next())));
            // Another thread may have been first. All keys must continue with the log it stored.
            agreed = place.load();
        }
        Self::of(Ring::clone(agreed.as_ref().expect("a place is filled once")))
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "each part has 20 bits")]
    fn hint(&self) -> Hint {
        let packed = self.hint.load(atomic::Ordering::Relaxed);
        let slot = |number: u32| (packed >> (number * SLOT_BITS)) as usize & ((1 << SLOT_BITS) - 1);
        Hint { next: slot(2), tails: [slot(0), slot(1)] }
    }

    #[inline]
    fn leave_hint(&self, next: usize, [in_second, in_minute]: [Usage; 2]) {
        let packed = (next as u64) << (2 * SLOT_BITS)
            | (in_minute.tail as u64) << SLOT_BITS
            | in_second.tail as u64;
        self.hint.store(packed, atomic::Ordering::Relaxed);
    }
}

/// Returns the moment at which a request counts in a log that began at `since`, or `None` if the
/// request is too late for a stamp in this log.
#[inline]
fn moment(since: u64, view: &View<'_>, now_ns: u64) -> Option<Moment> {
    let stamp = (now_ns / TICK_NS + 1).saturating_sub(since);
    let stamp = u32::try_from(stamp).ok().filter(|&stamp| stamp <= STAMP_MAX)?;
    Some(Moment { now_ns, since, end: stamp.max(view.newest()).max(1) })
}

/// Returns how long a stamp is kept in this log, in ticks.
fn retention(log: &Ring, limits: Limits) -> u32 {
    // The limits of other keys may differ, and an unlimited key may become limited again.
    if log.header.is_shared() { None } else { limits.retention() }.unwrap_or(MINUTE_TICKS)
}

/// Whether a stamp of this age may count for another key, although it has left all windows of this
/// one. No window needs more stamps than the largest log holds.
#[inline]
fn is_kept_for_others(log: &Ring, age: u32) -> bool {
    age < MINUTE_TICKS && log.header.is_shared() && log.slice.len() < SLOTS_MAX
}

/// Copies the stamps that are within `retention` of the newest one into a new log. The new log has
/// room for twice as many, or for as many as these limits admit if that is less.
fn copy((since, is_shared): (u64, bool), view: &View<'_>, retention: u32, limits: Limits) -> Ring {
    let newest = view.newest();
    let counts = |&stamp: &u32| stamp > 0 && newest.saturating_sub(stamp) < retention;
    let ages = 1..=view.len_max().min(SLOTS_MAX - SLOTS_SPARE);
    let mut stamps: Vec<u32> = ages.map(|age| view.stamp(age)).take_while(counts).collect();
    stamps.reverse();
    let before = stamps.first().map_or(0, |oldest| oldest - 1);
    let count = stamps.len();
    let needed = count + SLOTS_SPARE;
    let admitted = limits.stamps_max(retention) + SLOTS_SPARE;
    // Other keys may have been admitted more often than these limits allow.
    let capacity_max = if is_shared && needed > admitted { SLOTS_MAX } else { admitted };
    let capacity = (2 * count).min(capacity_max).max(needed).max(CAPACITY_MIN);
    let stamps = stamps.into_iter().map(|stamp| stamp.saturating_sub(before));
    ring::log((since + u64::from(before), is_shared), capacity, stamps)
}

/// Returns the time, in ticks, from which no stamp of a log that began at `since` counts.
fn since_without(since: u64, view: &View<'_>, retention: u32) -> u64 {
    match view.newest() {
        0 => since,
        newest => since + u64::from(newest - 1) + u64::from(retention),
    }
}

/// Returns a log without stamps that begins shortly before `now`, but not before `since`.
fn empty(since: u64, is_shared: bool, now: u64) -> Ring {
    let since = since.max(now.saturating_sub(LAG_TICKS));
    ring::log((since, is_shared), CAPACITY_MIN, std::iter::empty())
}
