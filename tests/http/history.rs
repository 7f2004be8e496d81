//! The fills of an account as a list.

use std::sync::atomic::{AtomicU64, Ordering};

use paperbourse_test_support::Request;
use serde_json::{Value, json};

use super::expect::Kind::{Decimal, Integer, Null, Text, Time};
use super::expect::{check_fields, check_invalid};
use super::recording::{DEEP, PLAIN, WITH_FEE, limit, other};
use super::server::{Account, Server, shared};

const PATH: &str = "/v1/account/history";

/// Trades and returns the row that the history must have for it.
fn trade(account: &Account<'_>, market: &str, side: &str, quantity: i64) -> Value {
    static NAMED: AtomicU64 = AtomicU64::new(1);
    let outcome = if market == WITH_FEE { "Up" } else { "Yes" };
    let order = json!({
        "market_id": market, "outcome": outcome, "side": side, "quantity": quantity,
        "client_order_id": format!("name {}", NAMED.fetch_add(1, Ordering::Relaxed)),
    });
    let answer = account.post("/v1/orders", &order).ok(200);
    row_of(&answer, market)
}

/// The row of an order that filled when it was placed, made from the answer to it.
fn row_of(answer: &Value, market: &str) -> Value {
    assert_eq!(answer["status"], "FILLED", "{answer}");
    json!({
        "fill_id": answer["trade_ids"][0], "order_id": answer["order_id"],
        "client_order_id": answer["client_order_id"], "market_id": market,
        "side": answer["side"], "outcome": answer["outcome"], "price": answer["price"],
        "quantity": answer["filled_quantity"], "notional": answer["notional"],
        "fee": answer["fee"], "status": "FILLED", "price_source": "book_walk",
        "price_age_ms": null, "filled_at": answer["filled_at"], "created_at": answer["filled_at"],
    })
}

fn list(account: &Account<'_>, query: &str) -> Vec<Value> {
    let rows = account.get(format!("{PATH}?{query}")).ok(200);
    rows.as_array().unwrap().clone()
}

#[test]
fn each_fill_is_a_row() {
    let account = shared().account();
    assert_eq!(account.get(PATH).ok(200), json!([]));
    let expected = trade(&account, WITH_FEE, "BUY", 30);
    let rows = list(&account, "");
    check_fields(
        &rows[0],
        &[
            ("fill_id", Text),
            ("order_id", Integer),
            ("client_order_id", Text),
            ("market_id", Text),
            ("side", Text),
            ("outcome", Text),
            ("price", Decimal),
            ("quantity", Decimal),
            ("notional", Decimal),
            ("fee", Decimal),
            ("status", Text),
            ("price_source", Text),
            ("price_age_ms", Null),
            ("filled_at", Time),
            ("created_at", Time),
        ],
    );
    assert_eq!(rows, [expected]);
    // 30 at 0.50, and a fee of 30 x 0.05 x 0.25.
    let numbers = ["price", "quantity", "notional", "fee"].map(|field| &rows[0][field]);
    assert_eq!(numbers, ["0.5", "30", "15", "0.375"]);
}

#[test]
fn the_newest_fill_is_first_and_a_list_is_a_page_and_filtered() {
    let account = shared().account();
    let others = other(3);
    let mut all = Vec::new();
    for quantity in 10..20 {
        all.push(trade(&account, PLAIN, "BUY", quantity));
        if quantity % 2 == 0 {
            all.push(trade(&account, PLAIN, "SELL", 7));
        }
        if quantity % 3 == 0 {
            all.push(trade(&account, &others, "BUY", quantity));
        }
        // An order that rests has no fill, and neither has one that is cancelled.
        let rests = account.post("/v1/orders", &limit("BUY", 5, "0.1")).ok(200);
        account.delete(format!("/v1/orders/{}", rests["order_id"])).ok(200);
    }
    all.reverse();
    assert_eq!(all.len(), 18);
    assert_eq!(list(&account, ""), all);
    for (limit, offset) in [(1, 0), (5, 3), (200, 17), (200, 18), (7, 1_000_000_000)] {
        let page: Vec<Value> = all.iter().skip(offset).take(limit).cloned().collect();
        assert_eq!(list(&account, &format!("limit={limit}&offset={offset}")), page);
    }
    let having = |field: &str, value: &str| -> Vec<Value> {
        all.iter().filter(|row| row[field] == value).cloned().collect()
    };
    assert_eq!(list(&account, "side=sell"), having("side", "SELL"));
    assert_eq!(list(&account, "side=BUY&limit=3&offset=2"), having("side", "BUY")[2..5]);
    assert_eq!(list(&account, &format!("market_id={others}")), having("market_id", &others));
    assert!(list(&account, &format!("market_id={others}&side=SELL")).is_empty());
    assert!(list(&account, &format!("market_id={DEEP}")).is_empty());
    check_invalid(&account.get(format!("{PATH}?limit=201")), &["query.limit: less_than_equal"]);
}

#[test]
fn a_history_survives_a_crash() {
    let server = Server::unlimited();
    let account = server.account();
    let bought = trade(&account, PLAIN, "BUY", 10);
    // Takes the 100 at 0.50. What is left would meet them once more after the restart.
    let partly = account.post("/v1/orders", &limit("BUY", 150, "0.5")).ok(200);
    account.delete(format!("/v1/orders/{}", partly["order_id"])).ok(200);
    let sold = trade(&account, PLAIN, "SELL", 5);
    let rows = list(&account, "");
    assert_eq!((&rows[0], &rows[2]), (&sold, &bought));
    assert_eq!(
        (&rows[1]["order_id"], &rows[1]["fill_id"]),
        (&partly["order_id"], &partly["trade_ids"][0])
    );
    assert_eq!(
        (&rows[1]["quantity"], &rows[1]["price"]),
        (&partly["filled_quantity"], &json!("0.5"))
    );
    let key = account.key;
    let server = server.crash_and_restart();
    let after = server.send(&Request::get(PATH).key(&key)).ok(200);
    assert_eq!(after, json!(rows));
}
