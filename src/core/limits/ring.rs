//! The newest stamps of one key: a log with a fixed number of slots, written by any number of
//! threads without a lock.
//!
//! A stamp is a number of ticks since the log began, counted from 1; 0 marks a slot that was never
//! written. Slots are written in turn, wrapping around. Stamps never decrease, and the caller
//! follows [the rule](View::append) that the slot after the written one is empty or holds a lower
//! stamp than the one written. So in a log with stamps, exactly one slot has a lower value than the
//! slot before it: the next one to be written.
//!
//! ```text
//!   slot (32 bits)   | 31: seal | 30..0: stamp |
//!
//!   slots            | 71 | 75 | 75 | 80 | 12 | 12 | 30 | 66 |
//!                                           ▲ the next, since 12 < 80
//!
//!   append           compare-and-swap the next slot from its old stamp to the new one
//!   seal             compare-and-swap the next slot from its old stamp to that with the seal
//! ```
//!
//! An append is that one swap. There is no separate count that could disagree with the slots. The
//! caller supplies a hint of where to start the search for the next slot.
//!
//! # Why a view is consistent
//!
//! The stamps of a slot only ever rise: its next stamp is higher than the following slot's, which
//! is no lower than its own. So no slot ever holds the same value twice.
//!
//! A [`View`] reads a slot, finds `u`, and then reads the slot after it and finds `v < u`. When `u`
//! was read, the latter was the next to be written: at any other slot the value would have been at
//! least `u` then, and since. It was not written in between, because that stamp would be no lower
//! than `u`. Now if the swap from `v` succeeds, or a second look finds `v`, then nothing was
//! written since `u` was read: everything read through the view in between belongs to one state.
//!
//! Acquire and release suffice. A thread that appends has read the newest stamp, so a thread that
//! reads a stamp sees all earlier ones. A thread that reads a stamp later than its view sees that
//! the view's next slot was written, and so fails the second look.
//!
//! # How a log ends
//!
//! A log is sealed in the slot where the next stamp would go, by the same swap that would append
//! it: if an append and a seal race, one of them fails. A sealed log never changes again, so any
//! thread that finds the seal can replace the log with another one that has the same stamps. The
//! seal leaves the old stamp in place.
//!
//! A log is sealed once it is too small or too old: stamps later than [`STAMP_MAX`] do not fit. An
//! idle key's log is never mistaken for a busy one's, whatever the time.

use triomphe::{Arc, HeaderSlice, UniqueArc};

use super::atomics::{AtomicU32, Ordering, Place};

const SEAL_BIT: u32 = 1 << 31;

/// Largest stamp that fits a slot.
pub(super) const STAMP_MAX: u32 = SEAL_BIT - 1;

/// The log: its header and its slots in one allocation. The pointer carries the number of slots, so
/// a slot can be read without reading anything else first.
pub(super) type Ring = Arc<HeaderSlice<Header, [AtomicU32]>>;

pub(super) struct Header {
    /// The time of stamp 1, in ticks; no stamp can be earlier.
    pub(super) since: u64,
    /// A place for the log that replaces this one once it is sealed; `None` unless several keys
    /// share this log. All of them must continue with the same replacement.
    pub(super) next: Option<Place<Arc<Ring>>>,
}

impl Header {
    /// Whether several keys share the log.
    pub(super) fn is_shared(&self) -> bool {
        self.next.is_some()
    }

    /// Returns the log that replaced this one, if it is shared and was replaced.
    pub(super) fn successor(&self) -> Option<Ring> {
        self.next.as_ref()?.load().as_deref().cloned()
    }
}

/// A log may hold the last reference to its successor, and so on along the chain. The logs are
/// dropped one by one, because nested drops would need a stack as deep as the chain is long.
impl Drop for Header {
    fn drop(&mut self) {
        let take = |header: &mut Self| header.next.as_mut().and_then(Place::take);
        let mut next = take(self);
        while let Some(mut ring) = next.and_then(Arc::into_unique).map(UniqueArc::into_inner) {
            // A log that is still referenced elsewhere keeps its successor.
            next = Arc::get_mut(&mut ring).and_then(|log| take(&mut log.header));
        }
    }
}

/// A view of the log at one moment, valid if [`View::is_current`] or [`View::append`] confirms it.
pub(super) struct View<'ring> {
    slots: &'ring [AtomicU32],
    newest: u32,
    /// The slot to be written next, and the value it had when the view was taken.
    next: usize,
    next_before: u32,
}

/// Number of slots that a log needs besides those for its stamps: the next one to be written and
/// the one after it.
pub(super) const SLOTS_SPARE: usize = 2;

/// Creates a log with these stamps, oldest first, and room for at least one more.
pub(super) fn log(
    (since, is_shared): (u64, bool),
    capacity: usize,
    mut stamps: impl ExactSizeIterator<Item = u32>,
) -> Ring {
    assert!(stamps.len() + SLOTS_SPARE <= capacity, "room for one more");
    let header = Header { since, next: is_shared.then(|| Place::new(None)) };
    let slot = |_| AtomicU32::new(stamps.next().unwrap_or(0));
    Arc::from_header_and_iter(header, (0..capacity).map(slot))
}

/// Returns the size of a log in bytes, including the reference count and the header.
pub(super) fn bytes(ring: &Ring) -> usize {
    size_of::<usize>() + size_of_val(&**ring)
}

impl<'ring> View<'ring> {
    /// Takes a view of the log, which is not yet confirmed. The search for the next slot begins at
    /// slot `hint`, or at the first slot if the log has no slot `hint`.
    #[inline]
    pub(super) fn of(ring: &'ring Ring, hint: usize) -> Self {
        let slots = &ring.slice;
        let mut next = if hint < slots.len() { hint } else { first() };
        let before = if next > 0 { next } else { slots.len() } - 1;
        let mut newest = slots[before].load(Ordering::Acquire) & STAMP_MAX;
        loop {
            let next_before = slots[next].load(Ordering::Acquire);
            let stamp = next_before & STAMP_MAX;
            let is_empty = next == 0 && stamp == 0;
            if stamp < newest || is_empty {
                return Self { slots, newest, next, next_before };
            }
            newest = stamp;
            next = following(next, slots);
        }
    }

    /// Returns the number of newest stamps that can be read.
    #[inline]
    pub(super) fn len_max(&self) -> usize {
        self.slots.len() - 1
    }

    /// Returns the stamp of the `age`-th newest append, counted from 1 up to [`View::len_max`], or
    /// 0 if there were fewer.
    #[inline]
    pub(super) fn stamp(&self, age: usize) -> u32 {
        debug_assert!((1..=self.len_max()).contains(&age), "stamp {age} of {}", self.slots.len());
        self.slots[self.slot(age)].load(Ordering::Acquire) & STAMP_MAX
    }

    /// Returns the slot of the stamp of this age; for age 0, the slot to be written next.
    #[inline]
    pub(super) fn slot(&self, age: usize) -> usize {
        let lap = if age <= self.next { 0 } else { self.slots.len() };
        self.next + lap - age
    }

    /// Returns the stamp in this slot, as [`View::stamp`] would, or `None` if there is no such
    /// slot. The load need not wait for any earlier load.
    #[inline]
    pub(super) fn stamp_in(&self, slot: usize) -> Option<u32> {
        let value = self.slots.get(slot)?.load(Ordering::Acquire);
        Some(value & STAMP_MAX)
    }

    /// Returns the age of the stamp in this slot; 0 for the slot to be written next.
    #[inline]
    pub(super) fn age(&self, slot: usize) -> usize {
        let lap = if slot <= self.next { 0 } else { self.slots.len() };
        self.next + lap - slot
    }

    /// Returns the newest stamp; 0 if there is none.
    #[inline]
    pub(super) fn newest(&self) -> u32 {
        self.newest
    }

    /// Returns the oldest stamp that would remain after an append; 0 if the log has room for all.
    #[inline]
    pub(super) fn oldest_kept(&self) -> u32 {
        self.stamp(self.len_max())
    }

    /// Returns the slot at which the next search should begin if this view appends.
    #[inline]
    pub(super) fn hint_after(&self) -> usize {
        following(self.next, self.slots)
    }

    /// Whether nothing was appended since the view was taken.
    #[inline]
    pub(super) fn is_current(&self) -> bool {
        self.slots[self.next].load(Ordering::Acquire) == self.next_before
    }

    /// Whether the log is sealed and will never change again.
    #[inline]
    pub(super) fn is_sealed(&self) -> bool {
        self.next_before & SEAL_BIT != 0
    }

    /// Appends a stamp if nothing was appended since the view was taken; returns whether it did.
    ///
    /// The stamp must not be lower than the newest, and must be higher than [`Self::oldest_kept`].
    #[inline]
    pub(super) fn append(&self, stamp: u32) -> bool {
        debug_assert!((1..=STAMP_MAX).contains(&stamp), "{stamp} is not a stamp");
        self.write(stamp)
    }

    /// Seals the log if nothing was appended since the view was taken; returns whether it did.
    pub(super) fn seal(&self) -> bool {
        self.write(self.next_before | SEAL_BIT)
    }

    #[inline]
    fn write(&self, value: u32) -> bool {
        assert!(!self.is_sealed(), "a sealed log is never written");
        self.slots[self.next]
            .compare_exchange(self.next_before, value, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}

/// Returns the slot at which a search without a usable hint begins. Never inlined, so that a search
/// with a hint can read its first slot before the processor has loaded the number of slots.
#[cold]
#[inline(never)]
fn first() -> usize {
    0
}

/// Returns the slot after this one, wrapping around.
#[inline]
fn following(slot: usize, slots: &[AtomicU32]) -> usize {
    if slot + 1 < slots.len() { slot + 1 } else { 0 }
}

#[cfg(test)]
#[cfg(not(paperbourse_loom))]
mod tests {
    use super::*;

    fn stamps(ring: &Ring) -> Vec<u32> {
        let view = View::of(ring, 0);
        let all = (1..=view.len_max()).rev().map(|age| view.stamp(age));
        all.filter(|&stamp| stamp > 0).collect()
    }

    fn ring(capacity: usize) -> Ring {
        log((0, false), capacity, std::iter::empty())
    }

    #[test]
    fn the_newest_stamps_survive_every_lap_wherever_the_search_begins() {
        for capacity in [2, 3, 4, 7, 8] {
            for hint in 0..capacity {
                let ring = ring(capacity);
                assert!(stamps(&ring).is_empty());
                for stamp in 1..20 {
                    assert!(View::of(&ring, hint).append(stamp));
                    let kept = u32::try_from(capacity).unwrap() - 1;
                    let oldest = (stamp + 1).saturating_sub(kept).max(1);
                    assert_eq!(stamps(&ring), (oldest..=stamp).collect::<Vec<_>>());
                }
            }
        }
    }

    #[test]
    fn equal_stamps_are_kept_apart_from_the_lap_before() {
        // A burst of equal stamps may begin anywhere, even where it wraps around.
        for start in 0..8 {
            let ring = ring(8);
            (0..start).for_each(|_| assert!(View::of(&ring, 0).append(1)));
            for lap in 2..5 {
                for count in 1..=6 {
                    let expected = View::of(&ring, 0).hint_after();
                    assert!(View::of(&ring, 3).append(lap), "{lap} {count}");
                    assert_eq!(View::of(&ring, 5).next, expected);
                    assert!(stamps(&ring).ends_with(&vec![lap; count]));
                }
            }
        }
    }

    #[test]
    fn an_outdated_view_neither_confirms_nor_appends() {
        for capacity in [2, 3, 4] {
            for appended_before in 1..7 {
                for appended_since in 1..10 {
                    let ring = ring(capacity);
                    for stamp in 1..appended_before {
                        assert!(View::of(&ring, 0).append(stamp));
                    }
                    let old = View::of(&ring, 1);
                    for stamp in appended_before..appended_before + appended_since {
                        assert!(old.is_current() == (stamp == appended_before));
                        assert!(View::of(&ring, 0).append(stamp));
                    }
                    let before = stamps(&ring);
                    assert!(!old.is_current());
                    assert!(!old.append(1000));
                    assert_eq!(stamps(&ring), before);
                }
            }
        }
    }

    #[test]
    fn a_log_starts_with_the_given_stamps() {
        for (capacity, count) in [(2, 0), (8, 0), (8, 6), (3, 1), (9, 7)] {
            let given = (1..=count).collect::<Vec<_>>();
            let ring = log((0, false), capacity, given.into_iter());
            for stamp in count + 1..40 {
                let kept = u32::try_from(capacity).unwrap() - 1;
                let oldest = stamp.saturating_sub(kept).max(1);
                assert_eq!(stamps(&ring), (oldest..stamp).collect::<Vec<_>>());
                assert_eq!(View::of(&ring, 0).newest(), stamp - 1);
                assert!(View::of(&ring, 0).append(stamp));
            }
        }
    }

    #[test]
    fn a_sealed_log_keeps_its_stamps_and_accepts_no_more() {
        for capacity in [2, 3, 4] {
            for count in 0..10_u32 {
                let ring = ring(capacity);
                (1..=count).for_each(|stamp| assert!(View::of(&ring, 0).append(stamp)));
                let (before, old) = (stamps(&ring), View::of(&ring, 0));
                assert!(!old.is_sealed());
                assert!(View::of(&ring, 0).seal());
                assert!(!old.append(1000), "a view from before the seal");
                assert!(!old.seal(), "it is sealed already");
                for hint in 0..capacity {
                    let sealed = View::of(&ring, hint);
                    assert!(sealed.is_sealed() && sealed.is_current());
                }
                assert_eq!(stamps(&ring), before, "{count} stamps in {capacity} slots");
            }
        }
    }

    /// Returns a shared log, and the last log of a chain of `followers` successors.
    fn chain(followers: usize) -> [Ring; 2] {
        let shared = || log((0, true), SLOTS_SPARE, std::iter::empty());
        let first = shared();
        let mut last = first.clone();
        for _ in 0..followers {
            let next = shared();
            let place = last.header.next.as_ref().unwrap();
            place.replace(&place.load(), Some(Arc::new(next.clone())));
            last = next;
        }
        [first, last]
    }

    #[test]
    fn a_chain_of_any_length_is_dropped_on_a_small_stack() {
        for followers in [0, 1, 100_000] {
            let [first, last] = chain(followers);
            let thread = std::thread::Builder::new().stack_size(64 << 10);
            thread.spawn(move || drop(first)).unwrap().join().unwrap();
            assert_eq!(Arc::strong_count(&last), 1);
        }
    }

    #[test]
    fn a_chain_is_dropped_up_to_a_log_that_is_still_in_use() {
        let [first, middle] = chain(10);
        let [beyond, last] = chain(10);
        let place = middle.header.next.as_ref().unwrap();
        place.replace(&place.load(), Some(Arc::new(beyond)));
        drop(first);
        assert_eq!((Arc::strong_count(&middle), Arc::strong_count(&last)), (1, 2));
        drop(middle);
        assert_eq!(Arc::strong_count(&last), 1);
    }
}
