//! Held orders: the venue delays orders that it could match at once, and so does the shard.
//!
//! A held order is open, reserves cash or shares, and cannot be cancelled. Once the delay is over,
//! the order is decided like a new one, on the book at that time and under its existing id. If it
//! is rejected at that point, it is removed and its names can be used again.

use std::sync::Arc;

use smallvec::smallvec;

use crate::engine::account::resting::UsedLevels;
use crate::engine::contradiction::Flaw;
use crate::engine::decide::{Command, Given, Verdict};
use crate::engine::event::{Event, Events, OrderHeld};
use crate::engine::fills::fill::{Fill, Placement};
use crate::engine::market::table::OpenMarket;
use crate::engine::order::hold::Hold;
use crate::engine::order::life::{Life, Progress};
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

/// Decides a held order. Send it once the delay is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecideHeld {
    /// The order.
    pub order: OrderId,
    /// The condition id of the order's market.
    pub market_id: Arc<str>,
}

/// The result of deciding a held order.
#[derive(Clone, PartialEq, Debug)]
pub enum HeldSubject {
    /// The order was decided, by this command or an earlier one.
    Kept(PlacedSubject),
    /// The order was rejected and removed.
    Dropped(Rejection),
}

/// A held order after its removal from the state.
pub(in crate::engine) struct HeldOrder {
    pub(in crate::engine) placement: Placement,
    pub(in crate::engine) terms: Terms,
    /// The displayed levels that the account's orders on the same side of the book had taken from.
    /// The account drops these levels if this was its only order on that side.
    pub(in crate::engine) used: UsedLevels,
}

impl Command for DecideHeld {
    type Subject = HeldSubject;
    type Answer = Result<Placed, Rejection>;

    fn market_id(&self) -> Option<&str> {
        Some(&self.market_id)
    }

    fn decide(
        &self,
        state: &State,
        given: Given<'_, '_>,
    ) -> Result<Verdict<HeldSubject>, Rejection> {
        let order = self.order;
        let slot = state.orders.slot(order).ok_or(Rejection::OrderNotFound)?;
        let kept = |rest| HeldSubject::Kept(PlacedSubject { order, rest });
        let Some(hold) = state.holds.get(order) else {
            return Ok(Verdict::Already(kept(None)));
        };
        Ok(match decide_held(state, given, slot, hold) {
            Ok((events, rest)) => Verdict::Happens(events, kept(rest)),
            Err(rejection) => {
                let events = smallvec![Event::HeldOrderDropped { order }];
                Verdict::Happens(events, HeldSubject::Dropped(rejection))
            }
        })
    }

    fn answer(state: &State, subject: HeldSubject, is_new: bool) -> Result<Placed, Rejection> {
        match subject {
            HeldSubject::Kept(subject) => Ok(Placed::of(state, &subject, is_new)),
            HeldSubject::Dropped(rejection) => Err(rejection),
        }
    }

    fn remember(state: &mut State, subject: &HeldSubject) {
        if let HeldSubject::Kept(subject) = subject {
            state.remember_rest(subject);
        }
    }

    fn depends_on(&self, state: &State) -> Lsn {
        state.order_lsn(self.order)
    }
}

/// Decides the held order in this slot as if it arrived now.
fn decide_held(
    state: &State,
    given: Given<'_, '_>,
    slot: u32,
    hold: &Hold,
) -> Result<(Events, Option<Rest>), Rejection> {
    let Given { quote, now, rules } = given;
    let order = &state.orders[slot];
    let life = state.orders.life(slot).expect("a held order has a life");
    if life.is_due(now) {
        return Err(Rejection::Payload(PayloadFlaw::Expiration));
    }
    let market = OpenMarket::again(state, quote, order.market(), order.outcome())?;
    market.check_tokens(state)?;
    let account = state.account(order.account()).ok_or(Rejection::AccountNotFound)?;
    let holdings = account.holdings().without(hold.reserve);
    let held = holdings.position(order.market(), order.outcome());
    let taker = Taker {
        intent: &hold.intent(order.side(), life.terms),
        market: &market,
        holdings: &holdings,
        held: &held,
        open_orders_max: rules.open_orders_max,
    };
    let mut checked = taker.check()?;
    let waited_ms = now.millis() - order.placed_at().millis();
    // At least 1, since the clock may have been set back and 0 means that the order was not held.
    checked.terms.held_ms = u32::try_from(waited_ms.max(1)).unwrap_or(u32::MAX);
    let placement = order.row(None).placement;
    let (event, rest) = taker.decide(&checked, placement, now)?;
    let mut events = Events::new();
    forget_oldest(state, account, holdings.kept_order_count, rules, &mut events);
    events.push(event);
    Ok((events, rest))
}

impl State {
    /// Returns the held orders with the condition ids of their markets, oldest first.
    pub fn held_orders(&self) -> impl Iterator<Item = (OrderId, &Arc<str>)> {
        self.holds.counters().filter_map(|counter| {
            let order = self.order(OrderId::new(self.shard, counter)?)?;
            Some((order.id(), &self.used_market(order.market()).condition_id))
        })
    }

    /// Returns the cash or shares that the open order in this slot reserves.
    pub(in crate::engine) fn reserve_of(&self, slot: u32) -> Reserve {
        let order = &self.orders[slot];
        if let Some(hold) = self.holds.get(order.id()) {
            return hold.reserve;
        }
        self.orders.life(slot).map(|life| life.reserve(order.side())).unwrap_or_default()
    }

    pub(in crate::engine) fn hold_order(
        &mut self,
        held: &OrderHeld,
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        let OrderHeld { placement, terms, hold, at } = held;
        let flaw = |flaw| Flaw::order(placement.order, flaw);
        self.take_order_id(placement).map_err(flaw)?;
        let account = self.check_placement(placement).map_err(flaw)?;
        let life = Life {
            terms: *terms,
            progress: Progress::default(),
            end: None,
            awaits_book: false,
            is_held: true,
        };
        if !life.is_consistent() {
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
        let order = Order::held(placement, fill, position_in_log);
        let order = order.ok_or(flaw("has numbers out of range"))?;
        let slot =
            self.place_order_with_life(order, life).ok_or(flaw("has a name that is used"))?;
        self.accounts[account].position_in_log = position_in_log;
        self.begin_hold(account, slot, *hold).map_err(flaw)
    }

    /// Adds the hold of an order whose life is marked as held.
    pub(in crate::engine) fn begin_hold(
        &mut self,
        account: u32,
        slot: u32,
        hold: Hold,
    ) -> Result<(), &'static str> {
        let order = &self.orders[slot];
        let (id, side, market) = (order.id(), order.side(), order.market());
        let terms = self.orders.life(slot).expect("a held order has a life").terms;
        if !hold.is_consistent(side, terms) {
            return Err("is held with what it cannot hold back");
        }
        self.hash += hold.term(id);
        self.holds.insert(id, market, hold);
        self.open_order(account, slot)
    }

    /// Ends the hold of an order and releases its reserve. Does nothing if the order is not held.
    pub(in crate::engine) fn end_hold(&mut self, account: u32, slot: u32) {
        let order = &self.orders[slot];
        let (id, on) = (order.id(), order.on());
        let Some(hold) = self.holds.remove(id, on.market) else { return };
        self.hash -= hold.term(id);
        self.accounts[account].release(on, hold.reserve, Reserve::default());
    }

    /// Removes a held order and frees its names.
    pub(in crate::engine) fn drop_held_order(
        &mut self,
        id: OrderId,
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        self.take_held_order(id, position_in_log).map_err(|flaw| Flaw::order(id, flaw))?;
        self.forget_comments_of(id);
        self.last_removal = position_in_log;
        Ok(())
    }

    /// Removes a held order but not its comments, since the order may be placed again with the same
    /// id.
    pub(in crate::engine) fn take_held_order(
        &mut self,
        id: OrderId,
        position_in_log: u64,
    ) -> Result<HeldOrder, &'static str> {
        // Holds are found by counter, so first check that the id belongs to this shard.
        let slot = self.orders.slot(id).filter(|_| self.holds.get(id).is_some());
        let slot = slot.ok_or("is not held")?;
        let on = self.orders[slot].on();
        let account = self.touch_order(slot, position_in_log);
        self.end_hold(account, slot);
        // `close_order` drops these levels with the account's last order on this side.
        let used = self.accounts[account].used_levels(on).into();
        self.accounts[account].close_order(id.counter(), on);
        let (order, life) = self.orders.remove(slot);
        let life = life.expect("a held order has a life");
        self.hash -= order.term();
        self.hash -= life.term(id);
        Ok(HeldOrder { placement: order.row(None).placement, terms: life.terms, used })
    }
}
