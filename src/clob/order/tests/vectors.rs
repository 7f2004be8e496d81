//! What the venue's own clients have signed.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::*;
use crate::vectors;

/// Micro-units of a decimal.
fn micros(text: &str) -> u64 {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    format!("{whole}{decimals:0<6}").parse().unwrap()
}

fn market(vector: &Value) -> MarketFacts {
    let market = &vector["market"];
    let kind = match (&vector["version"], &market["neg_risk"]) {
        (version, _) if version == 3 => MarketKind::Position,
        (_, Value::Bool(true)) => MarketKind::NegRisk,
        _ => MarketKind::Standard,
    };
    MarketFacts { kind, tick_micros: micros(vectors::text(market, "tick")) }
}

fn caller(vector: &Value) -> Caller<'_> {
    let address = Address::parse(vectors::text(&vector["headers"], "POLY_ADDRESS")).unwrap();
    Caller { address, api_key: vectors::text(&vector["headers"], "POLY_API_KEY") }
}

/// The orders in a body.
fn posted(vector: &Value) -> Vec<PostedOrder> {
    let body = vectors::text(vector, "body");
    let texts = match serde_json::from_str::<Vec<&RawValue>>(body) {
        Ok(list) => list.into_iter().map(RawValue::get).collect(),
        Err(_) => vec![body],
    };
    texts.into_iter().map(|text| PostedOrder::parse(text.as_bytes()).unwrap()).collect()
}

/// Checks an order of a vector. Returns whether the venue would accept its decimals.
fn check(order: &SignedOrder, vector: &Value, expected: &Value) -> bool {
    let means = &expected["means"];
    let market = market(vector);
    assert_eq!(order.id.to_string(), vectors::text(expected, "order_id"), "{vector}");
    assert_eq!(order.signer.checksummed(), vectors::text(expected, "recovered"));
    assert_eq!(order.maker.checksummed(), vectors::text(expected, "maker"));
    assert_eq!(order.signature_type.number(), expected["signature_type"]);
    assert_eq!(order.chain.id(), vector["chain_id"]);
    assert_eq!(order.version as u64 + 1, expected["version"]);
    assert_eq!(order.side, if means["side"] == "BUY" { Side::Buy } else { Side::Sell });
    assert_eq!(format!("{:?}", order.order_type).to_uppercase(), means["order_type"]);
    assert_eq!(order.expiration_s, means["expiration"]);
    assert_eq!(order.post_only, means["post_only"]);
    let size = match means["budget"].as_str() {
        Some(budget) => OrderSize::Budget(micros(budget)),
        None => OrderSize::Shares(micros(vectors::text(means, "size"))),
    };
    let price_micros = micros(vectors::text(means, "limit_price"));
    assert_eq!(order.terms(&market), Ok(OrderTerms { price_micros, size }), "{vector}");
    let is_allowed = order.check_decimals(&market).is_ok();
    assert_eq!(is_allowed, expected["venue_accepts"], "{vector}");
    is_allowed
}

#[test]
fn what_clients_signed_means_what_they_asked_for() {
    let Some(file) = vectors::read() else { return };
    let (mut count, mut strict_count) = (0, 0);
    let mut clients = BTreeMap::<&str, u32>::new();
    for vector in vectors::rows(&file, "vectors") {
        let expected = vectors::rows(vector, "orders");
        if expected.is_empty() {
            continue;
        }
        let posted = posted(vector);
        assert_eq!(posted.len(), expected.len());
        for (posted, expected) in posted.iter().zip(expected) {
            let order = posted.verify(&caller(vector), &market(vector));
            let order = order.unwrap_or_else(|error| panic!("{error}: {vector}"));
            strict_count += u32::from(check(&order, vector, expected));
            count += 1;
        }
        *clients.entry(vectors::text(vector, "client")).or_default() += 1;
    }
    eprintln!("{count} orders, of which the venue takes {strict_count}; requests by {clients:?}");
    assert!(count >= 539 && strict_count < count);
}

#[test]
fn forged_orders_get_the_errors_of_the_venue() {
    let Some(file) = vectors::read() else { return };
    let (mut refused, mut accepted, mut l1, mut l2) = (0, 0, 0, 0);
    for forgery in vectors::rows(&file, "forgeries") {
        let expected = &forgery["expect"];
        let name = vectors::text(forgery, "name");
        // Refused before anybody looks at the order: the tests of `signature` and of `credentials`.
        if name.starts_with("L1:") {
            l1 += 1;
            continue;
        }
        if name.starts_with("L2:") {
            l2 += 1;
            continue;
        }
        let order = PostedOrder::parse(vectors::text(forgery, "body").as_bytes())
            .and_then(|posted| posted.verify(&caller(forgery), &market(forgery)))
            .and_then(|order| order.terms(&market(forgery)).map(|_| order));
        match (order, expected["status"].as_u64()) {
            (Ok(order), Some(200)) => {
                assert_eq!(order.id.to_string(), vectors::text(expected, "order_id"));
                accepted += 1;
            }
            (Err(error), Some(400)) => {
                let text = expected["error"].as_str();
                assert!(text.is_none_or(|text| text == error.to_string()), "{error}: {forgery}");
                refused += 1;
            }
            (result, _) => panic!("{result:?}: {forgery}"),
        }
    }
    eprintln!(
        "{refused} refused and {accepted} accepted; of the rest, L1 refuses {l1} and L2 {l2}"
    );
    assert!(refused >= 183 && accepted >= 12);
}
