//! Events: facts about what happened, never requests. The state is the fold of its events.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::engine::account::resting::UsedLevel;
use crate::engine::admin::standing::{Act, Operator};
use crate::engine::command::Identity;
use crate::engine::fills::fill::{Fill, Placement};
use crate::engine::key::KeyGrant;
use crate::engine::market::payout::{Decision, Payouts, PositionsSettled};
use crate::engine::order::hold::Hold;
use crate::engine::order::terms::{EndReason, Terms};
use crate::engine::state::hash::StateHash;
use crate::ids::{AccountId, CommentId, KeyId, MarketIndex, OrderId, Timestamp};
use crate::market::book::Level;
use crate::market::walk::Fills;
use crate::money::Usd;

/// The events of one command: one record in the journal, which reaches the disk whole or not at
/// all.
pub type Events = SmallVec<[Event; 1]>;

/// A fact about one shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// An account was opened for an identity.
    AccountOpened {
        /// The new account.
        account: AccountId,
        /// The owner's identity.
        identity: Identity,
        /// The play money granted at the start.
        granted: Usd,
        /// The time of the decision.
        at: Timestamp,
    },
    /// A key was created.
    KeyCreated {
        /// The new key.
        key: KeyId,
        /// The account that the key belongs to.
        account: AccountId,
        /// The key's properties.
        grant: KeyGrant,
        /// The key that created this one, or that this one replaced; `None` if an access token
        /// created it.
        created_by: Option<KeyId>,
        /// The time of the decision.
        at: Timestamp,
    },
    /// A key was renamed.
    KeyRenamed {
        /// The key.
        key: KeyId,
        /// The new name.
        name: Option<Box<str>>,
    },
    /// A rotated key was given an expiry.
    KeyExpirySet {
        /// The key.
        key: KeyId,
        /// The time from which the key is refused.
        expires_at: Timestamp,
    },
    /// A key was revoked.
    KeyRevoked {
        /// The key.
        key: KeyId,
        /// The time of the decision.
        at: Timestamp,
    },
    /// A revoked or expired key was removed because its account had too many of them.
    KeyForgotten {
        /// The key.
        key: KeyId,
    },
    /// The shard used a market for the first time. From here on it refers to the market by index,
    /// and knows the labels even if the catalogue drops the market.
    MarketIntroduced {
        /// The shard's index for the market: the number of markets it used before.
        index: MarketIndex,
        /// The market's condition id.
        condition_id: Arc<str>,
        /// Label and token of each outcome, in the venue's order.
        outcomes: Vec<(Arc<str>, Arc<str>)>,
    },
    /// An order was placed and filled.
    OrderFilled(Box<OrderFilled>),
    /// An order was placed that may rest, or that need not fill completely.
    OrderPlaced(Box<OrderPlaced>),
    /// An order was placed that is held before it is decided.
    OrderHeld(Box<OrderHeld>),
    /// A held order was rejected when it was decided. There is no such order any more.
    HeldOrderDropped {
        /// The order.
        order: OrderId,
    },
    /// An open order that was placed while its book was stale has met its first fresh book.
    OrderAdmitted {
        /// The order.
        order: OrderId,
    },
    /// An open order filled, in part or completely.
    RestingFilled(Box<RestingFilled>),
    /// An open order ended before it was filled. What it held back is free again.
    OrderEnded {
        /// The order.
        order: OrderId,
        /// Why it ended.
        reason: EndReason,
        /// The time of the decision.
        at: Timestamp,
    },
    /// An account was reset. Its open orders ended before, in the same record.
    AccountReset(AccountReset),
    /// An operator did something to an account.
    OperatorActed(Box<OperatorActed>),
    /// An account began, changed or ended its heartbeat.
    HeartbeatSet {
        /// The account.
        account: AccountId,
        /// How often it beats, in milliseconds; `None` if it no longer does.
        interval_ms: Option<u32>,
    },
    /// An account began to log its fills, before its first order that is held.
    FillLogBegun {
        /// The account.
        account: AccountId,
    },
    /// The oldest finished order of an account, with its names and comments, was removed because
    /// the account had too many.
    OrderForgotten {
        /// The order.
        order: OrderId,
    },
    /// A comment was added to an order.
    CommentAdded {
        /// The new comment.
        comment: CommentId,
        /// The order, which is in this shard.
        order: OrderId,
        /// The author's account, which may be in another shard.
        author: AccountId,
        /// The text.
        content: Box<str>,
        /// The time of the decision.
        at: Timestamp,
    },
    /// A comment was deleted.
    CommentDeleted {
        /// The comment.
        comment: CommentId,
    },
    /// The resolution of a market was recorded. Each shard that has used the market settles it
    /// accordingly.
    SettlementDecided {
        /// The decision.
        decision: Arc<Decision>,
        /// The time of the decision.
        at: Timestamp,
    },
    /// Positions of a resolved market were paid and closed. After the first of these events, the
    /// market takes no more orders.
    PositionsSettled(Box<PositionsSettled>),
    /// Every position in a resolved market is paid.
    MarketSettled {
        /// The market, by the shard's index.
        market: MarketIndex,
        /// The payout per share of each outcome.
        payouts: Payouts,
        /// The time of the decision.
        at: Timestamp,
    },
    /// The state hash before this event, against which recovery and followers check themselves.
    StateChecked {
        /// The hash.
        hash: StateHash,
    },
}

impl Event {
    /// Whether the event may open, fill or end an order that rests.
    #[inline]
    pub const fn concerns_open_orders(&self) -> bool {
        matches!(
            self,
            Self::OrderPlaced(_)
                | Self::OrderHeld(_)
                | Self::HeldOrderDropped { .. }
                | Self::RestingFilled(_)
                | Self::OrderEnded { .. }
        )
    }

    /// Whether the event adds to the state.
    pub const fn takes_memory(&self) -> bool {
        match self {
            Self::AccountOpened { .. }
            | Self::KeyCreated { .. }
            | Self::KeyRenamed { .. }
            | Self::MarketIntroduced { .. }
            | Self::OrderFilled(_)
            | Self::OrderHeld(_)
            | Self::CommentAdded { .. }
            | Self::SettlementDecided { .. } => true,
            // One that was held takes the place of the held one.
            Self::OrderPlaced(placed) => placed.terms.held_ms == 0,
            Self::KeyExpirySet { .. }
            | Self::KeyRevoked { .. }
            | Self::KeyForgotten { .. }
            | Self::OrderForgotten { .. }
            | Self::CommentDeleted { .. }
            | Self::StateChecked { .. }
            // What open orders bring about was accepted when they were placed.
            | Self::HeldOrderDropped { .. }
            | Self::OrderAdmitted { .. }
            | Self::RestingFilled(_)
            | Self::OrderEnded { .. }
            | Self::AccountReset(_)
            // Operators must get through even without memory.
            | Self::OperatorActed(_)
            | Self::HeartbeatSet { .. }
            | Self::FillLogBegun { .. }
            // Payouts must go through even without memory; opened positions bound their number.
            | Self::PositionsSettled(_)
            | Self::MarketSettled { .. } => false,
        }
    }
}

/// An order that was placed and filled at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderFilled {
    /// The order's terms.
    pub placement: Placement,
    /// The fill.
    pub fill: Fill,
    /// The levels taken, best price first.
    pub levels: Fills,
    /// The sequence of the book that the levels were taken from.
    pub book_sequence: u64,
    /// How much worse than the reference price the fill was, in whole basis points rounded up;
    /// `None` if the reference price was 0, for which no ratio exists.
    pub slippage_bps: Option<u32>,
}

/// An order that was placed and then filled, rested or ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderPlaced {
    /// The order's market, side and names.
    pub placement: Placement,
    /// What the order asks for.
    pub terms: Terms,
    /// What it took when it was placed, and what the account had then. The quantity is 0 if it took
    /// nothing.
    pub fill: Fill,
    /// The levels taken, best price first.
    pub levels: Fills,
    /// The sequence of the book at that time; 0 if there was none.
    pub book_sequence: u64,
    /// How much worse than the reference price the fill was, in whole basis points rounded up;
    /// `None` if there was no reference price above 0.
    pub slippage_bps: Option<u32>,
    /// Why the order ended at once. `None` if it filled or rests.
    pub end: Option<EndReason>,
}

/// An order that was placed and is held before it is decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderHeld {
    /// The order's market, side and names.
    pub placement: Placement,
    /// What the order asks for. An order for an amount says how many shares that would buy now.
    pub terms: Terms,
    /// How long it is held, and what it holds back.
    pub hold: Hold,
    /// The time of the decision.
    pub at: Timestamp,
}

/// A fill of an open order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RestingFilled {
    /// The order.
    pub order: OrderId,
    /// What this fill gave, and what the account had afterwards.
    pub fill: Fill,
    /// The best level that the venue displayed within the order's limit.
    pub displayed: Level,
    /// The sequence of the book that displayed it.
    pub book_sequence: u64,
    /// What the order used of the displayed levels. Empty if it does not matter any more, and in
    /// the records of versions that did not write it.
    pub used: SmallVec<[UsedLevel; 1]>,
}

/// An account was reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccountReset {
    /// The account.
    pub account: AccountId,
    /// How many open positions were closed.
    pub position_count: u32,
    /// What they had cost, without fees.
    pub cost: Usd,
    /// The play money granted; below 0 if money was taken.
    pub granted: Usd,
    /// The account's cash afterwards.
    pub balance: Usd,
    /// The time of the decision.
    pub at: Timestamp,
}

/// An operator did something to an account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OperatorActed {
    /// The account.
    pub account: AccountId,
    /// What was done.
    pub act: Act,
    /// Who did it.
    pub by: Operator,
    /// Why.
    pub reason: Box<str>,
    /// The time of the decision.
    pub at: Timestamp,
}
