//! Fields and parameters that are not those of an operation: a near miss of one that moves money is
//! refused, any other one is named. What known clients send is neither.

use paperbourse_test_support::Request;
use serde_json::{Value, json};

use super::expect::check_error;
use super::recording::{PLAIN, buy, limit, sell};
use super::server::shared;

/// The order with this field added.
fn and(mut order: Value, field: &str, value: Value) -> Value {
    order[field] = value;
    order
}

/// Checks that no path takes an order with this field, and what each says.
#[track_caller]
fn check_refused(path: &str, order: Value, field: &str, value: Value, expected: &str) {
    let account = shared().account();
    let order = and(order, field, value);
    let response = account.post(path, &order);
    check_error(&response, 422, "VALIDATION_FAILED");
    let body = response.json();
    let said = format!("`{field}` is not a field of this request{expected}");
    assert_eq!(body["detail"][0]["msg"], said, "{path}");
    assert_eq!(body["detail"][0]["type"], "extra_forbidden");
    assert_eq!(account.balance(), "1000", "{path} {field}");
    let is_listed = body["detail"][0]["loc"] == json!(["body", field]);
    assert!(is_listed || body["detail"][0]["loc"] == json!(["body"]), "{body}");
    if path == "/v1/orders" {
        let batch = account.post("/v1/orders/batch", &json!({"orders": [buy(1), order]}));
        check_error(&batch, 422, "VALIDATION_FAILED");
        let body = batch.json();
        assert_eq!(
            (&body["detail"][0]["msg"], &body["detail"][0]["loc"][2]),
            (&json!(said), &json!("1"))
        );
        assert_eq!(account.balance(), "1000", "batch {field}");
    }
}

#[test]
fn a_near_miss_costs_nothing() {
    for (field, value, expected) in [
        ("limit_price", json!("0.4"), "; did you mean `price`?"),
        ("limitPrice", json!(0.4), "; did you mean `price`?"),
        ("pirce", json!("0.4"), "; did you mean `price`?"),
        ("type", json!("limit"), "; did you mean `order_type`?"),
        ("orderType", json!("limit"), "; did you mean `order_type`?"),
        ("size", json!(2), "; did you mean `quantity`?"),
        ("qty", json!("2"), "; did you mean `quantity`?"),
        ("max_slippage", json!(0.01), "; did you mean `max_slippage_bps`?"),
        ("slippage_bps", json!(10), "; did you mean `max_slippage_bps`?"),
        ("maxSlippageBps", json!(10), "; did you mean `max_slippage_bps`?"),
        ("postOnly", json!(true), "; did you mean `post_only`?"),
        ("tif", json!("GTC"), "; did you mean `time_in_force`?"),
    ] {
        check_refused("/v1/orders", buy(1), field, value, expected);
    }
    let guard =
        "; did you mean `expected_price`? A limit price goes to POST /v1/orders, as `price`";
    for (field, value, expected) in [
        ("price", json!("0.4"), guard),
        ("limit_price", json!(0.4), guard),
        ("limitPrice", json!(0.4), guard),
        ("max_slippage", json!(0.01), "; did you mean `max_slippage_bps`?"),
        ("slippage_bps", json!(10), "; did you mean `max_slippage_bps`?"),
        ("size", json!(2), "; did you mean `quantity`?"),
        ("qty", json!(2), "; did you mean `quantity`?"),
        ("type", json!("limit"), "; did you mean `order_type`?"),
        ("order_type", json!("limit"), "; POST /v1/orders takes it"),
        ("time_in_force", json!("GTC"), "; POST /v1/orders takes it"),
        ("post_only", json!(true), "; POST /v1/orders takes it"),
        ("amount", json!(5), "; POST /v1/orders takes it"),
        ("expiration", json!(1), "; POST /v1/orders takes it"),
        ("expectedPrice", json!(0.4), "; did you mean `expected_price`?"),
    ] {
        check_refused("/trade", buy(1), field, value, expected);
    }
}

/// What the official SDK (0.6.0, its three clients), the recorded programs and the venue's own
/// clients send for an order.
#[test]
fn no_known_client_sends_a_field_that_is_refused_or_named() {
    let rest = |fields: &[(&str, Value)]| {
        fields
            .iter()
            .fold(limit("BUY", 5, "0.4"), |order, (name, value)| and(order, name, value.clone()))
    };
    let market = |fields: &[(&str, Value)]| {
        fields.iter().fold(and(buy(1), "order_type", json!("market")), |order, (name, value)| {
            and(order, name, value.clone())
        })
    };
    let orders = [
        // place_order of the SDK, with everything it can send.
        rest(&[
            ("time_in_force", json!("GTD")),
            ("expiration", json!(4_000_000_000_u64)),
            ("post_only", json!(true)),
            ("client_order_id", json!("sdk")),
            ("wallet_id", json!(1)),
        ]),
        market(&[("price", json!("0.99")), ("time_in_force", json!("IOC"))]),
        market(&[("price", Value::Null), ("expiration", Value::Null), ("foo", Value::Null)]),
        json!({"market_id": PLAIN, "outcome": "YES", "side": "BUY", "order_type": "market",
               "amount": 5.0, "price": 0.99, "time_in_force": "FOK"}),
        // The drop-in client, with its floats.
        json!({"market_id": PLAIN, "outcome": "YES", "side": "BUY", "price": 0.02,
               "order_type": "limit", "time_in_force": "GTC", "quantity": 10.0}),
        rest(&[("expiration", json!(0)), ("time_in_force", json!("GTC"))]),
        rest(&[("expiration", json!("0"))]),
        market(&[("expiration", json!(0)), ("time_in_force", json!("FAK"))]),
        // The recorded programs.
        rest(&[("post_only", json!(true)), ("client_order_id", json!("maker"))]),
        market(&[("client_order_id", json!("ts-1")), ("max_slippage_bps", json!(500))]),
    ];
    let account = shared().account();
    for order in &orders {
        let placed = account.post("/v1/orders", order).ok(200);
        assert_eq!(placed.get("warnings"), None, "{order}: {placed}");
    }
    for order in &orders {
        let order = and(order.clone(), "client_order_id", Value::Null);
        let placed = account.post("/v1/orders/batch", &json!({"orders": [order]})).ok(200);
        assert_eq!(placed.get("warnings"), None, "{order}");
        assert_eq!(placed["results"][0].get("warnings"), None, "{order}: {placed}");
    }
    for fields in [
        json!({}),
        json!({"expected_price": 0.5, "max_slippage_bps": 500, "client_order_id": "taker"}),
        json!({"expected_price": null, "max_slippage_bps": null, "price": null}),
        json!({"side": "buy", "quantity": "1"}),
    ] {
        let mut order = buy(1);
        order.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let placed = account.post("/trade", &order).ok(200);
        assert_eq!(placed.get("warnings"), None, "{order}: {placed}");
    }
}

#[test]
fn an_ignored_field_is_named_in_the_answer_and_in_its_replay() {
    let account = shared().account();
    let order = and(and(buy(1), "note", json!({"deep": [1, 2]})), "order_type", json!("market"));
    let ignored =
        |field: &str| json!(format!("`{field}` is not a field of this request and was ignored."));
    let request = Request::post("/trade", &and(buy(1), "note", json!([1]))).named("trade");
    let first = account.send(request.clone());
    let placed = first.ok(200);
    assert_eq!(placed["warnings"], json!([ignored("note")]));
    let again = account.send(request);
    assert_eq!((again.header("idempotent-replayed"), &again.text), (Some("true"), &first.text));
    // The order without the field is the same order, and has nothing to be warned of.
    let plain = account.send(Request::post("/trade", &buy(1)).named("trade"));
    assert_eq!(plain.ok(200)["order_id"], placed["order_id"]);
    assert_eq!(plain.json().get("warnings"), None);

    let placed = account.post("/v1/orders", &order).ok(200);
    assert_eq!(placed["warnings"], json!([ignored("note")]));
    let partly = and(and(order.clone(), "quantity", json!(1_500)), "time_in_force", json!("FAK"));
    let placed = account.post("/v1/orders", &and(partly, "price", json!("0.5"))).ok(200);
    assert_eq!(placed["warnings"].as_array().unwrap().len(), 2, "{placed}");
    assert_eq!(placed["warnings"][1], ignored("note"));

    let entries =
        json!([and(buy(1), "note", json!(1)), buy(1), and(sell(1_000), "note", json!(1)),]);
    let batch = json!({"orders": entries, "note": 1});
    let placed = account.post("/v1/orders/batch", &batch).ok(200);
    assert_eq!(placed["warnings"], json!([ignored("note")]));
    let named = placed["results"].as_array().unwrap().iter().map(|it| it.get("warnings").cloned());
    let note = Some(json!([ignored("note")]));
    assert_eq!(named.collect::<Vec<_>>(), [note.clone(), None, note], "{placed}");
}

#[test]
fn an_ignored_parameter_is_named() {
    let account = shared().account();
    for (path, expected) in [
        ("/v1/markets?limit=1", None),
        ("/v1/markets", None),
        ("/v1/markets?_=17&_t=5", None),
        (
            "/v1/markets?limt=1",
            Some(
                "`limt` is not a parameter of GET /v1/markets and was ignored; \
                 did you mean `limit`?",
            ),
        ),
        (
            "/v1/markets?colour=%0D%0Ared&colour=blue&%0d%0aX-Evil:%201=2",
            Some(
                "`\\r\\nX-Evil: 1` is not a parameter of GET /v1/markets and was ignored. \
                 `colour` is not a parameter of GET /v1/markets and was ignored.",
            ),
        ),
        (
            "/v1/orders?statu=OPEN",
            Some(
                "`statu` is not a parameter of GET /v1/orders and was ignored; \
                 did you mean `status`?",
            ),
        ),
        (
            "/v1/account/balance?x=1",
            Some("`x` is not a parameter of GET /v1/account/balance and was ignored."),
        ),
        ("/docs?x=1", None),
        ("/v1/orders/7?x=1", None),
    ] {
        let answer = account.get(path);
        assert_eq!(answer.header("x-polysim-warnings"), expected, "{path}");
        if answer.text.starts_with('{') {
            let named = answer.json().get("warnings").map(|it| it[0].as_str().unwrap().to_owned());
            assert_eq!(named.as_deref(), expected, "{path}");
        }
        let head = account.send(Request::new("HEAD", path));
        assert_eq!(head.header("x-polysim-warnings"), expected, "HEAD {path}");
    }
    let many = account.get("/v1/markets?a=1&b=1&c=1&d=1&e=1&f=1&g=1&limt=1&z=1");
    let warnings = many.header("x-polysim-warnings").unwrap();
    assert!(warnings.ends_with("was ignored. 2 more were ignored."), "{warnings}");
}
