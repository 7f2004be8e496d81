//! A day of resolved markets. Traders open positions in each market, then the server restarts and
//! learns that all of them are resolved. It is killed repeatedly while it pays. In the end its
//! answers and its journal are compared with the holdings, and with the venue's results as the
//! recording's collector wrote them down.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use paperbourse::money::{Price, Usd};
use paperbourse_test_support::Client;
use paperbourse_test_support::process::ServerProcess;
use paperbourse_test_support::recordings;
use serde_json::{Value, json};

use crate::world::{self, Holdings, Trader, dump, get, payout, settlement_count, text};

const TRADER_COUNT: usize = 5;
/// Orders per request.
const BATCH: usize = 50;
/// The number of invented markets if there is no recording.
const INVENTED_COUNT: usize = 292;
/// The server is killed when an account has this many settlements.
const KILLED_AT: [usize; 4] = [1, 30, 90, 170];
const PATIENCE: Duration = Duration::from_mins(3);

/// A resolved market: Gamma's row after the resolution, and the payouts of its outcomes.
struct Resolved {
    condition_id: String,
    labels: [String; 2],
    tokens: [String; 2],
    payouts: [Price; 2],
    row: Value,
}

/// The recorded day, or an invented one, in which some markets split.
fn day() -> Vec<Resolved> {
    let Some(folder) = recordings::folder() else {
        eprintln!("the markets are invented instead");
        return (0..INVENTED_COUNT).map(invented).collect();
    };
    let path = folder.join("gamma/resolved_btc_updown_5m_2026-07-24.jsonl");
    let lines = std::fs::read_to_string(path).unwrap();
    let resolved = lines.lines().map(|line| {
        let mut row: Value = serde_json::from_str(line).unwrap();
        let first_wins = row["outcome_prices"] == json!(["1", "0"]);
        assert!(first_wins || row["outcome_prices"] == json!(["0", "1"]), "{line}");
        let payouts =
            if first_wins { [Price::ONE, Price::ZERO] } else { [Price::ZERO, Price::ONE] };
        let list = |field: &str| -> [String; 2] {
            serde_json::from_str(row["raw"][field].as_str().unwrap()).unwrap()
        };
        Resolved {
            condition_id: text(&row, "condition_id"),
            labels: list("outcomes"),
            tokens: list("clobTokenIds"),
            payouts,
            row: row["raw"].take(),
        }
    });
    resolved.collect()
}

/// An invented market; every third one pays half to each side.
fn invented(number: usize) -> Resolved {
    let condition_id = format!("0x{number:064x}");
    let tokens = [1, 2].map(|token| format!("{}", (number + 1) * 10 + token));
    let half = Price::from_micros(500_000);
    let payouts = [[Price::ONE, Price::ZERO], [Price::ZERO, Price::ONE], [half, half]][number % 3];
    let labels = ["Up", "Down"].map(str::to_owned);
    let prices = payouts.map(|price| price.to_string());
    let row = json!({
        "conditionId": condition_id,
        "question": format!("Invented {number}?"),
        "outcomes": json!(labels).to_string(),
        "clobTokenIds": json!(tokens).to_string(),
        "outcomePrices": json!(prices).to_string(),
        "closed": true,
        "umaResolutionStatus": "resolved",
        "feeSchedule": {"rate": 0.07, "exponent": 1},
        "feesEnabled": true,
    });
    Resolved { condition_id, labels, tokens, payouts, row }
}

/// Writes a recording of the day: either while the markets were open, with an invented book for
/// each, or after they were resolved.
fn record(folder: &Path, day: &[Resolved], is_open: bool) {
    let lines = |rows: Vec<Value>| -> String {
        let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
        lines.join("\n")
    };
    for name in ["gamma", "clob"] {
        std::fs::create_dir_all(folder.join(name)).unwrap();
    }
    let rows = day.iter().map(|market| {
        let mut row = market.row.clone();
        if is_open {
            let open = json!({
                "closed": false, "active": true, "acceptingOrders": true, "enableOrderBook": true,
                "umaResolutionStatus": null, "outcomePrices": "[\"0.5\",\"0.5\"]",
            });
            row.as_object_mut().unwrap().extend(open.as_object().unwrap().clone());
        }
        row
    });
    std::fs::write(folder.join("gamma/markets.jsonl"), lines(rows.collect())).unwrap();
    if !is_open {
        return;
    }
    let books = day.iter().enumerate().map(|(number, market)| {
        let cents = 20 + number % 60;
        let level = |cents: usize| json!({"price": format!("0.{cents}"), "size": "100000"});
        json!({
            "market": market.condition_id, "asset_id": market.tokens[0],
            "timestamp": "1784850900000", "bids": [level(cents)], "asks": [level(cents + 1)],
        })
    });
    std::fs::write(folder.join("clob/books.jsonl"), lines(books.collect())).unwrap();
}

fn start(data: &Path, recording: &Path) -> ServerProcess {
    let venue = format!("recorded:{}", recording.display());
    // Each full segment triggers a snapshot, so some starts recover from one.
    let snapshots = ["--journal-segment-bytes", "1048576", "--snapshot-bytes", "1"];
    world::start(data, &[&["--venue", &venue], &snapshots[..]].concat())
}

/// Each trader buys another quantity in each market, with fractions of shares; some sell a part of
/// it, some all.
fn trade(trader: usize, client: &mut Client, day: &[Resolved]) {
    let mut orders = Vec::new();
    for (number, market) in day.iter().enumerate() {
        let both = (number + trader).is_multiple_of(7);
        for outcome in 0..2 {
            if !both && (number + trader) % 2 != outcome {
                continue;
            }
            let micros = 1_000_000 + (number * 7_919 + trader * 104_729 + outcome) % 50_000_000;
            let order = |side: &str, micros: usize| {
                json!({
                    "market_id": market.condition_id, "outcome": market.labels[outcome],
                    "side": side,
                    "quantity": format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000),
                })
            };
            orders.push(order("BUY", micros));
            match (number + 3 * trader) % 5 {
                0 => orders.push(order("SELL", micros / 3)),
                1 if trader == 1 => orders.push(order("SELL", micros)),
                _ => {}
            }
        }
    }
    for orders in orders.chunks(BATCH) {
        let answer = client.post("/v1/orders/batch", &json!({"orders": orders})).ok(200);
        assert_eq!(answer["failed"], 0, "{answer}");
    }
}

#[test]
fn a_day_of_resolved_markets_is_paid_once_across_kills() {
    let day = day();
    let folder = tempfile::tempdir().unwrap();
    let [data, open, resolved] = ["data", "open", "resolved"].map(|name| folder.path().join(name));
    record(&open, &day, true);
    record(&resolved, &day, false);

    let server = start(&data, &open);
    let traders: Vec<Trader> = (0..TRADER_COUNT)
        .map(|number| Trader::new(&data, &server, &format!("trader {number}")))
        .collect();
    for (number, trader) in traders.iter().enumerate() {
        trade(number, &mut trader.connect(&server), &day);
    }
    let before: Vec<Holdings> = traders.iter().map(|trader| trader.holdings(&server)).collect();
    let open_count = |held: &Holdings| {
        held.positions.values().filter(|position| position.status == "OPEN").count()
    };
    assert!(before.iter().any(|held| open_count(held) < held.positions.len()), "some are closed");
    let markets_held = before[0].positions.len();
    assert!(markets_held >= day.len(), "{markets_held} positions in {} markets", day.len());
    drop(server);

    // Kill the server at several moments while it pays.
    let mut kills_in_the_middle = 0;
    for killed_at in KILLED_AT {
        let server = start(&data, &resolved);
        let mut client = traders[0].connect(&server);
        let began = Instant::now();
        let mut seen = settlement_count(&mut client);
        while seen < killed_at {
            assert!(began.elapsed() < PATIENCE, "only {seen} settlements");
            seen = settlement_count(&mut client);
        }
        drop(server);
        let paid = count_paid(&data);
        let owed: usize = before.iter().map(open_count).sum();
        kills_in_the_middle += usize::from(0 < paid && paid < owed);
        eprintln!("killed when {paid} of {owed} positions were paid");
    }
    assert!(kills_in_the_middle > 0, "no kill interrupted a settlement");

    // The last server pays the rest.
    let server = start(&data, &resolved);
    let began = Instant::now();
    for (trader, before) in traders.iter().zip(&before) {
        let mut client = trader.connect(&server);
        while !get(&mut client, "/v1/account/positions?status=OPEN").as_array().unwrap().is_empty()
        {
            assert!(began.elapsed() < PATIENCE, "positions stay open");
        }
        check(trader, before, &server, &day);
    }
    drop(server);
    check_journal(&data, &before, &day);

    // A server that learns of the results again pays nothing again.
    let records = dump(&data).len();
    let server = start(&data, &resolved);
    for (trader, before) in traders.iter().zip(&before) {
        check(trader, before, &server, &day);
    }
    // A settled market cannot be traded, even if the venue reports it as open.
    drop(server);
    let server = start(&data, &open);
    for market in &day {
        let order = json!({
            "market_id": market.condition_id, "outcome": market.labels[0], "side": "BUY",
            "quantity": 1,
        });
        let answer = traders[0].connect(&server).post("/trade", &order);
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(answer.text.contains("MARKET_CLOSED"), "{}", answer.text);
    }
    drop(server);
    assert_eq!(dump(&data).len(), records, "the journal has new records");
}

/// The account has its former holdings plus exactly the payouts of its shares.
fn check(trader: &Trader, before: &Holdings, server: &ServerProcess, day: &[Resolved]) {
    let after = trader.holdings(server);
    let settlements = trader.settlements(server);
    let mut owed = Usd::ZERO;
    for (number, held) in &before.positions {
        let now = &after.positions[number];
        assert_eq!(now.status, "CLOSED");
        assert_eq!(now.shares.micros(), 0);
        if held.status == "CLOSED" {
            assert_eq!(now, held, "a closed position changed");
            assert!(!settlements.contains_key(number), "a closed position was paid");
            continue;
        }
        let market = day.iter().find(|market| market.condition_id == held.market_id).unwrap();
        let outcome = market.labels.iter().position(|label| *label == held.outcome).unwrap();
        let price = market.payouts[outcome];
        let pays = payout(held.shares, price);
        owed += pays;
        let settlement = &settlements[number];
        assert_eq!((&settlement.market_id, &settlement.outcome), (&held.market_id, &held.outcome));
        assert_eq!((settlement.shares, settlement.payout), (held.shares, pays));
        assert_eq!(settlement.payout_per_share, price);
        assert_eq!(settlement.realised, pays - settlement.cost);
        assert_eq!(now.realised, held.realised + settlement.realised);
        let result = match price {
            Price::ONE => "won",
            Price::ZERO => "lost",
            _ => "split",
        };
        assert_eq!(settlement.result, result);
    }
    assert_eq!(after.positions.len(), before.positions.len());
    assert_eq!(after.cash, before.cash + owed, "cash is not the former cash plus the payouts");
}

fn events(data: &Path) -> Vec<Value> {
    let records = dump(data).into_iter();
    records.flat_map(|mut record| record["events"].as_array_mut().unwrap().split_off(0)).collect()
}

fn count_paid(data: &Path) -> usize {
    let settled = events(data).into_iter().filter(|event| event["kind"] == "positions_settled");
    settled.map(|event| event["positions"].as_array().unwrap().len()).sum()
}

/// The journal has each decision and each payment exactly once.
fn check_journal(data: &Path, before: &[Holdings], day: &[Resolved]) {
    let mut decided: BTreeMap<String, usize> = BTreeMap::new();
    let mut paid: BTreeMap<String, usize> = BTreeMap::new();
    for event in events(data) {
        if event["kind"] == "settlement_decided" {
            *decided.entry(text(&event, "market_id")).or_default() += 1;
            assert!(text(&event, "evidence").contains("Gamma: closed resolved"), "{event}");
        }
        if event["kind"] == "positions_settled" {
            for position in event["positions"].as_array().unwrap() {
                let id = [&event["market_id"], &position["account"], &position["outcome_index"]];
                *paid.entry(format!("{id:?}")).or_default() += 1;
            }
        }
    }
    assert_eq!(decided.len(), day.len(), "not every market with positions was decided");
    assert!(decided.values().all(|&count| count == 1), "{decided:?}");
    let open = before.iter().flat_map(|held| held.positions.values());
    let open = open.filter(|position| position.status == "OPEN").count();
    assert_eq!(paid.len(), open);
    assert!(paid.values().all(|&count| count == 1), "{paid:?}");
}
