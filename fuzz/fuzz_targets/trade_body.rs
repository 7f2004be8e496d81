//! Whatever is sent as an order is refused or is inside its bounds, and an order that was read can
//! be written and read again without a change.

#![no_main]

use libfuzzer_sys::fuzz_target;
use paperbourse::engine::command::TradeOrder;
use paperbourse::http::error::ApiError;
use paperbourse::http::request::order::{
    BATCH_ENTRIES_MAX, MARKET_ID_CHARACTERS_MAX, ORDER_NAME_CHARACTERS_MAX, OUTCOME_CHARACTERS_MAX,
    TradeRequest, read_batch,
};
use paperbourse::http::respond::json::JsonObject;
use paperbourse::money::{Price, Shares};

fuzz_target!(|body: &[u8]| {
    match TradeRequest::read(body, None) {
        Ok(request) => {
            check_bounds(&request);
            let written = write(&request);
            let again = TradeRequest::read(&written, None).expect("what was accepted is accepted");
            assert_eq!(again, request);
        }
        Err(invalid) => {
            let body = ApiError::from(invalid).body();
            serde_json::from_slice::<serde::de::IgnoredAny>(&body).expect("errors are JSON");
        }
    }
    if let Ok(requests) = read_batch(body, Some(b"batch")) {
        assert!((1..=BATCH_ENTRIES_MAX).contains(&requests.len()));
        requests.iter().for_each(check_bounds);
    }
});

fn check_bounds(request: &TradeRequest) {
    let order = &request.order;
    let characters = |text: &str| text.chars().count();
    assert!((1..=MARKET_ID_CHARACTERS_MAX).contains(&characters(&order.market_id)));
    assert!((1..=OUTCOME_CHARACTERS_MAX).contains(&characters(&order.outcome)));
    assert!(order.quantity > Shares::ZERO && order.quantity <= TradeOrder::QUANTITY_MAX);
    assert!(order.expected_price.is_none_or(|price| price >= Price::ZERO && price <= Price::ONE));
    assert!(order.max_slippage_bps.is_none_or(|bps| bps <= 10_000));
    if let Some(name) = &request.names.client_order_id {
        assert!((1..=ORDER_NAME_CHARACTERS_MAX).contains(&characters(name)));
    }
}

fn write(request: &TradeRequest) -> Vec<u8> {
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
    body.text_or_null("client_order_id", request.names.client_order_id.as_deref());
    body.end();
    out
}
