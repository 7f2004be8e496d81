//! The answer to a placed order, alone or in a batch.

use schemars::JsonSchema;
use serde::Serialize;

use crate::rows::stage::{Amounts, Stage};
use paperbourse_core::engine::order::receipt::OrderReceipt;
use paperbourse_core::wire::{Decimal, Time};
use paperbourse_exchange::service::PositionStatus;

// Clients of this API treat an answer with an `error`, `message` or `detail` as a refusal.
/// An order that was placed, now or before.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "PlacedOrder")]
pub(in crate::http) struct OrderAnswer<'a> {
    /// The order's id.
    order_id: u64,
    #[schemars(extend("enum" = ["PENDING", "FILLED", "CANCELLED", "EXPIRED"]))]
    status: &'static str,
    #[schemars(extend("enum" = ["market", "limit"]))]
    order_type: &'static str,
    #[schemars(extend("enum" = ["BUY", "SELL"]))]
    side: &'static str,
    /// The outcome's label.
    outcome: &'a str,
    /// The average price of the fills; without any, the worst price that the order accepts.
    price: Decimal,
    /// In shares. A market order that filled in part counts as having asked for what it got.
    quantity: Decimal,
    /// Price times quantity of all fills, in dollars, without fees.
    notional: Decimal,
    /// The taker fees of all fills, in dollars.
    fee: Decimal,
    /// When the newest fill happened.
    filled_at: Option<Time>,
    /// Where the price of the fills comes from; null without any.
    #[schemars(extend("enum" = ["book_walk", null]))]
    price_source: Option<&'static str>,
    /// How much worse than the best price the fills were, in basis points.
    slippage_bps: Option<u32>,
    /// How many levels of the book the order filled on.
    book_walk_levels: u32,
    /// The cash after the order, in dollars.
    account_balance: Decimal,
    /// The account's position after the order.
    position: AnswerPosition<'a>,
    /// The name that the client gave the order.
    client_order_id: Option<&'a str>,
    /// A market order that fills at once is `FOK`.
    #[schemars(extend("enum" = ["GTC", "GTD", "FOK", "FAK"]))]
    time_in_force: &'static str,
    /// Null for a market order.
    limit_price: Option<Decimal>,
    #[serde(flatten)]
    amounts: Amounts,
    /// Why the order cannot fill yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["venue_outage", "venue_delay"]))]
    hold_reason: Option<&'static str>,
    /// How long the venue's delay held the order, in milliseconds.
    #[serde(rename = "held_ms", skip_serializing_if = "Option::is_none")]
    delayed_ms: Option<u32>,
    /// Why the order ended before it was filled, such as `user` or `gtd_expired`.
    #[serde(skip_serializing_if = "Option::is_none")]
    cancelled_reason: Option<&'static str>,
    /// `partial_fill:filled=F,requested=R` if a market order filled in part, and a sentence about
    /// each field of the request that was ignored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    warnings: Vec<String>,
    /// True if this repeats the answer to an earlier request.
    #[serde(skip_serializing_if = "Option::is_none")]
    is_replay: Option<bool>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "PositionAfterOrder")]
struct AnswerPosition<'a> {
    /// The market's condition id.
    market_id: &'a str,
    /// The outcome's label.
    outcome: &'a str,
    /// In shares.
    quantity: Decimal,
    /// What a share cost on average, without fees.
    avg_entry_price: Decimal,
    #[schemars(extend("enum" = ["OPEN", "CLOSED"]))]
    status: &'static str,
}

impl<'a> OrderAnswer<'a> {
    /// Builds the answer. A replay repeats the first answer and adds a flag. The warnings are about
    /// this request.
    pub(in crate::http::operations) fn of(
        receipt: &'a OrderReceipt,
        is_replay: bool,
        warnings: Vec<String>,
    ) -> Self {
        let stage = Stage::at_placement(receipt);
        let fill_price = stage.fill_price();
        let warning = stage
            .partial_fill()
            .map(|(filled, asked)| format!("partial_fill:filled={filled},requested={asked}"));
        Self {
            order_id: receipt.order.get(),
            status: stage.status().as_str(),
            order_type: stage.kind().as_str(),
            side: receipt.side.as_str(),
            outcome: &receipt.outcome,
            price: stage.shown_price().into(),
            quantity: stage.quantity().into(),
            notional: stage.notional().into(),
            fee: stage.fee().into(),
            filled_at: stage.filled_at().map(Time),
            price_source: fill_price.map(|_| "book_walk"),
            slippage_bps: receipt.slippage_bps.filter(|_| fill_price.is_some()),
            book_walk_levels: receipt.level_count.into(),
            account_balance: receipt.fill.balance.into(),
            position: AnswerPosition {
                market_id: &receipt.market_id,
                outcome: &receipt.outcome,
                quantity: receipt.fill.position_shares.into(),
                avg_entry_price: receipt.fill.average_entry_price().into(),
                status: PositionStatus::of(receipt.fill.position_shares).as_str(),
            },
            client_order_id: receipt.client_order_id.as_deref(),
            time_in_force: stage.time_in_force().as_str(),
            limit_price: stage.limit_price().map(Into::into),
            amounts: stage.amounts(),
            hold_reason: stage.hold_reason(),
            delayed_ms: stage.delayed_ms(),
            cancelled_reason: stage.end().map(|end| end.reason.as_str()),
            warnings: warning.into_iter().chain(warnings).collect(),
            is_replay: is_replay.then_some(true),
        }
    }
}

#[cfg(test)]
mod tests;
