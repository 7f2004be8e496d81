//! Cancelling orders: one, all, or those in a market or an outcome.

use paperbourse::limits::tier::Tier;
use paperbourse_test_support::Request;
use serde_json::{Value, json};

use super::expect::{check_error, check_invalid};
use super::recording::{BOOKLESS, PLAIN, WITH_FEE, limit, sell, token_id};
use super::server::{Account, shared};

/// Places an order that rests, and returns its id as text.
#[track_caller]
fn rest(account: &Account<'_>, order: &Value) -> String {
    let placed = account.post("/v1/orders", order).ok(200);
    assert_eq!(placed["status"], "PENDING");
    placed["order_id"].to_string()
}

fn resting_in(market: &str, outcome: &str) -> Value {
    let mut order = limit("BUY", 10, "0.1");
    order["market_id"] = json!(market);
    order["outcome"] = json!(outcome);
    order
}

fn open_count(account: &Account<'_>) -> usize {
    let list = account.get("/v1/orders?status=OPEN&limit=200").ok(200);
    list["orders"].as_array().unwrap().len()
}

#[test]
fn a_cancelled_purchase_frees_its_dollars() {
    let (account, stranger) = (shared().account(), shared().account());
    let path = format!("/v1/orders/{}", rest(&account, &limit("BUY", 150, "0.5")));
    check_error(&stranger.delete(&*path), 404, "ORDER_NOT_FOUND");
    let cancelled = account.delete(&*path).ok(200);
    for (field, expected) in [
        ("status", "CANCELLED"),
        ("cancelled_reason", "user"),
        ("price", "0.5"),
        ("quantity", "150"),
        ("filled_quantity", "100"),
        ("remaining_quantity", "50"),
        ("notional", "25"),
        ("released_quantity", "0"),
        ("making_amount", "50"),
        ("fee", "0"),
    ] {
        assert_eq!(cancelled[field], expected, "{field}");
    }
    for key in ["error", "message", "detail", "success"] {
        assert!(cancelled.get(key).is_none(), "{key}");
    }
    let row = account.get(&*path).ok(200);
    assert_eq!((&row["status"], &row["cancelled_reason"]), (&json!("CANCELLED"), &json!("user")));
    assert_eq!(row["cancelled_at"], cancelled["cancelled_at"]);
    check_error(&account.delete(&*path), 400, "ORDER_NOT_CANCELLABLE");
}

#[test]
fn a_cancelled_sale_frees_its_shares() {
    let account = shared().account();
    account.buy(10);
    let order = rest(&account, &limit("SELL", 10, "0.9"));
    check_error(&account.post("/trade", &sell(1)), 400, "INSUFFICIENT_POSITION");
    let cancelled = account.delete(format!("/v1/orders/{order}")).ok(200);
    assert_eq!(cancelled["notional"], "0");
    assert_eq!(cancelled["released_quantity"], "10");
    account.post("/trade", &sell(10)).ok(200);
}

#[test]
fn only_open_orders_of_the_account_can_be_cancelled() {
    let account = shared().account();
    let filled = account.buy(1)["order_id"].to_string();
    for (id, status, code) in [
        (&*filled, 400, "ORDER_NOT_CANCELLABLE"),
        ("9007199254740990", 404, "ORDER_NOT_FOUND"),
        ("0", 404, "ORDER_NOT_FOUND"),
    ] {
        check_error(&account.delete(format!("/v1/orders/{id}")), status, code);
    }
    check_invalid(&account.delete("/v1/orders/x"), &["path.order_id: int_parsing"]);
}

#[test]
fn cancelling_all_is_confirmed() {
    let account = shared().account();
    let order = rest(&account, &limit("BUY", 10, "0.4"));
    let post = |path: &str| Request::post(path, &json!({}));
    let header = |value: &str| post("/v1/cancel-all").header("x-confirm-cancel-all", value);
    for request in [post("/v1/cancel-all"), header("yes"), post("/v1/cancel-all?confirm=false")] {
        check_error(&account.send(request), 400, "CONFIRMATION_REQUIRED");
    }
    let malformed = account.send(post("/v1/cancel-all?confirm=sure"));
    check_invalid(&malformed, &["query.confirm: bool_parsing"]);
    assert_eq!(open_count(&account), 1);
    let cancelled = account.send(header("true")).ok(200);
    assert_eq!(cancelled, json!({"canceled": [order], "not_canceled": {}}));
    for request in
        [header("True"), post("/v1/cancel-all?confirm=true"), Request::delete("/v1/cancel-all")]
    {
        let order = rest(&account, &limit("BUY", 10, "0.4"));
        assert_eq!(account.send(request).ok(200)["canceled"], json!([order]));
    }
    let none = account.delete("/v1/cancel-all").ok(200);
    assert_eq!(none, json!({"canceled": [], "not_canceled": {}}));
}

#[test]
fn all_are_cancelled_however_many_there_are() {
    let account = shared().account_with(&json!({"tier": "pro"}), Some(Tier::Pro));
    let stranger = shared().account();
    rest(&stranger, &limit("BUY", 10, "0.4"));
    let mut placed = Vec::new();
    for _ in 0..7 {
        let batch = json!({"orders": vec![limit("BUY", 5, "0.1"); 20]});
        let answer = account.post("/v1/orders/batch", &batch).ok(200);
        let rows = answer["results"].as_array().unwrap();
        placed.extend(rows.iter().map(|row| row["order_id"].to_string()));
    }
    assert_eq!(open_count(&account), 140);
    let cancelled = account.delete("/v1/cancel-all").ok(200);
    assert_eq!(cancelled["canceled"], json!(placed));
    assert_eq!((open_count(&account), open_count(&stranger)), (0, 1));
    let rows = account.get("/v1/orders?status=CANCELLED&limit=200").ok(200);
    assert_eq!(rows["orders"].as_array().unwrap().len(), 140);
}

#[test]
fn a_market_or_an_outcome_is_cancelled_alone() {
    let account = shared().account();
    let delete = |path: &str, body: Option<Value>| {
        let request = Request::delete(path);
        let request = match body {
            Some(body) => request.body(body.to_string()),
            None => request,
        };
        account.send(request).ok(200)["canceled"].clone()
    };
    let orders = [(PLAIN, "Yes"), (PLAIN, "No"), (WITH_FEE, "Up"), (BOOKLESS, "Yes")];
    let place = || orders.map(|(market, outcome)| rest(&account, &resting_in(market, outcome)));
    let path = "/v1/cancel-market-orders";
    let (no, up) = (token_id(0, 1), token_id(2, 0));
    let rows: [(String, Option<Value>, &[usize]); 7] = [
        (format!("{path}?market={PLAIN}"), None, &[0, 1]),
        (format!("{path}?asset_id={no}"), None, &[1]),
        (format!("{path}?market={PLAIN}&asset_id={no}"), None, &[1]),
        (format!("{path}?market={PLAIN}&asset_id={up}"), None, &[]),
        (path.to_owned(), Some(json!({"market": BOOKLESS, "asset_id": ""})), &[3]),
        (path.to_owned(), Some(json!({"market": "", "asset_id": up})), &[2]),
        (format!("{path}?market=0xnone"), None, &[]),
    ];
    for (path, body, expected) in rows {
        let placed = place();
        let expected: Vec<&String> = expected.iter().map(|&index| &placed[index]).collect();
        assert_eq!(delete(&path, body.clone()), json!(expected), "{path} {body:?}");
        account.delete("/v1/cancel-all").ok(200);
    }
    check_invalid(&account.delete(path), &["query.market: missing"]);
    let malformed = account.send(Request::delete(path).body("{"));
    check_invalid(&malformed, &["body: json_invalid"]);
}

#[test]
fn cancelling_needs_the_permission_to_trade() {
    let account = shared().account();
    let key = account.new_key(&json!({"permissions": ["read"]}));
    let key = key["raw_key"].as_str().unwrap();
    for request in [
        Request::post("/v1/orders", &limit("BUY", 10, "0.4")),
        Request::delete("/v1/orders/64"),
        Request::post("/v1/cancel-all", &json!({})),
        Request::delete("/v1/cancel-all"),
        Request::delete("/v1/cancel-market-orders"),
    ] {
        check_error(&shared().send(&request.key(key)), 403, "INSUFFICIENT_PERMISSION");
    }
}
