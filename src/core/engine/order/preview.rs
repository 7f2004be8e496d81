//! Order previews: the result of an order if it were placed now, on the current book and with the
//! account's current holdings. Nothing is written.

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
use crate::ids::Lsn;
use crate::market::book::Side;
use crate::money::{Shares, Usd};

/// Previews an order as if it were placed now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PreviewOrder(PlaceOrder);

/// The result that an order would have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Preview {
    /// The condition id of the market.
    pub market_id: Arc<str>,
    /// The outcome's label.
    pub outcome: Arc<str>,
    /// Buy or sell.
    pub side: Side,
    /// The order's terms. For an order by amount, the quantity is what the amount buys.
    pub terms: Terms,
    /// The immediate fill, and the account's cash after it.
    pub fill: Fill,
    /// The number of book levels that the fill takes from.
    pub level_count: usize,
    /// The slippage from the expected price, or else from the best price, in whole basis points
    /// rounded up; `None` if there is no such price or it is 0.
    pub slippage_bps: Option<u32>,
    /// Why the remainder would end; `None` if it rests or if nothing remains.
    pub end: Option<EndReason>,
    /// The cash or shares that the resting remainder reserves.
    pub reserve: Reserve,
    /// The cash that is neither spent nor reserved after the order.
    pub available: Usd,
    /// How long the venue's taker delay would hold the order before it is decided, in milliseconds.
    /// The decision would then use the book at that time.
    pub delay_ms: u32,
}

impl PreviewOrder {
    /// Creates the preview of an order for this owner.
    pub fn new(owner: Owner, order: NewOrder) -> Self {
        Self(PlaceOrder::new(owner, order, OrderNames::default()))
    }
}

impl Preview {
    /// Returns the status that the order would have right after its placement.
    pub fn status(&self) -> OrderStatus {
        OrderStatus::of(self.fill.quantity, self.terms.quantity, self.end)
    }

    /// Returns the number of shares that would rest.
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
        let is_delayed = taker.delayed_reserve(&checked)?.is_some();
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
        // A market order with a remainder has ended, so only a limit order reserves anything here.
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
            delay_ms: if is_delayed { quote.taker_delay_ms } else { 0 },
        }))
    }

    fn answer(_: &State, preview: Preview, _: bool) -> Preview {
        preview
    }

    fn depends_on(&self, state: &State) -> Lsn {
        self.0.depends_on(state)
    }

    fn refusal_depends_on(&self, state: &State, rejection: &Rejection) -> Lsn {
        self.0.refusal_depends_on(state, rejection)
    }
}
