//! The venue's own interface (CLOB), so that its clients can use this server by changing their
//! host. Served with `--clob on`, beside this server's own interface and at the root, because
//! clients sign paths without a prefix.
//!
//! Answers have the venue's keys in the venue's order, and its texts for errors. No answer on
//! success has a key `error`, which some clients take for a failure whatever its value.

mod books;
mod health;
mod history;
mod markets;
mod prices;
mod request;
mod unused;

use hyper::StatusCode;

use super::price_history;
use crate::http::call::Call;
use crate::http::error::ClobError;
use crate::http::json::write::JsonObject;
use crate::http::operation::Access::Public;
use crate::http::operation::{Operation, Run};
use crate::http::reply::Reply;

/// What an operation of the venue's interface returns.
type Answer = Result<Reply, ClobError>;

/// The table, searched from the top, after [`super::OPERATIONS`].
pub static CLOB: [Operation; 37] = [
    get("/book", books::get),
    get("/price", prices::price),
    get("/midpoint", prices::midpoint),
    get("/spread", prices::spread),
    get("/last-trade-price", prices::last_trade),
    post("/books", books::list),
    post("/prices", prices::list),
    post("/midpoints", prices::list_midpoints),
    post("/spreads", prices::list_spreads),
    post("/last-trades-prices", prices::list_last_trades),
    // One client sends the body with a `GET`.
    get("/last-trades-prices", prices::list_last_trades),
    get("/ok", health::ok),
    get("/time", health::time),
    get("/version", health::version),
    get("/tick-size", markets::tick_size),
    get("/tick-size/{token_id}", markets::tick_size),
    get("/neg-risk", markets::neg_risk),
    get("/neg-risk/{token_id}", markets::neg_risk),
    get("/fee-rate", markets::fee_rate),
    get("/fee-rate/{token_id}", markets::fee_rate),
    get("/markets-by-token/{token_id}", markets::of_token),
    get("/clob-markets/{condition_id}", markets::terms),
    get("/markets", markets::list),
    get("/simplified-markets", markets::list_simplified),
    get("/sampling-markets", markets::list_open),
    get("/sampling-simplified-markets", markets::list_open_simplified),
    get("/markets/{condition_id}", markets::get),
    get("/prices-history", history::list).query(&price_history::QUERY),
    get("/markets/live-activity/{condition_id}", unused::empty_list),
    get("/live-activity/events/{condition_id}", unused::empty_list),
    get("/rebates/current", unused::empty_list),
    get("/rewards/markets/current", unused::empty_page),
    get("/rewards/markets/{condition_id}", unused::empty_page),
    get("/builder/trades", unused::empty_page),
    get("/fees/builder-fees/{code}", unused::no_builder_fee),
    get("/ohlc", unused::absent),
    get("/orderbook-history", unused::absent),
];

const fn get(path: &'static str, run: fn(&Call<'_>) -> Answer) -> Operation {
    Operation::get(path, Public, Run::Clob(run))
}

/// A list that is asked for with a body.
const fn post(path: &'static str, run: fn(&Call<'_>) -> Answer) -> Operation {
    Operation::post(path, Public, Run::Clob(run)).batch_body()
}

/// Returns the answer with the object that `write` fills.
fn object(write: impl FnOnce(&mut JsonObject<'_>)) -> Reply {
    let mut body = Vec::with_capacity(128);
    let mut object = JsonObject::new(&mut body);
    write(&mut object);
    object.end();
    Reply::json(StatusCode::OK, body)
}

#[cfg(test)]
mod tests;
