//! Orders as `/v1` shows them: the answer to placing one, and rows of the list. Money is text.

use super::trade::position_status;
use crate::engine::command::TradeOrder;
use crate::engine::order::OrderReceipt;
use crate::http::error::ApiError;
use crate::http::json::write::{JsonObject, write_list};

/// What became of one entry of a batch.
#[derive(Clone, Copy, Debug)]
pub enum BatchResult<'a> {
    /// It has filled, now or before.
    Filled {
        /// The order.
        receipt: &'a OrderReceipt,
        /// Whether it had filled before this request.
        is_replay: bool,
    },
    /// It was refused.
    Rejected {
        /// As it was sent.
        order: &'a TradeOrder,
        /// The name that the entry gave.
        client_order_id: Option<&'a str>,
        /// Why.
        error: &'a ApiError,
    },
}

/// The answer to `POST /v1/orders/batch`, in the order of the request.
pub fn write_batch(out: &mut Vec<u8>, results: &[BatchResult<'_>]) {
    let succeeded =
        results.iter().filter(|result| matches!(result, BatchResult::Filled { .. })).count();
    let mut body = JsonObject::new(out);
    write_list(body.value("results"), results, |out, result| match *result {
        BatchResult::Filled { receipt, is_replay } => write_order(out, receipt, is_replay),
        BatchResult::Rejected { order, client_order_id, error } => {
            write_rejected(out, order, client_order_id, error);
        }
    });
    body.integer("succeeded", succeeded as u64);
    body.integer("failed", (results.len() - succeeded) as u64);
    body.end();
}

/// A filled order.
pub fn write_order(out: &mut Vec<u8>, receipt: &OrderReceipt, is_replay: bool) {
    let mut body = JsonObject::new(out);
    body.integer("order_id", receipt.order.get());
    body.word("status", "FILLED");
    body.word("order_type", "market");
    body.word("side", receipt.side.as_str());
    body.text("outcome", &receipt.outcome);
    body.decimal("price", receipt.price().micros());
    body.decimal("quantity", receipt.quantity.micros());
    body.decimal("notional", receipt.notional.micros());
    body.decimal("fee", receipt.fee.micros());
    body.time("filled_at", receipt.at);
    body.word("price_source", "book_walk");
    match receipt.slippage_bps {
        Some(bps) => body.integer("slippage_bps", bps.into()),
        None => body.null("slippage_bps"),
    }
    body.integer("book_walk_levels", receipt.level_count.into());
    body.decimal("account_balance", receipt.balance.micros());
    let mut position = JsonObject::new(body.value("position"));
    position.text("market_id", &receipt.market_id);
    position.text("outcome", &receipt.outcome);
    position.decimal("quantity", receipt.position_shares.micros());
    position.decimal("avg_entry_price", receipt.average_entry_price().micros());
    position.word("status", position_status(receipt.position_shares));
    position.end();
    body.text_or_null("client_order_id", receipt.client_order_id.as_deref());
    if is_replay {
        body.flag("is_replay", true);
    }
    body.end();
}

/// A refused order. The clients of this API take any row that has an `error` for refused.
fn write_rejected(
    out: &mut Vec<u8>,
    order: &TradeOrder,
    client_order_id: Option<&str>,
    error: &ApiError,
) {
    let mut body = JsonObject::new(out);
    body.integer("order_id", 0);
    body.word("status", "REJECTED");
    body.word("order_type", "market");
    body.word("side", order.side.as_str());
    body.text("outcome", &order.outcome);
    body.decimal("price", 0);
    body.decimal("quantity", order.quantity.micros());
    body.decimal("notional", 0);
    body.decimal("fee", 0);
    body.text_or_null("client_order_id", client_order_id);
    body.text("error", error.code);
    body.text("error_message", &error.message);
    body.end();
}

/// The answer to `GET /v1/orders`: a page, and whether there is more behind it.
pub fn write_orders(out: &mut Vec<u8>, orders: &[OrderReceipt], has_more: bool) {
    let mut body = JsonObject::new(out);
    write_list(body.value("orders"), orders, write_order_row);
    body.null("next_cursor");
    body.flag("has_more", has_more);
    body.null("total_hint");
    body.end();
}

/// A filled order as the list shows it, and `GET /v1/orders/{id}`.
pub fn write_order_row(out: &mut Vec<u8>, receipt: &OrderReceipt) {
    let mut row = JsonObject::new(out);
    row.integer("order_id", receipt.order.get());
    row.text("market_id", &receipt.market_id);
    row.word("side", receipt.side.as_str());
    row.text("outcome", &receipt.outcome);
    row.word("order_type", "market");
    row.null("limit_price");
    row.decimal("quantity", receipt.quantity.micros());
    row.word("time_in_force", "FOK");
    row.word("status", "FILLED");
    row.text_or_null("client_order_id", receipt.client_order_id.as_deref());
    row.time("created_at", receipt.at);
    row.time("filled_at", receipt.at);
    row.decimal("fill_price", receipt.price().micros());
    row.decimal("notional", receipt.notional.micros());
    row.decimal("fee", receipt.fee.micros());
    row.null("cancelled_at");
    row.null("cancelled_reason");
    row.end();
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{receipt, written};
    use super::*;
    use crate::engine::rejection::Rejection;
    use crate::market::book::Side;
    use crate::money::Shares;

    #[test]
    fn a_replay_is_the_same_order_with_a_flag() {
        let first = written(|out| write_order(out, &receipt(), false));
        let replay = written(|out| write_order(out, &receipt(), true));
        assert_eq!(replay, first.replace(r#"b"}"#, r#"b","is_replay":true}"#));
        insta::assert_snapshot!(first);
    }

    #[test]
    fn a_batch_shows_each_entry() {
        let order = TradeOrder {
            market_id: "0xabc".into(),
            outcome: "Maybe".into(),
            side: Side::Sell,
            quantity: Shares::from_micros(2_500_000),
            expected_price: None,
            max_slippage_bps: None,
        };
        let error = ApiError::from(Rejection::VenueUnavailable);
        let unnamed = OrderReceipt { client_order_id: None, slippage_bps: None, ..receipt() };
        let results = [
            BatchResult::Filled { receipt: &unnamed, is_replay: false },
            BatchResult::Rejected { order: &order, client_order_id: Some("mine"), error: &error },
            BatchResult::Rejected { order: &order, client_order_id: None, error: &error },
        ];
        insta::assert_snapshot!(written(|out| write_batch(out, &results)));
    }

    #[test]
    fn a_list_says_whether_there_is_more() {
        assert_eq!(
            written(|out| write_orders(out, &[], false)),
            r#"{"orders":[],"next_cursor":null,"has_more":false,"total_hint":null}"#
        );
        insta::assert_snapshot!(written(|out| write_orders(out, &[receipt()], true)));
    }
}
