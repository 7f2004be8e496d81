//! Rate limits from the client's side: windows of keys and buckets of addresses.

use std::time::Duration;

use paperbourse::limits::tier::Tier;
use paperbourse_test_support::{Request, Response};
use serde_json::json;

use super::expect::check_error;
use super::recording::PLAIN;
use super::server::{Server, shared};

const UNLIMITED: u64 = 2_147_483_647;
/// The most requests of a loop that sends until it is refused.
const REQUESTS_MAX: usize = 2_000;

fn now_seconds() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()
}

#[track_caller]
fn number_of(response: &Response, name: &str) -> u64 {
    let value = response.header(name).unwrap_or_else(|| panic!("{name}: {response:?}"));
    value.parse().unwrap()
}

/// Sends the same request this many times on one connection before it reads the first answer.
fn burst(server: &Server, request: &Request, count: usize) -> Vec<Response> {
    let mut connection = server.connect();
    connection.write(&request.to_bytes().repeat(count));
    (0..count).map(|_| connection.read(false)).collect()
}

#[test]
fn the_second_lets_five_through_and_retry_after_is_enough() {
    let server = Server::start(&["--tier", "free=5/300/2/5", "--address-limits", "off"]);
    let account = server.account();
    let request = Request::get("/v1/account/balance").key(&account.key);
    let responses = burst(&server, &request, 8);
    let (admitted, refused) = responses.split_at(5);
    for (index, response) in (0..).zip(admitted) {
        response.ok(200);
        assert_eq!(number_of(response, "x-ratelimit-remaining-per-second"), 4 - index);
        assert_eq!(number_of(response, "x-ratelimit-remaining"), 299 - index);
    }
    for response in refused {
        check_error(response, 429, "RATE_LIMIT_EXCEEDED");
        let body = response.json();
        let said =
            "Rate limit exceeded. Retry after 1s. The tier free allows 5 requests in a second.";
        assert_eq!(body["detail"], said);
        assert_eq!(number_of(response, "retry-after"), 1);
        assert_eq!(number_of(response, "x-ratelimit-remaining-per-second"), 0);
        // A refusal does not count.
        assert_eq!(number_of(response, "x-ratelimit-remaining"), 295);
        assert!(number_of(response, "x-ratelimit-reset") <= now_seconds() + 2);
    }
    // This wait is part of the contract.
    std::thread::sleep(Duration::from_secs(1));
    server.send(&request).ok(200);
}

#[test]
fn the_minute_is_limited_too() {
    let server = Server::start(&["--tier", "free=unlimited/3/2/5", "--address-limits", "off"]);
    let account = server.account();
    let started = now_seconds();
    for remaining in [2, 1, 0] {
        let response = account.get("/v1/orders");
        response.ok(200);
        assert_eq!(response.header("x-ratelimit-tier"), Some("free"));
        assert_eq!(number_of(&response, "x-ratelimit-limit"), 3);
        assert_eq!(number_of(&response, "x-ratelimit-limit-per-second"), UNLIMITED);
        assert_eq!(number_of(&response, "x-ratelimit-remaining"), remaining);
        assert_eq!(number_of(&response, "x-ratelimit-remaining-per-second"), UNLIMITED);
    }
    let refused = account.get("/v1/orders");
    check_error(&refused, 429, "RATE_LIMIT_EXCEEDED");
    let wait = number_of(&refused, "retry-after");
    assert!((1..=60).contains(&wait) && wait + (now_seconds() - started) >= 59, "{wait}");
    let reset = number_of(&refused, "x-ratelimit-reset");
    assert!((started + 60..=now_seconds() + 61).contains(&reset), "{reset}");
    // Another key has separate windows.
    let other = account.new_key(&json!({}));
    let other = other["raw_key"].as_str().unwrap();
    server.send(&Request::get("/v1/orders").key(other)).ok(200);
}

/// A key and its successor share their windows, with an overlap and without.
#[test]
fn a_rotated_key_passes_on_its_windows() {
    for overlap_seconds in [600, 0] {
        let flags = ["--tier", "free=unlimited/6/2/5", "--address-limits", "off"];
        let server = Server::start(&flags);
        let account = server.account();
        let orders = |key: &str| server.send(&Request::get("/v1/orders").key(key));
        let rotated = |key: &str, id: &serde_json::Value| {
            let body = json!({"overlap_seconds": overlap_seconds});
            let request = Request::post(format!("/v1/keys/{id}/rotate"), &body).key(key);
            server.send(&request).ok(200)
        };
        orders(&account.key).ok(200);
        let second = rotated(&account.key, &json!(account.key_id));
        let second_raw = second["raw_key"].as_str().unwrap();
        let remaining = number_of(&orders(second_raw), "x-ratelimit-remaining");
        assert_eq!(remaining, 3, "a request and a rotation came before");
        let third = rotated(second_raw, &second["id"]);
        let third_raw = third["raw_key"].as_str().unwrap();
        orders(third_raw).ok(200);
        if overlap_seconds > 0 {
            orders(&account.key).ok(200);
            check_error(&orders(&account.key), 429, "RATE_LIMIT_EXCEEDED");
        } else {
            orders(third_raw).ok(200);
        }
        check_error(&orders(third_raw), 429, "RATE_LIMIT_EXCEEDED");
        // Other keys have separate windows.
        let other = account.new_key(&json!({}));
        orders(other["raw_key"].as_str().unwrap()).ok(200);
    }
}

#[test]
fn every_answer_after_authentication_has_the_limits() {
    let account = shared().account();
    let reads = account.new_key(&json!({"permissions": ["read"]}));
    let reads = reads["raw_key"].as_str().unwrap();
    for (response, status) in [
        (account.get("/v1/orders"), 200),
        (account.get("/v1/markets"), 200),
        (account.get("/v1/keys/tiers"), 200),
        (account.get("/v1/orders/9007199254740990"), 404),
        (account.post("/trade", &json!({})), 422),
        (shared().send(&Request::post("/trade", &json!({})).key(reads)), 403),
        (shared().send(&Request::get("/v1/keys").bearer(&account.token)), 200),
        (
            shared().send(&Request::post("/v1/keys/bootstrap", &json!({})).bearer(&account.token)),
            400,
        ),
    ] {
        assert_eq!(response.status, status, "{}", response.text);
        assert_eq!(response.header("x-ratelimit-tier"), Some("free"));
        for name in ["limit", "limit-per-second", "remaining", "remaining-per-second"] {
            assert_eq!(number_of(&response, &format!("x-ratelimit-{name}")), UNLIMITED);
        }
        assert!(number_of(&response, "x-ratelimit-reset").abs_diff(now_seconds()) <= 2);
    }
    for response in [
        shared().get("/v1/markets"),
        shared().get("/v1/orders"),
        shared().send(&Request::get("/v1/orders").key("nonsense")),
        account.get("/nowhere"),
        account.get("/v1/health"),
    ] {
        let is_limited = response.headers.iter().any(|(name, _)| name.starts_with("x-ratelimit"));
        assert!(!is_limited, "{response:?}");
    }
}

#[test]
fn a_token_is_limited_for_its_account_at_its_entitled_tier() {
    let tiers = "free=unlimited/3/2/5,pro=unlimited/4/2/5";
    let server = Server::start(&["--tier", tiers, "--address-limits", "off"]);
    let token = |tier| server.token("limited-by-token", tier);
    let get = |token: &str| server.send(&Request::get("/v1/keys").bearer(token));
    for _ in 0..4 {
        let response = get(&token(Some(Tier::Pro)));
        response.ok(200);
        assert_eq!(response.header("x-ratelimit-tier"), Some("pro"));
    }
    // Another token of the same identity shares the limit.
    check_error(&get(&token(Some(Tier::Pro))), 429, "RATE_LIMIT_EXCEEDED");
    get(&server.token("somebody-else", None)).ok(200);
}

#[test]
fn a_token_with_a_higher_tier_is_limited_at_that_tier() {
    let tiers = "free=unlimited/3/2/5,pro=unlimited/6/2/5";
    let server = Server::start(&["--tier", tiers, "--address-limits", "off"]);
    let get = |tier| {
        let token = server.token("upgraded", tier);
        server.send(&Request::get("/v1/keys").bearer(&token))
    };
    for (tier, limit, count) in [(None, 3, 3), (Some(Tier::Pro), 6, 6)] {
        for _ in 0..count {
            let response = get(tier);
            response.ok(200);
            assert_eq!(number_of(&response, "x-ratelimit-limit"), limit);
        }
        check_error(&get(tier), 429, "RATE_LIMIT_EXCEEDED");
    }
}

#[test]
fn a_batch_is_one_request() {
    let server = Server::start(&["--tier", "free=unlimited/3/2/5", "--address-limits", "off"]);
    let account = server.account();
    let batch = json!({"orders": vec![super::recording::buy(1); 5]});
    let markets = json!({"market_ids": vec![PLAIN; 5]});
    for (path, body) in
        [("/v1/orders/batch", &batch), ("/v1/prices/batch", &markets), ("/v1/orders/batch", &batch)]
    {
        account.post(path, body).ok(200);
    }
    check_error(&account.post("/v1/orders/batch", &batch), 429, "RATE_LIMIT_EXCEEDED");
}

/// Sends until the server refuses. Returns the number of other answers.
#[track_caller]
fn until_refused(server: &Server, request: &Request) -> usize {
    let mut connection = server.connect();
    for count in 0..REQUESTS_MAX {
        let response = connection.send(request);
        if response.status == 429 {
            check_error(&response, 429, "RATE_LIMIT_EXCEEDED");
            return count;
        }
    }
    panic!("never refused");
}

#[test]
fn public_reads_without_a_credential_are_limited_by_address() {
    let server = Server::start(&["--tier", "free=unlimited/unlimited/2/5"]);
    let account = server.account();
    let anonymous = Request::get(format!("/v1/markets/{PLAIN}"));
    assert!(until_refused(&server, &anonymous) >= 20);
    for response in burst(&server, &Request::get("/v1/health"), 100) {
        response.ok(200);
    }
    for response in burst(&server, &anonymous.key(&account.key), 100) {
        response.ok(200);
    }
}

/// Requests that open an account share a bucket with each other, and with no other requests.
#[test]
fn opening_accounts_is_limited_by_address() {
    let server = Server::start(&["--tier", "free=unlimited/unlimited/2/5"]);
    let owner = server.account();
    let comments = format!("/trades/{}/comments", owner.buy(1)["order_id"]);
    let operations = [
        (Request::post("/v1/keys/bootstrap", &json!({})), 201),
        (Request::post("/v1/keys", &json!({})), 201),
        (Request::post("/trade", &super::recording::buy(1)), 200),
        (Request::post(&*comments, &json!({"content": "hello"})), 200),
    ];
    let send = |subject: &str, request: &Request| {
        server.send(&request.clone().bearer(&server.token(subject, None)))
    };
    // Together with the owner's account these are the burst of five.
    for (number, (request, status)) in operations.iter().enumerate() {
        send(&format!("in-time-{number}"), request).ok(*status);
    }
    for (number, (request, status)) in operations.iter().enumerate() {
        let refused = send(&format!("too-soon-{number}"), request);
        check_error(&refused, 429, "RATE_LIMIT_EXCEEDED");
        assert!((30..=60).contains(&number_of(&refused, "retry-after")), "{refused:?}");
        // An open account is not limited.
        if number > 0 {
            send("in-time-0", request).ok(*status);
        }
    }
    let again = send("in-time-0", &operations[0].0);
    check_error(&again, 400, "BOOTSTRAP_NOT_ALLOWED");
    check_error(
        &send("too-soon-0", &Request::get("/v1/account/balance")),
        404,
        "ACCOUNT_NOT_FOUND",
    );
}

/// A burst of ten keys per account, whoever requests them, whether created or rotated.
#[test]
fn creating_keys_is_limited_by_account() {
    let server =
        Server::start(&["--tier", "free=unlimited/unlimited/2/5", "--address-limits", "off"]);
    let account = server.account();
    let by_token = |request: Request| server.send(&request.bearer(&account.token));
    let rotate = |id: &serde_json::Value| {
        Request::post(format!("/v1/keys/{id}/rotate"), &json!({"overlap_seconds": 0}))
    };
    // The bootstrap created one.
    let mut newest = account.post("/v1/keys", &json!({})).ok(201);
    for _ in 0..4 {
        newest = by_token(rotate(&newest["id"])).ok(200);
    }
    for _ in 0..4 {
        let made = by_token(Request::post("/v1/keys", &json!({}))).ok(201);
        by_token(Request::delete(format!("/v1/keys/{}", made["id"]))).ok(200);
    }
    for refused in [
        account.post("/v1/keys", &json!({})),
        by_token(Request::post("/v1/keys", &json!({}))),
        by_token(Request::post("/v1/keys/bootstrap", &json!({}))),
        account.send(rotate(&newest["id"])),
        by_token(rotate(&json!(account.key_id))),
    ] {
        check_error(&refused, 429, "RATE_LIMIT_EXCEEDED");
        assert!((1..=6).contains(&number_of(&refused, "retry-after")), "{refused:?}");
    }
    // Everything else keeps working, for this account and others.
    account.patch(format!("/v1/keys/{}", newest["id"]), &json!({"name": "x"})).ok(200);
    account.post("/v1/keys/ws-token", &json!({})).ok(200);
    account.delete(format!("/v1/keys/{}", newest["id"])).ok(200);
    server.account().new_key(&json!({}));
}

#[test]
fn wrong_credentials_are_limited_and_valid_ones_are_not() {
    let server = Server::start(&["--tier", "free=unlimited/unlimited/2/5"]);
    let account = server.account();
    let wrong = Request::get("/v1/orders").key("nonsense");
    assert!(until_refused(&server, &wrong) >= 50);
    for response in burst(&server, &Request::get("/v1/orders").key(&account.key), 100) {
        response.ok(200);
    }
}
