//! Markets, prices and books: public, and read without asking any shard.

use std::sync::Arc;

use hyper::StatusCode;

use super::{Answer, Call};
use crate::engine::rejection::Rejection;
use crate::http::error::ApiError;
use crate::http::json::write::write_list;
use crate::http::request::price::read_prices;
use crate::http::request::query::{BookQuery, MarketBookQuery, MarketsQuery};
use crate::http::respond::Reply;
use crate::http::respond::book::{ShownBook, write_book};
use crate::http::respond::market::{is_hot, write_market, write_market_row};
use crate::http::respond::price::{write_price, write_unpriced};
use crate::ids::OutcomeIndex;
use crate::market::Market;
use crate::market::catalogue::MarketInfo;
use crate::market::price::MarketPrices;

pub(super) fn list(call: &Call<'_>) -> Answer {
    let query = MarketsQuery::read(call.query())?;
    let listing = call.exchange.service.markets().listing();
    let wanted = listing.markets().iter().filter(|market| is_wanted(&market.info(), &query));
    let page = wanted.skip(query.page.offset).take(query.page.limit);
    let mut body = Vec::with_capacity(768 * query.page.limit);
    write_list(&mut body, page, |out, market| {
        let snapshot = market.snapshot();
        write_market_row(out, snapshot.info(), &MarketPrices::of(&snapshot));
    });
    Ok(Reply::json(StatusCode::OK, body))
}

fn is_wanted(info: &MarketInfo, query: &MarketsQuery<'_>) -> bool {
    let contains = |text: &Option<Box<str>>, part: &str| {
        text.as_deref().is_some_and(|text| text.to_lowercase().contains(&part.to_lowercase()))
    };
    (!query.active_only || !info.status.is_closed())
        && (!query.hot_only || is_hot(info))
        && query
            .text
            .as_deref()
            .is_none_or(|text| contains(&info.question, text) || contains(&info.slug, text))
        && query.category.as_deref().is_none_or(|category| contains(&info.category, category))
}

pub(super) fn get(call: &Call<'_>, condition_id: &str) -> Answer {
    let market = find(call, condition_id)?;
    let snapshot = market.snapshot();
    let mut body = Vec::with_capacity(1536);
    write_market(&mut body, snapshot.info(), &MarketPrices::of(&snapshot));
    Ok(Reply::json(StatusCode::OK, body))
}

pub(super) fn get_market_book(call: &Call<'_>, condition_id: &str) -> Answer {
    let query = MarketBookQuery::read(call.query())?;
    let market = find(call, condition_id)?;
    let info = market.info();
    let outcome = match query.outcome.as_deref() {
        None => OutcomeIndex(0),
        Some(label) => info.outcome(label).ok_or_else(|| Rejection::OutcomeNotFound {
            outcome: label.into(),
            labels: info.outcomes.iter().map(|outcome| outcome.label.clone()).collect(),
        })?,
    };
    book(&market, outcome, query.depth)
}

pub(super) fn get_book(call: &Call<'_>) -> Answer {
    let query = BookQuery::read(call.query())?;
    let listing = call.exchange.service.markets().listing();
    let (market, outcome) =
        listing.by_token(&query.token_id).ok_or_else(ApiError::token_not_found)?;
    book(market, outcome, query.depth)
}

fn book(market: &Arc<Market>, outcome: OutcomeIndex, depth: Option<usize>) -> Answer {
    let snapshot = market.snapshot();
    let quoted = snapshot.quoted(outcome).ok_or_else(ApiError::book_unavailable)?;
    let shown = ShownBook {
        info: snapshot.info(),
        outcome,
        book: quoted.book,
        mirror: quoted.liquidity.is_mirrored(),
        depth,
    };
    let mut body = Vec::with_capacity(4096);
    write_book(&mut body, shown);
    Ok(Reply::json(StatusCode::OK, body))
}

pub(super) fn list_prices(call: &Call<'_>) -> Answer {
    let ids = read_prices(&call.body)?;
    call.exchange.service.check_batch(&call.caller, ids.len())?;
    let listing = call.exchange.service.markets().listing();
    let mut body = Vec::with_capacity(64 + 384 * ids.len());
    write_list(&mut body, &ids, |out, id| match listing.by_condition(id) {
        Some(market) => {
            let snapshot = market.snapshot();
            write_price(out, snapshot.info(), &MarketPrices::of(&snapshot));
        }
        None => write_unpriced(out, id),
    });
    Ok(Reply::json(StatusCode::OK, body))
}

fn find(call: &Call<'_>, condition_id: &str) -> Result<Arc<Market>, ApiError> {
    let market = call.exchange.service.markets().by_condition(condition_id);
    market.ok_or_else(|| Rejection::MarketNotFound { market_id: condition_id.into() }.into())
}
