//! Previewing an order: what it would do if it came now, on the present book and with what its
//! account has. Nothing is written.

use std::sync::Arc;

use crate::engine::account::{Account, Holdings};
use crate::engine::command::{OrderNames, Owner, PlaceOrder};
use crate::engine::decide::{Command, Given, Verdict};
use crate::engine::event::{Event, OrderFilled, OrderPlaced};
use crate::engine::fills::fill::Fill;
use crate::engine::market::table::OpenMarket;
use crate::engine::order::payload::NewOrder;
use crate::engine::order::take::Taker;
use crate::engine::order::terms::{EndReason, OrderStatus, Reserve, Terms};
use crate::engine::rejection::Rejection;
use crate::engine::state::State;
use crate::ids::Place;
use crate::market::book::Side;
use crate::money::{Shares, Usd};

/// Asks what an order would do if it came now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PreviewOrder(PlaceOrder);

/// What an order would do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Preview {
    /// The condition id of the market.
    pub market_id: Arc<str>,
    /// The outcome's label.
    pub outcome: Arc<str>,
    /// Whether it buys or sells.
    pub side: Side,
    /// What it asks for. An order for an amount says how many shares that buys.
    pub terms: Terms,
    /// What it takes at once, and the cash afterwards.
    pub fill: Fill,
    /// How many levels of the book it takes that from.
    pub level_count: usize,
    /// How much worse than the best or the expected price it fills, in basis points.
    pub slippage_bps: Option<u32>,
    /// Why what is left would end; `None` if it rests, or if nothing is left.
    pub end: Option<EndReason>,
    /// What it holds back while it rests.
    pub reserve: Reserve,
    /// The cash that is neither spent nor held back afterwards.
    pub available: Usd,
    /// How long the venue's delay would hold the order before it is decided, on the book of that
    /// moment, in milliseconds.
    pub delay_ms: u32,
}

impl PreviewOrder {
    /// The question for an order of this owner.
    pub fn new(owner: Owner, order: NewOrder) -> Self {
        Self(PlaceOrder::new(owner, order, OrderNames::default()))
    }
}

impl Preview {
    /// What becomes of the order at once.
    pub fn status(&self) -> OrderStatus {
        OrderStatus::of(self.fill.quantity, self.terms.quantity, self.end)
    }

    /// The shares that rest.
    pub fn resting(&self) -> Shares {
        match self.end {
            None => self.terms.quantity - self.fill.quantity,
            Some(_) => Shares::ZERO,
        }
    }
}

impl Command for PreviewOrder {
    type Subject = Preview;
    type Answer = Preview;

    fn market_id(&self) -> Option<&str> {
        self.0.market_id()
    }

    fn decide(&self, state: &State, given: Given<'_, '_>) -> Result<Verdict<Preview>, Rejection> {
        let Given { quote, now, rules } = given;
        let order = self.0.order();
        let actor = state.actor(&self.0.owner)?;
        let intent = order.intent(now).map_err(Rejection::Payload)?;
        let market = OpenMarket::of(state, quote, &order.market_id, &order.outcome)?;
        market.check_tokens(state)?;
        let holdings = actor
            .known()
            .map_or_else(|| Holdings::opened_with(rules.starting_balance), Account::holdings);
        let on = market.side(intent.side);
        let held = holdings.position(on.market, on.outcome);
        let open_orders_max = rules.open_orders_max;
        let taker = Taker {
            intent: &intent,
            market: &market,
            holdings: &holdings,
            held: &held,
            open_orders_max,
        };
        let checked = taker.check()?;
        let is_held = taker.held_reserve(&checked)?.is_some();
        let placement = self.0.placement(state.next_order()?, actor, on);
        let (fill, level_count, slippage_bps, end) = match taker.decide(&checked, placement, now)?.0
        {
            Event::OrderFilled(filled) => {
                let OrderFilled { fill, levels, slippage_bps, .. } = *filled;
                (fill, levels.len(), slippage_bps, None)
            }
            Event::OrderPlaced(placed) => {
                let OrderPlaced { fill, levels, slippage_bps, end, .. } = *placed;
                (fill, levels.len(), slippage_bps, end)
            }
            other => unreachable!("a decided order is filled or placed: {other:?}"),
        };
        let terms = checked.terms;
        // A market order of which something is left has ended.
        let reserve = match (end, terms.price) {
            (None, Some(price)) => Reserve::of(intent.side, price, terms.quantity - fill.quantity),
            _ => Reserve::default(),
        };
        let quote = market.quote;
        Ok(Verdict::Already(Preview {
            market_id: quote.condition_id.clone(),
            outcome: quote.outcomes[on.outcome.index()].label.clone(),
            side: intent.side,
            terms,
            fill,
            level_count,
            slippage_bps,
            end,
            reserve,
            available: fill.balance - holdings.ledger.reserved - reserve.cash,
            delay_ms: if is_held { quote.taker_delay_ms } else { 0 },
        }))
    }

    fn answer(_: &State, preview: Preview, _: bool) -> Preview {
        preview
    }

    fn depends_on(&self, state: &State) -> Place {
        self.0.depends_on(state)
    }

    fn refusal_depends_on(&self, state: &State, rejection: &Rejection) -> Place {
        self.0.refusal_depends_on(state, rejection)
    }
}
