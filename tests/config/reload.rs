//! SIGHUP while requests run: nothing is dropped, new limits bite, and what needs a restart is
//! named.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use paperbourse_test_support::event_stream::EventStream;
use paperbourse_test_support::process::{Process, ServerProcess, command};
use paperbourse_test_support::socket::Socket;
use paperbourse_test_support::{Client, Connection, Request};
use serde_json::json;
use tempfile::TempDir;

use super::BINARY;

/// How many clients send requests during the reloads, and how many reloads there are.
const CLIENT_COUNT: usize = 4;
const RELOAD_COUNT: u32 = 40;

/// A test that waits longer has failed.
const PATIENCE: Duration = Duration::from_mins(1);

/// How often a condition is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// A server that reads its limits from a file.
struct Reloadable {
    server: ServerProcess,
    folder: TempDir,
    key: String,
}

impl Reloadable {
    fn start(config: &str) -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("bourse.toml"), config).unwrap();
        let mut serve = command(BINARY);
        serve.current_dir(folder.path()).args(["serve", "--config", "bourse.toml"]);
        serve.args(["--listen", "127.0.0.1:0", "--data", "data"]);
        serve.args(["--journal-segment-bytes", "1048576"]);
        let server = Process::spawn(&mut serve).ready();
        let token = printed(folder.path(), &["token", "--subject", "x", "--data", "data"]);
        let mut client = Client::with_token(server.address, token.trim());
        let answer = client.post("/v1/keys/bootstrap", &json!({})).ok(201);
        let key = answer["raw_key"].as_str().unwrap().to_owned();
        Self { server, folder, key }
    }

    /// Reloads this configuration, and waits until the log has this line.
    #[track_caller]
    fn reload(&self, config: &str, line: &str) -> String {
        self.begin_reload(config);
        self.server.logged(line)
    }

    fn begin_reload(&self, config: &str) {
        fs::write(self.folder.path().join("bourse.toml"), config).unwrap();
        self.server.signal("-HUP");
    }

    /// Waits until keys of the lowest tier may send this many orders at once.
    #[track_caller]
    fn until_batch_max(&self, expected: u32) {
        let began = Instant::now();
        let mut client = Client::with_key(self.server.address, &self.key);
        while client.get("/v1/keys/tiers").ok(200)[0]["max_batch_size"] != expected {
            assert!(began.elapsed() < PATIENCE, "the limits stayed as they were");
            std::thread::park_timeout(CHECK_INTERVAL);
        }
    }

    fn status(&self, path: &str) -> u16 {
        let request = Request::get(path).key(&self.key);
        Connection::open(self.server.address).send(&request).status
    }
}

fn printed(folder: &Path, words: &[&str]) -> String {
    let output = Command::new(BINARY).current_dir(folder).args(words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn nothing_is_dropped_while_limits_are_reloaded_again_and_again() {
    let config = |minute: u32, round: u32| {
        format!("tier = [\"free=1000000/{minute}/2/5\"]\npublic-rate = \"{}/7\"\n", 1_000 + round)
    };
    let world = Reloadable::start(&config(1_000_000, 0));
    let market = &Connection::open(world.server.address)
        .send(&Request::get("/v1/markets?limit=1").key(&world.key))
        .ok(200)[0]["condition_id"];
    let mut socket = Socket::prices(world.server.address, &world.key);
    socket.subscribe(&[market.as_str().unwrap()]);
    let (is_over, served) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..CLIENT_COUNT {
            scope.spawn(|| {
                let mut client = Client::with_key(world.server.address, &world.key);
                while !is_over.load(Ordering::Relaxed) {
                    client.get("/v1/account/balance").ok(200);
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 1..=RELOAD_COUNT {
            let minute = 1_000_000 - round;
            let line = format!("option=\"public-rate\" value=\"{}/7\"", 1_000 + round);
            world.reload(&config(minute, round), &line);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let served = served.into_inner();
    assert!(served > u64::from(RELOAD_COUNT), "only {served} requests");
    // What was admitted stays counted when the limit changes.
    let limit = u32::try_from(served).unwrap().min(20);
    let tight = config(limit, 0);
    world.reload(&tight, "value=\"1000/7\"");
    assert_eq!(world.status("/v1/account/balance"), 429);
    world.reload(&config(1_000_000, 99), "value=\"1099/7\"");
    assert_eq!(world.status("/v1/account/balance"), 200);
    // The socket has lived through it all.
    socket.say(&json!({"action": "ping"}));
    assert_eq!(socket.text_of("pong")["type"], "pong");
    world.server.terminate();
}

#[test]
fn what_needs_a_restart_is_named_and_a_mistake_changes_nothing() {
    let world = Reloadable::start("tier = \"free=1000/1000/2/5\"\n");
    let line = world.reload("tier = \"free=1000/1000/2/5\"\nworkers = 7", "needs a restart");
    for part in ["WARN", "option=\"workers\"", "value=\"7\"", "source=file: bourse.toml:2"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let line = world.reload("tier = \"free=1/1/2/5\"\npublic-rate = 5", "SIGHUP changed nothing");
    let expected = "bourse.toml:2: public-rate is `5`: not RATE/BURST";
    assert!(line.contains("ERROR") && line.contains(expected), "{line}");
    for _ in 0..3 {
        assert_eq!(world.status("/v1/account/balance"), 200);
    }
    let config = "address-limits = \"off\"\nkey-rate = \"unlimited\"\ndefault-tier = \"pro\"\n";
    world.reload(config, "option=\"default-tier\" value=\"pro\"");
    let tiers = Connection::open(world.server.address).send(&Request::get("/v1/keys/tiers"));
    assert_eq!(tiers.ok(200)[0]["requests_per_minute"], 300, "the default again: {tiers:?}");
    for number in 0..60 {
        let response = Connection::open(world.server.address).send(&Request::get("/v1/markets"));
        assert_eq!(response.status, 200, "request {number} without a limit");
    }
    world.server.terminate();
}

#[test]
fn the_level_of_the_log_can_change() {
    let config = |level: &str, batch_max: u32, more: &str| {
        format!(
            "log-level = \"{level}\"\ntier = [\"free=unlimited/unlimited/2/{batch_max}\"]\n\
             address-limits = \"off\"\n{more}"
        )
    };
    let world = Reloadable::start(&config("info", 5, ""));
    world.reload(&config("error", 5, ""), "option=\"log-level\" value=\"error\"");
    // No line of this reload is logged. The next one must wait until it is seen elsewhere: two
    // signals may become one, and the file is read after the signal.
    world.begin_reload(&config("info", 6, "workers = 7\n"));
    world.until_batch_max(6);
    world.reload(&config("info", 6, "public-rate = \"7/7\"\n"), "value=\"7/7\"");
    assert_eq!(world.server.log_lines("needs a restart").len(), 0);
    world.server.terminate();
}

/// Streams that are open beyond a new limit stay.
#[test]
fn the_access_log_and_the_limit_of_streams_can_change() {
    let config = |access_log: &str, streams_max: u32| {
        format!("access-log = \"{access_log}\"\nstreams-per-address = {streams_max}\n")
    };
    let world = Reloadable::start(&config("off", 2));
    let markets = Client::with_key(world.server.address, &world.key).get("/v1/markets").ok(200);
    let path =
        format!("/prices/stream?condition_ids={}", markets[0]["condition_id"].as_str().unwrap());
    let request_with_id = |id: &str| {
        let request = Request::get("/v1/health").header("x-request-id", id);
        assert_eq!(Connection::open(world.server.address).send(&request).status, 200);
    };
    let open = || {
        let opened = EventStream::open(world.server.address, &Request::get(&path).key(&world.key));
        opened.map_err(|refusal| refusal.status)
    };
    let mut streams = vec![open().unwrap(), open().unwrap()];
    assert_eq!(open().err(), Some(429));
    world.reload(&config("off", 3), "option=\"streams-per-address\" value=\"3\"");
    streams.push(open().unwrap());
    assert_eq!(open().err(), Some(429));
    request_with_id("before");
    world.reload(&config("all", 1), "option=\"access-log\" value=\"all\"");
    request_with_id("logged");
    world.server.logged("request_id=\"logged\"");
    assert_eq!(open().err(), Some(429));
    world.reload(&config("off", 1), "option=\"access-log\" value=\"off\"");
    request_with_id("after");
    drop(streams);
    let log = world.server.interrupt();
    let has = |id: &str| log.iter().any(|line| line.contains(&format!("request_id=\"{id}\"")));
    assert_eq!((has("before"), has("logged"), has("after")), (false, true, false));
}
