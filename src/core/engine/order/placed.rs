//! Placed orders in the state: how they fill, rest and end, and which of them an account keeps.

use crate::engine::account::Account;
use crate::engine::account::extension::{NotedLevel, UsedLevel, UsedLevels};
use crate::engine::account::position::Position;
use crate::engine::command::OrderNames;
use crate::engine::contradiction::{Flaw, NOT_KEPT, NOT_NEXT};
use crate::engine::event::{Event, Events, OrderFilled, OrderPlaced};
use crate::engine::fills::fill::{Fill, Placement};
use crate::engine::fills::log::LoggedFill;
use crate::engine::order::idempotency::{Fingerprint, NameHash};
use crate::engine::order::open::BookSide;
use crate::engine::order::order_state::{End, OrderState, Progress};
use crate::engine::order::receipt::{Order, OrderReceipt};
use crate::engine::order::terms::{EndReason, Terms};
use crate::engine::rejection::Rejection;
use crate::engine::rules::Rules;
use crate::engine::state::State;
use crate::ids::{AccountId, OrderId};
use crate::market::book::Level;
use crate::money::{Shares, Usd};

/// The maximum number of old orders that an account forgets when it places a new one. It is more
/// than one, so that an account shrinks after the operator lowers the limit, and bounded, so that
/// the command's work is bounded too.
const FORGOTTEN_PER_TRADE_MAX: usize = 2;

impl State {
    /// Returns the receipt of an order.
    pub fn receipt(&self, order: &Order) -> OrderReceipt {
        order.receipt(self.used_market(order.market()), self.orders.order_state_of(order).as_ref())
    }

    /// Places, fills and finishes an order in one step, for a market order that fills at once.
    pub(in crate::engine) fn fill_order(
        &mut self,
        filled: &OrderFilled,
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        let OrderFilled { placement, fill, levels, .. } = filled;
        let flaw = |flaw| Flaw::order(placement.order, flaw);
        self.take_order_id(placement).map_err(flaw)?;
        if levels.is_empty() {
            return Err(flaw("takes nothing"));
        }
        check_fill(fill, levels).map_err(flaw)?;
        let account = self.check_placement(placement).map_err(flaw)?;
        let order = Order::filled(filled, position_in_log);
        let order = order.ok_or(flaw("has numbers out of range"))?;
        // Place the order before changing the account, so that the name index is read while the
        // account's memory is being fetched.
        let order = self.place_order(order).ok_or(flaw("has a name that is used"))?;
        let &Placement { market, outcome, side, .. } = placement;
        let on = BookSide { market, outcome, side };
        self.fill_position(account, on, fill, true, position_in_log).map_err(flaw)?;
        self.log_fill(account, || LoggedFill::new(placement.order, 1, on, *fill));
        self.accounts[account].finish_order(order);
        Ok(())
    }

    /// Places an order that has an order state, and applies its fill at placement.
    pub(in crate::engine) fn place_new_order(
        &mut self,
        placed: &OrderPlaced,
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        let OrderPlaced { placement, terms, fill, levels, end, .. } = placed;
        let flaw = |flaw| Flaw::order(placement.order, flaw);
        let mut used = UsedLevels::new();
        if let Some(delay) = self.delays.get(placement.order).copied() {
            let delayed =
                self.take_delayed_order(placement.order, position_in_log).map_err(flaw)?;
            if delayed.placement != *placement || !delay.permits(delayed.terms, *terms) {
                return Err(flaw("is not the order that was held"));
            }
            used = delayed.used;
        } else {
            self.take_order_id(placement).map_err(flaw)?;
            if terms.delayed_ms > 0 {
                return Err(flaw("was never held"));
            }
        }
        check_fill(fill, levels).map_err(flaw)?;
        let account = self.check_placement(placement).map_err(flaw)?;
        let order_state = order_state_of(terms, fill, *end).map_err(flaw)?;
        let order = Order::placed(placed, position_in_log);
        let order = order.ok_or(flaw("has numbers out of range"))?;
        let slot = self
            .place_with_order_state(order, order_state)
            .ok_or(flaw("has a name that is used"))?;
        let &Placement { market, outcome, side, .. } = placement;
        let on = BookSide { market, outcome, side };
        let finishes = !order_state.is_open();
        self.begin_fill_log(account);
        if fill.quantity > Shares::ZERO {
            self.fill_position(account, on, fill, finishes, position_in_log).map_err(flaw)?;
            if !finishes {
                self.hash += self.accounts[account].count_part();
            }
            self.log_fill(account, || LoggedFill::new(placement.order, 1, on, *fill));
        } else {
            self.check_unfilled(account, on, fill).map_err(flaw)?;
            let account = &mut self.accounts[account];
            account.position_in_log = position_in_log;
            if finishes {
                self.hash += account.count_finished().map_err(flaw)?;
            }
        }
        if finishes {
            self.accounts[account].finish_order(slot);
            return Ok(());
        }
        self.open_order(account, slot).map_err(flaw)?;
        // The account dropped its used levels if the delayed order was its only order on this side.
        if !used.is_empty() {
            self.accounts[account].remember_used(on, used);
        }
        // The remainder rests because the order took all that the book offered, so nothing is left
        // of these levels.
        if !levels.is_empty() {
            let noted = levels.iter().map(|level| NotedLevel::unseen(UsedLevel::whole(level)));
            self.accounts[account].note_used(on, noted);
        }
        Ok(())
    }

    /// Checks that an order without a fill leaves its account unchanged.
    fn check_unfilled(&self, account: u32, on: BookSide, fill: &Fill) -> Result<(), &'static str> {
        let account = &self.accounts[account];
        let held = account.holding(on.market, on.outcome);
        let is_unchanged = fill.notional == Usd::ZERO
            && fill.fee == Usd::ZERO
            && fill.balance == account.ledger().cash()
            && fill.position_shares == held.shares
            && fill.position_cost == held.cost;
        is_unchanged.then_some(()).ok_or("changes an account without a fill")
    }

    /// Checks that the id is the shard's next one, and advances the counter.
    pub(in crate::engine) fn take_order_id(
        &mut self,
        placement: &Placement,
    ) -> Result<(), &'static str> {
        let order = placement.order;
        let is_next = Some(order.counter()) == self.orders_ever.checked_add(1);
        if order.shard() != self.shard || !is_next {
            return Err(NOT_NEXT);
        }
        self.orders_ever = order.counter();
        Ok(())
    }

    /// Checks the market and outcome of an order, and returns the slot of its account.
    pub(in crate::engine) fn check_placement(
        &self,
        placement: &Placement,
    ) -> Result<u32, &'static str> {
        let market = self.markets.get(placement.market.0 as usize);
        if market.is_none_or(|market| placement.outcome.index() >= market.outcomes.len()) {
            return Err("is in no market");
        }
        if self.is_settled(placement.market) {
            return Err("is in a settled market");
        }
        self.account_slot(placement.account).ok_or("is of no account")
    }

    /// Adds an order to the table and returns its slot; `None` if one of its names is taken.
    fn place_order(&mut self, order: Order) -> Option<u32> {
        self.hash += order.term();
        self.orders.insert(order)
    }

    /// Applies a fill to the account's money and position. `finishes` tells whether the fill
    /// completes its order.
    pub(in crate::engine) fn fill_position(
        &mut self,
        slot: u32,
        on: BookSide,
        fill: &Fill,
        finishes: bool,
        position_in_log: u64,
    ) -> Result<(), &'static str> {
        let BookSide { market, outcome, side } = on;
        let account = &mut self.accounts[slot];
        let position_count = account.positions().len();
        self.hash += account.fill((market, outcome, side), fill, finishes)?;
        account.position_in_log = position_in_log;
        if account.positions().len() > position_count {
            self.holders[market.0 as usize].push_back((slot, outcome));
        }
        Ok(())
    }

    /// Adds an order with its order state and returns its slot; `None` if one of its names is
    /// taken.
    pub(in crate::engine) fn place_with_order_state(
        &mut self,
        order: Order,
        order_state: OrderState,
    ) -> Option<u32> {
        self.hash += order.term();
        self.hash += order_state.term(order.id());
        self.orders.insert_with_order_state(order, &order_state)
    }

    /// Appends a finished order to the account in this slot; `None` if one of its names is taken.
    pub(in crate::engine) fn insert_order(
        &mut self,
        order: Order,
        order_state: Option<OrderState>,
        account_slot: u32,
    ) -> Option<()> {
        let slot = match order_state {
            Some(order_state) => self.place_with_order_state(order, order_state)?,
            None => self.place_order(order)?,
        };
        self.accounts[account_slot].finish_order(slot);
        Some(())
    }

    /// Removes an order, which must be the oldest finished order that its account keeps.
    pub(in crate::engine) fn forget_order(
        &mut self,
        id: OrderId,
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        let slot = self.orders.slot(id).ok_or(Flaw::order(id, NOT_KEPT))?;
        let account = self.account_mut(self.orders[slot].account());
        if account.pop_order() != Some(slot) {
            return Err(Flaw::order(id, "is not the oldest that its account keeps"));
        }
        account.position_in_log = position_in_log;
        let (order, order_state) = self.orders.remove(slot);
        self.hash -= order.term();
        if let Some(order_state) = order_state {
            self.hash -= order_state.term(id);
        }
        self.forget_comments_of(id);
        self.last_removal = position_in_log;
        Ok(())
    }

    /// Removes the comments on an order that was removed.
    pub(in crate::engine) fn forget_comments_of(&mut self, order: OrderId) {
        for comment in self.comments_of.remove(&order).unwrap_or_default().ids {
            self.remove_comment(comment).expect("every listed comment is kept");
        }
    }
}

/// Returns the life of a new order.
pub(in crate::engine) fn order_state_of(
    terms: &Terms,
    fill: &Fill,
    end: Option<EndReason>,
) -> Result<OrderState, &'static str> {
    let progress = Progress::default();
    let progress = if fill.quantity > Shares::ZERO {
        progress.after(fill.quantity, fill.notional, fill.fee, fill.at)
    } else {
        Some(progress)
    };
    let order_state = OrderState {
        terms: *terms,
        progress: progress.ok_or("has sums out of range")?,
        end: end.map(|reason| End { reason, at: fill.at }),
        awaits_book: terms.awaited_book,
        is_delayed: false,
    };
    let is_killed = end.is_none_or(EndReason::is_at_placement);
    let is_new = is_killed && (!order_state.awaits_book || fill.quantity == Shares::ZERO);
    (is_new && order_state.is_consistent())
        .then_some(order_state)
        .ok_or("has terms that contradict each other")
}

/// Adds an event for each order that the account forgets to make room for a new one: the oldest
/// orders, at most [`FORGOTTEN_PER_TRADE_MAX`].
pub(in crate::engine) fn forget_oldest(
    state: &State,
    account: &Account,
    kept_count: usize,
    rules: &Rules,
    events: &mut Events,
) {
    let kept_max = rules.kept_orders_max.max(1) as usize;
    let excess = (kept_count + 1).saturating_sub(kept_max);
    if excess > 0 {
        for slot in account.orders().take(excess.min(FORGOTTEN_PER_TRADE_MAX)) {
            events.push(Event::OrderForgotten { order: state.orders[slot].id() });
        }
    }
}

/// Returns the earlier order with the request's names, if the request repeats it.
///
/// All of the names must belong to that order. A further name would not be stored with it, so a
/// later request with that name alone would place the order again.
pub(in crate::engine) fn replayed(
    state: &State,
    account: AccountId,
    names: &OrderNames,
    fingerprint: Fingerprint,
) -> Result<Option<OrderId>, Rejection> {
    let named = |&name: &NameHash| state.order_named(account, name);
    let Some(first) = names.hashes().iter().find_map(named) else {
        return Ok(None);
    };
    let are_others = names.hashes().iter().filter_map(named).any(|it| it.id() != first.id());
    let is_other = first.fingerprint() != fingerprint || are_others;
    let is_known = |name| first.names().contains(name);
    // Older versions named a batch entry by its index only.
    let is_former = || names.is_batch_entry() && *first.names() == names.hashes()[..1];
    if !is_other && (names.hashes().iter().all(is_known) || is_former()) {
        return Ok(Some(first.id()));
    }
    Err(match (names.is_batch_entry(), is_other) {
        (true, _) => Rejection::BatchChanged,
        (false, true) => Rejection::NameReused { order: first.id() },
        (false, false) => Rejection::NameAdded { order: first.id() },
    })
}

/// Checks the invariants of a fill's result before anything changes.
pub(in crate::engine) fn audit(balance: Usd, position: &Position) -> Result<(), Rejection> {
    let rule = if balance < Usd::ZERO {
        "a fill leaves a debt"
    } else if position.shares < Shares::ZERO {
        "a position is below zero"
    } else if position.cost < Usd::ZERO {
        "a cost is below zero"
    } else if position.shares == Shares::ZERO && position.cost != Usd::ZERO {
        "a closed position has a cost"
    } else {
        return Ok(());
    };
    Err(Rejection::Broken { rule })
}

/// Checks the invariants of a fill at placement that do not depend on the state. Displayed sums and
/// prices are computed from the numbers checked here.
pub(in crate::engine) fn check_fill(fill: &Fill, levels: &[Level]) -> Result<(), &'static str> {
    let mut taken = Shares::ZERO;
    for level in levels {
        if level.size <= Shares::ZERO {
            return Err("takes no shares at a price");
        }
        taken = taken.checked_add(level.size).ok_or("takes more than there can be")?;
    }
    if taken != fill.quantity {
        return Err("is not what it took");
    }
    if !(0..=fill.quantity.micros()).contains(&fill.notional.micros()) {
        return Err("costs less than nothing or more than a dollar a share");
    }
    if fill.fee < Usd::ZERO {
        return Err("has a fee below zero");
    }
    Ok(())
}
