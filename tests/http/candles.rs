//! Candles, over restarts and with what is traded here.

use std::fs;
use std::path::Path;
use std::process::Command;

use paperbourse_test_support::Request;
use serde_json::{Value, json};

use super::expect::{check_error, check_invalid, eventually};
use super::recording::{BOOKLESS, PLAIN, RESOLVED, buy, other, token_id};
use super::server::{Server, shared};

/// When all books of the recording were made, in seconds.
const BOOKS_AT: i64 = 1_768_039_205;

const HOUR: i64 = 3_600;

fn candles(server: &Server, market: &str, query: &str) -> Value {
    server.get(format!("/v1/markets/{market}/candles{query}")).ok(200)
}

/// Waits for this volume of the first candle. A trade counts once it is durable, a moment after the
/// answer.
#[track_caller]
fn await_volume(server: &Server, query: &str, expected: &str) {
    eventually(|| (candles(server, PLAIN, query)[0]["v"] == expected).then_some(()));
}

/// Each candle's hours since that of the books, and its prices.
fn rows(candles: &Value) -> Vec<(i64, String)> {
    let row = |candle: &Value| {
        let hours = (candle["t"].as_i64().unwrap() - BOOKS_AT).div_euclid(HOUR) + 1;
        let price = |name: &str| candle[name].as_str().unwrap().to_owned();
        (hours, ["o", "h", "l", "c"].map(price).join(" "))
    };
    candles.as_array().unwrap().iter().map(row).collect()
}

/// Writes another recording of the plain market: at these times in seconds after the books, a book
/// with this bid and an ask of 0.9.
fn record_again(recording: &Path, books: &[(i64, &str)]) {
    let book = |&(seconds, bid): &(i64, &str)| {
        let level = |price: &str| json!({"price": price, "size": "100"});
        json!({
            "market": PLAIN, "asset_id": token_id(0, 0), "hash": null,
            "timestamp": ((BOOKS_AT + seconds) * 1_000).to_string(),
            "bids": [level(bid)], "asks": [level("0.9")],
            "min_order_size": "5", "tick_size": "0.01", "neg_risk": false,
        })
        .to_string()
    };
    let books: Vec<String> = books.iter().map(book).collect();
    fs::write(recording.join("clob/books.jsonl"), books.join("\n")).unwrap();
}

#[test]
fn a_market_has_candles_from_its_first_price_on() {
    let start = BOOKS_AT - BOOKS_AT % HOUR;
    // Nobody trades in it.
    let market = other(33);
    let all = candles(shared(), &market, "");
    let price = "0.49";
    let expected = json!([{"t": start, "o": price, "h": price, "l": price, "c": price, "v": "0"}]);
    assert_eq!(all, expected);
    for (query, count) in [
        ("?interval=1m", 1),
        ("?interval=1w", 1),
        ("?outcome=NO&interval=5m", 1),
        (&format!("?start_time={}", start + HOUR), 0),
        (&format!("?end_time={}", start - 1), 0),
        (&format!("?start_time={start}&end_time={start}"), 1),
        ("?start_time=2026-01-10&end_time=2026-01-10", 1),
        ("?start_time=99999999999", 0),
        ("?end_time=-99999999999", 0),
        ("?start_time=2026-01-11&end_time=2026-01-10", 0),
    ] {
        assert_eq!(candles(shared(), &market, query).as_array().unwrap().len(), count, "{query}");
    }
    for market in [BOOKLESS, RESOLVED] {
        assert_eq!(candles(shared(), market, ""), json!([]));
    }
}

#[test]
fn candles_that_cannot_be_given_are_refused() {
    let path = |market: &str, query: &str| format!("/v1/markets/{market}/candles{query}");
    let refused = shared().get(path(PLAIN, "?interval=2h"));
    assert_eq!((refused.status, refused.header("x-polysim-code")), (400, Some("INVALID_INTERVAL")));
    let supported = json!(["1m", "5m", "15m", "1h", "6h", "1d", "1w", "max"]);
    assert_eq!(refused.json()["supported_intervals"], supported);
    check_error(&shared().get(path("0xnone", "")), 404, "MARKET_NOT_FOUND");
    check_error(&shared().get(path(PLAIN, "?outcome=maybe")), 404, "OUTCOME_NOT_FOUND");
    let query = "?start_time=soon&end_time=1768039205000&outcome=";
    let fields = [
        "query.outcome: string_too_short",
        "query.start_time: datetime_parsing",
        "query.end_time: datetime_parsing",
    ];
    check_invalid(&shared().get(path(PLAIN, query)), &fields);
}

#[test]
fn what_is_traded_here_is_the_volume() {
    let server = Server::unlimited();
    let account = server.account();
    let volume = |expected: &str| {
        await_volume(&server, "?interval=1m", expected);
        assert_eq!(candles(&server, PLAIN, "?interval=max")[0]["v"], expected);
    };
    volume("0");
    account.buy(10);
    volume("10");
    // The order takes 90 shares and rests with 35.
    let order = json!({"market_id": PLAIN, "outcome": "Yes", "side": "BUY", "quantity": 125,
                       "order_type": "limit", "price": "0.5"});
    let filled = account.post("/v1/orders", &order).ok(200)["quantity"].clone();
    assert_eq!(filled, json!("125"));
    volume("110");
    assert_eq!(candles(&server, PLAIN, "?outcome=No")[0]["v"], "0");
    // A trade in the other outcome counts there.
    let mut other = buy(7);
    other["outcome"] = json!("No");
    account.post("/trade", &other).ok(200);
    await_volume(&server, "?outcome=No", "7");
    volume("110");
}

#[test]
fn prices_are_listed_as_the_venue_does() {
    let evening = [(0, "0.1"), (60, "0.3"), (HOUR, "0.5"), (3 * HOUR, "0.7")];
    let server = Server::after(|recording| record_again(recording, &evening));
    let history = |outcome: usize, query: &str| {
        let token = token_id(0, outcome);
        let history = server.get(format!("/v1/prices-history?market={token}{query}")).ok(200);
        let point =
            |point: &Value| (point["t"].as_i64().unwrap() - BOOKS_AT, point["p"].as_f64().unwrap());
        let points = history["history"].as_array().unwrap().iter().map(point);
        points.collect::<Vec<_>>()
    };
    let all = history(0, "&interval=max&fidelity=60");
    let start = -BOOKS_AT % HOUR;
    let hour = |number: i64| start + number * HOUR;
    let expected =
        [(hour(0), 0.5), (hour(1), 0.6), (hour(2), 0.7), (hour(3), 0.7), (3 * HOUR, 0.8)];
    assert_eq!(all, expected);
    let hours = format!("&fidelity=60&startTs={}&endTs={}", BOOKS_AT, BOOKS_AT + 2 * HOUR);
    assert_eq!(history(0, &hours), expected[1..3]);
    // By default it is the last hour, by the minute, and the other outcome mirrors it.
    let last = history(1, "");
    assert_eq!(last.len(), 61);
    assert_eq!(last[..59].iter().filter(|point| (point.1 - 0.3).abs() < 1e-9).count(), 59);
    assert_eq!(last[60], (3 * HOUR, 0.2));
    let by_alias = server.get(format!("/v1/prices-history?token_id={}", token_id(0, 1))).ok(200);
    assert_eq!(by_alias["history"].as_array().unwrap().len(), 61);
    // As at the venue, a token that it does not know has no history.
    for token in ["1", PLAIN, "x"] {
        let unknown = server.get(format!("/v1/prices-history?market={token}")).ok(200);
        assert_eq!(unknown, json!({"history": []}));
    }
    let path = format!("/v1/prices-history?market={}&format=ohlcv&fidelity=1440", token_id(0, 0));
    let candles = server.get(path).ok(200);
    let start = BOOKS_AT - BOOKS_AT % (24 * HOUR);
    assert_eq!(candles, json!([{"t": start, "o": "0.5", "h": "0.8", "l": "0.5", "c": "0.8"}]));
}

#[test]
fn hours_survive_a_crash() {
    let evening = [(0, "0.1"), (60, "0.3"), (HOUR, "0.5"), (3 * HOUR, "0.7")];
    let server = Server::after(|recording| record_again(recording, &evening));
    let recording = server.data().with_file_name("recording");
    let before = rows(&candles(&server, PLAIN, ""));
    let expected = [
        (0, "0.5 0.6 0.5 0.6"),
        (1, "0.6 0.7 0.6 0.7"),
        (2, "0.7 0.7 0.7 0.7"),
        (3, "0.7 0.8 0.7 0.8"),
    ]
    .map(|(hour, prices)| (hour, prices.to_owned()));
    assert_eq!(before, expected);
    let file = server.data().join("price-hours");
    eventually(|| {
        server.get("/v1/time").ok(200);
        file.exists().then_some(())
    });
    let backup = recording.with_file_name("backup");
    let copied = Command::new(env!("CARGO_BIN_EXE_paperbourse"))
        .arg("backup")
        .args([&server.data(), &backup])
        .output()
        .unwrap();
    assert!(copied.status.success(), "{copied:?}");
    assert_eq!(fs::read(backup.join("price-hours")).unwrap(), fs::read(&file).unwrap());
    // The venue is another one now, with the same markets.
    record_again(&recording, &[]);
    let server = server.crash_and_restart();
    assert_eq!(rows(&candles(&server, PLAIN, "")), expected);
    assert_eq!(rows(&candles(&server, PLAIN, "?interval=1m")), []);
    record_again(&recording, &[(5 * HOUR, "0.5")]);
    let server = server.crash_and_restart();
    let resumed = [&expected[..], &[(5, "0.7 0.7 0.7 0.7".to_owned())]].concat();
    assert_eq!(rows(&candles(&server, PLAIN, "")), resumed);
    // The recording starts over, and what it has not repeated yet is gone.
    record_again(&recording, &[(0, "0.1"), (60, "0.3"), (HOUR, "0.5")]);
    let server = server.crash_and_restart();
    assert_eq!(rows(&candles(&server, PLAIN, "")), expected[..2]);
    // A damaged file is no reason not to start.
    fs::write(&file, "PBPRICES nonsense").unwrap();
    let server = server.crash_and_restart();
    assert_eq!(rows(&candles(&server, PLAIN, "")), expected[..2]);
    server.logged("candles start over");
    assert!(file.with_file_name("price-hours.unusable").exists());
}

#[test]
fn an_orderly_shutdown_keeps_the_volume_of_the_hour() {
    let mut server = Server::unlimited();
    server.account().buy(10);
    await_volume(&server, "", "10");
    server.terminate();
    server.wait();
    let server = server.crash_and_restart();
    assert_eq!(candles(&server, PLAIN, "")[0]["v"], "10");
    // HEAD has no body.
    let head = Request::new("HEAD", format!("/v1/markets/{PLAIN}/candles"));
    assert_eq!(server.send(&head).text, "");
}
