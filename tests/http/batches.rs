//! Several orders in one request.

use paperbourse::limits::tier::Tier;
use paperbourse_test_support::{Request, Response};
use serde_json::{Value, json};

use super::expect::{check_error, check_invalid};
use super::recording::{buy, limit, sell};
use super::server::{Account, shared};

fn send(account: &Account<'_>, orders: &[Value], name: &str) -> Response {
    let request = Request::post("/v1/orders/batch", &json!({"orders": orders}));
    account.send(request.header("idempotency-key", name))
}

fn named(mut order: Value, name: &str) -> Value {
    order["client_order_id"] = json!(name);
    order
}

fn column<'a>(answer: &'a Value, field: &str) -> Vec<&'a Value> {
    answer["results"].as_array().unwrap().iter().map(|row| &row[field]).collect()
}

#[test]
fn entries_are_independent_and_keep_their_order() {
    let account = shared().account();
    let orders = [buy(10), sell(11), buy(5_000), sell(4), named(buy(1), "last")];
    let answer = send(&account, &orders, "").ok(200);
    assert_eq!((&answer["succeeded"], &answer["failed"]), (&json!(3), &json!(2)));
    assert_eq!(column(&answer, "status"), ["FILLED", "REJECTED", "REJECTED", "FILLED", "FILLED"]);
    assert_eq!(column(&answer, "quantity"), ["10", "11", "5000", "4", "1"]);
    let errors = column(&answer, "error");
    assert_eq!(errors[1], "INSUFFICIENT_POSITION");
    assert_eq!(errors[2], "INSUFFICIENT_LIQUIDITY");
    assert_eq!(column(&answer, "order_id")[1], 0);
    assert_eq!(column(&answer, "client_order_id")[4], "last");
    assert_eq!(account.balance(), "996.42");
}

#[test]
fn a_batch_takes_orders_of_any_kind() {
    let account = shared().account();
    let mut post_only = limit("BUY", 10, "0.6");
    post_only["post_only"] = json!(true);
    let mut by_amount = buy(1);
    by_amount["quantity"] = Value::Null;
    by_amount["amount"] = json!(5);
    let mut unsized_order = limit("BUY", 10, "0.4");
    unsized_order["quantity"] = Value::Null;
    let orders = [buy(10), limit("BUY", 10, "0.4"), post_only, by_amount, unsized_order];
    let first = send(&account, &orders, "mixed").ok(200);
    assert_eq!(column(&first, "status"), ["FILLED", "PENDING", "REJECTED", "FILLED", "REJECTED"]);
    assert_eq!(column(&first, "order_type"), ["market", "limit", "limit", "market", "limit"]);
    assert_eq!(column(&first, "quantity"), ["10", "10", "10", "10", "0"]);
    let errors = column(&first, "error");
    assert_eq!(errors[2], "INVALID_POST_ONLY_ORDER");
    assert_eq!(errors[4], "INVALID_ORDER_PAYLOAD");
    let again = send(&account, &orders, "mixed").ok(200);
    let is_replay =
        [true, true, false, true, false].map(|flag| if flag { json!(true) } else { Value::Null });
    assert_eq!(column(&again, "is_replay"), is_replay.iter().collect::<Vec<_>>());
    assert_eq!(account.balance(), "986");
}

#[test]
fn a_repeated_batch_replays_entry_by_entry() {
    let account = shared().account();
    let orders = [buy(1), named(buy(2), "mine"), sell(50)];
    let first = send(&account, &orders, "batch").ok(200);
    assert!(column(&first, "is_replay").iter().all(|flag| flag.is_null()));
    let mut again = send(&account, &orders, "batch").ok(200);
    let rows = again["results"].as_array_mut().unwrap();
    for row in &mut rows[..2] {
        assert_eq!(row.as_object_mut().unwrap().remove("is_replay"), Some(json!(true)));
    }
    assert_eq!(again, first);
    assert_eq!(account.balance(), "998.5");
    // Without the header, or under another one, entries are new.
    let answer = send(&account, &[buy(1)], "another").ok(200);
    assert!(answer["results"][0].get("is_replay").is_none());
    // Another order at a used index is a conflict, and so is one that has moved: nothing is bought.
    let answer = send(&account, &[buy(7), buy(1)], "batch").ok(200);
    assert_eq!(column(&answer, "error"), ["IDEMPOTENCY_KEY_REUSE", "IDEMPOTENCY_KEY_REUSE"]);
    assert_eq!(account.balance(), "998");
}

#[test]
fn a_batch_that_failed_in_part_buys_no_more_in_another_order() {
    let account = shared().account();
    let batch = [sell(5), buy(1), buy(2), buy(1)];
    let first = send(&account, &batch, "batch").ok(200);
    assert_eq!(column(&first, "status"), ["REJECTED", "FILLED", "FILLED", "FILLED"]);
    assert_eq!(account.balance(), "998");
    // The first index was not used, since its entry was rejected.
    let [a, b, c] = [buy(1), buy(2), sell(5)];
    let conflict = json!("IDEMPOTENCY_KEY_REUSE");
    let shuffled = [a.clone(), c.clone(), b.clone(), a.clone()];
    let answer = send(&account, &shuffled, "batch").ok(200);
    assert_eq!(column(&answer, "error"), [&conflict, &conflict, &Value::Null, &Value::Null]);
    for shorter in [&[a][..], &[b]] {
        let answer = send(&account, shorter, "batch").ok(200);
        assert_eq!(column(&answer, "error"), [&conflict]);
    }
    assert_eq!(account.balance(), "998");
    // As it was, only what failed is tried again.
    account.buy(1);
    let again = send(&account, &batch, "batch").ok(200);
    assert_eq!(column(&again, "status"), ["FILLED"; 4]);
    assert_eq!(column(&again, "is_replay")[1..], [&json!(true); 3]);
    assert!(again["results"][0].get("is_replay").is_none());
}

#[test]
fn names_are_shared_with_single_trades() {
    let account = shared().account();
    let single = account.post("/trade", &named(buy(3), "shared")).ok(200);
    let answer = send(&account, &[named(buy(3), "shared"), named(buy(4), "new")], "").ok(200);
    assert_eq!(answer["results"][0]["order_id"], single["order_id"]);
    assert_eq!(column(&answer, "is_replay"), [&json!(true), &Value::Null]);
    let replay = account.post("/trade", &named(buy(4), "new"));
    assert_eq!(replay.header("idempotent-replayed"), Some("true"));
    // A batch's name is not the name of an order.
    send(&account, &[buy(1)], "header").ok(200);
    let request = Request::post("/trade", &buy(9)).header("idempotency-key", "header");
    account.send(request).ok(200);
}

#[test]
fn a_name_twice_in_a_batch_is_one_order() {
    let account = shared().account();
    let twin = named(buy(10), "twin");
    let answer = send(&account, &[twin.clone(), twin.clone(), named(buy(11), "twin")], "").ok(200);
    assert_eq!(column(&answer, "status"), ["FILLED", "FILLED", "REJECTED"]);
    assert_eq!(answer["results"][1]["is_replay"], true);
    assert_eq!(answer["results"][2]["error"], "IDEMPOTENCY_KEY_REUSE");
    assert_eq!(account.balance(), "995");
}

#[test]
fn the_tier_caps_the_batch() {
    let free = shared().account();
    let batch = |count: usize| vec![buy(1); count];
    send(&free, &batch(5), "").ok(200);
    let before = free.balance();
    check_error(&send(&free, &batch(6), ""), 400, "BATCH_LIMIT_EXCEEDED");
    assert_eq!(free.balance(), before);
    let pro = shared().account_with(&json!({"tier": "pro"}), Some(Tier::Pro));
    send(&pro, &batch(20), "").ok(200);
    check_error(&send(&pro, &batch(21), ""), 400, "BATCH_LIMIT_EXCEEDED");
    check_error(&send(&pro, &batch(100), ""), 400, "BATCH_LIMIT_EXCEEDED");
    check_invalid(&send(&pro, &batch(101), ""), &["body.orders: too_long"]);
}

#[test]
fn a_malformed_entry_stops_the_whole_batch() {
    let account = shared().account();
    let mut other_kind = buy(1);
    other_kind["price"] = json!("5");
    let orders = [buy(1), json!({"side": "UP"}), json!(7), buy(0), other_kind];
    check_invalid(
        &send(&account, &orders, "two words"),
        &[
            "header.idempotency-key: string_pattern_mismatch",
            "body.orders.1.market_id: missing",
            "body.orders.1.outcome: missing",
            "body.orders.1.side: enum",
            "body.orders.1.quantity: missing",
            "body.orders.2: model_attributes_type",
            "body.orders.3.quantity: greater_than",
            "body.orders.4.price: less_than_equal",
        ],
    );
    assert_eq!(account.balance(), "1000");
    for (body, field) in [
        (json!({}), "body.orders: missing"),
        (json!({"orders": null}), "body.orders: missing"),
        (json!({"orders": []}), "body.orders: too_short"),
        (json!({"orders": {}}), "body.orders: list_type"),
    ] {
        check_invalid(&account.post("/v1/orders/batch", &body), &[field]);
    }
}
