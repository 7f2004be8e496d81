//! Why a shard refuses a command. One exhaustive match turns each into a status, a code and a text.

use std::sync::Arc;

use crate::ids::Timestamp;
use crate::market::catalogue::MarketStatus;
use crate::money::{Price, Shares, Usd};

/// A refusal. Nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Rejection {
    /// The name stands for another order, or two names for two orders.
    #[error("the idempotency key or client_order_id was already used for a different order")]
    NameReused,
    /// No such market.
    #[error("no market has the id {market_id}; GET /v1/markets lists them")]
    MarketNotFound {
        /// As asked.
        market_id: Box<str>,
    },
    /// The market has no such outcome.
    #[error("the market has no outcome {outcome:?}; it has {}", list(.labels))]
    OutcomeNotFound {
        /// As asked.
        outcome: Box<str>,
        /// What there is.
        labels: Vec<Arc<str>>,
    },
    /// The market takes no orders.
    #[error("the market does not accept orders: it is {}", describe(*.status))]
    MarketClosed {
        /// Where in its life it is.
        status: MarketStatus,
    },
    /// The market charges a fee that is not computed here.
    #[error("the market has a fee schedule that this server does not support")]
    FeesUnsupported,
    /// The venue lists the market with other outcomes than it was traded with here before.
    #[error("the venue now lists the market with other outcomes than it was traded with before")]
    MarketChanged,
    /// There is no book that is known to be the venue's present one.
    #[error("no fresh order book for this outcome at the moment")]
    VenueUnavailable,
    /// More to sell than there is.
    #[error("cannot sell {asked} shares: the position holds {held}")]
    InsufficientPosition {
        /// In the position.
        held: Shares,
        /// In the order.
        asked: Shares,
    },
    /// The book does not hold the whole quantity.
    #[error("the book holds {available} of {asked} shares on that side")]
    InsufficientLiquidity {
        /// What could be had.
        available: Shares,
        /// In the order.
        asked: Shares,
    },
    /// The fill would be too much worse than the reference.
    #[error("the fill at {price} is more than {max_slippage_bps} bps worse than {reference}")]
    SlippageExceeded {
        /// The average price of the fill.
        price: Price,
        /// What it was compared with.
        reference: Price,
        /// The bound.
        max_slippage_bps: u16,
    },
    /// More to pay than there is.
    #[error("the order costs {needed} with its fee: the balance is {available}")]
    InsufficientBalance {
        /// Notional and fee.
        needed: Usd,
        /// Cash.
        available: Usd,
    },
    /// The identity has no account, or the id is none.
    #[error("no such account; POST /v1/keys/bootstrap opens one")]
    AccountNotFound,
    /// The account has no such key.
    #[error("the account has no key with this id")]
    KeyNotFound,
    /// The first key was made before.
    #[error(
        "the account already has an active key; if the raw key is lost, make a new one with the \
         access token at POST /v1/keys"
    )]
    BootstrapNotAllowed,
    /// Too many active keys.
    #[error(
        "an account may have {active_keys_max} active keys, and this one has no room; revoke one"
    )]
    KeyLimitExceeded {
        /// The bound.
        active_keys_max: u32,
    },
    /// The key that the request came with has been revoked or has expired since.
    #[error("the API key was revoked or has expired")]
    MakerEnded,
    /// The key that the request came with was rotated.
    #[error(
        "the API key was rotated: until it ends it makes, rotates and renames no keys; use the one \
         that took its place"
    )]
    MakerRotated,
    /// The key to be rotated was rotated before.
    #[error(
        "the key was rotated before, and works until {expires_at}; rotate the key that took its \
         place, or revoke this one"
    )]
    KeyRotated {
        /// When the key ends.
        expires_at: Timestamp,
    },
    /// The key to be rotated does not work any more.
    #[error("the key was revoked or has expired, so there is nothing to rotate; make a new one")]
    KeyEnded,
    /// Too many keys that were rotated still work.
    #[error(
        "{overlapping_keys_max} rotated keys of this account still work, the most that may; revoke \
         one, or rotate with overlap_seconds 0"
    )]
    OverlapLimitExceeded {
        /// The bound.
        overlapping_keys_max: usize,
    },
    /// No such order.
    #[error("no order has this id")]
    OrderNotFound,
    /// No such comment.
    #[error("no comment has this id")]
    CommentNotFound,
    /// The comment is somebody else's.
    #[error("only the author of a comment can delete it")]
    CommentNotOwn,
    /// Too many comments on one order.
    #[error("the order has {comments_max} comments, the most that it may have")]
    CommentLimitExceeded {
        /// The bound.
        comments_max: usize,
    },
    /// Too many comments of one author on one order.
    #[error(
        "you have {comments_max} comments on this order, the most that one author may have; delete \
         one to write another"
    )]
    AuthorLimitExceeded {
        /// The bound.
        comments_max: usize,
    },
    /// A counter or a sum has come to its end, or the outcome breaks a rule that always holds: a
    /// bug. The command is refused before anything changes.
    #[error("the order would break the ledger: {rule}")]
    Broken {
        /// Which rule.
        rule: &'static str,
    },
}

fn list(labels: &[Arc<str>]) -> String {
    labels.iter().map(|label| format!("{label:?}")).collect::<Vec<_>>().join(", ")
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
