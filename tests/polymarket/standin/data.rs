//! The data API: `/v2/resolutions`, the payouts on the chain.

use serde_json::{Value, json};

use super::answer::Answer;
use super::market::Payout;
use super::server::Query;
use super::state::State;

/// Answers a request for this path of the data API.
pub(crate) fn answer(state: &State, path: &str, query: &Query) -> Answer {
    if path != "/v2/resolutions" {
        return Answer::status(404, r#"{"error":"not found"}"#);
    }
    let Some(wanted) = query.first("condition") else {
        return Answer::status(400, r#"{"error":"exactly one selector is needed"}"#);
    };
    if wanted.split(',').any(|id| id.len() != 66) {
        return Answer::status(400, r#"{"error":"condition must be a 32-byte hex string"}"#);
    }
    let rows: Vec<Value> = wanted
        .split(',')
        .filter_map(|id| resolution(state, *state.market_by_condition.get(id)?))
        .collect();
    Answer::json(json!({ "data": rows }).to_string())
}

fn resolution(state: &State, place: usize) -> Option<Value> {
    let market = &state.markets[place];
    let payout = market.payout_on_chain?;
    let paid = |outcome| match payout {
        Payout::Winner(winner) if winner == outcome => 1_000_000,
        Payout::Winner(_) => 0,
        Payout::Half => 500_000,
    };
    let payouts: Vec<i64> = (0..market.tokens.len()).map(paid).collect();
    Some(json!({
        "condition_id": market.condition_id,
        "status": "resolved",
        "payouts": payouts,
        "was_disputed": false,
        "resolution_source": "reported",
    }))
}
