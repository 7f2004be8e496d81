//! State transitions of open orders: opening, changing and closing.

use crate::engine::contradiction::{Flaw, NOT_KEPT};
use crate::engine::order::open::{BookSide, Priority};
use crate::engine::order::order_state::OrderState;
use crate::engine::order::receipt::Order;
use crate::engine::state::State;
use crate::ids::{OrderId, Timestamp};
use crate::money::Price;

impl State {
    /// Returns the best limit price of the shard's orders on one side of a book.
    pub fn best_limit(&self, on: BookSide) -> Option<Price> {
        self.open.best(on)
    }

    /// Returns the book sides on which the shard's orders rest, without duplicates.
    pub fn open_sides(&self) -> impl Iterator<Item = BookSide> + '_ {
        self.open.sides()
    }

    /// Returns the time of the shard's next deadline, at which an order expires or an account
    /// counts as silent.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        [self.open.next_expiry(), self.silences.next()].into_iter().flatten().min()
    }

    /// Returns the number of open orders, including delayed ones.
    pub fn open_order_count(&self) -> usize {
        self.open.len() + self.delays.len()
    }

    /// Whether the order is open.
    pub fn is_open(&self, order: OrderId) -> bool {
        self.open_slot(order).is_ok()
    }

    /// Returns the side of the book on which a kept order rests or rested.
    pub fn side_of(&self, order: OrderId) -> Option<BookSide> {
        self.orders.get(order).map(Order::on)
    }

    /// Returns the slot of an open order.
    pub(in crate::engine) fn open_slot(&self, id: OrderId) -> Result<u32, Flaw> {
        let slot = self.orders.slot(id).ok_or(Flaw::order(id, NOT_KEPT))?;
        match self.orders.order_state(slot) {
            Some(order_state) if order_state.is_open() => Ok(slot),
            _ => Err(Flaw::order(id, "is not open")),
        }
    }

    /// Returns the slot of a resting order, which is open and not delayed.
    pub(in crate::engine) fn resting_slot(&self, id: OrderId) -> Result<u32, Flaw> {
        match self.delays.get(id) {
            Some(_) => Err(Flaw::order(id, "is held")),
            None => self.open_slot(id),
        }
    }

    /// Returns the priority of the order in this slot among the open orders.
    pub(in crate::engine) fn priority_of(&self, slot: u32) -> Priority {
        let order = &self.orders[slot];
        let limit =
            self.orders.order_state(slot).map_or(Price::ZERO, |order_state| order_state.limit());
        Priority::new(order.on(), limit, order.id())
    }

    /// Applies `change` to the life of an order, which must have one, and returns the changed life.
    /// After an error the state is undefined.
    pub(in crate::engine) fn change_order_state(
        &mut self,
        slot: u32,
        change: impl FnOnce(&mut OrderState) -> Result<(), &'static str>,
    ) -> Result<OrderState, &'static str> {
        let id = self.orders[slot].id();
        let mut order_state =
            self.orders.order_state(slot).expect("an open order has an order state");
        self.hash -= order_state.term(id);
        change(&mut order_state)?;
        self.hash += order_state.term(id);
        self.orders.set_order_state(slot, &order_state);
        Ok(order_state)
    }

    /// Marks an order and its account as changed by the record at this log position, and returns
    /// the slot of the account.
    pub(in crate::engine) fn touch_order(&mut self, slot: u32, position_in_log: u64) -> u32 {
        self.orders.touch(slot, position_in_log);
        let account = self.account_slot(self.orders[slot].account());
        let account = account.expect("every order has an account");
        self.accounts[account].position_in_log = position_in_log;
        account
    }

    /// Adds an open order to the indexes, and reserves its cash or shares in its account. Fails if
    /// the account cannot cover the reserve.
    pub(in crate::engine) fn open_order(
        &mut self,
        account: u32,
        slot: u32,
    ) -> Result<(), &'static str> {
        let priority = self.priority_of(slot);
        let order_state = self.orders.order_state(slot).expect("an open order has an order state");
        if !order_state.is_delayed {
            self.open.insert(priority, slot, &order_state);
        }
        let reserve = self.reserve_of(slot);
        let account = &mut self.accounts[account];
        let opened = account.open_order(priority.counter, slot, priority.on(), reserve);
        opened.ok_or("holds back more than there is")
    }

    /// Moves an order from its account's open orders to its finished orders.
    pub(in crate::engine) fn close_order(
        &mut self,
        account: u32,
        slot: u32,
        priority: Priority,
        order_state: &OrderState,
    ) {
        self.open.remove(priority, order_state);
        self.accounts[account].close_order(priority.counter, priority.on());
        self.accounts[account].finish_order(slot);
    }
}
