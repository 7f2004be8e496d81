//! What the process keeps of the memory that a start needs.
//!
//! The resident set depends on the kernel and on its huge pages, so these tests run where
//! `PAPERBOURSE_RESIDENT` is set, as `.ci/run` does.

#![cfg(target_os = "linux")]

use std::time::{Duration, Instant};

use paperbourse::limits::tier::Tier;
use paperbourse::telemetry::kilobytes;
use paperbourse_test_support::Request;
use serde_json::json;

use super::recording::buy;
use super::server::Server;

/// Orders before the restart: their journal has several pieces, and takes more memory than they do.
const ORDERS: usize = 20_000;
const PER_BATCH: usize = 20;

/// How long the resident set must not fall to count as what stays. Freed memory is returned after
/// a second.
const STILL_TIME: Duration = Duration::from_secs(4);

/// What the system says about a server's memory, in bytes.
fn memory(server: &Server, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    kilobytes(&status, name).unwrap()
}

/// The resident set once it no longer falls.
fn resident_that_stays(server: &Server) -> u64 {
    let (mut least, mut since) = (u64::MAX, Instant::now());
    while since.elapsed() < STILL_TIME {
        let resident = memory(server, "VmRSS:");
        if resident < least {
            (least, since) = (resident, Instant::now());
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
    least
}

#[test]
fn a_start_takes_little_more_memory_than_what_stays() {
    if std::env::var_os("PAPERBOURSE_RESIDENT").is_none() {
        eprintln!("SKIPPED: PAPERBOURSE_RESIDENT is not set: resident memory was NOT measured");
        return;
    }
    let server = Server::unlimited_with(&["--starting-balance", "1000000"]);
    let account = server.account_with(&json!({"tier": "pro"}), Some(Tier::Pro));
    let orders: Vec<_> = (0..PER_BATCH).map(|_| buy(1)).collect();
    let batch = Request::post("/v1/orders/batch", &json!({"orders": orders})).key(&account.key);
    let mut connection = server.connect();
    let mut filled = 0;
    while filled < ORDERS {
        let answer = connection.send(&batch).ok(200);
        filled += usize::try_from(answer["succeeded"].as_u64().unwrap()).unwrap();
    }
    let key = account.key.clone();
    drop(connection);

    let server = server.crash_and_restart();
    let stays = resident_that_stays(&server);
    let peak = memory(&server, "VmHWM:");
    eprintln!("{stays} bytes stay of {peak}");
    assert!(peak <= stays / 10 * 13, "{stays} bytes stay of {peak}");

    // The first order after the start, and those of the next seconds.
    let limit = (stays / 2 * 3).to_string();
    let server = server.crash_and_restart_with(&["--memory-limit", &limit]);
    let mut connection = server.connect();
    let order = Request::post("/trade", &buy(1)).key(&key);
    let began = Instant::now();
    while began.elapsed() < STILL_TIME {
        connection.send(&order).ok(200);
    }
    let memory = &server.get("/v1/status").ok(200)["memory"];
    assert!(memory["trouble"].is_null(), "{memory}");
    assert!(memory["in_use_bytes"].as_u64() < memory["limit_bytes"].as_u64(), "{memory}");
}
