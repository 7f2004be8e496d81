//! Ends open orders: cancellation, expiry, and the clearing of books by the venue.

use smallvec::smallvec;

use crate::engine::account::Account;
use crate::engine::command::{CancelOrder, CancelOrders, ClearBooks, ExpireOrders};
use crate::engine::contradiction::Flaw;
use crate::engine::decide::{Command, Given, Verdict};
use crate::engine::event::{Event, Events};
use crate::engine::order::order_state::End;
use crate::engine::order::receipt::{Order, OrderReceipt};
use crate::engine::order::terms::{EndReason, OrderStatus, Reserve};
use crate::engine::rejection::Rejection;
use crate::engine::state::State;
use crate::ids::{Lsn, OrderId, Timestamp, condition};

/// The maximum number of orders that one record ends.
pub const ENDED_PER_RECORD_MAX: usize = 64;

/// A cancelled order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cancelled {
    /// The order after its cancellation.
    pub receipt: OrderReceipt,
    /// The cash or shares that the cancellation released.
    pub released: Reserve,
}

/// The orders cancelled by one [`CancelOrders`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CancelledOrders {
    /// The orders, oldest first.
    pub orders: Vec<OrderId>,
    /// Whether more orders are left to cancel.
    pub has_more: bool,
}

impl Command for CancelOrder {
    type Subject = (OrderId, Reserve);
    type Answer = Cancelled;

    fn decide(
        &self,
        state: &State,
        given: Given<'_, '_>,
    ) -> Result<Verdict<(OrderId, Reserve)>, Rejection> {
        if let Some(account) = state.account(self.account) {
            account.require_writable()?;
        }
        let own = state.orders.slot(self.order);
        let own = own.filter(|&slot| state.orders[slot].account() == self.account);
        let slot = own.ok_or(Rejection::OrderNotFound)?;
        let Some(order_state) = state.orders.order_state(slot) else {
            return Err(Rejection::NotCancellable { status: OrderStatus::Filled });
        };
        if !order_state.is_open() {
            return Err(Rejection::NotCancellable { status: order_state.status() });
        }
        if order_state.is_delayed {
            return Err(Rejection::OrderIsDelayed);
        }
        let released = order_state.reserve(state.orders[slot].side());
        let events = smallvec![ended(self.order, EndReason::User, given.now)];
        Ok(Verdict::Happens(events, (self.order, released)))
    }

    fn answer(state: &State, (order, released): (OrderId, Reserve), _: bool) -> Cancelled {
        let order = state.order(order).expect("an order that was just cancelled is kept");
        Cancelled { receipt: state.receipt(order), released }
    }

    fn depends_on(&self, state: &State) -> Lsn {
        state.order_lsn(self.order)
    }

    fn refusal_depends_on(&self, state: &State, rejection: &Rejection) -> Lsn {
        match rejection {
            Rejection::AccountSuspended => state.account_lsn(self.account),
            _ => self.depends_on(state),
        }
    }
}

impl Command for CancelOrders {
    type Subject = CancelledOrders;
    type Answer = CancelledOrders;

    fn decide(
        &self,
        state: &State,
        given: Given<'_, '_>,
    ) -> Result<Verdict<CancelledOrders>, Rejection> {
        let account = state.writable_account(self.account)?;
        let mut orders = Vec::new();
        let matching = self.matching(state, account).inspect(|&order| orders.push(order));
        let (events, has_more) = end_some(matching, EndReason::User, given.now);
        orders.truncate(events.len());
        Ok(Verdict::of(events, CancelledOrders { orders, has_more }))
    }

    fn answer(_: &State, cancelled: CancelledOrders, _: bool) -> CancelledOrders {
        cancelled
    }

    fn depends_on(&self, state: &State) -> Lsn {
        state.account_lsn(self.account)
    }
}

impl CancelOrders {
    /// Returns the open orders to cancel, oldest first. Their number is bounded by the operator's
    /// limit on an account's open orders.
    fn matching<'a>(
        &'a self,
        state: &'a State,
        account: &'a Account,
    ) -> impl Iterator<Item = OrderId> + 'a {
        let after = self.after.map_or(0, OrderId::counter);
        let wanted = state.cancellable_orders_after(account, after).filter(|order| {
            let market = state.used_market(order.market());
            let token_id = market.token(order.outcome());
            self.market_id.as_deref().is_none_or(|id| condition::is_same(id, &market.condition_id))
                && self.token_id.as_deref().is_none_or(|id| *id == **token_id)
        });
        wanted.map(Order::id)
    }
}

impl Command for ExpireOrders {
    /// Whether more expired orders are left to end.
    type Subject = bool;
    type Answer = bool;

    fn decide(&self, state: &State, given: Given<'_, '_>) -> Result<Verdict<bool>, Rejection> {
        let due = state.open.due(given.now);
        let due = due.filter_map(|counter| OrderId::new(state.shard, counter));
        let (events, has_more) = end_some(due, EndReason::GtdExpired, given.now);
        Ok(Verdict::of(events, has_more))
    }

    fn answer(_: &State, has_more: bool, _: bool) -> bool {
        has_more
    }

    fn depends_on(&self, _: &State) -> Lsn {
        Lsn::START
    }
}

impl Command for ClearBooks {
    /// Whether more orders are left to end.
    type Subject = bool;
    type Answer = bool;

    fn decide(&self, state: &State, given: Given<'_, '_>) -> Result<Verdict<bool>, Rejection> {
        let Some(market) = state.market_named(&self.market_id) else {
            return Ok(Verdict::Already(false));
        };
        let orders = state.open.of_market(market).map(|slot| &state.orders[slot]);
        let older = orders.filter(|order| order.placed_at() < self.at).map(Order::id);
        let (events, has_more) = end_some(older, EndReason::GameStart, given.now);
        Ok(Verdict::of(events, has_more))
    }

    fn answer(_: &State, has_more: bool, _: bool) -> bool {
        has_more
    }

    fn depends_on(&self, _: &State) -> Lsn {
        Lsn::START
    }
}

/// Returns the events that end the first [`ENDED_PER_RECORD_MAX`] of these orders, and whether more
/// orders are left.
fn end_some(
    orders: impl Iterator<Item = OrderId>,
    reason: EndReason,
    at: Timestamp,
) -> (Events, bool) {
    end_at_most(ENDED_PER_RECORD_MAX, orders, reason, at)
}

/// Returns the events that end the first `count_max` of these orders, and whether more orders are
/// left.
pub(in crate::engine) fn end_at_most(
    count_max: usize,
    mut orders: impl Iterator<Item = OrderId>,
    reason: EndReason,
    at: Timestamp,
) -> (Events, bool) {
    let some = orders.by_ref().take(count_max);
    let events = some.map(|order| ended(order, reason, at)).collect();
    (events, orders.next().is_some())
}

pub(in crate::engine) const fn ended(order: OrderId, reason: EndReason, at: Timestamp) -> Event {
    Event::OrderEnded { order, reason, at }
}

impl State {
    /// Returns the account's open orders that are not delayed, oldest first.
    pub(in crate::engine) fn cancellable_orders<'a>(
        &'a self,
        account: &'a Account,
    ) -> impl Iterator<Item = &'a Order> + 'a {
        self.cancellable_orders_after(account, 0)
    }

    /// Returns the account's cancellable orders that are newer than the order with this counter.
    fn cancellable_orders_after<'a>(
        &'a self,
        account: &'a Account,
        counter: u64,
    ) -> impl Iterator<Item = &'a Order> + 'a {
        let orders = account.open_orders_after(counter).map(|slot| &self.orders[slot]);
        orders.filter(|order| {
            self.orders.order_state_of(order).is_some_and(|order_state| !order_state.is_delayed)
        })
    }

    /// Ends an open order and releases its reserve.
    pub(in crate::engine) fn end_order(
        &mut self,
        id: OrderId,
        reason: EndReason,
        at: Timestamp,
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        let flaw = |flaw| Flaw::order(id, flaw);
        if reason.is_at_placement() {
            return Err(flaw("ends in a way that only a new order can"));
        }
        let slot = self.open_slot(id)?;
        let is_possible = self.orders.order_state(slot).is_some_and(|order_state| match reason {
            _ if order_state.is_delayed && !reason.ends_delayed_orders() => false,
            EndReason::GtdExpired => order_state.is_due(at),
            EndReason::PostOnlyWouldCross => order_state.awaits_book && order_state.terms.post_only,
            EndReason::InsufficientBalance => order_state.awaits_book,
            EndReason::Resolved => self.is_settled(self.orders[slot].market()),
            _ => true,
        });
        if !is_possible {
            return Err(flaw("ends for a reason that it does not have"));
        }
        let priority = self.priority_of(slot);
        let account = self.touch_order(slot, position_in_log);
        self.end_delay(account, slot);
        // Zero for a delayed order, whose reserve `end_hold` has released.
        let reserve = self.reserve_of(slot);
        let order_state = self.change_order_state(slot, |order_state| {
            order_state.end = Some(End { reason, at });
            order_state.awaits_book = false;
            Ok(())
        });
        let order_state = order_state.map_err(flaw)?;
        self.accounts[account].release(priority.on(), reserve, Reserve::default());
        self.close_order(account, slot, priority, &order_state);
        self.hash += self.accounts[account].count_finished().map_err(flaw)?;
        Ok(())
    }
}
