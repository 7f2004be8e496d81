//! Any body is refused or is within its bounds, and an accepted order can be written and read again
//! unchanged.
//!
//! The bytes before the first zero byte, which cannot occur in JSON, are the `Idempotency-Key`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use paperbourse::engine::command::TradeOrder;
use paperbourse::http::error::ApiError;
use paperbourse::http::invalid::Invalid;
use paperbourse::http::json::write::JsonObject;
use paperbourse::http::operations::batch::{BATCH_ENTRIES_MAX, read_batch};
use paperbourse::http::operations::comments::read_comment;
use paperbourse::http::operations::keys::read_new_key;
use paperbourse::http::operations::prices::read_prices;
use paperbourse::http::operations::trade::{
    MARKET_ID_CHARACTERS_MAX, ORDER_NAME_CHARACTERS_MAX, OUTCOME_CHARACTERS_MAX, read_trade,
};
use paperbourse::money::{Price, Shares};
use paperbourse::service::OrderRequest;

fuzz_target!(|input: &[u8]| {
    let (name, body) = match input.iter().position(|&byte| byte == 0) {
        Some(end) => (Some(&input[..end]), &input[end + 1..]),
        None => (None, input),
    };
    if let Some(request) = accepted(read_trade(body, name)) {
        check_bounds(&request);
        let again = read_trade(&write(&request), name);
        assert_eq!(again.expect("an accepted order is accepted again"), request);
    }
    if let Some(requests) = accepted(read_batch(body, name)) {
        assert!((1..=BATCH_ENTRIES_MAX).contains(&requests.len()));
        requests.iter().for_each(check_bounds);
    }
    if let Some(content) = accepted(read_comment(body)) {
        assert!((1..=1000).contains(&content.chars().count()));
    }
    accepted(read_new_key(body));
    accepted(read_prices(body));
});

/// The accepted value; a refusal must name an error, and be JSON for the client.
fn accepted<T>(read: Result<T, Invalid>) -> Option<T> {
    read.map_err(|invalid| {
        assert!(!invalid.errors.is_empty());
        let body = ApiError::from(invalid).body();
        serde_json::from_slice::<serde::de::IgnoredAny>(&body).expect("errors are JSON");
    })
    .ok()
}

fn check_bounds(request: &OrderRequest) {
    let order = &request.order;
    let characters = |text: &str| text.chars().count();
    assert!((1..=MARKET_ID_CHARACTERS_MAX).contains(&characters(&order.market_id)));
    assert!((1..=OUTCOME_CHARACTERS_MAX).contains(&characters(&order.outcome)));
    assert!(order.quantity > Shares::ZERO && order.quantity <= TradeOrder::QUANTITY_MAX);
    assert!(order.expected_price.is_none_or(|price| price >= Price::ZERO && price <= Price::ONE));
    assert!(order.max_slippage_bps.is_none_or(|bps| bps <= 10_000));
    if let Some(name) = request.names.client_order_id() {
        assert!((1..=ORDER_NAME_CHARACTERS_MAX).contains(&characters(name)));
    }
}

fn write(request: &OrderRequest) -> Vec<u8> {
    let order = &request.order;
    let mut out = Vec::new();
    let mut body = JsonObject::new(&mut out);
    body.text("market_id", &order.market_id);
    body.text("outcome", &order.outcome);
    body.word("side", order.side.as_str());
    body.number("quantity", order.quantity.micros());
    body.decimal_or_null("expected_price", order.expected_price.map(Price::micros));
    match order.max_slippage_bps {
        Some(bps) => body.integer("max_slippage_bps", bps.into()),
        None => body.null("max_slippage_bps"),
    }
    body.text_or_null("client_order_id", request.names.client_order_id());
    body.end();
    out
}
