use super::*;
use crate::http::invalid::tests::errors_of;
use crate::http::operations::trade::read_trade;
use crate::http::operations::trade::tests::with;
use paperbourse_core::engine::order::idempotency::{NameHash, RequestedOrder as _};
use paperbourse_core::market::book::Side;
use paperbourse_core::money::Shares;

/// A good order with this field.
fn with_field(field: &str, value: &str) -> String {
    let good = with(field, value);
    let is_known = good.contains(&format!("\"{field}\":"));
    if is_known { good } else { good.replacen('{', &format!("{{\"{field}\":{value},"), 1) }
}

fn read(body: &str) -> NewOrder {
    match read_place(body.as_bytes(), None) {
        Ok(request) => request.order,
        Err(error) => panic!("{body}: {error:?}"),
    }
}

/// Checks what is read from a field with each of these values, or the kind of the error.
#[track_caller]
fn check<T: PartialEq + std::fmt::Debug>(
    field: &str,
    of: impl Fn(NewOrder) -> T,
    rows: &[(&str, Result<T, &str>)],
) {
    for (value, expected) in rows {
        let body = with_field(field, value);
        match (read_place(body.as_bytes(), None), expected) {
            (Ok(request), Ok(expected)) => assert_eq!(&of(request.order), expected, "{body}"),
            (result, Err(kind)) => {
                assert_eq!(errors_of(&result), [format!("body.{field}: {kind}")], "{body}");
            }
            (Err(error), Ok(_)) => panic!("{body}: {error:?}"),
        }
    }
}

#[test]
fn an_order_of_the_sdk_is_read() {
    let body = r#"{"market_id":"0xabc","side":"SELL","outcome":"Yes","order_type":"limit",
        "quantity":"2.5","price":0.53,"time_in_force":"GTD","post_only":true,
        "expiration":"1800000000","client_order_id":"mine","wallet_id":[{}]}"#;
    let request = read_place(body.as_bytes(), Some(b"header")).unwrap();
    assert_eq!(
        request.order,
        NewOrder {
            market_id: "0xabc".into(),
            outcome: "Yes".into(),
            side: Side::Sell,
            kind: OrderKind::Limit,
            quantity: Some(Shares::from_micros(2_500_000)),
            amount: None,
            price: Some(Price::from_micros(530_000)),
            time_in_force: Some(NamedTimeInForce::Gtd),
            expiration: Some(Timestamp::from_seconds(1_800_000_000)),
            post_only: true,
            expected_price: None,
            max_slippage_bps: None,
        }
    );
    assert_eq!(request.names.hashes(), ["header", "mine"].map(NameHash::of_order));
    assert_eq!(request.names.client_order_id(), Some("mine"));
}

#[test]
fn a_trade_is_the_same_order_here() {
    for (field, value) in [
        ("", ""),
        ("expected_price", "0.5"),
        ("max_slippage_bps", "\"7\""),
        ("client_order_id", "\"n\""),
        ("quantity", "94.33962264150944"),
    ] {
        let body = with(field, value);
        let trade = read_trade(body.as_bytes(), None).unwrap();
        let placed = read_place(body.as_bytes(), None).unwrap();
        assert_eq!(placed.order.fingerprint(), trade.order.fingerprint(), "{body}");
        assert_eq!(placed.names, trade.names);
    }
}

#[test]
fn words_are_read_in_any_case() {
    use NamedTimeInForce::{Fak, Fok, Gtc, Gtd};
    check(
        "side",
        |order| order.side,
        &[
            ("\"BUY\"", Ok(Side::Buy)),
            ("\"sell\"", Ok(Side::Sell)),
            ("\"hold\"", Err("enum")),
            ("1", Err("enum")),
            ("null", Err("missing")),
        ],
    );
    check(
        "order_type",
        |order| order.kind,
        &[
            ("null", Ok(OrderKind::Market)),
            ("\"market\"", Ok(OrderKind::Market)),
            ("\"Limit\"", Ok(OrderKind::Limit)),
            ("\"stop\"", Err("enum")),
            ("\"\"", Err("enum")),
            ("[\"limit\"]", Err("enum")),
        ],
    );
    check(
        "time_in_force",
        |order| order.time_in_force,
        &[
            ("null", Ok(None)),
            ("\"GTC\"", Ok(Some(Gtc))),
            ("\"gtd\"", Ok(Some(Gtd))),
            ("\"FOK\"", Ok(Some(Fok))),
            ("\"FAK\"", Ok(Some(Fak))),
            ("\"IOC\"", Ok(Some(Fak))),
            ("\"DAY\"", Err("enum")),
            ("true", Err("enum")),
        ],
    );
    check(
        "post_only",
        |order| order.post_only,
        &[
            ("null", Ok(false)),
            ("false", Ok(false)),
            ("true", Ok(true)),
            ("\"true\"", Err("bool_type")),
            ("1", Err("bool_type")),
        ],
    );
}

#[test]
fn numbers_follow_the_rules_of_a_trade() {
    let shares = |micros| Ok(Some(Shares::from_micros(micros)));
    check(
        "quantity",
        |order| order.quantity,
        &[
            ("null", Ok(None)),
            ("\"10\"", shares(10_000_000)),
            ("94.33962264150944", shares(94_339_622)),
            ("0", Err("greater_than")),
            ("\"0.0000001\"", Err("decimal_max_places")),
            ("1000000.000001", Err("less_than_equal")),
        ],
    );
    let dollars = |micros| Ok(Some(Usd::from_micros(micros)));
    check(
        "amount",
        |order| order.amount,
        &[
            ("null", Ok(None)),
            ("25", dollars(25_000_000)),
            ("\"0.000001\"", dollars(1)),
            ("0.0000019", dollars(1)),
            ("1000000", dollars(1_000_000_000_000)),
            ("0", Err("greater_than")),
            ("0.0000009", Err("greater_than")),
            ("\"1.0000001\"", Err("decimal_max_places")),
            ("1000000.1", Err("less_than_equal")),
            ("true", Err("float_type")),
        ],
    );
    let price = |micros| Ok(Some(Price::from_micros(micros)));
    check(
        "price",
        |order| order.price,
        &[
            ("null", Ok(None)),
            ("0", price(0)),
            ("\"1\"", price(1_000_000)),
            ("0.5300000000000001", price(530_000)),
            ("0.0000025", price(2)),
            ("1.01", Err("less_than_equal")),
            ("-0.01", Err("greater_than_equal")),
            ("\"0.1234567\"", Err("decimal_max_places")),
            ("\"half\"", Err("float_parsing")),
        ],
    );
    let at = |seconds| Ok(Some(Timestamp::from_seconds(seconds)));
    check(
        "expiration",
        |order| order.expiration,
        &[
            ("null", Ok(None)),
            ("0", at(0)),
            ("1800000000", at(1_800_000_000)),
            ("\"1800000000\"", at(1_800_000_000)),
            ("9223372036", at(9_223_372_036)),
            // Milliseconds.
            ("1800000000000", Err("less_than_equal")),
            ("-1", Err("greater_than_equal")),
            ("1.5", Err("int_from_float")),
            ("\"soon\"", Err("int_parsing")),
            ("false", Err("int_type")),
        ],
    );
}

#[test]
fn every_failing_field_is_reported() {
    let body = br#"{"market_id":"","side":"UP","order_type":"stop","quantity":0,"amount":-1,
        "price":2,"time_in_force":"X","expiration":"x","post_only":"x","expected_price":2,
        "max_slippage_bps":-1,"client_order_id":1}"#;
    let failing = errors_of(&read_place(body, Some(b"a b")));
    insta::assert_snapshot!(failing.join("\n"), @r"
    header.idempotency-key: string_pattern_mismatch
    body.market_id: string_too_short
    body.outcome: missing
    body.side: enum
    body.order_type: enum
    body.quantity: greater_than
    body.amount: greater_than
    body.price: less_than_equal
    body.time_in_force: enum
    body.expiration: int_parsing
    body.post_only: bool_type
    body.expected_price: less_than_equal
    body.max_slippage_bps: greater_than_equal
    body.client_order_id: string_type
    ");
}

#[test]
fn which_fields_go_together_is_not_decided_here() {
    let body = r#"{"market_id":"m","outcome":"o","side":"BUY","quantity":1,"amount":1}"#;
    let order = read(body);
    assert!(order.quantity.is_some() && order.amount.is_some());
    read(r#"{"market_id":"m","outcome":"o","side":"BUY","order_type":"limit"}"#);
}
