//! The reasons why a shard rejects a command. One exhaustive match in `http` maps each reason to a
//! status and a code.

use std::sync::Arc;

use crate::engine::fills::undone::UndoFlaw;
use crate::engine::order::payload::PayloadFlaw;
use crate::engine::order::terms::OrderStatus;
use crate::ids::{CommentId, OrderId, Timestamp};
use crate::market::catalogue::MarketStatus;
use crate::money::{Price, Shares, Usd};

/// The reason why a command was rejected. The state has not changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Rejection {
    /// A name already belongs to a different order, or the two names belong to two orders.
    #[error(
        "the idempotency key or client_order_id already names order {order}, which was sent with \
         other fields; GET /v1/orders/{order} shows it. Use another name for another order"
    )]
    NameReused {
        /// The account's order with that name.
        order: OrderId,
    },
    /// One of the two names belongs to an order, and the other is new.
    #[error(
        "one of the idempotency key and the client_order_id names order {order}, the other one is \
         new: repeat the order under the names that it has, or use two new ones for another order"
    )]
    NameAdded {
        /// The account's order with the known name.
        order: OrderId,
    },
    /// An entry of a named batch differs from the first request, or has moved.
    #[error(
        "the idempotency key was already used for a batch with other entries, or in another order: \
         send that batch again as it was, or use another key"
    )]
    BatchChanged,
    /// No market has this id.
    #[error("no market has the id {market_id}; {}", meant_market(.meant.as_ref()))]
    MarketNotFound {
        /// The id in the request.
        market_id: Box<str>,
        /// If the id is another identifier of a market, such as its slug: the kind of identifier,
        /// and the market's condition id.
        meant: Option<(&'static str, Arc<str>)>,
    },
    /// The market has no such outcome.
    #[error("the market has no outcome {outcome:?}; it has {}", list(.labels))]
    OutcomeNotFound {
        /// The label in the request.
        outcome: Box<str>,
        /// The labels of the market's outcomes.
        labels: Vec<Arc<str>>,
    },
    /// The market does not accept orders.
    #[error("the market does not accept orders: it is {}", describe(*.status))]
    MarketClosed {
        /// The market's status.
        status: MarketStatus,
    },
    /// The market is a placeholder for outcomes that its event has not named yet.
    #[error("the market does not accept orders: it is a placeholder for outcomes not named yet")]
    MarketUnnamed,
    /// The server cannot compute the market's fee.
    #[error("the market has a fee schedule that this server does not support")]
    FeesUnsupported,
    /// The market's tokens differ from those that this shard first traded.
    #[error("the venue now lists the market with other outcomes than it was traded with before")]
    MarketChanged,
    /// The outcome has no fresh book.
    #[error(
        "no fresh order book for this outcome at the moment: {}. Retry, or send a GTC limit order \
         to POST /v1/orders, which waits for a fresh book",
        last_book(*.book_at)
    )]
    VenueUnavailable {
        /// When the book last changed; `None` if there is no book.
        book_at: Option<Timestamp>,
    },
    /// A sale of more shares than are available.
    #[error(
        "cannot sell {asked} shares: only {available} are available, after what open orders reserve"
    )]
    InsufficientPosition {
        /// The shares in the position that no open order reserves.
        available: Shares,
        /// The order's quantity.
        asked: Shares,
    },
    /// The book cannot fill the whole quantity.
    #[error("the book holds {available} of {asked} shares on that side")]
    InsufficientLiquidity {
        /// The shares that the book offers.
        available: Shares,
        /// The order's quantity.
        asked: Shares,
    },
    /// The slippage exceeds the bound.
    #[error("the fill at {price} is more than {max_slippage_bps} bps worse than {reference}")]
    SlippageExceeded {
        /// The average price of the fill.
        price: Price,
        /// The reference price.
        reference: Price,
        /// The bound, in basis points.
        max_slippage_bps: u16,
    },
    /// The order costs more than the available cash.
    #[error(
        "the order needs {needed} dollars with its fee: only {available} are available, after what \
         open orders reserve"
    )]
    InsufficientBalance {
        /// The notional, the fee and any reserve for the remainder; for a sale, the fee minus the
        /// proceeds.
        needed: Usd,
        /// The available cash.
        available: Usd,
    },
    /// Some of the order's fields cannot be combined.
    #[error("{0}")]
    Payload(PayloadFlaw),
    /// The limit price is not on the market's price grid.
    #[error(
        "the price {price} is not a multiple of the tick {tick} between {tick} and {}: {}",
        .tick.complement(),
        nearest_prices(*.price, *.tick)
    )]
    OffTick {
        /// The price in the request.
        price: Price,
        /// The market's tick.
        tick: Price,
    },
    /// The quantity is below the market's minimum.
    #[error(
        "the quantity {asked} is below the market's minimum of {quantity_min} shares; only a sale \
         of all that is held may be smaller"
    )]
    BelowMinimum {
        /// The order's quantity.
        asked: Shares,
        /// The market's minimum.
        quantity_min: Shares,
    },
    /// The amount is too small to buy the minimum quantity.
    #[error("the amount {amount} does not buy 0.0001 shares")]
    AmountTooSmall {
        /// The amount in the request.
        amount: Usd,
    },
    /// The book cannot fill the whole order at its price or better.
    #[error(
        "the book offers {available} of {asked} shares at {price} or better, and the order must \
         fill completely"
    )]
    NotFilledWithinPrice {
        /// The shares that the book offers at the order's price or better.
        available: Shares,
        /// The order's quantity.
        asked: Shares,
        /// The worst price that the order accepts.
        price: Price,
    },
    /// The book does not offer enough shares to spend the whole amount.
    #[error(
        "the book offers shares for {offered} of the {amount} dollars{}, and the order must fill \
         completely",
        within(*.price)
    )]
    AmountNotSpent {
        /// The dollars that the order could spend.
        offered: Usd,
        /// The order's amount.
        amount: Usd,
        /// The worst price that the order accepts, if it has one.
        price: Option<Price>,
    },
    /// A post-only order would take liquidity.
    #[error("the order is post-only and would fill at {touch}")]
    PostOnlyWouldCross {
        /// The best price on the other side.
        touch: Price,
    },
    /// The account already has the maximum number of open orders.
    #[error("an account may have {open_orders_max} open orders; cancel one")]
    OpenOrderLimitExceeded {
        /// The maximum number of open orders.
        open_orders_max: u32,
    },
    /// The order is not open.
    #[error("the order cannot be cancelled: it is {}", .status.as_str())]
    NotCancellable {
        /// The order's status.
        status: OrderStatus,
    },
    /// The order is delayed for the venue's taker delay.
    #[error("the order cannot be cancelled while the venue's delay holds it")]
    OrderIsDelayed,
    /// The account was reset while the order was delayed.
    #[error(
        "the account was reset while the venue's delay held the order: send it again under another \
         name"
    )]
    ResetWhileDelayed,
    /// The account was suspended while the order was delayed. It may have been resumed since.
    #[error(
        "an operator suspended the account while the venue's delay held the order: send it under \
         another name once writes are accepted"
    )]
    SuspendedWhileDelayed,
    /// An operator has suspended the account.
    #[error(
        "an operator of this server has suspended the account: reads go on, writes are refused"
    )]
    AccountSuspended,
    /// The deposit's token was already used with a different amount.
    #[error("this token was used for a deposit of {amount}; use another")]
    DepositTokenReused {
        /// The amount of the deposit that used the token.
        amount: Usd,
    },
    /// The deposit would take one of the account's sums out of range.
    #[error("a deposit of {amount} would take the account's total past what the server can count")]
    DepositTooLarge {
        /// The amount of the deposit.
        amount: Usd,
    },
    /// The identity has no account, or no account has this id.
    #[error("no such account; POST /v1/keys/bootstrap opens one")]
    AccountNotFound,
    /// The account has no such key.
    #[error("the account has no key with this id")]
    KeyNotFound,
    /// The account already has an active key.
    #[error(
        "the account already has an active key; if the raw key is lost, make a new one with the \
         access token at POST /v1/keys"
    )]
    BootstrapNotAllowed,
    /// The account already has the maximum number of active keys.
    #[error(
        "an account may have {active_keys_max} active keys, and this one has no room; revoke one"
    )]
    KeyLimitExceeded {
        /// The maximum number of active keys.
        active_keys_max: u32,
    },
    /// An operator gave the account a lower tier after the caller was authenticated.
    #[error("the tier is above the caller's own")]
    TierNotAuthorized,
    /// The caller's key was revoked or expired after the caller was authenticated.
    #[error("the API key was revoked or has expired")]
    MakerEnded,
    /// The caller's key was rotated.
    #[error(
        "the API key was rotated: until it ends it makes, rotates and renames no keys; use the one \
         that took its place"
    )]
    MakerRotated,
    /// The key to rotate was already rotated.
    #[error(
        "the key was rotated before, and works until {expires_at}; rotate the key that took its \
         place, or revoke this one"
    )]
    KeyRotated {
        /// When the key expires.
        expires_at: Timestamp,
    },
    /// The key to rotate was revoked or has expired.
    #[error("the key was revoked or has expired, so there is nothing to rotate; make a new one")]
    KeyEnded,
    /// The account already has the maximum number of rotated keys that still work.
    #[error(
        "{overlapping_keys_max} rotated keys of this account still work, the most that may; revoke \
         one, or rotate with overlap_seconds 0"
    )]
    OverlapLimitExceeded {
        /// The maximum number of rotated keys that still work.
        overlapping_keys_max: usize,
    },
    /// No order has this id.
    #[error("no order has this id")]
    OrderNotFound,
    /// No comment has this id.
    #[error("no comment has this id")]
    CommentNotFound,
    /// The comment belongs to another author.
    #[error("only the author of a comment can delete it")]
    CommentNotOwn,
    /// The order already has the maximum number of comments.
    #[error("the order has {comments_max} comments, the most that it may have")]
    CommentLimitExceeded {
        /// The maximum number of comments on one order.
        comments_max: usize,
    },
    /// The author already has the maximum number of comments on this order.
    #[error(
        "you have {comments_max} comments on this order, the most that one author may have; delete \
         one to write another"
    )]
    AuthorLimitExceeded {
        /// The maximum number of comments of one author on one order.
        comments_max: usize,
    },
    /// The author already has the maximum number of comments on all orders together.
    #[error(
        "you have written {comments_max} comments, the most that one author may have on this \
         server; delete one to write another: DELETE /comments/{oldest} deletes the oldest"
    )]
    WrittenLimitExceeded {
        /// The maximum number of comments of one author.
        comments_max: u32,
        /// The author's oldest comment.
        oldest: CommentId,
    },
    /// The fill cannot be undone.
    #[error("the fill cannot be undone: {0}")]
    FillNotUndone(UndoFlaw),
    /// A counter or sum would exceed its range, or the result would break an invariant, which is a
    /// bug. The command is rejected before anything changes.
    #[error("the order would break the ledger: {rule}")]
    Broken {
        /// The rule that would be broken.
        rule: &'static str,
    },
}

impl From<UndoFlaw> for Rejection {
    fn from(flaw: UndoFlaw) -> Self {
        Self::FillNotUndone(flaw)
    }
}

fn list(labels: &[Arc<str>]) -> String {
    labels.iter().map(|label| format!("{label:?}")).collect::<Vec<_>>().join(", ")
}

fn meant_market(meant: Option<&(&'static str, Arc<str>)>) -> String {
    match meant {
        Some((kind, id)) => format!("that is the {kind} of the market {id}: send this id"),
        None => "GET /v1/markets lists them".to_owned(),
    }
}

fn last_book(at: Option<Timestamp>) -> String {
    match at {
        Some(at) => format!("the last one is of {at}"),
        None => "none has arrived yet".to_owned(),
    }
}

/// Describes the nearest prices on the market's tick grid.
fn nearest_prices(price: Price, tick: Price) -> String {
    let (tick, last) = (tick.micros(), tick.complement().micros());
    let below = (price.micros() / tick * tick).clamp(tick, last.max(tick));
    let above = below + tick;
    if price.micros() < below || above > last {
        return format!("the nearest is {}", Price::from_micros(below));
    }
    format!("the nearest are {} and {}", Price::from_micros(below), Price::from_micros(above))
}

fn within(price: Option<Price>) -> String {
    price.map_or_else(String::new, |price| format!(" at {price} or better"))
}

const fn describe(status: MarketStatus) -> &'static str {
    match status {
        MarketStatus::Hydrating => "announced but not yet complete",
        MarketStatus::Open => "open",
        MarketStatus::Paused => "paused",
        MarketStatus::Closed => "closed",
        MarketStatus::Resolved => "resolved",
    }
}
