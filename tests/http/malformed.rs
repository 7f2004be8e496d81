//! Requests that are malformed, whatever operation they are for.

use std::fmt::Write as _;

use paperbourse_test_support::{Request, Response};
use serde_json::json;

use super::expect::{check_error, check_invalid};
use super::recording::{PLAIN, buy};
use super::server::shared;

const BODY_BYTES_MAX: usize = 64 * 1024;
const BATCH_BYTES_MAX: usize = 256 * 1024;
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// An order in a body of exactly this many bytes.
fn padded(bytes: usize) -> Vec<u8> {
    let mut body = buy(1).to_string().into_bytes();
    body.resize(bytes, b' ');
    body
}

#[test]
fn bodies_that_are_not_json() {
    let account = shared().account();
    let good = buy(1).to_string();
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(100), "]".repeat(100));
    let very_deep = format!("{{\"a\":{}{}}}", "[".repeat(20_000), "]".repeat(20_000));
    let twice = good.replacen('{', "{\"side\":\"BUY\",", 1);
    let escaped_twice = good.replacen('{', "{\"s\\u0069de\":\"BUY\",", 1);
    let rows: [(&[u8], &str); 17] = [
        (b"{", "json_invalid"),
        (b"{\"market_id\":", "json_invalid"),
        (b"{'market_id':1}", "json_invalid"),
        (b"{\"quantity\":01}", "json_invalid"),
        (b"{\"quantity\":NaN}", "json_invalid"),
        (b"{\"quantity\":Infinity}", "json_invalid"),
        (b"{\"a\":1,}", "json_invalid"),
        (b"{} {}", "json_invalid"),
        (b"{}x", "json_invalid"),
        (b"\xef\xbb\xbf{}", "json_invalid"),
        (b"{\"market_id\":\"\xff\"}", "json_invalid"),
        (b"{\"market_id\":\"\n\"}", "json_invalid"),
        (twice.as_bytes(), "json_invalid"),
        (escaped_twice.as_bytes(), "json_invalid"),
        (deep.as_bytes(), "json_invalid"),
        (very_deep.as_bytes(), "json_invalid"),
        (b"nonsense", "json_invalid"),
    ];
    for path in [
        "/trade",
        "/v1/keys",
        "/v1/orders",
        "/v1/orders/batch",
        "/v1/prices/batch",
        "/trades/64/comments",
    ] {
        let check = |body: &[u8], kind: &str| {
            println!("{path} {}", String::from_utf8_lossy(&body[..body.len().min(80)]));
            let response = account.send(Request::new("POST", path).body(body));
            check_invalid(&response, &[&format!("body: {kind}")]);
        };
        for (body, kind) in rows {
            check(body, kind);
        }
        for body in ["[]", "1", "\"text\"", "null"] {
            check(body.as_bytes(), "model_attributes_type");
        }
        if path != "/v1/keys" {
            check(b"", "missing");
            check(b" \n", "missing");
        }
    }
}

#[test]
fn bodies_that_are_too_large() {
    let account = shared().account();
    let send = |path: &str, body: Vec<u8>, is_chunked: bool| -> Response {
        // The bootstrap needs the token, everything else the key.
        let request = Request::new("POST", path).body(body).bearer(&account.token);
        account.send(if is_chunked { request.chunked() } else { request })
    };
    for is_chunked in [false, true] {
        send("/trade", padded(BODY_BYTES_MAX), is_chunked).ok(200);
        for path in ["/trade", "/v1/keys", "/v1/keys/bootstrap", "/trades/64/comments"] {
            let response = send(path, padded(BODY_BYTES_MAX + 1), is_chunked);
            check_error(&response, 413, "BODY_TOO_LARGE");
            assert_eq!(response.header("connection"), Some("close"));
        }
        let mut batch = json!({"orders": [buy(1)]}).to_string().into_bytes();
        batch.resize(BATCH_BYTES_MAX, b' ');
        send("/v1/orders/batch", batch.clone(), is_chunked).ok(200);
        batch.push(b' ');
        check_error(&send("/v1/orders/batch", batch.clone(), is_chunked), 413, "BODY_TOO_LARGE");
        check_error(&send("/v1/prices/batch", batch, is_chunked), 413, "BODY_TOO_LARGE");
    }
}

#[test]
fn heads_that_are_too_large() {
    let request = |padding: usize| {
        let path = format!("/v1/markets/{PLAIN}");
        Request::get(path).header("x-padding", vec![b'x'; padding])
    };
    let overhead = request(0).to_bytes().len();
    shared().send(&request(HEAD_BYTES_MAX - overhead)).ok(200);
    let response = shared().send(&request(HEAD_BYTES_MAX + 1 - overhead));
    assert_eq!(response.status, 431);
    let mut many = String::from("GET /v1/health HTTP/1.1\r\nhost: test\r\n");
    for number in 0..2_000 {
        write!(many, "x-{number}: y\r\n").unwrap();
    }
    let mut connection = shared().connect();
    connection.try_write((many + "\r\n").as_bytes());
    assert_eq!(connection.read(false).status, 431);
}

#[test]
fn bytes_that_are_not_http_get_an_answer_and_a_close() {
    for bytes in [&b"nonsense\r\n\r\n"[..], b"GET /v1/health HTTP/1.1\r\nno colon\r\n\r\n"] {
        let mut connection = shared().connect();
        connection.write(bytes);
        assert_eq!(connection.read(false).status, 400);
        assert!(connection.is_ended());
    }
}

#[test]
fn unknown_paths() {
    let account = shared().account();
    for path in [
        "//",
        "/trades",
        "/trade/",
        "/Trade",
        "/v1",
        "/v2/keys",
        "/v1/keys/64/rotate/x",
        "/v1/markets//book",
        "/v1/markets/%FF",
        "/v1/account",
        "/v1/orders/64/fills",
        "/trades/64",
        "/comments",
        "/../etc/passwd",
    ] {
        check_error(&shared().get(path), 404, "NOT_FOUND");
        check_error(&account.post(path, &json!({})), 404, "NOT_FOUND");
    }
}

#[test]
fn unsupported_methods() {
    for (method, path, allow) in [
        ("GET", "/trade", "POST"),
        ("PUT", "/trade", "POST"),
        ("HEAD", "/trade", "POST"),
        ("OPTIONS", "/trade", "POST"),
        ("DELETE", "/trades/64/comments", "GET, HEAD, POST"),
        ("GET", "/comments/64", "DELETE"),
        ("GET", "/v1/keys/bootstrap", "POST"),
        ("PUT", "/v1/keys", "GET, HEAD, POST"),
        ("GET", "/v1/keys/64", "PATCH, DELETE"),
        ("PATCH", "/v1/keys/64/rotate", "POST"),
        ("POST", "/v1/keys/tiers", "GET, HEAD"),
        ("GET", "/v1/keys/ws-token", "POST"),
        ("DELETE", "/v1/orders", "GET, HEAD, POST"),
        ("GET", "/v1/orders/batch", "POST"),
        ("POST", "/v1/orders/64", "GET, HEAD, DELETE"),
        ("GET", "/v1/cancel-all", "POST, DELETE"),
        ("POST", "/v1/cancel-market-orders", "DELETE"),
        ("GET", "/v1/prices/batch", "POST"),
        ("POST", "/v1/markets", "GET, HEAD"),
        ("POST", "/v1/markets/x", "GET, HEAD"),
        ("POST", "/v1/markets/x/book", "GET, HEAD"),
        ("POST", "/v1/book", "GET, HEAD"),
        ("POST", "/v1/account/balance", "GET, HEAD"),
        ("POST", "/v1/account/positions", "GET, HEAD"),
        ("POST", "/v1/ws/prices", "GET, HEAD"),
        ("POST", "/v1/health", "GET, HEAD"),
        ("BREW", "/v1/health/live", "GET, HEAD"),
        ("PATCH", "/v1/health/ready", "GET, HEAD"),
    ] {
        let response = shared().send(&Request::new(method, path));
        assert_eq!(response.header("allow"), Some(allow), "{method} {path}");
        if method == "HEAD" {
            assert_eq!((response.status, response.text.as_str()), (405, ""));
        } else {
            check_error(&response, 405, "METHOD_NOT_ALLOWED");
        }
    }
}
