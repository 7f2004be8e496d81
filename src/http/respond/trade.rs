//! The result of `POST /trade`, in numbers.

use super::json::JsonObject;
use crate::engine::order::OrderReceipt;
use crate::money::Shares;

/// The answer to a trade, the first one and every replay of it.
pub fn write_trade(out: &mut Vec<u8>, receipt: &OrderReceipt) {
    let mut body = JsonObject::new(out);
    body.integer("order_id", receipt.order.get());
    body.word("status", "FILLED");
    body.number("price", receipt.price().micros());
    body.number("quantity", receipt.quantity.micros());
    body.number("notional", receipt.notional.micros());
    body.number("fee", receipt.fee.micros());
    body.number("account_balance", receipt.balance.micros());
    let mut position = JsonObject::new(body.value("position"));
    position.text("market_id", &receipt.market_id);
    position.text("outcome", &receipt.outcome);
    position.number("quantity", receipt.position_shares.micros());
    position.number("avg_entry_price", receipt.average_entry_price().micros());
    position.word("status", position_status(receipt.position_shares));
    position.end();
    body.end();
}

/// A position is open while it holds shares.
pub(super) fn position_status(shares: Shares) -> &'static str {
    if shares > Shares::ZERO { "OPEN" } else { "CLOSED" }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{receipt, written};
    use super::*;
    use crate::money::Usd;

    #[test]
    fn a_trade_is_shown_in_numbers() {
        insta::assert_snapshot!(written(|out| write_trade(out, &receipt())));
        let closed =
            OrderReceipt { position_shares: Shares::ZERO, position_cost: Usd::ZERO, ..receipt() };
        let closed = written(|out| write_trade(out, &closed));
        assert!(closed.ends_with(r#""quantity":0,"avg_entry_price":0,"status":"CLOSED"}}"#));
    }
}
