//! Orders and fills in the venue's form.

use serde_json::{Value, json};

use super::expect::Kind::{Integer, List, Text};
use super::expect::{check_error, check_fields, check_invalid};
use super::recording::{PLAIN, WITH_FEE, limit, other, token_id};
use super::server::{Account, shared};

fn get(account: &Account<'_>, path: &str) -> Value {
    account.get(format!("/v1/data/{path}")).ok(200)
}

fn ids(page: &Value) -> Vec<String> {
    let rows = page["data"].as_array().unwrap();
    assert_eq!(page["count"], rows.len());
    rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

/// All rows, in pages of two, as the venue's clients read them.
fn walk(account: &Account<'_>, path: &str) -> Vec<String> {
    let mut cursor = "MA==".to_owned();
    let mut all = Vec::new();
    while cursor != "LTE=" {
        let page = get(account, &format!("{path}limit=2&next_cursor={cursor}"));
        all.extend(ids(&page));
        page["next_cursor"].as_str().unwrap().clone_into(&mut cursor);
    }
    all
}

/// Text of digits that is the time of this RFC 3339 text, in seconds or in milliseconds.
fn digits(time: &Value, per_second: i128) -> String {
    let time: jiff::Timestamp = time.as_str().unwrap().parse().unwrap();
    (time.as_nanosecond() * per_second / 1_000_000_000).to_string()
}

#[test]
fn open_orders_are_listed_without_a_null() {
    let account = shared().account();
    let me = account.get("/v1/me").ok(200)["id"].to_string();
    let mut order = limit("BUY", 150, "0.5");
    order["time_in_force"] = "GTD".into();
    order["expiration"] = 4_000_000_000_u64.into();
    let placed = account.post("/v1/orders", &order).ok(200);
    let id = placed["order_id"].to_string();
    let native = account.get(format!("/v1/orders/{id}")).ok(200);
    let page = get(&account, "orders");
    check_fields(
        &page,
        &[("limit", Integer), ("count", Integer), ("next_cursor", Text), ("data", List)],
    );
    assert_eq!((&page["limit"], &page["next_cursor"]), (&json!(100), &json!("LTE=")));
    assert_eq!(
        page["data"][0],
        json!({
            "id": id, "status": "ORDER_STATUS_LIVE", "owner": me, "maker_address": me,
            "market": PLAIN, "asset_id": token_id(0, 0), "side": "BUY", "original_size": "150",
            "size_matched": "100", "price": "0.5", "outcome": "Yes", "order_type": "GTD",
            "associate_trades": [format!("{id}-1")],
            "created_at": digits(&native["created_at"], 1),
            "expiration": "4000000000", "expires_at": "4000000000000",
        })
    );
    let rests = account.post("/v1/orders", &limit("BUY", 10, "0.3")).ok(200);
    let page = get(&account, "orders");
    assert_eq!(
        (&page["data"][0]["expiration"], &page["data"][0]["expires_at"]),
        (&json!("0"), &json!(""))
    );
    account.delete(format!("/v1/orders/{}", rests["order_id"])).ok(200);
    let ended = rests["order_id"].to_string();
    for (query, expected) in [
        (String::new(), vec![&id]),
        ("status=LIVE&".to_owned(), vec![&id]),
        ("status=order_status_canceled&".to_owned(), vec![&ended]),
        ("status=MATCHED&".to_owned(), vec![]),
        (format!("id={id}&"), vec![&id]),
        (format!("id={ended}&"), vec![]),
        (format!("id={ended}&status=CANCELED&"), vec![&ended]),
        ("id=0xabc&".to_owned(), vec![]),
        (format!("market={PLAIN}&asset_id={}&", token_id(0, 0)), vec![&id]),
        (format!("asset_id={}&", token_id(0, 1)), vec![]),
        (format!("market={WITH_FEE}&"), vec![]),
        ("after=4000000000&".to_owned(), vec![]),
        ("before=4000000000&after=1&".to_owned(), vec![&id]),
        ("before=1&".to_owned(), vec![]),
    ] {
        let found = walk(&account, &format!("orders?{query}"));
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{query}");
    }
    assert_eq!(ids(&get(&account, "orders?next_cursor=LTE=")), [""; 0]);
}

#[test]
fn fills_are_listed_without_a_null() {
    let account = shared().account();
    let me = account.get("/v1/me").ok(200)["id"].to_string();
    let order = json!({"market_id": WITH_FEE, "outcome": "Up", "side": "BUY", "quantity": 30});
    let id = account.post("/trade", &order).ok(200)["order_id"].to_string();
    let filled = &account.get("/v1/account/history").ok(200)[0]["filled_at"];
    let [seconds, millis] = [1, 1_000].map(|per_second| digits(filled, per_second));
    let page = get(&account, "trades");
    assert_eq!((&page["limit"], &page["next_cursor"]), (&json!(100), &json!("LTE=")));
    assert_eq!(
        page["data"],
        json!([{
            "id": format!("{id}-1"), "taker_order_id": id, "market": WITH_FEE,
            "asset_id": token_id(2, 0), "side": "BUY", "size": "30", "fee_rate_bps": "500",
            "price": "0.5", "status": "CONFIRMED", "match_time": seconds, "last_update": seconds,
            "matched_at": millis, "updated_at": millis, "outcome": "Up", "bucket_index": 0,
            "owner": me, "maker_address": me, "transaction_hash": "", "trader_side": "TAKER",
            "maker_orders": [],
        }])
    );
    let mut expected = vec![format!("{id}-1")];
    for number in 1..4 {
        let order =
            json!({"market_id": other(number), "outcome": "Yes", "side": "BUY", "quantity": 1});
        let id = account.post("/trade", &order).ok(200)["order_id"].to_string();
        expected.insert(0, format!("{id}-1"));
    }
    assert_eq!(walk(&account, "trades?"), expected);
    for (query, index) in [
        (format!("market={WITH_FEE}&"), 3),
        (format!("asset_id={}&", token_id(2, 0)), 3),
        (format!("market={}&", other(2)), 1),
        (format!("id={}&", expected[2]), 2),
    ] {
        let found = walk(&account, &format!("trades?{query}"));
        assert_eq!(found, expected[index..=index], "{query}");
    }
    for query in ["after=4000000000", "before=1", "id=7", "asset_id=7", "cursor=1"] {
        assert_eq!(ids(&get(&account, &format!("trades?{query}"))), [""; 0], "{query}");
    }
}

#[test]
fn parameters_have_bounds() {
    let account = shared().account();
    let long = "n".repeat(300);
    for list in ["orders", "trades"] {
        let get = |query: &str| account.get(format!("/v1/data/{list}?{query}"));
        for query in ["after=now", "before=-1", "before=99999999999999999999", "after=1.5"] {
            check_error(&get(query), 400, "INVALID_TIME_FILTER");
        }
        check_invalid(&get("limit=501&after=x"), &["query.limit: less_than_equal"]);
        check_invalid(&get("cursor=x"), &["query.cursor: cursor_parsing"]);
        check_invalid(&get(&format!("market={long}")), &["query.market: string_too_long"]);
        assert_eq!(get("limit=500&market=&asset_id=&id=&cursor=").ok(200)["count"], 0);
        check_error(&shared().get(format!("/v1/data/{list}")), 401, "MISSING_AUTH");
    }
    check_invalid(&account.get("/v1/data/orders?status=DONE"), &["query.status: enum"]);
}
