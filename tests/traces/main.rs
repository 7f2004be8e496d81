//! Traces as a collector receives them, and what a request notices of a collector that fails:
//! nothing.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod collector;
mod failing;
mod sampling;

use collector::{Collector, Mood, Span};
use paperbourse_test_support::process::{ServerProcess, command};
use paperbourse_test_support::{Client, Connection, Request, Response};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The binary under test.
const BINARY: &str = env!("CARGO_BIN_EXE_paperbourse");

/// A simulated market that stays open.
const MARKET: &str = "0xfbedbcd006f8debf0a24458901c7d2b6129d3a14e398cfb275c00cef14bcf8d9";

const SERVER: i32 = 2;
const INTERNAL: i32 = 1;

struct World {
    server: ServerProcess,
    folder: TempDir,
    token: String,
    key: String,
    key_id: u64,
}

impl World {
    /// A server that sends these requests' traces to this address, and an account on it.
    fn start(endpoint: &str, sample: &str, more: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let data = folder.path().join("data");
        let flags = [
            &["--trace-endpoint", endpoint, "--trace-sample", sample][..],
            &["--journal-segment-bytes", "1048576", "--address-limits", "off"],
            &["--venue-delay", "off", "--admin-listen", "127.0.0.1:0"],
            more,
        ];
        let server = ServerProcess::start(BINARY, &data, &flags.concat());
        let token = run(&["token", "--subject", "x", "--data", data.to_str().unwrap()]);
        let token = token.trim().to_owned();
        let mut client = Client::with_token(server.address, &token);
        let answer = client.post("/v1/keys/bootstrap", &json!({})).ok(201);
        let key = answer["raw_key"].as_str().unwrap().to_owned();
        let key_id = answer["id"].as_u64().unwrap();
        Self { server, folder, token, key, key_id }
    }

    fn with(collector: &Collector, sample: &str) -> Self {
        Self::start(&format!("http://{}", collector.address), sample, &[])
    }

    fn send(&self, request: &Request) -> Response {
        Connection::open(self.server.address).send(request)
    }

    /// The value of a metric.
    fn metric(&self, name: &str) -> u64 {
        let line = self.server.logged("metrics on http://");
        let admin = line.split(['/', ' ']).find_map(|word| word.parse().ok()).unwrap();
        let page = Connection::open(admin).done(&Request::get("/metrics")).text;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name}:\n{page}")).parse().unwrap()
    }
}

fn run(words: &[&str]) -> String {
    let output = command(BINARY).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn buy(quantity: u32) -> Value {
    json!({"market_id": MARKET, "outcome": "Yes", "side": "BUY", "quantity": quantity})
}

/// Fails unless the parts are these, one after the other within the request.
#[track_caller]
fn check_parts(span: &Span, parts: &[Span], expected: &[&str]) {
    let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(names, expected, "{span:?}");
    let mut now_ns = span.began_ns;
    for part in parts {
        assert_eq!(part.kind, INTERNAL, "{part:?}");
        assert!(now_ns <= part.began_ns && part.began_ns <= part.ended_ns, "{part:?} in {span:?}");
        now_ns = part.ended_ns;
    }
    assert!(now_ns <= span.ended_ns, "{parts:?} in {span:?}");
}

#[test]
fn a_trade_shows_where_its_time_went_and_its_lsn() {
    let collector = Collector::start(Mood::Takes);
    let world = World::with(&collector, "all");
    let before_ns = now_ns();
    let request = Request::post("/trade", &buy(10)).key(&world.key);
    let answer = world.send(&request.header("X-Request-Id", "a-trade")).ok(200);
    let (span, parts) = collector.trace_of("a-trade");
    let all = ["admission", "body", "shard queue", "decision", "journal", "response"];
    check_parts(&span, &parts, &all);
    assert!((before_ns..now_ns()).contains(&span.began_ns), "{span:?}");
    assert_eq!((span.kind, span.name.as_str()), (SERVER, "POST /trade"));
    assert_eq!((span.parent.as_str(), span.flags), ("", 0x101));
    for (name, value) in [
        ("http.request.method", "POST"),
        ("http.route", "/trade"),
        ("http.response.status_code", "200"),
        ("url.scheme", "http"),
        ("network.protocol.version", "1.1"),
        ("paperbourse.key_id", &world.key_id.to_string()),
        ("paperbourse.error", ""),
    ] {
        assert_eq!(span.attribute(name), value, "{name}");
    }
    assert_eq!(span.attribute("paperbourse.account_id"), wallet(&world));
    let position = parts[4].attribute("paperbourse.journal.position").to_owned();
    let data = world.folder.path().join("data");
    let dump = run(&["journal", "dump", data.to_str().unwrap(), "--from", &position]);
    let record = dump.lines().next().unwrap();
    let filled = format!("filled order {}: ", answer["order_id"]);
    assert!(record.starts_with(&format!("{position} ")) && record.contains(&filled), "{dump}");
    let resource = collector.resources().remove(0);
    assert_eq!(resource["service.name"], "paperbourse");
    assert_eq!(resource["service.version"], env!("CARGO_PKG_VERSION"));
}

/// The id of the account.
fn wallet(world: &World) -> String {
    let answer = world.send(&Request::get("/v1/me").key(&world.key)).ok(200);
    answer["id"].to_string()
}

fn now_ns() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(now.as_nanos()).unwrap()
}

#[test]
fn a_span_says_what_was_asked_and_answered() {
    let collector = Collector::start(Mood::Takes);
    let world = World::with(&collector, "all");
    let key = &world.key;
    let up_to_admission = ["admission", "response"];
    let up_to_body = ["admission", "body", "response"];
    let through_shard = ["admission", "body", "shard queue", "decision", "journal", "response"];
    for (id, request, name, status, parts) in [
        (
            "poor",
            Request::post("/trade", &buy(1_000_000)).key(key),
            "POST /trade",
            400,
            &through_shard[..],
        ),
        ("invalid", Request::post("/trade", &json!({})).key(key), "POST /trade", 422, &up_to_body),
        ("nobody", Request::post("/trade", &buy(1)), "POST /trade", 401, &up_to_admission),
        (
            "read",
            Request::get("/v1/account/balance").key(key),
            "GET /v1/account/balance",
            200,
            &through_shard,
        ),
        (
            "gone",
            Request::get("/v1/orders/1").key(key),
            "GET /v1/orders/{order_id}",
            404,
            &up_to_body,
        ),
        ("head", Request::new("HEAD", "/v1/health"), "HEAD /v1/health", 200, &["response"]),
        ("nowhere", Request::get("/nowhere"), "GET", 404, &["response"]),
        ("method", Request::new("PUT", "/trade"), "PUT", 405, &["response"]),
        ("odd", Request::new("BREW", "/trade"), "HTTP", 405, &["response"]),
    ] {
        let answer = world.send(&request.header("X-Request-Id", id));
        let (span, found) = collector.trace_of(id);
        assert_eq!(span.name, name, "{id}: {answer:?}");
        check_parts(&span, &found, parts);
        assert_eq!(answer.status, status, "{id}: {answer:?}");
        assert_eq!(span.attribute("http.response.status_code"), status.to_string());
        let code = if status < 300 { "" } else { answer.header("x-polysim-code").unwrap() };
        assert_eq!(span.attribute("paperbourse.error"), code, "{id}");
        assert_eq!(span.attribute("error.type"), "", "{id}: the client's fault");
        assert!(!span.is_error, "{id}");
        let route = name.split_once(' ').map_or("", |(_, route)| route);
        assert_eq!(span.attribute("http.route"), route);
    }
}

#[test]
fn a_client_that_leaves_early_has_a_trace_too() {
    let collector = Collector::start(Mood::Takes);
    let world = World::with(&collector, "all");
    let head = format!(
        "POST /trade HTTP/1.1\r\nhost: x\r\nx-api-key: {}\r\nx-request-id: early\r\n\
         content-length: 10\r\n\r\n{{",
        world.key
    );
    let mut connection = Connection::open(world.server.address);
    connection.write(head.as_bytes());
    drop(connection);
    let (span, parts) = collector.trace_of("early");
    // The server may have noticed before or after it looked for the rest of the body.
    let code = (span.attribute("http.response.status_code"), span.attribute("error.type"));
    assert!([("400", ""), ("", "connection_closed")].contains(&code), "{span:?}");
    assert_eq!(parts[1].name, "body");
}

#[test]
fn no_secret_is_sent() {
    let collector = Collector::start(Mood::Takes);
    let world = World::with(&collector, "all");
    let (key, token) = (world.key.as_str(), world.token.as_str());
    let comment = json!({"text": "a-body-text"});
    for (id, request) in [
        ("1", Request::post("/trade", &buy(1)).key(key).header("user-agent", key)),
        ("2", Request::get(format!("/v1/orders/{key}?api_key={key}")).key(key)),
        ("3", Request::get(format!("/{key}")).header("cookie", key).bearer(token)),
        ("4", Request::post("/v1/orders/1/comments", &comment).bearer(token)),
        ("5", Request::get("/v1/keys").bearer(token).header("tracestate", format!("k={key}"))),
        ("6", Request::get(format!("/v1/ws/prices?token={token}")).header("referer", token)),
        ("7", Request::get("/v1/orders").key("ps_live_wrong-key")),
        ("8", Request::get("/v1/me").bearer(key).header("traceparent", key)),
    ] {
        world.send(&request.header("X-Request-Id", id));
        collector.trace_of(id);
    }
    let parts_of_token = token.split('.').filter(|part| part.len() > 8);
    for secret in parts_of_token.chain([key, "wrong-key", "a-body-text", "quantity"]) {
        assert!(!collector.has_received(secret), "{secret}");
    }
    // It would have been found.
    assert!(collector.has_received("POST /trade"));
}

#[test]
fn what_is_not_sent_yet_is_sent_at_the_end() {
    let collector = Collector::start(Mood::Takes);
    let world = World::with(&collector, "all");
    let request = Request::post("/trade", &buy(1)).key(&world.key);
    world.send(&request.header("X-Request-Id", "last")).ok(200);
    let log = world.server.interrupt();
    let is_last = |span: &Span| span.attribute("http.response.header.x-request-id") == "last";
    assert!(collector.spans().iter().any(is_last), "{log:?}");
    assert!(!log.iter().any(|line| line.contains("WARN")), "{log:?}");
}
