//! Resetting an account, and the one wallet that it has.

use paperbourse_test_support::Request;
use serde_json::{Value, json};

use super::expect::Kind::{Decimal, Flag, Integer, Null, Text, Time};
use super::expect::{check_error, check_fields, check_invalid};
use super::recording::{PLAIN, limit, other, sell};
use super::server::{Account, Server, shared};

const PATH: &str = "/v1/account/reset-api-balance";

fn reset(account: &Account<'_>) -> Value {
    account.post(PATH, &json!({})).ok(200)
}

/// The status of each position, and whether it still has shares or a price.
fn positions(account: &Account<'_>, query: &str) -> Vec<[String; 2]> {
    let rows = account.get(format!("/v1/account/positions{query}")).ok(200);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let row = |row: &Value| [text(&row["status"]), text(&row["quantity"])];
    rows.as_array().unwrap().iter().map(row).collect()
}

#[test]
fn a_reset_starts_an_account_anew_and_forgets_nothing() {
    let account = shared().account();
    account.buy(10);
    account
        .post(
            "/trade",
            &json!({"market_id": other(1), "outcome": "Yes", "side": "BUY",
        "quantity": 4}),
        )
        .ok(200);
    account
        .post(
            "/trade",
            &json!({"market_id": other(1), "outcome": "Yes", "side": "SELL",
        "quantity": 4}),
        )
        .ok(200);
    let rests = account.post("/v1/orders", &limit("BUY", 10, "0.3")).ok(200)["order_id"].clone();
    let history = account.get("/v1/account/history").ok(200);
    let before = account.get("/v1/account/balance").ok(200);
    assert_eq!([&before["balance"], &before["reserved"]], ["991.92", "3"]);

    let done = reset(&account);
    let fields = [
        ("message", Text),
        ("new_api_balance", Decimal),
        ("positions_closed", Integer),
        ("orders_cancelled", Integer),
        ("cooldown_days", Integer),
    ];
    check_fields(&done, &fields);
    assert_eq!(done["new_api_balance"], "1000");
    assert_eq!([&done["positions_closed"], &done["orders_cancelled"]], [1, 1]);

    let balance = account.get("/v1/account/balance").ok(200);
    assert_eq!(
        balance,
        json!({"balance": "1000", "currency": "USD", "unrealized_pnl": "0", "total_value": "1000",
               "starting_balance": "1000", "reserved": "0", "available": "1000"})
    );
    let closed = [["CLOSED_BY_RESET", "0"], ["CLOSED", "0"]];
    assert_eq!(positions(&account, "?status=CLOSED"), closed);
    assert_eq!(positions(&account, ""), closed);
    assert!(positions(&account, "?status=OPEN").is_empty());
    let order = account.get(format!("/v1/orders/{rests}")).ok(200);
    assert_eq!([&order["status"], &order["cancelled_reason"]], ["CANCELLED", "reset"]);
    assert_eq!(account.get("/v1/account/history").ok(200), history);
    // The position that the reset closed is neither won nor lost.
    let portfolio = account.get("/v1/account/portfolio").ok(200);
    assert_eq!([&portfolio["total_trades"], &portfolio["win_rate"]], [&json!(3), &json!("0.0%")]);
    let refused = account.post("/trade", &sell(1));
    check_error(&refused, 400, "INSUFFICIENT_POSITION");

    // What a client repeats whose answer was lost finds nothing to do.
    let again = reset(&account);
    assert_eq!([&again["positions_closed"], &again["orders_cancelled"]], [0, 0]);
    assert_eq!(again["new_api_balance"], "1000");
    // From here on, profit counts from the reset.
    account.buy(2);
    assert_eq!(positions(&account, "?status=OPEN"), [["OPEN", "2"]]);
    let rows = account.get("/v1/account/positions?status=OPEN").ok(200);
    assert_eq!([&rows[0]["avg_entry_price"], &rows[0]["market_id"]], ["0.5", PLAIN]);
    let balance = account.get("/v1/account/balance").ok(200);
    assert_eq!([&balance["balance"], &balance["starting_balance"]], ["999", "1000"]);
}

#[test]
fn who_may_reset() {
    let account = shared().account();
    account.buy(2);
    let reader = account.new_key(&json!({"permissions": ["read"]}));
    let by_reader = Request::post(PATH, &json!({})).key(reader["raw_key"].as_str().unwrap());
    check_error(&shared().send(&by_reader), 403, "INSUFFICIENT_PERMISSION");
    check_error(&shared().send(&Request::post(PATH, &json!({}))), 401, "MISSING_AUTH");
    let nobody = shared().token("nobody-resets", None);
    for path in [PATH, "/v1/me/wallets/api/reset"] {
        let by_nobody = Request::post(path, &json!({})).bearer(&nobody);
        check_error(&shared().send(&by_nobody), 404, "ACCOUNT_NOT_FOUND");
    }
    assert_eq!(account.balance(), "999");
    let by_token = Request::post(PATH, &json!({})).bearer(&account.token);
    assert_eq!(shared().send(&by_token).ok(200)["positions_closed"], 1);
    assert_eq!(account.balance(), "1000");
}

#[test]
fn an_account_has_one_wallet() {
    let (account, stranger) = (shared().account(), shared().account());
    let id = account.get("/v1/me").ok(200)["id"].clone();
    account.buy(10);
    let list = account.get("/v1/me/wallets?limit=50&offset=0").ok(200);
    let wallet = &list["wallets"][0];
    check_fields(&list, &[("wallets", super::expect::Kind::List)]);
    check_fields(
        wallet,
        &[
            ("id", Integer),
            ("kind", Text),
            ("label", Null),
            ("balance", Decimal),
            ("reserved", Decimal),
            ("baseline", Decimal),
            ("currency", Text),
            ("status", Text),
            ("generation", Integer),
            ("parent_wallet_id", Null),
            ("competition_id", Null),
            ("created_at", Time),
            ("archived_at", Null),
            ("is_legacy", Flag),
        ],
    );
    assert_eq!([&wallet["id"], &wallet["generation"]], [&id, &json!(1)]);
    assert_eq!([&wallet["balance"], &wallet["baseline"]], ["995", "1000"]);
    for (query, count) in [("?limit=1", 1), ("?offset=1", 0), ("", 1)] {
        let list = account.get(format!("/v1/me/wallets{query}")).ok(200);
        assert_eq!(list["wallets"].as_array().unwrap().len(), count, "{query}");
    }
    let paths = [format!("/v1/me/wallets/{id}"), "/v1/me/wallets/API".into()];
    for path in &paths {
        assert_eq!(account.get(path).ok(200), *wallet, "{path}");
    }
    check_error(&stranger.get(&*paths[0]), 404, "WALLET_NOT_FOUND");
    for (path, closed) in paths.iter().zip([1, 0]) {
        let done = account.post(format!("{path}/reset"), &json!({})).ok(200);
        assert_eq!(
            [&done["positions_closed"], &done["new_api_balance"]],
            [&json!(closed), &json!("1000")]
        );
    }
    assert_eq!(account.get("/v1/me/wallets/api").ok(200)["generation"], 2);
    let reset = |wallet: &str| account.post(format!("/v1/me/wallets/{wallet}/reset"), &json!({}));
    check_error(&reset("64000000"), 404, "WALLET_NOT_FOUND");
    check_invalid(&reset("mine"), &["path.wallet_id: int_parsing"]);
    check_invalid(&account.get("/v1/me/wallets/1.0"), &["path.wallet_id: int_parsing"]);
    check_invalid(&account.get("/v1/me/wallets?limit=0"), &["query.limit: greater_than_equal"]);
    let create = account.post("/v1/me/wallets", &json!({"label": "x", "kind": "SANDBOX"}));
    check_error(&create, 404, "NOT_OFFERED");
}

#[test]
fn a_reset_survives_a_crash() {
    let server = Server::unlimited();
    let account = server.account();
    account.buy(10);
    account.post("/v1/orders", &limit("SELL", 6, "0.9")).ok(200);
    account.post("/v1/orders", &limit("BUY", 10, "0.3")).ok(200);
    let done = reset(&account);
    assert_eq!([&done["positions_closed"], &done["orders_cancelled"]], [1, 2]);
    let (subject, token, key) =
        (account.subject.clone(), account.token.clone(), account.key.clone());
    let key_id = account.key_id;
    let server = server.crash_and_restart();
    let account = Account { server: &server, subject, token, key, key_id };
    assert_eq!(positions(&account, "?status=CLOSED"), [["CLOSED_BY_RESET", "0"]]);
    assert_eq!(account.balance(), "1000");
    assert_eq!(account.get("/v1/me/wallets/api").ok(200)["generation"], 2);
    assert_eq!(account.get("/v1/orders?status=OPEN").ok(200)["orders"], json!([]));
    assert_eq!(reset(&account)["orders_cancelled"], 0);
}
