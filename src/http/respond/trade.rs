//! The result of `POST /trade`, in numbers.

use crate::engine::order::OrderReceipt;
use crate::http::json::write::write_text;
use crate::money::{Shares, write_micros};

/// The answer to a trade, the first one and every replay of it.
pub fn write_trade(out: &mut Vec<u8>, receipt: &OrderReceipt) {
    let mut buffer = itoa::Buffer::new();
    let order_id = buffer.format(receipt.order.get());
    // This is the answer that is written most often: its names are not put together piece by piece.
    out.extend_from_slice(b"{\"order_id\":");
    out.extend_from_slice(order_id.as_bytes());
    out.extend_from_slice(b",\"status\":\"FILLED\",\"price\":");
    write_micros(out, receipt.price().micros());
    out.extend_from_slice(b",\"quantity\":");
    write_micros(out, receipt.quantity.micros());
    out.extend_from_slice(b",\"notional\":");
    write_micros(out, receipt.notional.micros());
    out.extend_from_slice(b",\"fee\":");
    write_micros(out, receipt.fee.micros());
    out.extend_from_slice(b",\"account_balance\":");
    write_micros(out, receipt.balance.micros());
    out.extend_from_slice(b",\"position\":{\"market_id\":");
    write_text(out, &receipt.market_id);
    out.extend_from_slice(b",\"outcome\":");
    write_text(out, &receipt.outcome);
    out.extend_from_slice(b",\"quantity\":");
    write_micros(out, receipt.position_shares.micros());
    out.extend_from_slice(b",\"avg_entry_price\":");
    write_micros(out, receipt.average_entry_price().micros());
    out.extend_from_slice(b",\"status\":\"");
    out.extend_from_slice(position_status(receipt.position_shares).as_bytes());
    out.extend_from_slice(b"\"}}");
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
