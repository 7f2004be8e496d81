//! The venue's own interface (CLOB), so that its clients can use this server by changing their
//! host. Served with `--clob on`, beside this server's own interface and at the root, because
//! clients sign paths without a prefix.
//!
//! Answers have the venue's keys in the venue's order, and its texts for errors. No answer on
//! success has a key `error`, which some clients take for a failure whatever its value.

mod account;
mod auth;
mod books;
mod cancel;
mod data;
pub mod gamma;
mod health;
mod heartbeats;
mod history;
mod list;
mod markets;
mod place;
mod prices;
mod request;
mod tick;
mod unused;

use hyper::StatusCode;

use super::price_history;
use super::socket::Stream;
use crate::http::call::Call;
use crate::http::error::{ClobError, ClobRefusal};
use crate::http::json::write::JsonObject;
use crate::http::operation::Access::{Public, Wallet, WalletKey};
use crate::http::operation::Verb::{self, Delete, Get, Post};
use crate::http::operation::{ClobLater, Operation, Run};
use crate::http::reply::Reply;
use paperbourse_core::engine::key::Permission::{Read, Trade};

pub(in crate::http) use auth::{l2_headers, names_wallet_key};
pub use place::ClobOrders;
pub(in crate::http) use place::NOT_ENOUGH;

/// What an operation of the venue's interface returns.
type Answer = Result<Reply, ClobError>;

/// What an operation returns that waits.
type Awaited = Result<Reply, ClobRefusal>;

/// The errors of requests that change orders, besides those that have the venue's words.
const ORDER_ERRORS: [&str; 13] = [
    "ACCOUNT_NOT_FOUND",
    "ACCOUNT_RESET",
    "ACCOUNT_SUSPENDED",
    "INVALID_ORDER_EXPIRATION",
    "INVALID_ORDER_PAYLOAD",
    "JOURNAL_FULL",
    "MARKET_CLOSED",
    "MARKET_NOT_FOUND",
    "OPEN_ORDER_LIMIT_EXCEEDED",
    "ORDER_NOT_FOUND",
    "OUTCOME_NOT_FOUND",
    "SERVER_FULL",
    "VENUE_UNAVAILABLE",
];

/// The table, searched from the top, after [`super::OPERATIONS`].
pub static CLOB: [Operation; 105] =
    [
        get("/book", books::get),
        get("/price", prices::price),
        get("/midpoint", prices::midpoint),
        get("/spread", prices::spread),
        get("/last-trade-price", prices::last_trade),
        Operation::post("/books", Public, later(|call| Box::pin(books::list(call)))).batch_body(),
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
        Operation::get("/ws/market", Public, Run::Socket(Stream::ClobMarket))
            .errors(&["UPGRADE_REQUIRED", "HTTP_VERSION_TOO_OLD"]),
        Operation::get("/ws/user", Public, Run::Socket(Stream::ClobUser))
            .errors(&["UPGRADE_REQUIRED", "HTTP_VERSION_TOO_OLD"]),
        Operation::post("/auth/api-key", Wallet, later(|call| Box::pin(auth::create(call))))
            .errors(&["JOURNAL_FULL", "SERVER_FULL", "TIER_KEY_LIMIT_EXCEEDED"]),
        Operation::get("/auth/derive-api-key", Wallet, later(|call| Box::pin(auth::derive(call)))),
        signed(Get, "/auth/api-keys", later(|call| Box::pin(auth::list(call)))),
        signed(Delete, "/auth/api-key", later(|call| Box::pin(auth::delete(call)))).errors(&[
            "JOURNAL_FULL",
            "KEY_ENDED",
            "KEY_NOT_FOUND",
        ]),
        signed(Get, "/auth/ban-status/closed-only", Run::Clob(account::closed_only)),
        signed(Get, "/balance-allowance", later(|call| Box::pin(account::balance(call)))),
        signed(Get, "/balance-allowance/update", later(|call| Box::pin(account::balance(call)))),
        order(Post, "/order", later(|call| Box::pin(place::place(call)))),
        order(Post, "/orders", later(|call| Box::pin(place::place_list(call)))).batch_body(),
        order(Delete, "/order", later(|call| Box::pin(cancel::one(call)))),
        order(Delete, "/orders", later(|call| Box::pin(cancel::list(call)))).batch_body(),
        order(Delete, "/cancel-all", later(|call| Box::pin(cancel::all(call)))),
        order(Delete, "/cancel-market-orders", later(|call| Box::pin(cancel::in_market(call)))),
        signed(Get, "/data/orders", later(|call| Box::pin(list::orders(call)))),
        signed(Get, "/data/order/{order_id}", later(|call| Box::pin(list::order(call)))),
        signed(Get, "/order/{order_id}", later(|call| Box::pin(list::order(call)))),
        signed(Get, "/data/trades", later(|call| Box::pin(list::trades(call)))),
        beat("/v1/heartbeats", later(|call| Box::pin(heartbeats::beat(call)))),
        beat("/heartbeats", later(|call| Box::pin(heartbeats::beat_alone(call)))),
        signed(Get, "/data/pre-migration-orders", Run::Clob(unused::empty_page)),
        signed(Get, "/notifications", Run::Clob(unused::empty_list)),
        signed(Delete, "/notifications", Run::Clob(health::ok)),
        signed(Get, "/order-scoring", Run::Clob(unused::score)),
        signed(Post, "/orders-scoring", Run::Clob(unused::scores)).batch_body(),
        signed(Get, "/rewards/user", Run::Clob(unused::empty_page)),
        signed(Get, "/rewards/user/total", Run::Clob(unused::empty_list)),
        signed(Get, "/rewards/user/markets", Run::Clob(unused::empty_page)),
        signed(Get, "/rewards/user/percentages", Run::Clob(unused::empty_object)),
        signed(Get, "/auth/readonly-api-keys", Run::Clob(unused::no_readonly_keys)),
        signed(Post, "/auth/readonly-api-key", Run::Clob(unused::no_such_keys)),
        signed(Delete, "/auth/readonly-api-key", Run::Clob(unused::no_such_keys)),
        public("/positions", later(|call| Box::pin(data::positions(call)))),
        public("/closed-positions", later(|call| Box::pin(data::closed_positions(call)))),
        public("/value", later(|call| Box::pin(data::value(call)))),
        public("/activity", later(|call| Box::pin(data::activity(call)))),
        public("/trades", later(|call| Box::pin(data::trades(call)))),
        public("/traded", later(|call| Box::pin(data::traded(call)))),
        public("/v2/positions", later(|call| Box::pin(data::positions_v2(call)))),
        public("/v2/trades", later(|call| Box::pin(data::trades_v2(call)))),
        public("/v2/activity", later(|call| Box::pin(data::activity_v2(call)))),
        public("/v2/value", later(|call| Box::pin(data::value_v2(call)))),
        public("/v2/user-pnl", later(|call| Box::pin(data::user_pnl(call)))),
        public("/v2/user-stats", later(|call| Box::pin(data::user_stats(call)))),
        public("/v2/user-volume", later(|call| Box::pin(data::user_volume(call)))),
        get("/v2/tokens", data::tokens),
        get("/v2/prices-history", data::prices),
        get("/live-volume", data::live_volume),
        get("/v2/live-volume", data::live_volume_v2),
        get("/holders", unused::empty_list),
        get("/v2/holders", data::no_page),
        get("/oi", unused::empty_list),
        get("/v2/oi", data::no_rows),
        get("/v2/resolutions", data::no_rows),
        get("/v1/leaderboard", unused::empty_list),
        get("/v2/leaderboard", data::no_leaders),
        get("/v2/biggest-winners", data::no_page),
        get("/v2/activity/combos", data::no_page),
        get("/v2/positions/combos", data::no_page),
        get("/v1/builders/leaderboard", unused::empty_list),
        get("/v1/builders/volume", unused::empty_list),
        get("/v2/builders/leaderboard", data::no_page),
        get("/v2/builders/volume", data::no_rows),
        get("/auth/validate-readonly-api-key", unused::no_such_keys),
        signed(Get, "/auth/builder-api-key", Run::Clob(unused::empty_list)),
        signed(Post, "/auth/builder-api-key", Run::Clob(unused::no_such_keys)),
        signed(Delete, "/auth/builder-api-key", Run::Clob(unused::no_such_keys)),
    ];

const fn get(path: &'static str, run: fn(&Call<'_>) -> Answer) -> Operation {
    Operation::get(path, Public, Run::Clob(run))
}

/// A read that needs no credentials and waits.
const fn public(path: &'static str, run: Run) -> Operation {
    Operation::get(path, Public, run)
}

/// A list that is asked for with a body.
const fn post(path: &'static str, run: fn(&Call<'_>) -> Answer) -> Operation {
    Operation::post(path, Public, Run::Clob(run)).batch_body()
}

/// An operation for wallets that sign the request with a key.
const fn signed(method: Verb, path: &'static str, run: Run) -> Operation {
    Operation::new(method, path, WalletKey(Some(Read)), run)
}

/// An operation that changes orders.
const fn order(method: Verb, path: &'static str, run: Run) -> Operation {
    Operation::new(method, path, WalletKey(Some(Trade)), run).errors(&ORDER_ERRORS)
}

/// A heartbeat of a wallet, at a path of this server's own heartbeats.
const fn beat(path: &'static str, run: Run) -> Operation {
    Operation::post(path, WalletKey(Some(Trade)), run).in_both().errors(&["JOURNAL_FULL"])
}

const fn later(run: ClobLater) -> Run {
    Run::ClobLater(run)
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
