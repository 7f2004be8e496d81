//! The kept orders of a shard, by id and by name.

use std::hash::BuildHasher as _;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use smallvec::SmallVec;

use super::idempotency::{NAMES_PER_ORDER_MAX, NameHash};
use super::order::Order;
use super::slab::Table;
use crate::ids::{AccountId, OrderId};

/// The kept orders. The names of an order are stored in its row; the name index holds only slots.
#[derive(Clone, Debug)]
pub(super) struct OrderTable {
    rows: Table<Order>,
    by_name: HashTable<NameEntry>,
    hasher: RandomState,
}

/// An entry of the name index: one name of one order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct NameEntry {
    /// The slot, shifted left by one; the lowest bit is the index of the name.
    packed: u32,
    /// Part of the name's hash, so that the index can grow without reading the orders.
    tag: Tag,
}

impl NameEntry {
    fn new(slot: u32, index: usize, tag: Tag) -> Self {
        assert!(slot < 1 << 31 && index < 2, "a slot and the index of one of two names fit a u32");
        Self { packed: slot << 1 | u32::from(index == 1), tag }
    }

    const fn slot(self) -> u32 {
        self.packed >> 1
    }

    fn name(self, rows: &Table<Order>) -> (AccountId, NameHash) {
        let order = &rows[self.slot()];
        (order.account(), order.names()[self.packed as usize & 1])
    }
}

/// 32 bits of a hash, all that the index stores of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Tag(u32);

impl Tag {
    fn of(hasher: &RandomState, name: (AccountId, NameHash)) -> Self {
        let hash = hasher.hash_one(name).to_le_bytes();
        Self(u32::from_le_bytes(*hash.first_chunk().expect("a hash has eight bytes")))
    }

    /// The hash table takes the bucket from the lowest bits and a check byte from the highest.
    fn hash(self) -> u64 {
        u64::from(self.0) << 32 | u64::from(self.0)
    }
}

impl OrderTable {
    pub(super) fn new() -> Self {
        Self { rows: Table::new(), by_name: HashTable::new(), hasher: RandomState::default() }
    }

    pub(super) const fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn slot(&self, order: OrderId) -> Option<u32> {
        self.rows.slot(order)
    }

    pub(super) fn get(&self, order: OrderId) -> Option<&Order> {
        self.slot(order).map(|slot| &self.rows[slot])
    }

    /// The order of an account with this name.
    pub(super) fn named(&self, account: AccountId, name: NameHash) -> Option<&Order> {
        let name = (account, name);
        let tag = Tag::of(&self.hasher, name);
        let matches = |entry: &NameEntry| entry.tag == tag && entry.name(&self.rows) == name;
        let entry = self.by_name.find(tag.hash(), matches)?;
        Some(&self.rows[entry.slot()])
    }

    /// Adds an order with a new id and returns its slot. `None` if another order of the account has
    /// one of its names; the table is then in an undefined state.
    pub(super) fn insert(&mut self, order: Order) -> Option<u32> {
        // Copied first, because reading the row right after moving it into the slab is slow.
        let account = order.account();
        let names: SmallVec<[NameHash; NAMES_PER_ORDER_MAX]> = SmallVec::from_slice(order.names());
        let slot = self.rows.insert(order);
        let rows = &self.rows;
        for (index, name) in names.into_iter().enumerate() {
            let name = (account, name);
            let tag = Tag::of(&self.hasher, name);
            let is_same = |other: &NameEntry| other.tag == tag && other.name(rows) == name;
            match self.by_name.entry(tag.hash(), is_same, |other| other.tag.hash()) {
                Entry::Occupied(_) => return None,
                Entry::Vacant(vacant) => vacant.insert(NameEntry::new(slot, index, tag)),
            };
        }
        Some(slot)
    }

    pub(super) fn remove(&mut self, slot: u32) -> Order {
        let account = self.rows[slot].account();
        for (index, &name) in self.rows[slot].names().iter().enumerate() {
            let tag = Tag::of(&self.hasher, (account, name));
            let entry = NameEntry::new(slot, index, tag);
            match self.by_name.find_entry(tag.hash(), |&other| other == entry) {
                Ok(entry) => entry.remove(),
                Err(_) => unreachable!("every name of a kept order is in the index"),
            };
        }
        self.rows.remove(slot)
    }
}

impl std::ops::Index<u32> for OrderTable {
    type Output = Order;

    #[inline]
    fn index(&self, slot: u32) -> &Order {
        &self.rows[slot]
    }
}
