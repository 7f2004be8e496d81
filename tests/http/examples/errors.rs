//! A request that provokes each error.

use std::collections::BTreeMap;

use paperbourse::engine::rejection::Rejection;
use paperbourse::http::error::ApiError;
use paperbourse_test_support::event_stream::EventStream;
use paperbourse_test_support::{Request, Response};
use serde_json::{Value, json};

use super::walk::STILL;
use crate::expect::eventually;
use crate::recording::{BOOKLESS, buy, token_id};
use crate::server::{Account, Server, shared};

/// Errors by their codes.
#[derive(Default)]
struct Errors(BTreeMap<String, Value>);

impl Errors {
    /// Keeps an answer with this code.
    #[track_caller]
    fn note(&mut self, code: &str, response: &Response) {
        assert_eq!(response.json()["error"], code, "{response:?}");
        let former = self.0.insert(code.to_owned(), response.json());
        assert_eq!(former, None, "{code} is provoked twice");
    }
}

/// An error with each code.
pub(super) fn provoked() -> BTreeMap<String, Value> {
    let mut errors = Errors::default();
    let server = Server::simulated_with(&STILL);
    let account = server.account();
    of_credentials(&mut errors, &server);
    of_requests(&mut errors, &account);
    of_orders(&mut errors, &account);
    of_names(&mut errors, &account);
    of_keys(&mut errors, &server);
    of_limits(&mut errors);
    of_memory(&mut errors, server);
    // Provoked elsewhere: they take a full disk, a large export, a provider that is gone, a market
    // with a delay, an operator, a start that is caught in the act, a cluster whose log is damaged
    // or whose node hangs, and a bug.
    for error in [
        ApiError::journal_full(),
        ApiError::export_limit_exceeded(2),
        ApiError::identity_unavailable(1),
        Rejection::ResetWhileDelayed.into(),
        Rejection::AccountSuspended.into(),
        ApiError::not_ready(),
        ApiError::log_halted(),
        ApiError::outcome_unknown(),
        ApiError::internal("a bug"),
    ] {
        let code = error.code.to_owned();
        let body = serde_json::from_slice(&error.into_reply().body).unwrap();
        assert_eq!(errors.0.insert(code, body), None);
    }
    errors.0
}

fn of_credentials(errors: &mut Errors, server: &Server) {
    let account = server.account();
    let reads = account.new_key(&json!({ "permissions": ["read"] }));
    let reads = reads["raw_key"].as_str().unwrap();
    let revoked = account.new_key(&json!({}));
    account.delete(format!("/v1/keys/{}", revoked["id"])).ok(200);
    let orders = || Request::get("/v1/orders");
    for (code, request) in [
        ("MISSING_AUTH", orders()),
        ("INVALID_KEY", orders().key("nonsense")),
        ("KEY_DEACTIVATED", orders().key(revoked["raw_key"].as_str().unwrap())),
        ("INVALID_TOKEN", Request::get("/v1/keys").bearer("nonsense")),
        ("TOKEN_EXPIRED", Request::get("/v1/keys").bearer(&server.expired_token("late"))),
        ("INSUFFICIENT_PERMISSION", Request::post("/trade", &json!({})).key(reads)),
    ] {
        errors.note(code, &server.send(&request));
    }
    let rotate = format!("/v1/keys/{}/rotate", account.key_id);
    let next = account.post(&*rotate, &json!({ "overlap_seconds": 1 })).ok(200);
    let next = next["raw_key"].as_str().unwrap();
    let rotated = server.send(&Request::post(&*rotate, &json!({})).key(next));
    errors.note("KEY_ROTATED", &rotated);
    let expired = eventually(|| Some(account.get("/v1/orders")).filter(|it| it.status == 401));
    errors.note("KEY_EXPIRED", &expired);
    let ended = server.send(&Request::post(rotate, &json!({})).key(next));
    errors.note("KEY_ENDED", &ended);
}

fn of_requests(errors: &mut Errors, account: &Account<'_>) {
    let large = Request::new("POST", "/trade").body(vec![b' '; 70_000]);
    for (code, request) in [
        ("NOT_FOUND", Request::get("/v1/orders/1/fills")),
        ("NOT_OFFERED", Request::get("/v1/simulation/coverage")),
        ("BODY_TOO_LARGE", large),
        ("VALIDATION_FAILED", Request::post("/trade", &json!({ "side": "HOLD" }))),
        ("UPGRADE_REQUIRED", Request::get("/v1/ws/prices")),
        ("INVALID_INTERVAL", Request::get("/v1/prices-history?market=1&interval=2h")),
        ("INVALID_TIME_FILTER", Request::get("/v1/data/trades?after=yesterday")),
        ("INVALID_TOKEN_ID", Request::get("/v1/fee-rate?token_id=yes")),
        ("CONFIRMATION_REQUIRED", Request::post("/v1/cancel-all", &json!({}))),
    ] {
        errors.note(code, &account.send(request));
    }
    for (code, head) in [
        ("INVALID_HOST", "GET /v1/markets HTTP/1.1\r\n\r\n"),
        (
            "INVALID_TRANSFER_ENCODING",
            "POST /trade HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        ),
        ("HTTP_VERSION_TOO_OLD", "GET /prices/stream?condition_ids=0x1 HTTP/1.0\r\n\r\n"),
    ] {
        let mut connection = account.server.connect();
        connection.write(head.as_bytes());
        errors.note(code, &connection.read(false));
    }
}

/// A market of the simulated venue.
fn market(server: &Server, slug: &str) -> Value {
    server.get(format!("/v1/markets/by-slug/{slug}")).ok(200)["condition_id"].clone()
}

/// An order with these fields for the first outcome of a market.
fn order(market: &Value, fields: &Value) -> Value {
    let mut order = json!({ "market_id": market, "outcome": "Yes", "side": "BUY", "quantity": 10 });
    order.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    order
}

fn of_orders(errors: &mut Errors, account: &Account<'_>) {
    let open = market(account.server, "port-amber-tide");
    let closed = market(account.server, "quillford-bridge-vote");
    let cheap = market(account.server, "saltmarsh-heron-sighting");
    let filled = account.post("/trade", &order(&open, &json!({}))).ok(200);
    account.post("/trade", &order(&open, &json!({ "client_order_id": "mine" }))).ok(200);
    for (code, market, fields) in [
        ("MARKET_NOT_FOUND", &json!("0x1"), json!({})),
        ("OUTCOME_NOT_FOUND", &open, json!({ "outcome": "Maybe" })),
        ("MARKET_CLOSED", &closed, json!({})),
        ("IDEMPOTENCY_KEY_REUSE", &open, json!({ "client_order_id": "mine", "quantity": 11 })),
        ("INSUFFICIENT_POSITION", &open, json!({ "side": "SELL", "quantity": 500 })),
        ("INSUFFICIENT_LIQUIDITY", &cheap, json!({ "quantity": 1_000_000 })),
        ("INSUFFICIENT_BALANCE", &open, json!({ "quantity": 5_000 })),
        ("SLIPPAGE_EXCEEDED", &open, json!({ "expected_price": "0.5", "max_slippage_bps": 100 })),
    ] {
        errors.note(code, &account.post("/trade", &order(market, &fields)));
    }
    let limit = |fields: Value| {
        let mut order = order(&open, &json!({ "order_type": "limit", "price": "0.45" }));
        order.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        order
    };
    for (code, fields) in [
        ("INVALID_ORDER_PAYLOAD", json!({ "price": null })),
        ("INVALID_ORDER_EXPIRATION", json!({ "time_in_force": "GTD", "expiration": 1 })),
        ("INVALID_ORDER_MIN_TICK_SIZE", json!({ "price": "0.4505" })),
        ("INVALID_ORDER_MIN_SIZE", json!({ "quantity": 1 })),
        (
            "INVALID_QUANTITY",
            json!({
                "order_type": "market", "price": null, "quantity": null, "amount": "0.000001",
            }),
        ),
        ("INVALID_POST_ONLY_ORDER", json!({ "post_only": true, "price": "0.6" })),
        ("INVALID_POST_ONLY_ORDER_TYPE", json!({ "post_only": true, "time_in_force": "FOK" })),
        ("FOK_ORDER_NOT_FILLED_ERROR", json!({ "order_type": "market" })),
    ] {
        errors.note(code, &account.post("/v1/orders", &limit(fields)));
    }
    let filled = format!("/v1/orders/{}", filled["order_id"]);
    errors.note("ORDER_NOT_CANCELLABLE", &account.delete(filled));
    let batch = json!({ "orders": vec![order(&open, &json!({})); 6] });
    errors.note("BATCH_LIMIT_EXCEEDED", &account.post("/v1/orders/batch", &batch));
}

fn of_names(errors: &mut Errors, account: &Account<'_>) {
    let nobody = account.server.token("nobody", None);
    let keyed = |request: Request| request.key(&account.key);
    for (code, request) in [
        ("ACCOUNT_NOT_FOUND", Request::get("/v1/account/balance").bearer(&nobody)),
        ("WALLET_NOT_FOUND", keyed(Request::get("/v1/me/wallets/1"))),
        ("ORDER_NOT_FOUND", keyed(Request::get("/v1/orders/1"))),
        ("COMMENT_NOT_FOUND", keyed(Request::delete("/comments/1"))),
        ("KEY_NOT_FOUND", keyed(Request::delete("/v1/keys/1"))),
        ("TOKEN_NOT_FOUND", Request::get("/v1/book?token_id=1")),
    ] {
        errors.note(code, &account.server.send(&request));
    }
    // What the simulated venue never lacks.
    let fee_rate = format!("/v1/fee-rate?token_id={}", token_id(5, 0));
    errors.note("FEE_RATE_NOT_FOUND", &shared().get(fee_rate));
    let book = format!("/v1/markets/{BOOKLESS}/book");
    errors.note("BOOK_UNAVAILABLE", &shared().get(book));
    let mut order = buy(10);
    order["market_id"] = json!(BOOKLESS);
    errors.note("VENUE_UNAVAILABLE", &shared().account().post("/trade", &order));
}

fn of_keys(errors: &mut Errors, server: &Server) {
    let account = server.account();
    let bootstrap = Request::post("/v1/keys/bootstrap", &json!({})).bearer(&account.token);
    errors.note("BOOTSTRAP_NOT_ALLOWED", &server.send(&bootstrap));
    let tier = account.post("/v1/keys", &json!({ "tier": "pro" }));
    errors.note("TIER_NOT_AUTHORIZED", &tier);
    let one_more = || Some(account.post("/v1/keys", &json!({}))).filter(|it| it.status == 400);
    errors.note("TIER_KEY_LIMIT_EXCEEDED", &eventually(one_more));
}

fn of_limits(errors: &mut Errors) {
    let server = Server::simulated_with(
        &[&STILL[..], &["--open-orders", "1", "--streams-per-address", "1"]].concat(),
    );
    let account = server.account();
    let open = market(&server, "port-amber-tide");
    let resting = order(&open, &json!({ "order_type": "limit", "price": "0.45" }));
    account.post("/v1/orders", &resting).ok(200);
    errors.note("OPEN_ORDER_LIMIT_EXCEEDED", &account.post("/v1/orders", &resting));
    let path = format!("/prices/stream?condition_ids={}", open.as_str().unwrap());
    let _held = EventStream::open(&server, &Request::get(&*path)).unwrap();
    errors.note("STREAM_LIMIT_EXCEEDED", &server.get(path));
    let filled = account.post("/trade", &order(&open, &json!({}))).ok(200);
    let comments = format!("/trades/{}/comments", filled["order_id"]);
    let comment = json!({ "content": "Bought the dip." });
    let one_more = || Some(account.post(&*comments, &comment)).filter(|it| it.status == 400);
    errors.note("COMMENT_LIMIT_EXCEEDED", &eventually(one_more));

    let limited = Server::start(&["--tier", "free=1/unlimited/2/5"]);
    let account = limited.account();
    let orders = || Some(account.get("/v1/orders")).filter(|it| it.status == 429);
    errors.note("RATE_LIMIT_EXCEEDED", &eventually(orders));

    let crowded = Server::start(&["--connections-per-address", "2"]);
    let health = Request::get("/v1/health");
    // The place of a connection that has ended is free a moment later.
    let held = [(); 2].map(|()| {
        eventually(|| {
            let mut connection = crowded.connect();
            let answer = connection.try_send(&health);
            answer.is_ok_and(|answer| answer.status == 200).then_some(connection)
        })
    });
    errors.note("SERVER_BUSY", &crowded.connect().read(false));
    drop(held);
}

fn of_memory(errors: &mut Errors, server: Server) {
    let token = server.token("newcomer", None);
    let full = server.crash_and_restart_with(&[&STILL[..], &["--memory-limit", "1"]].concat());
    let bootstrap = Request::post("/v1/keys/bootstrap", &json!({})).bearer(&token);
    errors.note("SERVER_FULL", &full.send(&bootstrap));
}
