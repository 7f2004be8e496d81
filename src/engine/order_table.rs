//! The kept orders of a shard, by id and by the names that their accounts gave them.

use std::hash::BuildHasher as _;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::idempotency::NameHash;
use super::order::Order;
use super::slab::Table;
use crate::ids::{AccountId, OrderId};

/// The kept orders. The names of an order stand in its row; the index holds only where.
#[derive(Clone, Debug)]
pub(super) struct OrderTable {
    rows: Table<Order>,
    by_name: HashTable<NameEntry>,
    hasher: RandomState,
}

/// Which name of which order: the slot, and the number of the name in its lowest bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct NameEntry(u32);

impl NameEntry {
    fn new(slot: u32, index: usize) -> Self {
        assert!(slot < 1 << 31 && index < 2, "a slot and which of two names fit a u32");
        Self(slot << 1 | u32::from(index == 1))
    }

    const fn slot(self) -> u32 {
        self.0 >> 1
    }

    fn name(self, rows: &Table<Order>) -> (AccountId, NameHash) {
        let order = &rows[self.slot()];
        (order.account(), order.names()[self.0 as usize & 1])
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
        self.rows.slot(order.get())
    }

    pub(super) fn get(&self, order: OrderId) -> Option<&Order> {
        self.slot(order).map(|slot| &self.rows[slot])
    }

    /// The order that an account calls by this name.
    pub(super) fn named(&self, account: AccountId, name: NameHash) -> Option<&Order> {
        let hash = self.hasher.hash_one((account, name));
        let entry = self.by_name.find(hash, |entry| entry.name(&self.rows) == (account, name))?;
        Some(&self.rows[entry.slot()])
    }

    /// Adds an order whose id no other has, and tells its slot. `None` when a name of it is that
    /// of another order of the account: then the table is spoilt.
    pub(super) fn insert(&mut self, order: Order) -> Option<u32> {
        let slot = self.rows.insert(order);
        let (rows, hasher) = (&self.rows, &self.hasher);
        for index in 0..rows[slot].names().len() {
            let entry = NameEntry::new(slot, index);
            let name = entry.name(rows);
            let is_same = |other: &NameEntry| other.name(rows) == name;
            let hash_of = |other: &NameEntry| hasher.hash_one(other.name(rows));
            match self.by_name.entry(hasher.hash_one(name), is_same, hash_of) {
                Entry::Occupied(_) => return None,
                Entry::Vacant(vacant) => vacant.insert(entry),
            };
        }
        Some(slot)
    }

    pub(super) fn remove(&mut self, slot: u32) -> Order {
        for index in 0..self.rows[slot].names().len() {
            let entry = NameEntry::new(slot, index);
            let hash = self.hasher.hash_one(entry.name(&self.rows));
            match self.by_name.find_entry(hash, |&other| other == entry) {
                Ok(entry) => entry.remove(),
                Err(_) => unreachable!("every order is found by its names"),
            };
        }
        self.rows.remove(slot)
    }
}

impl std::ops::Index<u32> for OrderTable {
    type Output = Order;

    fn index(&self, slot: u32) -> &Order {
        &self.rows[slot]
    }
}
