//! An order at one moment of its life, in the API's terms.

use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use paperbourse_core::engine::order::order_state::{End, Progress};
use paperbourse_core::engine::order::receipt::OrderReceipt;
use paperbourse_core::engine::order::terms::{OrderKind, OrderStatus, TimeInForce};
use paperbourse_core::ids::{OrderId, Timestamp};
use paperbourse_core::market::book::Side;
use paperbourse_core::money::{Price, Shares, Usd};
use paperbourse_core::wire::Decimal;

/// Maximum number of an order's fills that an answer names.
const TRADE_IDS_MAX: u32 = 100;

/// The hold reason of an order that waits for a book known to be fresh.
const VENUE_OUTAGE: &str = "venue_outage";

/// The hold reason of an order that waits until the venue's delay has passed.
const VENUE_DELAY: &str = "venue_delay";

/// An order as it was placed, or as it is now.
pub(crate) struct Stage<'a> {
    receipt: &'a OrderReceipt,
    progress: Progress,
    end: Option<End>,
    hold_reason: Option<&'static str>,
}

impl<'a> Stage<'a> {
    /// Shows the order as it was placed. This uses only facts that never change, so that the answer
    /// to a repeated request repeats the first answer, whatever has happened to the order since.
    pub(crate) fn at_placement(receipt: &'a OrderReceipt) -> Self {
        let fill = &receipt.fill;
        let progress = if fill.quantity > Shares::ZERO {
            Progress {
                filled: fill.quantity,
                notional: fill.notional,
                fee: fill.fee,
                fill_count: 1,
                filled_at: fill.at,
            }
        } else {
            Progress::default()
        };
        let order_state = receipt.order_state.as_deref();
        Self {
            receipt,
            progress,
            // If an order ended while it was delayed, its first answer was sent only after it
            // ended.
            end: order_state.and_then(|order_state| {
                order_state.end.filter(|end| order_state.is_delayed || end.reason.is_at_placement())
            }),
            hold_reason: order_state
                .filter(|order_state| order_state.terms.awaited_book)
                .map(|_| VENUE_OUTAGE),
        }
    }

    /// Shows the order in its current state.
    pub(crate) fn now(receipt: &'a OrderReceipt) -> Self {
        match receipt.order_state.as_deref() {
            Some(order_state) => Self {
                receipt,
                progress: order_state.progress,
                end: order_state.end,
                hold_reason: match (order_state.awaits_book, order_state.is_delayed) {
                    (true, _) => Some(VENUE_OUTAGE),
                    (_, true) => Some(VENUE_DELAY),
                    _ => None,
                },
            },
            None => Self::at_placement(receipt),
        }
    }

    pub(crate) fn status(&self) -> OrderStatus {
        OrderStatus::of(self.progress.filled, self.asked(), self.end.map(|end| end.reason))
    }

    pub(crate) fn kind(&self) -> OrderKind {
        self.receipt
            .order_state
            .as_ref()
            .map_or(OrderKind::Market, |order_state| order_state.terms.kind)
    }

    pub(crate) fn time_in_force(&self) -> TimeInForce {
        let order_state = self.receipt.order_state.as_ref();
        order_state.map_or(TimeInForce::FillOrKill, |order_state| order_state.terms.time_in_force)
    }

    /// Returns the price of a limit order.
    pub(crate) fn limit_price(&self) -> Option<Price> {
        self.worst_price().filter(|_| self.kind() == OrderKind::Limit)
    }

    /// Returns the worst price that the order accepts, if it has one.
    pub(crate) fn worst_price(&self) -> Option<Price> {
        self.receipt.order_state.as_ref().and_then(|order_state| order_state.terms.price)
    }

    /// Returns the average price of the fills or, without any, the worst price that the order
    /// accepts.
    pub(crate) fn shown_price(&self) -> Price {
        self.fill_price().or(self.worst_price()).unwrap_or(Price::ZERO)
    }

    /// Returns the quantity that has filled.
    pub(crate) fn filled(&self) -> Shares {
        self.progress.filled
    }

    /// Returns the quantity that the order asked for.
    pub(crate) fn asked(&self) -> Shares {
        let order_state = self.receipt.order_state.as_ref();
        order_state.map_or(self.receipt.fill.quantity, |order_state| order_state.terms.quantity)
    }

    /// Returns the order's quantity. If the order filled in part and counts as filled, this is the
    /// filled quantity.
    pub(crate) fn quantity(&self) -> Shares {
        match self.status() {
            OrderStatus::Filled => self.progress.filled,
            OrderStatus::Pending | OrderStatus::Cancelled | OrderStatus::Expired => self.asked(),
        }
    }

    /// Returns the filled and the requested quantity of an order that filled in part and counts as
    /// filled.
    pub(crate) fn partial_fill(&self) -> Option<(Shares, Shares)> {
        let (filled, asked) = (self.progress.filled, self.asked());
        (self.status() == OrderStatus::Filled && filled < asked).then_some((filled, asked))
    }

    pub(crate) fn notional(&self) -> Usd {
        self.progress.notional
    }

    pub(crate) fn fee(&self) -> Usd {
        self.progress.fee
    }

    /// Returns the average price of the fills; `None` if there are none.
    pub(crate) fn fill_price(&self) -> Option<Price> {
        self.progress.notional.per_share(self.progress.filled)
    }

    /// Returns the time of the newest fill; `None` if there is none.
    pub(crate) fn filled_at(&self) -> Option<Timestamp> {
        (self.progress.fill_count > 0).then_some(self.progress.filled_at)
    }

    /// Returns how the order ended, if it counts as cancelled or expired.
    pub(crate) fn end(&self) -> Option<End> {
        self.end.filter(|_| self.status() != OrderStatus::Filled)
    }

    /// Returns why the order cannot fill yet, if it is on hold.
    pub(crate) fn hold_reason(&self) -> Option<&'static str> {
        self.hold_reason.filter(|_| self.status() == OrderStatus::Pending)
    }

    /// Returns how long the order was delayed before it was decided, in milliseconds; `None` if it
    /// was not delayed.
    pub(crate) fn delayed_ms(&self) -> Option<u32> {
        let delayed_ms = self.receipt.order_state.as_ref()?.terms.delayed_ms;
        (delayed_ms > 0).then_some(delayed_ms)
    }

    /// Returns the ids of the fills.
    pub(crate) fn trade_ids(&self) -> TradeIds {
        TradeIds { order: self.receipt.order, fill_count: self.progress.fill_count }
    }

    pub(crate) fn amounts(&self) -> Amounts {
        let Progress { filled, notional, .. } = self.progress;
        let (shares, dollars): (Decimal, Decimal) = (filled.into(), notional.into());
        let (making_amount, taking_amount) = match self.receipt.side {
            Side::Buy => (dollars, shares),
            Side::Sell => (shares, dollars),
        };
        Amounts {
            filled_quantity: shares,
            remaining_quantity: (self.quantity() - filled).into(),
            making_amount,
            taking_amount,
            trade_ids: self.trade_ids(),
        }
    }
}

/// How far an order has filled, as part of every answer about it.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "OrderAmounts")]
pub(crate) struct Amounts {
    /// In shares.
    filled_quantity: Decimal,
    /// In shares.
    remaining_quantity: Decimal,
    /// What the account gave: dollars for a purchase, shares for a sale.
    making_amount: Decimal,
    /// What it got.
    taking_amount: Decimal,
    /// The ids of the fills, the oldest first; of more than 100, the newest.
    #[schemars(with = "Vec<String>")]
    trade_ids: TradeIds,
}

/// The ids of an order's fills, oldest first. Each is the order's id and the number of the fill. If
/// there are more than `TRADE_IDS_MAX`, only the newest are included.
pub(crate) struct TradeIds {
    order: OrderId,
    fill_count: u32,
}

impl TradeIds {
    /// Returns the order, and the numbers of its newest fills.
    pub(crate) fn numbers(&self) -> (OrderId, RangeInclusive<u32>) {
        let first = self.fill_count.saturating_sub(TRADE_IDS_MAX) + 1;
        (self.order, first..=self.fill_count)
    }
}

impl Serialize for TradeIds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (order, numbers) = self.numbers();
        serializer.collect_seq(numbers.map(|number| format!("{order}-{number}")))
    }
}
