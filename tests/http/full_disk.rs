//! A real, full file system: what traders see, and that the server recovers by itself.
//!
//! `PAPERBOURSE_SMALL_DISK` names a separate file system of about 6 MB. `.ci/run` mounts one.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use paperbourse_test_support::Request;
use serde_json::json;

use super::expect::check_error;
use super::recording::{buy, sell};
use super::server::Server;

/// How soon after space is freed the server creates a segment again.
const RECOVERY_TIME_MAX: Duration = Duration::from_secs(30);

/// More trades than fit into two segments of a MiB, each in a block of its own.
const TRADES_MAX: usize = 4_096;

#[test]
fn a_full_disk_refuses_writes_and_passes_by_itself() {
    let Some(disk) = std::env::var_os("PAPERBOURSE_SMALL_DISK").map(PathBuf::from) else {
        eprintln!(
            "SKIPPED: PAPERBOURSE_SMALL_DISK names no file system: a full disk was NOT tested"
        );
        return;
    };
    let server = Server::unlimited_on(&disk);
    let account = server.account_with(&json!({"permissions": ["read", "trade", "admin"]}), None);
    let key = account.key.clone();
    let filler = disk.join("filler");
    fill(&filler);

    // Prepared segments take a while to use up; the first refusal is exact.
    let mut connection = server.connect();
    // Each order sells what the one before bought, so that the money lasts.
    let order = |number: usize| {
        let order = if number.is_multiple_of(2) { buy(1) } else { sell(1) };
        let name = format!("order-{number}");
        Request::post("/trade", &order).header("idempotency-key", name).key(&key)
    };
    let mut answered = Vec::new();
    let refused = loop {
        let answer = connection.send(&order(answered.len()));
        if answer.status != 200 {
            break answer;
        }
        answered.push(answer.text);
        assert!(answered.len() < TRADES_MAX, "the disk does not fill up");
    };
    check_error(&refused, 503, "JOURNAL_FULL");
    assert!(refused.header("retry-after").is_some());
    assert!(!answered.is_empty());

    // Everything that needs no space keeps working.
    let before = account.get("/v1/account/balance").ok(200);
    let last = answered.len() - 1;
    assert_eq!(connection.send(&order(last)).text, answered[last]);
    check_error(&connection.send(&order(answered.len())), 503, "JOURNAL_FULL");
    assert_eq!(account.get("/v1/account/balance").ok(200), before, "a refusal changed something");
    server.get("/v1/health/live").ok(200);

    // With free space the server recovers without help.
    std::fs::remove_file(&filler).unwrap();
    let freed = Instant::now();
    loop {
        let answer = connection.send(&order(answered.len()));
        if answer.status == 200 {
            answered.push(answer.text);
            break;
        }
        check_error(&answer, 503, "JOURNAL_FULL");
        assert!(freed.elapsed() < RECOVERY_TIME_MAX, "the server does not recover");
    }
    let before = account.get("/v1/account/balance").ok(200);

    let server = server.crash_and_restart();
    let after = server.send(&Request::get("/v1/account/balance").key(&key)).ok(200);
    assert_eq!(after, before);
    let mut connection = server.connect();
    for (name, text) in answered.iter().enumerate() {
        assert_eq!(&connection.send(&order(name)).text, text, "order {name}");
    }
}

/// Writes a file until the disk is full.
fn fill(filler: &PathBuf) {
    use std::io::Write;
    let mut file = std::fs::File::create(filler).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
}
