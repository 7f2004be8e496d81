//! What an account has.

use hyper::StatusCode;

use super::{Answer, Call};
use crate::engine::view::SettlementFilter;
use crate::http::request::query::{PositionStatus, SettlementsQuery, read_position_status};
use crate::http::respond::Reply;
use crate::http::respond::account::{
    PricedPosition, write_balance, write_positions, write_settlements,
};
use crate::money::Usd;
use crate::service::MarkedPosition;

pub(super) async fn balance(call: &Call<'_>) -> Answer {
    let portfolio = call.exchange.service.portfolio(&call.caller, call.visit).await?;
    let open = portfolio.positions.iter().filter(|marked| marked.row.position.is_open());
    let worth: Usd =
        open.map(|marked| priced(marked).value().unwrap_or(marked.row.position.cost)).sum();
    let mut body = Vec::with_capacity(192);
    write_balance(&mut body, &portfolio.ledger, worth);
    Ok(Reply::json(StatusCode::OK, body))
}

pub(super) async fn positions(call: &Call<'_>) -> Answer {
    let status = read_position_status(call.query())?;
    let portfolio = call.exchange.service.portfolio(&call.caller, call.visit).await?;
    let wanted = portfolio.positions.iter().filter(|marked| {
        let is_open = marked.row.position.is_open();
        status.is_none_or(|status| is_open == (status == PositionStatus::Open))
    });
    let mut body = Vec::with_capacity(64 + 384 * portfolio.positions.len());
    write_positions(&mut body, wanted.map(priced));
    Ok(Reply::json(StatusCode::OK, body))
}

pub(super) async fn settlements(call: &Call<'_>) -> Answer {
    let query = SettlementsQuery::read(call.query())?;
    let SettlementsQuery { limit, before, market_id, from, to } = query;
    let filter = SettlementFilter { market_id: market_id.map(Into::into), from, to };
    let service = &call.exchange.service;
    let page = service.settlements(&call.caller, filter, before, limit, call.visit).await?;
    let mut body = Vec::with_capacity(64 + 320 * page.rows.len());
    write_settlements(&mut body, &page);
    Ok(Reply::json(StatusCode::OK, body))
}

fn priced(marked: &MarkedPosition) -> PricedPosition<'_> {
    PricedPosition { row: &marked.row, price: marked.price, question: marked.question.as_deref() }
}
