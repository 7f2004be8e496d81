//! Each field of a trade, just inside and just outside its bounds.

use paperbourse_test_support::Request;
use serde_json::json;

use super::expect::Outcome::{self, Done, Invalid, Refused};
use super::expect::check_invalid;
use super::recording::{DEEP, buy};
use super::server::{Account, shared};

/// Sends an order for one share with one field replaced by JSON text.
#[track_caller]
fn check(account: &Account<'_>, field: &str, text: &str, outcome: Outcome<'_>) {
    let mut order = buy(1);
    order[field] = json!("REPLACED");
    let body = order.to_string().replace("\"REPLACED\"", text);
    let response = account.send(Request::new("POST", "/trade").body(body));
    println!("{field} = {text}");
    outcome.check(&response);
}

#[track_caller]
fn check_all(field: &str, rows: &[(&str, Outcome<'_>)]) {
    let account = shared().account();
    for (text, outcome) in rows {
        check(&account, field, text, *outcome);
    }
}

fn text(character: &str, count: usize) -> String {
    format!("\"{}\"", character.repeat(count))
}

#[test]
fn market_id() {
    let unknown = Refused(404, "MARKET_NOT_FOUND");
    let too_long = Invalid(&["body.market_id: string_too_long"]);
    check_all(
        "market_id",
        &[
            (&text("m", 1), unknown),
            (&text("m", 255), unknown),
            (&text("m", 256), unknown),
            (&text("é", 256), unknown),
            (&text("m", 257), too_long),
            (&text("é", 257), too_long),
            ("\"\"", Invalid(&["body.market_id: string_too_short"])),
            ("null", Invalid(&["body.market_id: missing"])),
            ("7", Invalid(&["body.market_id: string_type"])),
            ("\"\\ud800\"", Invalid(&["body.market_id: string_unicode"])),
        ],
    );
}

#[test]
fn outcome() {
    let unknown = Refused(404, "OUTCOME_NOT_FOUND");
    let too_long = Invalid(&["body.outcome: string_too_long"]);
    check_all(
        "outcome",
        &[
            ("\"Yes\"", Done),
            ("\"yES\"", Done),
            ("\"No\"", Done),
            ("\"Maybe\"", unknown),
            (&text("o", 199), unknown),
            (&text("o", 200), unknown),
            (&text("é", 200), unknown),
            (&text("o", 201), too_long),
            (&text("é", 201), too_long),
            ("\"\"", Invalid(&["body.outcome: string_too_short"])),
            ("null", Invalid(&["body.outcome: missing"])),
            ("true", Invalid(&["body.outcome: string_type"])),
        ],
    );
}

#[test]
fn side() {
    let wrong = Invalid(&["body.side: enum"]);
    check_all(
        "side",
        &[
            ("\"BUY\"", Done),
            ("\"SELL\"", Done),
            ("\"buy\"", Done),
            ("\"Sell\"", Done),
            ("\"HOLD\"", wrong),
            ("\"\"", wrong),
            ("1", wrong),
            ("null", Invalid(&["body.side: missing"])),
        ],
    );
}

#[test]
fn quantity() {
    let not_above = Invalid(&["body.quantity: greater_than"]);
    let too_much = Invalid(&["body.quantity: less_than_equal"]);
    let too_precise = Invalid(&["body.quantity: decimal_max_places"]);
    let unreadable = Invalid(&["body.quantity: float_parsing"]);
    let digits_40 = format!("1.{}", "0".repeat(38));
    let digits_41 = format!("1.{}", "0".repeat(39));
    check_all(
        "quantity",
        &[
            ("0", not_above),
            ("-0", not_above),
            ("0.0", not_above),
            ("-0.000001", not_above),
            ("-1", not_above),
            ("0.000001", Done),
            ("1e-6", Done),
            ("\"0.000001\"", Done),
            ("0.0000001", not_above),
            ("0.0000019", Done),
            ("\"0.0000001\"", too_precise),
            ("\"1.5\"", Done),
            ("\"1.1234567\"", too_precise),
            ("94.33962264150944", Done),
            ("1000000", Refused(400, "INSUFFICIENT_LIQUIDITY")),
            ("1000000.0000001", Refused(400, "INSUFFICIENT_LIQUIDITY")),
            ("1000000.000001", too_much),
            ("\"1000000\"", Refused(400, "INSUFFICIENT_LIQUIDITY")),
            ("\"1000000.000001\"", too_much),
            ("1e300", too_much),
            (&digits_40, Done),
            (&digits_41, unreadable),
            (&format!("\"{digits_41}\""), unreadable),
            ("\"\"", unreadable),
            ("\"ten\"", unreadable),
            ("\"NaN\"", unreadable),
            ("\"1,5\"", unreadable),
            ("true", Invalid(&["body.quantity: float_type"])),
            ("[1]", Invalid(&["body.quantity: float_type"])),
            ("null", Invalid(&["body.quantity: missing"])),
        ],
    );
}

#[test]
fn the_largest_quantity_fills_on_a_deep_book() {
    let account = shared().account();
    let mut order = buy(1_000_000);
    order["market_id"] = json!(DEEP);
    let result = account.post("/trade", &order).ok(200);
    assert_eq!(result["quantity"], 1_000_000);
    assert_eq!((&result["notional"], &result["account_balance"]), (&json!(1000), &json!(0)));
}

#[test]
fn float_noise_is_cut_and_shown() {
    let account = shared().account();
    for (sent, used) in [
        (json!(50.0 / 0.53), json!(94.339_622)),
        (json!(0.1 + 0.2), json!(0.3)),
        (json!("2.5"), json!(2.5)),
    ] {
        let mut order = buy(1);
        order["quantity"] = sent;
        assert_eq!(account.post("/trade", &order).ok(200)["quantity"], used);
    }
}

#[test]
fn client_order_id() {
    let too_long = Invalid(&["body.client_order_id: string_too_long"]);
    check_all(
        "client_order_id",
        &[
            (&text("n", 256), Done),
            (&text("é", 256), Done),
            (&text("n", 257), too_long),
            (&text("é", 257), too_long),
            ("\"\"", Done),
            ("null", Done),
            ("5", Invalid(&["body.client_order_id: string_type"])),
        ],
    );
}

#[test]
fn expected_price() {
    let too_low = Invalid(&["body.expected_price: greater_than_equal"]);
    let too_high = Invalid(&["body.expected_price: less_than_equal"]);
    check_all(
        "expected_price",
        &[
            // In range, but any price is infinitely worse than 0.
            ("0", Refused(400, "SLIPPAGE_EXCEEDED")),
            ("-0.0000001", Refused(400, "SLIPPAGE_EXCEEDED")),
            ("0.000001", Refused(400, "SLIPPAGE_EXCEEDED")),
            ("-0.000001", too_low),
            ("1", Done),
            ("0.999999", Done),
            ("1.0000001", Done),
            ("1.000001", too_high),
            ("\"0.53\"", Done),
            ("\"0.500000\"", Done),
            ("\"0.5000000\"", Invalid(&["body.expected_price: decimal_max_places"])),
            ("\"0.5000001\"", Invalid(&["body.expected_price: decimal_max_places"])),
            ("\"half\"", Invalid(&["body.expected_price: float_parsing"])),
            ("{}", Invalid(&["body.expected_price: float_type"])),
            ("null", Done),
        ],
    );
}

#[test]
fn max_slippage_bps() {
    let fraction = Invalid(&["body.max_slippage_bps: int_from_float"]);
    check_all(
        "max_slippage_bps",
        &[
            ("0", Done),
            ("1", Done),
            ("9999", Done),
            ("10000", Done),
            ("10001", Invalid(&["body.max_slippage_bps: less_than_equal"])),
            ("-1", Invalid(&["body.max_slippage_bps: greater_than_equal"])),
            ("1.5", fraction),
            ("100.0", Done),
            ("\"100\"", Done),
            ("\"1.5\"", fraction),
            ("\"many\"", Invalid(&["body.max_slippage_bps: int_parsing"])),
            ("false", Invalid(&["body.max_slippage_bps: int_type"])),
            ("null", Done),
        ],
    );
}

#[test]
fn idempotency_key() {
    let account = shared().account();
    let too_long = Invalid(&["header.idempotency-key: string_too_long"]);
    let unreadable = Invalid(&["header.idempotency-key: string_pattern_mismatch"]);
    for (name, outcome) in [
        (b"a".to_vec(), Done),
        (b"!~".to_vec(), Done),
        (vec![b'k'; 255], Done),
        (vec![b'k'; 256], Done),
        (vec![b'k'; 257], too_long),
        (b"two words".to_vec(), unreadable),
        ("schlüssel".as_bytes().to_vec(), unreadable),
        (b"\xff".to_vec(), unreadable),
        (b"tab\tinside".to_vec(), unreadable),
        (b"".to_vec(), Done),
    ] {
        let request = Request::post("/trade", &buy(1)).header("idempotency-key", name.clone());
        println!("{}", String::from_utf8_lossy(&name));
        outcome.check(&account.send(request));
    }
}

#[test]
fn every_failing_field_is_reported() {
    let account = shared().account();
    let response = account.post("/trade", &json!({}));
    check_invalid(
        &response,
        &[
            "body.market_id: missing",
            "body.outcome: missing",
            "body.side: missing",
            "body.quantity: missing",
        ],
    );
    let body = json!({
        "market_id": "m".repeat(257), "outcome": 1, "side": "UP", "quantity": 0,
        "client_order_id": [], "expected_price": 2, "max_slippage_bps": -1,
    });
    let request = Request::post("/trade", &body).header("idempotency-key", "two words");
    check_invalid(
        &account.send(request),
        &[
            "header.idempotency-key: string_pattern_mismatch",
            "body.market_id: string_too_long",
            "body.outcome: string_type",
            "body.side: enum",
            "body.quantity: greater_than",
            "body.expected_price: less_than_equal",
            "body.max_slippage_bps: greater_than_equal",
            "body.client_order_id: string_type",
        ],
    );
}
