//! One server takes over from another under load: clients see a pause, and nothing else.
//!
//! `PAPERBOURSE_TAKE_OVERS`, `PAPERBOURSE_TAKE_OVER_CONNECTIONS` and
//! `PAPERBOURSE_TAKE_OVER_SOCKETS` make the run longer; `PAPERBOURSE_OTHER_BINARY` is a second
//! binary, and the two take turns.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use paperbourse_test_support::process::{Process, ServerProcess, command};
use paperbourse_test_support::socket::{Frame, Socket, upgrade};
use paperbourse_test_support::{Connection, Request};
use serde_json::json;

use crate::BINARY;

/// The market that every simulated venue has.
const MARKET: &str = "0xfbedbcd006f8debf0a24458901c7d2b6129d3a14e398cfb275c00cef14bcf8d9";

const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Between two take-overs, each connection gets this many answers.
const ANSWERS_BETWEEN: usize = 5;

/// Fills that a socket did not show within this time are missing.
const PATIENCE: Duration = Duration::from_mins(2);

fn number<T: FromStr>(name: &str, default: T) -> T {
    std::env::var(name).ok().map_or(default, |text| text.parse().ok().unwrap())
}

fn serve(binary: &str, data: &Path, arguments: &[&str]) -> Process {
    let mut serve = command(binary);
    serve.args(["serve", "--data"]).arg(data).args(arguments);
    serve.args(["--address-limits", "off", "--starting-balance", "1000000"]);
    serve.args(["--tier", "free=unlimited/unlimited/100/5", "--socket-rate", "unlimited"]);
    // Snapshots and new segments all the time.
    serve.args(["--journal-segment-bytes", "1048576", "--snapshot-bytes", "1"]);
    Process::spawn(&mut serve)
}

fn token(data: &Path, subject: &str) -> String {
    let mut token = command(BINARY);
    let token = token.args(["token", "--subject", subject, "--data"]).arg(data).output();
    String::from_utf8(token.unwrap().stdout).unwrap().trim().to_owned()
}

/// An account with a key of its own.
struct Trader {
    key: String,
    label: String,
    /// The orders that were acknowledged, by name.
    acknowledged: Mutex<BTreeMap<String, u64>>,
}

impl Trader {
    fn new(data: &Path, server: &ServerProcess, number: usize) -> Self {
        let label = format!("trader-{number}");
        let token = token(data, &label);
        let bootstrap = Request::post("/v1/keys/bootstrap", &json!({})).bearer(&token);
        let answer = Connection::open(server.address).send(&bootstrap).ok(201);
        let key = answer["raw_key"].as_str().unwrap().to_owned();
        Self { key, label, acknowledged: Mutex::default() }
    }

    fn acknowledged_count(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    /// Buys one share after the other over one connection, until told to stop. A connection that
    /// breaks, or a refusal that may not be repeated, fails the test. Returns the longest time that
    /// an answer took.
    fn trade(&self, address: SocketAddr, is_over: &AtomicBool) -> Duration {
        let mut connection = Connection::open(address);
        let mut longest = Duration::ZERO;
        for number in 0.. {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            let name = format!("{}-{number}", self.label);
            let order = json!({"market_id": MARKET, "outcome": "Yes", "side": "BUY",
                               "quantity": 1, "client_order_id": &name});
            let request = Request::post("/trade", &order).key(&self.key);
            let began = Instant::now();
            let answer = loop {
                let answer = connection.try_send(&request);
                let answer = answer.unwrap_or_else(|error| panic!("{name} was lost: {error}"));
                if answer.status != 503 {
                    break answer;
                }
                assert!(answer.header("retry-after").is_some(), "{answer:?}");
                thread::park_timeout(CHECK_INTERVAL);
            };
            longest = longest.max(began.elapsed());
            assert!(!answer.is_replay(), "{answer:?}");
            let order = answer.ok(200)["order_id"].as_u64().unwrap();
            self.acknowledged.lock().unwrap().insert(name, order);
            if answer.header("connection") == Some("close") {
                connection = Connection::open(address);
            }
        }
        longest
    }

    /// Reads all fills, without a hole, over one socket after the other, until the last server
    /// ends. Counts them in `seen`.
    fn follow(&self, address: SocketAddr, seen: &AtomicU64, is_over: &AtomicBool) {
        let mut last = 0;
        while !is_over.load(Ordering::Relaxed) {
            let request = upgrade("/v1/ws/executions").key(&self.key);
            let mut socket = match Socket::try_open(address, &request) {
                Ok(Ok(socket)) => socket,
                Ok(Err(refused)) => {
                    assert_eq!(refused.status, 503, "{refused:?}");
                    thread::park_timeout(CHECK_INTERVAL);
                    continue;
                }
                Err(error) => panic!("a socket was refused: {error}"),
            };
            socket.say(&json!({"action": "resume", "after": last}));
            let mut has_resumed = false;
            loop {
                match socket.next_frame() {
                    Frame::Text(frame) if frame["type"] == "resumed" => has_resumed = true,
                    // One that came before the server has read the request comes once more.
                    Frame::Text(frame) if frame["type"] == "fill" && has_resumed => {
                        last += 1;
                        assert_eq!(frame["seq"], last, "{frame}");
                        seen.store(last, Ordering::Relaxed);
                    }
                    Frame::Text(_) | Frame::Ping | Frame::Pong(_) => {}
                    Frame::Close(code) => {
                        assert_eq!(code, 1001);
                        break;
                    }
                    Frame::End => panic!("a socket ended without a close frame"),
                }
            }
        }
    }
}

#[track_caller]
fn until(expected: &str, is_true: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < PATIENCE, "waited in vain until {expected}");
        thread::park_timeout(CHECK_INTERVAL);
    }
}

/// Tells the clients to stop, also when the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn clients_see_a_pause_and_nothing_else() {
    let take_overs = number("PAPERBOURSE_TAKE_OVERS", 3);
    let connection_count = number("PAPERBOURSE_TAKE_OVER_CONNECTIONS", 16);
    let socket_count = number("PAPERBOURSE_TAKE_OVER_SOCKETS", 50);
    let other = std::env::var("PAPERBOURSE_OTHER_BINARY").unwrap_or_else(|_| BINARY.to_owned());
    let data = tempfile::tempdir().unwrap();
    let first = serve(BINARY, data.path(), &["--listen", "127.0.0.1:0"]).ready();
    let address = first.address;
    let traders: Vec<Trader> =
        (0..connection_count).map(|number| Trader::new(data.path(), &first, number)).collect();
    let followers: Vec<(&Trader, AtomicU64)> =
        traders.iter().cycle().take(socket_count).map(|it| (it, AtomicU64::new(0))).collect();
    let (has_traded, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let _over = Over(&is_over);
        let trading_over = Over(&has_traded);
        let mut server = first;
        let trading: Vec<_> = traders
            .iter()
            .map(|trader| scope.spawn(|| trader.trade(address, &has_traded)))
            .collect();
        for (trader, seen) in &followers {
            scope.spawn(|| trader.follow(address, seen, &is_over));
        }
        for number in 0..take_overs {
            let before: Vec<usize> = traders.iter().map(Trader::acknowledged_count).collect();
            let has_moved = |(trader, before): (&Trader, &usize)| {
                trader.acknowledged_count() >= before + ANSWERS_BETWEEN
            };
            until("every connection is served", || traders.iter().zip(&before).all(has_moved));
            let binary = if number % 2 == 0 { &other } else { BINARY };
            let next = serve(binary, data.path(), &["--take-over"]).ready();
            assert_eq!(next.address, address);
            assert!(server.wait().success());
            server = next;
        }
        drop(trading_over);
        let pauses: Vec<_> = trading.into_iter().map(|it| it.join().unwrap()).collect();
        eprintln!("the longest pause: {:?}", pauses.iter().max().unwrap());
        // Every order that was acknowledged has one fill, and there are no other fills: none was
        // lost, and none doubled.
        let has_seen_all = |(trader, seen): &(&Trader, AtomicU64)| {
            seen.load(Ordering::Relaxed) >= trader.acknowledged_count() as u64
        };
        until("every fill is seen", || followers.iter().all(has_seen_all));
        is_over.store(true, Ordering::Relaxed);
        server.terminate();
        for (trader, seen) in &followers {
            assert_eq!(seen.load(Ordering::Relaxed), trader.acknowledged_count() as u64);
        }
    });
}

#[test]
fn connections_at_rest_move_and_the_others_are_answered_first() {
    let data = tempfile::tempdir().unwrap();
    let arguments = ["--listen", "127.0.0.1:0", "--workers", "1"];
    let mut server = serve(BINARY, data.path(), &arguments).ready();
    let health = Request::get("/v1/health/ready");
    let mut fresh = Connection::open(server.address);
    let mut idle = Connection::open(server.address);
    idle.send(&health).ok(200);
    let mut in_flight = Connection::open(server.address);
    let head = Request::get("/v1/health").to_bytes();
    let (some, rest) = head.split_at(20);
    in_flight.write(some);
    // The server has read it, since it serves one connection after the other.
    Connection::open(server.address).send(&health).ok(200);

    let next = serve(BINARY, data.path(), &["--take-over", "--workers", "2"]);
    server.logged("another server takes over");
    // It waits for the rest of the request.
    idle.write(&health.to_bytes());
    in_flight.write(rest);
    in_flight.read(false).ok(200);
    idle.read(false).ok(200);
    fresh.send(&health).ok(200);
    in_flight.send(&health).ok(200);
    assert!(server.wait().success());
    let next = next.ready();
    idle.send(&health).ok(200);
    server.logged("handed over connections=");
    next.terminate();
}

#[test]
fn a_server_that_could_not_start_leaves_the_running_one_alone() {
    let data = tempfile::tempdir().unwrap();
    let server = serve(BINARY, data.path(), &["--listen", "127.0.0.1:0"]).ready();
    let nowhere = "--issuer-data=/dev/null/nowhere";
    let provider = ["--identity=oidc:https://127.0.0.1:1", "--audience=x"];
    let other: [(&[&str], &str); 6] = [
        (&[nowhere], "/dev/null/nowhere"),
        (&[provider[0], provider[1], "--identity-ca=/nowhere/ca"], "--identity-ca sets them"),
        (&["--venue=polymarket", "--venue-ca=/nowhere/ca"], "--venue-ca sets them"),
        (&["--venue-speed=max"], "--venue-speed"),
        (&["--identity", "hs256:/nowhere/secret", "--issuer", "x", "--audience", "x"], "/nowhere"),
        (&["--data", "memory"], "--take-over needs a data folder"),
    ];
    for (arguments, expected) in other {
        let mut serve = command(BINARY);
        serve.args(["serve", "--take-over"]).args(arguments);
        if !arguments.contains(&"--data") {
            serve.arg("--data").arg(data.path());
        }
        let output = serve.output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(expected), "{error}");
        Connection::open(server.address).send(&Request::get("/v1/health/ready")).ok(200);
    }
    assert_eq!(server.log_lines("another server takes over"), Vec::<String>::new());
    server.terminate();
}

#[test]
fn a_server_whose_successor_ends_or_hangs_serves_on() {
    let data = tempfile::tempdir().unwrap();
    let server = serve(BINARY, data.path(), &["--listen", "127.0.0.1:0"]).ready();
    for hangs in [false, true] {
        let mut successor = UnixStream::connect(data.path().join("take-over.sock")).unwrap();
        successor.write_all(b"paperbourse take-over 1\n").unwrap();
        let kept = hangs.then_some(successor);
        let count = 1 + usize::from(hangs);
        let serves_on = || server.log_lines("did not take the sockets: serving on").len() == count;
        until("the server serves on", serves_on);
        Connection::open(server.address).send(&Request::get("/v1/health/ready")).ok(200);
        drop(kept);
    }
    let mut next = serve(BINARY, data.path(), &["--take-over"]).ready();
    next.signal("-TERM");
    assert!(next.wait().success());
}

#[test]
fn a_take_over_changes_no_address() {
    let data = tempfile::tempdir().unwrap();
    let mut server = serve(BINARY, data.path(), &["--listen", "127.0.0.1:0"]).ready();
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = busy.local_addr().unwrap().to_string();
    let next = serve(BINARY, data.path(), &["--take-over", "--admin-listen", &address]).ready();
    assert!(server.wait().success());
    assert!(next.logged("no metrics").contains(&address));
    assert_eq!(next.address, server.address);
    next.terminate();
}

#[test]
fn without_a_server_to_take_over_from_a_start_is_like_any_other() {
    let data = tempfile::tempdir().unwrap();
    for end in [ServerProcess::kill, ServerProcess::terminate] {
        let arguments = ["--listen", "127.0.0.1:0", "--take-over"];
        let server = serve(BINARY, data.path(), &arguments).ready();
        server.logged("no server to take over from");
        end(server);
    }
}

/// What the new server has read ahead is made up for with what came since.
#[test]
fn keys_are_what_they_were_left_as() {
    let data = tempfile::tempdir().unwrap();
    let mut server = serve(BINARY, data.path(), &["--listen", "127.0.0.1:0"]).ready();
    let token = token(data.path(), "owner");
    let address = server.address;
    let make = |path: &str| {
        let body = if path.ends_with("rotate") { json!({"overlap_seconds": 0}) } else { json!({}) };
        let request = Request::post(path, &body).bearer(&token);
        let answer = Connection::open(address).send(&request);
        assert!(matches!(answer.status, 200 | 201), "{answer:?}");
        let made = answer.json();
        (made["raw_key"].as_str().unwrap().to_owned(), made["id"].as_u64().unwrap())
    };
    // The keys, and the status that each gets. Some change after a server has read them ahead.
    let mut expected: Vec<(String, u16)> = Vec::new();
    let (mut to_revoke, mut to_rotate) = (make("/v1/keys"), make("/v1/keys"));
    for tier in ["pro", "free"] {
        let (revoked, rotated) = (to_revoke, to_rotate);
        let (next, _) = make(&format!("/v1/keys/{}/rotate", rotated.1));
        let revoke = Request::delete(format!("/v1/keys/{}", revoked.1)).bearer(&token);
        Connection::open(server.address).send(&revoke).ok(200);
        expected.extend([(revoked.0, 401), (rotated.0, 401), (next, 200)]);
        (to_revoke, to_rotate) = (make("/v1/keys"), make("/v1/keys"));
        let mut act = command(BINARY);
        act.args(["account", "tier", "--subject", "owner", "--tier", tier, "--reason", "a test"]);
        assert!(act.arg("--data").arg(data.path()).status().unwrap().success());

        let next = serve(BINARY, data.path(), &["--take-over"]).ready();
        assert!(server.wait().success());
        server = next;
        let newest = [(to_revoke.0.clone(), 200), (to_rotate.0.clone(), 200)];
        for (number, (key, status)) in expected.iter().chain(&newest).enumerate() {
            let me = Request::get("/v1/me").key(key);
            let answer = Connection::open(server.address).send(&me);
            assert_eq!(answer.status, *status, "{number}: {answer:?}");
            if *status == 200 {
                assert_eq!(answer.header("x-ratelimit-tier"), Some(tier), "{number}");
            }
        }
    }
    server.terminate();
}
