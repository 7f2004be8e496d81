//! Deciding a market order: the ladder of refusals, then the fill.

use smallvec::SmallVec;

use super::account::{Account, Holdings, Ledger};
use super::command::{OrderNames, Trade, TradeOrder};
use super::event::{Event, Events, OrderFilled};
use super::fee::level_fee;
use super::idempotency::Fingerprint;
use super::position::Position;
use super::rejection::Rejection;
use super::{IDS_EXHAUSTED, Rules, State, Verdict};
use crate::ids::{AccountId, MarketIndex, OrderId, Timestamp};
use crate::market::book::Side;
use crate::market::catalogue::{Fees, MarketStatus};
use crate::market::quote::Quote;
use crate::market::walk::Walk;
use crate::money::{FeeRate, Notional, Price, Shares, Usd, div_ceil};

/// Every trade forgets at most so many orders of its account: the work of a command is bounded, and
/// still an account that keeps too many, since the operator now allows fewer, comes to keep fewer.
const FORGOTTEN_PER_TRADE_MAX: usize = 2;

/// What follows from a market order. The refusals come in the order in which the interface
/// promises them: of several reasons, a client is told the first.
pub(super) fn decide(
    state: &State,
    trade: &Trade,
    quote: Option<&Quote<'_>>,
    now: Timestamp,
    rules: &Rules,
) -> Result<Verdict, Rejection> {
    let order = trade.order();
    if order.quantity <= Shares::ZERO || order.quantity > TradeOrder::QUANTITY_MAX {
        return Err(Rejection::Broken { rule: "an order is for no shares, or for too many" });
    }
    let fingerprint = trade.fingerprint();
    let actor = state.actor(&trade.owner)?;
    let account = actor.known();
    let holdings =
        account.map_or_else(|| Holdings::opened_with(rules.starting_balance), Account::holdings);
    if let Some(earlier) = replayed(state, actor.id(), trade.names(), fingerprint)? {
        return Ok(Verdict::Replay(earlier));
    }

    let used = state.market_of.get(&*order.market_id).copied();
    if used.is_some_and(|market| state.settled.contains_key(&market)) {
        return Err(Rejection::MarketClosed { status: MarketStatus::Resolved });
    }
    let Some(quote) = quote else {
        return Err(Rejection::MarketNotFound { market_id: order.market_id.clone() });
    };
    debug_assert_eq!(**quote.condition_id, *order.market_id, "the market that the order names");
    let Some(outcome) = quote.outcome(&order.outcome) else {
        return Err(outcome_not_found(quote, order));
    };
    if !quote.status.is_tradable() {
        return Err(Rejection::MarketClosed { status: quote.status });
    }
    if quote.fees == Fees::Unsupported {
        return Err(Rejection::FeesUnsupported);
    }
    let Some(quoted) = quote.book(outcome).filter(|quoted| !quoted.book.stale) else {
        return Err(Rejection::VenueUnavailable);
    };

    if let Some(used) = used
        && !state.used_market(used).is_still(quote.outcomes)
    {
        return Err(Rejection::MarketChanged);
    }

    let index = used.unwrap_or_else(|| next_market(state));
    let held = holdings.position(index, outcome);
    if order.side == Side::Sell && order.quantity > held.shares {
        return Err(Rejection::InsufficientPosition { held: held.shares, asked: order.quantity });
    }
    let walk = quoted.liquidity.walk(order.side, order.quantity);
    if walk.shortfall > Shares::ZERO {
        let available = order.quantity - walk.shortfall;
        return Err(Rejection::InsufficientLiquidity { available, asked: order.quantity });
    }
    let slippage = Slippage::of(order, &walk);
    slippage.check(order, &walk)?;
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
            let kept_max = rules.kept_orders_max.max(1) as usize;
            let excess = (holdings.kept_order_count + 1).saturating_sub(kept_max);
            if excess > 0 {
                forget_oldest(state, account, excess, &mut events);
            }
        }
        None => events.extend(actor.opening(now, rules)),
    }
    if used.is_none() {
        events.push(introduction(index, quote));
    }
    events.push(Event::OrderFilled(Box::new(OrderFilled {
        order: order_id,
        account: actor.id(),
        market: index,
        outcome,
        side: order.side,
        levels: walk.fills,
        book_sequence: quoted.book.sequence,
        quantity: order.quantity,
        notional: cost.notional,
        fee: cost.fee,
        fee_rate: cost.fee_rate,
        balance,
        position_shares: position.shares,
        position_cost: position.cost,
        slippage_bps: slippage.reported_bps(),
        fingerprint,
        names: SmallVec::from_slice(trade.names().hashes()),
        client_order_id: trade.names().client_order_id().map(Into::into),
        at: now,
    })));
    Ok(Verdict::Happens(events))
}

/// Adds the orders that the account forgets when it gets another one: its oldest, as many as it
/// would keep too many.
fn forget_oldest(state: &State, account: &Account, excess: usize, events: &mut Events) {
    for slot in account.orders().take(excess.min(FORGOTTEN_PER_TRADE_MAX)) {
        events.push(Event::OrderForgotten { order: state.orders[slot].id() });
    }
}

/// The earlier order that the request's names stand for, if it is the same request.
fn replayed(
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

fn outcome_not_found(quote: &Quote<'_>, order: &TradeOrder) -> Rejection {
    Rejection::OutcomeNotFound {
        outcome: order.outcome.clone(),
        labels: quote.outcomes.iter().map(|outcome| outcome.label.clone()).collect(),
    }
}

fn next_market(state: &State) -> MarketIndex {
    MarketIndex(u32::try_from(state.markets.len()).expect("fewer markets than a u32 counts"))
}

fn introduction(index: MarketIndex, quote: &Quote<'_>) -> Event {
    Event::MarketIntroduced {
        index,
        condition_id: quote.condition_id.clone(),
        outcomes: quote
            .outcomes
            .iter()
            .map(|outcome| (outcome.label.clone(), outcome.token_id.clone()))
            .collect(),
    }
}

/// The adverse difference between what a fill costs and what it would cost at the reference price,
/// both exact, in 10⁻¹² dollars.
struct Slippage {
    reference: Option<Price>,
    adverse: i128,
    at_reference: i128,
}

impl Slippage {
    fn of(order: &TradeOrder, walk: &Walk) -> Self {
        let touch = walk.fills.first().map(|level| level.price);
        let reference = order.expected_price.or(touch);
        let at_reference = Notional::of(reference.unwrap_or(Price::ZERO), order.quantity).picos();
        let difference = walk.notional.picos() - at_reference;
        let adverse = match order.side {
            Side::Buy => difference,
            Side::Sell => -difference,
        };
        Self { reference, adverse, at_reference }
    }

    /// Refuses what is strictly worse than the bound. There is none when the caller named neither a
    /// price nor a bound. A reference of 0 refuses every purchase: any price is infinitely worse.
    fn check(&self, order: &TradeOrder, walk: &Walk) -> Result<(), Rejection> {
        let bound = match (order.max_slippage_bps, order.expected_price) {
            (Some(bound), _) => bound,
            (None, Some(_)) => TradeOrder::MAX_SLIPPAGE_BPS_DEFAULT,
            (None, None) => return Ok(()),
        };
        let Some(reference) = self.reference else {
            return Ok(());
        };
        if self.adverse > 0
            && self.adverse_in_bps() > self.at_reference.wrapping_mul(i128::from(bound))
        {
            let average = walk.notional.floor().per_share(order.quantity);
            return Err(Rejection::SlippageExceeded {
                price: average.unwrap_or(Price::ZERO),
                reference,
                max_slippage_bps: bound,
            });
        }
        Ok(())
    }

    /// The slippage in whole basis points, rounded up, for people; 0 when the fill was no worse.
    fn reported_bps(&self) -> Option<u32> {
        if self.at_reference == 0 {
            return None;
        }
        if self.adverse <= 0 {
            return Some(0);
        }
        let bps = div_ceil(self.adverse_in_bps(), self.at_reference);
        Some(u32::try_from(bps).unwrap_or(u32::MAX))
    }

    /// The difference × 10,000. An order is for less than 2⁴⁰ micro-shares at prices below 2⁶³, so
    /// that neither this nor a bound × the reference leaves its range.
    fn adverse_in_bps(&self) -> i128 {
        self.adverse.wrapping_mul(10_000)
    }
}

/// What a fill costs or brings.
struct Cost {
    notional: Usd,
    fee: Usd,
    fee_rate: FeeRate,
}

impl Cost {
    fn of(side: Side, walk: &Walk, fees: Fees) -> Self {
        let notional = match side {
            Side::Buy => walk.notional.ceil(),
            Side::Sell => walk.notional.floor(),
        };
        let (fee, fee_rate) = match fees {
            Fees::Curve(curve) => {
                (walk.fills.iter().map(|&fill| level_fee(curve, fill)).sum(), curve.rate)
            }
            Fees::Free | Fees::Unsupported => (Usd::ZERO, FeeRate::ZERO),
        };
        Self { notional, fee, fee_rate }
    }

    /// The ledger afterwards. A sale can be refused too: of a few micro-dollars, its fee may be
    /// more than its proceeds.
    fn charge(&self, side: Side, ledger: Ledger) -> Result<Ledger, Rejection> {
        let available = ledger.cash();
        let broken = || Rejection::Broken { rule: "an account's sums outgrow their range" };
        let needed = match side {
            Side::Buy => self.notional.checked_add(self.fee),
            Side::Sell => self.fee.checked_sub(self.notional),
        }
        .ok_or_else(broken)?;
        if needed > available {
            return Err(Rejection::InsufficientBalance { needed, available });
        }
        ledger.after_fill(side, self.notional, self.fee).ok_or_else(broken)
    }
}

/// What must never be, checked before anything changes.
fn audit(balance: Usd, position: &Position) -> Result<(), Rejection> {
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
