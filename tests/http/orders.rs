//! Reading orders: by id, by name, in pages.

use paperbourse_test_support::Request;
use serde_json::{Value, json};

use super::expect::{check_error, check_invalid};
use super::recording::{DEEP, PLAIN, buy, limit, sell};
use super::server::{Account, shared};

fn ids(list: &Value) -> Vec<u64> {
    let rows = list["orders"].as_array().unwrap();
    rows.iter().map(|row| row["order_id"].as_u64().unwrap()).collect()
}

#[track_caller]
fn list(account: &Account<'_>, query: &str) -> Value {
    account.get(format!("/v1/orders{query}")).ok(200)
}

#[test]
fn an_order_is_shown_to_its_account_alone() {
    let (owner, stranger) = (shared().account(), shared().account());
    let placed = owner.buy(150);
    let path = format!("/v1/orders/{}", placed["order_id"]);
    let row = owner.get(&*path).ok(200);
    assert_eq!((&row["fill_price"], &row["quantity"]), (&json!("0.51"), &json!("150")));
    assert_eq!((&row["notional"], &row["market_id"]), (&json!("76.5"), &json!(PLAIN)));
    check_error(&stranger.get(&*path), 404, "ORDER_NOT_FOUND");
    check_error(&owner.get("/v1/orders/9007199254740990"), 404, "ORDER_NOT_FOUND");
    check_error(&owner.get("/v1/orders/0"), 404, "ORDER_NOT_FOUND");
    check_invalid(&owner.get("/v1/orders/abc"), &["path.order_id: int_parsing"]);
}

#[test]
fn orders_are_found_by_either_name() {
    let account = shared().account();
    let mut order = buy(1);
    order["client_order_id"] = json!("a name/with & signs=é");
    let request = Request::post("/trade", &order).header("idempotency-key", "header-name");
    let placed = account.send(request).ok(200)["order_id"].as_u64().unwrap();
    account.buy(1);
    for query in
        ["?client_order_id=a+name%2Fwith%20%26%20signs%3D%C3%A9", "?client_order_id=header-name"]
    {
        assert_eq!(ids(&list(&account, query)), [placed], "{query}");
    }
    assert!(ids(&list(&account, "?client_order_id=unknown")).is_empty());
    assert!(ids(&list(&account, "?client_order_id=header-name&side=SELL")).is_empty());
    assert_eq!(ids(&list(&account, "?client_order_id=")).len(), 2);
    assert!(ids(&list(&shared().account(), "?client_order_id=header-name")).is_empty());
}

#[test]
fn a_list_is_a_page_newest_first() {
    let account = shared().account();
    let mut placed: Vec<u64> =
        (0..7).map(|_| account.buy(1)["order_id"].as_u64().unwrap()).collect();
    placed.reverse();
    for (query, expected, has_more) in [
        ("", &placed[..], false),
        ("?limit=3", &placed[..3], true),
        ("?limit=3&offset=3", &placed[3..6], true),
        ("?limit=3&offset=6", &placed[6..], false),
        ("?limit=200&offset=7", &[], false),
        ("?limit=7", &placed[..], false),
    ] {
        let list = list(&account, query);
        assert_eq!(
            (ids(&list), &list["has_more"]),
            (expected.to_vec(), &json!(has_more)),
            "{query}"
        );
    }
}

/// The pages from the list's answer on, each with its ids.
fn pages_after(account: &Account<'_>, query: &str, first: &Value) -> Vec<Vec<u64>> {
    let mut pages = Vec::new();
    let mut cursor = first["next_cursor"].clone();
    while let Some(text) = cursor.as_str() {
        let page = list(account, &format!("?{query}&next_cursor={text}"));
        assert_eq!(page["has_more"].as_bool().unwrap(), page["next_cursor"].is_string());
        pages.push(ids(&page));
        cursor = page["next_cursor"].clone();
    }
    pages
}

#[test]
fn a_cursor_walks_through_orders_while_they_change() {
    let account = shared().account();
    let id = |answer: &Value| answer["order_id"].as_u64().unwrap();
    let rest = || id(&account.post("/v1/orders", &limit("BUY", 5, "0.3")).ok(200));
    let filled: Vec<u64> = (0..3).map(|_| id(&account.buy(1))).collect();
    let open: Vec<u64> = (0..5).map(|_| rest()).collect();

    let all = list(&account, "?limit=3");
    assert_eq!(ids(&all), [open[4], open[3], open[2]]);
    let pages = pages_after(&account, "limit=3", &all);
    assert_eq!(pages, [vec![open[1], open[0], filled[2]], vec![filled[1], filled[0]]]);
    // One that was shown ends, and so does one that was not; others come.
    for order in [open[3], open[1]] {
        account.delete(format!("/v1/orders/{order}")).ok(200);
    }
    let (bought, _) = (id(&account.buy(1)), rest());
    let pages = pages_after(&account, "limit=3", &all);
    assert_eq!(
        pages,
        [vec![open[0], bought, open[1]], vec![open[3], filled[2], filled[1]], vec![filled[0]]]
    );
    // A filter holds for all pages, and an offset counts from the beginning only.
    let bought = list(&account, "?limit=2&status=FILLED&offset=1");
    assert_eq!(ids(&bought), [filled[2], filled[1]]);
    let pages = pages_after(&account, "limit=2&status=FILLED&offset=1", &bought);
    assert_eq!(pages, [[filled[0]]]);
    let open = list(&account, "?limit=2&status=OPEN&cursor=");
    assert_eq!(pages_after(&account, "limit=2&status=OPEN", &open).concat().len(), 2);
    for cursor in ["7", "o7x", "f-1", "MA=="] {
        let answer = account.get(format!("/v1/orders?cursor={cursor}"));
        check_invalid(&answer, &["query.cursor: cursor_parsing"]);
    }
    // A cursor of long ago, and one that no list gave.
    assert_eq!(ids(&list(&account, "?cursor=f1")), [0; 0]);
    assert_eq!(ids(&list(&account, "?cursor=f18446744073709551615&limit=1")).len(), 1);
}

#[test]
fn a_list_is_filtered() {
    let account = shared().account();
    let first = account.buy(2)["order_id"].as_u64().unwrap();
    let sold = account.post("/trade", &sell(1)).ok(200)["order_id"].as_u64().unwrap();
    let mut deep = buy(1);
    deep["market_id"] = json!(DEEP);
    let deep = account.post("/trade", &deep).ok(200)["order_id"].as_u64().unwrap();
    for (query, expected) in [
        ("?side=BUY".to_owned(), vec![deep, first]),
        ("?side=SELL".to_owned(), vec![sold]),
        (format!("?market_id={DEEP}"), vec![deep]),
        (format!("?market_id={PLAIN}&side=BUY"), vec![first]),
        ("?market_id=0xnone".to_owned(), vec![]),
        ("?status=FILLED".to_owned(), vec![deep, sold, first]),
        ("?status=OPEN".to_owned(), vec![]),
        ("?status=CANCELLED".to_owned(), vec![]),
    ] {
        assert_eq!(ids(&list(&account, &query)), expected, "{query}");
    }
}

#[test]
fn parameters_have_bounds() {
    let account = shared().account();
    let long = "n".repeat(257);
    for (query, fields) in [
        ("limit=0".to_owned(), &["query.limit: greater_than_equal"][..]),
        ("limit=201".to_owned(), &["query.limit: less_than_equal"]),
        ("offset=-1".to_owned(), &["query.offset: greater_than_equal"]),
        ("side=UP&status=DONE".to_owned(), &["query.status: enum", "query.side: enum"]),
        (format!("client_order_id={long}"), &["query.client_order_id: string_too_long"]),
        (format!("market_id={long}"), &["query.market_id: string_too_long"]),
    ] {
        check_invalid(&account.get(format!("/v1/orders?{query}")), fields);
    }
    for query in ["limit=1", "limit=200", "offset=0", &format!("client_order_id={}", &long[1..])] {
        list(&account, &format!("?{query}"));
    }
    let status = account.get("/v1/account/positions?status=HALF");
    check_invalid(&status, &["query.status: enum"]);
}
