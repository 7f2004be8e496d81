//! What requests do to the metrics.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use paperbourse::limits::tier::Tier;
use paperbourse_test_support::socket::upgrade;
use paperbourse_test_support::{Connection, Request};
use serde_json::json;

use super::expect::eventually;
use super::recording::buy;
use super::server::Server;

/// The most requests that are sent until one is refused.
const REQUESTS_MAX: usize = 100;

/// How long the server may take to count its memory again, on a loaded machine.
const COUNT_TIME_MAX: Duration = Duration::from_mins(2);

fn address(server: &Server) -> SocketAddr {
    let line = server.logged("metrics on http://");
    line.split(['/', ' ']).find_map(|word| word.parse().ok()).unwrap()
}

fn page(server: &Server) -> String {
    Connection::open(address(server)).done(&Request::get("/metrics")).text
}

/// The series of a metric with their values.
fn series(server: &Server, metric: &str) -> BTreeMap<String, u64> {
    let page = page(server);
    let lines = page.lines().filter_map(|line| line.strip_prefix(metric)?.strip_prefix('{'));
    let pairs = lines.filter_map(|line| line.rsplit_once("} "));
    pairs.map(|(labels, value)| (labels.to_owned(), value.parse().unwrap())).collect()
}

/// What has changed, and by how much.
fn risen(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> Vec<(String, u64)> {
    let risen = after.iter().map(|(labels, value)| {
        let before = before.get(labels).copied().unwrap_or(0);
        (labels.clone(), value - before)
    });
    risen.filter(|&(_, by)| by > 0).collect()
}

#[test]
fn the_venues_operations_are_counted_only_where_they_are_served() {
    let requests = "paperbourse_http_requests_total";
    let listen = ["--admin-listen", "127.0.0.1:0"];
    for (flags, status, labels) in
        [(&["--clob", "on"][..], 400, "GET /book"), (&["--clob", "off"], 404, "none")]
    {
        let server = Server::unlimited_with(&[&listen[..], flags].concat());
        assert_eq!(server.get("/book").status, status);
        let expected = format!("operation=\"{labels}\",status=\"{status}\"");
        assert_eq!(risen(&BTreeMap::new(), &series(&server, requests)), [(expected, 1)]);
        assert_eq!(page(&server).contains("GET /book"), labels == "GET /book");
    }
}

#[test]
fn an_answer_counts_for_its_operation_and_status() {
    let server = Server::unlimited_with(&["--admin-listen", "127.0.0.1:0"]);
    let account = server.account();
    let requests = "paperbourse_http_requests_total";
    for (request, status, labels) in [
        (Request::post("/trade", &buy(1)).key(&account.key), 200, "POST /trade"),
        (Request::post("/trade", &json!({})).key(&account.key), 422, "POST /trade"),
        (Request::post("/trade", &buy(1)), 401, "POST /trade"),
        (Request::get("/v1/orders/1").key(&account.key), 404, "GET /v1/orders/{order_id}"),
        (Request::new("HEAD", "/v1/health"), 200, "GET /v1/health"),
        (Request::get("/v1/ws/prices"), 426, "GET /v1/ws/prices"),
        (Request::get("/v1/orders/1/2/3?operation=%22x%22"), 404, "none"),
        (Request::new("PUT", "/trade"), 405, "none"),
        (Request::get("/v1/health").header("host", "another"), 400, "none"),
    ] {
        let before = series(&server, requests);
        assert_eq!(server.send(&request).status, status, "{request:?}");
        let after = series(&server, requests);
        let expected = format!("operation=\"{labels}\",status=\"{status}\"");
        assert_eq!(risen(&before, &after), [(expected, 1)], "{request:?}");
    }
    let durations = series(&server, "paperbourse_http_request_duration_seconds_count");
    let total: u64 = series(&server, requests).values().sum();
    assert_eq!(durations.values().sum::<u64>(), total, "each answer has a duration");
    assert_eq!(durations["operation=\"POST /trade\""], 3);
}

#[test]
fn a_refusal_counts_for_its_rule_and_tier() {
    let server = Server::start(&[
        "--admin-listen",
        "127.0.0.1:0",
        "--tier",
        "free=1/unlimited/2/5",
        "--tier",
        "pro=unlimited/1/2/5",
        "--tier",
        "enterprise=unlimited/unlimited/2/5",
        "--public-rate",
        "1/1",
        "--bootstrap-rate",
        "1/3",
        "--failure-rate",
        "1/1",
        "--key-rate",
        "1/2",
        "--socket-rate",
        "1/1",
    ]);
    let all = |tier| json!({"permissions": ["read", "trade", "admin"], "tier": tier});
    let [free, pro, enterprise] = [Tier::Free, Tier::Pro, Tier::Enterprise]
        .map(|tier| server.account_with(&all(tier.as_str()), Some(tier)));
    let refused = "paperbourse_rate_limited_requests_total";
    let balance = || Request::get("/v1/account/balance");
    let bootstrap = Request::post("/v1/keys/bootstrap", &json!({}));
    for (request, rule, tier) in [
        (balance().key(&free.key), "second", "free"),
        (balance().key(&pro.key), "minute", "pro"),
        (balance().bearer(&pro.token), "minute", "pro"),
        (Request::get("/v1/markets"), "address", ""),
        (bootstrap.bearer(&server.token("late", Some(Tier::Enterprise))), "accounts", ""),
        (balance().key("ps_live_wrong"), "failures", ""),
        (Request::post("/v1/keys", &json!({})).key(&enterprise.key), "keys", ""),
        (upgrade("/v1/ws/prices").key(&enterprise.key), "sockets", ""),
        (upgrade("/v1/ws/prices?token=wrong"), "failures", ""),
    ] {
        let before = series(&server, refused);
        let refusal = (0..REQUESTS_MAX).find(|_| server.send(&request).status == 429);
        assert!(refusal.is_some(), "{request:?} is never refused");
        let expected = format!("rule=\"{rule}\",tier=\"{tier}\"");
        assert_eq!(risen(&before, &series(&server, refused)), [(expected, 1)], "{request:?}");
    }
}

/// What the server counts by part, in sum, and what its allocator has given out, in bytes.
struct Memory {
    orders: u64,
    sum: u64,
    in_use: u64,
}

impl Memory {
    /// Once this many orders have been counted.
    #[track_caller]
    fn with_orders(server: &Server, order_bytes_min: u64) -> Self {
        let since = Instant::now();
        loop {
            let parts = series(server, "paperbourse_memory_bytes");
            let orders = parts.get("part=\"orders\"").copied();
            if let Some(orders) = orders.filter(|&orders| orders >= order_bytes_min) {
                let page = page(server);
                let in_use = page.lines().find_map(|line| {
                    line.strip_prefix("paperbourse_memory_in_use_bytes ")?.parse().ok()
                });
                return Self { orders, sum: parts.values().sum(), in_use: in_use.unwrap() };
            }
            assert!(since.elapsed() < COUNT_TIME_MAX, "the parts do not grow: {parts:?}");
            std::thread::park_timeout(Duration::from_millis(200));
        }
    }
}

#[test]
fn memory_by_part_grows_by_what_is_added_and_explains_the_process() {
    const BATCHES: u64 = 400;
    const PER_BATCH: u64 = 100;
    /// The size of a row.
    const ORDER_BYTES: u64 = 160;
    let server = Server::start(&[
        "--admin-listen",
        "127.0.0.1:0",
        "--address-limits",
        "off",
        "--tier",
        "free=unlimited/unlimited/2/100",
        "--starting-balance",
        "1000000",
    ]);
    let account = server.account();
    let orders: Vec<_> = (0..PER_BATCH).map(|_| buy(1)).collect();
    let batch = Request::post("/v1/orders/batch", &json!({"orders": orders})).key(&account.key);
    let mut connection = server.connect();
    let mut fill = |batches: u64| {
        let mut filled = 0;
        while filled < batches * PER_BATCH {
            let answer = connection.send(&batch).ok(200);
            // A busy disk may have no journal segment ready, and then the client asks again.
            for failed in answer["results"].as_array().unwrap() {
                let error = failed.get("error").and_then(|error| error.as_str());
                assert!(matches!(error, None | Some("SERVER_BUSY")), "{failed}");
            }
            filled += answer["succeeded"].as_u64().unwrap();
        }
    };
    // Whatever is made for the first requests is there before.
    fill(20);
    let before = Memory::with_orders(&server, 20 * PER_BATCH * ORDER_BYTES);
    fill(BATCHES);
    let added = BATCHES * PER_BATCH * ORDER_BYTES;
    let after = Memory::with_orders(&server, before.orders + added);
    let of_orders = after.orders - before.orders;
    assert!(of_orders <= added + added * 3 / 10, "{of_orders} bytes for {added} bytes of rows");
    let (sum, in_use) = (after.sum - before.sum, after.in_use - before.in_use);
    eprintln!("{sum} of {in_use} bytes are explained, {of_orders} by orders");
    assert!(sum >= in_use / 5 * 4, "{sum} of {in_use} bytes are explained");
    assert!(sum <= in_use + in_use / 10, "{sum} bytes are counted of {in_use}");
}

#[test]
fn answers_that_nobody_takes_are_counted() {
    let server = Server::unlimited_with(&["--admin-listen", "127.0.0.1:0"]);
    let held = || -> usize {
        let page = page(&server);
        let mut lines = page.lines();
        let held = lines.find_map(|line| line.strip_prefix("paperbourse_answer_bytes "));
        held.unwrap().parse().unwrap()
    };
    let mut connection = server.connect();
    let request = Request::get("/v1/markets?limit=200").to_bytes();
    let answer_bytes = connection.send(&Request::get("/v1/markets?limit=200")).text.len();
    assert!(answer_bytes > 16 * 1024, "{answer_bytes}");
    // Perhaps not yet when the client has read the last byte.
    eventually(|| (held() == 0).then_some(()));
    // More than the system buffers.
    connection.write(&request.repeat((32 << 20) / answer_bytes));
    eventually(|| (held() >= answer_bytes).then_some(()));
    drop(connection);
    eventually(|| (held() == 0).then_some(()));
}

#[test]
fn a_connection_that_asks_nothing_gives_way_to_a_scraper() {
    let server = Server::unlimited_with(&["--admin-listen", "127.0.0.1:0"]);
    let stalled: Vec<_> = (0..16)
        .map(|_| {
            let stream = TcpStream::connect(address(&server)).unwrap();
            stream.set_nonblocking(true).unwrap();
            stream
        })
        .collect();
    let is_open = |mut stream: &TcpStream| {
        stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    page(&server);
    eventually(|| (!is_open(&stalled[0])).then_some(()));
    assert_eq!(stalled[1..].iter().filter(|stream| !is_open(stream)).count(), 0);
}
