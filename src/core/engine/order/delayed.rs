//! Delayed orders: the venue delays orders that it could match at once, and so does the shard.
//!
//! A delayed order is open, reserves cash or shares, and cannot be cancelled. Once the delay is
//! over, the order is decided like a new one, on the book at that time and under its existing id.
//! If it is rejected at that point, it is removed and its names can be used again.

use std::sync::Arc;

use smallvec::smallvec;

use crate::engine::account::extension::UsedLevels;
use crate::engine::contradiction::Flaw;
use crate::engine::decide::{Command, Given, Verdict};
use crate::engine::event::{Event, Events, OrderDelayed};
use crate::engine::fills::fill::{Fill, Placement};
use crate::engine::market::table::OpenMarket;
use crate::engine::order::delay::Delay;
use crate::engine::order::order_state::{OrderState, Progress};
use crate::engine::order::payload::PayloadFlaw;
use crate::engine::order::place::{Placed, PlacedSubject};
use crate::engine::order::placed::forget_oldest;
use crate::engine::order::receipt::Order;
use crate::engine::order::take::{Rest, Taker};
use crate::engine::order::terms::{Reserve, Terms};
use crate::engine::rejection::Rejection;
use crate::engine::state::State;
use crate::ids::{Lsn, OrderId};
use crate::money::{FeeRate, Shares, Usd};

/// Decides a delayed order. Send it once the delay is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecideDelayed {
    /// The order.
    pub order: OrderId,
    /// The condition id of the order's market.
    pub market_id: Arc<str>,
}

/// The result of deciding a delayed order.
#[derive(Clone, PartialEq, Debug)]
pub enum DelayedSubject {
    /// The order was decided, by this command or an earlier one.
    Kept(PlacedSubject),
    /// The order was rejected and removed.
    Dropped(Rejection),
}

/// A delayed order after its removal from the state.
pub(in crate::engine) struct DelayedOrder {
    pub(in crate::engine) placement: Placement,
    pub(in crate::engine) terms: Terms,
    /// The displayed levels that the account's orders on the same side of the book had taken from.
    /// The account drops these levels if this was its only order on that side.
    pub(in crate::engine) used: UsedLevels,
}

impl Command for DecideDelayed {
    type Subject = DelayedSubject;
    type Answer = Result<Placed, Rejection>;

    fn market_id(&self) -> Option<&str> {
        Some(&self.market_id)
    }

    fn decide(
        &self,
        state: &State,
        given: Given<'_, '_>,
    ) -> Result<Verdict<DelayedSubject>, Rejection> {
        let order = self.order;
        let slot = state.orders.slot(order).ok_or(Rejection::OrderNotFound)?;
        let kept = |rest| DelayedSubject::Kept(PlacedSubject { order, rest });
        let Some(delay) = state.delays.get(order) else {
            return Ok(Verdict::Already(kept(None)));
        };
        Ok(match decide_delayed(state, given, slot, delay) {
            Ok((events, rest)) => Verdict::Happens(events, kept(rest)),
            Err(rejection) => {
                let events = smallvec![Event::DelayedOrderDropped { order }];
                Verdict::Happens(events, DelayedSubject::Dropped(rejection))
            }
        })
    }

    fn answer(state: &State, subject: DelayedSubject, is_new: bool) -> Result<Placed, Rejection> {
        match subject {
            DelayedSubject::Kept(subject) => Ok(Placed::of(state, &subject, is_new)),
            DelayedSubject::Dropped(rejection) => Err(rejection),
        }
    }

    fn remember(state: &mut State, subject: &DelayedSubject) {
        if let DelayedSubject::Kept(subject) = subject {
            state.remember_rest(subject);
        }
    }

    fn depends_on(&self, state: &State) -> Lsn {
        state.order_lsn(self.order)
    }
}

/// Decides the delayed order in this slot as if it arrived now.
fn decide_delayed(
    state: &State,
    given: Given<'_, '_>,
    slot: u32,
    delay: &Delay,
) -> Result<(Events, Option<Rest>), Rejection> {
    let Given { quote, now, rules } = given;
    let order = &state.orders[slot];
    let order_state = state.orders.order_state(slot).expect("a delayed order has an order state");
    if order_state.is_due(now) {
        return Err(Rejection::Payload(PayloadFlaw::Expiration));
    }
    let market = OpenMarket::again(state, quote, order.market(), order.outcome())?;
    market.check_tokens(state)?;
    let account = state.account(order.account()).ok_or(Rejection::AccountNotFound)?;
    let holdings = account.holdings().without(delay.reserve);
    let held = holdings.position(order.market(), order.outcome());
    let taker = Taker {
        intent: &delay.intent(order.side(), order_state.terms),
        market: &market,
        holdings: &holdings,
        held: &held,
        open_orders_max: rules.open_orders_max,
    };
    let mut checked = taker.check()?;
    let waited_ms = now.millis() - order.placed_at().millis();
    // At least 1, since the clock may have been set back and 0 means that the order was not
    // delayed.
    checked.terms.delayed_ms = u32::try_from(waited_ms.max(1)).unwrap_or(u32::MAX);
    let placement = order.row(None).placement;
    let (event, rest) = taker.decide(&checked, placement, now)?;
    let mut events = Events::new();
    forget_oldest(state, account, holdings.kept_order_count, rules, &mut events);
    events.push(event);
    Ok((events, rest))
}

impl State {
    /// Returns the delayed orders with the condition ids of their markets, oldest first.
    pub fn delayed_orders(&self) -> impl Iterator<Item = (OrderId, &Arc<str>)> {
        self.delays.counters().filter_map(|counter| {
            let order = self.order(OrderId::new(self.shard, counter)?)?;
            Some((order.id(), &self.used_market(order.market()).condition_id))
        })
    }

    /// Returns the cash or shares that the open order in this slot reserves.
    pub(in crate::engine) fn reserve_of(&self, slot: u32) -> Reserve {
        let order = &self.orders[slot];
        if let Some(delay) = self.delays.get(order.id()) {
            return delay.reserve;
        }
        self.orders
            .order_state(slot)
            .map(|order_state| order_state.reserve(order.side()))
            .unwrap_or_default()
    }

    pub(in crate::engine) fn delay_order(
        &mut self,
        delayed: &OrderDelayed,
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        let OrderDelayed { placement, terms, delay, at } = delayed;
        let flaw = |flaw| Flaw::order(placement.order, flaw);
        self.take_order_id(placement).map_err(flaw)?;
        let account = self.check_placement(placement).map_err(flaw)?;
        let order_state = OrderState {
            terms: *terms,
            progress: Progress::default(),
            end: None,
            awaits_book: false,
            is_delayed: true,
        };
        if !order_state.is_consistent() {
            return Err(flaw("has terms that contradict each other"));
        }
        let row = &self.accounts[account];
        let position = row.holding(placement.market, placement.outcome);
        let fill = Fill {
            quantity: Shares::ZERO,
            notional: Usd::ZERO,
            fee: Usd::ZERO,
            fee_rate: FeeRate::ZERO,
            balance: row.ledger().cash(),
            position_shares: position.shares,
            position_cost: position.cost,
            at: *at,
        };
        let order = Order::delayed(placement, fill, position_in_log);
        let order = order.ok_or(flaw("has numbers out of range"))?;
        let slot = self
            .place_with_order_state(order, order_state)
            .ok_or(flaw("has a name that is used"))?;
        self.accounts[account].position_in_log = position_in_log;
        self.begin_delay(account, slot, *delay).map_err(flaw)
    }

    /// Adds the delay of an order whose state is marked as delayed.
    pub(in crate::engine) fn begin_delay(
        &mut self,
        account: u32,
        slot: u32,
        delay: Delay,
    ) -> Result<(), &'static str> {
        let order = &self.orders[slot];
        let (id, side, market) = (order.id(), order.side(), order.market());
        let terms =
            self.orders.order_state(slot).expect("a delayed order has an order state").terms;
        if !delay.is_consistent(side, terms) {
            return Err("is held with what it cannot hold back");
        }
        self.hash += delay.term(id);
        self.delays.insert(id, market, delay);
        self.open_order(account, slot)
    }

    /// Ends the delay of an order and releases its reserve. Does nothing if the order is not
    /// delayed.
    pub(in crate::engine) fn end_delay(&mut self, account: u32, slot: u32) {
        let order = &self.orders[slot];
        let (id, on) = (order.id(), order.on());
        let Some(delay) = self.delays.remove(id, on.market) else { return };
        self.hash -= delay.term(id);
        self.accounts[account].release(on, delay.reserve, Reserve::default());
    }

    /// Removes a delayed order and frees its names.
    pub(in crate::engine) fn drop_delayed_order(
        &mut self,
        id: OrderId,
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        self.take_delayed_order(id, position_in_log).map_err(|flaw| Flaw::order(id, flaw))?;
        self.forget_comments_of(id);
        self.last_removal = position_in_log;
        Ok(())
    }

    /// Removes a delayed order but not its comments, since the order may be placed again with the
    /// same id.
    pub(in crate::engine) fn take_delayed_order(
        &mut self,
        id: OrderId,
        position_in_log: u64,
    ) -> Result<DelayedOrder, &'static str> {
        // Delays are found by counter, so first check that the id belongs to this shard.
        let slot = self.orders.slot(id).filter(|_| self.delays.get(id).is_some());
        let slot = slot.ok_or("is not held")?;
        let on = self.orders[slot].on();
        let account = self.touch_order(slot, position_in_log);
        self.end_delay(account, slot);
        // `close_order` drops these levels with the account's last order on this side.
        let used = self.accounts[account].used_levels(on).into();
        self.accounts[account].close_order(id.counter(), on);
        let (order, order_state) = self.orders.remove(slot);
        let order_state = order_state.expect("a delayed order has an order state");
        self.hash -= order.term();
        self.hash -= order_state.term(id);
        Ok(DelayedOrder { placement: order.row(None).placement, terms: order_state.terms, used })
    }
}
