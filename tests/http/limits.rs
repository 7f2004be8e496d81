//! Rate limits as clients meet them: windows of keys and buckets of addresses.

use std::time::Duration;

use paperbourse::limits::tier::Tier;
use serde_json::json;

use super::client::{Request, Response};
use super::expect::check_error;
use super::recording::PLAIN;
use super::server::{Server, shared};

const UNLIMITED: u64 = 2_147_483_647;
/// An end for loops that send until they are refused.
const REQUESTS_MAX: usize = 2_000;

fn now_seconds() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()
}

#[track_caller]
fn number(response: &Response, name: &str) -> u64 {
    let value = response.header(name).unwrap_or_else(|| panic!("{name}: {response:?}"));
    value.parse().unwrap()
}

/// Sends the same request so often on one connection, all of it before the first answer is read.
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
        assert_eq!(number(response, "x-ratelimit-remaining-per-second"), 4 - index);
        assert_eq!(number(response, "x-ratelimit-remaining"), 299 - index);
    }
    for response in refused {
        check_error(response, 429, "RATE_LIMIT_EXCEEDED");
        let body = response.json();
        assert_eq!(body["detail"], "Rate limit exceeded. Retry after 1s.");
        assert_eq!(number(response, "retry-after"), 1);
        assert_eq!(number(response, "x-ratelimit-remaining-per-second"), 0);
        // A refusal takes nothing.
        assert_eq!(number(response, "x-ratelimit-remaining"), 295);
        assert!(number(response, "x-ratelimit-reset") <= now_seconds() + 2);
    }
    // The one wait that is part of the contract.
    std::thread::sleep(Duration::from_secs(1));
    server.send(&request).ok(200);
}

#[test]
fn the_minute_counts_as_well() {
    let server = Server::start(&["--tier", "free=unlimited/3/2/5", "--address-limits", "off"]);
    let account = server.account();
    let started = now_seconds();
    for remaining in [2, 1, 0] {
        let response = account.get("/v1/orders");
        response.ok(200);
        assert_eq!(response.header("x-ratelimit-tier"), Some("free"));
        assert_eq!(number(&response, "x-ratelimit-limit"), 3);
        assert_eq!(number(&response, "x-ratelimit-limit-per-second"), UNLIMITED);
        assert_eq!(number(&response, "x-ratelimit-remaining"), remaining);
        assert_eq!(number(&response, "x-ratelimit-remaining-per-second"), UNLIMITED);
    }
    let refused = account.get("/v1/orders");
    check_error(&refused, 429, "RATE_LIMIT_EXCEEDED");
    let wait = number(&refused, "retry-after");
    assert!((1..=60).contains(&wait) && wait + (now_seconds() - started) >= 59, "{wait}");
    let reset = number(&refused, "x-ratelimit-reset");
    assert!((started + 60..=now_seconds() + 61).contains(&reset), "{reset}");
    // A key of its own has windows of its own.
    let other = account.new_key(&json!({}));
    let other = other["raw_key"].as_str().unwrap();
    server.send(&Request::get("/v1/orders").key(other)).ok(200);
}

#[test]
fn every_answer_past_the_credential_tells_the_limits() {
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
            assert_eq!(number(&response, &format!("x-ratelimit-{name}")), UNLIMITED);
        }
        assert!(number(&response, "x-ratelimit-reset").abs_diff(now_seconds()) <= 2);
    }
    for response in [
        shared().get("/v1/markets"),
        shared().get("/v1/orders"),
        shared().send(&Request::get("/v1/orders").key("nonsense")),
        account.get("/nowhere"),
        account.get("/v1/health"),
    ] {
        let told = response.headers.iter().any(|(name, _)| name.starts_with("x-ratelimit"));
        assert!(!told, "{response:?}");
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
    // Another token of the same identity changes nothing.
    check_error(&get(&token(Some(Tier::Pro))), 429, "RATE_LIMIT_EXCEEDED");
    get(&server.token("somebody-else", None)).ok(200);
}

#[test]
fn a_token_that_brings_a_higher_tier_is_limited_at_that_one() {
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
            assert_eq!(number(&response, "x-ratelimit-limit"), limit);
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

/// Sends until the server refuses; how many were answered otherwise.
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

#[test]
fn bootstraps_are_limited_by_address() {
    let server = Server::start(&[]);
    let bootstrap = |number: usize| {
        let token = server.token(&format!("in-a-row-{number}"), None);
        server.send(&Request::post("/v1/keys/bootstrap", &json!({})).bearer(&token))
    };
    for number in 0..5 {
        bootstrap(number).ok(201);
    }
    let refused = bootstrap(5);
    check_error(&refused, 429, "RATE_LIMIT_EXCEEDED");
    assert!((50..=60).contains(&number(&refused, "retry-after")), "{refused:?}");
}

#[test]
fn wrong_credentials_are_slowed_down_and_good_ones_are_not() {
    let server = Server::start(&["--tier", "free=unlimited/unlimited/2/5"]);
    let account = server.account();
    let wrong = Request::get("/v1/orders").key("nonsense");
    assert!(until_refused(&server, &wrong) >= 50);
    for response in burst(&server, &Request::get("/v1/orders").key(&account.key), 100) {
        response.ok(200);
    }
}
