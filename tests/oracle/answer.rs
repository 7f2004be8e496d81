//! The server's answer to an order, with each number as the digits the server wrote.

use paperbourse_test_support::Response;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::script::{Fill, Outcome};

#[derive(Deserialize)]
struct FillAnswer<'a> {
    status: &'a str,
    #[serde(borrow)]
    price: &'a RawValue,
    quantity: &'a RawValue,
    notional: &'a RawValue,
    fee: &'a RawValue,
    account_balance: &'a RawValue,
    position: PositionAnswer<'a>,
}

#[derive(Deserialize)]
struct PositionAnswer<'a> {
    #[serde(borrow)]
    quantity: &'a RawValue,
    avg_entry_price: &'a RawValue,
    status: &'a str,
}

#[derive(Deserialize)]
struct ErrorAnswer {
    error: String,
}

/// The outcome of an order for this quantity. Checks that the parts of the answer agree.
pub(crate) fn outcome(answer: &Response, quantity: &str) -> Outcome {
    let Response { status, text: body, .. } = answer;
    if *status != 200 {
        let ErrorAnswer { error: code } = serde_json::from_str(body).unwrap();
        let expected = match code.as_str() {
            "MARKET_NOT_FOUND" | "OUTCOME_NOT_FOUND" => 404,
            "VENUE_UNAVAILABLE" => 503,
            _ => 400,
        };
        assert_eq!(*status, expected, "{body}");
        return Outcome::Rejected { code };
    }
    let fill: FillAnswer<'_> = serde_json::from_str(body).unwrap();
    let text = |number: &RawValue| number.get().to_owned();
    assert_eq!(fill.status, "FILLED", "{body}");
    assert_eq!(fill.quantity.get(), quantity, "an order fills completely: {body}");
    let is_closed = fill.position.quantity.get() == "0";
    assert_eq!(fill.position.status, if is_closed { "CLOSED" } else { "OPEN" }, "{body}");
    Outcome::Filled(Fill {
        price: text(fill.price),
        notional: text(fill.notional),
        fee: text(fill.fee),
        balance: text(fill.account_balance),
        position_quantity: text(fill.position.quantity),
        average_entry_price: text(fill.position.avg_entry_price),
    })
}
