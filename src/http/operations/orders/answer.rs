//! The answer to a placed order, alone or in a batch.

use serde::Serialize;

use super::stage::{Amounts, Stage};
use crate::engine::order::OrderReceipt;
use crate::http::json::value::{Decimal, Time};
use crate::money::Price;
use crate::service::PositionStatus;

/// An order that was placed, now or before. Clients of this API take an answer with an `error`,
/// `message` or `detail` as a refusal.
#[derive(Serialize)]
pub(in crate::http::operations) struct OrderAnswer<'a> {
    order_id: u64,
    status: &'static str,
    order_type: &'static str,
    side: &'static str,
    outcome: &'a str,
    price: Decimal,
    quantity: Decimal,
    notional: Decimal,
    fee: Decimal,
    filled_at: Option<Time>,
    price_source: Option<&'static str>,
    slippage_bps: Option<u32>,
    book_walk_levels: u32,
    account_balance: Decimal,
    position: AnswerPosition<'a>,
    client_order_id: Option<&'a str>,
    time_in_force: &'static str,
    limit_price: Option<Decimal>,
    #[serde(flatten)]
    amounts: Amounts,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_ms: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cancelled_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warnings: Option<[String; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_replay: Option<bool>,
}

#[derive(Serialize)]
struct AnswerPosition<'a> {
    market_id: &'a str,
    outcome: &'a str,
    quantity: Decimal,
    avg_entry_price: Decimal,
    status: &'static str,
}

impl<'a> OrderAnswer<'a> {
    /// The answer, for a replay the same one with a flag.
    pub(in crate::http::operations) fn of(receipt: &'a OrderReceipt, is_replay: bool) -> Self {
        let stage = Stage::at_placement(receipt);
        let fill_price = stage.fill_price();
        let price = fill_price.or(stage.worst_price()).unwrap_or(Price::ZERO);
        let warning = stage
            .partial_fill()
            .map(|(filled, asked)| format!("partial_fill:filled={filled},requested={asked}"));
        Self {
            order_id: receipt.order.get(),
            status: stage.status().as_str(),
            order_type: stage.kind().as_str(),
            side: receipt.side.as_str(),
            outcome: &receipt.outcome,
            price: price.into(),
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
            held_ms: stage.held_ms(),
            cancelled_reason: stage.end().map(|end| end.reason.as_str()),
            warnings: warning.map(|warning| [warning]),
            is_replay: is_replay.then_some(true),
        }
    }
}

#[cfg(test)]
mod tests;
