//! How trades change cash and shares, to the last digit, and when they are refused.

use serde_json::{Value, json};

use super::expect::check_error;
use super::recording::{DEEP, PLAIN, WITH_FEE, buy, sell};
use super::server::{Server, shared};

fn order(market: &str, outcome: &str, side: &str, quantity: &Value) -> Value {
    json!({"market_id": market, "outcome": outcome, "side": side, "quantity": quantity})
}

#[test]
fn an_account_starts_with_a_thousand_dollars_or_as_configured() {
    assert_eq!(Server::start(&[]).account().balance(), "1000");
    let rich = Server::start(&["--starting-balance", "12.345678"]);
    assert_eq!(rich.account().balance(), "12.345678");
}

#[test]
fn a_fee_follows_the_curve_level_by_level() {
    let account = shared().account();
    let result = account.post("/trade", &order(WITH_FEE, "up", "BUY", &json!(150))).ok(200);
    // 100 × 0.05 × 0.25 and 50 × 0.05 × 0.53 × 0.47.
    assert_eq!((&result["fee"], &result["notional"]), (&json!(1.87275), &json!(76.5)));
    assert_eq!(result["account_balance"], 921.62725);
    assert_eq!(result["position"]["outcome"], "Up");
    // The fee is no part of the position's cost.
    assert_eq!(result["position"]["avg_entry_price"], 0.51);
}

#[test]
fn an_outcome_without_a_book_trades_in_the_mirror() {
    let account = shared().account();
    let bought = account.post("/trade", &order(PLAIN, "No", "BUY", &json!(150))).ok(200);
    // 100 at 1 − 0.48 and 50 at 1 − 0.47.
    assert_eq!(bought["notional"], 78.5);
    let sold = account.post("/trade", &order(PLAIN, "no", "SELL", &json!(50))).ok(200);
    assert_eq!(sold["notional"], 25);
    assert_eq!(sold["position"]["quantity"], 100);
}

#[test]
fn rounding_is_against_the_trader() {
    let account = shared().account();
    let bought = account.post("/trade", &order(DEEP, "Yes", "BUY", &json!(0.0015))).ok(200);
    assert_eq!((&bought["notional"], &bought["price"]), (&json!(0.000_002), &json!(0.001_333)));
    let sold = account.post("/trade", &order(DEEP, "Yes", "SELL", &json!(0.0015))).ok(200);
    assert_eq!((&sold["notional"], &sold["price"]), (&json!(0), &json!(0)));
    assert_eq!(sold["account_balance"], 999.999_998);
}

#[test]
fn a_position_is_averaged_and_closes_to_nothing() {
    let account = shared().account();
    account.buy(100);
    let more = account.buy(150);
    assert_eq!(more["position"]["quantity"], 250);
    assert_eq!(more["position"]["avg_entry_price"], 0.506);
    let some = account.post("/trade", &sell(50)).ok(200);
    assert_eq!(some["position"]["avg_entry_price"], 0.506);
    account.post("/trade", &sell(200)).ok(200);
    assert_eq!(account.get("/v1/account/positions?status=OPEN").ok(200), json!([]));
    let closed = account.get("/v1/account/positions?status=CLOSED").ok(200);
    assert_eq!((&closed[0]["status"], &closed[0]["quantity"]), (&json!("CLOSED"), &json!("0")));
    check_error(&account.post("/trade", &sell(1)), 400, "INSUFFICIENT_POSITION");
}

/// 100 shares at 0.50 and 50 at 0.53 are 0.51 on average: 200 bps above the touch.
#[test]
fn slippage_is_compared_exactly() {
    let account = shared().account();
    for (expected_price, max_slippage_bps, is_filled) in [
        (json!(null), json!(null), true),
        (json!(null), json!(200), true),
        (json!(null), json!(199), false),
        (json!(0.51), json!(0), true),
        (json!(0.509_999), json!(0), false),
        (json!(0.509_999), json!(1), true),
        // 500 bps if only the price is given.
        (json!(0.485_715), json!(null), true),
        (json!(0.485_714), json!(null), false),
        (json!(0.255), json!(10_000), true),
        (json!(0.254_999), json!(10_000), false),
    ] {
        let mut order = buy(150);
        order["expected_price"] = expected_price.clone();
        order["max_slippage_bps"] = max_slippage_bps.clone();
        let response = account.post("/trade", &order);
        println!("{expected_price} {max_slippage_bps}");
        if is_filled {
            response.ok(200);
        } else {
            check_error(&response, 400, "SLIPPAGE_EXCEEDED");
        }
    }
}

#[test]
fn a_refused_trade_changes_nothing() {
    let account = shared().account();
    account.buy(10);
    let before = account.balance();
    for mut order in [buy(5_000), sell(11), buy(1_000_000)] {
        order["client_order_id"] = json!("again");
        assert_eq!(account.post("/trade", &order).status, 400);
    }
    assert_eq!(account.balance(), before);
    // After a refusal the name is free for a corrected retry.
    let mut order = buy(1);
    order["client_order_id"] = json!("again");
    assert!(account.post("/trade", &order).header("idempotent-replayed").is_none());
    let orders = account.get("/v1/orders").ok(200);
    assert_eq!(orders["orders"].as_array().unwrap().len(), 2);
}
