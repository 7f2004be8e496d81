//! The venue's interface with trouble on demand: what requests meet.

use std::fs;

use paperbourse_test_support::value::micros;
use paperbourse_test_support::{Connection, Request, Response};
use serde_json::{Value, json};

use super::clob_wallets::Client;
use super::recording::token_id;
use super::server::Server;

/// A server whose clients meet this trouble.
pub(super) fn server(plan: &str) -> Server {
    Server::unlimited_with(&[
        "--clob",
        "on",
        "--clob-trouble",
        plan,
        "--admin-listen",
        "127.0.0.1:0",
    ])
}

/// The address of the admin listener.
fn admin(server: &Server) -> String {
    let line = server.logged("metrics on http://");
    let (_, address) = line.split_once("metrics on http://").unwrap();
    address.split('/').next().unwrap().to_owned()
}

/// Has a server follow another plan.
pub(super) fn follow(server: &Server, plan: &str) -> Response {
    let mut admin = Connection::open(admin(server).parse().unwrap());
    admin.send(&Request::new("PUT", "/trouble").body(plan))
}

/// Sends a request on a connection of its own; `None` if the connection ends without an answer.
fn answer(client: &Client<'_>, method: &'static str, target: &str, body: &str) -> Option<Response> {
    let mut connection = Connection::open(client.server.address);
    connection.try_send(&client.sign(method, target, body, body)).ok()
}

/// Waits for the record to have this many lines, and returns them.
pub(super) fn record(server: &Server, count: usize) -> Vec<Value> {
    let path = server.data().join("trouble.jsonl");
    loop {
        let text = fs::read_to_string(&path).unwrap();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let lines: Vec<Value> =
            whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        if lines.len() >= count {
            return lines;
        }
        std::thread::yield_now();
    }
}

#[test]
fn each_kind_of_trouble_is_met_and_turned_off_again() {
    let server = server("seed=1");
    let client = Client::new(&server, 1);
    let order = |salt| client.body(salt, &token_id(0, 0), "BUY FOK 5 for 10");
    let post_only = |salt| client.body(salt, &token_id(0, 0), "BUY GTC 4 for 10 post-only");
    let rows = [
        ("restarting", "POST", "/order", 425, r#"{"error":"service not ready"}"#),
        ("restarting", "DELETE", "/cancel-all", 425, r#"{"error":"service not ready"}"#),
        ("not-run", "POST", "/order", 500, r#"{"error":"could not run the execution"}"#),
        (
            "cancel-only",
            "POST",
            "/order",
            503,
            "{\"error\":\"Trading is currently cancel-only. New orders are not accepted, but \
             cancels are allowed.\"}",
        ),
        (
            "post-only",
            "POST",
            "/order",
            503,
            "{\"error\":\"post-only mode: only post-only orders and cancels are allowed\",\
             \"code\":\"post_only_mode\"}",
        ),
        (
            "limited",
            "GET",
            "/data/orders",
            429,
            r#"{"error":"Too Many Requests","retry_after_seconds":10}"#,
        ),
        ("version", "POST", "/order", 400, r#"{"error":"order_version_mismatch"}"#),
    ];
    for (salt, (kind, method, target, status, text)) in (1..).zip(rows) {
        let body = if method == "POST" { order(salt) } else { String::new() };
        assert_eq!(follow(&server, &format!("{kind}=100%")).status, 200);
        let refused = client.call(method, target, &body);
        assert_eq!((refused.status, &*refused.text), (status, text), "{kind}");
        if kind == "limited" {
            assert_eq!(refused.header("poly-ratelimit-remaining"), Some("0"));
            assert_eq!(refused.header("retry-after"), Some("10"));
        }
        // What is not new orders, or cannot match, passes.
        match kind {
            "cancel-only" => drop(client.call("DELETE", "/cancel-all", "").ok(200)),
            "post-only" => drop(client.call("POST", "/order", &post_only(100)).ok(200)),
            _ => {}
        }
        assert_eq!(follow(&server, "").text, "seed=0\n");
        client.call(method, target, &body).ok(200);
    }
    follow(&server, "blocked=100%");
    let blocked = server.send(&Request::new("GET", "/markets"));
    assert_eq!(
        (blocked.status, blocked.header("content-type")),
        (403, Some("text/html; charset=UTF-8"))
    );
    let health = server.send(&Request::new("GET", "/v1/health"));
    assert_eq!(health.status, 200, "this server's own interface has no trouble");
    follow(&server, "clock=100%:7s");
    let ahead: i64 = server.send(&Request::new("GET", "/time")).text.parse().unwrap();
    follow(&server, "");
    let now: i64 = server.send(&Request::new("GET", "/time")).text.parse().unwrap();
    assert!((5..=7).contains(&(ahead - now)), "{ahead} {now}");
}

#[test]
fn a_lost_answer_is_of_an_order_that_was_taken() {
    let server = server("seed=1");
    let client = Client::new(&server, 1);
    let order = |salt| client.body(salt, &token_id(0, 0), "BUY FOK 5 for 10");
    follow(&server, "reset=100%");
    assert!(answer(&client, "POST", "/order", &order(1)).is_none());
    follow(&server, "");
    assert_eq!(client.balance("COLLATERAL"), "1000000000", "nothing was done");
    follow(&server, "lost=100%");
    assert!(answer(&client, "POST", "/order", &order(1)).is_none());
    follow(&server, "");
    assert_eq!(client.balance("COLLATERAL"), "995000000", "it was taken");
    client.call("POST", "/order", &order(1)).ok(200);
    assert_eq!(client.balance("COLLATERAL"), "995000000", "and only once");

    // The reset request, two reads of the balance, the lost one, the repeated one.
    let lines = record(&server, 8);
    let met: Vec<&Value> = lines.iter().filter(|line| line["trouble"].is_string()).collect();
    let [reset, lost] = &met[..] else { panic!("{met:?}") };
    assert_eq!((&reset["trouble"], &reset["number"]), (&json!("reset"), &json!(1)));
    assert_eq!(lost["trouble"], "lost");
    let placed: Vec<&Value> = lines.iter().filter(|line| line["act"] == "order").collect();
    let statuses: Vec<&Value> = placed.iter().map(|line| &line["status"]).collect();
    assert_eq!(statuses, [0, 200, 200], "{placed:?}");
    assert!(placed.iter().all(|line| line["order"]["salt"] == "1"), "{placed:?}");
    assert_eq!(placed[1]["order"]["id"], lost["orders"][0]);
    assert_eq!(placed[1]["order"]["making_micros"], 5_000_000);
}

#[test]
fn a_late_answer_says_what_was_done() {
    let server = server("late=100%:1200ms");
    let client = Client::new(&server, 1);
    let began = std::time::Instant::now();
    let order = client.body(1, &token_id(0, 0), "BUY FOK 5 for 10");
    client.call("POST", "/order", &order).ok(200);
    assert!(began.elapsed().as_millis() >= 1_200);
    let status = server.send(&Request::new("GET", "/v1/status")).ok(200);
    let expected = json!({"plan": "seed=0,late=100%:1200ms", "met": {"late": 1}, "unrecorded": 0});
    assert_eq!(status["clob_trouble"], expected);
}

/// The same seed and the same requests meet the same trouble, after a restart, too.
#[test]
fn the_same_seed_is_the_same_trouble() {
    let server = server("seed=42,not-run=20%,version=20%,lost=20%");
    let client = Client::new(&server, 1);
    let met = |client: &Client<'_>, first: u64| -> Vec<u16> {
        let orders = (first..first + 60).map(|salt| {
            let body = client.body(salt, &token_id(0, 0), "BUY GTC 1 for 10");
            answer(client, "POST", "/order", &body).map_or(0, |answer| answer.status)
        });
        orders.collect()
    };
    let before = met(&client, 0);
    for status in [0, 200, 400, 500] {
        assert!(before.contains(&status), "{before:?}");
    }
    let (signer, credentials) = (client.signer.clone(), client.credentials.clone());
    let server = server.crash_and_restart_with(&[
        "--clob",
        "on",
        "--clob-trouble",
        "seed=42,not-run=20%,version=20%,lost=20%",
    ]);
    let client = Client { server: &server, signer, credentials };
    assert_eq!(met(&client, 100), before);
}

#[test]
fn a_plan_is_refused_with_a_reason() {
    let server = server("seed=1,lost=1%");
    let refused = follow(&server, "lost=2");
    assert_eq!(refused.status, 400);
    let text =
        "the probability \"2\" should be from 0% to 100%, or off; it has at most 4 decimals\n";
    assert_eq!(refused.text, text);
    let mut admin = Connection::open(admin(&server).parse().unwrap());
    assert_eq!(admin.send(&Request::new("GET", "/trouble")).text, "seed=1,lost=1%\n");
    let quiet = Server::unlimited_with(&["--clob", "on", "--admin-listen", "127.0.0.1:0"]);
    let refused = follow(&quiet, "lost=2%");
    assert_eq!(refused.status, 404);
    assert!(refused.text.contains("--clob-trouble PLAN"), "{refused:?}");
}

/// Until a trade is settled, balances do not show it, and its shares cannot be sold.
#[test]
fn a_trade_that_is_not_settled_has_not_moved_anything() {
    let server = server("lag=100%:3600s");
    let client = Client::new(&server, 1);
    let token = token_id(0, 0);
    let shares = || client.balance(&format!("CONDITIONAL&token_id={token}"));
    let placed = client.order(1, "BUY FOK 5 for 10").ok(200);
    let trade = |placed: &Value| {
        let id = placed["tradeIDs"][0].as_str().unwrap();
        let trades = client.get(&format!("/data/trades?id={id}")).ok(200);
        let text = |field: &str| trades["data"][0][field].as_str().unwrap().to_owned();
        (text("status"), text("transaction_hash"))
    };
    assert_eq!(trade(&placed), ("MATCHED".to_owned(), String::new()));
    assert_eq!((client.balance("COLLATERAL"), shares()), ("1000000000".into(), "0".into()));
    let not_enough = "not enough balance / allowance: the balance is not enough -> balance: 0, \
                      order amount: 10000000";
    let refused = client.order(2, "SELL FOK 10 for 4.8");
    assert_eq!((refused.status, &refused.json()["error"]), (400, &json!(not_enough)));
    let list = format!("[{}]", client.body(2, &token, "SELL FOK 10 for 4.8"));
    let entries = client.call("POST", "/orders", &list).ok(200);
    assert_eq!(entries[0]["errorMsg"], not_enough);

    // What is settled can be sold, and the rest cannot.
    follow(&server, "");
    let settled = client.order(3, "BUY FOK 5 for 10").ok(200);
    assert_eq!(trade(&settled).0, "CONFIRMED");
    assert_eq!((client.balance("COLLATERAL"), shares()), ("995000000".into(), "10000000".into()));
    let sold = client.order(4, "SELL FOK 10 for 4.8").ok(200);
    assert_eq!(sold["status"], "matched");
    // A repeated order still gets its first answer.
    assert_eq!(client.order(4, "SELL FOK 10 for 4.8").ok(200), sold);
    assert_eq!(client.order(5, "SELL FOK 5 for 2.4").status, 400);

    let lines = record(&server, 14);
    let unsettled = |line: &&Value| line["order"]["is_unsettled"] == true;
    assert_eq!(lines.iter().filter(unsettled).count(), 3, "{lines:?}");
}

/// A trade is settled when its time has come, after a retry if it is to have one.
#[test]
fn a_trade_is_settled_in_the_end() {
    let server = server("retrying=100%:400ms");
    let client = Client::new(&server, 1);
    let placed = client.order(1, "BUY FOK 5 for 10").ok(200);
    let id = placed["tradeIDs"][0].as_str().unwrap();
    let mut seen = Vec::new();
    while seen.last().is_none_or(|status| status != "CONFIRMED") {
        let trades = client.get(&format!("/data/trades?id={id}")).ok(200);
        let status = trades["data"][0]["status"].as_str().unwrap().to_owned();
        if seen.last() != Some(&status) {
            seen.push(status);
        }
    }
    // A slow machine may miss the stages before the last.
    let mut stages = ["MATCHED", "RETRYING", "CONFIRMED"].into_iter();
    assert!(seen.iter().all(|status| stages.any(|stage| stage == status)), "{seen:?}");
    assert_eq!(client.balance("COLLATERAL"), "995000000");
    client.order(2, "SELL FOK 10 for 4.8").ok(200);
}

/// An order that is held is matched, or not, once its time is over.
#[test]
fn a_held_order_is_matched_later() {
    let server = server("delayed=100%:300ms");
    let client = Client::new(&server, 1);
    for (salt, asked, last) in [
        (1, "BUY FOK 5 for 10", "MATCHED"),
        (2, "BUY GTC 5.3 for 10", "MATCHED"),
        (3, "SELL FAK 5 for 2", "MATCHED"),
    ] {
        let placed = client.order(salt, asked).ok(200);
        assert_eq!((&placed["status"], &placed["takingAmount"]), (&json!("delayed"), &json!("")));
        let id = placed["orderID"].as_str().unwrap();
        let status = || {
            let order = client.get(&format!("/data/order/{id}")).ok(200);
            order["status"].as_str().unwrap().to_owned()
        };
        let mut seen = status();
        while seen == "DELAYED" {
            seen = status();
        }
        assert_eq!(seen, last, "{asked}");
    }
    // What cannot match is not held.
    let placed = client.order(4, "BUY GTC 4 for 10").ok(200);
    assert_eq!(placed["status"], "live");
}

/// A trade that fails gives everything back, for good.
#[test]
fn a_failed_trade_has_never_been() {
    let server = server("failed=100%:300ms");
    let client = Client::new(&server, 1);
    let token = token_id(0, 0);
    let placed = client.order(1, "BUY FOK 5 for 10").ok(200);
    let id = placed["tradeIDs"][0].as_str().unwrap().to_owned();
    let status = |client: &Client<'_>| {
        let trades = client.get(&format!("/data/trades?id={id}")).ok(200);
        trades["data"][0]["status"].as_str().unwrap().to_owned()
    };
    while status(&client) != "FAILED" {}
    let has = |client: &Client<'_>| {
        let shares = client.balance(&format!("CONDITIONAL&token_id={token}"));
        let user = client.signer.address();
        let of_user = |path: &str| client.server.get(format!("{path}?user={user}")).ok(200);
        let lists = ["/positions", "/trades", "/activity"].map(of_user);
        (client.balance("COLLATERAL"), shares, lists)
    };
    let nothing = || ("1000000000".to_owned(), "0".to_owned(), [json!([]), json!([]), json!([])]);
    assert_eq!(has(&client), nothing());
    // The order stays matched, as at the venue, and a repeated one gets its first answer.
    let order = client.get(&format!("/data/order/{}", placed["orderID"].as_str().unwrap())).ok(200);
    assert_eq!((&order["status"], &order["size_matched"]), (&json!("MATCHED"), &json!("10")));
    assert_eq!(client.order(1, "BUY FOK 5 for 10").ok(200), placed);

    let (signer, credentials) = (client.signer.clone(), client.credentials.clone());
    let server = server.crash_and_restart_with(&["--clob", "on"]);
    let client = Client { server: &server, signer, credentials };
    assert_eq!(status(&client), "FAILED");
    assert_eq!(has(&client), nothing());
}

/// Cash and shares are those of the trades that have not failed, whatever a crash interrupts.
#[test]
fn cash_and_shares_are_conserved_when_trades_fail() {
    const PLAN: &str = "seed=3,failed=40%:1ms-60ms,retrying=20%:1ms-60ms";
    const TROUBLE: [&str; 4] = ["--clob", "on", "--clob-trouble", PLAN];
    let mut server = server(PLAN);
    let (signer, credentials) = {
        let client = Client::new(&server, 1);
        (client.signer, client.credentials)
    };
    let token = token_id(0, 0);
    let mut failed_count = 0;
    for round in 0..5 {
        let client =
            Client { server: &server, signer: signer.clone(), credentials: credentials.clone() };
        for number in 0..12_usize {
            // No fees, and each at one price.
            let asked = ["BUY FOK 5 for 10", "BUY FAK 10.4 for 20", "SELL FAK 5 for 2.3"];
            let asked = asked[number % 3];
            let placed = client.order(100 * round + number as u64, asked);
            // A sale may be refused for shares that are not there.
            assert!(placed.status == 200 || asked.starts_with("SELL"), "{placed:?}");
        }
        // Without trouble, whatever was not settled counts as settled.
        server = server.crash_and_restart_with(&["--clob", "on"]);
        let client =
            Client { server: &server, signer: signer.clone(), credentials: credentials.clone() };
        let trades = client.get("/data/trades").ok(200);
        let (mut cash, mut shares) = (1_000_000_000, 0);
        failed_count = 0;
        for trade in trades["data"].as_array().unwrap() {
            if trade["status"] == "FAILED" {
                failed_count += 1;
                continue;
            }
            let (size, price) = (micros(&trade["size"]), micros(&trade["price"]));
            let sign = if trade["side"] == "BUY" { 1 } else { -1 };
            shares += sign * size;
            cash -= sign * (size * price / 1_000_000);
        }
        let held = client.balance(&format!("CONDITIONAL&token_id={token}"));
        assert_eq!((client.balance("COLLATERAL"), held), (cash.to_string(), shares.to_string()));
        server = server.crash_and_restart_with(&TROUBLE);
    }
    assert!(failed_count > 0, "no trade has failed");
}
