//! The kept orders of a shard, by id and by name.

use std::hash::BuildHasher as _;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use smallvec::SmallVec;

use crate::engine::order::idempotency::{NAMES_PER_ORDER_MAX, NameHash};
use crate::engine::order::open::BookVersion;
use crate::engine::order::order_state::OrderState;
use crate::engine::order::packed_state::PackedOrderState;
use crate::engine::order::receipt::Order;
use crate::engine::state::slab::{PackedSlot, Slab, Table};
use crate::ids::{AccountId, OrderId};

/// The orders of a shard. The names of an order are stored in its row; the name index holds only
/// slots. Most orders filled when they were placed and have no life, so order states are stored
/// separately.
#[derive(Clone, Debug)]
pub(in crate::engine) struct OrderTable {
    rows: Table<Order>,
    order_states: Slab<PackedOrderState>,
    by_name: HashTable<NameEntry>,
    hasher: RandomState,
    /// The heap memory of all client order ids, in bytes.
    text_bytes: usize,
}

/// An entry of the name index: one name of one order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct NameEntry {
    /// The slot, shifted left by one; the lowest bit is the index of the name.
    packed: u32,
    /// Part of the name's hash, stored so that the index can grow without reading the orders.
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

/// The 32 bits of a name's hash that the index stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Tag(u32);

impl Tag {
    fn of(hasher: &RandomState, name: (AccountId, NameHash)) -> Self {
        let hash = hasher.hash_one(name).to_le_bytes();
        Self(u32::from_le_bytes(*hash.first_chunk().expect("a hash has eight bytes")))
    }

    /// Returns the tag as a hash. The hash table takes the bucket from the lowest bits and a check
    /// byte from the highest, so both halves hold the tag.
    fn hash(self) -> u64 {
        u64::from(self.0) << 32 | u64::from(self.0)
    }
}

impl OrderTable {
    pub(in crate::engine) fn new() -> Self {
        Self {
            rows: Table::new(),
            order_states: Slab::new(),
            by_name: HashTable::new(),
            hasher: RandomState::default(),
            text_bytes: 0,
        }
    }

    /// Returns the memory of the orders in bytes, without their order states.
    pub(in crate::engine) fn bytes(&self) -> usize {
        self.rows.bytes() + self.by_name.allocation_size() + self.text_bytes
    }

    /// Returns the memory of the order states, in bytes.
    pub(in crate::engine) fn order_state_bytes(&self) -> usize {
        self.order_states.bytes()
    }

    /// Shrinks the name index after many orders were removed.
    pub(in crate::engine) fn shrink(&mut self) {
        let needed = 2 * self.by_name.len();
        if self.by_name.capacity() > 2 * needed {
            self.by_name.shrink_to(needed, |entry| entry.tag.hash());
        }
    }

    pub(in crate::engine) const fn len(&self) -> usize {
        self.rows.len()
    }

    pub(in crate::engine) fn slot(&self, order: OrderId) -> Option<u32> {
        self.rows.slot(order)
    }

    pub(in crate::engine) fn get(&self, order: OrderId) -> Option<&Order> {
        self.slot(order).map(|slot| &self.rows[slot])
    }

    /// Reads where these names of an account belong in the index. Returns a number that depends on
    /// everything read, so that the compiler keeps the reads.
    pub(in crate::engine) fn prefetch(&self, account: AccountId, names: &[NameHash]) -> i64 {
        let is_taken = |&name: &NameHash| {
            let tag = Tag::of(&self.hasher, (account, name));
            i64::from(self.by_name.find(tag.hash(), |entry| entry.tag == tag).is_some())
        };
        names.iter().map(is_taken).sum()
    }

    /// Returns the account's order with this name.
    pub(in crate::engine) fn named(&self, account: AccountId, name: NameHash) -> Option<&Order> {
        let name = (account, name);
        let tag = Tag::of(&self.hasher, name);
        let matches = |entry: &NameEntry| entry.tag == tag && entry.name(&self.rows) == name;
        let entry = self.by_name.find(tag.hash(), matches)?;
        Some(&self.rows[entry.slot()])
    }

    /// Returns the state of the order in this slot, unless it filled completely when it was placed.
    pub(in crate::engine) fn order_state(&self, slot: u32) -> Option<OrderState> {
        self.order_state_of(&self.rows[slot])
    }

    /// Returns the life of an order of this table, unless it filled completely when it was placed.
    #[inline]
    pub(in crate::engine) fn order_state_of(&self, order: &Order) -> Option<OrderState> {
        order.state_slot.map(|at| self.order_states[at.get()].unpack())
    }

    /// Replaces the state of the order in this slot. The order must already have a life with the
    /// same price.
    pub(in crate::engine) fn set_order_state(&mut self, slot: u32, order_state: &OrderState) {
        let stored = self.packed_order_state_mut(slot);
        *stored = PackedOrderState::pack(order_state, stored.placed_on)
            .expect("the price was packed before");
    }

    /// Returns the book on which the order in this slot came to rest; `None` if it does not rest,
    /// or came to rest before this process started.
    pub(in crate::engine) fn placed_on(&self, slot: u32) -> Option<BookVersion> {
        self.rows[slot].state_slot.and_then(|at| self.order_states[at.get()].placed_on)
    }

    /// Records the book on which the order in this slot came to rest.
    pub(in crate::engine) fn note_placed(&mut self, slot: u32, book: BookVersion) {
        self.packed_order_state_mut(slot).placed_on = Some(book);
    }

    fn packed_order_state_mut(&mut self, slot: u32) -> &mut PackedOrderState {
        let at = self.rows[slot].state_slot.expect("an order that rests has an order state");
        &mut self.order_states[at.get()]
    }

    /// Adds an order that has an order state; see [`Self::insert`]. Also returns `None` if its
    /// price is out of range.
    pub(in crate::engine) fn insert_with_order_state(
        &mut self,
        mut order: Order,
        order_state: &OrderState,
    ) -> Option<u32> {
        let at = self.order_states.insert(PackedOrderState::pack(order_state, None)?);
        order.state_slot = Some(PackedSlot::new(at));
        self.insert(order)
    }

    /// Marks the order in this slot as changed by the record at this log position.
    pub(in crate::engine) fn touch(&mut self, slot: u32, position_in_log: u64) {
        self.rows[slot].touch(position_in_log);
    }

    /// Adds an order with a new id and returns its slot. `None` if another order of the account has
    /// one of its names; the table is then in an undefined state.
    pub(in crate::engine) fn insert(&mut self, order: Order) -> Option<u32> {
        // Copy the names first, because reading the row right after moving it into the slab is
        // slow.
        let account = order.account();
        let names: SmallVec<[NameHash; NAMES_PER_ORDER_MAX]> = SmallVec::from_slice(order.names());
        self.text_bytes += order.owned_bytes();
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

    /// Removes an order and returns it with its order state.
    pub(in crate::engine) fn remove(&mut self, slot: u32) -> (Order, Option<OrderState>) {
        let account = self.rows[slot].account();
        for (index, &name) in self.rows[slot].names().iter().enumerate() {
            let tag = Tag::of(&self.hasher, (account, name));
            let entry = NameEntry::new(slot, index, tag);
            match self.by_name.find_entry(tag.hash(), |&other| other == entry) {
                Ok(entry) => entry.remove(),
                Err(_) => unreachable!("every name of a kept order is in the index"),
            };
        }
        let order = self.rows.remove(slot);
        self.text_bytes -= order.owned_bytes();
        let order_state = order.state_slot.map(|at| self.order_states.remove(at.get()).unpack());
        (order, order_state)
    }
}

impl std::ops::Index<u32> for OrderTable {
    type Output = Order;

    #[inline]
    fn index(&self, slot: u32) -> &Order {
        &self.rows[slot]
    }
}
