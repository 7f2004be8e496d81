//! The newest stamps of one key: a log with a fixed number of slots, written by any number of
//! threads without a lock.
//!
//! Stamp number `n`, counted from 0, lies in slot `n % capacity`; writing it is its
//! `n / capacity`-th *lap* over that slot. `head` counts the stamps, and may lag behind the slots
//! by one:
//!
//! ```text
//!   slot (64 bits)   | 63: lap bit | 62..0: stamp in ns |     the lap bit of even laps is 1
//!
//!   append at n      compare-and-swap slot[n % capacity] from its old value, then head n -> n + 1
//! ```
//!
//! The first swap is the append. Whoever finds the slot of number `head` already written moves
//! `head` on, so that a thread that stops between the two swaps holds up nobody.
//!
//! # Why a view is consistent
//!
//! A [`View`] is taken while `head` reads `n` before and after its slot is read. Within that time
//! the slot holds lap `n / capacity` or the one before it, never a later one, which needs a larger
//! `head`: one bit tells them apart. A view is returned only for a slot not yet written.
//!
//! Stamps never fall, and the caller keeps [the rule](View::append) that a slot's next stamp is
//! larger than its last. So no slot ever holds a value twice (the first value, 0, has the lap bit
//! of an odd lap, of which the first already has a stamp above 0). When the swap from the old value
//! succeeds, or a second look finds the old value, nothing was written since the view was taken:
//! all that was read through it in between belongs to one state, with exactly `n` stamps.
//!
//! Acquire and release suffice. Whoever reads `head == n` sees stamps 0 to `n - 1`, because `head`
//! was moved by a thread that had seen, or made, the write of `n - 1`. Whoever reads a stamp above
//! `n` sees that `n` was written, because its writer did, and so fails the second look.

use super::CLOCK_NS_MAX;
use super::atomics::{AtomicU64, Ordering};

const STAMP_BITS: u32 = 63;
const STAMP_MASK: u64 = (1 << STAMP_BITS) - 1;
const _: () = assert!(CLOCK_NS_MAX <= STAMP_MASK, "every time of the clock fits a slot");

/// The log.
pub(super) struct Ring {
    /// How many stamps were appended, or one less.
    head: AtomicU64,
    slots: Box<[AtomicU64]>,
}

/// The log as it was at one moment, if [`View::is_current`] or [`View::append`] confirms it.
pub(super) struct View<'ring> {
    ring: &'ring Ring,
    /// How many stamps there are.
    count: u64,
    /// The slot of the next one, its old value, and the bit of its next lap.
    next: usize,
    next_before: u64,
    lap_bit: u64,
}

impl Ring {
    /// An empty log that keeps the newest `capacity` stamps, at least one.
    pub(super) fn new(capacity: usize) -> Self {
        assert!(capacity > 0, "a log of nothing has no slot to append to");
        Self { head: AtomicU64::new(0), slots: (0..capacity).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The log at this moment, to be confirmed.
    pub(super) fn view(&self) -> View<'_> {
        let capacity = self.slots.len() as u64;
        loop {
            let count = self.head.load(Ordering::Acquire);
            let next = usize::try_from(count % capacity)
                .expect("what is below the number of slots is an index");
            let lap_bit = (!(count / capacity) & 1) << STAMP_BITS;
            let next_before = self.slots[next].load(Ordering::Acquire);
            if next_before & !STAMP_MASK == lap_bit {
                self.advance(count);
            } else if self.head.load(Ordering::Acquire) == count {
                return View { ring: self, count, next, next_before, lap_bit };
            }
        }
    }

    /// Counts stamp number `count`, which is written. Failing means that another thread did.
    fn advance(&self, count: u64) {
        let _ = self.head.compare_exchange(count, count + 1, Ordering::AcqRel, Ordering::Acquire);
    }
}

impl View<'_> {
    /// How many stamps can be read, at most the capacity.
    pub(super) fn len(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX).min(self.ring.slots.len())
    }

    /// The stamp of the `age`-th newest append, counted from 1 up to [`View::len`].
    pub(super) fn stamp_ns(&self, age: usize) -> u64 {
        debug_assert!((1..=self.len()).contains(&age), "stamp {age} of {}", self.len());
        let index = match self.next.checked_sub(age) {
            Some(index) => index,
            None => self.next + self.ring.slots.len() - age,
        };
        self.ring.slots[index].load(Ordering::Acquire) & STAMP_MASK
    }

    /// Whether nothing was appended since the view was taken.
    pub(super) fn is_current(&self) -> bool {
        self.ring.slots[self.next].load(Ordering::Acquire) == self.next_before
    }

    /// Appends a stamp if nothing was appended since the view was taken; tells whether it did.
    ///
    /// The stamp must be no lower than the newest, and higher than the one that it overwrites.
    pub(super) fn append(&self, stamp_ns: u64) -> bool {
        let is_appended = self.claim(stamp_ns);
        if is_appended {
            self.ring.advance(self.count);
        }
        is_appended
    }

    fn claim(&self, stamp_ns: u64) -> bool {
        debug_assert!(stamp_ns <= CLOCK_NS_MAX, "{stamp_ns} needs the lap bit");
        self.ring.slots[self.next]
            .compare_exchange(
                self.next_before,
                self.lap_bit | stamp_ns,
                Ordering::AcqRel,
                Ordering::Acquire,
            )
            .is_ok()
    }
}

#[cfg(test)]
#[cfg(not(paperbourse_loom))]
mod tests {
    use super::*;

    fn stamps(ring: &Ring) -> Vec<u64> {
        let view = ring.view();
        (1..=view.len()).rev().map(|age| view.stamp_ns(age)).collect()
    }

    #[test]
    fn keeps_the_newest_stamps_lap_after_lap() {
        for capacity in 1..=4 {
            let ring = Ring::new(capacity);
            assert!(stamps(&ring).is_empty());
            for stamp_ns in 0..20 {
                assert!(ring.view().append(stamp_ns));
                let oldest = (stamp_ns + 1).saturating_sub(capacity as u64);
                let expected: Vec<u64> = (oldest..=stamp_ns).collect();
                assert_eq!(stamps(&ring), expected, "{capacity} slots");
            }
        }
    }

    #[test]
    fn an_old_view_neither_confirms_nor_appends_however_many_laps_went_by() {
        for capacity in 1..=3 {
            for appended_before in 0..7 {
                for appended_since in 1..10 {
                    let ring = Ring::new(capacity);
                    for stamp_ns in 0..appended_before {
                        assert!(ring.view().append(stamp_ns));
                    }
                    let old = ring.view();
                    for stamp_ns in appended_before..appended_before + appended_since {
                        assert!(old.is_current() == (stamp_ns == appended_before));
                        assert!(ring.view().append(stamp_ns));
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
    fn a_writer_that_stops_halfway_holds_up_nobody() {
        let ring = Ring::new(2);
        for stamp_ns in 0..9 {
            assert!(ring.view().claim(stamp_ns), "stamp {stamp_ns}");
        }
        assert_eq!(stamps(&ring), [7, 8]);
    }
}
