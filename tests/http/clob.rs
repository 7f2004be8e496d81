//! The venue's interface: what its clients read without a credential.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use paperbourse::http::operation::Verb;
use paperbourse::http::operations::clob::CLOB;
use paperbourse_test_support::{Request, Response};
use serde_json::{Value, json};

use super::recording::{
    BOOKLESS, DEEP, MARKETS, ODD_FEE, PAUSED, PLAIN, RESOLVED, WITH_FEE, other, token_id,
};
use super::server::{Server, shared, shared_with_clob as server};

const ON: [&str; 2] = ["--clob", "on"];

/// The headers that do not differ between runs.
const HEADERS: [&str; 4] = ["content-type", "x-polysim-code", "x-polysim-warnings", "retry-after"];

/// Requests and their answers.
#[derive(Default)]
struct Transcript(String);

impl Transcript {
    fn note(&mut self, request: &Request, response: &Response) {
        let Response { status, text, .. } = response;
        let line = String::from_utf8(request.to_bytes()).unwrap();
        let line = line.split(" HTTP/").next().unwrap().to_owned();
        writeln!(self.0, "# {line}\n{status}").unwrap();
        for name in HEADERS {
            if let Some(value) = response.header(name).filter(|it| *it != "application/json") {
                writeln!(self.0, "{name}: {value}").unwrap();
            }
        }
        writeln!(self.0, "{text}\n").unwrap();
    }
}

/// Sends the requests and notes the answers.
pub(super) fn transcript(server: &Server, requests: impl IntoIterator<Item = Request>) -> String {
    let mut transcript = Transcript::default();
    for request in requests {
        let response = server.send(&request);
        if response.status == 200 && request.path() != "/" {
            assert!(response.json().get("error").is_none(), "clients would fail: {response:?}");
        }
        transcript.note(&request, &response);
    }
    transcript.0
}

/// Entries of a list for these tokens.
fn tokens(ids: &[String]) -> Value {
    ids.iter().map(|id| json!({"token_id": id})).collect()
}

#[test]
fn reads_of_a_token_are_answered_as_the_venue_does() {
    let [own, mirrored, free_of_trades] = [token_id(0, 0), token_id(0, 1), token_id(6, 0)];
    let fee = token_id(2, 0);
    let paths = [
        "/ok".to_owned(),
        "/version".to_owned(),
        format!("/book?token_id={own}"),
        format!("/book?token_id={mirrored}"),
        format!("/book?token_id={}", token_id(1, 0)),
        format!("/midpoint?token_id={own}"),
        format!("/midpoint?token_id={}", token_id(1, 0)),
        format!("/price?token_id={own}&side=BUY"),
        format!("/price?token_id={own}&side=sell"),
        format!("/price?token_id={mirrored}&side=BUY"),
        format!("/spread?token_id={own}"),
        format!("/last-trade-price?token_id={own}"),
        format!("/last-trade-price?token_id={mirrored}"),
        format!("/last-trade-price?token_id={free_of_trades}"),
        format!("/tick-size?token_id={own}"),
        format!("/tick-size/{}", token_id(1, 0)),
        format!("/neg-risk?token_id={own}"),
        format!("/neg-risk/{own}"),
        format!("/fee-rate?token_id={own}"),
        format!("/fee-rate/{fee}"),
        format!("/markets-by-token/{mirrored}"),
        format!("/prices-history?market={own}&interval=max&fidelity=60"),
        "/prices-history?market=1&startTs=1&endTs=2".to_owned(),
    ];
    let requests = paths.into_iter().map(Request::get);
    insta::assert_snapshot!(transcript(server(), requests));
}

#[test]
fn lists_are_answered_as_the_venue_does() {
    let all = tokens(&[token_id(0, 1), token_id(1, 0), token_id(0, 1), "1".into(), String::new()]);
    let side = |place, side| json!({"token_id": token_id(place, 0), "side": side, "more": [1]});
    let sides = json!([side(0, "SELL"), side(1, "BUY"), side(0, "buy"), side(6, "BUY")]);
    let requests = [
        Request::post("/books", &all),
        Request::post("/midpoints", &all),
        Request::post("/spreads", &all),
        Request::post("/prices", &sides),
        Request::post("/last-trades-prices", &all),
        Request::get("/last-trades-prices").json(&all),
        Request::post("/books", &json!([])),
        Request::post("/prices", &json!([])),
    ];
    insta::assert_snapshot!(transcript(server(), requests));
}

#[test]
fn markets_are_answered_as_the_venue_does() {
    let ids = [PLAIN, DEEP, WITH_FEE, PAUSED, RESOLVED, ODD_FEE, BOOKLESS];
    let compact = ids.into_iter().map(|id| Request::get(format!("/clob-markets/{id}")));
    let long = [PLAIN, WITH_FEE, RESOLVED].map(|id| Request::get(format!("/markets/{id}")));
    let upper = Request::get(format!("/markets/{}", PLAIN.to_uppercase()));
    let requests = compact.chain(long).chain([upper]);
    insta::assert_snapshot!(transcript(server(), requests));
}

#[test]
fn what_this_server_lacks_is_empty() {
    let cid = PLAIN;
    let paths = [
        format!("/markets/live-activity/{cid}"),
        format!("/live-activity/events/{cid}"),
        "/rebates/current?date=2026-01-01&maker_address=0x0".to_owned(),
        "/rewards/markets/current".to_owned(),
        format!("/rewards/markets/{cid}"),
        "/builder/trades?builder_code=0x0".to_owned(),
        "/fees/builder-fees/0x0".to_owned(),
        "/ohlc".to_owned(),
        "/orderbook-history".to_owned(),
    ];
    insta::assert_snapshot!(transcript(server(), paths.into_iter().map(Request::get)));
}

#[test]
fn refusals_have_the_venues_texts() {
    let unknown = "1".repeat(77);
    let of_token = ["book", "midpoint", "spread"];
    let mut requests = Vec::new();
    for path in of_token.into_iter().chain([
        "price",
        "last-trade-price",
        "tick-size",
        "neg-risk",
        "fee-rate",
    ]) {
        for query in ["", "?token_id=", "?token_id=0xabc", &format!("?token_id={unknown}")] {
            requests.push(Request::get(format!("/{path}{query}")));
        }
    }
    for path in of_token {
        // Open, but the venue sent no book.
        requests.push(Request::get(format!("/{path}?token_id={}", token_id(6, 0))));
    }
    for path in [
        format!("/price?token_id={}", token_id(0, 0)),
        format!("/price?token_id={}&side=HOLD", token_id(0, 0)),
        format!("/fee-rate?token_id={}", token_id(5, 0)),
        format!("/markets-by-token/{unknown}"),
        "/markets-by-token/x".to_owned(),
        "/markets/0xabc".to_owned(),
        "/clob-markets/0xabc".to_owned(),
        "/markets?next_cursor=x".to_owned(),
        "/sampling-simplified-markets?next_cursor=LTI=".to_owned(),
        "/prices-history".to_owned(),
        "/prices-history?market=1&interval=2h".to_owned(),
        "/prices-history?market=1&fidelity=0".to_owned(),
        "/prices-history?market=1&startTs=x".to_owned(),
    ] {
        requests.push(Request::get(path));
    }
    for body in ["", "{", "{}", "[1]", r#"[{"side":"BUY"}]"#, r#"[{"token_id":1}]"#] {
        requests.push(Request::new("POST", "/books").body(body));
    }
    requests.push(Request::get("/last-trades-prices"));
    requests.push(Request::post("/prices", &json!([{"token_id": "1"}])));
    requests.push(Request::post("/prices", &json!([{"token_id": "1", "side": ""}])));
    insta::assert_snapshot!(transcript(server(), requests));
}

#[test]
fn a_list_has_at_most_500_entries() {
    let list = |count: usize| tokens(&vec!["1".repeat(78); count]);
    for path in ["/books", "/midpoints", "/spreads", "/last-trades-prices"] {
        assert_eq!(server().send(&Request::post(path, &list(500))).status, 200, "{path}");
        let refused = server().send(&Request::post(path, &list(501)));
        assert_eq!(refused.status, 400);
        assert_eq!(refused.text, r#"{"error":"Payload exceeds the limit"}"#);
    }
    let large = Request::new("POST", "/books").body(vec![b' '; 256 * 1024 + 1]);
    let refused = server().send(&large);
    assert_eq!(refused.status, 400);
    assert_eq!(refused.text, r#"{"error":"Payload exceeds the limit"}"#);
}

#[test]
fn without_the_option_each_path_is_answered_as_before() {
    for operation in CLOB.iter().filter(|it| !it.is_in_both) {
        let parameter = format!("{{{}}}", operation.path.parameter());
        let path = operation.path.as_str().replace(&parameter, "77");
        let method = if operation.method == Verb::Get { "GET" } else { "POST" };
        let response = shared().send(&Request::new(method, path));
        assert_eq!(response.status, 404, "{operation:?}");
        assert_eq!(response.header("x-polysim-code"), Some("NOT_FOUND"), "{operation:?}");
        assert!(response.json()["message"].as_str().unwrap().starts_with("No such path"));
    }
    let home = shared().get("/");
    assert_eq!(home.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(home.header("vary"), None);
}

#[test]
fn our_own_paths_stay_ours() {
    for path in ["/markets/updown", "/v1/markets?limit=1", "/docs", "/nowhere"] {
        let [with, without] = [server(), shared()].map(|server| server.get(path));
        assert_eq!(with.status, without.status, "{path}");
        // Some answers have the time at their end.
        let start = |response: &Response| response.text[..response.text.len() / 2].to_owned();
        assert_eq!(start(&with), start(&without), "{path}");
    }
    let wrong = server().send(&Request::new("PUT", "/books"));
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("POST")));
}

#[test]
fn home_is_a_page_only_for_a_browser() {
    const HTML: &str = "text/html; charset=utf-8";
    const JSON: &str = "application/json";
    let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    for (accepted, kind) in [
        (None, JSON),
        (Some("*/*"), JSON),
        (Some("application/json, text/plain, */*"), JSON),
        (Some("text/*"), JSON),
        (Some("text/html"), HTML),
        (Some(browser), HTML),
    ] {
        let request = Request::get("/?geo_block_token=x");
        let request = accepted.into_iter().fold(request, |it, value| it.header("accept", value));
        let home = server().send(&request);
        assert_eq!(home.status, 200);
        assert_eq!(home.header("content-type"), Some(kind), "{accepted:?}");
        assert_eq!(home.header("vary"), Some("accept"));
        assert_eq!(home.text == r#""OK""#, kind == JSON, "{accepted:?}");
    }
    assert_eq!(server().send(&Request::new("HEAD", "/")).status, 200);
}

#[test]
fn time_is_a_bare_number() {
    let before = jiff::Timestamp::now().as_second();
    let time = server().get("/time").ok(200).as_i64().unwrap();
    assert!((before - 5..=before + 60).contains(&time), "{time} {before}");
}

#[test]
fn parameters_that_nobody_named_are_ignored() {
    let path = format!("/book?token_id={}", token_id(0, 0));
    let plain = server().get(&*path);
    let more = server().get(format!("{path}&geo_block_token=x&limit=y&token_ids=z"));
    assert_eq!(more.text, plain.text);
    assert_eq!(more.header("x-polysim-warnings"), None);
    let no_cursor = server().get("/markets?offset=-1&limit=x&next_cursor=").ok(200);
    assert_eq!(no_cursor["count"], MARKETS);
}

#[test]
fn a_get_with_a_body_is_answered_in_the_lane_and_around_it() {
    let around = Server::unlimited_with(&["--clob", "on", "--lane", "off"]);
    let list = tokens(&[token_id(0, 0), token_id(0, 1)]);
    let get = Request::get("/last-trades-prices").json(&list);
    // The recording's trades have no sides, so that no row is complete.
    let posted = server().send(&Request::post("/last-trades-prices", &list)).ok(200);
    assert_eq!(posted, json!([]));
    for server in [server(), &around] {
        // Whatever follows on the connection is read from the end of the body.
        let mut connection = server.connect();
        for request in [&get, &get.clone().chunked(), &Request::get("/ok"), &get] {
            let answer = connection.send(request).ok(200);
            let expected = if request.path() == "/ok" { json!("OK") } else { posted.clone() };
            assert_eq!(answer, expected, "{request:?}");
        }
        // A body that no operation asked for is read past.
        let book = Request::get(format!("/book?token_id={}", token_id(0, 0))).body("{\"x\":1}");
        assert_eq!(connection.send(&book).ok(200)["asset_id"], token_id(0, 0));
        assert_eq!(connection.send(&Request::get("/ok")).ok(200), "OK");
    }
}

/// Reads a list to its end as clients do, and returns the condition ids in it.
fn walk(server: &Server, path: &str) -> (usize, Vec<String>) {
    let (mut cursor, mut pages, mut found) = ("MA==".to_owned(), 0, Vec::new());
    while cursor != "LTE=" {
        let answer = server.get(format!("{path}?next_cursor={cursor}"));
        let page = answer.ok(200);
        let rows = page["data"].as_array().unwrap();
        let next = page["next_cursor"].as_str().unwrap();
        let end = format!(r#"],"next_cursor":"{next}","limit":500,"count":{}}}"#, rows.len());
        assert!(answer.text.starts_with(r#"{"data":["#) && answer.text.ends_with(&end), "{end}");
        found.extend(rows.iter().map(|it| it["condition_id"].as_str().unwrap().to_owned()));
        pages += 1;
        assert!(pages < 10, "it does not end");
        next.clone_into(&mut cursor);
    }
    (pages, found)
}

/// Lists the markets of a recording again, under other names.
pub(super) fn add_markets(recording: &Path, count: usize) {
    let file = recording.join("gamma/markets.jsonl");
    let mut rows = std::fs::read_to_string(&file).unwrap();
    let first: Value = serde_json::from_str(rows.lines().next().unwrap()).unwrap();
    for number in 0..count {
        let mut row = first.clone();
        row["id"] = format!("{}", 20_000 + number).into();
        row["conditionId"] = other(1_000 + number).into();
        row["slug"] = format!("another-market-{number}").into();
        let tokens = json!([token_id(1_000 + number, 0), token_id(1_000 + number, 1)]);
        row["clobTokenIds"] = tokens.to_string().into();
        write!(rows, "\n{row}").unwrap();
    }
    std::fs::write(file, rows).unwrap();
}

#[test]
fn pages_end_and_show_each_market_once() {
    const MORE: usize = 1_000;
    let server = Server::after_with(|recording| add_markets(recording, MORE), &ON);
    for (path, missing) in [
        ("/markets", 0),
        ("/simplified-markets", 0),
        // One market is paused, and one resolved.
        ("/sampling-markets", 2),
        ("/sampling-simplified-markets", 2),
    ] {
        let (pages, found) = walk(&server, path);
        assert_eq!((pages, found.len()), (3, MARKETS + MORE - missing), "{path}");
        let distinct: BTreeSet<_> = found.iter().collect();
        assert_eq!(distinct.len(), found.len(), "{path}");
        let end = server.get(format!("{path}?next_cursor=LTE=")).ok(200);
        assert_eq!((&end["count"], &end["next_cursor"]), (&json!(0), &json!("LTE=")));
    }
}

#[test]
fn a_row_of_a_page_is_the_market_itself() {
    let page = server().get("/markets").ok(200);
    for id in [PLAIN, WITH_FEE, RESOLVED] {
        let long = server().get(format!("/markets/{id}")).ok(200);
        assert!(page["data"].as_array().unwrap().contains(&long), "{id}");
    }
    let simplified = server().get("/simplified-markets").text;
    let (_, row) = simplified.split_once(&format!(r#"{{"condition_id":"{PLAIN}""#)).unwrap();
    let (row, _) = row.split_once(r#",{"condition_id""#).unwrap();
    insta::assert_snapshot!(row);
}

/// The SHA-1 of a book as received, with an empty hash, as the venue's clients compute it.
fn hash_of(text: &str, hash: &str) -> String {
    let hashed = text.replace(&format!(r#""hash":"{hash}""#), r#""hash":"""#);
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, hashed.as_bytes());
    digest.as_ref().iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[test]
fn clients_compute_the_hash_of_every_book() {
    let simulated = Server::simulated_with(&ON);
    let mut with_books = 0;
    for server in [server(), &simulated] {
        let page = server.get("/markets").ok(200);
        let markets = page["data"].as_array().unwrap();
        for token in markets.iter().flat_map(|market| market["tokens"].as_array().unwrap()) {
            let path = format!("/book?token_id={}", token["token_id"].as_str().unwrap());
            let answer = server.get(path);
            if answer.status == 404 {
                continue;
            }
            let book = answer.ok(200);
            let hash = book["hash"].as_str().unwrap();
            assert_eq!(hash_of(&answer.text, hash), hash, "{}", answer.text);
            let prices = |side: &str| -> Vec<f64> {
                let levels = book[side].as_array().unwrap().iter();
                levels.map(|it| it["price"].as_str().unwrap().parse().unwrap()).collect()
            };
            assert!(prices("bids").is_sorted(), "the best is last");
            assert!(prices("asks").is_sorted_by(|left, right| left >= right), "the best is last");
            with_books += 1;
        }
    }
    assert!(with_books > 2 * MARKETS, "{with_books}");
}

#[test]
fn the_limits_of_strangers_apply_in_the_venues_words() {
    let server = Server::start(&["--public-rate", "1/1", "--clob", "on"]);
    assert_eq!(server.get("/ok").ok(200), "OK");
    let refused = server.get("/ok");
    let seconds = refused.header("retry-after").unwrap();
    assert_eq!((refused.status, refused.header("x-polysim-code")), (429, None));
    let expected = format!(r#"{{"error":"Too Many Requests","retry_after_seconds":{seconds}}}"#);
    assert_eq!(refused.text, expected);
    // Clients ask here too, and the page for browsers has no limit.
    assert_eq!(server.get("/").ok(200), "OK");
}
