//! The order book service's description of a market: as recorded, or built from the stand-in's
//! state.

use serde_json::{Value, json};

use super::market::{Market, Payout};
use super::state::State;

/// `/markets/{condition id}`.
pub(crate) fn long(state: &State, place: usize) -> String {
    let market = &state.markets[place];
    if let Some(recorded) = &market.long {
        return recorded.clone();
    }
    let field = |name: &str| market.description.as_ref().map(|known| known.field(name).clone());
    let tokens: Vec<Value> = (0..)
        .zip(&market.tokens)
        .map(|(outcome, &token)| {
            let (price, is_winner) = match market.payout {
                Some(Payout::Winner(winner)) => {
                    (f64::from(u8::from(winner == outcome)), winner == outcome)
                }
                Some(Payout::Half) => (0.5, false),
                // An ordinary price, which reveals no payout.
                None => (if outcome == 0 { 0.6 } else { 0.4 }, false),
            };
            json!({
                "token_id": state.tokens[token].id,
                "outcome": market.outcomes[outcome],
                "price": price,
                "winner": is_winner,
            })
        })
        .collect();
    let is_closed = is_set(market, "closed") || market.payout.is_some();
    json!({
        "condition_id": market.condition_id,
        "question": field("question"),
        "market_slug": field("slug"),
        "active": true,
        "closed": is_closed,
        "archived": false,
        "accepting_orders": !is_closed,
        "enable_order_book": !is_closed,
        "minimum_order_size": number(&market.min_order_size),
        "minimum_tick_size": number(&market.tick_size),
        "neg_risk": market.neg_risk,
        "is_50_50_outcome": market.payout == Some(Payout::Half),
        "seconds_delay": seconds_delay(market).unwrap_or(json!(0)),
        "maker_base_fee": 0,
        "taker_base_fee": 0,
        "tokens": tokens,
        "tags": ["All"],
    })
    .to_string()
}

/// `/clob-markets/{condition id}`, with short keys.
pub(crate) fn compact(state: &State, place: usize) -> String {
    let market = &state.markets[place];
    if let Some(recorded) = &market.compact {
        return recorded.clone();
    }
    let tokens: Vec<Value> = market
        .tokens
        .iter()
        .zip(&market.outcomes)
        .map(|(&token, outcome)| json!({"t": state.tokens[token].id, "o": outcome}))
        .collect();
    let mut body = json!({
        "c": market.condition_id,
        "t": tokens,
        "mos": number(&market.min_order_size),
        "mts": number(&market.tick_size),
        "mbf": 1000,
        "tbf": 1000,
        "ao": !is_set(market, "closed"),
    });
    if market.neg_risk {
        body["nr"] = json!(true);
    }
    if market.holds_takers {
        body["itode"] = json!(true);
    }
    if let Some(delay) = seconds_delay(market) {
        body["sd"] = delay;
    }
    let schedule = market.description.as_ref().map(|known| known.field("feeSchedule"));
    if let Some(schedule @ Value::Object(_)) = schedule {
        let (exponent, is_taker_only) = (&schedule["exponent"], &schedule["takerOnly"]);
        body["fd"] = json!({"r": schedule["rate"], "e": exponent, "to": is_taker_only});
    }
    body.to_string()
}

/// Gamma's delay of marketable orders, if it states one.
fn seconds_delay(market: &Market) -> Option<Value> {
    let delay = market.description.as_ref()?.field("secondsDelay");
    (!delay.is_null()).then(|| delay.clone())
}

fn is_set(market: &Market, flag: &str) -> bool {
    market.description.as_ref().is_some_and(|description| description.is(flag))
}

/// A JSON number: this service sends numbers as numbers.
fn number(text: &str) -> Value {
    text.parse::<i64>().map_or_else(|_| json!(text.parse::<f64>().unwrap()), |whole| json!(whole))
}
