//! The CSV files from the client's side.

use std::time::Instant;

use paperbourse_test_support::event_stream::{End, EventStream};
use paperbourse_test_support::{PATIENCE, Request, Response};
use serde_json::{Value, json};

use super::expect::{check_error, check_invalid, eventually};
use super::recording::{DEEP, PLAIN, WITH_FEE, buy, limit, sell};
use super::server::{Account, Server, shared};

const TRADES: &str = "/v1/export/trades.csv";
const SETTLEMENTS: &str = "/v1/export/settlements.csv";
const TRADE_COLUMNS: &str = "order_id,market_id,side,outcome,price,quantity,notional,fee,status,\
                             client_order_id,filled_at,created_at";
const SETTLEMENT_COLUMNS: &str = "position_id,market_id,outcome,quantity,avg_entry_price,\
     cost_basis,payout,payout_per_share,realized_pnl,result,settled_at";

/// The lines of a file, each a list of fields. It must end with a line break.
#[track_caller]
fn lines(csv: &str) -> Vec<Vec<String>> {
    let mut lines = Vec::new();
    let (mut line, mut field, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut rest = csv;
    while let Some(character) = rest.chars().next() {
        let escape = if is_quoted { "\"\"" } else { "\r\n" };
        if let Some(after) = rest.strip_prefix(escape) {
            rest = after;
            if is_quoted {
                field.push('"');
            } else {
                line.push(std::mem::take(&mut field));
                lines.push(std::mem::take(&mut line));
            }
            continue;
        }
        match character {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => line.push(std::mem::take(&mut field)),
            _ => field.push(character),
        }
        rest = &rest[character.len_utf8()..];
    }
    assert!(line.is_empty() && field.is_empty() && !is_quoted, "no end: {field}");
    lines
}

/// The lines that the history of these fills must become.
fn expected(history: &[Value]) -> Vec<Vec<String>> {
    let columns: Vec<_> = TRADE_COLUMNS.split(',').collect();
    let row = |fill: &Value| {
        let text = |value: &Value| match value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            number => number.to_string(),
        };
        columns.iter().map(|&name| text(&fill[name])).collect()
    };
    let head = columns.iter().map(|&name| name.to_owned()).collect();
    std::iter::once(head).chain(history.iter().map(row)).collect()
}

/// All fills, page by page.
fn history(account: &Account<'_>) -> Vec<Value> {
    let mut rows = Vec::new();
    loop {
        let path = format!("/v1/account/history?limit=200&offset={}", rows.len());
        let Value::Array(page) = account.get(path).ok(200) else { panic!("no list") };
        if page.is_empty() {
            return rows;
        }
        rows.extend(page);
    }
}

fn rows(response: &Response) -> Vec<Vec<String>> {
    assert_eq!(response.status, 200, "{}", response.text);
    lines(&response.text)
}

/// Places trades of a hundredth of a share, each with a name of up to a kilobyte.
fn place(account: &Account<'_>, count: usize, in_batch: usize, name: &str) {
    let entries: Vec<_> = (0..count)
        .map(|number| {
            json!({"market_id": PLAIN, "outcome": "Yes", "side": "BUY", "quantity": "0.01",
                   "client_order_id": format!("{name}{number}")})
        })
        .collect();
    let began = Instant::now();
    for orders in entries.chunks(in_batch) {
        // The journal may be busy with its next segment. What was placed is not placed again.
        while account.post("/v1/orders/batch", &json!({"orders": orders})).ok(200)["failed"] != 0 {
            assert!(began.elapsed() < PATIENCE);
        }
    }
}

#[test]
fn the_wire_is_pinned() {
    let account = shared().account();
    for path in [TRADES, SETTLEMENTS] {
        let response = account.get(path);
        let head: Vec<_> =
            ["content-type", "content-disposition", "cache-control", "content-length"]
                .map(|name| response.header(name))
                .into();
        let (name, columns) = if path == TRADES {
            ("attachment; filename=\"trades.csv\"", TRADE_COLUMNS)
        } else {
            ("attachment; filename=\"settlements.csv\"", SETTLEMENT_COLUMNS)
        };
        let length = (columns.len() + 2).to_string();
        let kind = "text/csv; charset=utf-8; header=present";
        assert_eq!(head, [Some(kind), Some(name), Some("no-store"), Some(&*length)]);
        assert_eq!(response.text, format!("{columns}\r\n"));
    }
}

#[test]
fn trades_are_the_history() {
    let account = shared().account();
    for name in ["plain", "a,b", "\"q\"", "a\r\nb,\"\"", "=1+1", "@x", " ", "Zürich \u{1f9ea}", ""]
    {
        let order = json!({"market_id": PLAIN, "outcome": "yes", "side": "BUY", "quantity": 3,
                           "client_order_id": name});
        account.post("/v1/orders", &order).ok(200);
    }
    account.post("/trade", &sell(4)).ok(200);
    let charged = json!({"market_id": WITH_FEE, "outcome": "Up", "side": "BUY", "quantity": 7});
    account.post("/trade", &charged).ok(200);
    // One that rests has no line.
    account.post("/v1/orders", &limit("BUY", 5, "0.1")).ok(200);
    let history = history(&account);
    assert_eq!(history.len(), 11);
    assert_eq!(rows(&account.get(TRADES)), expected(&history));
    let of = |query: &str| rows(&account.get(format!("{TRADES}?{query}")));
    assert_eq!(of(&format!("market_id={WITH_FEE}")), expected(&history[..1]));
    assert_eq!(of(&format!("market_id={DEEP}")), expected(&[]));
    let bound = |index: usize| history[index]["filled_at"].as_str().unwrap().to_owned();
    let within = |from: &str, to: &str| {
        // Without the Z: it sorts behind the digits that other times have in its place.
        let time = |text: &str| text.trim_end_matches('Z').to_owned();
        let is_within = |row: &&Value| {
            (time(from)..=time(to)).contains(&time(row["filled_at"].as_str().unwrap()))
        };
        expected(&history.iter().filter(is_within).cloned().collect::<Vec<_>>())
    };
    assert_eq!(of(&format!("from={}&to={}", bound(7), bound(2))), within(&bound(7), &bound(2)));
    assert_eq!(of(&format!("from={}&to={}", bound(2), bound(7))), expected(&[]));
    assert_eq!(of("to=2000-01-01"), expected(&[]));
    assert_eq!(of("from=2000-01-01"), expected(&history));
}

#[test]
fn a_query_is_validated() {
    let account = shared().account();
    for path in [TRADES, SETTLEMENTS] {
        let query = "from=yesterday&to=1e9&market_id=&wallet_id=1.5";
        check_invalid(
            &account.get(format!("{path}?{query}")),
            &[
                "query.market_id: string_too_short",
                "query.from: datetime_parsing",
                "query.to: datetime_parsing",
                "query.wallet_id: int_parsing",
            ],
        );
        check_error(&shared().get(path), 401, "MISSING_AUTH");
        let nobody = shared().token("an-export-of-nobody", None);
        let export = Request::get(path).bearer(&nobody);
        check_error(&shared().send(&export), 404, "ACCOUNT_NOT_FOUND");
        let mut old = shared().connect();
        let key = &account.key;
        old.write(format!("GET {path} HTTP/1.0\r\nX-API-Key: {key}\r\n\r\n").as_bytes());
        check_error(&old.read(false), 426, "HTTP_VERSION_TOO_OLD");
    }
}

/// A file of several pages is a stream, after which the connection goes on.
#[test]
fn a_long_file_is_a_stream() {
    let account = shared().account();
    place(&account, 450, 5, "");
    let history = history(&account);
    assert_eq!(history.len(), 450);
    let export = Request::get(TRADES).key(&account.key);
    let stream = EventStream::open(shared(), &export).unwrap();
    assert_eq!(stream.head.header("content-length"), None);
    let (csv, end) = stream.rest();
    assert_eq!((lines(&csv), end), (expected(&history), End::Clean));
    let mut connection = shared().connect();
    let head = Request::new("HEAD", TRADES).key(&account.key);
    for _ in 0..2 {
        let response = connection.send(&head);
        assert_eq!((response.status, response.header("content-length")), (200, None));
    }
    // With two requests sent at once, the second is answered after the stream.
    let requests = [export.to_bytes(), Request::get("/v1/time").to_bytes()].concat();
    connection.write(&requests);
    let mut stream = connection.into_stream();
    let mut text = String::new();
    while !text.contains("\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n") {
        let count = std::io::BufRead::read_line(&mut stream, &mut text).unwrap();
        assert!(count > 0, "the connection ended");
    }
    let none = Request::get(format!("{TRADES}?market_id={DEEP}")).key(&account.key);
    assert_eq!(rows(&shared().send(&none)), expected(&[]));
}

/// What is larger than all buffers between server and client is not made before the client reads.
#[test]
fn a_file_is_made_while_its_client_reads() {
    let server = Server::start(&[
        "--tier",
        "free=unlimited/unlimited/2/100",
        "--address-limits",
        "off",
        "--journal-sync",
        "never",
    ]);
    let account = server.account();
    // 10 MB, as a name has a kilobyte.
    let count = 10_000;
    place(&account, count, 100, &"\u{1f9ea}".repeat(250));
    let second = account.new_key(&json!({"permissions": ["read"]}));
    let (key, key_id) = (second["raw_key"].as_str().unwrap(), second["id"].clone());
    let export = || Request::get(TRADES).key(key);
    let [first, cut] = [(); 2].map(|()| EventStream::open(&server, &export()).unwrap());

    let refused = account.get(TRADES);
    check_error(&refused, 429, "EXPORT_LIMIT_EXCEEDED");
    assert_eq!(refused.header("retry-after"), Some("1"));
    let other = server.account();
    assert_eq!(rows(&other.get(TRADES)), expected(&[]), "accounts do not share a limit");

    let late = account.post("/trade", &buy(1)).ok(200)["order_id"].to_string();
    let (csv, end) = first.rest();
    let trades = lines(&csv);
    assert_eq!((trades.len(), end), (count + 1, End::Clean));
    assert!(!csv.contains(&late), "a fill that happens meanwhile is not in the file");
    let ids: Vec<u64> = trades[1..].iter().map(|line| line[0].parse().unwrap()).collect();
    assert!(ids.is_sorted_by(|newer, older| newer > older));

    account.delete(format!("/v1/keys/{key_id}")).ok(200);
    let (csv, end) = cut.rest();
    assert_eq!(end, End::CutOff, "the key was revoked");
    let line_count = csv.lines().count();
    assert!((1..count).contains(&line_count), "{line_count}");
    // Both have ended, one of them perhaps a moment later.
    eventually(|| (account.get(TRADES).status != 429).then_some(()));
}
