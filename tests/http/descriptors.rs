//! A server with fewer file descriptors than clients want connections.

use std::net::TcpStream;
use std::time::Instant;

use paperbourse_test_support::{Connection, PATIENCE, Request};
use serde_json::{Value, json};

use super::recording::PLAIN;
use super::server::Server;

/// The process's limit of open files.
const OPEN_FILES_MAX: u32 = 600;
/// Rounds of a batch that fill several segments of the journal.
const ROUNDS: usize = 450;

/// Buys and sells one share repeatedly.
fn batch() -> Value {
    let order = |side| json!({"market_id": PLAIN, "outcome": "Yes", "side": side, "quantity": 1});
    let orders: Vec<Value> =
        (0..20).map(|at| order(if at % 2 == 0 { "BUY" } else { "SELL" })).collect();
    json!({"orders": orders})
}

/// Unknown clients hold as many connections as they get, and the journal can still create files.
#[test]
fn idle_connections_leave_files_to_the_journal() {
    let server = Server::with_open_files(
        OPEN_FILES_MAX,
        &[
            "--address-limits",
            "off",
            "--connections-per-address",
            "10000",
            "--tier",
            "pro=unlimited/unlimited/10/20",
        ],
    );
    let account =
        server.account_with(&json!({"tier": "pro"}), Some(paperbourse::limits::tier::Tier::Pro));
    let mut bot = server.connect();
    let request = Request::post("/v1/orders/batch", &batch()).key(&account.key);
    bot.send(&request).ok(200);
    let strangers: Vec<_> =
        (0..OPEN_FILES_MAX + 100).filter_map(|_| TcpStream::connect(server.address).ok()).collect();
    let mut is_whole = || {
        let answer = bot.send(&request).ok(200);
        let mut results = answer["results"].as_array().unwrap().iter();
        let failed = results.find(|result| result.get("error").is_some());
        // A busy disk may have no segment ready, and then what was not bought cannot be sold.
        assert!(failed.is_none_or(|failed| failed["error"] == "SERVER_BUSY"), "{answer}");
        failed.is_none()
    };
    let began = Instant::now();
    let mut rounds = 0;
    while rounds < ROUNDS {
        rounds += usize::from(is_whole());
        assert!(began.elapsed() < 10 * PATIENCE, "{rounds} rounds");
    }
    let segments = std::fs::read_dir(server.data().join("journal")).unwrap().count();
    // Two exist from the start.
    assert!(segments > 2, "{segments} segments: none was created");
    // A client with a key replaces a stranger.
    Connection::open(server.address).send(&Request::get("/v1/orders").key(&account.key)).ok(200);
    drop(strangers);
    server.logged("allowing fewer connections than --connections-max");
    let complaints = [server.log_lines("failed to accept"), server.log_lines("ERROR")].concat();
    assert_eq!(complaints, [""; 0]);
}
