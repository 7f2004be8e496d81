//! What an account was worth at each full hour.

use paperbourse_test_support::Request;
use serde_json::{Value, json};

use super::expect::Kind::{Decimal, Time};
use super::expect::{check_error, check_fields, check_invalid};
use super::recording::{limit, sell};
use super::server::{Account, Server, shared};

const PATH: &str = "/v1/account/equity";

fn rows(account: &Account<'_>, query: &str) -> Vec<Value> {
    account.get(format!("{PATH}?{query}")).ok(200).as_array().unwrap().clone()
}

/// Cash, value of the positions, total and profit of the newest row.
fn newest(account: &Account<'_>) -> [String; 4] {
    let rows = rows(account, "limit=1");
    assert_eq!(rows.len(), 1);
    let fields = ["cash_balance", "position_value", "total_value", "pnl"];
    fields.map(|field| rows[0][field].as_str().unwrap().to_owned())
}

#[test]
fn the_newest_row_is_the_balance() {
    let account = shared().account();
    assert_eq!(newest(&account), ["1000", "0", "1000", "0"]);
    let fields = [
        ("timestamp", Time),
        ("cash_balance", Decimal),
        ("position_value", Decimal),
        ("total_value", Decimal),
        ("pnl", Decimal),
    ];
    check_fields(&rows(&account, "")[0], &fields);
    account.buy(10);
    account.post("/trade", &sell(4)).ok(200);
    // Cash that an open order holds back is still the account's.
    account.post("/v1/orders", &limit("BUY", 10, "0.3")).ok(200);
    let balance = account.get("/v1/account/balance").ok(200);
    assert_eq!(balance["reserved"], "3");
    let found = newest(&account);
    assert_eq!(found[2..], ["total_value", "unrealized_pnl"].map(|field| balance[field].clone()));
    let positions = account.get("/v1/account/positions").ok(200);
    assert_eq!(found[1], positions[0]["market_value"]);
    account.post("/v1/account/reset-api-balance", &json!({})).ok(200);
    assert_eq!(newest(&account), ["1000", "0", "1000", "0"]);
}

#[test]
fn a_series_survives_a_crash() {
    let server = Server::unlimited();
    let account = server.account();
    account.buy(10);
    account.post("/v1/account/reset-api-balance", &json!({})).ok(200);
    account.buy(7);
    let before = newest(&account);
    let key = account.key;
    let server = server.crash_and_restart();
    let rows = server.send(&Request::get(PATH).key(&key)).ok(200);
    let newest = rows.as_array().unwrap().last().unwrap();
    let fields = ["cash_balance", "position_value", "total_value", "pnl"];
    assert_eq!(fields.map(|field| newest[field].as_str().unwrap()), before);
}

#[test]
fn rows_that_cannot_be_given_are_refused() {
    let account = shared().account();
    let query = "days=91&limit=0&wallet_id=x";
    let fields = ["query.days: less_than_equal", "query.limit: greater_than_equal"];
    let refused = account.get(format!("{PATH}?{query}"));
    let fields = [&fields[..], &["query.wallet_id: int_parsing"]].concat();
    check_invalid(&refused, &fields);
    check_error(&account.get(format!("{PATH}?wallet_id=1")), 404, "WALLET_NOT_FOUND");
    let own = account.get("/v1/me").ok(200)["user_id"].clone();
    for wallet in ["all", "api", &own.to_string()] {
        let rows = rows(&account, &format!("wallet_id={wallet}&days=90&limit=2160"));
        assert!((1..=2).contains(&rows.len()), "{rows:?}");
    }
}
