//! The newest stamps of one key: a log with a fixed number of slots, written by any number of
//! threads without a lock.
//!
//! Stamp number `n`, counted from 0, lies in slot `n % capacity`; writing it is *lap* `n /
//! capacity` over that slot. `head` counts the stamps and may lag behind the slots by one:
//!
//! ```text
//!   slot (64 bits)   | 63: lap bit | 62: seal | 61..0: stamp in ns |   1 in even laps
//!
//!   append at n      compare-and-swap slot[n % capacity] from its old value, then head n -> n + 1
//!   seal at n        compare-and-swap slot[n % capacity] from its old value to that with the seal
//! ```
//!
//! The first swap is the append. A thread that finds the slot of number `head` already written
//! advances `head`, so a thread that stalls between the two swaps blocks nobody.
//!
//! # Why a view is consistent
//!
//! A [`View`] is taken only if `head` reads `n` both before and after its slot is read. Between the
//! two reads, the slot holds lap `n / capacity` or the one before it, never a later one, which
//! would need a larger `head`; one bit tells the two apart. A view is returned only for a slot not
//! yet written.
//!
//! Stamps never decrease, and the caller follows [the rule](View::append) that a slot's next stamp
//! is larger than its last. So no slot ever holds the same value twice. (The initial value, 0, has
//! the lap bit of an odd lap, and the first odd lap already has stamps above 0.) If the swap from
//! the old value succeeds, or a second look finds the old value, nothing was written since the view
//! was taken: everything read through it in between belongs to one state, with exactly `n` stamps.
//!
//! Acquire and release suffice. A thread that reads `head == n` sees stamps 0 to `n - 1`, because
//! `head` was advanced by a thread that had seen, or made, the write of `n - 1`. A thread that
//! reads a stamp above `n` sees that `n` was written, because its writer did, and so fails the
//! second look.
//!
//! # How a log ends
//!
//! A log is sealed in the slot where the next stamp would go, by the same swap that would append
//! it: if an append and a seal race, one of them fails. A sealed log never changes again, so
//! whoever finds the seal can replace the log with another one that has the same stamps. The seal
//! leaves the old lap bit and the old stamp in place, so a view reads the slot like any other that
//! is not yet written.

use triomphe::ThinArc;

use super::CLOCK_NS_MAX;
use super::atomics::{AtomicU64, Ordering};

const LAP_BIT: u64 = 1 << 63;
const SEAL_BIT: u64 = 1 << 62;
const STAMP_MASK: u64 = SEAL_BIT - 1;
const _: () = assert!(CLOCK_NS_MAX <= STAMP_MASK, "every clock time fits a slot");

/// The log: its counts and its slots in one allocation, so that the newest stamps of a short log
/// share a cache line with the counts. The number of slots is a power of two.
pub(super) type Ring = ThinArc<Counts, AtomicU64>;

pub(super) struct Counts {
    /// How many stamps were appended, or one less.
    head: AtomicU64,
    /// What the last decision counted in the second and in the minute: a hint where the next search
    /// starts. Correctness does not depend on it, so the model checker need not see it.
    counted: std::sync::atomic::AtomicU64,
}

/// The log at one moment, provided that [`View::is_current`] or [`View::append`] confirms it.
pub(super) struct View<'ring> {
    counts: &'ring Counts,
    slots: &'ring [AtomicU64],
    count: u64,
    /// The next slot, its old value, and the lap bit of its next stamp.
    next: usize,
    next_before: u64,
    lap_bit: u64,
}

/// A log with these stamps, oldest first, and room for at least one more.
pub(super) fn log(capacity_min: usize, mut stamps: impl ExactSizeIterator<Item = u64>) -> Ring {
    let count = stamps.len();
    let capacity = (count + 1).max(capacity_min).next_power_of_two();
    let mut value = || stamps.next().map_or(0, |stamp_ns| LAP_BIT | stamp_ns);
    let counts = Counts {
        head: AtomicU64::new(count as u64),
        counted: std::sync::atomic::AtomicU64::new(0),
    };
    Ring::from_header_and_iter(counts, (0..capacity).map(|_| AtomicU64::new(value())))
}

impl<'ring> View<'ring> {
    /// The log at this moment, not yet confirmed.
    #[inline]
    pub(super) fn of(ring: &'ring Ring) -> Self {
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

    /// The memory of the log: the reference count, the counts, the number of slots, the slots.
    pub(super) fn bytes(&self) -> usize {
        2 * size_of::<usize>() + size_of::<Counts>() + size_of_val(self.slots)
    }

    /// How many stamps can be read, at most the capacity.
    #[inline]
    pub(super) fn len(&self) -> u64 {
        self.count.min(self.slots.len() as u64)
    }

    /// Roughly what the last decision counted in the second and in the minute.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "each half was packed from a u32")]
    pub(super) fn counted(&self) -> (u32, u32) {
        let packed = self.counts.counted.load(Ordering::Relaxed);
        (packed as u32, (packed >> u32::BITS) as u32)
    }

    /// Stores what was counted in the second and in the minute as a hint for the next decision.
    #[inline]
    pub(super) fn leave_counted(&self, in_second: u32, in_minute: u32) {
        let packed = u64::from(in_minute) << u32::BITS | u64::from(in_second);
        self.counts.counted.store(packed, Ordering::Relaxed);
    }

    /// The stamp of the `age`-th newest append, counted from 1 up to [`View::len`].
    #[inline]
    pub(super) fn stamp_ns(&self, age: u64) -> u64 {
        debug_assert!((1..=self.len()).contains(&age), "stamp {age} of {}", self.len());
        let slot = self.next.wrapping_sub(index(age)) & (self.slots.len() - 1);
        self.slots[slot].load(Ordering::Acquire) & STAMP_MASK
    }

    /// The newest stamp, if any.
    #[inline]
    pub(super) fn newest_ns(&self) -> Option<u64> {
        (self.count > 0).then(|| self.stamp_ns(1))
    }

    /// The stamp that the next append overwrites, if any.
    #[inline]
    pub(super) fn overwritten_ns(&self) -> Option<u64> {
        (self.count >= self.slots.len() as u64).then_some(self.next_before & STAMP_MASK)
    }

    /// Whether nothing was appended since the view was taken.
    #[inline]
    pub(super) fn is_current(&self) -> bool {
        self.slots[self.next].load(Ordering::Acquire) == self.next_before
    }

    /// Whether the log is sealed: it will never change again.
    #[inline]
    pub(super) fn is_sealed(&self) -> bool {
        self.next_before & SEAL_BIT != 0
    }

    /// Appends a stamp if nothing was appended since the view was taken; returns whether it did.
    ///
    /// The stamp must not be lower than the newest, and must be higher than the one it overwrites.
    #[inline]
    pub(super) fn append(&self, stamp_ns: u64) -> bool {
        let is_appended = self.claim(stamp_ns);
        if is_appended {
            self.counts.advance(self.count);
        }
        is_appended
    }

    /// Seals the log if nothing was appended since the view was taken; returns whether it did.
    pub(super) fn seal(&self) -> bool {
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

#[cfg(test)]
#[cfg(not(paperbourse_loom))]
mod tests {
    use super::*;

    fn stamps(ring: &Ring) -> Vec<u64> {
        let view = View::of(ring);
        (1..=view.len()).rev().map(|age| view.stamp_ns(age)).collect()
    }

    fn ring(capacity: usize) -> Ring {
        log(capacity, std::iter::empty())
    }

    #[test]
    fn the_newest_stamps_survive_every_lap() {
        for capacity in [1, 2, 4] {
            let ring = ring(capacity);
            assert!(stamps(&ring).is_empty());
            for stamp_ns in 0..20 {
                assert!(View::of(&ring).append(stamp_ns));
                let oldest = (stamp_ns + 1).saturating_sub(capacity as u64);
                let expected: Vec<u64> = (oldest..=stamp_ns).collect();
                assert_eq!(stamps(&ring), expected, "{capacity} slots");
            }
        }
    }

    #[test]
    fn an_outdated_view_neither_confirms_nor_appends() {
        for capacity in [1, 2, 4] {
            for appended_before in 0..7 {
                for appended_since in 1..10 {
                    let ring = ring(capacity);
                    for stamp_ns in 0..appended_before {
                        assert!(View::of(&ring).append(stamp_ns));
                    }
                    let old = View::of(&ring);
                    for stamp_ns in appended_before..appended_before + appended_since {
                        assert!(old.is_current() == (stamp_ns == appended_before));
                        assert!(View::of(&ring).append(stamp_ns));
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
    fn a_writer_that_stalls_between_swaps_blocks_nobody() {
        let ring = ring(2);
        for stamp_ns in 0..9 {
            assert!(View::of(&ring).claim(stamp_ns), "stamp {stamp_ns}");
        }
        assert_eq!(stamps(&ring), [7, 8]);
    }

    #[test]
    fn a_log_starts_with_the_given_stamps() {
        for (capacity_min, count, capacity) in
            [(1, 0, 1), (8, 0, 8), (8, 7, 8), (8, 8, 16), (1, 1, 2), (1, 3, 4), (3, 0, 4)]
        {
            let ring = log(capacity_min, (0..count).collect::<Vec<_>>().into_iter());
            assert_eq!(ring.slice.len(), capacity, "{count} stamps");
            for stamp_ns in count..40 {
                let oldest = stamp_ns.saturating_sub(capacity as u64);
                assert_eq!(stamps(&ring), (oldest..stamp_ns).collect::<Vec<_>>());
                let overwritten_ns = (stamp_ns >= capacity as u64).then_some(oldest);
                assert_eq!(View::of(&ring).overwritten_ns(), overwritten_ns);
                assert_eq!(View::of(&ring).newest_ns(), stamp_ns.checked_sub(1));
                assert!(View::of(&ring).append(stamp_ns));
            }
        }
    }

    #[test]
    fn a_sealed_log_keeps_its_stamps_and_accepts_no_more() {
        for capacity in [1, 2, 4] {
            for count in 0..10_u64 {
                let ring = ring(capacity);
                for stamp_ns in 0..count {
                    assert!(View::of(&ring).append(stamp_ns));
                }
                let (before, old) = (stamps(&ring), View::of(&ring));
                assert!(!old.is_sealed());
                assert!(View::of(&ring).seal());
                assert!(!old.append(1000), "a view from before the seal");
                assert!(!old.seal(), "it is sealed already");
                let sealed = View::of(&ring);
                assert!(sealed.is_sealed() && sealed.is_current());
                assert_eq!(stamps(&ring), before, "{count} stamps in {capacity} slots");
            }
        }
    }
}
