//! The ring buffer between the threads that reserve LSNs and the writer that takes the records.
//!
//! A reservation is first promised the bytes that its record may need on disk, with one
//! compare-and-swap, and then takes the next position with one atomic addition. The position
//! selects a slot, which belongs to the reserving thread until the thread has filled it, and to the
//! drain from then on. So the slot's mutex is never contended: it hands over the buffer without
//! unsafe code.
//!
//! The bytes are a worst case (each record alone in its block), checked against both the ring's
//! capacity and the preallocated disk space. The writer returns the bytes that the records turned
//! out not to need. Each record is promised at least its slot's share of the capacity, so a thread
//! that has a promise always finds a free slot.
//!
//! The ring does not interpret records, and has no part in where or when they are written.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Refused;
use super::primitives::{AtomicBool, AtomicU64, Mutex};

/// A slot keeps its buffer for the next record unless the buffer has outgrown this.
const SLOT_KEPT_BYTES_MAX: usize = 1024;

/// A multi-producer, single-consumer ring of records.
pub(super) struct Ring {
    slots: Box<[Slot]>,
    bytes_max: u64,
    /// Minimum promise for a record, in bytes.
    slot_bytes: u64,
    entrance: Entrance,
    exit: Exit,
}

/// Written by reserving threads.
#[repr(align(128))]
struct Entrance {
    /// The position of the next reservation.
    next: AtomicU64,
    /// Total bytes promised so far.
    promised: AtomicU64,
}

/// Written by the drain and its owner.
#[repr(align(128))]
struct Exit {
    /// The newest position taken: all slots up to it are free.
    taken: AtomicU64,
    /// The part of `promised` that belonged to taken records.
    released: AtomicU64,
    /// Upper limit of `promised`: the disk space preallocated so far.
    space: AtomicU64,
    /// Whether the disk was full when a segment was last preallocated.
    is_disk_full: AtomicBool,
    /// Total capacity of the buffers that the slots keep, in bytes.
    kept_bytes: AtomicUsize,
}

/// Each slot has its own cache line, since different threads fill adjacent slots.
#[repr(align(64))]
struct Slot {
    /// The position of the newest record in this slot.
    filled: AtomicU64,
    content: Mutex<Content>,
}

#[derive(Default)]
struct Content {
    bytes: Vec<u8>,
    promised: u64,
    /// Capacity of the buffer as counted in the drain's `kept_bytes`.
    kept_bytes: usize,
}

/// The right and obligation to fill one slot.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) position: u64,
    promised: u64,
}

impl Claim {
    /// Returns a claim to a position without a slot, for a journal that keeps no records.
    pub(super) const fn of_nothing(position: u64) -> Self {
        Self { position, promised: 0 }
    }
}

/// The consumer's end of the ring. Takes records in the order of their positions.
pub(super) struct Drain {
    ring: Arc<Ring>,
    next: u64,
    /// Total capacity of the buffers that the slots keep, in bytes.
    kept_bytes: usize,
}

/// The result of one [`Drain::take`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Taken {
    pub(super) count: usize,
    /// Total bytes promised to the records.
    pub(super) promised: u64,
    pub(super) last_position: u64,
    /// Whether taking stopped because the caller did not accept a filled record, rather than
    /// because none was left.
    pub(super) is_cut: bool,
}

impl Ring {
    /// Creates a ring with at least `slot_count` slots and room for `bytes_max` promised bytes,
    /// whose first position follows `last_position`. It starts without any disk space.
    pub(super) fn new(slot_count: usize, bytes_max: u64, last_position: u64) -> (Arc<Self>, Drain) {
        let slots: Box<[Slot]> = (0..slot_count.next_power_of_two())
            .map(|_| Slot { filled: AtomicU64::new(0), content: Mutex::new(Content::default()) })
            .collect();
        let slot_bytes = bytes_max.div_ceil(slots.len() as u64);
        let ring = Arc::new(Self {
            slots,
            bytes_max,
            slot_bytes,
            entrance: Entrance {
                next: AtomicU64::new(last_position + 1),
                promised: AtomicU64::new(0),
            },
            exit: Exit {
                taken: AtomicU64::new(last_position),
                released: AtomicU64::new(0),
                space: AtomicU64::new(0),
                is_disk_full: AtomicBool::new(false),
                kept_bytes: AtomicUsize::new(0),
            },
        });
        let drain = Drain { ring: ring.clone(), next: last_position + 1, kept_bytes: 0 };
        (ring, drain)
    }

    /// Returns the memory of the slots and of the buffers that they keep, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.slots) + self.exit.kept_bytes.load(Ordering::Relaxed)
    }

    /// Takes the next position, for a record that needs at most `bytes` on disk.
    pub(super) fn reserve(&self, bytes: u64) -> Result<Claim, Refused> {
        let promised = bytes.max(self.slot_bytes);
        self.promise(promised)?;
        // The slot is free: there are never more promised and unreleased records than slots. It may
        // have been another thread that saw the drain release this slot; acquire and release order
        // this addition after that thread's.
        let position = self.entrance.next.fetch_add(1, Ordering::AcqRel);
        Ok(Claim { position, promised })
    }

    /// Returns the newest reserved position; initially the `last_position` of [`Self::new`].
    pub(super) fn newest_position(&self) -> u64 {
        self.entrance.next.load(Ordering::Acquire) - 1
    }

    /// Returns the newest position that the drain has taken.
    pub(super) fn taken_position(&self) -> u64 {
        self.exit.taken.load(Ordering::Acquire)
    }

    fn promise(&self, bytes: u64) -> Result<(), Refused> {
        let mut promised = self.entrance.promised.load(Ordering::Relaxed);
        loop {
            let after = promised + bytes;
            if after > self.exit.space.load(Ordering::Acquire) {
                // Unless the disk is full, the next segment is on its way.
                return Err(if self.is_disk_full() { Refused::Full } else { Refused::Busy });
            }
            let released = self.exit.released.load(Ordering::Acquire);
            if after > released.saturating_add(self.bytes_max) {
                return Err(Refused::Busy);
            }
            match self.entrance.promised.compare_exchange_weak(
                promised,
                after,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(()),
                Err(newer) => promised = newer,
            }
        }
    }

    /// Writes the record of a reservation and passes its slot to the drain.
    pub(super) fn fill(&self, claim: &Claim, write: impl FnOnce(&mut Vec<u8>)) {
        let slot = self.slot(claim.position);
        // Unlock the slot before publishing it: the drain may lock it at once.
        {
            let mut content = slot.content.lock();
            assert!(content.bytes.is_empty(), "a slot is filled only once it is free");
            content.promised = claim.promised;
            write(&mut content.bytes);
        }
        slot.filled.store(claim.position, Ordering::Release);
    }

    /// Whether a filled record is waiting. May also be true for a record that is being taken.
    pub(super) fn has_next(&self) -> bool {
        let next = self.taken_position() + 1;
        self.slot(next).filled.load(Ordering::Acquire) >= next
    }

    /// Returns the preallocated disk space not yet promised, in bytes.
    pub(super) fn space_left(&self) -> u64 {
        let space = self.exit.space.load(Ordering::Acquire);
        space.saturating_sub(self.entrance.promised.load(Ordering::Relaxed))
    }

    /// Whether the disk was full when a segment was last preallocated.
    pub(super) fn is_disk_full(&self) -> bool {
        self.exit.is_disk_full.load(Ordering::Relaxed)
    }

    /// Records whether the disk was full when a segment was last preallocated.
    pub(super) fn set_disk_full(&self, is_full: bool) {
        self.exit.is_disk_full.store(is_full, Ordering::Relaxed);
    }

    /// Adds preallocated disk space, in bytes: a new segment, or the part that a flush did not
    /// need.
    pub(super) fn add_space(&self, bytes: u64) {
        self.exit.space.fetch_add(bytes, Ordering::Release);
    }

    fn slot(&self, position: u64) -> &Slot {
        let mask = self.slots.len() as u64 - 1;
        let index =
            usize::try_from(position & mask).expect("the index is below the number of slots");
        &self.slots[index]
    }
}

impl Drain {
    /// Whether the next record in order has been filled.
    pub(super) fn has_next(&self) -> bool {
        self.ring.slot(self.next).filled.load(Ordering::Acquire) == self.next
    }

    /// Passes the filled records to `accept`, in order, until one is missing or not accepted, and
    /// frees the slots of the accepted ones.
    pub(super) fn take(&mut self, mut accept: impl FnMut(&[u8]) -> bool) -> Taken {
        let mut taken = Taken::default();
        while self.has_next() {
            let mut content = self.ring.slot(self.next).content.lock();
            if !accept(&content.bytes) {
                taken.is_cut = true;
                break;
            }
            taken.count += 1;
            taken.promised += content.promised;
            taken.last_position = self.next;
            if content.bytes.capacity() > SLOT_KEPT_BYTES_MAX {
                content.bytes = Vec::new();
            } else {
                content.bytes.clear();
            }
            self.kept_bytes += content.bytes.capacity();
            self.kept_bytes -= content.kept_bytes;
            content.kept_bytes = content.bytes.capacity();
            self.next += 1;
        }
        if taken.count > 0 {
            // Release: we are done with these slots before another thread reserves them.
            self.ring.exit.taken.store(taken.last_position, Ordering::Release);
            let released = self.ring.exit.released.fetch_add(taken.promised, Ordering::Release);
            // Sees the promise of each record taken: its thread made it before filling the slot.
            debug_assert!(
                released + taken.promised <= self.ring.entrance.promised.load(Ordering::Relaxed),
                "only promised bytes are released"
            );
            self.ring.exit.kept_bytes.store(self.kept_bytes, Ordering::Relaxed);
        }
        taken
    }
}

#[cfg(test)]
#[cfg(not(paperbourse_loom))]
mod tests {
    use super::*;

    fn ring(slot_count: usize, bytes_max: u64) -> (Arc<Ring>, Drain) {
        let (ring, drain) = Ring::new(slot_count, bytes_max, 0);
        ring.add_space(u64::MAX / 2);
        (ring, drain)
    }

    fn drained(drain: &mut Drain) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        drain.take(|bytes| {
            records.push(bytes.to_vec());
            true
        });
        records
    }

    #[test]
    fn records_are_taken_in_the_order_of_their_positions() {
        let (ring, mut drain) = ring(4, 1000);
        let first = ring.reserve(10).unwrap();
        let second = ring.reserve(10).unwrap();
        assert_eq!((first.position, second.position), (1, 2));
        ring.fill(&second, |bytes| bytes.push(2));
        assert_eq!(drained(&mut drain), Vec::<Vec<u8>>::new(), "the first record is still missing");
        ring.fill(&first, |bytes| bytes.push(1));
        assert_eq!(drained(&mut drain), [[1], [2]]);
    }

    #[test]
    fn a_full_ring_refuses_and_changes_nothing() {
        let (ring, mut drain) = ring(2, 1000);
        let claims = [ring.reserve(10).unwrap(), ring.reserve(10).unwrap()];
        for _ in 0..200 {
            assert_eq!(ring.reserve(10).unwrap_err(), Refused::Busy);
        }
        for claim in &claims {
            ring.fill(claim, |bytes| bytes.extend(claim.position.to_le_bytes()));
        }
        assert_eq!(drained(&mut drain).len(), 2);
        assert_eq!(ring.reserve(980).unwrap().position, 3, "refusals promised nothing");
    }

    #[test]
    fn bytes_in_flight_are_bounded() {
        let (ring, mut drain) = ring(64, 100);
        let claim = ring.reserve(60).unwrap();
        assert_eq!(ring.reserve(41).unwrap_err(), Refused::Busy);
        ring.fill(&ring.reserve(40).unwrap(), |_| {});
        ring.fill(&claim, |_| {});
        let taken = drain.take(|_| true);
        assert_eq!(taken, Taken { count: 2, promised: 100, last_position: 2, is_cut: false });
        ring.reserve(100).unwrap();
    }

    #[test]
    fn nothing_is_promised_beyond_the_prepared_space() {
        let (ring, mut drain) = Ring::new(64, 1000, 0);
        assert_eq!(ring.reserve(1).unwrap_err(), Refused::Busy, "it may be on its way");
        ring.set_disk_full(true);
        assert_eq!(ring.reserve(1).unwrap_err(), Refused::Full);
        ring.add_space(1);
        assert_eq!(ring.reserve(2).unwrap_err(), Refused::Full, "a flush frees no disk");
        ring.set_disk_full(false);
        ring.add_space(99);
        ring.fill(&ring.reserve(100).unwrap(), |_| {});
        assert_eq!(drain.take(|_| true).count, 1);
        assert_eq!(ring.reserve(1).unwrap_err(), Refused::Busy, "taking a record frees no disk");
        ring.add_space(30);
        assert_eq!(ring.reserve(31).unwrap_err(), Refused::Busy);
        ring.reserve(30).unwrap();
    }

    #[test]
    fn a_large_buffer_is_not_kept_and_others_are_counted() {
        let (ring, mut drain) = ring(2, 1_000_000);
        let empty_bytes = ring.bytes();
        for (record_bytes, kept_bytes) in [
            (60_000, 0..1),
            (500, 500..SLOT_KEPT_BYTES_MAX + 1),
            (60_000, 500..SLOT_KEPT_BYTES_MAX + 1),
            (900, 900..SLOT_KEPT_BYTES_MAX + 1),
            (700, 1_600..2 * SLOT_KEPT_BYTES_MAX + 1),
            (60_000, 700..SLOT_KEPT_BYTES_MAX + 1),
        ] {
            ring.fill(&ring.reserve(10).unwrap(), |bytes| bytes.resize(record_bytes, 7));
            drain.take(|_| true);
            let kept = ring.bytes() - empty_bytes;
            assert!(kept_bytes.contains(&kept), "{kept} bytes are kept after {record_bytes}");
            let capacity = |slot: &Slot| slot.content.lock().bytes.capacity();
            assert_eq!(kept, ring.slots.iter().map(capacity).sum::<usize>());
        }
    }

    /// A take that finds no record is not marked as cut: one may be filled right afterwards.
    #[test]
    fn only_a_refused_record_marks_the_take_as_cut() {
        let (ring, mut drain) = ring(4, 1 << 20);
        let nothing = drain.take(|_| true);
        assert_eq!((nothing.count, nothing.is_cut), (0, false));
        let claim = ring.reserve(1).unwrap();
        ring.fill(&claim, |buffer| buffer.push(7));
        let refused = drain.take(|_| false);
        assert_eq!((refused.count, refused.is_cut), (0, true));
        let accepted = drain.take(|_| true);
        assert_eq!((accepted.count, accepted.is_cut), (1, false));
    }

    #[test]
    fn a_refused_record_stays_in_the_ring() {
        let (ring, mut drain) = ring(4, 1000);
        for _ in 0..2 {
            let claim = ring.reserve(1).unwrap();
            ring.fill(&claim, |bytes| bytes.extend(claim.position.to_le_bytes()));
        }
        let taken = drain.take(|bytes| bytes[0] == 1);
        assert_eq!((taken.count, taken.last_position), (1, 1));
        assert!(drain.has_next());
        assert_eq!(drained(&mut drain), [2_u64.to_le_bytes()]);
    }
}

#[cfg(all(test, paperbourse_loom))]
mod model {
    use super::*;

    /// Takes an LSN and fills its record with two bytes; `None` if the ring refuses.
    fn fill(ring: &Ring, byte: u8) -> Option<(u64, [u8; 2])> {
        let claim = ring.reserve(10).ok()?;
        ring.fill(&claim, |bytes| bytes.extend([byte, byte + 1]));
        Some((claim.position, [byte, byte + 1]))
    }

    /// Checks that no position is reserved twice, and that records are taken whole, unchanged and
    /// in order, while two threads reserve and fill and a third takes. With `is_begun`, one record
    /// is filled beforehand.
    fn check(slot_count: usize, is_begun: bool, preemptions_max: usize) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions_max);
        builder.check(move || {
            let (ring, mut drain) = Ring::new(slot_count, 100, 0);
            ring.add_space(200);
            let begun = is_begun.then(|| fill(&ring, 1).expect("the ring is empty"));
            let producers: Vec<_> = [10, 20]
                .into_iter()
                .map(|byte| {
                    let ring = ring.clone();
                    loom::thread::spawn(move || fill(&ring, byte))
                })
                .collect();
            let mut taken = Vec::new();
            let mut position = 0;
            let mut look = |drain: &mut Drain| {
                drain.take(|bytes| {
                    position += 1;
                    taken.push((position, [bytes[0], bytes[1]]));
                    assert_eq!(bytes.len(), 2);
                    true
                });
            };
            look(&mut drain);
            let others = producers.into_iter().flat_map(|producer| producer.join().unwrap());
            let mut filled: Vec<_> = begun.into_iter().chain(others).collect();
            look(&mut drain);
            filled.sort_unstable();
            assert_eq!(taken, filled);
        });
    }

    /// Holds even when both threads use the same slot.
    #[test]
    fn each_record_is_taken_once_and_whole() {
        check(1, false, 2);
    }

    /// A thread with a promise may take its position late, after others have reused slots.
    #[test]
    fn a_slot_is_free_however_late_its_position_is_taken() {
        check(2, true, 3);
    }

    /// Promises never exceed the space, whichever thread is refused.
    #[test]
    fn disk_space_is_never_promised_twice() {
        loom::model(|| {
            let (ring, _taker) = Ring::new(4, 100, 0);
            ring.add_space(45);
            let other = {
                let ring = ring.clone();
                loom::thread::spawn(move || ring.reserve(30).is_ok())
            };
            let here = ring.reserve(30).is_ok();
            assert!(here ^ other.join().unwrap(), "exactly one fits");
        });
    }
}
