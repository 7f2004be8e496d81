//! A named order executes once, whether its name is in the header or in the body.

use paperbourse_test_support::{Request, Response};
use serde_json::{Value, json};

use super::expect::{check_error, check_invalid};
use super::recording::{DEEP, buy};
use super::server::{Account, shared};

/// Sends an order under a name in the header, in the body, or both.
fn send(account: &Account<'_>, order: &Value, header: &str, client_order_id: &str) -> Response {
    let mut order = order.clone();
    order["client_order_id"] = json!(client_order_id);
    account.send(Request::post("/trade", &order).header("idempotency-key", header))
}

/// Checks that a response repeats the first one, byte for byte, and is marked as a replay.
#[track_caller]
fn check_replay(first: &Response, again: &Response) {
    assert_eq!((again.status, &again.text), (200, &first.text));
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
}

#[test]
fn a_repeated_name_replays() {
    for (header, client_order_id) in [("a", ""), ("", "a"), ("a", "a"), ("a", "b")] {
        let account = shared().account();
        let first = send(&account, &buy(10), header, client_order_id);
        first.ok(200);
        assert_eq!(first.header("idempotent-replayed"), None);
        account.buy(5);
        for _ in 0..3 {
            check_replay(&first, &send(&account, &buy(10), header, client_order_id));
        }
        assert_eq!(account.balance(), "992.5", "{header:?} {client_order_id:?}");
    }
}

#[test]
fn both_names_are_one_namespace() {
    let account = shared().account();
    let first = send(&account, &buy(10), "one", "two");
    for (header, client_order_id) in
        [("one", ""), ("two", ""), ("", "one"), ("", "two"), ("two", "one"), ("one", "one")]
    {
        check_replay(&first, &send(&account, &buy(10), header, client_order_id));
    }
    assert_eq!(account.balance(), "995");
}

/// It would not be remembered, and alone it would buy again.
#[test]
fn a_new_name_beside_a_known_one_is_a_conflict() {
    let account = shared().account();
    let first = send(&account, &buy(10), "", "c1");
    first.ok(200);
    for (header, client_order_id) in [("h1", "c1"), ("h2", "c1"), ("c1", "h1")] {
        let response = send(&account, &buy(10), header, client_order_id);
        check_error(&response, 409, "IDEMPOTENCY_KEY_REUSE");
    }
    check_replay(&first, &send(&account, &buy(10), "", "c1"));
    assert_eq!(account.balance(), "995");
    // The names that were refused are free.
    let second = send(&account, &buy(10), "h1", "h2");
    assert_eq!(second.ok(200)["quantity"], 10);
    assert_eq!(account.balance(), "990");
}

#[test]
fn another_order_under_a_used_name_is_a_conflict() {
    let account = shared().account();
    let mut order = buy(10);
    order["expected_price"] = json!(0.5);
    order["max_slippage_bps"] = json!(100);
    let first = send(&account, &order, "name", "");
    first.ok(200);
    for (field, value) in [
        ("market_id", json!(DEEP)),
        ("outcome", json!("No")),
        ("side", json!("SELL")),
        ("quantity", json!(10.000_001)),
        ("expected_price", json!(0.51)),
        ("expected_price", json!(null)),
        ("max_slippage_bps", json!(101)),
        ("max_slippage_bps", json!(null)),
    ] {
        let mut other = order.clone();
        other[field] = value;
        check_error(&send(&account, &other, "name", ""), 409, "IDEMPOTENCY_KEY_REUSE");
    }
    // The same order, written differently.
    for (field, value) in [
        ("outcome", json!("YES")),
        ("quantity", json!("10.0")),
        ("quantity", json!(10.000_000_4)),
        ("expected_price", json!("0.50")),
        ("max_slippage_bps", json!("100")),
    ] {
        let mut same = order.clone();
        same[field] = value;
        check_replay(&first, &send(&account, &same, "name", ""));
    }
    // A field that is not read is named behind the first answer, and nothing executes.
    let mut more = order.clone();
    more["unknown"] = json!(1);
    let again = send(&account, &more, "name", "");
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
    let rest = again.text.strip_prefix(first.text.strip_suffix('}').unwrap()).unwrap();
    assert!(rest.starts_with(",\"warnings\":[\"`unknown` "), "{rest}");
    assert_eq!(account.balance(), "995");
}

#[test]
fn names_of_two_orders_are_a_conflict() {
    let account = shared().account();
    send(&account, &buy(10), "first", "").ok(200);
    send(&account, &buy(10), "second", "").ok(200);
    let response = send(&account, &buy(10), "first", "second");
    check_error(&response, 409, "IDEMPOTENCY_KEY_REUSE");
    assert_eq!(account.balance(), "990");
}

#[test]
fn an_empty_name_is_no_name() {
    let account = shared().account();
    for _ in 0..2 {
        let response = send(&account, &buy(10), "", "");
        response.ok(200);
        assert_eq!(response.header("idempotent-replayed"), None);
    }
    assert_eq!(account.balance(), "990");
}

/// Neither of two headers may be ignored: a retry with only that one would execute again.
#[test]
fn two_headers_are_refused() {
    let account = shared().account();
    for (path, body) in [
        ("/trade", buy(10)),
        ("/v1/orders", buy(10)),
        ("/v1/orders/batch", json!({"orders": [buy(10)]})),
    ] {
        let request = Request::post(path, &body).header("idempotency-key", "one");
        let response = account.send(request.header("idempotency-key", "two"));
        check_invalid(&response, &["header.idempotency-key: string_pattern_mismatch"]);
    }
    assert_eq!(account.balance(), "1000");
}

#[test]
fn names_belong_to_one_account() {
    let (one, other) = (shared().account(), shared().account());
    send(&one, &buy(10), "shared", "").ok(200);
    let response = send(&other, &buy(20), "shared", "");
    assert_eq!(response.ok(200)["quantity"], 20);
    // Names do not belong to a key: another key of the account replays.
    let key = one.new_key(&json!({}));
    let request = Request::post("/trade", &buy(10)).header("idempotency-key", "shared");
    let again = shared().send(&request.key(key["raw_key"].as_str().unwrap()));
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
}

#[test]
fn many_concurrent_requests_are_one_order() {
    let account = shared().account();
    let request = Request::post("/trade", &buy(10)).header("idempotency-key", "race");
    let request = request.key(&account.key);
    let mut connections: Vec<_> = (0..16).map(|_| shared().connect()).collect();
    for connection in &mut connections {
        connection.write(&request.to_bytes());
    }
    let responses: Vec<_> = connections.iter_mut().map(|each| each.read(false)).collect();
    let is_first = |response: &&Response| response.header("idempotent-replayed").is_none();
    assert_eq!(responses.iter().filter(is_first).count(), 1);
    assert!(responses.iter().all(|response| response.ok(200) == responses[0].json()));
    assert_eq!(account.balance(), "995");
}
