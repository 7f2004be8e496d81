//! Health, status, orderly shutdown, and recovery after a crash.

use std::time::{Duration, Instant};

use paperbourse_test_support::Request;
use serde_json::{Value, json};

use super::expect::Kind::{Object, Text, Time};
use super::expect::{check_error, check_fields, check_invalid, eventually};
use super::recording::{PLAIN, buy};
use super::server::{Server, shared};
use paperbourse_test_support::event_stream::EventStream;
use paperbourse_test_support::process::command;
use paperbourse_test_support::socket::{Frame, Socket, upgrade};

#[test]
fn health_has_its_fields() {
    let alive = [("status", Text), ("timestamp", Time), ("version", Text)];
    for path in ["/v1/health", "/v1/health/live"] {
        check_fields(&shared().get(path).ok(200), &alive);
    }
    for path in ["/v1/health/ready", "/v1/health/ready?strict=1"] {
        let ready = shared().get(path).ok(200);
        check_fields(
            &ready,
            &[alive[0], alive[1], alive[2], ("build", Object), ("checks", Object)],
        );
        check_build(&ready["build"]);
        let ok = json!({"status": "ok"});
        let checks = json!({"journal": &ok, "venue": &ok, "memory": &ok, "clock": &ok});
        assert_eq!((&ready["status"], &ready["checks"]), (&json!("ok"), &checks));
    }
    check_invalid(&shared().get("/v1/health/ready?strict=x"), &["query.strict: bool_parsing"]);
    // Health ignores credentials.
    shared().send(&Request::get("/v1/health").key("nonsense")).ok(200);
}

/// What the server says about its build is what the binary says.
#[track_caller]
fn check_build(build: &Value) {
    let printed = command(env!("CARGO_BIN_EXE_paperbourse")).arg("--version").output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    let text = |name: &str| build[name].as_str().unwrap_or_default();
    let origin = format!("{} {}", text("commit"), text("commit_date"));
    let origin = if origin == " " { "unknown commit" } else { origin.trim() };
    let features = build["features"].as_array().unwrap().iter();
    let features: Vec<_> = features.map(|name| name.as_str().unwrap()).collect();
    let features = if features.is_empty() { "none".to_owned() } else { features.join(", ") };
    let formats = &build["data_format"];
    let (version, journal) = (env!("CARGO_PKG_VERSION"), &formats["journal"]);
    let expected = format!(
        "paperbourse {version} ({origin})\nfeatures: {features}\n\
         data format: journal {journal}, snapshots {}\n",
        formats["snapshots"]
    );
    assert_eq!(printed, expected, "{build}");
    let page = shared().get("/").text;
    assert!(page.contains(expected.trim_end().replace('\n', "; ").as_str()), "{page}");
}

#[test]
fn the_status_reports_numbers() {
    let status = shared().get("/v1/status").ok(200);
    check_build(&status["build"]);
    assert_eq!((&status["status"], &status["venue"]["name"]), (&json!("ok"), &json!("recorded")));
    let listed = shared().get("/v1/markets?limit=200").ok(200).as_array().unwrap().len();
    assert_eq!(status["markets"]["listed"], listed);
    assert!(status["markets"]["tradable"].as_u64().is_some_and(|count| count > 0), "{status}");
    assert_eq!(status["journal"]["kept"], "on disk");
    assert!(status["uptime_seconds"].is_u64() && status["websocket"]["connections"].is_u64());

    let time = shared().get("/v1/time").ok(200).as_u64().unwrap();
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    assert!((now - 60..=now).contains(&time), "{time} is not {now}");
}

#[test]
fn a_venue_without_books_is_degraded() {
    let server = Server::bookless();
    let status = server.get("/v1/status").ok(200);
    assert_eq!(
        (&status["status"], &status["markets"]["tradable"]),
        (&json!("degraded"), &json!(0))
    );
    assert!(status["venue"]["trouble"].is_string(), "{status}");
    let ready = server.get("/v1/health/ready").ok(200);
    assert_eq!(
        (&ready["status"], &ready["checks"]["venue"]["status"]),
        (&json!("degraded"), &json!("degraded"))
    );
    assert!(ready["checks"]["venue"]["reason"].is_string());
    assert_eq!(server.get("/v1/health/ready?strict=1").status, 503);
    let account = server.account();
    check_error(&account.post("/trade", &buy(1)), 503, "VENUE_UNAVAILABLE");
    account.get("/v1/account/balance").ok(200);
}

#[test]
fn a_crash_loses_nothing_that_was_answered() {
    let server = Server::unlimited();
    let account = server.account_with(&json!({"permissions": ["read", "trade", "admin"]}), None);
    let named = Request::post("/trade", &buy(10)).header("idempotency-key", "named");
    let first = account.send(named.clone());
    first.ok(200);
    let comment = format!("/trades/{}/comments", first.json()["order_id"]);
    account.post(&*comment, &json!({"content": "before the crash"})).ok(200);
    let revoked = account.new_key(&json!({}));
    account.delete(format!("/v1/keys/{}", revoked["id"])).ok(200);
    let paths = ["/v1/account/balance", "/v1/account/positions", "/v1/orders", &comment];
    let before = paths.map(|path| account.get(path).ok(200));
    let keys = account.get("/v1/keys").ok(200);
    let (key, token) = (account.key.clone(), account.token.clone());

    let server = server.crash_and_restart();
    let send = |request: Request| server.send(&request.key(&key));
    let after = paths.map(|path| send(Request::get(path)).ok(200));
    assert_eq!(after, before);
    let mut kept = send(Request::get("/v1/keys")).ok(200);
    for (row, before) in kept.as_array_mut().unwrap().iter_mut().zip(keys.as_array().unwrap()) {
        // The time of a key's last use is not kept across a restart.
        row["last_used_at"] = before["last_used_at"].clone();
    }
    assert_eq!(kept, keys);
    let replay = send(named);
    assert_eq!((replay.status, &replay.text), (200, &first.text));
    assert_eq!(replay.header("idempotent-replayed"), Some("true"));
    let revoked = Request::get("/v1/orders").key(revoked["raw_key"].as_str().unwrap());
    check_error(&server.send(&revoked), 401, "KEY_DEACTIVATED");
    let bootstrap = Request::post("/v1/keys/bootstrap", &json!({})).bearer(&token);
    check_error(&server.send(&bootstrap), 400, "BOOTSTRAP_NOT_ALLOWED");
    let new = send(Request::post("/trade", &buy(1))).ok(200);
    assert!(new["order_id"].as_u64() > first.json()["order_id"].as_u64());
}

/// Above its memory limit a server refuses what adds to its state, and does everything else.
#[test]
#[cfg(target_os = "linux")]
fn a_full_server_only_refuses_what_adds_to_its_state() {
    let server = Server::unlimited();
    let account = server.account_with(&json!({"permissions": ["read", "trade", "admin"]}), None);
    let named = Request::post("/trade", &buy(10)).header("idempotency-key", "named");
    let first = account.send(named.clone());
    let comments = format!("/trades/{}/comments", first.ok(200)["order_id"]);
    let comment = account.post(&*comments, &json!({"content": "mine"})).ok(200);
    let other = account.new_key(&json!({}));
    let key = account.key.clone();

    let server = server.crash_and_restart_with(&["--memory-limit", "1"]);
    let send = |request: Request| server.send(&request.key(&key));
    let newcomer = Request::post("/v1/keys/bootstrap", &json!({}));
    for refused in [
        Request::post("/trade", &buy(1)).key(&key),
        Request::post(&*comments, &json!({"content": "another"})).key(&key),
        Request::post("/v1/keys", &json!({})).key(&key),
        newcomer.bearer(&server.token("newcomer", None)),
    ] {
        let answer = server.send(&refused);
        check_error(&answer, 503, "SERVER_FULL");
        assert!(answer.header("retry-after").is_some());
    }
    assert_eq!(send(named).text, first.text);
    send(Request::get("/v1/account/balance")).ok(200);
    // Nor does it open another socket or stream.
    let mut socket = Socket::open(&server, &upgrade("/v1/ws/prices").key(&key)).unwrap();
    assert_eq!(socket.next_frame(), Frame::Close(1013));
    let stream = Request::get(format!("/prices/stream?condition_ids={PLAIN}"));
    check_error(&EventStream::open(&server, &stream).err().unwrap(), 503, "SERVER_BUSY");
    drop(socket);
    let readers = || server.get("/v1/status").ok(200)["readers"].clone();
    eventually(|| (readers()["closed_1013"] == 1).then_some(()));
    assert_eq!(readers()["subscriptions"], 0);
    send(Request::delete(format!("/comments/{}", comment["id"]))).ok(200);
    send(Request::delete(format!("/v1/keys/{}", other["id"]))).ok(200);

    let server = server.crash_and_restart();
    server.send(&Request::post("/trade", &buy(1)).key(&key)).ok(200);
}

#[test]
fn a_shutdown_finishes_requests_in_flight() {
    let mut server = Server::unlimited();
    let (key, request) = {
        let account = server.account();
        let request = Request::post("/trade", &buy(10)).header("idempotency-key", "late");
        (account.key.clone(), request.key(&account.key))
    };
    let bytes = request.to_bytes();
    let (some, rest) = bytes.split_at(bytes.len() - 5);
    let mut in_flight = server.connect();
    in_flight.write(some);
    let mut idle = server.connect();
    idle.send(&Request::get("/v1/health")).ok(200);
    let mut socket = Socket::prices(&server, &key);
    socket.subscribe(&[PLAIN]);
    assert_eq!(socket.text_of("price")["market_id"], PLAIN);

    let asked_at = Instant::now();
    server.terminate();
    assert_eq!(socket.close_code(), 1001);
    assert!(idle.is_ended());
    in_flight.write(rest);
    let response = in_flight.read(false);
    assert_eq!(response.ok(200)["quantity"], 10);
    assert_eq!(response.header("connection"), Some("close"));
    assert!(in_flight.is_ended());
    drop(socket);
    assert_eq!(server.wait().code(), Some(0));
    assert!(asked_at.elapsed() < Duration::from_secs(10), "{:?}", asked_at.elapsed());

    let server = server.crash_and_restart();
    let replay = server.send(&request);
    assert_eq!((replay.status, &replay.text), (200, &response.text));
}
