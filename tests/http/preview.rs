//! `POST /v1/orders/preview` says what the same request to `POST /v1/orders` then does, and does
//! nothing.

use paperbourse_test_support::{Request, Response};
use serde_json::{Value, json};

use super::placing::with;
use super::recording::{BOOKLESS, buy, limit, sell};
use super::server::{Account, shared};

fn preview(account: &Account<'_>, order: &Value) -> Response {
    account.post("/v1/orders/preview", order)
}

/// The account has not changed since `before`, and places the order as it was previewed.
#[track_caller]
fn check(account: &Account<'_>, order: &Value) -> Value {
    let lists = || account.get("/v1/orders").ok(200);
    let before = (account.balance(), lists());
    let previewed = preview(account, order);
    assert_eq!((account.balance(), lists()), before, "a preview changes nothing: {order}");
    let placed = account.post("/v1/orders", order);
    assert_eq!(previewed.status, placed.status, "{order}");
    let (previewed, placed) = (previewed.json(), placed.json());
    if placed.get("error").is_some() {
        assert_eq!(previewed, placed, "{order}");
        return previewed;
    }
    for field in [
        "outcome",
        "side",
        "order_type",
        "time_in_force",
        "status",
        "cancelled_reason",
        "filled_quantity",
        "notional",
        "fee",
        "slippage_bps",
        "book_walk_levels",
    ] {
        assert_eq!(previewed[field], placed[field], "{field} of {order}");
    }
    assert_eq!(previewed["available_after"], account.balance(), "{order}");
    let (average, filled) = (&previewed["average_fill_price"], &placed["filled_quantity"]);
    assert_eq!(average.is_null(), filled == "0", "{order}");
    assert!(average.is_null() || *average == placed["price"], "{order}");
    let rests = previewed["status"] == "PENDING";
    let remaining = if rests { &placed["remaining_quantity"] } else { &json!("0") };
    assert_eq!(&previewed["resting_quantity"], remaining, "{order}");
    previewed
}

/// Asks of 100 at 0.50 and 1,000 at 0.53, and an account with 1,000 dollars and 20 shares.
#[test]
fn a_preview_is_what_then_happens() {
    let account = shared().account();
    account.buy(20);
    let orders = [
        buy(1),
        buy(150),
        with(buy(150), &json!({"quantity": null, "amount": "100.000001"})),
        with(buy(150), &json!({"max_slippage_bps": 1})),
        with(buy(150), &json!({"expected_price": "0.5", "max_slippage_bps": 900})),
        buy(1_000_000),
        with(buy(2_000), &json!({"time_in_force": "FAK", "amount": null})),
        with(buy(150), &json!({"time_in_force": "FAK", "price": "0.45"})),
        limit("BUY", 150, "0.51"),
        limit("BUY", 10, "0.3"),
        limit("BUY", 10, "0.305"),
        limit("BUY", 1, "0.3"),
        limit("BUY", 100_000, "0.3"),
        with(limit("BUY", 10, "0.6"), &json!({"post_only": true})),
        with(limit("BUY", 5_000, "0.5"), &json!({"time_in_force": "FOK"})),
        sell(3),
        sell(100),
        limit("SELL", 6, "0.9"),
        limit("SELL", 6, "0.01"),
        with(buy(1), &json!({"market_id": BOOKLESS})),
        with(buy(1), &json!({"outcome": "Maybe"})),
        with(buy(1), &json!({"market_id": "0x0"})),
        with(buy(1), &json!({"quantity": "-1"})),
        with(limit("BUY", 10, "0.3"), &json!({"expiration": 1})),
    ];
    for order in &orders {
        check(&account, order);
    }
}

#[test]
fn a_preview_says_what_rests_and_what_it_holds_back() {
    let account = shared().account();
    account.buy(20);
    let bought = check(&account, &limit("BUY", 150, "0.51"));
    for (field, expected) in [
        ("status", json!("PENDING")),
        ("quantity", json!("150")),
        ("filled_quantity", json!("100")),
        ("resting_quantity", json!("50")),
        ("average_fill_price", json!("0.5")),
        ("total", json!("50")),
        ("reserved_cash", json!("25.5")),
        ("reserved_shares", json!("0")),
        ("available_after", json!("914.5")),
        ("delay_ms", json!(0)),
    ] {
        assert_eq!(bought[field], expected, "{field}");
    }
    let sold = check(&account, &limit("SELL", 6, "0.9"));
    assert_eq!((&sold["total"], &sold["reserved_shares"]), (&json!("0"), &json!("6")));
    assert_eq!((&sold["reserved_cash"], &sold["average_fill_price"]), (&json!("0"), &Value::Null));
}

/// A preview needs no permission to trade, and gives nothing a name.
#[test]
fn a_preview_reads_only() {
    let account = shared().account();
    let key = account.new_key(&json!({"permissions": ["read"]}));
    let named = with(buy(1), &json!({"client_order_id": "mine"}));
    let request = Request::post("/v1/orders/preview", &named)
        .key(key["raw_key"].as_str().unwrap())
        .header("idempotency-key", "a");
    account.server.send(&request).ok(200);
    let other = with(buy(2), &json!({"client_order_id": "mine"}));
    let placed = account.post("/v1/orders", &other).ok(200);
    assert_eq!((&placed["client_order_id"], &placed["is_replay"]), (&json!("mine"), &Value::Null));
    assert_eq!(preview(&account, &named).ok(200)["filled_quantity"], "1");
    let odd = preview(&account, &with(buy(1), &json!({"colour": "blue"}))).ok(200);
    assert!(odd["warnings"][0].as_str().unwrap().contains("colour"), "{odd}");
}
