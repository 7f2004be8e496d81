use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::super::order_fields::{
    MARKET_ID_CHARACTERS_MAX, ORDER_NAME_CHARACTERS_MAX, OUTCOME_CHARACTERS_MAX,
};
use super::*;
use crate::http::invalid::tests::errors_of;
use crate::http::json::write::written;
use paperbourse_core::engine::fills::fill::Fill;
use paperbourse_core::engine::order::idempotency::NameHash;
use paperbourse_core::ids::{AccountId, OrderId, Timestamp};
use paperbourse_core::market::book::Side;
use paperbourse_core::money::{FeeRate, Price, Shares, Usd};

/// Ten shares bought at 0.53, with a name that needs escapes.
pub(in crate::http) fn receipt() -> OrderReceipt {
    OrderReceipt {
        order: OrderId::from_raw(71).unwrap(),
        account: AccountId::from_raw(135).unwrap(),
        market_id: "0xabc".into(),
        outcome: "\"Yes\"".into(),
        side: Side::Buy,
        fill: Fill {
            quantity: Shares::from_micros(10_000_000),
            notional: Usd::from_micros(5_300_000),
            fee: Usd::from_micros(10_000),
            fee_rate: FeeRate::from_micros(70_000),
            balance: Usd::from_micros(994_690_000),
            position_shares: Shares::from_micros(30_000_000),
            position_cost: Usd::from_micros(10_000_000),
            at: Timestamp::from_millis(1_784_578_686_071),
        },
        level_count: 2,
        slippage_bps: Some(12),
        client_order_id: Some("a\\b".into()),
        order_state: None,
    }
}

/// A good order in which one field is as given; an empty value leaves it out.
pub(in crate::http) fn with(field: &str, value: &str) -> String {
    let good = [
        ("market_id", "\"0xabc\""),
        ("outcome", "\"Yes\""),
        ("side", "\"BUY\""),
        ("quantity", "10"),
        ("expected_price", ""),
        ("max_slippage_bps", ""),
        ("client_order_id", ""),
    ];
    let fields = good.map(|(name, default)| (name, if name == field { value } else { default }));
    let sent = fields.iter().filter(|(_, value)| !value.is_empty());
    let sent: Vec<String> = sent.map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", sent.join(","))
}

fn read(body: &str) -> TradeOrder {
    match read_trade(body.as_bytes(), None) {
        Ok(request) => request.order,
        Err(error) => panic!("{body}: {error:?}"),
    }
}

#[track_caller]
fn refused(field: &str, value: &str, kind: &str) {
    let body = with(field, value);
    let result = read_trade(body.as_bytes(), None);
    assert_eq!(errors_of(&result), [format!("body.{field}: {kind}")], "{body}");
}

#[test]
fn a_complete_order_is_read() {
    let body = r#"{"market_id":"0xabc","outcome":"Y\u0065s","side":"SELL","quantity":"2.5",
        "expected_price":0.53,"max_slippage_bps":"100","client_order_id":"mine","note":[{}]}"#;
    let request = read_trade(body.as_bytes(), None).unwrap();
    assert_eq!(
        request.order,
        TradeOrder {
            market_id: "0xabc".into(),
            outcome: "Yes".into(),
            side: Side::Sell,
            quantity: Shares::from_micros(2_500_000),
            expected_price: Some(Price::from_micros(530_000)),
            max_slippage_bps: Some(100),
        }
    );
    assert_eq!(request.names.hashes(), [NameHash::of_order("mine")]);
    assert_eq!(request.names.client_order_id(), Some("mine"));
}

#[test]
fn quantities_are_truncated_and_strings_are_exact() {
    for (value, micros) in [
        ("10", 10_000_000),
        ("94.33962264150944", 94_339_622),
        ("0.0000019", 1),
        ("1e-6", 1),
        ("1E6", 1_000_000_000_000),
        ("1000000.0000009", 1_000_000_000_000),
        ("\"10\"", 10_000_000),
        ("\"0.000001\"", 1),
        ("\".5\"", 500_000),
    ] {
        assert_eq!(read(&with("quantity", value)).quantity, Shares::from_micros(micros), "{value}");
    }
    for (value, kind) in [
        ("0", "greater_than"),
        ("-0", "greater_than"),
        ("-1", "greater_than"),
        ("0.0000009", "greater_than"),
        ("1000000.000001", "less_than_equal"),
        ("1e400", "less_than_equal"),
        ("-1e400", "greater_than"),
        ("\"0.0000001\"", "decimal_max_places"),
        ("\"ten\"", "float_parsing"),
        ("\"\"", "float_parsing"),
        ("\" 1\"", "float_parsing"),
        ("\"NaN\"", "float_parsing"),
        ("\"1_000\"", "float_parsing"),
        ("\"\\ud800\"", "float_parsing"),
        ("1.000000000000000000000000000000000000001", "float_parsing"),
        ("true", "float_type"),
        ("[1]", "float_type"),
        ("{}", "float_type"),
        ("null", "missing"),
        ("", "missing"),
    ] {
        refused("quantity", value, kind);
    }
}

#[test]
fn prices_are_rounded_and_stay_between_0_and_1() {
    for (value, expected) in [
        ("", None),
        ("null", None),
        ("0", Some(0)),
        ("1", Some(1_000_000)),
        ("0.5300000000000001", Some(530_000)),
        ("0.0000015", Some(2)),
        ("0.0000025", Some(2)),
        ("\"0.53\"", Some(530_000)),
    ] {
        let price = read(&with("expected_price", value)).expected_price;
        assert_eq!(price, expected.map(Price::from_micros), "{value}");
    }
    for (value, kind) in [
        ("1.1", "less_than_equal"),
        ("-0.1", "greater_than_equal"),
        ("\"0.1234567\"", "decimal_max_places"),
        ("false", "float_type"),
    ] {
        refused("expected_price", value, kind);
    }
}

#[test]
fn slippage_is_a_whole_number_of_basis_points() {
    for (value, expected) in [
        ("null", None),
        ("0", Some(0)),
        ("10000", Some(10_000)),
        ("5.0", Some(5)),
        ("\"250\"", Some(250)),
        ("1e2", Some(100)),
    ] {
        let bps = read(&with("max_slippage_bps", value)).max_slippage_bps;
        assert_eq!(bps, expected, "{value}");
    }
    for (value, kind) in [
        ("10001", "less_than_equal"),
        ("1e30", "less_than_equal"),
        ("-1", "greater_than_equal"),
        ("0.5", "int_from_float"),
        ("5.0000001", "int_from_float"),
        ("\"many\"", "int_parsing"),
        ("true", "int_type"),
    ] {
        refused("max_slippage_bps", value, kind);
    }
}

#[test]
fn texts_are_counted_in_characters() {
    let text = |count: usize| format!("\"{}\"", "é".repeat(count));
    for (field, max) in [
        ("market_id", MARKET_ID_CHARACTERS_MAX),
        ("outcome", OUTCOME_CHARACTERS_MAX),
        ("client_order_id", ORDER_NAME_CHARACTERS_MAX),
    ] {
        read(&with(field, &text(max)));
        refused(field, &text(max + 1), "string_too_long");
        refused(field, "7", "string_type");
        refused(field, "\"\\udfff\"", "string_unicode");
    }
    for field in ["market_id", "outcome"] {
        refused(field, "\"\"", "string_too_short");
        refused(field, "null", "missing");
    }
    for (value, side) in [("\"buy\"", Side::Buy), ("\"Sell\"", Side::Sell)] {
        assert_eq!(read(&with("side", value)).side, side);
    }
    for value in ["\"HOLD\"", "\"BUY \"", "1", "[\"BUY\"]"] {
        refused("side", value, "enum");
    }
}

#[test]
fn every_failing_field_is_reported() {
    let body = br#"{"outcome":"","side":"HOLD","quantity":0,"expected_price":2}"#;
    let result = read_trade(body, Some(b"a b"));
    assert_eq!(
        errors_of(&result),
        [
            "header.idempotency-key: string_pattern_mismatch",
            "body.market_id: missing",
            "body.outcome: string_too_short",
            "body.side: enum",
            "body.quantity: greater_than",
            "body.expected_price: less_than_equal",
        ]
    );
    let result = read_trade(b"[", Some(b"\xe9"));
    assert_eq!(
        errors_of(&result),
        ["header.idempotency-key: string_pattern_mismatch", "body: json_invalid"]
    );
}

#[test]
fn names_come_from_the_header_and_the_body_and_count_once() {
    let longest = "n".repeat(ORDER_NAME_CHARACTERS_MAX);
    for (header, body_name, expected) in [
        (None, "", &[][..]),
        (Some(""), "\"\"", &[]),
        (Some("a"), "null", &["a"]),
        (None, "\"b\"", &["b"]),
        (Some("a"), "\"b\"", &["a", "b"]),
        (Some("a"), "\"a\"", &["a"]),
        (Some(longest.as_str()), "", &[longest.as_str()]),
    ] {
        let body = with("client_order_id", body_name);
        let request = read_trade(body.as_bytes(), header.map(str::as_bytes)).unwrap();
        let expected: Vec<NameHash> =
            expected.iter().map(|name| NameHash::of_order(name)).collect();
        assert_eq!(request.names.hashes().to_vec(), expected, "{header:?} {body_name}");
    }
    let too_long = "n".repeat(ORDER_NAME_CHARACTERS_MAX + 1);
    let result = read_trade(with("", "").as_bytes(), Some(too_long.as_bytes()));
    assert_eq!(errors_of(&result), ["header.idempotency-key: string_too_long"]);
}

/// Millionths as a JSON number, which passes no float.
struct Number(i64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = Shares::from_micros(self.0).to_string();
        RawValue::from_string(text).unwrap().serialize(serializer)
    }
}

/// The answer as a type: what [`write_trade`] writes by hand.
#[derive(Serialize)]
struct TradeAnswer<'a> {
    order_id: u64,
    status: &'static str,
    price: Number,
    quantity: Number,
    notional: Number,
    fee: Number,
    account_balance: Number,
    position: TradedPosition<'a>,
}

#[derive(Serialize)]
struct TradedPosition<'a> {
    market_id: &'a str,
    outcome: &'a str,
    quantity: Number,
    avg_entry_price: Number,
    status: &'static str,
}

impl<'a> TradeAnswer<'a> {
    fn of(receipt: &'a OrderReceipt) -> Self {
        Self {
            order_id: receipt.order.get(),
            status: "FILLED",
            price: Number(receipt.fill.price().micros()),
            quantity: Number(receipt.fill.quantity.micros()),
            notional: Number(receipt.fill.notional.micros()),
            fee: Number(receipt.fill.fee.micros()),
            account_balance: Number(receipt.fill.balance.micros()),
            position: TradedPosition {
                market_id: &receipt.market_id,
                outcome: &receipt.outcome,
                quantity: Number(receipt.fill.position_shares.micros()),
                avg_entry_price: Number(receipt.fill.average_entry_price().micros()),
                status: PositionStatus::of(receipt.fill.position_shares).as_str(),
            },
        }
    }
}

#[test]
fn a_trade_is_shown_in_numbers() {
    insta::assert_snapshot!(written(|out| write_trade(out, &receipt())));
    let mut closed = receipt();
    closed.fill.position_shares = Shares::ZERO;
    closed.fill.position_cost = Usd::ZERO;
    for receipt in [&receipt(), &closed] {
        let by_serde = serde_json::to_string(&TradeAnswer::of(receipt)).unwrap();
        assert_eq!(written(|out| write_trade(out, receipt)), by_serde);
    }
    let closed = written(|out| write_trade(out, &closed));
    assert!(closed.ends_with(r#""quantity":0,"avg_entry_price":0,"status":"CLOSED"}}"#));
}
