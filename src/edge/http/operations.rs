//! The operations of the API, one row each: method, path, access, and the function that runs.
//!
//! Routing, the `Allow` header, the checks before a body is read, and the table in the guide all
//! come from here. In debug builds, an operation panics if it reads a query parameter or fails with
//! an error code that its row does not name. `.github/CONTRIBUTING.md` explains how to add an
//! operation.

pub mod account;
pub mod batch;
pub mod books;
pub mod candles;
pub mod clob;
pub mod comments;
pub(super) mod console;
pub mod data;
pub(super) mod docs;
pub(super) mod event_stream;
pub mod events;
pub mod exports;
pub mod health;
pub mod heartbeats;
pub mod keys;
pub mod markets;
pub mod me;
pub mod order_fields;
pub mod orders;
pub mod price_history;
pub mod prices;
pub(super) mod socket;
pub mod status;
pub mod tokens;
pub mod trade;
pub mod updown;
pub mod wallets;

use self::orders::{cancel, list, place, preview};
use super::asyncapi;
use super::openapi::{self, answers, bodies};
use super::operation::Access::{Key, KeyOrToken, Public, Socket, Token};
use super::operation::Run::{self, Health, Later, Now};
use super::operation::{Answers, Operation};
use paperbourse_core::engine::key::Permission::{Read, Trade};
use socket::Stream;

/// The table, searched from the top. A path without a parameter precedes patterns that would match
/// its last segment, and `POST /trade`, the most frequent operation, comes first.
pub static OPERATIONS: [Operation; 72] = [
    Operation::post("/trade", KeyOrToken(Some(Trade)), Run::Trade)
        .makes_account()
        .headers(&order_fields::NAME_HEADER)
        .body::<bodies::TradeRequest>()
        .answers::<answers::Trade>()
        .errors(&[
            "IDEMPOTENCY_KEY_REUSE",
            "MARKET_NOT_FOUND",
            "OUTCOME_NOT_FOUND",
            "MARKET_CLOSED",
            "VENUE_UNAVAILABLE",
            "INSUFFICIENT_POSITION",
            "INSUFFICIENT_LIQUIDITY",
            "SLIPPAGE_EXCEEDED",
            "INSUFFICIENT_BALANCE",
            "ACCOUNT_RESET",
            "JOURNAL_FULL",
            "SERVER_FULL",
        ])
        .summary("place a market order, which fills completely or not at all"),
    Operation::post("/v1/orders", Key(Trade), Later(|call| Box::pin(place::place(call))))
        .headers(&order_fields::NAME_HEADER)
        .body::<bodies::OrderRequest>()
        .answers::<orders::answer::OrderAnswer<'static>>()
        .errors(&[
            "IDEMPOTENCY_KEY_REUSE",
            "INVALID_ORDER_PAYLOAD",
            "INVALID_ORDER_EXPIRATION",
            "INVALID_POST_ONLY_ORDER_TYPE",
            "MARKET_NOT_FOUND",
            "OUTCOME_NOT_FOUND",
            "MARKET_CLOSED",
            "INVALID_ORDER_MIN_TICK_SIZE",
            "INVALID_ORDER_MIN_SIZE",
            "VENUE_UNAVAILABLE",
            "INVALID_QUANTITY",
            "INSUFFICIENT_POSITION",
            "OPEN_ORDER_LIMIT_EXCEEDED",
            "INVALID_POST_ONLY_ORDER",
            "INSUFFICIENT_LIQUIDITY",
            "FOK_ORDER_NOT_FILLED_ERROR",
            "SLIPPAGE_EXCEEDED",
            "INSUFFICIENT_BALANCE",
            "JOURNAL_FULL",
            "SERVER_FULL",
        ])
        .summary("place a market or limit order; a limit order may rest"),
    Operation::post("/v1/orders/preview", Key(Read), Later(|call| Box::pin(preview::preview(call))))
        .body::<bodies::OrderRequest>()
        .answers::<preview::PreviewAnswer<'static>>()
        .errors(&preview::ERRORS)
        .summary(
            "preview an order: what it would fill, cost and hold back now; nothing is placed, and \
             what would be refused is refused",
        ),
    Operation::post(
        "/v1/orders/batch",
        Key(Trade),
        Later(|call| Box::pin(batch::place_batch(call))),
    )
    .batch_body()
    .headers(&order_fields::NAME_HEADER)
        .body::<bodies::BatchRequest>()
        .answers::<batch::BatchAnswer<'static>>()
        .errors(&["BATCH_LIMIT_EXCEEDED"])
    .summary("place several independent orders; the tier limits how many"),
    Operation::get("/v1/orders", Key(Read), Later(|call| Box::pin(list::list(call))))
        .query(&list::QUERY)
        .answers::<list::OrdersAnswer<'static>>()
        .errors(&["WALLET_NOT_FOUND"])
        .summary(
            "list the account's orders: the open ones, newest first, then the finished ones, the \
             last finished first; a `client_order_id` selects one",
        ),
    Operation::get("/v1/orders/{order_id}", Key(Read), Later(|call| Box::pin(list::get(call))))
        .query(&account::WALLET_QUERY)
        .answers::<list::OrderRow<'static>>()
        .errors(&["ORDER_NOT_FOUND", "WALLET_NOT_FOUND"])
        .summary("get one order"),
    Operation::delete(
        "/v1/orders/{order_id}",
        Key(Trade),
        Later(|call| Box::pin(cancel::cancel(call))),
    )
    .answers::<cancel::CancelAnswer<'static>>()
        .errors(&["ORDER_NOT_FOUND", "ORDER_NOT_CANCELLABLE", "JOURNAL_FULL"])
    .summary("cancel an open order"),
    Operation::post(
        "/v1/cancel-all",
        Key(Trade),
        Later(|call| Box::pin(cancel::cancel_all_confirmed(call))),
    )
    .query(&cancel::CONFIRM_QUERY)
    .headers(&cancel::CONFIRM_HEADER)
        .answers::<cancel::CancelAllAnswer>()
        .errors(&["CONFIRMATION_REQUIRED", "JOURNAL_FULL"])
    .summary(
        "cancel all open orders but held ones; needs the header `X-Confirm-Cancel-All: true` or \
         `?confirm=true`",
    ),
    Operation::delete(
        "/v1/cancel-all",
        Key(Trade),
        Later(|call| Box::pin(cancel::cancel_all(call))),
    )
    .answers::<cancel::CancelAllAnswer>()
        .errors(&["JOURNAL_FULL"])
    .summary("cancel all open orders but held ones, without a confirmation"),
    Operation::delete(
        "/v1/cancel-market-orders",
        Key(Trade),
        Later(|call| Box::pin(cancel::cancel_in_market(call))),
    )
    .query(&cancel::SELECT_QUERY)
    .optional_body::<bodies::CancelRequest>()
        .answers::<cancel::CancelAllAnswer>()
        .errors(&["JOURNAL_FULL"])
    .summary(
        "cancel the open orders in a `market` (a condition id), in an outcome (its token as \
         `asset_id`), or in both; the body may name them instead",
    ),
    Operation::get("/v1/data/orders", Key(Read), Later(|call| Box::pin(data::orders(call))))
        .query(&data::ORDERS_QUERY)
        .answers::<data::OrdersPage>()
        .errors(&["INVALID_TIME_FILTER"])
        .summary("list the open orders, or those with a `status`, in the venue's form"),
    Operation::get("/v1/data/trades", Key(Read), Later(|call| Box::pin(data::trades(call))))
        .query(&data::TRADES_QUERY)
        .answers::<data::TradesPage>()
        .errors(&["INVALID_TIME_FILTER"])
        .summary("list the fills in the venue's form, newest first"),
    Operation::post("/v1/heartbeats", Key(Trade), Later(|call| Box::pin(heartbeats::beat(call))))
        .in_both()
        .optional_body::<bodies::HeartbeatRequest>()
        .answers::<heartbeats::BeatAnswer>()
        .errors(&["JOURNAL_FULL"])
        .summary(
            "keep the open orders alive: all are cancelled once these stop for longer than \
             `interval_ms` plus a quarter of it, or plus a second if that is more",
        ),
    Operation::post("/heartbeats", Key(Trade), Later(|call| Box::pin(heartbeats::beat(call))))
        .in_both()
        .optional_body::<bodies::HeartbeatRequest>()
        .answers::<heartbeats::BeatAnswer>()
        .errors(&["JOURNAL_FULL"])
        .summary("like `POST /v1/heartbeats`"),
    Operation::post(
        "/trades/{order_id}/comments",
        KeyOrToken(Some(Trade)),
        Later(|call| Box::pin(comments::add(call))),
    )
    .makes_account()
    .body::<bodies::CommentRequest>()
        .answers::<comments::CommentRow<'static>>()
        .errors(&["ORDER_NOT_FOUND", "COMMENT_LIMIT_EXCEEDED", "JOURNAL_FULL", "SERVER_FULL"])
    .summary(
        "add a comment of 1 to 1,000 characters; control characters other than newline and tab are \
         refused; one author may write 20 on an order and have 1,000 in all \
         (`--author-comments`), and an order takes 1,000",
    ),
    Operation::get(
        "/trades/{order_id}/comments",
        Public,
        Later(|call| Box::pin(comments::list(call))),
    )
    .query(&comments::PAGE_QUERY)
    .answers::<Vec<comments::CommentRow<'static>>>()
        .errors(&["ORDER_NOT_FOUND"])
    .summary("list an order's comments, oldest first"),
    Operation::delete(
        "/comments/{comment_id}",
        KeyOrToken(Some(Trade)),
        Later(|call| Box::pin(comments::delete(call))),
    )
    .answers::<answers::Message>()
        .errors(&["ACCOUNT_NOT_FOUND", "COMMENT_NOT_FOUND", "JOURNAL_FULL", "SERVER_FULL"])
    .summary("delete one of your own comments"),
    Operation::post("/v1/prices/batch", Key(Read), Now(prices::list))
        .batch_body()
        .body::<bodies::PricesRequest>()
        .answers::<Vec<answers::MarketPrices>>()
        .errors(&["BATCH_LIMIT_EXCEEDED"])
        .summary(
            "get the prices of up to 50 `market_ids`, or of fewer if the tier's batch limit is \
             lower",
        ),
    Operation::get("/v1/markets", Public, Now(markets::list))
        .query(&markets::QUERY)
        .answers::<answers::MarketList>()
        .summary("list markets, most traded first"),
    Operation::get("/v1/markets/updown", Public, Now(updown::list))
        .query(&updown::QUERY)
        .answers::<answers::UpDownList>()
        .summary(
        "list the open Up/Down markets, soonest to end first, with a count for each asset and \
             interval",
    ),
    Operation::get("/markets/updown", Public, Now(updown::list))
        .query(&updown::QUERY)
        .answers::<answers::UpDownList>()
        .summary("like `GET /v1/markets/updown`"),
    Operation::get("/v1/markets/updown/intervals", Public, Now(updown::list_intervals))
        .query(&updown::ASSET_QUERY)
        .answers::<answers::UpDownIntervals>()
        .summary("list the intervals of the open Up/Down markets, of all assets or of one"),
    Operation::get("/v1/markets/{condition_id}", Public, Now(markets::get))
        .answers::<answers::Market>()
        .errors(&["MARKET_NOT_FOUND"])
        .summary("get one market"),
    Operation::get("/v1/markets/by-slug/{slug}", Public, Now(markets::get_by_slug))
        .answers::<answers::Market>()
        .errors(&["MARKET_NOT_FOUND"])
        .summary("get one market by its slug"),
    Operation::get("/v1/markets/{condition_id}/book", Public, Now(books::get_by_label))
        .query(&books::LABEL_QUERY)
        .answers::<answers::Book>()
        .errors(&["MARKET_NOT_FOUND", "OUTCOME_NOT_FOUND", "BOOK_UNAVAILABLE"])
        .summary("get the book of an outcome by its label, best level last"),
    Operation::get("/v1/events", Public, Now(events::list))
        .query(&events::QUERY)
        .answers::<answers::EventList>()
        .summary("list the events that have an open market, with their markets"),
    Operation::get("/v1/markets/{condition_id}/candles", Public, Now(candles::list))
        .query(&candles::QUERY)
        .answers::<Vec<candles::CandleRow>>()
        .errors(&["INVALID_INTERVAL", "MARKET_NOT_FOUND", "OUTCOME_NOT_FOUND"])
        .summary("list an outcome's candles, oldest first"),
    Operation::get("/v1/book", Public, Now(books::get_by_token))
        .query(&books::TOKEN_QUERY)
        .answers::<answers::Book>()
        .errors(&["TOKEN_NOT_FOUND", "BOOK_UNAVAILABLE"])
        .summary("get the book of an outcome by its token, best level last"),
    Operation::get("/v1/prices-history", Public, Now(price_history::list))
        .query(&price_history::QUERY)
        .answers::<answers::PriceHistory>()
        .errors(&["INVALID_TOKEN_ID", "INVALID_INTERVAL"])
        .summary("list an outcome's prices, oldest first; `market` or `token_id` is its token"),
    Operation::get("/v1/markets-by-token/{token_id}", Public, Now(tokens::market))
        .answers::<tokens::TokenAnswer<'static>>()
        .errors(&["TOKEN_NOT_FOUND"])
        .summary("get the market and the outcome of a token"),
    Operation::get("/v1/fee-rate", Public, Now(tokens::fee_rate))
        .query(&tokens::FEE_RATE_QUERY)
        .answers::<tokens::FeeRateAnswer>()
        .errors(&["INVALID_TOKEN_ID", "TOKEN_NOT_FOUND", "FEE_RATE_NOT_FOUND"])
        .summary(
            "get the taker fee of a token's market: the rate in basis points, and the venue's \
             `base_fee`, which is 1000 for every market with a fee",
        ),
    Operation::get("/v1/me", KeyOrToken(Some(Read)), Later(|call| Box::pin(me::get(call))))
        .query(&account::WALLET_QUERY)
        .answers::<me::MeAnswer<'static>>()
        .errors(&["ACCOUNT_NOT_FOUND", "WALLET_NOT_FOUND"])
        .summary("get the caller's account, its available cash, and the credential's permissions"),
    Operation::get(
        "/v1/me/wallets",
        KeyOrToken(Some(Read)),
        Later(|call| Box::pin(wallets::list(call))),
    )
    .query(&wallets::PAGE_QUERY)
    .answers::<wallets::WalletsAnswer>()
        .errors(&["ACCOUNT_NOT_FOUND"])
    .summary("list the account's wallets; it has one, whose id is the account's"),
    Operation::get(
        "/v1/me/wallets/{wallet_id}",
        KeyOrToken(Some(Read)),
        Later(|call| Box::pin(wallets::get(call))),
    )
    .answers::<wallets::WalletRow>()
        .errors(&["ACCOUNT_NOT_FOUND", "WALLET_NOT_FOUND"])
    .summary("get the wallet, by its id or as `api`"),
    Operation::post(
        "/v1/me/wallets/{wallet_id}/reset",
        KeyOrToken(Some(Trade)),
        Later(|call| Box::pin(account::reset_wallet(call))),
    )
    .answers::<account::ResetAnswer>()
        .errors(&["ACCOUNT_NOT_FOUND", "WALLET_NOT_FOUND", "JOURNAL_FULL"])
    .summary("reset the account, like `POST /v1/account/reset-api-balance`"),
    Operation::post(
        "/v1/account/reset-api-balance",
        KeyOrToken(Some(Trade)),
        Later(|call| Box::pin(account::reset(call))),
    )
    .answers::<account::ResetAnswer>()
        .errors(&["ACCOUNT_NOT_FOUND", "JOURNAL_FULL"])
    .summary(
        "reset the account: cancel its open orders, close its positions, and make its cash the \
         starting balance",
    ),
    Operation::get(
        "/v1/account/balance",
        KeyOrToken(Some(Read)),
        Later(|call| Box::pin(account::balance(call))),
    )
    .query(&account::WALLET_QUERY)
    .answers::<account::BalanceAnswer>()
        .errors(&["ACCOUNT_NOT_FOUND", "WALLET_NOT_FOUND"])
    .summary("get the available cash, the cash that open orders reserve, and the total value"),
    Operation::get(
        "/v1/account/positions",
        KeyOrToken(Some(Read)),
        Later(|call| Box::pin(account::positions(call))),
    )
    .query(&account::POSITIONS_QUERY)
    .answers::<Vec<account::PositionRow<'static>>>()
        .errors(&["ACCOUNT_NOT_FOUND", "WALLET_NOT_FOUND"])
    .summary(
        "list positions, with their average entry prices and the quantities available to sell",
    ),
    Operation::get(
        "/v1/account/portfolio",
        KeyOrToken(Some(Read)),
        Later(|call| Box::pin(account::portfolio(call))),
    )
    .query(&account::WALLET_QUERY)
    .answers::<account::PortfolioAnswer<'static>>()
        .errors(&["ACCOUNT_NOT_FOUND", "WALLET_NOT_FOUND"])
    .summary(
        "get the balance, the open positions, the number of fills, and the percentage of closed \
         positions with a profit",
    ),
    Operation::get(
        "/v1/account/history",
        KeyOrToken(Some(Read)),
        Later(|call| Box::pin(account::history(call))),
    )
    .query(&account::HISTORY_QUERY)
    .answers::<Vec<account::FillFields<'static>>>()
        .errors(&["ACCOUNT_NOT_FOUND", "WALLET_NOT_FOUND"])
    .summary("list the fills, newest first"),
    Operation::get(
        "/v1/account/settlements",
        KeyOrToken(Some(Read)),
        Later(|call| Box::pin(account::settlements(call))),
    )
    .query(&account::SETTLEMENTS_QUERY)
    .answers::<account::SettlementsAnswer<'static>>()
        .errors(&["ACCOUNT_NOT_FOUND", "WALLET_NOT_FOUND"])
    .summary("list the payouts of resolved markets"),
    Operation::get(
        "/v1/account/equity",
        KeyOrToken(Some(Read)),
        Later(|call| Box::pin(account::equity(call))),
    )
    .query(&account::EQUITY_QUERY)
    .answers::<Vec<account::EquityRow>>()
        .errors(&["ACCOUNT_NOT_FOUND", "WALLET_NOT_FOUND"])
    .summary("list what the account was worth at each full hour and now, oldest first"),
    Operation::get(
        "/v1/export/trades.csv",
        KeyOrToken(Some(Read)),
        Later(|call| Box::pin(exports::trades(call))),
    )
    .query(&exports::QUERY)
    .answers_with(Answers::Csv)
        .errors(&exports::ERRORS)
    .summary("export the fills as CSV, newest first"),
    Operation::get(
        "/v1/export/settlements.csv",
        KeyOrToken(Some(Read)),
        Later(|call| Box::pin(exports::settlements(call))),
    )
    .query(&exports::QUERY)
    .answers_with(Answers::Csv)
        .errors(&exports::ERRORS)
    .summary("export the payouts of resolved markets as CSV, newest position first"),
    Operation::post("/v1/keys/bootstrap", Token, Later(|call| Box::pin(keys::create(call, true))))
        .makes_account()
        .makes_key()
        .optional_body::<bodies::NewKeyRequest>()
        .creates::<keys::NewKeyAnswer<'static>>()
        .errors(&["BOOTSTRAP_NOT_ALLOWED", "TIER_NOT_AUTHORIZED", "JOURNAL_FULL", "SERVER_FULL"])
        .summary("open an account and create its first key, which is shown only once"),
    Operation::post(
        "/v1/keys",
        KeyOrToken(None),
        Later(|call| Box::pin(keys::create(call, false))),
    )
    .makes_account()
    .makes_key()
    .optional_body::<bodies::NewKeyRequest>()
        .creates::<keys::NewKeyAnswer<'static>>()
        .errors(&["TIER_KEY_LIMIT_EXCEEDED", "TIER_NOT_AUTHORIZED", "JOURNAL_FULL", "SERVER_FULL"])
    .summary("create another key with a `name`, `tier` and `permissions`"),
    Operation::get("/v1/keys", KeyOrToken(Some(Read)), Later(|call| Box::pin(keys::list(call))))
        .answers::<Vec<keys::KeyRow<'static>>>()
        .summary("list the account's keys; without `admin`, a key sees only itself"),
    Operation::get("/v1/keys/tiers", Public, Now(|call| Ok(keys::list_tiers(call))))
        .answers::<Vec<keys::TierRow>>()
        .summary("list the limits of each tier"),
    Operation::post("/v1/keys/ws-token", KeyOrToken(None), Now(socket::create_token))
        .answers::<socket::TokenAnswer<'static>>()
        .errors(&["ACCOUNT_NOT_FOUND"])
        .summary("create a token for a WebSocket's `?token=`, valid for 60 s"),
    Operation::patch(
        "/v1/keys/{key_id}",
        KeyOrToken(None),
        Later(|call| Box::pin(keys::rename(call))),
    )
    .body::<bodies::RenameRequest>()
        .answers::<keys::KeyRow<'static>>()
        .errors(&["ACCOUNT_NOT_FOUND", "KEY_NOT_FOUND", "JOURNAL_FULL", "SERVER_FULL"])
    .summary(
        "rename a key, or remove its `name` with `null`; without `admin`, a key can rename only \
         itself",
    ),
    Operation::delete(
        "/v1/keys/{key_id}",
        KeyOrToken(None),
        Later(|call| Box::pin(keys::revoke(call))),
    )
    .query(&keys::REVOKE_QUERY)
    .answers::<answers::Message>()
        .errors(&["ACCOUNT_NOT_FOUND", "KEY_NOT_FOUND", "JOURNAL_FULL", "SERVER_FULL"])
    .summary(
        "revoke a key, with `?descendants=true` also the keys it created; without `admin`, a key \
         can revoke only itself",
    ),
    Operation::post(
        "/v1/keys/{key_id}/rotate",
        KeyOrToken(None),
        Later(|call| Box::pin(keys::rotate(call))),
    )
    .makes_key()
    .optional_body::<bodies::RotateRequest>()
        .answers::<keys::NewKeyAnswer<'static>>()
        .errors(&[
        "ACCOUNT_NOT_FOUND",
        "KEY_NOT_FOUND",
        "KEY_ROTATED",
        "KEY_ENDED",
        "TIER_KEY_LIMIT_EXCEEDED",
        "TIER_NOT_AUTHORIZED",
        "JOURNAL_FULL",
        "SERVER_FULL",
    ])
    .summary(
        "replace a key, which keeps working for another `overlap_seconds`; without `admin`, a key \
         can replace only itself",
    ),
    Operation::get("/v1/ws/prices", Socket, Run::Socket(Stream::Prices))
        .query(&socket::QUERY)
        .answers_with(Answers::Socket)
        .errors(&["UPGRADE_REQUIRED", "HTTP_VERSION_TOO_OLD"])
        .summary("open a WebSocket that takes `subscribe`, `unsubscribe` and `ping`"),
    Operation::get("/v1/ws/executions", Socket, Run::Socket(Stream::Executions))
        .query(&socket::QUERY)
        .answers_with(Answers::Socket)
        .errors(&["UPGRADE_REQUIRED", "HTTP_VERSION_TOO_OLD"])
        .summary("open a WebSocket with every fill of the account; it takes `resume` and `ping`"),
    Operation::get("/prices/stream", Public, Now(event_stream::open))
        .query(&event_stream::QUERY)
        .headers(&event_stream::HEADERS)
        .answers_with(Answers::Events)
        .errors(&["HTTP_VERSION_TOO_OLD", "NOT_OFFERED", "STREAM_LIMIT_EXCEEDED"])
        .summary(
            "stream the prices of up to 50 `condition_ids`, separated by commas, as server-sent \
             events",
        ),
    Operation::get("/", Public, Health(|server, headers, _| Ok(docs::home(server, headers))))
        .answers_with(Answers::File("text/html"))
        .summary("get a page that says what this server is and whether it is ready"),
    Operation::get("/docs", Public, Run::File(|server, _| Some(docs::page(server))))
        .answers_with(Answers::File("text/html"))
        .summary("get a page that shows this API and tries its operations"),
    Operation::get("/docs/page.js", Public, Run::File(|_, _| Some(&docs::SCRIPT)))
        .answers_with(Answers::File("text/javascript"))
        .summary("get the script of that page"),
    Operation::get("/docs/code.js", Public, Run::File(|_, _| Some(&docs::CODE_SCRIPT)))
        .answers_with(Answers::File("text/javascript"))
        .summary("get the script that copies code and shows it in one language at a time"),
    Operation::get("/docs/page.css", Public, Run::File(|_, _| Some(&docs::STYLE)))
        .answers_with(Answers::File("text/css"))
        .summary("get the style of the pages"),
    Operation::get("/docs/{page}", Public, Run::File(|_, name| docs::guide::page(name)))
        .answers_with(Answers::File("text/html"))
        .errors(&["NOT_FOUND"])
        .summary("get a page of the guide"),
    Operation::get("/docs/bots/{file}", Public, Run::File(|_, name| docs::bots::file(name)))
        .answers_with(Answers::File("text/plain"))
        .errors(&["NOT_FOUND"])
        .summary("get a recipe for a bot"),
    Operation::get("/console", Public, Run::File(console::page))
        .answers_with(Answers::File("text/html"))
        .errors(&["NOT_FOUND"])
        .summary("get the console, a page to watch markets and trade"),
    Operation::get("/console/{part}", Public, Run::File(console::part))
        .answers_with(Answers::Files(&console::KINDS))
        .errors(&["NOT_FOUND"])
        .summary("get a file of the console"),
    Operation::get("/console/vendor/{library}", Public, Run::File(console::library))
        .answers_with(Answers::Files(&console::KINDS))
        .errors(&["NOT_FOUND"])
        .summary("get a library of the console, or its licence"),
    Operation::get("/openapi.json", Public, Run::File(|_, _| Some(&openapi::FILE)))
        .summary("get this description of the API, in OpenAPI 3.1"),
    Operation::get("/asyncapi.json", Public, Run::File(|_, _| Some(&asyncapi::FILE)))
        .summary("get a description of the sockets and the stream of prices, in AsyncAPI 3.0"),
    Operation::get("/v1/status", Public, Now(|call| Ok(status::status(call))))
        .answers::<status::StatusAnswer>()
        .summary(
        "get the number of markets, sockets and price streams, the state of the journal, and the \
         freshness of the venue's books",
    ),
    Operation::get("/v1/time", Public, Now(|call| Ok(status::time(call))))
        .answers_with(Answers::Number)
        .summary("get the Unix time, in seconds"),
    Operation::get("/v1/health", Public, Health(|_, _, _| Ok(health::health())))
        .answers::<health::Health>()
        .summary("check that the process is alive"),
    Operation::get("/v1/health/live", Public, Health(|_, _, _| Ok(health::live())))
        .answers::<health::Health>()
        .summary("check that the process is alive, like `/v1/health`"),
    Operation::get("/v1/health/ready", Public, Health(health::ready))
        .query(&health::READY_QUERY)
        .checks::<health::Readiness<'static>>()
        .errors(&["NOT_READY", "VALIDATION_FAILED"])
        .summary("check that the server is ready; 503 while it starts or drains"),
];

#[cfg(test)]
mod tests;
