//! A market that resolves while its recording plays.

use std::path::Path;
use std::time::{Duration, Instant};

use paperbourse::money::Usd;
use paperbourse_test_support::recordings::case_path;
use serde_json::{Value, json};

use crate::world::{self, Trader, settlement_count};

const PATIENCE: Duration = Duration::from_mins(1);

/// An open market, and a minute later its resolution.
fn record(folder: &Path, condition_id: &str) {
    let open = json!({
        "conditionId": condition_id, "outcomes": "[\"Yes\",\"No\"]",
        "clobTokenIds": "[\"11\",\"12\"]", "outcomePrices": "[\"0.5\",\"0.5\"]",
        "active": true, "closed": false, "acceptingOrders": true, "enableOrderBook": true,
        "feesEnabled": false, "updatedAt": "2026-11-22T03:14:55Z",
    });
    let mut resolved = open.clone();
    let fields = json!({
        "closed": true, "acceptingOrders": false, "umaResolutionStatus": "resolved",
        "outcomePrices": "[\"1\",\"0\"]", "updatedAt": "2026-11-22T03:16:00Z",
    });
    resolved.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let frame = json!({
        "event_type": "book", "market": condition_id, "asset_id": "11",
        "timestamp": "1795317300000", "bids": [{"price": "0.4", "size": "100"}],
        "asks": [{"price": "0.6", "size": "100"}],
    });
    let write = |path: &str, rows: &[Value]| {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, json!(rows).to_string()).unwrap();
    };
    write("gamma/markets.json", &[resolved, open]);
    write("ws/frames.json", &[frame]);
}

fn check(recording: &Path, condition_id: &str) {
    let data = tempfile::tempdir().unwrap();
    let venue = format!("recorded:{}", recording.display());
    let arguments = ["--venue", &venue, "--venue-speed", "6"];
    let server = world::start(data.path(), &arguments);
    let trader = Trader::new(data.path(), &server, "trader");
    let mut client = trader.connect(&server);
    let order = json!({"market_id": condition_id, "outcome": "Yes", "side": "BUY", "quantity": 10});
    client.post("/trade", &order).ok(200);
    assert_eq!(settlement_count(&mut client), 0, "paid before the end");
    let began = Instant::now();
    while settlement_count(&mut client) == 0 {
        assert!(began.elapsed() < PATIENCE, "the market is not paid");
        std::thread::sleep(Duration::from_millis(50));
    }
    // Ten shares at 0.60 paid a dollar each.
    assert_eq!(trader.holdings(&server).cash, Usd::from_micros(1_000_004_000_000));
}

#[test]
fn a_market_is_paid_when_its_recording_says_that_it_is_resolved() {
    let condition_id = format!("0x{:064x}", 1);
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), &condition_id);
    check(folder.path(), &condition_id);
    if let Some(case) = case_path("resolves-later") {
        check(&case, &condition_id);
    }
}
