//! What has happened: facts, never requests. State is the fold of them, and of nothing else.

use std::sync::Arc;

use smallvec::SmallVec;

use super::command::Identity;
use super::fill::{Fill, Placement};
use super::key::KeyGrant;
use super::payout::{Decision, Payouts, PositionsSettled};
use super::state_hash::StateHash;
use crate::ids::{AccountId, CommentId, KeyId, MarketIndex, OrderId, Timestamp};
use crate::market::walk::Fills;
use crate::money::Usd;

/// The events of one command: one frame in the journal, on disk all together or not at all.
pub type Events = SmallVec<[Event; 1]>;

/// A fact about one shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// An identity has an account.
    AccountOpened {
        /// The new account.
        account: AccountId,
        /// Whose.
        identity: Identity,
        /// The play money that it starts with.
        granted: Usd,
        /// When.
        at: Timestamp,
    },
    /// An account has a key.
    KeyCreated {
        /// The new key.
        key: KeyId,
        /// Whose.
        account: AccountId,
        /// What it is and may do.
        grant: KeyGrant,
        /// With which key it was made, or whose place it took; none for a token.
        created_by: Option<KeyId>,
        /// When.
        at: Timestamp,
    },
    /// A key is called something else.
    KeyRenamed {
        /// Which.
        key: KeyId,
        /// What it is called now.
        name: Option<Box<str>>,
    },
    /// A key was rotated: it has an end now.
    KeyExpirySet {
        /// Which.
        key: KeyId,
        /// From when on it is accepted no more.
        expires_at: Timestamp,
    },
    /// A key is accepted no more.
    KeyRevoked {
        /// Which.
        key: KeyId,
        /// When.
        at: Timestamp,
    },
    /// An account has too many keys that have ended: this one is kept no more.
    KeyForgotten {
        /// Which.
        key: KeyId,
    },
    /// The shard uses a market for the first time. From here on it calls the market by its index,
    /// and knows the labels when the catalogue has forgotten them.
    MarketIntroduced {
        /// The shard's own name for it: how many markets it has used before.
        index: MarketIndex,
        /// The venue's name for it.
        condition_id: Arc<str>,
        /// Label and token of each outcome, in the venue's order.
        outcomes: Vec<(Arc<str>, Arc<str>)>,
    },
    /// An order has filled.
    OrderFilled(Box<OrderFilled>),
    /// An account has too many finished orders: its oldest one, with its names and its comments,
    /// is kept no more.
    OrderForgotten {
        /// Which.
        order: OrderId,
    },
    /// Somebody has commented on an order.
    CommentAdded {
        /// The new comment.
        comment: CommentId,
        /// On which order of this shard.
        order: OrderId,
        /// Who; the account may live in another shard.
        author: AccountId,
        /// What.
        content: Box<str>,
        /// When.
        at: Timestamp,
    },
    /// A comment was taken back.
    CommentDeleted {
        /// Which.
        comment: CommentId,
    },
    /// How a market is resolved. Each shard that has used it settles it by this.
    SettlementDecided {
        /// The decision.
        decision: Arc<Decision>,
        /// When.
        at: Timestamp,
    },
    /// Positions of a resolved market were paid and closed. From the first of these on no order
    /// touches the market.
    PositionsSettled(Box<PositionsSettled>),
    /// No position in a resolved market is left to pay.
    MarketSettled {
        /// Which market.
        market: MarketIndex,
        /// What a share of each outcome pays.
        payouts: Payouts,
        /// When.
        at: Timestamp,
    },
    /// What the shard's state hash was before this event: recovery and followers check themselves
    /// against it.
    StateChecked {
        /// The hash.
        hash: StateHash,
    },
}

impl Event {
    /// Whether a state holds more after it than before.
    pub const fn takes_memory(&self) -> bool {
        match self {
            Self::AccountOpened { .. }
            | Self::KeyCreated { .. }
            | Self::KeyRenamed { .. }
            | Self::MarketIntroduced { .. }
            | Self::OrderFilled(_)
            | Self::CommentAdded { .. }
            | Self::SettlementDecided { .. } => true,
            Self::KeyExpirySet { .. }
            | Self::KeyRevoked { .. }
            | Self::KeyForgotten { .. }
            | Self::OrderForgotten { .. }
            | Self::CommentDeleted { .. }
            | Self::StateChecked { .. }
            // What is owed is paid whatever there is: no more often than positions were opened.
            | Self::PositionsSettled(_)
            | Self::MarketSettled { .. } => false,
        }
    }
}

/// An order was placed and has filled at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderFilled {
    /// The order.
    pub placement: Placement,
    /// What it got.
    pub fill: Fill,
    /// What was taken, best price first.
    pub levels: Fills,
    /// The sequence of the book that it was taken from.
    pub book_sequence: u64,
    /// How much worse than the reference price the fill was, in whole basis points rounded up;
    /// none when the reference was 0, of which nothing is a part.
    pub slippage_bps: Option<u32>,
}
