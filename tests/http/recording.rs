//! A venue whose prices are all known in advance: invented markets, written as a recording.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

/// Free, on cents: asks of 100 at 0.50, 1,000 at 0.53, bids of 100 at 0.48, 200 at 0.47. The second
/// outcome has no book of its own.
pub(crate) const PLAIN: &str = "0x0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a";
/// Two million shares at 0.001, and a bid of 500 at 0.0005.
pub(crate) const DEEP: &str = "0x0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b";
/// A fee of 0.05 with exponent 1, on the same book as [`PLAIN`], and a coin that goes up or down.
pub(crate) const WITH_FEE: &str =
    "0x0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c";
pub(crate) const WITH_FEE_SLUG: &str = "coin-updown-5m-1769903700";
pub(crate) const PAUSED: &str =
    "0x0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d";
pub(crate) const RESOLVED: &str =
    "0x0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e";
/// A fee with exponent 3, which is unsupported.
pub(crate) const ODD_FEE: &str =
    "0x0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f";
/// Open, but without any book.
pub(crate) const BOOKLESS: &str =
    "0x1010101010101010101010101010101010101010101010101010101010101010";
/// The number of other markets, each with the book of [`PLAIN`].
pub(crate) const OTHERS: usize = 60;
/// The number of all markets.
pub(crate) const MARKETS: usize = 7 + OTHERS;

/// The id of one of the other markets.
pub(crate) fn other(number: usize) -> String {
    format!("0x{:064x}", 0xffff_0000 + number)
}

/// The token of an outcome, by the market's index in the list.
pub(crate) fn token_id(place: usize, outcome: usize) -> String {
    format!("{}", 700_000 + 2 * place + outcome)
}

/// An order for the first outcome of the plain market.
pub(crate) fn buy(quantity: i64) -> Value {
    json!({"market_id": PLAIN, "outcome": "Yes", "side": "BUY", "quantity": quantity})
}

/// An order that sells shares of the same outcome.
pub(crate) fn sell(quantity: i64) -> Value {
    json!({"market_id": PLAIN, "outcome": "Yes", "side": "SELL", "quantity": quantity})
}

/// A limit order for the same outcome.
pub(crate) fn limit(side: &str, quantity: i64, price: &str) -> Value {
    json!({"market_id": PLAIN, "outcome": "Yes", "side": side, "order_type": "limit",
           "quantity": quantity, "price": price})
}

/// Writes the recording into a folder.
pub(crate) fn write(folder: &Path) {
    fs::create_dir_all(folder.join("gamma")).unwrap();
    fs::create_dir_all(folder.join("clob")).unwrap();
    let mut ids: Vec<String> =
        [PLAIN, DEEP, WITH_FEE, PAUSED, RESOLVED, ODD_FEE, BOOKLESS].map(String::from).into();
    ids.extend((0..OTHERS).map(other));
    assert_eq!(ids.len(), MARKETS);
    let rows = ids.iter().enumerate();
    let markets: Vec<String> =
        rows.clone().map(|(place, id)| market(place, id).to_string()).collect();
    let books: Vec<String> = rows
        .filter(|(_, id)| ![RESOLVED, BOOKLESS].contains(&id.as_str()))
        .map(|(place, id)| book(place, id).to_string())
        .collect();
    fs::write(folder.join("gamma/markets.jsonl"), markets.join("\n")).unwrap();
    fs::write(folder.join("clob/books.jsonl"), books.join("\n")).unwrap();
}

fn market(place: usize, id: &str) -> Value {
    let is_coin = id == WITH_FEE;
    let labels = if is_coin { ["Up", "Down"] } else { ["Yes", "No"] };
    let slug = if is_coin { WITH_FEE_SLUG.to_owned() } else { format!("invented-market-{place}") };
    let is_closed = id == RESOLVED;
    let prices = if is_closed { ["1", "0"] } else { ["0.5", "0.5"] };
    let mut market = json!({
        "id": format!("{}", 9_000 + place),
        "conditionId": id,
        "slug": slug,
        "question": format!("Does invented thing {place} happen?"),
        "category": if is_coin { "Coins" } else { "Weather" },
        "outcomes": json!(labels).to_string(),
        "outcomePrices": json!(prices).to_string(),
        "clobTokenIds": json!([token_id(place, 0), token_id(place, 1)]).to_string(),
        "active": true,
        "closed": is_closed,
        "enableOrderBook": true,
        "acceptingOrders": !is_closed && id != PAUSED,
        "orderPriceMinTickSize": if id == DEEP { 0.0001 } else { 0.01 },
        "orderMinSize": 5,
        "negRisk": false,
        "feesEnabled": false,
        "updatedAt": "2026-01-10T10:00:00Z",
        "endDate": "2026-02-01T00:00:00Z",
        "volumeNum": if id == DEEP { 9_000.5 } else { 1_000.25 },
        "volume24hr": 10.25,
    });
    if [PLAIN, DEEP].contains(&id) {
        market["events"] = json!([{"id": "55", "slug": "first-things", "title": "First things"}]);
    }
    if is_closed {
        market["umaResolutionStatus"] = json!("resolved");
    }
    if [WITH_FEE, ODD_FEE].contains(&id) {
        market["feesEnabled"] = json!(true);
        let exponent = if id == ODD_FEE { 3 } else { 1 };
        market["feeSchedule"] = json!({"rate": 0.05, "exponent": exponent});
    }
    market
}

fn book(place: usize, id: &str) -> Value {
    let level = |price: &str, size: &str| json!({"price": price, "size": size});
    let (bids, asks) = if id == DEEP {
        (vec![level("0.0005", "500")], vec![level("0.001", "2000000")])
    } else {
        (
            vec![level("0.47", "200"), level("0.48", "100")],
            vec![level("0.53", "1000"), level("0.5", "100")],
        )
    };
    json!({
        "market": id,
        "asset_id": token_id(place, 0),
        "timestamp": "1768039205000",
        "hash": null,
        "bids": bids,
        "asks": asks,
        "min_order_size": "5",
        "tick_size": if id == DEEP { "0.0001" } else { "0.01" },
        "neg_risk": false,
        "last_trade_price": "0.49",
    })
}
