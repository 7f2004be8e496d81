//! Markets: one by one in the compact or the long form, in pages, and what a client needs of one to
//! sign an order.

use hyper::StatusCode;

use super::{Answer, object, request, tick};
use crate::http::call::Call;
use crate::http::cursor::Cursor;
use crate::http::error::ClobError;
use crate::http::json::write::{JsonObject, write_list, write_text};
use crate::http::operations::tokens::base_fee;
use crate::http::query::OFFSET_MAX;
use crate::http::reply::Reply;
use paperbourse_core::ids::condition;
use paperbourse_core::market::MarketSnapshot;
use paperbourse_core::market::catalogue::{FeeExponent, Fees, MarketInfo, MarketStatus, Outcome};
use paperbourse_core::market::price::{MarketPrices, OutcomePrice};
use paperbourse_core::money::Price;
use paperbourse_exchange::service::{MarketFilter, MarketOrder, Page, Stage};

/// Maximum number of rows in a page. Clients cannot choose it.
const PAGE_ROWS: usize = 500;

/// How much of a market a row shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Long,
    Simplified,
}

pub(super) fn tick_size(call: &Call<'_>) -> Answer {
    let shown = request::outcome(call, ClobError::NO_MARKET)?;
    let tick = tick::shown(call, shown.market.info());
    Ok(object(|body| body.number("minimum_tick_size", tick.micros())))
}

pub(super) fn neg_risk(call: &Call<'_>) -> Answer {
    let shown = request::outcome(call, ClobError::NO_MARKET)?;
    Ok(object(|body| body.flag("neg_risk", shown.market.info().neg_risk)))
}

pub(super) fn fee_rate(call: &Call<'_>) -> Answer {
    let shown = request::outcome(call, ClobError::NO_FEE_RATE)?;
    let fee = base_fee(shown.market.info().fees).ok_or(ClobError::NO_FEE_RATE)?;
    Ok(object(|body| body.integer("base_fee", fee.into())))
}

/// Returns the market of a token, with the tokens of its first two outcomes.
pub(super) fn of_token(call: &Call<'_>) -> Answer {
    let shown = request::outcome(call, ClobError::NO_MARKET)?;
    let info = shown.market.info();
    let token_id = |index: usize| info.outcomes.get(index).map_or("", |it| &*it.token_id);
    Ok(object(|body| {
        body.text("condition_id", &condition::wide(&info.condition_id));
        body.text("primary_token_id", token_id(0));
        body.text("secondary_token_id", token_id(1));
    }))
}

/// Returns the compact form of a market. Keys that would be false or 0 are absent, as at the venue.
pub(super) fn terms(call: &Call<'_>) -> Answer {
    let market = find(call)?;
    let info = market.info();
    Ok(object(|body| {
        body.text("c", &condition::wide(&info.condition_id));
        write_list(body.value("t"), &info.outcomes, |out, outcome| {
            let mut token = JsonObject::new(out);
            token.text("t", &outcome.token_id);
            token.text("o", &outcome.label);
            token.end();
        });
        body.number("mts", tick::shown(call, info).micros());
        body.number("mos", info.order_size_min.micros());
        if info.neg_risk {
            body.flag("nr", true);
        }
        if let Fees::Curve(curve) = info.fees {
            let mut fees = JsonObject::new(body.value("fd"));
            fees.number("r", curve.rate.micros());
            fees.integer("e", if curve.exponent == FeeExponent::One { 1 } else { 2 });
            fees.flag("to", true);
            fees.end();
        }
        body.integer("mbf", shown_base_fee(info));
        body.integer("tbf", shown_base_fee(info));
        body.flag("ao", info.is_tradable());
        body.null("r");
        if info.taker_delay_ms > 0 {
            body.integer("sd", seconds_delay(info));
        }
        if info.has_unstated_delay {
            body.flag("itode", true);
        }
        if let Some(start) = info.books_cleared_at {
            body.time("gst", start);
            body.flag("cbos", true);
        }
    }))
}

/// Returns the long form of a market.
pub(super) fn get(call: &Call<'_>) -> Answer {
    let market = find(call)?;
    let mut body = Vec::with_capacity(1536);
    write_market(call, &mut body, &market, Form::Long);
    Ok(Reply::json(StatusCode::OK, body))
}

pub(super) fn list(call: &Call<'_>) -> Answer {
    page(call, Form::Long, Vec::new())
}

pub(super) fn list_simplified(call: &Call<'_>) -> Answer {
    page(call, Form::Simplified, Vec::new())
}

/// Lists the markets that take orders. The venue lists those with rewards, which are the ones that
/// it wants orders for.
pub(super) fn list_open(call: &Call<'_>) -> Answer {
    page(call, Form::Long, vec![Stage::Tradable])
}

pub(super) fn list_open_simplified(call: &Call<'_>) -> Answer {
    page(call, Form::Simplified, vec![Stage::Tradable])
}

fn find(call: &Call<'_>) -> Result<MarketSnapshot, ClobError> {
    let market = call.service().market(&call.parameter()).map_err(|_| ClobError::NO_MARKET)?;
    if is_shown(market.info()) { Ok(market) } else { Err(ClobError::NO_MARKET) }
}

/// Whether all tokens of a market are known. Clients fail on a page with an empty token.
fn is_shown(info: &MarketInfo) -> bool {
    let is_known = |outcome: &Outcome| !outcome.token_id.is_empty();
    !info.outcomes.is_empty() && info.outcomes.iter().all(is_known)
}

fn page(call: &Call<'_>, form: Form, stages: Vec<Stage>) -> Answer {
    let cursor = request::parameter(call, "next_cursor").unwrap_or_default();
    let offset = match Cursor::parse(&cursor) {
        Some(Cursor::At(offset)) if offset <= OFFSET_MAX => offset,
        Some(Cursor::End) => OFFSET_MAX,
        _ => return Err(ClobError::INVALID_PAYLOAD),
    };
    let page = Page { limit: PAGE_ROWS, offset };
    let filter = MarketFilter { stages, ..MarketFilter::default() };
    let found = call.service().list_markets(&filter, MarketOrder::default(), page);
    let shown = found.markets.iter().filter(|market| is_shown(market.info()));
    let next = if found.has_more { Cursor::At(offset + PAGE_ROWS) } else { Cursor::End };
    let row_bytes = if form == Form::Long { 1280 } else { 512 };
    let mut out = Vec::with_capacity(128 + row_bytes * found.markets.len());
    let mut body = JsonObject::new(&mut out);
    let mut count = 0;
    write_list(body.value("data"), shown, |out, market| {
        write_market(call, out, market, form);
        count += 1;
    });
    body.text("next_cursor", &next.to_string());
    body.integer("limit", PAGE_ROWS as u64);
    body.integer("count", count);
    body.end();
    Ok(Reply::json(StatusCode::OK, out))
}

fn write_market(call: &Call<'_>, out: &mut Vec<u8>, market: &MarketSnapshot, form: Form) {
    let info = market.info();
    let mut row = JsonObject::new(out);
    match form {
        Form::Long => write_long(&mut row, info, market, tick::shown(call, info)),
        Form::Simplified => {
            row.text("condition_id", &condition::wide(&info.condition_id));
            write_rewards(&mut row);
            write_tokens(&mut row, market);
            write_stage(&mut row, info);
        }
    }
    row.end();
}

fn write_long(row: &mut JsonObject<'_>, info: &MarketInfo, market: &MarketSnapshot, tick: Price) {
    let id = condition::wide(&info.condition_id);
    let text = |text: &Option<Box<str>>| text.as_deref().unwrap_or_default().to_owned();
    row.flag("enable_order_book", !info.status.is_closed());
    write_stage(row, info);
    row.null("accepting_order_timestamp");
    row.number("minimum_order_size", info.order_size_min.micros());
    row.number("minimum_tick_size", tick.micros());
    row.text("condition_id", &id);
    row.text("question_id", &id);
    row.text("question", &text(&info.question));
    row.text("description", "");
    row.text("market_slug", &text(&info.slug));
    row.time_or_null("end_date_iso", info.end_date);
    row.time_or_null("game_start_time", info.books_cleared_at);
    row.integer("seconds_delay", seconds_delay(info));
    row.text("fpmm", "");
    row.integer("maker_base_fee", shown_base_fee(info));
    row.integer("taker_base_fee", shown_base_fee(info));
    row.flag("notifications_enabled", false);
    row.flag("neg_risk", info.neg_risk);
    row.text("neg_risk_market_id", "");
    row.text("neg_risk_request_id", "");
    row.text("icon", &text(&info.image_url));
    row.text("image", &text(&info.image_url));
    write_rewards(row);
    row.flag("is_50_50_outcome", is_tie(info));
    write_tokens(row, market);
    write_list(row.value("tags"), &info.category, |out, category| write_text(out, category));
}

/// Writes the flags that say in which stage a market is.
fn write_stage(row: &mut JsonObject<'_>, info: &MarketInfo) {
    // The venue calls closed markets active too.
    row.flag("active", info.status != MarketStatus::Hydrating);
    row.flag("closed", info.status.is_closed());
    row.flag("archived", false);
    row.flag("accepting_orders", info.is_tradable());
}

fn write_rewards(row: &mut JsonObject<'_>) {
    let mut rewards = JsonObject::new(row.value("rewards"));
    write_list(rewards.value("rates"), [(); 0], |_, ()| {});
    rewards.integer("min_size", 0);
    rewards.integer("max_spread", 0);
    rewards.end();
}

fn write_tokens(row: &mut JsonObject<'_>, market: &MarketSnapshot) {
    let (info, prices) = (market.info(), MarketPrices::of(market));
    write_list(row.value("tokens"), info.outcomes.iter().enumerate(), |out, (index, outcome)| {
        let mut token = JsonObject::new(out);
        token.text("token_id", &outcome.token_id);
        token.text("outcome", &outcome.label);
        let price = prices.outcomes.get(index).and_then(OutcomePrice::price);
        // Clients read a number here, whatever is known.
        token.number("price", price.unwrap_or(Price::ZERO).micros());
        token.flag("winner", info.payouts.get(index) == Some(&Price::ONE));
        token.end();
    });
}

/// Whether a market was resolved with the same payout for both outcomes.
fn is_tie(info: &MarketInfo) -> bool {
    matches!(info.payouts.as_slice(), [yes, no] if yes == no)
}

/// Returns how long takers wait, in seconds, rounded up.
pub(super) fn seconds_delay(info: &MarketInfo) -> u64 {
    info.taker_delay_ms.div_ceil(1_000).into()
}

/// Returns the `base_fee` of makers and takers; 0 if the fee is unknown, as no order is taken then.
pub(super) fn shown_base_fee(info: &MarketInfo) -> u64 {
    base_fee(info.fees).unwrap_or(0).into()
}
