//! The access log: what a line has, and which requests have one.

use paperbourse_test_support::process::ServerProcess;
use paperbourse_test_support::{Client, Connection, Request};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{BINARY, in_folder};

/// A simulated market that stays open.
const MARKET: &str = "0xfbedbcd006f8debf0a24458901c7d2b6129d3a14e398cfb275c00cef14bcf8d9";

struct World {
    server: ServerProcess,
    folder: TempDir,
    key: String,
    key_id: u64,
}

impl World {
    fn start(access_log: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let data = folder.path().join("data");
        let flags = ["--access-log", access_log, "--log-format", "json"];
        let flags = [&flags[..], &["--journal-segment-bytes", "1048576"]].concat();
        let server = ServerProcess::start(BINARY, &data, &flags);
        let words = ["token", "--subject", "x", "--data", "data"];
        let token = in_folder(folder.path(), &words, None).output().unwrap();
        let token = String::from_utf8(token.stdout).unwrap();
        let mut client = Client::with_token(server.address, token.trim());
        let answer = client.post("/v1/keys/bootstrap", &json!({})).ok(201);
        let key = answer["raw_key"].as_str().unwrap().to_owned();
        let key_id = answer["id"].as_u64().unwrap();
        Self { server, folder, key, key_id }
    }

    fn send(&self, request: Request, id: &str) -> u16 {
        let request = request.header("X-Request-Id", id);
        Connection::open(self.server.address).send(&request).status
    }

    /// The line of the request with this id.
    fn line(&self, id: &str) -> Value {
        let text = self.server.logged(&format!("\"request_id\":\"{id}\""));
        serde_json::from_str(&text).expect(&text)
    }
}

#[test]
fn a_line_says_who_asked_for_what_and_where_it_was_written() {
    let world = World::start("all");
    let order = json!({"market_id": MARKET, "outcome": "Yes", "side": "BUY", "quantity": 10});
    for (request, id, operation, status, has_key, has_position) in [
        (Request::get("/v1/health"), "health", "GET /v1/health", 200, false, false),
        (Request::get("/v1/markets?limit=1"), "read", "GET /v1/markets", 200, false, false),
        (Request::post("/trade", &order).key(&world.key), "trade", "POST /trade", 200, true, true),
        (
            Request::get("/v1/keys/tiers?note=secret"),
            "pattern",
            "GET /v1/keys/tiers",
            200,
            false,
            false,
        ),
        (Request::get("/nowhere/secret"), "lost", "none", 404, false, false),
        (
            Request::get("/v1/orders").key("ps_live_wrong"),
            "wrong",
            "GET /v1/orders",
            401,
            false,
            false,
        ),
    ] {
        let found = world.send(request, id);
        let line = world.line(id);
        let fields = &line["fields"];
        assert_eq!((found, &fields["status"]), (status, &json!(status)), "{line}");
        assert_eq!(line["target"], "paperbourse::access");
        assert_eq!(line["message"], "request");
        assert_eq!(fields["operation"], operation, "{line}");
        let key_id = if has_key { json!(world.key_id) } else { Value::Null };
        assert_eq!(fields["key_id"], key_id, "{line}");
        assert!(fields["duration_us"].is_u64(), "{line}");
        assert_eq!(fields["position"].is_u64(), has_position, "{line}");
    }
    // The position is where the trade is in the journal.
    let position = world.line("trade")["fields"]["position"].as_u64().unwrap().to_string();
    let words = ["journal", "dump", "data", "--from", &position];
    let dump = in_folder(world.folder.path(), &words, None).output().unwrap();
    let dump = String::from_utf8(dump.stdout).unwrap();
    let record = dump.lines().next().unwrap();
    assert!(record.starts_with(&position) && record.contains("order"), "{dump}");
    let key = world.key.clone();
    let log = world.server.interrupt();
    for secret in [&*key, "secret", "quantity"] {
        assert!(!log.iter().any(|line| line.contains(secret)), "{secret}: {log:?}");
    }
}

#[test]
fn a_sample_has_whole_requests_and_off_has_none() {
    for (sample, expected) in [("1/4", 15..110), ("off", 0..1)] {
        let world = World::start(sample);
        let mut client = Connection::open(world.server.address);
        for number in 0..200 {
            let id = format!("request-{number}");
            let request = Request::get("/v1/health").header("X-Request-Id", id);
            assert_eq!(client.send(&request).status, 200);
        }
        drop(client);
        // The end waits for what is not written yet.
        let lines = world.server.interrupt();
        let count = lines.iter().filter(|line| line.contains("\"request-")).count();
        assert!(expected.contains(&count), "{sample}: {count} lines");
    }
}
