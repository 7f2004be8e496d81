//! Orders of any kind: what they take at once, what rests, and how they are read.

use paperbourse_test_support::{Request, Response};
use serde_json::{Value, json};

use super::expect::{check_error, check_invalid};
use super::recording::{BOOKLESS, DEEP, PLAIN, buy, limit, sell};
use super::server::{Account, Server, shared};

/// An order with these fields changed.
pub(crate) fn with(mut order: Value, fields: &Value) -> Value {
    for (name, value) in fields.as_object().unwrap() {
        order[name] = value.clone();
    }
    order
}

fn place(account: &Account<'_>, order: &Value) -> Response {
    account.post("/v1/orders", order)
}

fn ids(list: &Value) -> Vec<&Value> {
    list["orders"].as_array().unwrap().iter().map(|row| &row["order_id"]).collect()
}

#[test]
fn an_order_rests_and_holds_back_what_it_may_cost() {
    let account = shared().account();
    let placed = place(&account, &limit("BUY", 2_400, "0.4")).ok(200);
    assert_eq!((&placed["status"], &placed["price"]), (&json!("PENDING"), &json!("0.4")));
    assert_eq!((&placed["filled_at"], &placed["trade_ids"]), (&Value::Null, &json!([])));
    let row = account.get(format!("/v1/orders/{}", placed["order_id"])).ok(200);
    for (field, expected) in [
        ("status", json!("PENDING")),
        ("order_type", json!("limit")),
        ("limit_price", json!("0.4")),
        ("time_in_force", json!("GTC")),
        ("quantity", json!("2400")),
        ("filled_quantity", json!("0")),
        ("remaining_quantity", json!("2400")),
        ("filled_at", Value::Null),
        ("fill_price", Value::Null),
        ("cancelled_at", Value::Null),
        ("expires_at", Value::Null),
    ] {
        assert_eq!(row[field], expected, "{field}");
    }
    // 40 of 1,000 dollars are free.
    assert_eq!(account.balance(), "40");
    check_error(&account.post("/trade", &buy(81)), 400, "INSUFFICIENT_BALANCE");
    account.post("/trade", &buy(80)).ok(200);
}

#[test]
fn a_sale_holds_back_its_shares() {
    let account = shared().account();
    account.buy(10);
    place(&account, &limit("SELL", 6, "0.9")).ok(200);
    check_error(&account.post("/trade", &sell(5)), 400, "INSUFFICIENT_POSITION");
    check_error(&place(&account, &limit("SELL", 5, "0.9")), 400, "INSUFFICIENT_POSITION");
    account.post("/trade", &sell(4)).ok(200);
}

#[test]
fn a_limit_that_crosses_takes_what_it_reaches_and_rests() {
    let account = shared().account();
    let placed = place(&account, &limit("BUY", 150, "0.51")).ok(200);
    for (field, expected) in [
        ("status", json!("PENDING")),
        ("quantity", json!("150")),
        ("filled_quantity", json!("100")),
        ("remaining_quantity", json!("50")),
        ("price", json!("0.5")),
        ("notional", json!("50")),
        ("making_amount", json!("50")),
        ("taking_amount", json!("100")),
        ("trade_ids", json!([format!("{}-1", placed["order_id"])])),
        ("account_balance", json!("950")),
        ("price_source", json!("book_walk")),
    ] {
        assert_eq!(placed[field], expected, "{field}");
    }
    assert_eq!(placed["position"]["quantity"], "100");
    let row = account.get(format!("/v1/orders/{}", placed["order_id"])).ok(200);
    for field in ["status", "quantity", "filled_quantity", "remaining_quantity", "trade_ids"] {
        assert_eq!(row[field], placed[field], "{field}");
    }
    assert_eq!((&row["fill_price"], &row["limit_price"]), (&json!("0.5"), &json!("0.51")));
}

/// Asks of 100 at 0.50 and 1,000 at 0.53.
#[test]
fn what_becomes_of_an_order_at_once() {
    let market = |fields: Value| with(buy(150), &fields);
    let within = |price: &str, fields: Value| with(limit("BUY", 150, price), &fields);
    for (order, expected) in [
        (market(json!({})), ["FILLED", "FOK", "150", "150", "0.51", "", ""]),
        (market(json!({"time_in_force": "GTC"})), ["FILLED", "FOK", "150", "150", "0.51", "", ""]),
        (
            market(json!({"quantity": "2000", "time_in_force": "FAK"})),
            ["FILLED", "FAK", "1100", "1100", "0.527273", "", "filled=1100,requested=2000"],
        ),
        (
            market(json!({"time_in_force": "ioc", "price": 0.5, "side": "buy"})),
            ["FILLED", "FAK", "100", "100", "0.5", "", "filled=100,requested=150"],
        ),
        (
            market(json!({"time_in_force": "FAK", "price": "0.45"})),
            ["CANCELLED", "FAK", "150", "0", "0.45", "fak_not_filled", ""],
        ),
        (
            market(json!({"quantity": null, "amount": "103"})),
            ["FILLED", "FOK", "200", "200", "0.515", "", ""],
        ),
        (within("0.5", json!({})), ["PENDING", "GTC", "150", "100", "0.5", "", ""]),
        (within("0.53", json!({})), ["FILLED", "GTC", "150", "150", "0.51", "", ""]),
        (
            within("0.4", json!({"post_only": true, "time_in_force": "GTD", "expiration": 4e9})),
            ["PENDING", "GTD", "150", "0", "0.4", "", ""],
        ),
        (
            within("0.5", json!({"time_in_force": "FOK"})),
            ["CANCELLED", "FOK", "150", "0", "0.5", "fok_not_filled", ""],
        ),
        (
            within("0.53", json!({"time_in_force": "FOK"})),
            ["FILLED", "FOK", "150", "150", "0.51", "", ""],
        ),
        (
            within("0.5", json!({"time_in_force": "FAK"})),
            ["FILLED", "FAK", "100", "100", "0.5", "", "filled=100,requested=150"],
        ),
        (
            within("0.4", json!({"time_in_force": "FAK"})),
            ["CANCELLED", "FAK", "150", "0", "0.4", "fak_not_filled", ""],
        ),
    ] {
        let account = shared().account();
        let placed = place(&account, &order).ok(200);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let warning = text(&placed["warnings"][0]);
        let shown = [
            text(&placed["status"]),
            text(&placed["time_in_force"]),
            text(&placed["quantity"]),
            text(&placed["filled_quantity"]),
            text(&placed["price"]),
            text(&placed["cancelled_reason"]),
            warning.trim_start_matches("partial_fill:").to_owned(),
        ];
        assert_eq!(shown, expected, "{order}");
        // The row shows the same.
        let row = account.get(format!("/v1/orders/{}", placed["order_id"])).ok(200);
        for field in ["status", "time_in_force", "quantity", "filled_quantity", "limit_price"] {
            assert_eq!(row[field], placed[field], "{field} of {order}");
        }
        assert_eq!(text(&row["cancelled_reason"]), expected[5], "{order}");
        assert_eq!(row["cancelled_at"].is_null(), expected[5].is_empty(), "{order}");
    }
}

#[test]
fn an_order_for_a_book_that_is_not_there_waits_for_it() {
    let account = shared().account();
    let order = with(limit("BUY", 10, "0.9"), &json!({"market_id": BOOKLESS}));
    let named = with(order.clone(), &json!({"client_order_id": "held"}));
    let placed = place(&account, &named).ok(200);
    assert_eq!(
        (&placed["status"], &placed["hold_reason"]),
        (&json!("PENDING"), &json!("venue_outage"))
    );
    let row = account.get(format!("/v1/orders/{}", placed["order_id"])).ok(200);
    assert_eq!(row["hold_reason"], "venue_outage");
    assert_eq!(place(&account, &named).ok(200)["hold_reason"], "venue_outage");
    for fields in [json!({"time_in_force": "FOK"}), json!({"order_type": "market"})] {
        check_error(&place(&account, &with(order.clone(), &fields)), 503, "VENUE_UNAVAILABLE");
    }
}

/// Checks that a response repeats the first one with a flag, and is marked as a replay.
#[track_caller]
fn check_replay(first: &Response, again: &Response) {
    let flagged = format!("{},\"is_replay\":true}}", first.text.strip_suffix('}').unwrap());
    assert_eq!((again.status, &again.text), (200, &flagged));
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
}

#[test]
fn a_replay_is_the_first_answer_whatever_became_of_the_order() {
    let server = Server::unlimited();
    let account = server.account();
    let key = account.key.clone();
    let order = with(limit("BUY", 150, "0.5"), &json!({"client_order_id": "mine"}));
    let request = Request::post("/v1/orders", &order).header("idempotency-key", "header");
    let first = account.send(request.clone());
    first.ok(200);
    assert_eq!(first.header("idempotent-replayed"), None);
    check_replay(&first, &account.send(request.clone()));
    check_replay(&first, &place(&account, &order));
    account.delete(format!("/v1/orders/{}", first.json()["order_id"])).ok(200);
    check_replay(&first, &place(&account, &order));
    let server = server.crash_and_restart();
    check_replay(&first, &server.send(&request.key(&key)));
    // A GTD order is repeated even after its time, and another order under the name is not.
    let expired = with(order, &json!({"time_in_force": "GTD", "expiration": 1}));
    let refused = server.send(&Request::post("/v1/orders", &expired).key(&key));
    check_error(&refused, 409, "IDEMPOTENCY_KEY_REUSE");
}

/// An order that would outlive its expiration in silence is refused. Clients send 0 for none.
#[test]
fn only_a_gtd_order_takes_an_expiration() {
    let account = shared().account();
    let later = json!(4_000_000_000_u64);
    let dated = |order: Value, expiration: &Value| {
        with(order, &json!({"expiration": expiration, "client_order_id": null}))
    };
    let in_force = |order: Value, name: &str| with(order, &json!({"time_in_force": name}));
    let rests = || limit("BUY", 5, "0.4");
    let market = || with(buy(1), &json!({"order_type": "market"}));
    let orders = [
        rests(),
        in_force(rests(), "GTC"),
        in_force(rests(), "FOK"),
        in_force(rests(), "FAK"),
        in_force(rests(), "IOC"),
        with(rests(), &json!({"post_only": true})),
        market(),
        in_force(market(), "FAK"),
        buy(1),
    ];
    let batch = |order: Value| account.post("/v1/orders/batch", &json!({"orders": [order]}));
    for order in orders {
        for expiration in [&later, &json!(1), &json!("4000000000")] {
            let order = dated(order.clone(), expiration);
            check_error(&place(&account, &order), 400, "INVALID_ORDER_EXPIRATION");
            let entry = &batch(order.clone()).ok(200)["results"][0];
            assert_eq!(entry["error"], "INVALID_ORDER_EXPIRATION", "{order}");
        }
        for none in [json!(0), json!("0"), Value::Null] {
            let order = dated(order.clone(), &none);
            let placed = place(&account, &order).ok(200).clone();
            assert_eq!(placed.get("warnings"), None, "{order}: {placed}");
            assert_eq!(batch(order).ok(200)["succeeded"], 1);
        }
    }
    place(&account, &in_force(dated(rests(), &later), "GTD")).ok(200);
}

#[test]
fn names_are_shared_with_trades() {
    let account = shared().account();
    let trade = with(buy(10), &json!({"client_order_id": "a trade"}));
    let traded = account.post("/trade", &trade);
    let placed = place(&account, &with(trade.clone(), &json!({"time_in_force": "FOK"}))).ok(200);
    assert_eq!(placed["order_id"], traded.ok(200)["order_id"]);
    assert_eq!((&placed["is_replay"], &placed["price"]), (&json!(true), &json!("0.5")));
    let order = with(buy(20), &json!({"client_order_id": "an order"}));
    let placed = place(&account, &order).ok(200);
    let replayed = account.post("/trade", &order);
    assert_eq!(replayed.header("idempotent-replayed"), Some("true"));
    assert_eq!(replayed.ok(200)["order_id"], placed["order_id"]);
    assert_eq!(replayed.json()["price"], 0.5);
    let capped = with(order, &json!({"price": "0.6"}));
    check_error(&place(&account, &capped), 409, "IDEMPOTENCY_KEY_REUSE");
    assert_eq!(account.balance(), "985");
}

#[test]
fn open_orders_come_first_and_then_the_last_finished() {
    let account = shared().account();
    let id = |response: Response| response.ok(200)["order_id"].clone();
    let rest = || id(place(&account, &limit("BUY", 10, "0.4")));
    let [first, second, third] = [rest(), rest(), rest()];
    let bought = account.buy(10)["order_id"].clone();
    let killed = with(limit("BUY", 10, "0.4"), &json!({"time_in_force": "FOK"}));
    let killed = id(place(&account, &killed));
    let sold = id(account.post("/trade", &sell(1)));
    account.delete(format!("/v1/orders/{first}")).ok(200);
    let all = [&third, &second, &first, &sold, &killed, &bought];
    for (query, expected, has_more) in [
        ("", &all[..], false),
        ("?limit=1", &all[..1], true),
        ("?limit=3&offset=1", &all[1..4], true),
        ("?limit=3&offset=3", &all[3..], false),
        ("?offset=6", &[], false),
        ("?status=PENDING", &all[..2], false),
        ("?status=open&limit=1", &all[..1], true),
        ("?status=OPEN&offset=1", &all[1..2], false),
        ("?status=OPEN&side=SELL", &[], false),
        ("?status=FILLED", &[&sold, &bought], false),
        ("?status=CANCELLED", &[&first, &killed], false),
        ("?status=CANCELLED&offset=1", &[&killed], false),
        ("?status=EXPIRED", &[], false),
        ("?side=SELL", &[&sold], false),
        ("?market_id=0xnone", &[], false),
    ] {
        let list = account.get(format!("/v1/orders{query}")).ok(200);
        assert_eq!(
            (ids(&list), &list["has_more"]),
            (expected.to_vec(), &json!(has_more)),
            "{query}"
        );
    }
    let named = with(limit("BUY", 10, "0.4"), &json!({"client_order_id": "mine"}));
    let named = id(place(&account, &named));
    for (query, is_found) in [("", true), ("&status=OPEN", true), ("&status=FILLED", false)] {
        let list = account.get(format!("/v1/orders?client_order_id=mine{query}")).ok(200);
        assert_eq!(ids(&list), [&named][..usize::from(is_found)], "{query}");
    }
}

#[test]
fn open_orders_are_bounded() {
    let server = Server::unlimited_with(&["--open-orders", "2"]);
    let account = server.account();
    let first = place(&account, &limit("BUY", 10, "0.4")).ok(200);
    place(&account, &limit("BUY", 10, "0.4")).ok(200);
    let refused = place(&account, &limit("BUY", 10, "0.4"));
    check_error(&refused, 400, "OPEN_ORDER_LIMIT_EXCEEDED");
    place(&account, &with(limit("BUY", 10, "0.5"), &json!({"time_in_force": "FOK"}))).ok(200);
    account.delete(format!("/v1/orders/{}", first["order_id"])).ok(200);
    place(&account, &limit("BUY", 10, "0.4")).ok(200);
}

#[test]
fn a_small_order_must_sell_all() {
    let account = shared().account();
    check_error(&place(&account, &limit("BUY", 4, "0.4")), 400, "ORDER_BELOW_MIN_SIZE");
    account.buy(3);
    check_error(&place(&account, &limit("SELL", 2, "0.9")), 400, "ORDER_BELOW_MIN_SIZE");
    place(&account, &limit("SELL", 3, "0.9")).ok(200);
}

#[test]
fn malformed_fields_are_listed() {
    let account = shared().account();
    let order = json!({
        "market_id": PLAIN, "outcome": "Yes", "side": "UP", "order_type": "stop",
        "quantity": "1.0000001", "amount": 0, "price": 1.5, "time_in_force": "DAY",
        "expiration": "soon", "post_only": 1,
    });
    check_invalid(
        &place(&account, &order),
        &[
            "body.side: enum",
            "body.order_type: enum",
            "body.quantity: decimal_max_places",
            "body.amount: greater_than",
            "body.price: less_than_equal",
            "body.time_in_force: enum",
            "body.expiration: int_parsing",
            "body.post_only: bool_type",
        ],
    );
}

/// An amount that finds no offer buys no quantity, and one that finds many buys at most what an
/// order may have.
#[test]
fn an_amount_meets_an_empty_or_a_deep_book() {
    let server = Server::unlimited_with(&["--starting-balance", "5000"]);
    let account = server.account();
    let by_amount = |market: &str, amount: i64, time_in_force: &str, price: &str| {
        let order = json!({
            "market_id": market, "outcome": "Yes", "side": "BUY", "amount": amount,
            "time_in_force": time_in_force, "price": price,
        });
        place(&account, &order)
    };
    check_error(&by_amount(PLAIN, 10, "FOK", "0.4"), 400, "FOK_ORDER_NOT_FILLED_ERROR");
    let ended = by_amount(PLAIN, 10, "FAK", "0.4").ok(200);
    assert_eq!(
        [&ended["status"], &ended["cancelled_reason"], &ended["quantity"]],
        [&json!("CANCELLED"), &json!("fak_not_filled"), &json!("0")]
    );
    // A million shares cost 1,000 dollars.
    check_error(&by_amount(DEEP, 1_500, "FOK", "0.5"), 400, "FOK_ORDER_NOT_FILLED_ERROR");
    let placed = by_amount(DEEP, 1_500, "FAK", "0.5").ok(200);
    assert_eq!((&placed["quantity"], &placed["notional"]), (&json!("1000000"), &json!("1000")));
}
