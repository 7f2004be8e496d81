//! A request with several errors is refused for the first one, in the contract's order.

use paperbourse_test_support::Request;
use serde_json::{Value, json};

use super::expect::Outcome::{self, Invalid, Refused};
use super::expect::check_error;
use super::recording::{BOOKLESS, ODD_FEE, PAUSED, PLAIN, RESOLVED, buy};
use super::server::{Server, shared};

fn too_large(request: Request) -> Request {
    request.body(vec![b'x'; 64 * 1024 + 1])
}

/// Route, body size, credential, permission, body: each row is wrong from its own check on.
#[test]
fn before_the_operation() {
    let account = shared().account();
    let reads = account.new_key(&json!({"permissions": ["read"]}));
    let reads = reads["raw_key"].as_str().unwrap();
    let trades = account.new_key(&json!({"permissions": ["trade"]}));
    let trades = trades["raw_key"].as_str().unwrap();
    let rows: [(Request, Outcome<'_>); 8] = [
        (too_large(Request::new("POST", "/nowhere")).key("bad"), Refused(404, "NOT_FOUND")),
        (too_large(Request::new("PUT", "/trade")).key("bad"), Refused(405, "METHOD_NOT_ALLOWED")),
        (too_large(Request::new("POST", "/trade")).key("bad"), Refused(413, "BODY_TOO_LARGE")),
        (Request::new("POST", "/trade").body("{").key("bad"), Refused(401, "INVALID_KEY")),
        (Request::new("POST", "/trade").body("{"), Refused(401, "MISSING_AUTH")),
        (
            Request::new("POST", "/trade").body("{").key(reads),
            Refused(403, "INSUFFICIENT_PERMISSION"),
        ),
        (Request::new("POST", "/trade").body("{").key(trades), Invalid(&["body: json_invalid"])),
        (
            Request::new("POST", "/trades/x/comments").body("{}").key(reads),
            Refused(403, "INSUFFICIENT_PERMISSION"),
        ),
    ];
    for (request, outcome) in rows {
        outcome.check(&shared().send(&request));
    }
}

/// The head and the body of a trade, separately.
fn parted(key: &str, body: &str) -> (Vec<u8>, Vec<u8>) {
    let request = Request::new("POST", "/trade").body(body).key(key);
    let mut head = request.header("expect", "100-continue").to_bytes();
    let body = head.split_off(head.len() - body.len());
    (head, body)
}

/// A request refused regardless of its body is answered before any of the body arrives.
#[test]
fn strangers_are_refused_before_they_send_a_body() {
    let server = Server::start(&["--public-rate", "1/1"]);
    let post = |path| Request::new("POST", path).body("x".repeat(1_000));
    let rows = [
        (post("/nowhere"), 404, "NOT_FOUND"),
        (Request::new("PUT", "/trade").body("x".repeat(1_000)), 405, "METHOD_NOT_ALLOWED"),
        (post("/trade"), 401, "MISSING_AUTH"),
        (post("/trade").key("bad"), 401, "INVALID_KEY"),
        (post("/v1/orders/batch").bearer("bad"), 401, "INVALID_TOKEN"),
        (Request::get("/v1/markets?limit=1"), 200, ""),
        (Request::get("/v1/markets").body("x".repeat(1_000)), 429, "RATE_LIMIT_EXCEEDED"),
    ];
    for (request, status, code) in rows {
        let bytes = request.to_bytes();
        let head_bytes = bytes.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
        let mut connection = server.connect();
        connection.write(&bytes[..head_bytes]);
        let response = connection.read(false);
        assert_eq!(response.status, status, "{response:?}");
        if status >= 400 {
            assert_eq!(response.header("x-polysim-code"), Some(code));
            assert_eq!(response.header("connection"), Some("close"), "{response:?}");
            assert!(connection.is_ended(), "{code}");
        }
    }
}

/// After a refusal that ignores the body, a bot can send its next request on the same connection.
#[test]
fn a_bot_that_is_refused_keeps_its_connection() {
    let server = Server::start(&["--tier", "free=unlimited/2/2/5", "--address-limits", "off"]);
    let account = server.account_with(&json!({"permissions": ["read"]}), None);
    let mut connection = server.connect();
    for (status, code) in [
        (403, "INSUFFICIENT_PERMISSION"),
        (403, "INSUFFICIENT_PERMISSION"),
        (429, "RATE_LIMIT_EXCEEDED"),
        (429, "RATE_LIMIT_EXCEEDED"),
    ] {
        let (head, body) = parted(&account.key, &buy(1).to_string());
        connection.write(&head);
        assert_eq!(connection.read(false).status, 100);
        connection.write(&body);
        let response = connection.read(false);
        check_error(&response, status, code);
        assert_eq!(response.header("connection"), None, "{response:?}");
    }
}

#[test]
fn a_key_that_is_revoked_while_its_body_is_on_the_way_is_refused() {
    let account = shared().account();
    let key = account.new_key(&json!({}));
    let (head, body) = parted(key["raw_key"].as_str().unwrap(), &buy(1).to_string());
    let mut connection = shared().connect();
    connection.write(&head);
    // The key was still valid when the server requested the body.
    assert_eq!(connection.read(false).status, 100);
    account.delete(format!("/v1/keys/{}", key["id"])).ok(200);
    connection.write(&body);
    check_error(&connection.read(false), 401, "KEY_DEACTIVATED");
    assert_eq!(account.balance(), "1000");
}

/// Credential, limit, permission, body.
#[test]
fn the_limit_is_checked_between_credential_and_permission() {
    let server = Server::start(&["--tier", "free=unlimited/1/2/5", "--address-limits", "off"]);
    let account = server.account_with(&json!({"permissions": ["read"]}), None);
    account.get("/v1/orders").ok(200);
    let broken = Request::new("POST", "/trade").body("{");
    Refused(429, "RATE_LIMIT_EXCEEDED").check(&account.send(broken.clone()));
    Refused(401, "INVALID_KEY").check(&server.send(&broken.clone().key("bad")));
    Refused(413, "BODY_TOO_LARGE").check(&account.send(too_large(broken)));
    Refused(404, "NOT_FOUND").check(&account.get("/nowhere"));
}

/// The business rules of a trade: each row breaks its own rule and as many of the later ones as
/// possible.
#[test]
fn rules_of_a_trade() {
    let account = shared().account();
    let used = |name: &str| {
        let request = Request::post("/trade", &buy(1)).header("idempotency-key", name);
        account.send(request).ok(200);
    };
    used("taken");
    let order = |market: &str, outcome: &str, side: &str, quantity: u32| -> Value {
        json!({"market_id": market, "outcome": outcome, "side": side, "quantity": quantity,
               "expected_price": 0.3, "max_slippage_bps": 0})
    };
    let named = Request::post("/trade", &order("0xnone", "Maybe", "SELL", 9_999))
        .header("idempotency-key", "taken");
    let rows: [(Request, Outcome<'_>); 11] = [
        (named, Refused(409, "IDEMPOTENCY_KEY_REUSE")),
        (trade(&order("0xnone", "Maybe", "SELL", 9_999)), Refused(404, "MARKET_NOT_FOUND")),
        (trade(&order(PAUSED, "Maybe", "SELL", 9_999)), Refused(404, "OUTCOME_NOT_FOUND")),
        (trade(&order(PAUSED, "Yes", "SELL", 9_999)), Refused(400, "MARKET_CLOSED")),
        (trade(&order(RESOLVED, "Yes", "SELL", 9_999)), Refused(400, "MARKET_CLOSED")),
        (trade(&order(ODD_FEE, "Yes", "SELL", 9_999)), Refused(400, "MARKET_CLOSED")),
        (trade(&order(BOOKLESS, "Yes", "SELL", 9_999)), Refused(503, "VENUE_UNAVAILABLE")),
        (trade(&order(PLAIN, "Yes", "SELL", 9_999)), Refused(400, "INSUFFICIENT_POSITION")),
        (trade(&order(PLAIN, "Yes", "BUY", 9_999)), Refused(400, "INSUFFICIENT_LIQUIDITY")),
        (trade(&order(PLAIN, "No", "BUY", 301)), Refused(400, "INSUFFICIENT_LIQUIDITY")),
        (trade(&order(PLAIN, "Yes", "BUY", 1_100)), Refused(400, "SLIPPAGE_EXCEEDED")),
    ];
    for (request, outcome) in rows {
        outcome.check(&account.send(request));
    }
    // 100 at 0.50 and 1,000 at 0.53 cost a cent more than the balance.
    let poor = Server::start(&["--starting-balance", "579.99", "--address-limits", "off"]);
    let account = poor.account();
    Refused(400, "INSUFFICIENT_BALANCE").check(&account.post("/trade", &buy(1_100)));
    let mut slipping = buy(1_100);
    slipping["max_slippage_bps"] = json!(0);
    Refused(400, "SLIPPAGE_EXCEEDED").check(&account.post("/trade", &slipping));
}

/// A limit order that breaks every rule, with these fields changed.
fn broken(market: &str, outcome: &str, fields: &Value) -> Request {
    let mut order = json!({"market_id": market, "outcome": outcome, "side": "SELL",
        "order_type": "limit", "quantity": 1, "price": "0.505", "time_in_force": "FAK",
        "expected_price": 0.3, "max_slippage_bps": 0});
    for (name, value) in fields.as_object().unwrap() {
        order[name] = value.clone();
    }
    Request::post("/v1/orders", &order)
}

/// A post-only purchase that would fill.
fn crossing() -> Value {
    json!({"post_only": true, "side": "BUY", "quantity": 10, "price": "0.6",
        "time_in_force": "GTC"})
}

/// The rules of an order of any kind, in the same way.
#[test]
fn rules_of_an_order() {
    // No order of any account may rest.
    let server = Server::unlimited_with(&["--open-orders", "0"]);
    let account = server.account();
    let taken = Request::post("/v1/orders", &buy(1)).header("idempotency-key", "taken");
    account.send(taken).ok(200);
    let reused = broken("0xnone", "Maybe", &json!({"amount": 1}));
    let check = |request: Request, status, code| {
        Refused(status, code).check(&account.send(request));
    };
    check(reused.header("idempotency-key", "taken"), 409, "IDEMPOTENCY_KEY_REUSE");
    for (fields, code) in [
        (json!({"amount": 1}), "INVALID_ORDER_PAYLOAD"),
        (json!({"quantity": null}), "INVALID_ORDER_PAYLOAD"),
        (json!({"price": null}), "INVALID_ORDER_PAYLOAD"),
        (json!({"time_in_force": "GTD", "expiration": 1}), "INVALID_ORDER_EXPIRATION"),
        (json!({"expiration": 1, "post_only": true}), "INVALID_ORDER_EXPIRATION"),
        (json!({"post_only": true}), "INVALID_POST_ONLY_ORDER_TYPE"),
    ] {
        check(broken("0xnone", "Maybe", &fields), 400, code);
    }
    check(broken("0xnone", "Maybe", &json!({})), 404, "MARKET_NOT_FOUND");
    check(broken(PAUSED, "Maybe", &json!({})), 404, "OUTCOME_NOT_FOUND");
    check(broken(PAUSED, "Yes", &json!({})), 400, "MARKET_CLOSED");
    for (fields, status, code) in [
        (json!({}), 400, "INVALID_ORDER_MIN_TICK_SIZE"),
        (json!({"price": "0.5"}), 400, "ORDER_BELOW_MIN_SIZE"),
        (json!({"price": "0.5", "quantity": 10}), 503, "VENUE_UNAVAILABLE"),
    ] {
        check(broken(BOOKLESS, "Yes", &fields), status, code);
    }
    let mut sale = crossing();
    sale["side"] = json!("SELL");
    sale["price"] = json!("0.4");
    check(broken(PLAIN, "Yes", &sale), 400, "INSUFFICIENT_POSITION");
    check(broken(PLAIN, "Yes", &crossing()), 400, "OPEN_ORDER_LIMIT_EXCEEDED");
}

/// The last rules of an order: what the book offers, and what the account can pay.
#[test]
fn rules_of_an_order_that_could_fill() {
    let account = shared().account();
    let market = |quantity: Value, amount: Value, price: Value| {
        json!({"side": "BUY", "order_type": "market", "time_in_force": "FOK",
            "quantity": quantity, "amount": amount, "price": price})
    };
    let resting = |price: &str| {
        let (side, quantity) = ("BUY", 5_000);
        json!({"side": side, "quantity": quantity, "time_in_force": "GTC", "price": price})
    };
    let (none, many, cap) = (Value::Null, json!(5_000), json!("0.5"));
    for (fields, code) in [
        (crossing(), "POST_ONLY_WOULD_CROSS"),
        (market(many.clone(), none.clone(), none.clone()), "INSUFFICIENT_LIQUIDITY"),
        (market(many.clone(), none.clone(), cap.clone()), "FOK_ORDER_NOT_FILLED_ERROR"),
        (market(none.clone(), many.clone(), none.clone()), "INSUFFICIENT_LIQUIDITY"),
        (market(none.clone(), many, cap), "FOK_ORDER_NOT_FILLED_ERROR"),
        (market(none.clone(), json!("0.00001"), none), "INVALID_QUANTITY"),
        (resting("0.99"), "SLIPPAGE_EXCEEDED"),
        (resting("0.4"), "INSUFFICIENT_BALANCE"),
    ] {
        Refused(400, code).check(&account.send(broken(PLAIN, "Yes", &fields)));
    }
    assert_eq!(account.balance(), "1000");
}

fn trade(order: &Value) -> Request {
    Request::post("/trade", order)
}
