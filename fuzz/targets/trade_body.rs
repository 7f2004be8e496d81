//! Any body is refused or is within its bounds, and an accepted order can be written and read again
//! unchanged.
//!
//! The bytes before the first zero byte, which cannot occur in JSON, are the `Idempotency-Key`.

use paperbourse::engine::command::{OrderNames, TradeOrder};
use paperbourse::engine::order::idempotency::RequestedOrder as _;
use paperbourse::engine::order::payload::{NamedTimeInForce, NewOrder};
use paperbourse::http::error::ApiError;
use paperbourse::http::invalid::Invalid;
use paperbourse::http::json::write::JsonObject;
use paperbourse::http::operations::batch::{BATCH_ENTRIES_MAX, read_batch};
use paperbourse::http::operations::comments::read_comment;
use paperbourse::http::operations::keys::read_new_key;
use paperbourse::http::operations::order_fields::{
    MARKET_ID_CHARACTERS_MAX, ORDER_NAME_CHARACTERS_MAX, OUTCOME_CHARACTERS_MAX,
};
use paperbourse::http::operations::orders::place::read_place;
use paperbourse::http::operations::prices::read_prices;
use paperbourse::http::operations::trade::read_trade;
use paperbourse::ids::Timestamp;
use paperbourse::money::{Price, Shares, Usd};
use paperbourse::service::{OrderRequest, PlaceRequest};

pub(crate) fn run(input: &[u8]) {
    let (name, body) = match input.iter().position(|&byte| byte == 0) {
        Some(end) => (Some(&input[..end]), &input[end + 1..]),
        None => (None, input),
    };
    if let Some(request) = accepted(read_trade(body, name)) {
        check_trade(&request);
        let again = read_trade(&write_trade(&request), name);
        assert_eq!(again.expect("an accepted trade is accepted again"), request);
        // At the other path it is the same order, unless it has a field that a trade ignores.
        if let Some(order) = accepted(read_place(body, name)) {
            assert_eq!(order.names, request.names);
        }
    }
    if let Some(request) = accepted(read_place(body, name)) {
        check_order(&request);
        let again = read_place(&write_order(&request), name);
        assert_eq!(again.expect("an accepted order is accepted again"), request);
    }
    if let Some(requests) = accepted(read_batch(body, name)) {
        assert!((1..=BATCH_ENTRIES_MAX).contains(&requests.len()));
        requests.iter().for_each(check_order);
    }
    if let Some(content) = accepted(read_comment(body)) {
        assert!((1..=1000).contains(&content.chars().count()));
    }
    accepted(read_new_key(body));
    accepted(read_prices(body));
}

/// The accepted value; a refusal must name an error, and be JSON for the client.
fn accepted<T>(read: Result<T, Invalid>) -> Option<T> {
    read.map_err(|invalid| {
        assert!(!invalid.errors.is_empty());
        let body = ApiError::from(invalid).body();
        serde_json::from_slice::<serde::de::IgnoredAny>(&body).expect("errors are JSON");
    })
    .ok()
}

fn check_names(market_id: &str, outcome: &str, names: &OrderNames) {
    let characters = |text: &str| text.chars().count();
    assert!((1..=MARKET_ID_CHARACTERS_MAX).contains(&characters(market_id)));
    assert!((1..=OUTCOME_CHARACTERS_MAX).contains(&characters(outcome)));
    if let Some(name) = names.client_order_id() {
        assert!((1..=ORDER_NAME_CHARACTERS_MAX).contains(&characters(name)));
    }
}

fn check_trade(OrderRequest { order, names }: &OrderRequest) {
    check_names(&order.market_id, &order.outcome, names);
    assert!(order.quantity > Shares::ZERO && order.quantity <= TradeOrder::QUANTITY_MAX);
    assert!(order.expected_price.is_none_or(|price| (Price::ZERO..=Price::ONE).contains(&price)));
    assert!(order.max_slippage_bps.is_none_or(|bps| bps <= 10_000));
}

fn check_order(PlaceRequest { order, names }: &PlaceRequest) {
    check_names(&order.market_id, &order.outcome, names);
    let quantity_max = TradeOrder::QUANTITY_MAX;
    assert!(order.quantity.is_none_or(|it| it > Shares::ZERO && it <= quantity_max));
    assert!(order.amount.is_none_or(|it| it > Usd::ZERO && it.micros() <= quantity_max.micros()));
    for price in [order.price, order.expected_price] {
        assert!(price.is_none_or(|price| (Price::ZERO..=Price::ONE).contains(&price)));
    }
    assert!(order.expiration.is_none_or(|at| at >= Timestamp::EPOCH));
    assert!(order.max_slippage_bps.is_none_or(|bps| bps <= 10_000));
    // Neither panics, whatever the fields are.
    order.fingerprint();
    let _intent = order.intent(Timestamp::EPOCH);
}

fn write_trade(OrderRequest { order, names }: &OrderRequest) -> Vec<u8> {
    let mut out = Vec::new();
    let mut body = JsonObject::new(&mut out);
    body.text("market_id", &order.market_id);
    body.text("outcome", &order.outcome);
    body.word("side", order.side.as_str());
    body.number("quantity", order.quantity.micros());
    write_slippage(&mut body, order.expected_price, order.max_slippage_bps);
    body.text_or_null("client_order_id", names.client_order_id());
    body.end();
    out
}

fn write_order(PlaceRequest { order, names }: &PlaceRequest) -> Vec<u8> {
    let NewOrder { quantity, amount, price, time_in_force, expiration, .. } = order;
    let mut out = Vec::new();
    let mut body = JsonObject::new(&mut out);
    body.text("market_id", &order.market_id);
    body.text("outcome", &order.outcome);
    body.word("side", order.side.as_str());
    body.word("order_type", order.kind.as_str());
    body.decimal_or_null("quantity", quantity.map(Shares::micros));
    body.decimal_or_null("amount", amount.map(Usd::micros));
    body.decimal_or_null("price", price.map(Price::micros));
    let time_in_force = time_in_force.map(|name| match name {
        NamedTimeInForce::Gtc => "GTC",
        NamedTimeInForce::Gtd => "GTD",
        NamedTimeInForce::Fok => "FOK",
        NamedTimeInForce::Fak => "IOC",
    });
    body.text_or_null("time_in_force", time_in_force);
    let seconds = expiration.map(|at| at.seconds().to_string());
    body.text_or_null("expiration", seconds.as_deref());
    body.flag("post_only", order.post_only);
    write_slippage(&mut body, order.expected_price, order.max_slippage_bps);
    body.text_or_null("client_order_id", names.client_order_id());
    body.end();
    out
}

fn write_slippage(body: &mut JsonObject<'_>, expected: Option<Price>, bps_max: Option<u16>) {
    body.decimal_or_null("expected_price", expected.map(Price::micros));
    match bps_max {
        Some(bps) => body.integer("max_slippage_bps", bps.into()),
        None => body.null("max_slippage_bps"),
    }
}
