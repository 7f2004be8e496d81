//! A slab of rows addressed by slot, and a table that also finds rows by id.
//!
//! A slab grows one chunk at a time. Rows never move, so no command ever waits for all of them to
//! be copied, and at most one chunk of the allocated memory has never been used. A chunk is freed
//! when its last row is removed.

use std::collections::HashMap;
use std::num::NonZeroU32;

use foldhash::fast::RandomState;

use crate::engine::state::heap::{map_bytes, vec_bytes};

/// The number of rows in a chunk, as a power of two.
const CHUNK_BITS: u32 = 6;
const CHUNK_ROWS: usize = 1 << CHUNK_BITS;

/// Rows by slot. The slots of removed rows are reused.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Slab<T> {
    chunks: Vec<Chunk<T>>,
    /// The indexes of chunks with a free slot, without duplicates.
    roomy: Vec<u32>,
    len: usize,
}

/// The rows of consecutive slots.
#[derive(Clone, Debug)]
struct Chunk<T> {
    /// Grows up to [`CHUNK_ROWS`]. Has no capacity while the chunk is empty.
    rows: Vec<Option<T>>,
    /// One bit per slot, set if its row was removed.
    removed: u64,
}

const _: () = assert!(CHUNK_ROWS == u64::BITS as usize);

impl<T> Chunk<T> {
    const fn has_room(&self) -> bool {
        self.removed != 0 || self.rows.len() < CHUNK_ROWS
    }

    const fn len(&self) -> usize {
        self.rows.len() - self.removed.count_ones() as usize
    }

    /// Adds a row and returns its offset. The chunk must have a free slot.
    fn insert(&mut self, row: T) -> usize {
        if self.removed == 0 {
            if self.rows.is_empty() {
                // Reserve the whole chunk at once, so that its rows never move.
                self.rows.reserve_exact(CHUNK_ROWS);
            }
            self.rows.push(Some(row));
            return self.rows.len() - 1;
        }
        let offset = self.removed.trailing_zeros() as usize;
        self.removed &= self.removed - 1;
        self.rows[offset] = Some(row);
        offset
    }

    fn remove(&mut self, offset: usize) -> T {
        let row = self.rows[offset].take().expect("a slot with a row");
        self.removed |= 1 << offset;
        if self.len() == 0 {
            *self = Self::new();
        }
        row
    }

    const fn new() -> Self {
        Self { rows: Vec::new(), removed: 0 }
    }
}

impl<T> Slab<T> {
    pub(in crate::engine) const fn new() -> Self {
        Self { chunks: Vec::new(), roomy: Vec::new(), len: 0 }
    }

    pub(in crate::engine) const fn len(&self) -> usize {
        self.len
    }

    /// Adds a row and returns its slot. Slots are consecutive as long as no row is removed.
    pub(in crate::engine) fn insert(&mut self, row: T) -> u32 {
        self.len += 1;
        let chunk_index = if let Some(&index) = self.roomy.last() {
            index as usize
        } else {
            self.chunks.push(Chunk::new());
            let index = self.chunks.len() - 1;
            self.roomy.push(to_u32(index));
            index
        };
        let chunk = &mut self.chunks[chunk_index];
        let slot = chunk_index * CHUNK_ROWS + chunk.insert(row);
        // The chunk is the last one in `roomy`: it was either taken from there or pushed there
        // above.
        if !chunk.has_room() {
            self.roomy.pop();
        }
        to_u32(slot)
    }

    pub(in crate::engine) fn remove(&mut self, slot: u32) -> T {
        let chunk = &mut self.chunks[chunk(slot)];
        if !chunk.has_room() {
            self.roomy.push(slot >> CHUNK_BITS);
        }
        self.len -= 1;
        chunk.remove(offset(slot))
    }

    /// Returns the number of slots, including free ones.
    pub(in crate::engine) fn slot_count(&self) -> u32 {
        to_u32(self.chunks.len() * CHUNK_ROWS)
    }

    /// Iterates over the rows in the slots `start..end`.
    pub(in crate::engine) fn between(&self, start: u32, end: u32) -> impl Iterator<Item = &T> {
        let slots = start..end.min(self.slot_count());
        slots.filter_map(|slot| self.chunks[chunk(slot)].rows.get(offset(slot))?.as_ref())
    }

    /// Returns the memory of the rows in bytes, without the heap memory they own.
    pub(in crate::engine) fn bytes(&self) -> usize {
        let chunks: usize = self.chunks.iter().map(|chunk| vec_bytes(&chunk.rows)).sum();
        chunks + vec_bytes(&self.chunks) + vec_bytes(&self.roomy)
    }

    /// Iterates over all rows with their slots, in slot order.
    pub(in crate::engine) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let chunks = (0..).step_by(CHUNK_ROWS).zip(&self.chunks);
        let slots = chunks.flat_map(|(first, chunk)| (first..).zip(&chunk.rows));
        slots.filter_map(|(slot, row)| Some((slot, row.as_ref()?)))
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, slot: u32) -> &T {
        self.chunks[chunk(slot)].rows[offset(slot)].as_ref().expect("a slot with a row")
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut T {
        self.chunks[chunk(slot)].rows[offset(slot)].as_mut().expect("a slot with a row")
    }
}

const fn chunk(slot: u32) -> usize {
    (slot >> CHUNK_BITS) as usize
}

const fn offset(slot: u32) -> usize {
    slot as usize % CHUNK_ROWS
}

fn to_u32(slot: usize) -> u32 {
    u32::try_from(slot).expect("fewer rows of a kind in a shard than a u32 counts")
}

/// A row with an id.
pub(in crate::engine) trait Row {
    type Id: Copy + Eq;

    fn id(&self) -> Self::Id;

    /// Returns the counter in an id. Counters are unique within a table.
    fn counter(id: Self::Id) -> u64;
}

/// Rows by slot and by id.
///
/// Ids are assigned in sequence. A page holds the slots of consecutive ids, so a new row usually
/// finds its page in cache, and the index has far fewer entries than there are rows. A page is
/// freed when its last row is removed.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Table<T> {
    rows: Slab<T>,
    pages: HashMap<u64, Box<Page>, RandomState>,
}

/// The slots of [`PAGE_ROWS`] consecutive counters.
type Page = [Option<PackedSlot>; PAGE_ROWS];

const PAGE_ROWS: usize = 64;
const _: () = assert!(size_of::<Page>() == PAGE_ROWS * size_of::<u32>());

/// A slot, stored so that an `Option` of it takes no more memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) struct PackedSlot(NonZeroU32);

impl PackedSlot {
    pub(in crate::engine) fn new(slot: u32) -> Self {
        let number = slot.checked_add(1).and_then(NonZeroU32::new);
        Self(number.expect("fewer rows of a kind in a shard than a u32 counts"))
    }

    pub(in crate::engine) const fn get(self) -> u32 {
        self.0.get() - 1
    }
}

impl<T: Row> Table<T> {
    pub(in crate::engine) fn new() -> Self {
        Self { rows: Slab::new(), pages: HashMap::default() }
    }

    pub(in crate::engine) const fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the slab of rows.
    pub(in crate::engine) const fn rows(&self) -> &Slab<T> {
        &self.rows
    }

    /// Returns the memory of the rows and their index in bytes, without the heap memory the rows
    /// own.
    pub(in crate::engine) fn bytes(&self) -> usize {
        self.rows.bytes() + self.pages.len() * size_of::<Page>() + map_bytes(&self.pages)
    }

    /// Returns the slot of the row with this id.
    pub(in crate::engine) fn slot(&self, id: T::Id) -> Option<u32> {
        let (page, at) = Self::page(id);
        let slot = self.pages.get(&page)?[at]?.get();
        // An id of another shard can have the same counter.
        (self.rows[slot].id() == id).then_some(slot)
    }

    /// Adds a row with a new counter and returns its slot.
    pub(in crate::engine) fn insert(&mut self, row: T) -> u32 {
        let (page, at) = Self::page(row.id());
        let slot = self.rows.insert(row);
        let page = self.pages.entry(page).or_insert_with(|| Box::new([None; PAGE_ROWS]));
        page[at] = Some(PackedSlot::new(slot));
        slot
    }

    pub(in crate::engine) fn remove(&mut self, slot: u32) -> T {
        let (number, at) = Self::page(self.rows[slot].id());
        let page = self.pages.get_mut(&number).expect("every row has a page");
        page[at] = None;
        if page.iter().all(Option::is_none) {
            self.pages.remove(&number);
        }
        self.rows.remove(slot)
    }

    /// Iterates over all rows, in id order.
    pub(in crate::engine) fn by_id(&self) -> impl Iterator<Item = &T> {
        let mut numbers: Vec<u64> = self.pages.keys().copied().collect();
        numbers.sort_unstable();
        let slots = numbers.into_iter().flat_map(|number| self.pages[&number].iter().flatten());
        slots.map(|slot| &self.rows[slot.get()])
    }

    fn page(id: T::Id) -> (u64, usize) {
        let counter = T::counter(id);
        (counter / PAGE_ROWS as u64, usize::from(counter.to_le_bytes()[0]) % PAGE_ROWS)
    }
}

impl<T> std::ops::Index<u32> for Table<T> {
    type Output = T;

    #[inline]
    fn index(&self, slot: u32) -> &T {
        &self.rows[slot]
    }
}

impl<T> std::ops::IndexMut<u32> for Table<T> {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut T {
        &mut self.rows[slot]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Row for u64 {
        type Id = Self;

        fn id(&self) -> u64 {
            *self
        }

        fn counter(id: u64) -> u64 {
            id / 2
        }
    }

    #[test]
    fn every_row_is_found_until_it_is_removed() {
        let mut table = Table::new();
        let slots: Vec<u32> = (0..1000_u64).map(|id| table.insert(id * 14)).collect();
        for id in (0..1000_u64).step_by(3) {
            let slot = table.slot(id * 14).unwrap();
            assert_eq!(slot, slots[usize::try_from(id).unwrap()]);
            assert_eq!(table.remove(slot), id * 14);
        }
        assert_eq!(table.len(), 666);
        for id in 0..1000 {
            let found = table.slot(id * 14);
            assert_eq!(found.map(|slot| table[slot]), (id % 3 != 0).then_some(id * 14), "{id}");
            assert_eq!(table.slot(id * 14 + 1), None, "another id with the same counter");
        }
        let again = table.insert(10);
        assert!(slots.contains(&again), "a free slot is reused");
        let ids: Vec<u64> = table.by_id().copied().collect();
        assert_eq!(ids.len(), 667);
        assert!(ids.is_sorted());
        assert_eq!(table.slot(8), None);
    }

    #[test]
    fn a_chunk_is_freed_with_its_last_row_and_used_again() {
        const ROWS: u64 = 10 * CHUNK_ROWS as u64;
        let mut slab = Slab::new();
        let rows_bytes = |slab: &Slab<u64>| -> usize {
            slab.chunks.iter().map(|chunk| vec_bytes(&chunk.rows)).sum()
        };
        let slots: Vec<u32> = (0..ROWS).map(|row| slab.insert(row)).collect();
        assert!(slots.iter().copied().eq(0..to_u32(slots.len())), "slots are consecutive");
        let full = rows_bytes(&slab);
        // The last row left in each chunk has a different offset.
        let kept = |slot: u32| slot.is_multiple_of(2 * to_u32(CHUNK_ROWS) + 7);
        for &slot in slots.iter().filter(|&&slot| !kept(slot)).rev() {
            assert_eq!(slab.remove(slot), u64::from(slot));
        }
        let left: Vec<u32> = slots.into_iter().filter(|&slot| kept(slot)).collect();
        assert!(
            slab.iter()
                .map(|(slot, &row)| (slot, row))
                .eq(left.iter().map(|&slot| (slot, u64::from(slot))))
        );
        assert_eq!(slab.between(0, u32::MAX).count(), left.len());
        assert_eq!(rows_bytes(&slab), left.len() * full / 10, "{left:?}");
        for row in left.len() as u64..ROWS {
            let slot = slab.insert(row);
            assert_eq!(slab[slot], row);
        }
        assert_eq!((slab.len() as u64, slab.chunks.len(), rows_bytes(&slab)), (ROWS, 10, full));
        assert!(slab.roomy.is_empty());
        for slot in 0..slab.slot_count() {
            slab.remove(slot);
        }
        assert_eq!((slab.len(), rows_bytes(&slab)), (0, 0));
        assert_eq!(slab.iter().next(), None);
    }

    #[test]
    fn a_page_is_freed_with_its_last_row() {
        let mut table = Table::new();
        let slots: Vec<u32> = (0..1000_u64).map(|id| table.insert(id * 2)).collect();
        assert_eq!(table.pages.len(), 16);
        let (last, others) = slots.split_last().unwrap();
        for &slot in others {
            table.remove(slot);
        }
        assert_eq!(table.pages.len(), 1);
        table.remove(*last);
        assert!(table.pages.is_empty());
    }
}
