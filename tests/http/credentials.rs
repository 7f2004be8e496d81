//! Authentication and permissions: 401 for unknown callers, 403 for missing permissions.

use paperbourse::http::operation::{Access, Operation, Verb};
use paperbourse::http::operations::OPERATIONS;
use paperbourse_test_support::Request;
use serde_json::{Value, json};

use super::expect::check_error;
use super::recording::{PLAIN, buy};
use super::server::{Server, printed_token, shared};

/// The path of an operation, with existing things as its parameters, and those of the query that it
/// requires.
pub(crate) fn path_of(operation: &Operation, order_id: &Value) -> String {
    let path = operation.path.as_str();
    let path = path.replace("{condition_id}", PLAIN).replace("{order_id}", &order_id.to_string());
    let path = path.replace("{slug}", "invented-market-0").replace("{token_id}", "700000");
    let path = path.replace("{page}", "orders").replace("{file}", "maker.py");
    let path = path.replace("{part}", "console.js");
    let path = path.replace("{library}", "preact.mjs");
    let path = path.replace(&format!("{{{}}}", operation.path.parameter()), "64");
    let required = operation.query.iter().filter(|parameter| parameter.is_required);
    let query: Vec<String> = required.map(|it| format!("{}=700000", it.name)).collect();
    if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) }
}

/// Requests for every operation that needs a credential, except sockets. Each is refused before its
/// body is read.
fn guarded_requests() -> impl Iterator<Item = Request> {
    let is_guarded = |access| !matches!(access, Access::Public | Access::Socket);
    let guarded = OPERATIONS.iter().filter(move |operation| is_guarded(operation.access));
    guarded.map(|operation| Request::new(operation.method.as_str(), path_of(operation, &json!(64))))
}

/// The paths of all public operations.
fn public_paths(order_id: &Value) -> impl Iterator<Item = String> {
    // Streams never end.
    let is_public =
        |it: &&Operation| it.access == Access::Public && !it.path.as_str().ends_with("/stream");
    OPERATIONS.iter().filter(is_public).map(|operation| {
        assert_eq!(operation.method, Verb::Get, "{operation:?}");
        path_of(operation, order_id)
    })
}

#[test]
fn a_missing_credential_is_refused() {
    for request in guarded_requests() {
        check_error(&shared().send(&request), 401, "MISSING_AUTH");
        // A client's unset variable makes an empty header.
        check_error(&shared().send(&request.key("")), 401, "MISSING_AUTH");
    }
}

#[test]
fn a_wrong_credential_is_refused_everywhere() {
    let server = shared();
    let account = server.account();
    let revoked = account.new_key(&json!({}));
    account.delete(format!("/v1/keys/{}", revoked["id"])).ok(200);
    let revoked = revoked["raw_key"].as_str().unwrap();
    let unknown = format!("ps_live_{}", "0".repeat(64));
    let expired = server.expired_token(&account.subject);
    let foreign = Server::start(&[]).token(&account.subject, None);
    let tampered = format!("{}A", account.token);
    let order_id = account.buy(1)["order_id"].clone();
    let public = public_paths(&order_id);
    // These are answered before authentication.
    let is_unchecked = |path: &str| {
        ["/v1/health", "/docs", "/console", "/openapi.json", "/asyncapi.json"]
            .iter()
            .any(|it| path.starts_with(it))
            || path == "/"
    };
    let is_checked = |path: &String| !is_unchecked(path);
    let public = public.filter(is_checked).map(Request::get);
    for request in guarded_requests().chain(public) {
        let check = |request: Request, code| check_error(&server.send(&request), 401, code);
        check(request.clone().key(&unknown), "INVALID_KEY");
        check(request.clone().key("nonsense"), "INVALID_KEY");
        check(request.clone().bearer(&unknown), "INVALID_KEY");
        check(request.clone().key(revoked), "KEY_DEACTIVATED");
        check(request.clone().bearer(revoked), "KEY_DEACTIVATED");
        check(request.clone().bearer(&expired), "TOKEN_EXPIRED");
        check(request.clone().bearer(&foreign), "INVALID_TOKEN");
        check(request.clone().bearer(&tampered), "INVALID_TOKEN");
        check(request.clone().bearer("nonsense"), "INVALID_TOKEN");
        check(request.clone().header("authorization", "Basic dTpw"), "INVALID_TOKEN");
    }
}

#[test]
fn public_routes_need_no_credential() {
    let account = shared().account();
    // A stream has no end that could be waited for; `streams` tests it.
    let is_whole = |path: &String| !path.ends_with("/stream");
    for path in public_paths(&account.buy(1)["order_id"]).filter(is_whole) {
        for response in [shared().get(&*path), account.get(&*path)] {
            assert_eq!(response.status, 200, "{path}: {response:?}");
        }
    }
}

#[test]
fn a_token_is_accepted_where_the_contract_says() {
    let account = shared().account();
    let order_id = account.buy(1)["order_id"].clone();
    let content = json!({"content": "x"});
    for (request, status) in [
        (Request::post("/v1/keys", &json!({})), 201),
        (Request::get("/v1/keys"), 200),
        (Request::post("/v1/keys/ws-token", &json!({})), 200),
        (Request::post("/trade", &buy(1)), 200),
        (Request::post(format!("/trades/{order_id}/comments"), &content), 200),
        (Request::get(format!("/trades/{order_id}/comments")), 200),
        (Request::get("/v1/me"), 200),
        (Request::get("/v1/account/balance"), 200),
        (Request::get("/v1/account/positions"), 200),
        (Request::get("/v1/account/portfolio"), 200),
        (Request::get("/v1/account/history"), 200),
    ] {
        shared().send(&request.bearer(&account.token)).ok(status);
    }
    for request in [
        Request::post("/v1/orders", &buy(1)),
        Request::post("/v1/orders/batch", &json!({"orders": [buy(1)]})),
        Request::delete("/v1/cancel-all"),
        Request::post("/v1/prices/batch", &json!({"market_ids": [PLAIN]})),
        Request::get("/v1/orders"),
        Request::get(format!("/v1/orders/{order_id}")),
    ] {
        let response = shared().send(&request.bearer(&account.token));
        check_error(&response, 401, "INVALID_TOKEN");
        assert!(response.json()["message"].as_str().unwrap().contains("API key"));
    }
}

#[test]
fn a_token_without_an_account_finds_nothing_until_it_writes() {
    let server = shared();
    let token = server.token("no-account-yet", None);
    let send = |request: Request| server.send(&request.bearer(&token));
    assert_eq!(send(Request::get("/v1/keys")).ok(200), json!([]));
    for path in [
        "/v1/me",
        "/v1/account/balance",
        "/v1/account/positions",
        "/v1/account/portfolio",
        "/v1/account/history",
    ] {
        check_error(&send(Request::get(path)), 404, "ACCOUNT_NOT_FOUND");
    }
    check_error(&send(Request::post("/v1/keys/ws-token", &json!({}))), 404, "ACCOUNT_NOT_FOUND");
    for request in [
        Request::patch("/v1/keys/64", &json!({"name": "x"})),
        Request::post("/v1/keys/64/rotate", &json!({})),
        Request::delete("/v1/keys/64"),
    ] {
        check_error(&send(request), 404, "ACCOUNT_NOT_FOUND");
    }
    let trade = send(Request::post("/trade", &buy(1))).ok(200);
    assert_eq!(trade["account_balance"], 999.5);
    send(Request::get("/v1/account/balance")).ok(200);
}

#[test]
fn the_key_takes_precedence_but_on_bootstrap_the_token() {
    let server = shared();
    let (one, other) = (server.account(), server.account());
    let both = |request: Request| request.key(&one.key).bearer(&other.token);
    let mine = server.send(&both(Request::get("/v1/keys"))).ok(200);
    assert_eq!(mine[0]["id"], one.key_id);
    let invalid = Request::get("/v1/keys").key("nonsense").bearer(&other.token);
    check_error(&server.send(&invalid), 401, "INVALID_KEY");
    let bootstrap = Request::post("/v1/keys/bootstrap", &json!({}));
    let token = server.token("beside-a-key", None);
    server.send(&bootstrap.clone().key("nonsense").bearer(&token)).ok(201);
    // A key cannot replace the token.
    check_error(&server.send(&bootstrap.clone().key(&one.key)), 401, "MISSING_AUTH");
    check_error(&server.send(&bootstrap.bearer(&one.key)), 401, "MISSING_AUTH");
    let bearer = Request::get("/v1/keys").bearer(&one.key);
    assert_eq!(server.send(&bearer).ok(200)[0]["id"], one.key_id);
}

#[test]
fn a_key_may_do_what_its_permissions_allow() {
    let account = shared().account();
    let order_id = account.buy(1)["order_id"].clone();
    let key = |permission| {
        let key = account.new_key(&json!({"permissions": [permission]}));
        key["raw_key"].as_str().unwrap().to_owned()
    };
    let keys = ["read", "trade", "admin"].map(key);
    let comments = format!("/trades/{order_id}/comments");
    let rows: [(Request, [bool; 3]); 15] = [
        (Request::get("/v1/keys"), [true, false, false]),
        (Request::get("/v1/orders"), [true, false, false]),
        (Request::get(format!("/v1/orders/{order_id}")), [true, false, false]),
        (Request::get("/v1/me"), [true, false, false]),
        (Request::get("/v1/account/balance"), [true, false, false]),
        (Request::get("/v1/account/positions"), [true, false, false]),
        (Request::get("/v1/account/portfolio"), [true, false, false]),
        (Request::get("/v1/account/history"), [true, false, false]),
        (Request::post("/v1/prices/batch", &json!({"market_ids": [PLAIN]})), [true, false, false]),
        (Request::post("/trade", &buy(1)), [false, true, false]),
        (Request::post("/v1/orders/preview", &buy(1)), [true, false, false]),
        (Request::post("/v1/orders/batch", &json!({"orders": [buy(1)]})), [false, true, false]),
        (Request::post(&*comments, &json!({"content": "x"})), [false, true, false]),
        (Request::get(&*comments), [true, true, true]),
        (Request::post("/v1/keys/ws-token", &json!({})), [true, true, true]),
    ];
    for (request, allowed) in rows {
        for (key, is_allowed) in keys.iter().zip(allowed) {
            let response = shared().send(&request.clone().key(key));
            if is_allowed {
                response.ok(200);
            } else {
                check_error(&response, 403, "INSUFFICIENT_PERMISSION");
            }
        }
    }
}

#[test]
fn the_command_prints_a_token_and_nothing_else() {
    let server = shared();
    let printed = printed_token(&server.data(), "printed");
    assert_eq!(printed.lines().count(), 1);
    let token = printed.trim_end();
    let bootstrap = Request::post("/v1/keys/bootstrap", &json!({})).bearer(token);
    server.send(&bootstrap).ok(201);
}
