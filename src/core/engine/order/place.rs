//! Placing an order: detecting a retry, finding the market, filling the marketable part, and
//! creating the event.

use smallvec::SmallVec;

use crate::engine::account::opening::Actor;
use crate::engine::account::position::Position;
use crate::engine::account::{Account, Holdings};
use crate::engine::command::{OrderCommand, PlaceOrder, Trade, TradeOrder};
use crate::engine::decide::{Command, Given, IDS_EXHAUSTED, Verdict};
use crate::engine::event::{Event, Events, OrderDelayed, OrderFilled, OrderPlaced};
use crate::engine::fills::fill::{Fill, Placement};
use crate::engine::market::table::{OpenMarket, introduction};
use crate::engine::order::cost::Cost;
use crate::engine::order::delay::Delay;
use crate::engine::order::idempotency::RequestedOrder;
use crate::engine::order::open::BookSide;
use crate::engine::order::payload::{Intent, NewOrder};
use crate::engine::order::placed::{audit, forget_oldest, replayed};
use crate::engine::order::receipt::OrderReceipt;
use crate::engine::order::slippage::Slippage;
use crate::engine::order::take::{Checked, Rest, Taken, Taker, checked_quantity};
use crate::engine::order::terms::{OrderKind, Terms, TimeInForce};
use crate::engine::rejection::Rejection;
use crate::engine::state::State;
use crate::ids::{Lsn, OrderId, Timestamp};
use crate::market::book::Side;
use crate::money::Shares;

/// A placed order, new or replayed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// The order's receipt. If [`OrderReceipt::is_delayed`], the order has yet to be decided.
    pub receipt: OrderReceipt,
    /// Whether the order had been placed before, so that this request changed nothing.
    pub is_replay: bool,
}

/// A placed order, and the data about its book that the shard keeps without journaling it.
#[derive(Clone, PartialEq, Debug)]
pub struct PlacedSubject {
    /// The order.
    pub order: OrderId,
    /// The data to keep if the order rests.
    pub(in crate::engine) rest: Option<Rest>,
}

impl Placed {
    pub(in crate::engine) fn of(state: &State, subject: &PlacedSubject, is_new: bool) -> Self {
        let order = state.order(subject.order).expect("an order that was just placed is kept");
        Self { receipt: state.receipt(order), is_replay: !is_new }
    }
}

/// A kind of requested order that the shard can decide.
pub trait DecidedOrder: RequestedOrder + Sized {
    /// Decides the command without changing the state. The order of the checks is part of the API:
    /// if several checks fail, the client gets the rejection of the first.
    fn decide(
        command: &OrderCommand<Self>,
        state: &State,
        given: Given<'_, '_>,
    ) -> Result<Verdict<PlacedSubject>, Rejection>;
}

impl<O: DecidedOrder> Command for OrderCommand<O> {
    type Subject = PlacedSubject;
    type Answer = Placed;

    fn market_id(&self) -> Option<&str> {
        Some(self.order().market_id())
    }

    fn decide(
        &self,
        state: &State,
        given: Given<'_, '_>,
    ) -> Result<Verdict<PlacedSubject>, Rejection> {
        O::decide(self, state, given)
    }

    fn answer(state: &State, subject: PlacedSubject, is_new: bool) -> Placed {
        Placed::of(state, &subject, is_new)
    }

    fn remember(state: &mut State, subject: &PlacedSubject) {
        state.remember_rest(subject);
    }

    fn depends_on(&self, state: &State) -> Lsn {
        state.owner_lsn(&self.owner).max(state.settled_lsn(self.order().market_id()))
    }

    fn refusal_depends_on(&self, state: &State, rejection: &Rejection) -> Lsn {
        let lsn = self.depends_on(state);
        match rejection {
            // This rejection reveals that the shard has used the market with other tokens.
            Rejection::MarketChanged => lsn.max(state.introduction_lsn(self.order().market_id())),
            _ => lsn,
        }
    }
}

impl DecidedOrder for TradeOrder {
    /// The fast path for the most common kind of order. On the general path, deciding and applying
    /// such an order would take 12 % more instructions.
    fn decide(
        command: &Trade,
        state: &State,
        given: Given<'_, '_>,
    ) -> Result<Verdict<PlacedSubject>, Rejection> {
        let Given { quote, now, rules } = given;
        let order = command.order();
        checked_quantity(order.quantity)?;
        let actor = state.actor(&command.owner)?;
        let account = actor.known();
        let holdings = account
            .map_or_else(|| Holdings::opened_with(rules.starting_balance), Account::holdings);
        if let Some(order) = replayed(state, actor.id(), command.names(), command.fingerprint())? {
            return Ok(Verdict::Already(PlacedSubject { order, rest: None }));
        }

        let market = OpenMarket::of(state, quote, &order.market_id, &order.outcome)?;
        market.check_tokens(state)?;
        if market.quote.taker_delay_ms > 0 {
            return command.place(state, given, actor, &market, &order.intent());
        }
        let quoted = market.fresh_book().ok_or_else(|| market.without_book())?;
        let on = market.side(order.side);
        let held = holdings.position(on.market, on.outcome);
        let available = holdings.available(&held);
        if order.side == Side::Sell && order.quantity > available {
            return Err(Rejection::InsufficientPosition { available, asked: order.quantity });
        }
        let walk = quoted.liquidity.walk(order.side, order.quantity);
        if walk.shortfall > Shares::ZERO {
            let available = order.quantity - walk.shortfall;
            return Err(Rejection::InsufficientLiquidity { available, asked: order.quantity });
        }
        let slippage = Slippage::of(order.side, order.quantity, order.expected_price, &walk);
        slippage.check(order.expected_price, order.max_slippage_bps, &walk)?;
        let cost = Cost::of(order.side, &walk, market.quote.fees);
        let ledger = cost.charge(order.side, holdings.ledger)?;
        let position = position_after(&held, order.side, order.quantity, &cost)?;
        let balance = ledger.cash();
        audit(balance, &position)?;

        let order_id = state.next_order()?;
        let mut events = events_before(state, given, actor, &holdings, &market);
        events.push(Event::OrderFilled(Box::new(OrderFilled {
            placement: command.placement(order_id, actor, on),
            fill: Fill::of(order.quantity, &cost, balance, &position, now),
            levels: walk.fills,
            book_sequence: quoted.book.sequence,
            slippage_bps: slippage.reported_bps(),
        })));
        Ok(Verdict::Happens(events, PlacedSubject { order: order_id, rest: None }))
    }
}

impl DecidedOrder for NewOrder {
    fn decide(
        command: &PlaceOrder,
        state: &State,
        given: Given<'_, '_>,
    ) -> Result<Verdict<PlacedSubject>, Rejection> {
        let order = command.order();
        let actor = state.actor(&command.owner)?;
        if let Some(order) = replayed(state, actor.id(), command.names(), command.fingerprint())? {
            return Ok(Verdict::Already(PlacedSubject { order, rest: None }));
        }
        // Check this after the replay check, so that a retry still succeeds once its expiration has
        // passed or the market has closed.
        let intent = order.intent(given.now).map_err(Rejection::Payload)?;
        let delay_ms = command.delay_ms_min();
        let held = given.quote.filter(|quote| quote.taker_delay_ms < delay_ms);
        let held = held.map(|quote| quote.clone().with_delay(delay_ms));
        let given = Given { quote: held.as_ref().or(given.quote), ..given };
        let market = OpenMarket::of(state, given.quote, &order.market_id, &order.outcome)?;
        market.check_tokens(state)?;
        command.place(state, given, actor, &market, &intent)
    }
}

impl<O: RequestedOrder> OrderCommand<O> {
    /// Places a new order: decides it now, or delays it by the venue's taker delay.
    fn place(
        &self,
        state: &State,
        given: Given<'_, '_>,
        actor: Actor<'_>,
        market: &OpenMarket<'_, '_>,
        intent: &Intent,
    ) -> Result<Verdict<PlacedSubject>, Rejection> {
        let Given { now, rules, .. } = given;
        let account = actor.known();
        let holdings = account
            .map_or_else(|| Holdings::opened_with(rules.starting_balance), Account::holdings);
        let on = market.side(intent.side);
        let held = holdings.position(on.market, on.outcome);
        let open_orders_max = rules.open_orders_max;
        let taker = Taker { intent, market, holdings: &holdings, held: &held, open_orders_max };
        let checked = taker.check()?;
        let reserve = taker.delayed_reserve(&checked)?;
        let order = state.next_order()?;
        let placement = self.placement(order, actor, on);
        let mut rest = None;
        let event = if let Some(reserve) = reserve {
            let due = now.after_ms(market.quote.taker_delay_ms);
            let delay = Delay::of(intent, reserve, due);
            let terms = checked.terms;
            Event::OrderDelayed(Box::new(OrderDelayed { placement, terms, delay, at: now }))
        } else {
            let decided = taker.decide(&checked, placement, now)?;
            rest = decided.1;
            decided.0
        };
        let mut events = events_before(state, given, actor, &holdings, market);
        // Without a fill log, each finished order counts as one fill, but a delayed order may end
        // without a fill.
        let logs_fills = account.is_some_and(|account| account.fill_log().is_some());
        if matches!(event, Event::OrderDelayed(_)) && !logs_fills {
            events.push(Event::FillLogBegun { account: actor.id() });
        }
        events.push(event);
        Ok(Verdict::Happens(events, PlacedSubject { order, rest }))
    }

    pub(in crate::engine) fn placement(
        &self,
        order: OrderId,
        actor: Actor<'_>,
        on: BookSide,
    ) -> Placement {
        Placement {
            order,
            account: actor.id(),
            market: on.market,
            outcome: on.outcome,
            side: on.side,
            fingerprint: self.fingerprint(),
            names: SmallVec::from_slice(self.names().hashes()),
            client_order_id: self.names().client_order_id().map(Into::into),
        }
    }
}

/// Returns the events that precede a new order: the account is opened or forgets its oldest orders,
/// and a new market is introduced.
fn events_before(
    state: &State,
    given: Given<'_, '_>,
    actor: Actor<'_>,
    holdings: &Holdings<'_>,
    market: &OpenMarket<'_, '_>,
) -> Events {
    let Given { now, rules, .. } = given;
    let mut events = Events::new();
    match actor.known() {
        Some(account) => {
            forget_oldest(state, account, holdings.kept_order_count, rules, &mut events);
        }
        None => events.extend(actor.opening(now, rules)),
    }
    if market.used.is_none() {
        events.push(introduction(market.index, market.quote));
    }
    events
}

impl<'q> Taker<'_, 'q> {
    /// Decides the order on the current book. Returns the event, and the data to keep if the
    /// remainder rests.
    pub(in crate::engine) fn decide(
        &self,
        checked: &Checked<'q>,
        placement: Placement,
        now: Timestamp,
    ) -> Result<(Event, Option<Rest>), Rejection> {
        let taken = self.take(checked)?;
        let &Intent { side, expected_price, max_slippage_bps, .. } = self.intent;
        let quantity = taken.quantity();
        let slippage = Slippage::of(side, quantity, expected_price, &taken.walk);
        let mut slippage_bps = Some(0);
        if quantity > Shares::ZERO {
            slippage.check(expected_price, max_slippage_bps, &taken.walk)?;
            slippage_bps = slippage.reported_bps();
        }
        let cost = Cost::of(side, &taken.walk, self.market.quote.fees);
        let reserve = taken.reserve(side);
        let ledger = cost.charge_with_reserve(side, self.holdings.ledger, reserve.cash)?;
        let position = position_after(self.held, side, quantity, &cost)?;
        let balance = ledger.cash();
        audit(balance, &position)?;
        let rest = taken.rest(self.market.side(side));
        let fill = Fill::of(quantity, &cost, balance, &position, now);
        Ok((event(taken, placement, fill, slippage_bps), rest))
    }
}

/// Returns the position after the part of an order that fills at once.
fn position_after(
    held: &Position,
    side: Side,
    quantity: Shares,
    cost: &Cost,
) -> Result<Position, Rejection> {
    let position = held.after_fill(side, quantity, cost.notional);
    position.ok_or(Rejection::Broken { rule: "a position outgrows its range" })
}

/// Creates the event of a decided order. The most common kind of order, a fill-or-kill market order
/// that was not delayed, gets the shorter event.
fn event(taken: Taken<'_>, placement: Placement, fill: Fill, slippage_bps: Option<u32>) -> Event {
    let Taken { terms, walk, book, end } = taken;
    let levels = walk.fills;
    let book_sequence = book.map_or(0, |book| book.book.sequence);
    let Terms { kind, time_in_force, delayed_ms, .. } = terms;
    if kind == OrderKind::Market && time_in_force == TimeInForce::FillOrKill && delayed_ms == 0 {
        let filled = OrderFilled { placement, fill, levels, book_sequence, slippage_bps };
        return Event::OrderFilled(Box::new(filled));
    }
    Event::OrderPlaced(Box::new(OrderPlaced {
        placement,
        terms,
        fill,
        levels,
        book_sequence,
        slippage_bps,
        end,
    }))
}

impl State {
    /// Returns the id of the next order.
    pub(in crate::engine) fn next_order(&self) -> Result<OrderId, Rejection> {
        OrderId::new(self.shard, self.orders_ever + 1).ok_or(IDS_EXHAUSTED)
    }

    /// Records the book on which an order came to rest, and the sizes that it first took from that
    /// book.
    pub(in crate::engine) fn remember_rest(&mut self, subject: &PlacedSubject) {
        let Some(Rest { on, placed_on, used }) = &subject.rest else { return };
        let slot = self.orders.slot(subject.order).expect("an order that was just placed is kept");
        self.orders.note_placed(slot, *placed_on);
        if let Some(used) = used {
            let account = self.orders[slot].account();
            self.account_mut(account).note_used(*on, used.iter().copied());
        }
    }
}
