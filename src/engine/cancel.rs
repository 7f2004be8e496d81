//! Ending open orders: cancels, expiry, and what the venue does to its own books.

use smallvec::smallvec;

use super::account::Account;
use super::command::{CancelOrder, CancelOrders, ClearBooks, ExpireOrders};
use super::contradiction::Flaw;
use super::decide::{Command, Given, Verdict};
use super::event::{Event, Events};
use super::life::End;
use super::order::OrderReceipt;
use super::rejection::Rejection;
use super::state::State;
use super::terms::{EndReason, OrderStatus, Reserve};
use crate::ids::{OrderId, Place, Timestamp};

/// The most orders that one record ends.
pub const ENDED_PER_RECORD_MAX: usize = 64;

/// A cancelled order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cancelled {
    /// The order.
    pub receipt: OrderReceipt,
    /// What it no longer holds back.
    pub released: Reserve,
}

/// The orders that one visit cancelled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CancelledOrders {
    /// The orders, oldest first.
    pub orders: Vec<OrderId>,
    /// Whether there are more to cancel.
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
        let own = state.orders.slot(self.order);
        let own = own.filter(|&slot| state.orders[slot].account() == self.account);
        let slot = own.ok_or(Rejection::OrderNotFound)?;
        let Some(life) = state.orders.life(slot) else {
            return Err(Rejection::NotCancellable { status: OrderStatus::Filled });
        };
        if !life.is_open() {
            return Err(Rejection::NotCancellable { status: life.status() });
        }
        let released = life.reserve(state.orders[slot].side());
        let events = smallvec![ended(self.order, EndReason::User, given.now)];
        Ok(Verdict::Happens(events, (self.order, released)))
    }

    fn answer(state: &State, (order, released): (OrderId, Reserve), _: bool) -> Cancelled {
        let order = state.order(order).expect("an order that was just cancelled is kept");
        Cancelled { receipt: state.receipt(order), released }
    }

    fn depends_on(&self, state: &State) -> Place {
        state.order_place(self.order)
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
        let account = state.account(self.account).ok_or(Rejection::AccountNotFound)?;
        let mut matching = self.matching(state, account);
        let orders: Vec<OrderId> = matching.by_ref().take(ENDED_PER_RECORD_MAX).collect();
        let has_more = matching.next().is_some();
        let events: Events =
            orders.iter().map(|&order| ended(order, EndReason::User, given.now)).collect();
        let cancelled = CancelledOrders { orders, has_more };
        Ok(if events.is_empty() {
            Verdict::Already(cancelled)
        } else {
            Verdict::Happens(events, cancelled)
        })
    }

    fn answer(_: &State, cancelled: CancelledOrders, _: bool) -> CancelledOrders {
        cancelled
    }

    fn depends_on(&self, state: &State) -> Place {
        state.account_place(self.account)
    }
}

impl CancelOrders {
    /// The open orders to cancel, oldest first. An account has a bounded number of them.
    fn matching<'a>(
        &'a self,
        state: &'a State,
        account: &'a Account,
    ) -> impl Iterator<Item = OrderId> + 'a {
        let orders = account.open_orders().map(|slot| &state.orders[slot]);
        let wanted = orders.filter(|order| {
            let market = state.used_market(order.market());
            let (_, token_id) = &market.outcomes[order.outcome().index()];
            self.market_id.as_deref().is_none_or(|id| *id == *market.condition_id)
                && self.token_id.as_deref().is_none_or(|id| *id == **token_id)
        });
        wanted.map(super::order::Order::id)
    }
}

impl Command for ExpireOrders {
    /// Whether there are more to expire.
    type Subject = bool;
    type Answer = bool;

    fn decide(&self, state: &State, given: Given<'_, '_>) -> Result<Verdict<bool>, Rejection> {
        let mut due = state.open.due(given.now);
        let events: Events = due
            .by_ref()
            .take(ENDED_PER_RECORD_MAX)
            .filter_map(|counter| OrderId::new(state.shard, counter))
            .map(|order| ended(order, EndReason::GtdExpired, given.now))
            .collect();
        let has_more = due.next().is_some();
        Ok(if events.is_empty() {
            Verdict::Already(false)
        } else {
            Verdict::Happens(events, has_more)
        })
    }

    fn answer(_: &State, has_more: bool, _: bool) -> bool {
        has_more
    }

    fn depends_on(&self, _: &State) -> Place {
        Place::START
    }
}

impl Command for ClearBooks {
    /// Whether there are more to end.
    type Subject = bool;
    type Answer = bool;

    fn decide(&self, state: &State, given: Given<'_, '_>) -> Result<Verdict<bool>, Rejection> {
        let Some(&market) = state.market_of.get(&self.market_id) else {
            return Ok(Verdict::Already(false));
        };
        let orders = state.open.of_market(market).map(|slot| &state.orders[slot]);
        let mut older = orders.filter(|order| order.placed_at() < self.at);
        let events: Events = older
            .by_ref()
            .take(ENDED_PER_RECORD_MAX)
            .map(|order| ended(order.id(), EndReason::GameStart, given.now))
            .collect();
        let has_more = older.next().is_some();
        Ok(if events.is_empty() {
            Verdict::Already(false)
        } else {
            Verdict::Happens(events, has_more)
        })
    }

    fn answer(_: &State, has_more: bool, _: bool) -> bool {
        has_more
    }

    fn depends_on(&self, _: &State) -> Place {
        Place::START
    }
}

pub(super) const fn ended(order: OrderId, reason: EndReason, at: Timestamp) -> Event {
    Event::OrderEnded { order, reason, at }
}

impl State {
    /// Ends an open order and frees what it held back.
    pub(super) fn end_order(
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
        let is_possible = self.orders.life(slot).is_some_and(|life| match reason {
            EndReason::GtdExpired => life.is_due(at),
            EndReason::PostOnlyWouldCross => life.awaits_book && life.terms.post_only,
            EndReason::InsufficientBalance => life.awaits_book,
            EndReason::Resolved => self.settled.contains_key(&self.orders[slot].market()),
            _ => true,
        });
        if !is_possible {
            return Err(flaw("ends for a reason that it does not have"));
        }
        let (priority, side) = (self.priority_of(slot), self.orders[slot].side());
        let reserve = self.orders.life(slot).map(|life| life.reserve(side)).unwrap_or_default();
        let life = self.change_life(slot, |life| {
            life.end = Some(End { reason, at });
            life.awaits_book = false;
            Ok(())
        });
        let life = life.map_err(flaw)?;
        let account = self.touch_order(slot, position_in_log);
        self.accounts[account].release(priority.on, reserve, Reserve::default());
        self.close_order(account, slot, priority, &life);
        self.hash += self.accounts[account].count_finished().map_err(flaw)?;
        Ok(())
    }
}
