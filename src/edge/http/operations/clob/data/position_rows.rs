//! Rows of positions, in the forms of both versions. Amounts are JSON numbers with exact decimals.

use super::User;
use super::holdings::Holding;
use crate::http::json::write::JsonObject;
use paperbourse_core::engine::fills::turnover::PositionTokens;
use paperbourse_core::ids::{Timestamp, condition};

/// The end of a market whose end is unknown. One client fails on a row without a date, and another
/// knows this one as none.
const NO_END: Timestamp = Timestamp::EPOCH;

/// Number of characters of a date in RFC 3339.
const DATE_CHARACTERS: usize = 10;

pub(super) fn write_open(out: &mut Vec<u8>, user: &User, holding: &Holding) {
    let mut row = JsonObject::new(out);
    write_names(&mut row, user, holding);
    row.number("size", holding.shares().micros());
    row.number("avgPrice", holding.average_price().micros());
    row.number("initialValue", holding.cost().micros());
    row.number("currentValue", holding.value().micros());
    row.number("cashPnl", holding.unrealised().micros());
    row.number("percentPnl", holding.percent_unrealised());
    row.number("totalBought", holding.bought().micros());
    row.number("realizedPnl", holding.realised().micros());
    row.number("percentRealizedPnl", holding.percent_realised());
    row.number("curPrice", holding.price().micros());
    row.flag("redeemable", false);
    row.flag("mergeable", false);
    write_market(&mut row, holding);
    row.text("eventId", holding.facts.event_id().unwrap_or_default());
    row.text("endDate", &date(holding.facts.end_date()));
    row.flag("negativeRisk", holding.facts.is_neg_risk());
    row.end();
}

pub(super) fn write_closed(out: &mut Vec<u8>, user: &User, holding: &Holding) {
    let mut row = JsonObject::new(out);
    write_names(&mut row, user, holding);
    row.number("avgPrice", holding.average_price().micros());
    row.number("totalBought", holding.bought().micros());
    row.number("realizedPnl", holding.realised().micros());
    row.number("curPrice", holding.price().micros());
    row.integer("timestamp", seconds(holding.last_at()));
    write_market(&mut row, holding);
    row.time("endDate", holding.facts.end_date().unwrap_or(NO_END));
    row.end();
}

pub(super) fn write_v2(out: &mut Vec<u8>, user: &User, holding: &Holding) {
    let marked = &holding.traded.marked;
    let PositionTokens { token_id, opposite } = &holding.traded.tokens;
    let mut row = JsonObject::new(out);
    row.text("proxy_wallet", &user.wallet.to_string());
    row.text("token_id", token_id);
    row.text("condition_id", &condition::wide(&marked.row.market_id));
    row.number("current_size", holding.shares().micros());
    row.number("avg_price", holding.average_price().micros());
    row.number("entry_cost_usdc", holding.cost().micros());
    row.number("entry_fees_usdc", holding.bought_fees().micros());
    row.number("total_cost_usdc", holding.bought_for().micros());
    row.number("current_price", holding.price().micros());
    row.number("current_value", holding.value().micros());
    row.number("total_size", holding.bought().micros());
    row.number("realized_pnl", holding.realised().micros());
    row.number("unrealized_pnl", holding.unrealised().micros());
    row.number("total_pnl", (holding.realised() + holding.unrealised()).micros());
    row.number("percent_pnl", holding.percent_unrealised());
    row.number("percent_realized_pnl", holding.percent_realised());
    row.word("status", marked.status().as_str());
    row.flag("redeemable", false);
    row.flag("mergeable", false);
    row.flag("negative_risk", holding.facts.is_neg_risk());
    row.flag("archived", false);
    row.flag("verified", false);
    holding.facts.write(&mut row, "event_slug");
    row.text_or_null("event_id", holding.facts.event_id());
    row.text("outcome", &marked.row.outcome);
    row.integer("outcome_index", marked.row.outcome_index.0.into());
    row.text_or_null("opposite_outcome", opposite.as_ref().map(|(label, _)| &**label));
    row.text_or_null("opposite_token_id", opposite.as_ref().map(|(_, token_id)| &**token_id));
    row.text("name", "");
    row.text("profile_image", "");
    row.text("end_date", &date(holding.facts.end_date()));
    row.integer("first_entry_at", seconds(holding.first_at()));
    row.integer("last_event_at", seconds(holding.last_at()));
    row.end();
}

fn write_names(row: &mut JsonObject<'_>, user: &User, holding: &Holding) {
    row.text("proxyWallet", &user.wallet.to_string());
    row.text("asset", &holding.traded.tokens.token_id);
    row.text("conditionId", &condition::wide(&holding.traded.marked.row.market_id));
}

fn write_market(row: &mut JsonObject<'_>, holding: &Holding) {
    let position = &holding.traded.marked.row;
    holding.facts.write(row, "eventSlug");
    row.text("outcome", &position.outcome);
    row.integer("outcomeIndex", position.outcome_index.0.into());
    // One client reads a number here, so a market without a second outcome has token 0.
    let opposite = holding.traded.tokens.opposite.as_ref();
    let (label, token_id) = opposite.map_or(("", "0"), |(label, token_id)| (label, token_id));
    row.text("oppositeOutcome", label);
    row.text("oppositeAsset", token_id);
}

/// Returns the date of a time in UTC; empty if there is none.
fn date(time: Option<Timestamp>) -> String {
    let mut text = time.map(|time| time.to_string()).unwrap_or_default();
    text.truncate(DATE_CHARACTERS);
    text
}

/// Returns the seconds since 1970; 0 if the time is unknown.
pub(super) fn seconds(time: Option<Timestamp>) -> u64 {
    time.and_then(|time| u64::try_from(time.seconds()).ok()).unwrap_or(0)
}
