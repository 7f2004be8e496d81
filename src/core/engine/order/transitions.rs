//! Open orders within the state: how they open, change and close.

use crate::engine::contradiction::{Flaw, NOT_KEPT};
use crate::engine::order::life::Life;
use crate::engine::order::open::{BookSide, Priority};
use crate::engine::order::receipt::Order;
use crate::engine::state::State;
use crate::ids::{OrderId, Timestamp};
use crate::money::Price;

impl State {
    /// The best limit of the shard's orders on one side of a book.
    pub fn best_limit(&self, on: BookSide) -> Option<Price> {
        self.open.best(on)
    }

    /// The sides of books on which the shard's orders rest.
    pub fn open_sides(&self) -> impl Iterator<Item = BookSide> + '_ {
        self.open.sides()
    }

    /// When the shard has something to do next: an order expires, or an account falls silent.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        [self.open.next_expiry(), self.silences.next()].into_iter().flatten().min()
    }

    /// The number of open orders.
    pub fn open_order_count(&self) -> usize {
        self.open.len() + self.holds.len()
    }

    /// Whether the order is open.
    pub fn is_open(&self, order: OrderId) -> bool {
        self.open_slot(order).is_ok()
    }

    /// The side of the book on which an order rests or rested.
    pub fn side_of(&self, order: OrderId) -> Option<BookSide> {
        self.orders.get(order).map(Order::on)
    }

    /// The slot of an open order.
    pub(in crate::engine) fn open_slot(&self, id: OrderId) -> Result<u32, Flaw> {
        let slot = self.orders.slot(id).ok_or(Flaw::order(id, NOT_KEPT))?;
        match self.orders.life(slot) {
            Some(life) if life.is_open() => Ok(slot),
            _ => Err(Flaw::order(id, "is not open")),
        }
    }

    /// The slot of an order that rests: it is open and not held.
    pub(in crate::engine) fn resting_slot(&self, id: OrderId) -> Result<u32, Flaw> {
        match self.holds.get(id) {
            Some(_) => Err(Flaw::order(id, "is held")),
            None => self.open_slot(id),
        }
    }

    /// The place of the order in this slot among the open ones.
    pub(in crate::engine) fn priority_of(&self, slot: u32) -> Priority {
        let order = &self.orders[slot];
        let limit = self.orders.life(slot).map_or(Price::ZERO, |life| life.limit());
        Priority::new(order.on(), limit, order.id())
    }

    /// Changes the life of an order, which must have one, and returns it. After an error the state
    /// is undefined.
    pub(in crate::engine) fn change_life(
        &mut self,
        slot: u32,
        change: impl FnOnce(&mut Life) -> Result<(), &'static str>,
    ) -> Result<Life, &'static str> {
        let id = self.orders[slot].id();
        let mut life = self.orders.life(slot).expect("an open order has a life");
        self.hash -= life.term(id);
        change(&mut life)?;
        self.hash += life.term(id);
        self.orders.set_life(slot, &life);
        Ok(life)
    }

    /// Notes that the record at this position changed an order, and returns the slot of its
    /// account.
    pub(in crate::engine) fn touch_order(&mut self, slot: u32, position_in_log: u64) -> u32 {
        self.orders.touch(slot, position_in_log);
        let account = self.account_slot(self.orders[slot].account());
        let account = account.expect("every order has an account");
        self.accounts[account].position_in_log = position_in_log;
        account
    }

    /// Adds an open order to the indexes and reserves what it holds back. Fails if the account does
    /// not have that.
    pub(in crate::engine) fn open_order(
        &mut self,
        account: u32,
        slot: u32,
    ) -> Result<(), &'static str> {
        let priority = self.priority_of(slot);
        let life = self.orders.life(slot).expect("an open order has a life");
        if !life.is_held {
            self.open.insert(priority, slot, &life);
        }
        let reserve = self.reserve_of(slot);
        let account = &mut self.accounts[account];
        let opened = account.open_order(priority.counter, slot, priority.on(), reserve);
        opened.ok_or("holds back more than there is")
    }

    /// Moves an order from the open ones to the finished ones.
    pub(in crate::engine) fn close_order(
        &mut self,
        account: u32,
        slot: u32,
        priority: Priority,
        life: &Life,
    ) {
        self.open.remove(priority, life);
        self.accounts[account].close_order(priority.counter, priority.on());
        self.accounts[account].finish_order(slot);
    }
}
