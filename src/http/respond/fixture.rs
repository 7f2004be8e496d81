//! Values that the tests of the writers show.

use crate::engine::order::OrderReceipt;
use crate::ids::{AccountId, OrderId, Timestamp};
use crate::market::book::Side;
use crate::money::{Shares, Usd};

/// Ten shares bought at 0.53, with a name that needs escapes.
pub(super) fn receipt() -> OrderReceipt {
    OrderReceipt {
        order: OrderId::from_raw(71).unwrap(),
        account: AccountId::from_raw(135).unwrap(),
        market_id: "0xabc".into(),
        outcome: "\"Yes\"".into(),
        side: Side::Buy,
        quantity: Shares::from_micros(10_000_000),
        notional: Usd::from_micros(5_300_000),
        fee: Usd::from_micros(10_000),
        balance: Usd::from_micros(994_690_000),
        position_shares: Shares::from_micros(30_000_000),
        position_cost: Usd::from_micros(10_000_000),
        level_count: 2,
        slippage_bps: Some(12),
        client_order_id: Some("a\\b".into()),
        at: Timestamp::from_millis(1_784_578_686_071),
    }
}

/// What a writer writes, checked to be JSON.
pub(super) fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    serde_json::from_slice::<serde_json::Value>(&out).expect("valid JSON");
    String::from_utf8(out).unwrap()
}
