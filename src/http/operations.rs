//! Every operation of the API, one row each: its method and path, who may call it, what runs.
//!
//! Routing, the `Allow` header, what is checked before a body is read, and the table in the README
//! come from here. In debug builds a row is held to what it says: an operation panics that reads
//! another parameter of the query, or fails with another error code. `src/README.md` says how to
//! add an operation.

pub mod account;
pub mod batch;
pub mod books;
pub mod comments;
pub mod health;
pub mod keys;
pub mod markets;
pub mod orders;
pub mod prices;
pub(super) mod socket;
pub mod status;
pub mod trade;

use super::operation::Access::{Key, KeyOrToken, Public, Socket, Token};
use super::operation::Operation;
use super::operation::Run::{self, Health, Later, Now};
use crate::engine::key::Permission::{Read, Trade};

/// The table. A path without a parameter stands before those that would take its last segment for
/// one, and the trade, which is asked for most, before all.
pub static OPERATIONS: [Operation; 29] = [
    Operation::post("/trade", KeyOrToken(Some(Trade)), Run::Trade)
        .makes_account()
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
            "JOURNAL_FULL",
            "SERVER_FULL",
        ])
        .summary("a market order: all of it at once or nothing"),
    Operation::post(
        "/trades/{order_id}/comments",
        KeyOrToken(Some(Trade)),
        Later(|call| Box::pin(comments::add(call))),
    )
    .makes_account()
    .errors(&["ORDER_NOT_FOUND", "COMMENT_LIMIT_EXCEEDED", "JOURNAL_FULL", "SERVER_FULL"])
    .summary(
        "`content` of 1 to 1000 characters, no control characters but newlines and tabs; 20 \
         comments of one author on an order",
    ),
    Operation::get(
        "/trades/{order_id}/comments",
        Public,
        Later(|call| Box::pin(comments::list(call))),
    )
    .query(&["limit", "offset"])
    .errors(&["ORDER_NOT_FOUND"])
    .summary("the oldest first"),
    Operation::delete(
        "/comments/{comment_id}",
        KeyOrToken(Some(Trade)),
        Later(|call| Box::pin(comments::delete(call))),
    )
    .errors(&["ACCOUNT_NOT_FOUND", "COMMENT_NOT_FOUND", "JOURNAL_FULL", "SERVER_FULL"])
    .summary("one's own only"),
    Operation::post(
        "/v1/orders/batch",
        Key(Trade),
        Later(|call| Box::pin(batch::place_batch(call))),
    )
    .batch_body()
    .errors(&["BATCH_LIMIT_EXCEEDED"])
    .summary("`orders` of the shape of `/trade`, each for itself; the tier says how many"),
    Operation::get("/v1/orders", Key(Read), Later(|call| Box::pin(orders::list(call))))
        .query(&["client_order_id", "market_id", "side", "status", "limit", "offset"])
        .summary("the account's orders, the newest first; a `client_order_id` finds one"),
    Operation::get("/v1/orders/{order_id}", Key(Read), Later(|call| Box::pin(orders::get(call))))
        .errors(&["ORDER_NOT_FOUND"])
        .summary("one order"),
    Operation::post("/v1/prices/batch", Key(Read), Now(prices::list))
        .batch_body()
        .errors(&["BATCH_LIMIT_EXCEEDED"])
        .summary("`market_ids`, as many as the tier's batch has entries, at most 50"),
    Operation::get("/v1/markets", Public, Now(markets::list))
        .query(&["limit", "offset", "q", "search", "category", "active_only", "hot_only"])
        .summary("what can be traded; `search` is another name of `q`"),
    Operation::get("/v1/markets/{condition_id}", Public, Now(markets::get))
        .errors(&["MARKET_NOT_FOUND"])
        .summary("one market"),
    Operation::get("/v1/markets/{condition_id}/book", Public, Now(books::get_by_label))
        .query(&["outcome", "depth"])
        .errors(&["MARKET_NOT_FOUND", "OUTCOME_NOT_FOUND", "BOOK_UNAVAILABLE"])
        .summary("a book by the label of its outcome; best level last"),
    Operation::get("/v1/book", Public, Now(books::get_by_token))
        .query(&["token_id", "depth"])
        .errors(&["TOKEN_NOT_FOUND", "BOOK_UNAVAILABLE"])
        .summary("a book by the token of its outcome; best level last"),
    Operation::get(
        "/v1/account/balance",
        KeyOrToken(Some(Read)),
        Later(|call| Box::pin(account::balance(call))),
    )
    .errors(&["ACCOUNT_NOT_FOUND"])
    .summary("cash, and what the positions are worth"),
    Operation::get(
        "/v1/account/positions",
        KeyOrToken(Some(Read)),
        Later(|call| Box::pin(account::positions(call))),
    )
    .query(&["status"])
    .errors(&["ACCOUNT_NOT_FOUND"])
    .summary("what is held, at which average price"),
    Operation::get(
        "/v1/account/settlements",
        KeyOrToken(Some(Read)),
        Later(|call| Box::pin(account::settlements(call))),
    )
    .query(&["market_id", "from", "to", "limit", "cursor"])
    .errors(&["ACCOUNT_NOT_FOUND"])
    .summary("what resolved markets have paid"),
    Operation::post("/v1/keys/bootstrap", Token, Later(|call| Box::pin(keys::create(call, true))))
        .makes_account()
        .makes_key()
        .errors(&["BOOTSTRAP_NOT_ALLOWED", "TIER_NOT_AUTHORIZED", "JOURNAL_FULL", "SERVER_FULL"])
        .summary("opens the account, makes its first key, shown this once"),
    Operation::post(
        "/v1/keys",
        KeyOrToken(None),
        Later(|call| Box::pin(keys::create(call, false))),
    )
    .makes_account()
    .makes_key()
    .errors(&["TIER_KEY_LIMIT_EXCEEDED", "TIER_NOT_AUTHORIZED", "JOURNAL_FULL", "SERVER_FULL"])
    .summary("makes another key: `name`, `tier`, `permissions`"),
    Operation::get("/v1/keys", KeyOrToken(Some(Read)), Later(|call| Box::pin(keys::list(call))))
        .summary("the account's keys; without `admin` only the caller's own"),
    Operation::get("/v1/keys/tiers", Public, Now(|call| Ok(keys::list_tiers(call))))
        .summary("the limits of each tier"),
    Operation::post("/v1/keys/ws-token", KeyOrToken(None), Now(socket::create_token))
        .errors(&["ACCOUNT_NOT_FOUND"])
        .summary("a token for a socket's `?token=`, good for 60 s"),
    Operation::patch(
        "/v1/keys/{key_id}",
        KeyOrToken(None),
        Later(|call| Box::pin(keys::rename(call))),
    )
    .errors(&["ACCOUNT_NOT_FOUND", "KEY_NOT_FOUND", "JOURNAL_FULL", "SERVER_FULL"])
    .summary("gives it another `name`, or none: `null`; without `admin` only the caller's own"),
    Operation::delete(
        "/v1/keys/{key_id}",
        KeyOrToken(None),
        Later(|call| Box::pin(keys::revoke(call))),
    )
    .query(&["descendants"])
    .errors(&["ACCOUNT_NOT_FOUND", "KEY_NOT_FOUND", "JOURNAL_FULL", "SERVER_FULL"])
    .summary(
        "revokes; `?descendants=true` also those it has made; without `admin` only the caller's \
         own",
    ),
    Operation::post(
        "/v1/keys/{key_id}/rotate",
        KeyOrToken(None),
        Later(|call| Box::pin(keys::rotate(call))),
    )
    .makes_key()
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
        "a new raw key in its place; the old one works for `overlap_seconds` more; without \
         `admin` only the caller's own",
    ),
    Operation::get("/v1/ws/prices", Socket, Run::Socket)
        .query(&["token"])
        .errors(&["UPGRADE_REQUIRED"])
        .summary("a WebSocket: `subscribe`, `unsubscribe`, `ping`"),
    Operation::get("/v1/status", Public, Now(|call| Ok(status::status(call)))).summary(
        "the server in numbers: markets, sockets, journal, and how far the venue's books can be \
         trusted",
    ),
    Operation::get("/v1/time", Public, Now(|call| Ok(status::time(call))))
        .summary("the seconds since 1970"),
    Operation::get("/v1/health", Public, Health(|_, _| Ok(health::health())))
        .summary("the process lives; so does `/live`"),
    Operation::get("/v1/health/live", Public, Health(|_, _| Ok(health::live()))),
    Operation::get("/v1/health/ready", Public, Health(health::ready))
        .query(&["strict"])
        .summary("recovered, and of use; 503 while starting and ending"),
];

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn what_holds_before_the_body_is_read() {
        let mut table = String::new();
        for operation in &OPERATIONS {
            let name = format!("{operation:?}");
            let access = format!("{:?}", operation.access);
            let body = operation.body_bytes_max / 1024;
            let makes = match (operation.makes.account, operation.makes.key) {
                (true, true) => " account, key",
                (true, false) => " account",
                (false, true) => " key",
                (false, false) => "",
            };
            writeln!(table, "{name:<36} {access:<23} {body:>3} KiB{makes}").unwrap();
        }
        insta::assert_snapshot!(table);
    }

    /// A row that an earlier one takes all requests from is none.
    #[test]
    fn every_row_is_reached() {
        for (index, operation) in OPERATIONS.iter().enumerate() {
            let path = operation.path.as_str();
            let first = OPERATIONS.iter().find(|it| it.path.segment(path).is_some());
            assert_eq!(first.map(|it| it.path.as_str()), Some(path));
            assert!(!OPERATIONS[..index].contains(operation), "{operation:?} has two rows");
        }
    }
}
