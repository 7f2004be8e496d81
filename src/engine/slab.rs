//! Rows that are called by their slot, and a table of them that finds each by its id.
//!
//! A slab grows by a chunk at a time: no row ever moves, so that no command waits for a copy of all
//! of them, and no more than a chunk of memory stands empty.

use std::hash::BuildHasher as _;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

/// Rows in a chunk, as a power of two.
const CHUNK_BITS: u32 = 6;
const CHUNK_ROWS: usize = 1 << CHUNK_BITS;

/// Rows by their slot. The slot of a row that was removed is used again.
#[derive(Clone, Debug)]
pub(super) struct Slab<T> {
    chunks: Vec<Vec<Option<T>>>,
    /// Slots whose rows were removed.
    free: Vec<u32>,
    len: usize,
}

impl<T> Slab<T> {
    pub(super) const fn new() -> Self {
        Self { chunks: Vec::new(), free: Vec::new(), len: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Puts a row somewhere and tells where.
    pub(super) fn insert(&mut self, row: T) -> u32 {
        self.len += 1;
        if let Some(slot) = self.free.pop() {
            self.chunks[chunk(slot)][offset(slot)] = Some(row);
            return slot;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK_ROWS) {
            self.chunks.push(Vec::with_capacity(CHUNK_ROWS));
        }
        let chunk_index = self.chunks.len() - 1;
        let chunk = &mut self.chunks[chunk_index];
        let slot = chunk_index * CHUNK_ROWS + chunk.len();
        chunk.push(Some(row));
        u32::try_from(slot).expect("fewer rows of a kind in a shard than a u32 counts")
    }

    pub(super) fn remove(&mut self, slot: u32) -> T {
        let row = self.chunks[chunk(slot)][offset(slot)].take().expect("a slot with a row");
        self.free.push(slot);
        self.len -= 1;
        row
    }

    /// All rows with their slots, in the order of slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..)
            .zip(self.chunks.iter().flatten())
            .filter_map(|(slot, row)| Some((slot, row.as_ref()?)))
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, slot: u32) -> &T {
        self.chunks[chunk(slot)][offset(slot)].as_ref().expect("a slot with a row")
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, slot: u32) -> &mut T {
        self.chunks[chunk(slot)][offset(slot)].as_mut().expect("a slot with a row")
    }
}

const fn chunk(slot: u32) -> usize {
    (slot >> CHUNK_BITS) as usize
}

const fn offset(slot: u32) -> usize {
    slot as usize % CHUNK_ROWS
}

/// A row that has an id of its own.
pub(super) trait Row {
    /// The number of the id.
    fn id(&self) -> u64;
}

/// Rows by their slot and by their id.
#[derive(Clone, Debug)]
pub(super) struct Table<T> {
    rows: Slab<T>,
    by_id: HashTable<u32>,
    hasher: RandomState,
}

impl<T: Row> Table<T> {
    pub(super) fn new() -> Self {
        Self { rows: Slab::new(), by_id: HashTable::new(), hasher: RandomState::default() }
    }

    pub(super) const fn len(&self) -> usize {
        self.rows.len()
    }

    /// The slot of the row with this id.
    pub(super) fn slot(&self, id: u64) -> Option<u32> {
        let hash = self.hasher.hash_one(id);
        self.by_id.find(hash, |&slot| self.rows[slot].id() == id).copied()
    }

    /// Adds a row whose id no other has, and tells its slot.
    pub(super) fn insert(&mut self, row: T) -> u32 {
        let hash = self.hasher.hash_one(row.id());
        let slot = self.rows.insert(row);
        let (rows, hasher) = (&self.rows, &self.hasher);
        self.by_id.insert_unique(hash, slot, |&slot| hasher.hash_one(rows[slot].id()));
        slot
    }

    pub(super) fn remove(&mut self, slot: u32) -> T {
        let hash = self.hasher.hash_one(self.rows[slot].id());
        match self.by_id.find_entry(hash, |&other| other == slot) {
            Ok(entry) => entry.remove(),
            Err(_) => unreachable!("every row is found by its id"),
        };
        self.rows.remove(slot)
    }

    /// All rows, by id.
    pub(super) fn by_id(&self) -> impl Iterator<Item = &T> {
        let mut slots: Vec<u32> = self.rows.iter().map(|(slot, _)| slot).collect();
        slots.sort_unstable_by_key(|&slot| self.rows[slot].id());
        slots.into_iter().map(|slot| &self.rows[slot])
    }
}

impl<T> std::ops::Index<u32> for Table<T> {
    type Output = T;

    fn index(&self, slot: u32) -> &T {
        &self.rows[slot]
    }
}

impl<T> std::ops::IndexMut<u32> for Table<T> {
    fn index_mut(&mut self, slot: u32) -> &mut T {
        &mut self.rows[slot]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Row for u64 {
        fn id(&self) -> u64 {
            *self
        }
    }

    #[test]
    fn every_row_is_found_until_it_is_removed() {
        let mut table = Table::new();
        let slots: Vec<u32> = (0..1000_u64).map(|id| table.insert(id * 7)).collect();
        for id in (0..1000_u64).step_by(3) {
            let slot = table.slot(id * 7).unwrap();
            assert_eq!(slot, slots[usize::try_from(id).unwrap()]);
            assert_eq!(table.remove(slot), id * 7);
        }
        assert_eq!(table.len(), 666);
        for id in 0..1000 {
            let found = table.slot(id * 7);
            assert_eq!(found.map(|slot| table[slot]), (id % 3 != 0).then_some(id * 7), "{id}");
        }
        let again = table.insert(5);
        assert!(slots.contains(&again), "a free slot is used again");
        let ids: Vec<u64> = table.by_id().copied().collect();
        assert_eq!(ids.len(), 667);
        assert!(ids.is_sorted());
        assert_eq!(table.slot(8), None);
    }
}
