//! What holds for every connection, whatever its requests.

use paperbourse_test_support::{Connection, Request};

use super::expect::{check_error, eventually};
use super::recording::{PLAIN, buy};
use super::server::{Server, shared};

#[test]
fn head_is_get_without_a_body() {
    let account = shared().account();
    let order_id = account.buy(1)["order_id"].clone();
    let mut connection = shared().connect();
    let order = format!("/v1/orders/{order_id}");
    let comments = format!("/trades/{order_id}/comments");
    let market = format!("/v1/markets/{PLAIN}");
    let book = format!("{market}/book");
    // Timestamps have no trailing zeros, so answers with the current time vary in length.
    for (path, is_steady) in [
        ("/v1/keys", false),
        ("/v1/keys/tiers", true),
        ("/v1/orders", true),
        (&order, true),
        (&comments, true),
        ("/v1/markets", true),
        (&market, true),
        (&book, true),
        ("/v1/book?token_id=700000", true),
        ("/v1/account/balance", true),
        ("/v1/account/positions", true),
        ("/v1/health/live", false),
        ("/v1/orders/9007199254740990", true),
    ] {
        let get = connection.send(&Request::get(path).key(&account.key));
        // On the same connection: an unexpected body would be read as the next answer.
        let head = connection.send(&Request::new("HEAD", path).key(&account.key));
        assert_eq!((head.status, head.text.as_str()), (get.status, ""), "{path}");
        let length = head.header("content-length");
        assert!(length.is_some_and(|length| length != "0"), "{path}");
        assert!(!is_steady || length == get.header("content-length"), "{path}");
        assert_eq!(head.header("content-type"), Some("application/json"));
    }
}

#[test]
fn a_request_id_is_echoed_or_generated() {
    let longest = "x".repeat(64);
    let send = |id: &[u8]| {
        let response = shared().send(&Request::get("/v1/markets").header("x-request-id", id));
        response.header("x-request-id").unwrap().to_owned()
    };
    for id in ["1", "a-b_c.d/e", "!~", &longest] {
        assert_eq!(send(id.as_bytes()), id);
    }
    for id in [&b""[..], b"two words", "é".as_bytes(), b"\xff", (longest.clone() + "x").as_bytes()]
    {
        let made = send(id);
        assert!(!made.is_empty() && made.as_bytes() != id && made.is_ascii(), "{made}");
    }
    assert_ne!(send(b""), send(b""), "two requests have the same id");
    for path in ["/nowhere", "/trade", "/v1/orders", "/v1/health", "/v1/health/ready"] {
        let response = shared().send(&Request::get(path).header("x-request-id", "mine"));
        assert_eq!(response.header("x-request-id"), Some("mine"), "{path}");
    }
}

#[test]
fn a_connection_serves_many_requests_in_their_order() {
    let account = shared().account();
    let mut connection = shared().connect();
    for _ in 0..20 {
        connection.send(&Request::get("/v1/account/balance").key(&account.key)).ok(200);
    }
    let mut bytes = Vec::new();
    for number in 1..=20 {
        let request = Request::post("/trade", &buy(number)).key(&account.key);
        bytes.extend(request.header("x-request-id", number.to_string()).to_bytes());
        bytes.extend(Request::get("/nowhere").to_bytes());
    }
    connection.write(&bytes);
    for number in 1..=20_i64 {
        let response = connection.read(false);
        assert_eq!(response.header("x-request-id"), Some(&*number.to_string()));
        assert_eq!(response.ok(200)["quantity"], number);
        check_error(&connection.read(false), 404, "NOT_FOUND");
    }
}

#[test]
fn a_client_that_requests_a_close_gets_it() {
    let mut connection = shared().connect();
    let response = connection.send(&Request::get("/v1/markets").header("connection", "close"));
    response.ok(200);
    assert!(connection.is_ended());
    let mut old = shared().connect();
    old.write(b"GET /v1/markets?limit=1 HTTP/1.0\r\n\r\n");
    old.read(false).ok(200);
    assert!(old.is_ended());
}

#[test]
fn an_unread_body_does_not_become_a_request() {
    let smuggled = Request::get("/v1/health").to_bytes();
    for path in ["/nowhere", "/v1/health", "/v1/health/ready"] {
        let mut connection = shared().connect();
        let refused = connection.send(&Request::new("POST", path).body(&*smuggled));
        assert!([404, 405].contains(&refused.status), "{refused:?}");
        if refused.header("connection") != Some("close") {
            check_error(&connection.send(&Request::get("/nowhere")), 404, "NOT_FOUND");
        }
    }
}

#[test]
fn a_request_names_its_host_once() {
    let account = shared().account();
    let line = format!("x-api-key: {}\r\n\r\n", account.key);
    for (head, status) in [
        ("GET /v1/orders HTTP/1.1\r\nhost: a\r\n", 200),
        ("GET /v1/orders HTTP/1.0\r\n", 200),
        ("GET http://a/v1/orders HTTP/1.1\r\n", 400),
        ("GET /v1/orders HTTP/1.1\r\n", 400),
        ("GET /v1/health HTTP/1.1\r\n", 400),
        ("GET /v1/orders HTTP/1.1\r\nhost: a\r\nHost: a\r\n", 400),
        ("GET /v1/orders HTTP/1.0\r\nhost: a\r\nhost: b\r\n", 400),
    ] {
        let mut connection = shared().connect();
        connection.write(format!("{head}{line}").as_bytes());
        let response = connection.read(false);
        assert_eq!(response.status, status, "{head}: {response:?}");
        if status == 400 {
            check_error(&response, 400, "INVALID_HOST");
        }
    }
}

/// A proxy in front may take another body from such a request, and what follows for the next one.
#[test]
fn a_transfer_encoding_is_chunked_and_nothing_else() {
    let account = shared().account();
    let line = format!("host: a\r\nx-api-key: {}\r\n", account.key);
    let body = "2\r\n{}\r\n0\r\n\r\n";
    for (encoding, status) in [
        ("transfer-encoding: chunked\r\n", 422),
        ("Transfer-Encoding: Chunked \r\n", 422),
        ("transfer-encoding: gzip, chunked\r\n", 400),
        ("transfer-encoding: chunked, chunked\r\n", 400),
        ("transfer-encoding: identity, chunked\r\n", 400),
        ("transfer-encoding: , chunked\r\n", 400),
        ("transfer-encoding: \r\ntransfer-encoding: chunked\r\n", 400),
        ("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", 400),
    ] {
        let mut connection = shared().connect();
        let head = format!("POST /trade HTTP/1.1\r\n{line}{encoding}\r\n");
        connection.write(format!("{head}{body}").as_bytes());
        let response = connection.read(false);
        assert_eq!(response.status, status, "{encoding}: {response:?}");
        if status == 400 {
            check_error(&response, 400, "INVALID_TRANSFER_ENCODING");
            assert_eq!(response.header("connection"), Some("close"), "{encoding}");
        }
    }
}

/// Answers of every kind, including those that no handler makes. Those that hyper makes are empty.
#[test]
fn no_answer_with_a_body_allows_content_sniffing() {
    let server = Server::start(&["--connections-max", "2", "--admin-listen", "127.0.0.1:0"]);
    let line = server.logged("metrics on http://");
    let admin = line.split(['/', ' ']).find_map(|word| word.parse().ok()).unwrap();
    let mut connection = served(&server, &Request::get("/v1/health"));
    let refused = server.connect().read(false);
    let metrics = Connection::open(admin).send(&Request::get("/metrics"));
    let nothing = Connection::open(admin).send(&Request::get("/nothing"));
    let mut answers = vec![(refused, 503), (metrics, 200), (nothing, 404)];
    for (request, status) in [
        (Request::get("/v1/markets"), 200),
        (Request::get("/nowhere"), 404),
        (Request::get("/v1/ws/prices"), 426),
    ] {
        answers.push((connection.send(&request), status));
    }
    connection.write(format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(20_000)).as_bytes());
    answers.push((connection.read(false), 431));
    let mut garbage = shared().connect();
    garbage.write(b"\0\r\n\r\n");
    answers.push((garbage.read(false), 400));
    for (answer, status) in answers {
        assert_eq!(answer.status, status, "{answer:?}");
        let is_hypers = matches!(status, 400 | 431);
        if is_hypers {
            assert_eq!(answer.text, "", "{answer:?}");
        } else {
            assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{answer:?}");
        }
    }
}

#[test]
fn a_body_that_is_too_large_is_refused_before_it_is_sent() {
    let account = shared().account();
    let request = Request::new("POST", "/trade").body(vec![b' '; 70_000]).key(&account.key);
    let bytes = request.header("expect", "100-continue").to_bytes();
    let mut connection = shared().connect();
    connection.write(&bytes[..bytes.len() - 70_000]);
    check_error(&connection.read(false), 413, "BODY_TOO_LARGE");
    assert!(connection.is_ended());
}

#[test]
fn a_client_that_waits_for_100_continue_gets_it() {
    let account = shared().account();
    let body = buy(1).to_string();
    let request = Request::new("POST", "/trade").body(&*body).key(&account.key);
    let bytes = request.header("expect", "100-continue").to_bytes();
    let (head, body) = bytes.split_at(bytes.len() - body.len());
    let mut connection = shared().connect();
    connection.write(head);
    assert_eq!(connection.read(false).status, 100);
    connection.write(body);
    connection.read(false).ok(200);
}

/// A limit of two connections.
const CONNECTIONS_OF_TWO: [&str; 6] =
    ["--connections-max", "2", "--connections-per-address", "10", "--address-limits", "off"];

/// An admitted connection, on which this request was answered. Retries, because ended connections
/// free their slots a moment later.
fn served(server: &Server, request: &Request) -> Connection {
    eventually(|| {
        let mut connection = server.connect();
        (connection.send(request).status == 200).then_some(connection)
    })
}

#[test]
fn the_idlest_stranger_is_replaced_by_a_new_connection() {
    let server = Server::start(&CONNECTIONS_OF_TWO);
    let account = server.account();
    let known = Request::get("/v1/orders").key(&account.key);
    let markets = Request::get("/v1/markets");
    let mut bot = served(&server, &known);
    // Once a stranger has the other slot, the connection that made the account has ended.
    served(&server, &markets);
    for _ in 0..3 {
        let mut stranger = server.connect();
        stranger.send(&markets).ok(200);
        let mut next = server.connect();
        next.send(&markets).ok(200);
        assert!(stranger.is_ended());
        // An incomplete request head holds no slot either.
        next.write(b"GET /v1/markets HTTP/1.1\r\nhost: x\r\nx-slow: ");
    }
    bot.send(&known).ok(200);
}

#[test]
fn one_address_does_not_get_every_connection() {
    let server = Server::start(&["--connections-max", "5"]);
    // Half of all, rounded up.
    let health = Request::get("/v1/health");
    let mut held: Vec<Connection> = (0..3).map(|_| served(&server, &health)).collect();
    let refused = server.connect().read(false);
    assert_eq!((refused.status, refused.header("x-polysim-code")), (503, Some("SERVER_BUSY")));
    let line = server.logged("refused a connection");
    assert!(line.contains("the address has reached its connection limit"), "{line}");
    for connection in &mut held {
        connection.send(&health).ok(200);
    }
}

#[test]
fn likely_mistakes_of_an_operator_are_logged() {
    let forwarded = Request::get("/v1/markets").header("x-forwarded-for", "192.0.2.1");
    let line = "ignored X-Forwarded-For";
    let server = Server::start(&["--admin-listen", "0.0.0.0:0"]);
    server.logged("other machines can read the metrics");
    for _ in 0..5 {
        server.send(&forwarded).ok(200);
    }
    server.logged(line);
    assert_eq!(server.log_lines(line).len(), 1);
    let behind_proxy =
        Server::start(&["--trusted-proxy", "127.0.0.1", "--admin-listen", "127.0.0.1:0"]);
    behind_proxy.send(&forwarded).ok(200);
    behind_proxy.logged("metrics on http://");
    for text in [line, "other machines can read"] {
        assert_eq!(behind_proxy.log_lines(text), [""; 0]);
    }
}

#[test]
fn a_connection_above_the_cap_gets_503_with_retry_after() {
    let server = Server::start(&CONNECTIONS_OF_TWO);
    let account = server.account();
    let known = Request::get("/v1/orders").key(&account.key);
    let health = Request::get("/v1/health");
    let mut held = [served(&server, &known), served(&server, &known)];
    let mut refused = server.connect();
    let response = refused.read(false);
    assert_eq!((response.status, response.header("retry-after")), (503, Some("1")));
    assert_eq!(response.header("x-polysim-code"), Some("SERVER_BUSY"));
    assert_eq!(response.json()["error"], "SERVER_BUSY");
    assert!(refused.is_ended());
    for connection in &mut held {
        connection.send(&health).ok(200);
    }
    drop(held);
    eventually(|| (server.connect().send(&health).status == 200).then_some(()));
}
