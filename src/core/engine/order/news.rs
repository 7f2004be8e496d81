//! What records say about the orders of some accounts, for those who follow these accounts.
//!
//! An event names an order and what changed. News show the whole order and the fill, as they were
//! right after the event, although the state may be ahead of it by then.

use std::sync::Arc;

use crate::engine::event::{Event, FillUndone, OrderDelayed, OrderPlaced, RestingFilled};
use crate::engine::fills::fill::{Fill, Placement};
use crate::engine::fills::log::LoggedFill;
use crate::engine::order::order_state::{OrderState, Progress};
use crate::engine::order::placed::order_state_of;
use crate::engine::order::receipt::{Order, OrderReceipt};
use crate::engine::state::State;
use crate::engine::state::view::{ListedOrder, Observed};
use crate::ids::{AccountId, Lsn, OrderId, Timestamp};
use crate::money::{FeeRate, Shares, Usd};

/// The maximum number of an account's fills since an event that are searched for that of the event.
const FILLS_SEARCHED_MAX: usize = 10_000;

/// News of an account that is followed.
#[derive(Clone, PartialEq, Debug)]
pub enum News {
    /// Something happened to an order.
    Order(Box<OrderNews>),
    /// A delayed order was rejected and removed. Whose it was is no longer known.
    Dropped(OrderId),
    /// Something happened to an order that is no longer kept, or to one whose account has had too
    /// many fills since. Whose it was may not be known.
    Lost,
}

/// What happened to an order.
#[derive(Clone, PartialEq, Debug)]
pub struct OrderNews {
    /// What kind of thing happened.
    pub step: OrderStep,
    /// The order, as it was right after. With a fill that was undone, as it is by now.
    pub listed: ListedOrder,
    /// The fill, if the order filled or if its fill was undone.
    pub fill: Option<NewFill>,
    /// When it happened.
    pub at: Timestamp,
}

/// A fill of an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewFill {
    /// The fill's number within the order, from 1.
    pub part: u32,
    /// The fill.
    pub fill: Fill,
    /// Whether the fill took liquidity, as [`PastFill`](crate::engine::fills::PastFill) tells it.
    pub is_taker: bool,
}

/// A step in the life of an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrderStep {
    /// The order was placed. It may have filled, too.
    Placed,
    /// The order filled, or its delay is over.
    Updated,
    /// The order ended before it filled completely.
    Ended,
    /// A fill of the order was undone. The order itself is unchanged.
    FillUndone,
}

impl State {
    /// Returns the number of the shard's newest record that this account may depend on. When the
    /// result is disclosed, that record is durable.
    pub fn observe_sequence(&self, account: AccountId) -> Observed<u64> {
        Observed { value: self.sequence(), lsn: self.account_lsn(account) }
    }

    /// Returns what the events say about the orders of accounts that are followed, in their order,
    /// each with the number of its record. The events must have been applied.
    pub fn observe_news<'e>(
        &self,
        events: impl Iterator<Item = (u64, &'e Event)>,
        is_followed: impl Fn(AccountId) -> bool,
    ) -> Observed<Vec<(u64, News)>> {
        let mut lsn = Lsn::START;
        let mut all = Vec::new();
        for (sequence, event) in events {
            let Some(news) = self.news(event, &is_followed) else { continue };
            if let News::Order(news) = &news {
                // Every record that changes an order also changes its account.
                lsn = lsn.max(self.account_lsn(news.listed.receipt.account));
            }
            all.push((sequence, news));
        }
        Observed { value: all, lsn }
    }

    fn news(&self, event: &Event, is_followed: &impl Fn(AccountId) -> bool) -> Option<News> {
        let found = match event {
            Event::OrderFilled(filled) if is_followed(filled.placement.account) => {
                let listed = self.listed_at_placement(&filled.placement, filled.fill, None);
                Some(placed(OrderStep::Placed, listed))
            }
            Event::OrderPlaced(placed) if is_followed(placed.placement.account) => {
                Some(self.placed_with_state(placed))
            }
            Event::OrderDelayed(delayed) if is_followed(delayed.placement.account) => {
                Some(self.delayed(delayed))
            }
            Event::RestingFilled(filled) => {
                let Some(order) = self.order(filled.order) else { return Some(News::Lost) };
                if !is_followed(order.account()) {
                    return None;
                }
                self.filled_later(order, filled)
            }
            Event::OrderEnded { order, at, .. } => {
                let Some(order) = self.order(*order) else { return Some(News::Lost) };
                if !is_followed(order.account()) {
                    return None;
                }
                // An order that has ended never changes.
                Some(OrderNews {
                    step: OrderStep::Ended,
                    listed: self.listed(order),
                    fill: None,
                    at: *at,
                })
            }
            Event::FillUndone(undone) if is_followed(undone.account) => self.undone(undone),
            Event::DelayedOrderDropped { order } => return Some(News::Dropped(*order)),
            _ => return None,
        };
        Some(found.map_or(News::Lost, |news| News::Order(Box::new(news))))
    }

    fn placed_with_state(&self, event: &OrderPlaced) -> OrderNews {
        let OrderPlaced { placement, terms, fill, end, .. } = event;
        let state = order_state_of(terms, fill, *end).expect("the event was applied");
        let step = match end {
            Some(_) if fill.quantity == Shares::ZERO => OrderStep::Ended,
            _ if terms.delayed_ms > 0 => OrderStep::Updated,
            _ => OrderStep::Placed,
        };
        placed(step, self.listed_at_placement(placement, *fill, Some(state)))
    }

    fn delayed(&self, delayed: &OrderDelayed) -> OrderNews {
        let OrderDelayed { placement, terms, delay: _, at } = delayed;
        let state = OrderState {
            terms: *terms,
            progress: Progress::default(),
            end: None,
            awaits_book: false,
            is_delayed: true,
        };
        // Nobody is shown what the account has after a fill of nothing.
        let fill = Fill {
            quantity: Shares::ZERO,
            notional: Usd::ZERO,
            fee: Usd::ZERO,
            fee_rate: FeeRate::ZERO,
            balance: Usd::ZERO,
            position_shares: Shares::ZERO,
            position_cost: Usd::ZERO,
            at: *at,
        };
        let listed = self.listed_at_placement(placement, fill, Some(state));
        OrderNews { step: OrderStep::Placed, listed, fill: None, at: *at }
    }

    /// Returns the news of a fill of an open order; `None` if the fill is not found.
    fn filled_later(&self, order: &Order, filled: &RestingFilled) -> Option<OrderNews> {
        let account = self.account(order.account())?;
        let mut listed = self.listed(order);
        let state = listed.receipt.order_state.as_deref_mut()?;
        // What the order has filled since is taken off again.
        let progress = &mut state.progress;
        let fills = self.newest_fills(account).take(FILLS_SEARCHED_MAX);
        let mut fills = fills.filter(|fill| fill.order == order.id());
        let part = loop {
            let LoggedFill { part, fill, .. } = fills.next()?;
            if fill == filled.fill {
                break part;
            }
            progress.filled -= fill.quantity;
            progress.notional -= fill.notional;
            progress.fee -= fill.fee;
            progress.fill_count -= 1;
        };
        progress.filled_at = filled.fill.at;
        state.end = None;
        state.awaits_book = false;
        let fill = Some(new_fill(order, part, filled.fill));
        Some(OrderNews { step: OrderStep::Updated, listed, fill, at: filled.fill.at })
    }

    /// Returns the news of a fill that was undone; `None` if the order or the fill is not kept.
    fn undone(&self, undone: &FillUndone) -> Option<OrderNews> {
        let account = self.account(undone.account)?;
        let order = self.order(undone.order)?;
        if undone.number < account.oldest_fill() {
            return None;
        }
        let LoggedFill { part, fill, .. } = self.kept_fill(account, undone.number);
        Some(OrderNews {
            step: OrderStep::FillUndone,
            listed: self.listed(order),
            fill: Some(new_fill(order, part, fill)),
            at: undone.at,
        })
    }

    fn listed_at_placement(
        &self,
        placement: &Placement,
        fill: Fill,
        state: Option<OrderState>,
    ) -> ListedOrder {
        let market = self.used_market(placement.market);
        let receipt = OrderReceipt {
            order: placement.order,
            account: placement.account,
            market_id: market.condition_id.clone(),
            outcome: market.label(placement.outcome),
            side: placement.side,
            fill,
            level_count: 0,
            slippage_bps: None,
            client_order_id: placement.client_order_id.clone(),
            order_state: state.map(Box::new),
        };
        ListedOrder { receipt, token_id: Arc::clone(market.token(placement.outcome)) }
    }
}

fn new_fill(order: &Order, part: u32, fill: Fill) -> NewFill {
    let is_at_placement = part == 1 && order.placed_at() == fill.at;
    NewFill { part, fill, is_taker: is_at_placement || fill.fee_rate > FeeRate::ZERO }
}

/// Returns the news of an order that was placed, with its fill if it has one.
fn placed(step: OrderStep, listed: ListedOrder) -> OrderNews {
    let fill = listed.receipt.fill;
    let new = NewFill { part: 1, fill, is_taker: true };
    let has_filled = fill.quantity > Shares::ZERO;
    OrderNews { step, listed, fill: has_filled.then_some(new), at: fill.at }
}

#[cfg(test)]
mod tests;
