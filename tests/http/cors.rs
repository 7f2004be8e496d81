//! Which web pages may call from a browser.

use paperbourse_test_support::{Request, Response};

use super::expect::check_error;
use super::server::{Server, shared};

const PAGE: &str = "https://bots.example.org";

/// What a browser sends before a page's request.
fn preflight(path: &str, origin: &str) -> Request {
    Request::new("OPTIONS", path)
        .header("origin", origin)
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "x-api-key,content-type")
}

/// Checks that no header tells a browser anything.
#[track_caller]
fn check_silent(response: &Response) {
    let tells = response.headers.iter().any(|(name, _)| name.starts_with("access-control"));
    assert!(!tells, "{response:?}");
}

#[test]
fn a_named_page_may_call() {
    let server = Server::start(&["--cors-origin", PAGE]);
    let account = server.account();
    let allowed = server.send(&preflight("/trade", PAGE));
    assert_eq!((allowed.status, &*allowed.text), (204, ""));
    for (name, expected) in [
        ("access-control-allow-origin", PAGE),
        ("access-control-allow-methods", "POST"),
        (
            "access-control-allow-headers",
            "authorization, content-type, idempotency-key, last-event-id, x-api-key, \
             x-confirm-cancel-all, x-request-id",
        ),
        ("access-control-max-age", "7200"),
        ("vary", "origin"),
    ] {
        assert_eq!(allowed.header(name), Some(expected), "{name}");
    }
    let order = server.send(&preflight("/v1/orders/64", PAGE));
    assert_eq!(order.header("access-control-allow-methods"), Some("GET, HEAD, DELETE"));
    check_error(&server.send(&preflight("/nowhere", PAGE)), 404, "NOT_FOUND");

    // A page can read answers and errors, with their headers.
    let balance = account.send(Request::get("/v1/account/balance").header("origin", PAGE));
    let refused = server.send(&Request::get("/v1/account/balance").header("origin", PAGE));
    assert_eq!((balance.status, refused.status), (200, 401));
    for response in [balance, refused] {
        assert_eq!(response.header("access-control-allow-origin"), Some(PAGE));
        let exposed = response.header("access-control-expose-headers").unwrap();
        assert!(exposed.contains("x-polysim-code") && exposed.contains("retry-after"));
        assert_eq!(response.header("access-control-allow-credentials"), None);
    }

    // Other pages, and callers that are no pages, see what they saw before.
    for origin in ["https://bots.example.org:8443", "http://bots.example.org", "null", ""] {
        let response = server.send(&preflight("/trade", origin));
        check_error(&response, 405, "METHOD_NOT_ALLOWED");
        check_silent(&response);
        check_silent(&account.send(Request::get("/v1/me").header("origin", origin)));
    }
    check_silent(&account.get("/v1/me"));
    let plain = server.send(&Request::new("OPTIONS", "/trade").header("origin", PAGE));
    check_error(&plain, 405, "METHOD_NOT_ALLOWED");
}

#[test]
fn every_page_may_call_if_the_operator_says_so() {
    let server = Server::start(&["--cors-origin", "*"]);
    let allowed = server.send(&preflight("/trade", "http://localhost:3000"));
    assert_eq!(allowed.header("access-control-allow-origin"), Some("http://localhost:3000"));
}

#[test]
fn no_page_may_call_by_default() {
    let response = shared().send(&preflight("/trade", PAGE));
    check_error(&response, 405, "METHOD_NOT_ALLOWED");
    check_silent(&response);
}

/// Some clients of the venue run in pages.
#[test]
fn a_page_may_send_the_headers_of_wallets_to_the_venues_interface() {
    let server = Server::start(&["--cors-origin", PAGE, "--clob", "on"]);
    let allowed = server.send(&preflight("/auth/api-key", PAGE));
    assert_eq!(allowed.header("access-control-allow-methods"), Some("POST, DELETE"));
    let names = allowed.header("access-control-allow-headers").unwrap();
    for name in ["address", "api_key", "nonce", "passphrase", "signature", "timestamp"] {
        assert!(names.contains(&format!("poly_{name}")), "{names}");
    }
    assert!(names.contains("x-api-key"), "{names}");
}
