//! Placing an order of any kind: the ordered checks, what it takes at once, and whether the rest
//! rests or ends.

use smallvec::SmallVec;

use super::account::{Account, Holdings};
use super::accounts::Actor;
use super::command::{PlaceOrder, TradeOrder};
use super::contradiction::Flaw;
use super::cost::Cost;
use super::decide::{Command, Given, IDS_EXHAUSTED, Verdict};
use super::event::{Event, Events, OrderFilled, OrderPlaced};
use super::fill::{Fill, Placement};
use super::fill_log::LoggedFill;
use super::life::{End, Life, Progress};
use super::markets::{OpenMarket, introduction};
use super::open_orders::{BookSide, BookVersion};
use super::order::{Order, OrderReceipt};
use super::orders::{audit, check_fill, forget_oldest, replayed};
use super::payload::{NewOrder, Plan, Size};
use super::position::Position;
use super::rejection::Rejection;
use super::resting::{UsedLevel, UsedLevels};
use super::slippage::Slippage;
use super::state::State;
use super::terms::{EndReason, OrderKind, Reserve, Terms, TimeInForce};
use crate::ids::{OrderId, Place};
use crate::market::book::Side;
use crate::market::quote::QuotedBook;
use crate::market::walk::Walk;
use crate::money::{Price, Shares, Usd};

/// An order as it was placed, new or replayed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// The order's receipt.
    pub receipt: OrderReceipt,
    /// Whether the order had been placed before, and this changed nothing.
    pub is_replay: bool,
}

/// An order that was placed, and what the shard remembers of its market without journaling it.
#[derive(Clone, PartialEq, Debug)]
pub struct PlacedSubject {
    order: OrderId,
    /// What is remembered of an order that rests.
    rest: Option<Rest>,
}

/// What a shard remembers of an order that came to rest.
#[derive(Clone, PartialEq, Debug)]
struct Rest {
    on: BookSide,
    placed_on: BookVersion,
    /// The displayed sizes that the order has used.
    used: Option<UsedLevels>,
}

impl Command for PlaceOrder {
    type Subject = PlacedSubject;
    type Answer = Placed;

    fn market_id(&self) -> Option<&str> {
        Some(&self.order().market_id)
    }

    /// The order of the checks is part of the API: if several fail, the client gets the first.
    fn decide(
        &self,
        state: &State,
        given: Given<'_, '_>,
    ) -> Result<Verdict<PlacedSubject>, Rejection> {
        let Given { quote, now, rules } = given;
        let order = self.order();
        let fingerprint = self.fingerprint();
        let actor = state.actor(&self.owner)?;
        if let Some(order) = replayed(state, actor.id(), self.names(), fingerprint)? {
            return Ok(Verdict::Already(PlacedSubject { order, rest: None }));
        }
        let plan = order.plan(now).map_err(Rejection::Payload)?;
        let market = OpenMarket::of(state, quote, &order.market_id, &order.outcome)?;
        market.check_tokens(state)?;
        let account = actor.known();
        let holdings = account
            .map_or_else(|| Holdings::opened_with(rules.starting_balance), Account::holdings);
        let held = holdings.position(market.index, market.outcome);
        let taken = match plan {
            Plan::Market { size, cap, is_partial_fine } => {
                take_at_market(order, &market, &holdings, &held, (size, cap, is_partial_fine))?
            }
            Plan::Limit { quantity, price, time_in_force, post_only } => {
                let terms = Terms {
                    kind: OrderKind::Limit,
                    time_in_force,
                    post_only,
                    awaited_book: false,
                    quantity,
                    price: Some(price),
                };
                let limit = (rules.open_orders_max, terms);
                take_within_limit(order, &market, &holdings, &held, limit)?
            }
        };

        let slippage =
            Slippage::of(order.side, taken.quantity(), order.expected_price, &taken.walk);
        if taken.quantity() > Shares::ZERO {
            slippage.check(order.expected_price, order.max_slippage_bps, &taken.walk)?;
        }
        let cost = Cost::of(order.side, &taken.walk, market.quote.fees);
        let reserve = taken.reserve(order.side);
        let ledger = cost.charge_with_reserve(order.side, holdings.ledger, reserve.cash)?;
        let position = held.after_fill(order.side, taken.quantity(), cost.notional);
        let position =
            position.ok_or(Rejection::Broken { rule: "a position outgrows its range" })?;
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
        if market.used.is_none() {
            events.push(introduction(market.index, market.quote));
        }
        let on = BookSide { market: market.index, outcome: market.outcome, side: order.side };
        let rest = taken.rest(on);
        let slippage_bps =
            if taken.quantity() > Shares::ZERO { slippage.reported_bps() } else { Some(0) };
        let fill = Fill {
            quantity: taken.quantity(),
            notional: cost.notional,
            fee: cost.fee,
            fee_rate: cost.fee_rate,
            balance,
            position_shares: position.shares,
            position_cost: position.cost,
            at: now,
        };
        let placement = self.placement(order_id, actor, on);
        events.push(taken.event(placement, fill, slippage_bps));
        Ok(Verdict::Happens(events, PlacedSubject { order: order_id, rest }))
    }

    fn answer(state: &State, subject: PlacedSubject, is_new: bool) -> Placed {
        let order = state.order(subject.order).expect("an order that was just placed is kept");
        Placed { receipt: state.receipt(order), is_replay: !is_new }
    }

    fn remember(state: &mut State, subject: &PlacedSubject) {
        let Some(Rest { on, placed_on, used }) = &subject.rest else { return };
        let slot = state.orders.slot(subject.order);
        let slot = slot.expect("an order that was just placed is kept");
        let priority = state.priority_of(slot);
        state.open.note_placed(priority, *placed_on);
        if let Some(used) = used {
            let account = state.orders[slot].account();
            state.account_mut(account).note_used(*on, used);
        }
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

impl PlaceOrder {
    fn placement(&self, order: OrderId, actor: Actor<'_>, on: BookSide) -> Placement {
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

/// What an order takes when it is placed, and what becomes of the rest.
struct Taken<'q> {
    terms: Terms,
    walk: Walk,
    /// The book; `None` if no fresh one is known, so that nothing could be taken.
    book: Option<QuotedBook<'q>>,
    /// Why the rest ends. `None` if it rests, or if there is none.
    end: Option<EndReason>,
}

impl<'q> Taken<'q> {
    fn new(terms: Terms, walk: Walk, book: QuotedBook<'q>) -> Self {
        let end = match terms.time_in_force {
            _ if walk.shortfall == Shares::ZERO && terms.quantity > Shares::ZERO => None,
            TimeInForce::GoodTilCancelled | TimeInForce::GoodTilDate(_) => None,
            TimeInForce::FillOrKill => Some(EndReason::FokNotFilled),
            TimeInForce::FillAndKill => Some(EndReason::FakNotFilled),
        };
        Self { terms, walk, book: Some(book), end }
    }

    fn quantity(&self) -> Shares {
        self.terms.quantity - self.walk.shortfall
    }

    /// What the rest holds back from its account.
    fn reserve(&self, side: Side) -> Reserve {
        match (self.end, self.terms.price) {
            (None, Some(price)) if self.terms.kind == OrderKind::Limit => {
                Reserve::of(side, price, self.walk.shortfall)
            }
            _ => Reserve::default(),
        }
    }

    /// What is remembered if the rest of the order rests.
    fn rest(&self, on: BookSide) -> Option<Rest> {
        let rests = self.end.is_none() && self.walk.shortfall > Shares::ZERO;
        let book = self.book.filter(|_| rests)?;
        Some(Rest { on, placed_on: BookVersion::of(&book), used: self.used(&book, on.side) })
    }

    /// The levels that the order took before its rest came to rest: all of each, so nothing of what
    /// they display is left for it.
    fn used(&self, book: &QuotedBook<'q>, side: Side) -> Option<UsedLevels> {
        if self.walk.fills.is_empty() {
            return None;
        }
        let used = self.walk.fills.iter().map(|level| UsedLevel {
            price: level.price,
            left: Shares::ZERO,
            grown: book.grown(side, level.price),
            era: book.era(),
        });
        Some(used.collect())
    }

    fn event(self, placement: Placement, fill: Fill, slippage_bps: Option<u32>) -> Event {
        let Self { terms, walk, book, end } = self;
        let levels = walk.fills;
        let book_sequence = book.map_or(0, |book| book.book.sequence);
        let is_simple =
            terms.kind == OrderKind::Market && terms.time_in_force == TimeInForce::FillOrKill;
        if is_simple {
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
}

/// What a market order takes. It never rests.
fn take_at_market<'q>(
    order: &NewOrder,
    market: &OpenMarket<'_, 'q>,
    holdings: &Holdings<'_>,
    held: &Position,
    (size, cap, is_partial_fine): (Size, Option<Price>, bool),
) -> Result<Taken<'q>, Rejection> {
    let book = market.fresh_book().ok_or(Rejection::VenueUnavailable)?;
    let (quantity, is_enough) = match size {
        Size::Quantity(quantity) => (quantity, true),
        Size::Amount(amount) => {
            let affordable = book.liquidity.affordable(amount, cap);
            if affordable.quantity == Shares::ZERO && affordable.is_spent {
                return Err(Rejection::AmountTooSmall { amount });
            }
            // A book of cheap shares may offer more than one order may be for.
            let quantity = affordable.quantity.min(TradeOrder::QUANTITY_MAX);
            (quantity, affordable.is_spent && quantity == affordable.quantity)
        }
    };
    check_quantity(quantity, size)?;
    check_held(order.side, quantity, holdings, held)?;
    let walk = book.liquidity.walk_within(order.side, quantity, cap);
    let is_filled = is_enough && walk.shortfall == Shares::ZERO;
    if !is_partial_fine && !is_filled {
        let available = quantity - walk.shortfall;
        return Err(match (size, cap) {
            (Size::Amount(amount), price) => {
                Rejection::AmountNotSpent { offered: walk.notional.ceil(), amount, price }
            }
            (Size::Quantity(asked), Some(price)) => {
                Rejection::NotFilledWithinPrice { available, asked, price }
            }
            (Size::Quantity(asked), None) => Rejection::InsufficientLiquidity { available, asked },
        });
    }
    let time_in_force =
        if is_partial_fine { TimeInForce::FillAndKill } else { TimeInForce::FillOrKill };
    let terms = Terms {
        kind: OrderKind::Market,
        time_in_force,
        post_only: false,
        awaited_book: false,
        quantity,
        price: cap,
    };
    Ok(Taken::new(terms, walk, book))
}

/// What a limit order takes before its rest comes to rest or ends.
fn take_within_limit<'q>(
    order: &NewOrder,
    market: &OpenMarket<'_, 'q>,
    holdings: &Holdings<'_>,
    held: &Position,
    (open_orders_max, terms): (u32, Terms),
) -> Result<Taken<'q>, Rejection> {
    let (quantity, limit) = (terms.quantity, terms.price.unwrap_or(Price::ZERO));
    check_quantity(quantity, Size::Quantity(quantity))?;
    let tick = market.quote.tick;
    let is_on_grid = limit.micros().checked_rem(tick.micros()) == Some(0);
    if !is_on_grid || limit < tick || limit > tick.complement() || !limit.is_quotable() {
        return Err(Rejection::OffTick { price: limit, tick });
    }
    let quantity_min = market.quote.order_size_min;
    let sells_all = order.side == Side::Sell && quantity == held.shares;
    if quantity < quantity_min && !sells_all {
        return Err(Rejection::BelowMinimum { asked: quantity, quantity_min });
    }
    let book = market.fresh_book();
    if book.is_none() && !terms.time_in_force.may_rest() {
        return Err(Rejection::VenueUnavailable);
    }
    check_held(order.side, quantity, holdings, held)?;
    let may_rest = terms.time_in_force.may_rest();
    if may_rest && holdings.open_order_count() >= open_orders_max as usize {
        return Err(Rejection::OpenOrderLimitExceeded { open_orders_max });
    }
    let Some(book) = book else {
        let walk = Walk::nothing(quantity);
        let terms = Terms { awaited_book: true, ..terms };
        return Ok(Taken { terms, walk, book: None, end: None });
    };
    let walk = book.liquidity.walk_within(order.side, quantity, Some(limit));
    if let Some(best) = walk.fills.first()
        && terms.post_only
    {
        return Err(Rejection::PostOnlyWouldCross { touch: best.price });
    }
    let is_killed = terms.time_in_force == TimeInForce::FillOrKill && walk.shortfall > Shares::ZERO;
    let walk = if is_killed { Walk::nothing(quantity) } else { walk };
    Ok(Taken::new(terms, walk, book))
}

fn check_quantity(quantity: Shares, size: Size) -> Result<(), Rejection> {
    let is_sized = matches!(size, Size::Quantity(_));
    if quantity > TradeOrder::QUANTITY_MAX || is_sized && quantity <= Shares::ZERO {
        return Err(Rejection::Broken { rule: "an order is for no shares, or for too many" });
    }
    Ok(())
}

fn check_held(
    side: Side,
    quantity: Shares,
    holdings: &Holdings<'_>,
    held: &Position,
) -> Result<(), Rejection> {
    let available = holdings.available(held);
    if side == Side::Sell && quantity > available {
        return Err(Rejection::InsufficientPosition { held: available, asked: quantity });
    }
    Ok(())
}

impl State {
    /// Places an order that has a life, with what it took at once.
    pub(super) fn place_new_order(
        &mut self,
        placed: &OrderPlaced,
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        let OrderPlaced { placement, terms, fill, levels, end, .. } = placed;
        let flaw = |flaw| Flaw::order(placement.order, flaw);
        self.take_order_id(placement.order).map_err(flaw)?;
        check_fill(fill, levels).map_err(flaw)?;
        let account = self.check_placement(placement).map_err(flaw)?;
        let life = life_of(terms, fill, *end).map_err(flaw)?;
        let order = Order::placed(placed, position_in_log);
        let order = order.ok_or(flaw("has numbers out of range"))?;
        let slot =
            self.place_order_with_life(order, life).ok_or(flaw("has a name that is used"))?;
        let &Placement { market, outcome, side, .. } = placement;
        let on = BookSide { market, outcome, side };
        let finishes = !life.is_open();
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
        self.open_order(account, slot).map_err(flaw)
    }

    /// Checks what an order that took nothing says about its account.
    fn check_unfilled(&self, account: u32, on: BookSide, fill: &Fill) -> Result<(), &'static str> {
        let account = &self.accounts[account];
        let held = account.position(on.market, on.outcome).copied();
        let held = held.unwrap_or(Position::empty(on.market, on.outcome));
        let is_unchanged = fill.notional == Usd::ZERO
            && fill.fee == Usd::ZERO
            && fill.balance == account.ledger().cash()
            && fill.position_shares == held.shares
            && fill.position_cost == held.cost;
        is_unchanged.then_some(()).ok_or("changes an account without a fill")
    }
}

/// The life of a new order.
fn life_of(terms: &Terms, fill: &Fill, end: Option<EndReason>) -> Result<Life, &'static str> {
    let progress = Progress::default();
    let progress = if fill.quantity > Shares::ZERO {
        progress.after(fill.quantity, fill.notional, fill.fee, fill.at)
    } else {
        Some(progress)
    };
    let life = Life {
        terms: *terms,
        progress: progress.ok_or("has sums out of range")?,
        end: end.map(|reason| End { reason, at: fill.at }),
        awaits_book: terms.awaited_book,
    };
    let is_killed = end.is_none_or(EndReason::is_at_placement);
    let is_new = is_killed && (!life.awaits_book || fill.quantity == Shares::ZERO);
    (is_new && life.is_consistent()).then_some(life).ok_or("has terms that contradict each other")
}
