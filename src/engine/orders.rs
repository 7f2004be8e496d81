//! Market orders that fill completely: the ordered checks, the fill, and which orders an account
//! keeps. [`super::place`] places all other orders.

use smallvec::SmallVec;

use super::account::{Account, Holdings};
use super::command::{OrderNames, Trade, TradeOrder};
use super::contradiction::{Flaw, NOT_KEPT, NOT_NEXT};
use super::cost::Cost;
use super::decide::{Command, Given, IDS_EXHAUSTED, Verdict};
use super::event::{Event, Events, OrderFilled};
use super::fill::{Fill, Placement};
use super::fill_log::LoggedFill;
use super::idempotency::Fingerprint;
use super::life::Life;
use super::markets::{OpenMarket, introduction};
use super::open_orders::BookSide;
use super::order::{Order, OrderReceipt};
use super::position::Position;
use super::rejection::Rejection;
use super::rules::Rules;
use super::slippage::Slippage;
use super::state::State;
use crate::ids::{AccountId, OrderId, Place};
use crate::market::book::{Level, Side};
use crate::money::{Shares, Usd};

/// How many orders of its account a trade forgets at most. More than one, so that an account's
/// surplus shrinks after the operator lowered the limit; bounded, so that the work of a command is.
const FORGOTTEN_PER_TRADE_MAX: usize = 2;

/// The order of a trade, new or replayed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Traded {
    /// The order's receipt.
    pub receipt: OrderReceipt,
    /// Whether the order had filled before, and this trade changed nothing.
    pub is_replay: bool,
}

impl Command for Trade {
    type Subject = OrderId;
    type Answer = Traded;

    fn market_id(&self) -> Option<&str> {
        Some(&self.order().market_id)
    }

    /// The order of the checks is part of the API: if several fail, the client gets the first.
    fn decide(&self, state: &State, given: Given<'_, '_>) -> Result<Verdict<OrderId>, Rejection> {
        let Given { quote, now, rules } = given;
        let order = self.order();
        if order.quantity <= Shares::ZERO || order.quantity > TradeOrder::QUANTITY_MAX {
            return Err(Rejection::Broken { rule: "an order is for no shares, or for too many" });
        }
        let fingerprint = self.fingerprint();
        let actor = state.actor(&self.owner)?;
        let account = actor.known();
        let holdings = account
            .map_or_else(|| Holdings::opened_with(rules.starting_balance), Account::holdings);
        if let Some(earlier) = replayed(state, actor.id(), self.names(), fingerprint)? {
            return Ok(Verdict::Already(earlier));
        }

        let market = OpenMarket::of(state, quote, &order.market_id, &order.outcome)?;
        let quoted = market.fresh_book().ok_or(Rejection::VenueUnavailable)?;
        market.check_tokens(state)?;
        let OpenMarket { quote, outcome, used, index } = market;
        let held = holdings.position(index, outcome);
        let available = holdings.available(&held);
        if order.side == Side::Sell && order.quantity > available {
            return Err(Rejection::InsufficientPosition { held: available, asked: order.quantity });
        }
        let walk = quoted.liquidity.walk(order.side, order.quantity);
        if walk.shortfall > Shares::ZERO {
            let available = order.quantity - walk.shortfall;
            return Err(Rejection::InsufficientLiquidity { available, asked: order.quantity });
        }
        let slippage = Slippage::of(order.side, order.quantity, order.expected_price, &walk);
        slippage.check(order.expected_price, order.max_slippage_bps, &walk)?;
        let cost = Cost::of(order.side, &walk, quote.fees);
        let ledger = cost.charge(order.side, holdings.ledger)?;
        let Some(position) = held.after_fill(order.side, order.quantity, cost.notional) else {
            return Err(Rejection::Broken { rule: "a position outgrows its range" });
        };
        let balance = ledger.cash();
        audit(balance, &position)?;

        let Some(order_id) = OrderId::new(state.shard, state.orders_ever + 1) else {
            return Err(IDS_EXHAUSTED);
        };
        let mut events = Events::new();
        match account {
            Some(account) => {
                forget_oldest(state, account, holdings.kept_order_count, rules, &mut events);
            }
            None => events.extend(actor.opening(now, rules)),
        }
        if used.is_none() {
            events.push(introduction(index, quote));
        }
        events.push(Event::OrderFilled(Box::new(OrderFilled {
            placement: Placement {
                order: order_id,
                account: actor.id(),
                market: index,
                outcome,
                side: order.side,
                fingerprint,
                names: SmallVec::from_slice(self.names().hashes()),
                client_order_id: self.names().client_order_id().map(Into::into),
            },
            fill: Fill {
                quantity: order.quantity,
                notional: cost.notional,
                fee: cost.fee,
                fee_rate: cost.fee_rate,
                balance,
                position_shares: position.shares,
                position_cost: position.cost,
                at: now,
            },
            levels: walk.fills,
            book_sequence: quoted.book.sequence,
            slippage_bps: slippage.reported_bps(),
        })));
        Ok(Verdict::Happens(events, order_id))
    }

    fn answer(state: &State, order: OrderId, is_new: bool) -> Traded {
        let order = state.order(order).expect("an order that just filled or was found is kept");
        Traded { receipt: state.receipt(order), is_replay: !is_new }
    }

    fn depends_on(&self, state: &State) -> Place {
        state.owner_place(&self.owner).max(state.settled_place(&self.order().market_id))
    }

    fn refusal_depends_on(&self, state: &State, rejection: &Rejection) -> Place {
        let place = self.depends_on(state);
        match rejection {
            // This rejection discloses that the shard has used the market with other tokens.
            Rejection::MarketChanged => {
                place.max(state.introduction_place(&self.order().market_id))
            }
            _ => place,
        }
    }
}

impl State {
    /// The receipt of an order.
    pub fn receipt(&self, order: &Order) -> OrderReceipt {
        order.receipt(self.used_market(order.market()), self.orders.life_of(order))
    }

    /// Places, fills and finishes an order; a market order does all three at once.
    pub(super) fn fill_order(
        &mut self,
        filled: &OrderFilled,
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        let OrderFilled { placement, fill, levels, .. } = filled;
        let flaw = |flaw| Flaw::order(placement.order, flaw);
        self.take_order_id(placement.order).map_err(flaw)?;
        if levels.is_empty() {
            return Err(flaw("takes nothing"));
        }
        check_fill(fill, levels).map_err(flaw)?;
        let account = self.check_placement(placement).map_err(flaw)?;
        let order = Order::filled(filled, position_in_log);
        let order = order.ok_or(flaw("has numbers out of range"))?;
        // Before the account, so that the name index is read while the account's memory is fetched.
        let order = self.place_order(order).ok_or(flaw("has a name that is used"))?;
        let &Placement { market, outcome, side, .. } = placement;
        let on = BookSide { market, outcome, side };
        self.fill_position(account, on, fill, true, position_in_log).map_err(flaw)?;
        self.log_fill(account, || LoggedFill::new(placement.order, 1, on, *fill));
        self.accounts[account].finish_order(order);
        Ok(())
    }

    /// Checks that the id is the shard's next one, and advances the counter.
    pub(super) fn take_order_id(&mut self, order: OrderId) -> Result<(), &'static str> {
        let is_next = Some(order.counter()) == self.orders_ever.checked_add(1);
        if order.shard() != self.shard || !is_next {
            return Err(NOT_NEXT);
        }
        self.orders_ever = order.counter();
        Ok(())
    }

    /// Checks the market and outcome of an order, and returns the slot of its account.
    pub(super) fn check_placement(&self, placement: &Placement) -> Result<u32, &'static str> {
        let market = self.markets.get(placement.market.0 as usize);
        if market.is_none_or(|market| placement.outcome.index() >= market.outcomes.len()) {
            return Err("is in no market");
        }
        if self.settled.contains_key(&placement.market) {
            return Err("is in a settled market");
        }
        self.account_slot(placement.account).ok_or("is of no account")
    }

    /// Adds an order to the table and returns its slot; `None` if one of its names is taken.
    fn place_order(&mut self, order: Order) -> Option<u32> {
        self.hash += order.term();
        self.orders.insert(order)
    }

    /// Applies a fill to the account's money and position; `finishes` says whether it finishes its
    /// order.
    pub(super) fn fill_position(
        &mut self,
        slot: u32,
        on: BookSide,
        fill: &Fill,
        finishes: bool,
        position_in_log: u64,
    ) -> Result<(), &'static str> {
        let BookSide { market, outcome, side } = on;
        let account = &mut self.accounts[slot];
        self.hash += account.fill((market, outcome, side), fill, finishes)?;
        account.position_in_log = position_in_log;
        let position = (market, slot, outcome);
        if fill.position_shares == Shares::ZERO {
            self.open_positions.remove(&position);
        } else if side == Side::Buy && fill.position_shares == fill.quantity {
            self.open_positions.insert(position);
        }
        Ok(())
    }

    /// Adds an order with its life and returns its slot; `None` if one of its names is taken.
    pub(super) fn place_order_with_life(&mut self, order: Order, life: Life) -> Option<u32> {
        self.hash += order.term();
        self.hash += life.term(order.id());
        self.orders.insert_with_life(order, life)
    }

    /// Appends a finished order to the account in this slot; `None` if one of its names is taken.
    pub(super) fn insert_order(
        &mut self,
        order: Order,
        life: Option<Life>,
        account_slot: u32,
    ) -> Option<()> {
        let slot = match life {
            Some(life) => self.place_order_with_life(order, life)?,
            None => self.place_order(order)?,
        };
        self.accounts[account_slot].finish_order(slot);
        Some(())
    }

    /// Removes an order, which must be the oldest that its account keeps.
    pub(super) fn forget_order(&mut self, id: OrderId, position_in_log: u64) -> Result<(), Flaw> {
        let slot = self.orders.slot(id).ok_or(Flaw::order(id, NOT_KEPT))?;
        let account = self.account_mut(self.orders[slot].account());
        if account.pop_order() != Some(slot) {
            return Err(Flaw::order(id, "is not the oldest that its account keeps"));
        }
        account.position_in_log = position_in_log;
        let (order, life) = self.orders.remove(slot);
        self.hash -= order.term();
        if let Some(life) = life {
            self.hash -= life.term(id);
        }
        for comment in self.comments_of.remove(&id).unwrap_or_default().ids {
            let comment = self.comments.remove(&comment).expect("every listed comment is kept");
            self.hash -= comment.term();
        }
        self.last_removal = position_in_log;
        Ok(())
    }
}

/// Adds an event for each order that the account forgets to make room for a new one: the oldest, at
/// most [`FORGOTTEN_PER_TRADE_MAX`].
pub(super) fn forget_oldest(
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

/// The earlier order with the request's names, if the requests are the same.
pub(super) fn replayed(
    state: &State,
    account: AccountId,
    names: &OrderNames,
    fingerprint: Fingerprint,
) -> Result<Option<OrderId>, Rejection> {
    let mut known = names.hashes().iter().filter_map(|&name| state.order_named(account, name));
    let Some(first) = known.next() else {
        return Ok(None);
    };
    if first.fingerprint() != fingerprint || known.any(|order| order.id() != first.id()) {
        return Err(Rejection::NameReused);
    }
    Ok(Some(first.id()))
}

/// Checks invariants of the result before anything changes.
pub(super) fn audit(balance: Usd, position: &Position) -> Result<(), Rejection> {
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

/// Checks invariants of what an order took that do not depend on the state. Displayed sums and
/// prices are computed from these numbers.
pub(super) fn check_fill(fill: &Fill, levels: &[Level]) -> Result<(), &'static str> {
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
