//! Taking from the book: the ordered checks, the walk, and whether the remainder rests or ends.

use crate::engine::account::Holdings;
use crate::engine::account::extension::{NotedLevel, Seen, UsedLevel, UsedLevels};
use crate::engine::account::position::Position;
use crate::engine::command::TradeOrder;
use crate::engine::market::table::OpenMarket;
use crate::engine::order::cost::Cost;
use crate::engine::order::open::{BookSide, BookVersion};
use crate::engine::order::payload::Intent;
use crate::engine::order::terms::{
    EndReason, OrderKind, Reserve, Terms, TimeInForce, resting_notional,
};
use crate::engine::rejection::Rejection;
use crate::market::book::Side;
use crate::market::quote::QuotedBook;
use crate::market::walk::Walk;
use crate::money::{Price, Shares, Usd};

/// An order that is being decided, with its market and its account's holdings.
pub(in crate::engine) struct Taker<'a, 'q> {
    pub(in crate::engine) intent: &'a Intent,
    pub(in crate::engine) market: &'a OpenMarket<'a, 'q>,
    pub(in crate::engine) holdings: &'a Holdings<'a>,
    /// The account's position in the outcome.
    pub(in crate::engine) held: &'a Position,
    /// The maximum number of open orders the account may have.
    pub(in crate::engine) open_orders_max: u32,
}

/// An order that has passed every check before the walk over the book.
pub(in crate::engine) struct Checked<'q> {
    /// The terms. For an order by amount, the quantity is what the amount buys.
    pub(in crate::engine) terms: Terms,
    /// The book; `None` if there is no fresh book, so that nothing can be taken.
    book: Option<QuotedBook<'q>>,
    /// Whether the quantity spends the whole amount; true for an order by quantity.
    is_whole: bool,
}

/// The part of an order that fills when the order is decided, and the end of the remainder.
pub(in crate::engine) struct Taken<'q> {
    pub(in crate::engine) terms: Terms,
    pub(in crate::engine) walk: Walk,
    /// The book; `None` if there was no fresh book, so that nothing could be taken.
    pub(in crate::engine) book: Option<QuotedBook<'q>>,
    /// Why the remainder ends; `None` if it rests or if nothing remains.
    pub(in crate::engine) end: Option<EndReason>,
}

/// The data that a shard keeps about an order that came to rest. It is not journaled.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::engine) struct Rest {
    pub(in crate::engine) on: BookSide,
    pub(in crate::engine) placed_on: BookVersion,
    /// The displayed levels that the order has taken from.
    pub(in crate::engine) used: Option<UsedLevels>,
}

impl<'q> Taker<'_, 'q> {
    /// Runs the checks, the last of which is the limit on open orders. The order of the checks is
    /// part of the API: if several checks fail, the client gets the rejection of the first.
    pub(in crate::engine) fn check(&self) -> Result<Checked<'q>, Rejection> {
        match self.intent.terms.kind {
            OrderKind::Market => self.check_market(),
            OrderKind::Limit => self.check_limit(),
        }
    }

    fn check_market(&self) -> Result<Checked<'q>, Rejection> {
        let terms = self.intent.terms;
        let book = self.market.fresh_book().ok_or_else(|| self.market.without_book())?;
        let (quantity, is_whole) = match self.intent.amount {
            None => (checked_quantity(terms.quantity)?, true),
            Some(amount) => {
                let affordable = book.liquidity.affordable(amount, terms.price);
                if affordable.quantity == Shares::ZERO && affordable.is_spent {
                    return Err(Rejection::AmountTooSmall { amount });
                }
                // A book of cheap shares may offer more than the maximum quantity of an order.
                let quantity = affordable.quantity.min(TradeOrder::QUANTITY_MAX);
                (quantity, affordable.is_spent && quantity == affordable.quantity)
            }
        };
        self.check_held(quantity)?;
        Ok(Checked { terms: Terms { quantity, ..terms }, book: Some(book), is_whole })
    }

    fn check_limit(&self) -> Result<Checked<'q>, Rejection> {
        let terms = self.intent.terms;
        let limit = terms.price.unwrap_or(Price::ZERO);
        let quantity = checked_quantity(terms.quantity)?;
        let tick = self.market.quote.tick;
        let is_on_grid = limit.micros().checked_rem(tick.micros()) == Some(0);
        if !is_on_grid || limit < tick || limit > tick.complement() || !limit.is_quotable() {
            return Err(Rejection::OffTick { price: limit, tick });
        }
        let quantity_min = self.market.quote.order_size_min;
        let sells_all = self.intent.side == Side::Sell && quantity == self.held.shares;
        if quantity < quantity_min && !sells_all {
            return Err(Rejection::BelowMinimum { asked: quantity, quantity_min });
        }
        let book = self.market.fresh_book();
        let may_rest = terms.time_in_force.may_rest();
        if book.is_none() && !may_rest {
            return Err(self.market.without_book());
        }
        self.check_held(quantity)?;
        if may_rest {
            self.check_open_orders()?;
        }
        let terms = Terms { awaited_book: book.is_none(), ..terms };
        Ok(Checked { terms, book, is_whole: true })
    }

    fn check_held(&self, quantity: Shares) -> Result<(), Rejection> {
        let available = self.holdings.available(self.held);
        if self.intent.side == Side::Sell && quantity > available {
            return Err(Rejection::InsufficientPosition { available, asked: quantity });
        }
        Ok(())
    }

    fn check_open_orders(&self) -> Result<(), Rejection> {
        let open_orders_max = self.open_orders_max;
        if self.holdings.open_order_count() >= open_orders_max as usize {
            return Err(Rejection::OpenOrderLimitExceeded { open_orders_max });
        }
        Ok(())
    }

    /// Returns the order's reserve while the venue's taker delay holds it. `None` if the order is
    /// not delayed, because it is post-only or cannot fill now, or because the market has no delay.
    /// A purchase reserves its amount; without an amount, its notional at its price; without a
    /// price, the cost of the walk. The fee of the walk is added.
    pub(in crate::engine) fn delayed_reserve(
        &self,
        checked: &Checked<'q>,
    ) -> Result<Option<Reserve>, Rejection> {
        let Terms { post_only, quantity, price, .. } = checked.terms;
        let Some(book) = checked.book.filter(|_| self.market.quote.taker_delay_ms > 0) else {
            return Ok(None);
        };
        let side = self.intent.side;
        let walk = book.liquidity.walk_within(side, quantity, price);
        if post_only || walk.fills.is_empty() {
            return Ok(None);
        }
        self.check_open_orders()?;
        if side == Side::Sell {
            return Ok(Some(Reserve { shares: quantity, cash: Usd::ZERO }));
        }
        let cost = Cost::of(side, &walk, self.market.quote.fees);
        let at_price = price.map(|price| resting_notional(side, price, quantity));
        let notional = self.intent.amount.or(at_price).unwrap_or(cost.notional);
        let broken = Rejection::Broken { rule: "an order costs more than there can be" };
        let needed = notional.checked_add(cost.fee).ok_or(broken)?;
        let available = self.holdings.ledger.available();
        if needed > available {
            return Err(Rejection::InsufficientBalance { needed, available });
        }
        Ok(Some(Reserve { cash: needed, shares: Shares::ZERO }))
    }

    /// Walks the book and returns the part that the order takes.
    pub(in crate::engine) fn take(&self, checked: &Checked<'q>) -> Result<Taken<'q>, Rejection> {
        let &Checked { terms, book, is_whole } = checked;
        let Terms { quantity, price, time_in_force, .. } = terms;
        let Some(book) = book else {
            return Ok(Taken { terms, walk: Walk::nothing(quantity), book: None, end: None });
        };
        let walk = book.liquidity.walk_within(self.intent.side, quantity, price);
        if let Some(best) = walk.fills.first()
            && terms.post_only
        {
            return Err(Rejection::PostOnlyWouldCross { touch: best.price });
        }
        let is_filled = is_whole && walk.shortfall == Shares::ZERO;
        if is_filled || time_in_force != TimeInForce::FillOrKill {
            return Ok(Taken::new(terms, walk, book));
        }
        match terms.kind {
            OrderKind::Limit => Ok(Taken::new(terms, Walk::nothing(quantity), book)),
            OrderKind::Market => Err(self.not_filled(quantity, &walk)),
        }
    }

    /// Returns the rejection of a market order that must fill completely but cannot.
    fn not_filled(&self, asked: Shares, walk: &Walk) -> Rejection {
        let available = asked - walk.shortfall;
        match (self.intent.amount, self.intent.terms.price) {
            (Some(amount), price) => {
                Rejection::AmountNotSpent { offered: walk.notional.ceil(), amount, price }
            }
            (None, Some(price)) => Rejection::NotFilledWithinPrice { available, asked, price },
            (None, None) => Rejection::InsufficientLiquidity { available, asked },
        }
    }
}

/// Checks the quantity of a request. Requests are validated earlier, so a failure is a bug.
pub(in crate::engine) fn checked_quantity(quantity: Shares) -> Result<Shares, Rejection> {
    if quantity <= Shares::ZERO || quantity > TradeOrder::QUANTITY_MAX {
        return Err(Rejection::Broken { rule: "an order is for no shares, or for too many" });
    }
    Ok(quantity)
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

    pub(in crate::engine) fn quantity(&self) -> Shares {
        self.terms.quantity - self.walk.shortfall
    }

    /// Returns the cash or shares that the resting remainder reserves.
    pub(in crate::engine) fn reserve(&self, side: Side) -> Reserve {
        match (self.end, self.terms.price) {
            (None, Some(price)) if self.terms.kind == OrderKind::Limit => {
                Reserve::of(side, price, self.walk.shortfall)
            }
            _ => Reserve::default(),
        }
    }

    /// Returns the data to keep if the remainder rests.
    pub(in crate::engine) fn rest(&self, on: BookSide) -> Option<Rest> {
        let rests = self.end.is_none() && self.walk.shortfall > Shares::ZERO;
        let book = self.book.filter(|_| rests)?;
        Some(Rest { on, placed_on: BookVersion::of(&book), used: self.used(&book, on.side) })
    }

    /// Returns the levels that the order took before its remainder came to rest. The order took all
    /// of each level, so none of the displayed size is left for it.
    fn used(&self, book: &QuotedBook<'q>, side: Side) -> Option<UsedLevels> {
        if self.walk.fills.is_empty() {
            return None;
        }
        let used = self.walk.fills.iter().map(|level| NotedLevel {
            level: UsedLevel::whole(level),
            seen: Some(Seen { grown: book.grown(side, level.price), era: book.era() }),
        });
        Some(used.collect())
    }
}
