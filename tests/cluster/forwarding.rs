//! A node that does not own the log passes requests on to the one that does: clients need not know
//! which that is.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use paperbourse_test_support::brokers::Brokers;
use paperbourse_test_support::event_stream::EventStream;
use paperbourse_test_support::socket::{Frame, Socket, upgrade};
use paperbourse_test_support::{Connection, PATIENCE, Request, Response};
use serde_json::json;
use tempfile::TempDir;

use crate::load::{Load, Trader};
use crate::nodes::{MARKET, Nodes, OWNER, UNLIMITED, ask};
use crate::{PAUSE, cluster_on_brokers, setting};

/// A cluster whose nodes all answer.
struct Cluster {
    nodes: Nodes,
    /// The node that owns the log.
    owner: usize,
    brokers: Brokers,
    folder: TempDir,
}

impl Cluster {
    /// `None` if there is no program for brokers.
    fn start(arguments: &[&str]) -> Option<Self> {
        let (folder, brokers, file) = cluster_on_brokers("logs = 1")?;
        let mut nodes = Nodes::start(folder.path(), &file, 0).with(arguments);
        (0..3).for_each(|number| nodes.run(number));
        let owner = nodes.all_answer();
        Some(Self { nodes, owner, brokers, folder })
    }

    fn trader(&self, number: usize) -> Trader {
        Trader::new(self.folder.path(), &self.addresses(), number)
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.addresses.lock().unwrap().clone()
    }

    /// The address of the owner, and that of another node.
    fn pair(&self) -> (SocketAddr, SocketAddr) {
        let addresses = self.addresses();
        (addresses[self.owner], addresses[(self.owner + 1) % 3])
    }
}

/// Headers that differ between two answers to the same request, or that a connection adds.
const OWN_HEADERS: [&str; 3] = ["date", "x-request-id", OWNER];

/// The same for answers of all nodes.
fn comparable(answer: &Response) -> (u16, BTreeMap<String, String>, String) {
    let mut headers: BTreeMap<String, String> = answer.headers.iter().cloned().collect();
    for name in OWN_HEADERS {
        headers.remove(name);
    }
    // The second until which limits are counted.
    headers.remove("x-ratelimit-reset");
    (answer.status, headers, answer.text.clone())
}

/// What the owner and another node answer, while the owner's answer stays the same: prices move.
fn answers_at_one_time(
    owner: SocketAddr,
    other: SocketAddr,
    request: &Request,
) -> (Response, Response) {
    let began = Instant::now();
    loop {
        let [before, answer, after] =
            [owner, other, owner].map(|address| ask(address, request).unwrap());
        if comparable(&before) == comparable(&after) {
            return (before, answer);
        }
        assert!(began.elapsed() < PATIENCE, "it never stays the same: {before:?}, {after:?}");
    }
}

#[test]
fn all_nodes_give_the_same_answers() {
    let Some(cluster) = Cluster::start(&UNLIMITED) else { return };
    let trader = cluster.trader(0);
    let key = trader.key();
    let (owner, other) = cluster.pair();
    let mut connection = Connection::open(other);
    let order = trader.order("an order");
    let first = connection.send(&order);
    assert_eq!(first.header(OWNER), Some(format!("node-{}", cluster.owner).as_str()));
    let order_id = first.ok(200)["order_id"].as_u64().unwrap();
    // Past what is sent in one piece.
    for number in 0..700 {
        connection.send(&trader.order(&format!("order {number}"))).ok(200);
    }

    let long_text = json!({ "market_id": "x".repeat(70_000) });
    for request in [
        order,
        trader.positions(),
        Request::new("HEAD", "/v1/account/positions").key(key),
        Request::get("/v1/account/trades?limit=500").key(key),
        Request::get("/v1/exports/trades.csv").key(key),
        Request::get("/v1/account/positions"),
        Request::get("/v1/account/positions").key("ps_live_wrong"),
        Request::get(format!("/v1/orders/{order_id}")).key(key),
        Request::delete(format!("/v1/orders/{order_id}")).key(key),
        Request::get("/v1/orders/first").key(key),
        Request::post("/trade", &json!({"market_id": MARKET})).key(key),
        Request::post("/trade", &json!({"market_id": MARKET})).key(key).chunked(),
        Request::new("POST", "/trade").body("no JSON").key(key),
        Request::post("/trade", &long_text).key(key),
        Request::get(format!("/v1/markets/{MARKET}")),
        Request::get("/v1/markets?limit=1"),
        Request::get("/v1/nothing"),
        Request::delete("/trade").key(key),
        Request::get("/prices/stream"),
        Request::get("/v1/ws/prices").key(key),
        upgrade("/v1/ws/prices").header("sec-websocket-version", "12").key(key),
        Request::get("/openapi.json"),
        Request::get("/v1/account/positions").key(key).header("connection", "close"),
    ] {
        let (expected, answer) = answers_at_one_time(owner, other, &request);
        assert_eq!(comparable(&answer), comparable(&expected), "{request:?}");
        assert!(answer.header("x-request-id").is_some(), "{answer:?}");
    }

    let named = trader.positions().header("x-request-id", "mine");
    assert_eq!(ask(other, &named).unwrap().header("x-request-id"), Some("mine"));

    // What the node itself is asked.
    for path in ["/", "/docs", "/v1/health", "/v1/health/live"] {
        let answer = ask(other, &Request::get(path)).unwrap();
        assert_eq!((answer.status, answer.header(OWNER)), (200, None), "{path}");
    }
}

#[test]
fn sockets_and_streams_are_open_at_any_node() {
    let Some(mut cluster) = Cluster::start(&UNLIMITED) else { return };
    let trader = cluster.trader(0);
    let (owner, other) = cluster.pair();

    let mut prices = Socket::prices(other, trader.key());
    prices.subscribe(&[MARKET]);
    assert_eq!(prices.text()["type"], "subscribed");
    let executions = upgrade("/v1/ws/executions").key(trader.key());
    let mut executions = Socket::open(other, &executions).unwrap();
    assert_eq!(executions.text()["type"], "connected");
    let stream = Request::get(format!("/prices/stream?condition_ids={MARKET}"));
    let mut stream = EventStream::open(other, &stream).unwrap();
    let (name, snapshot) = stream.event();
    assert_eq!(
        (name.as_str(), &snapshot["prices"][0]["condition_id"]),
        ("snapshot", &json!(MARKET))
    );

    // A fill at the owner is told by the other node.
    let mut connection = Connection::open(owner);
    let id = connection.send(&trader.order("an order")).ok(200)["order_id"].clone();
    let fill = executions.text();
    assert_eq!(fill["order_id"], id, "{fill}");

    // An address without a credential is told so by a close code, which only a socket has.
    let mut refused = Socket::open(other, &upgrade("/v1/ws/prices")).unwrap();
    assert!(matches!(refused.next_frame(), Frame::Close(_)));

    // The owner ends: whoever reads is told, or at least let go.
    cluster.nodes.process(cluster.owner).signal("-TERM");
    loop {
        match executions.next_frame() {
            Frame::Close(_) | Frame::End => break,
            _ => {}
        }
    }
    stream.end();
    assert!(cluster.nodes.process(cluster.owner).wait().success(), "it waits for nobody");
}

#[test]
fn nobody_knows_what_an_owner_has_done_that_does_not_answer() {
    let Some(mut cluster) = Cluster::start(&UNLIMITED) else { return };
    let trader = cluster.trader(0);
    let (_, other) = cluster.pair();
    let mut connection = Connection::open(other);
    connection.send(&trader.order("before")).ok(200);
    cluster.nodes.process(cluster.owner).signal("-STOP");
    let lost = connection.send(&trader.order("lost"));
    assert_eq!(lost.ok(504)["error"], "OUTCOME_UNKNOWN");
    assert_eq!(lost.header("retry-after"), Some("1"));
    // Until another node owns the log. One that has just taken it says 503 too, and closes.
    let began = Instant::now();
    let repeated = loop {
        let repeated = ask(other, &trader.order("lost")).expect("the node answers");
        if repeated.status == 200 {
            break repeated;
        }
        assert_eq!(repeated.ok(503)["error"], "NOT_READY");
        assert!(began.elapsed() < PATIENCE);
        thread::sleep(PAUSE);
    };
    let again = ask(other, &trader.order("lost")).unwrap();
    assert_eq!(again.ok(200)["order_id"], repeated.ok(200)["order_id"]);
    assert!(again.is_replay());
    drop(cluster.brokers);
}

/// All nodes are restarted, one after the other, while others trade through those that run.
#[test]
fn a_rolling_restart_costs_nothing_but_named_refusals() {
    let Some(mut cluster) = Cluster::start(&UNLIMITED) else { return };
    let load = Load::new(3, cluster.folder.path(), &cluster.nodes);
    let addresses = cluster.nodes.addresses.clone();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let running = load.begin(scope, &addresses, &is_over);
        for number in 0..3 {
            running.wait_for_each();
            cluster.nodes.process(number).signal("-TERM");
            assert!(cluster.nodes.process(number).wait().success());
            cluster.nodes.run(number);
            cluster.nodes.all_answer();
        }
    });
    assert_eq!(load.take_cut_off(), [""; 0]);
    cluster.addresses().iter().for_each(|&address| load.check(address));
}

/// The limit of the key, per second.
const LIMIT: usize = 20;

/// One key asks all nodes, at ten times its limit: they admit together what one node would.
#[test]
fn the_limits_of_a_key_hold_over_all_nodes() {
    let tier = format!("free={LIMIT}/unlimited/100/5");
    let Some(cluster) = Cluster::start(&["--tier", &tier]) else { return };
    let trader = cluster.trader(0);
    let seconds = setting("PAPERBOURSE_LIMIT_SECONDS", 3);
    // When each request was sent that was admitted, and when its answer had come.
    let admitted = std::sync::Mutex::new(Vec::new());
    let refused = AtomicUsize::new(0);
    let began = Instant::now();
    thread::scope(|scope| {
        for address in cluster.addresses() {
            let (trader, admitted, refused) = (&trader, &admitted, &refused);
            scope.spawn(move || {
                let mut connection = Connection::open(address);
                let interval = Duration::from_secs(1) * 3 / u32::try_from(10 * LIMIT).unwrap();
                let mut at = began;
                while at < began + Duration::from_secs(seconds) {
                    thread::sleep(at.saturating_duration_since(Instant::now()));
                    at += interval;
                    let sent = began.elapsed();
                    let answer = connection.send(&trader.positions());
                    match answer.status {
                        200 => admitted.lock().unwrap().push((sent, began.elapsed())),
                        429 => drop(refused.fetch_add(1, Ordering::Relaxed)),
                        status => panic!("{status}: {answer:?}"),
                    }
                }
            });
        }
    });
    let mut admitted = admitted.into_inner().unwrap();
    admitted.sort();
    // Those that were certainly decided within one second.
    for (sent, _) in &admitted {
        let end = *sent + Duration::from_secs(1);
        let within = admitted.iter().filter(|(from, to)| from >= sent && *to < end).count();
        assert!(within <= LIMIT, "{within} within a second from {sent:?}");
    }
    let (all, refused) = (admitted.len(), refused.load(Ordering::Relaxed));
    println!("{all} admitted in {seconds} s, {refused} refused");
    // A node alone admits so many in the first moment, and as many a second later.
    let alone = LIMIT * usize::try_from(seconds).unwrap();
    assert!(20 * all >= 19 * alone, "{all} admitted, and one node alone admits {alone}");
    assert!(refused > all, "many more were sent");
}
