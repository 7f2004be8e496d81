//! The life of keys: bootstrap, further keys, and revocation.

use paperbourse::limits::tier::Tier;
use paperbourse_test_support::{Request, Response};
use serde_json::{Value, json};

use super::expect::check_error;
use super::server::{Account, Server, shared};

fn raw(key: &Value) -> &str {
    key["raw_key"].as_str().unwrap()
}

fn bootstrap(server: &Server, token: &str) -> Response {
    server.send(&Request::post("/v1/keys/bootstrap", &json!({})).bearer(token))
}

fn ids(rows: &Value) -> Vec<u64> {
    rows.as_array().unwrap().iter().map(|row| row["id"].as_u64().unwrap()).collect()
}

/// Creates a key with another key.
fn make(with: &str, request: &Value) -> Response {
    shared().send(&Request::post("/v1/keys", request).key(with))
}

#[test]
fn bootstrap_is_for_the_first_active_key() {
    let account = shared().account();
    let refused = bootstrap(shared(), &account.token);
    check_error(&refused, 400, "BOOTSTRAP_NOT_ALLOWED");
    assert!(refused.json()["message"].as_str().unwrap().contains("POST /v1/keys"));
    let second = account.new_key(&json!({}));
    account.delete(format!("/v1/keys/{}", account.key_id)).ok(200);
    check_error(&bootstrap(shared(), &account.token), 400, "BOOTSTRAP_NOT_ALLOWED");
    let delete = Request::delete(format!("/v1/keys/{}", second["id"])).bearer(&account.token);
    shared().send(&delete).ok(200);
    // Without an active key, bootstrap creates one for the same account.
    let third = bootstrap(shared(), &account.token).ok(201);
    let rows = Request::get("/v1/keys").bearer(&account.token);
    let expected = [&json!(account.key_id), &second["id"], &third["id"]];
    let rows = shared().send(&rows).ok(200);
    assert_eq!(rows.as_array().unwrap().iter().map(|row| &row["id"]).collect::<Vec<_>>(), expected);
}

#[test]
fn an_account_has_at_most_five_active_keys() {
    let account = shared().account();
    let keys: Vec<Value> = (0..4).map(|_| account.new_key(&json!({}))).collect();
    let one_more = || shared().send(&Request::post("/v1/keys", &json!({})).bearer(&account.token));
    check_error(&one_more(), 400, "TIER_KEY_LIMIT_EXCEEDED");
    check_error(&make(&account.key, &json!({})), 400, "TIER_KEY_LIMIT_EXCEEDED");
    account.delete(format!("/v1/keys/{}", keys[0]["id"])).ok(200);
    one_more().ok(201);
    check_error(&one_more(), 400, "TIER_KEY_LIMIT_EXCEEDED");
    let rows = account.get("/v1/keys").ok(200);
    assert_eq!(rows.as_array().unwrap().len(), 6, "revoked keys are listed too");
}

#[test]
fn a_key_gives_no_more_than_it_has() {
    let server = shared();
    let keys = [
        (json!({"permissions": ["read", "trade"]}), false),
        (json!({"permissions": ["trade"]}), false),
        (json!({"permissions": ["admin"]}), true),
    ];
    for (request, is_admin) in keys {
        let account = server.account_with(&request, None);
        let own = &request["permissions"];
        make(&account.key, &json!({"permissions": own})).ok(201);
        let more = make(&account.key, &json!({"permissions": ["read", "trade", "admin"]}));
        if is_admin {
            more.ok(201);
        } else {
            check_error(&more, 403, "INSUFFICIENT_PERMISSION");
        }
    }
    let trader = server.account_with(&json!({"permissions": ["trade"]}), None);
    // The defaults are more than the key has.
    check_error(&make(&trader.key, &json!({})), 403, "INSUFFICIENT_PERMISSION");
}

#[test]
fn a_key_gives_no_higher_tier_and_neither_does_a_token() {
    let server = shared();
    let request = json!({"tier": "pro", "permissions": ["read", "trade", "admin"]});
    let pro = server.account_with(&request, Some(Tier::Pro));
    for (tier, is_allowed) in [("free", true), ("pro", true), ("enterprise", false)] {
        let by_key = Request::post("/v1/keys", &json!({"tier": tier})).key(&pro.key);
        let by_token = Request::post("/v1/keys", &json!({"tier": tier})).bearer(&pro.token);
        for request in [by_key, by_token] {
            let response = server.send(&request);
            if is_allowed {
                assert_eq!(response.ok(201)["rate_limit_tier"], tier);
            } else {
                check_error(&response, 403, "TIER_NOT_AUTHORIZED");
            }
        }
    }
    let free = server.token("entitled-to-nothing", None);
    let request = Request::post("/v1/keys/bootstrap", &json!({"tier": "pro"})).bearer(&free);
    check_error(&server.send(&request), 403, "TIER_NOT_AUTHORIZED");
    let generous = Server::start(&["--default-tier", "pro"]);
    let token = generous.token("entitled-by-default", None);
    let request = Request::post("/v1/keys/bootstrap", &json!({"tier": "pro"})).bearer(&token);
    generous.send(&request).ok(201);
}

#[test]
fn a_list_without_admin_shows_the_own_key() {
    let account = shared().account();
    let reads = account.new_key(&json!({"permissions": ["read"]}));
    let all = [account.key_id, reads["id"].as_u64().unwrap()];
    assert_eq!(ids(&account.get("/v1/keys").ok(200)), all);
    let by_token = Request::get("/v1/keys").bearer(&account.token);
    assert_eq!(ids(&shared().send(&by_token).ok(200)), all);
    let own = shared().send(&Request::get("/v1/keys").key(raw(&reads))).ok(200);
    assert_eq!(ids(&own), all[1..]);
    let text = account.get("/v1/keys").text;
    assert!(!text.contains(&account.key) && !text.contains(raw(&reads)));
}

#[test]
fn a_revoked_key_fails_at_its_next_request() {
    let account = shared().account();
    let key = account.new_key(&json!({"permissions": ["read"]}));
    let mut connection = shared().connect();
    let request = Request::get("/v1/account/balance").key(raw(&key));
    connection.send(&request).ok(200);
    account.delete(format!("/v1/keys/{}", key["id"])).ok(200);
    check_error(&connection.send(&request), 401, "KEY_DEACTIVATED");
    let rows = account.get("/v1/keys").ok(200);
    assert_eq!((&rows[1]["is_active"], &rows[0]["is_active"]), (&json!(false), &json!(true)));
}

#[test]
fn who_may_revoke_which_key() {
    let account = shared().account();
    let reads = account.new_key(&json!({"permissions": ["read"]}));
    let trades = account.new_key(&json!({"permissions": ["trade"]}));
    let revoke = |with: &str, key: &Value| {
        shared().send(&Request::delete(format!("/v1/keys/{}", key["id"])).key(with))
    };
    check_error(&revoke(raw(&reads), &trades), 403, "INSUFFICIENT_PERMISSION");
    revoke(raw(&reads), &reads).ok(200);
    revoke(&account.key, &trades).ok(200);
    let stranger = shared().account();
    let own = json!({"id": account.key_id});
    check_error(&revoke(&stranger.key, &own), 404, "KEY_NOT_FOUND");
    account.get("/v1/account/balance").ok(200);
    check_error(&account.delete("/v1/keys/9007199254740990"), 404, "KEY_NOT_FOUND");
    check_error(&account.delete("/v1/keys/0"), 404, "KEY_NOT_FOUND");
    super::expect::check_invalid(&account.delete("/v1/keys/x"), &["path.key_id: int_parsing"]);
    let flag = account.delete(format!("/v1/keys/{}?descendants=maybe", account.key_id));
    super::expect::check_invalid(&flag, &["query.descendants: bool_parsing"]);
}

/// A key with a child and a grandchild, and an unrelated key.
fn family(account: &Account<'_>) -> [Value; 4] {
    let request = json!({"permissions": ["read"]});
    let parent = account.new_key(&request);
    let child = make(raw(&parent), &request).ok(201);
    let grandchild = make(raw(&child), &request).ok(201);
    [parent, child, grandchild, account.new_key(&request)]
}

#[test]
fn descendants_are_revoked_with_their_maker_on_request() {
    for (query, still_active) in [
        ("", [false, true, true, true]),
        ("?descendants=false", [false, true, true, true]),
        ("?descendants=true", [false, false, false, true]),
    ] {
        let account = shared().account();
        let keys = family(&account);
        account.delete(format!("/v1/keys/{}{query}", keys[0]["id"])).ok(200);
        for (key, is_active) in keys.iter().zip(still_active) {
            let response = shared().send(&Request::get("/v1/orders").key(raw(key)));
            if is_active {
                response.ok(200);
            } else {
                check_error(&response, 401, "KEY_DEACTIVATED");
            }
        }
    }
}

#[test]
fn a_socket_token_lives_a_minute() {
    let account = shared().account();
    let token = account.post("/v1/keys/ws-token", &json!({})).ok(200);
    super::expect::check_fields(
        &token,
        &[("token", super::expect::Kind::Text), ("expires_in", super::expect::Kind::Integer)],
    );
    assert_eq!(token["expires_in"], 60);
}
