//! Events: facts about what happened, never requests. The state is the fold of its events.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::engine::account::extension::UsedLevel;
use crate::engine::admin::standing::{Act, Operator};
use crate::engine::command::Identity;
use crate::engine::fills::fill::{Fill, Placement};
use crate::engine::key::KeyGrant;
use crate::engine::market::payout::{Decision, Payouts, PositionsSettled};
use crate::engine::order::delay::Delay;
use crate::engine::order::terms::{EndReason, Terms};
use crate::engine::state::hash::StateHash;
use crate::ids::{AccountId, CommentId, KeyId, MarketIndex, OrderId, Timestamp};
use crate::market::book::Level;
use crate::market::walk::Fills;
use crate::money::{Shares, Usd};

/// The events of one command. They form one journal record, which reaches the disk whole or not at
/// all.
pub type Events = SmallVec<[Event; 1]>;

/// A change to the state of one shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// An account was opened for an identity.
    AccountOpened {
        /// The new account.
        account: AccountId,
        /// The owner's identity.
        identity: Identity,
        /// The play money granted on opening.
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
        /// The renamed key.
        key: KeyId,
        /// The new name.
        name: Option<Box<str>>,
    },
    /// A rotated key was given an expiry.
    KeyExpirySet {
        /// The rotated key.
        key: KeyId,
        /// The time from which the key is refused.
        expires_at: Timestamp,
    },
    /// A key was revoked.
    KeyRevoked {
        /// The revoked key.
        key: KeyId,
        /// The time of the decision.
        at: Timestamp,
    },
    /// A revoked or expired key was removed because its account had too many of them.
    KeyForgotten {
        /// The removed key.
        key: KeyId,
    },
    /// The shard used a market for the first time. Later events refer to the market by index, and
    /// the labels stay known even if the catalogue drops the market.
    MarketIntroduced {
        /// The shard's index for the market: the number of markets introduced before it.
        index: MarketIndex,
        /// The market's condition id.
        condition_id: Arc<str>,
        /// Label and token of each outcome, in the venue's order.
        outcomes: Vec<(Arc<str>, Arc<str>)>,
    },
    /// An order was placed and filled.
    OrderFilled(Box<OrderFilled>),
    /// An order was placed that may rest, or that did not have to fill completely.
    OrderPlaced(Box<OrderPlaced>),
    /// An order was placed and is delayed for the venue's taker delay.
    OrderDelayed(Box<OrderDelayed>),
    /// A delayed order was rejected when it was decided, and was removed.
    DelayedOrderDropped {
        /// The removed order.
        order: OrderId,
    },
    /// A fresh book arrived for an open order that was placed while its book was stale.
    OrderAdmitted {
        /// The admitted order.
        order: OrderId,
    },
    /// An open order filled, in part or completely.
    RestingFilled(Box<RestingFilled>),
    /// A fill was undone: its account has what it would have without it.
    FillUndone(Box<FillUndone>),
    /// An open order ended before it filled completely, and its reserve is released.
    OrderEnded {
        /// The order that ended.
        order: OrderId,
        /// The reason why the order ended.
        reason: EndReason,
        /// The time of the decision.
        at: Timestamp,
    },
    /// An account was reset. Its open orders ended in this record or in earlier ones.
    AccountReset(AccountReset),
    /// An operator acted on an account.
    OperatorActed(Box<OperatorActed>),
    /// An account's heartbeat interval was set, changed or removed.
    HeartbeatSet {
        /// The account with the heartbeat.
        account: AccountId,
        /// The interval in milliseconds; `None` if the heartbeat ended.
        interval_ms: Option<u32>,
    },
    /// An account's fill log was started, before its first delayed order.
    FillLogBegun {
        /// The account that logs its fills from then on.
        account: AccountId,
    },
    /// The oldest finished order of an account, with its names and comments, was removed because
    /// the account had too many.
    OrderForgotten {
        /// The removed order.
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
        /// The deleted comment.
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
    /// Positions in a resolved market were paid and closed. After the first of these events, the
    /// market takes no more orders.
    PositionsSettled(Box<PositionsSettled>),
    /// Every position in a resolved market is paid.
    MarketSettled {
        /// The market's index in the shard.
        market: MarketIndex,
        /// The payout per share of each outcome.
        payouts: Payouts,
        /// The time of the decision.
        at: Timestamp,
    },
    /// The hash of the state before this event. Recovery and followers compare their own hash with
    /// it.
    StateChecked {
        /// The hash of the state, without this event.
        hash: StateHash,
    },
}

impl Event {
    /// Whether the event may open, fill or end a resting order.
    #[inline]
    pub const fn concerns_open_orders(&self) -> bool {
        matches!(
            self,
            Self::OrderPlaced(_)
                | Self::OrderDelayed(_)
                | Self::DelayedOrderDropped { .. }
                | Self::RestingFilled(_)
                | Self::OrderEnded { .. }
        )
    }

    /// Whether the event increases memory use. When memory runs out, commands with events that do
    /// are refused.
    pub const fn takes_memory(&self) -> bool {
        match self {
            Self::AccountOpened { .. }
            | Self::KeyCreated { .. }
            | Self::KeyRenamed { .. }
            | Self::MarketIntroduced { .. }
            | Self::OrderFilled(_)
            | Self::OrderDelayed(_)
            | Self::FillUndone(_)
            | Self::CommentAdded { .. }
            | Self::SettlementDecided { .. } => true,
            // A delayed order already has its memory.
            Self::OrderPlaced(placed) => placed.terms.delayed_ms == 0,
            Self::KeyExpirySet { .. }
            | Self::KeyRevoked { .. }
            | Self::KeyForgotten { .. }
            | Self::OrderForgotten { .. }
            | Self::CommentDeleted { .. }
            | Self::StateChecked { .. }
            // These events are consequences of open orders, which were accepted when they were
            // placed.
            | Self::DelayedOrderDropped { .. }
            | Self::OrderAdmitted { .. }
            | Self::RestingFilled(_)
            | Self::OrderEnded { .. }
            | Self::AccountReset(_)
            // Operators must be able to act even when memory is exhausted.
            | Self::OperatorActed(_)
            | Self::HeartbeatSet { .. }
            | Self::FillLogBegun { .. }
            // Payouts must go through even when memory is exhausted. The number of open positions
            // bounds the number of payouts.
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
    /// The slippage from the reference price in whole basis points, rounded up; `None` if the
    /// reference price was 0, which has no ratio.
    pub slippage_bps: Option<u32>,
}

/// An order that was placed and then filled, rested or ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderPlaced {
    /// The order's market, side and names.
    pub placement: Placement,
    /// The order's kind, time in force, quantity and price.
    pub terms: Terms,
    /// The fill at placement, with the account's balance and position after it. The quantity is 0
    /// if nothing filled.
    pub fill: Fill,
    /// The levels taken, best price first.
    pub levels: Fills,
    /// The sequence of the book at placement; 0 if there was no fresh book.
    pub book_sequence: u64,
    /// The slippage from the reference price in whole basis points, rounded up; `None` if there was
    /// no reference price above 0.
    pub slippage_bps: Option<u32>,
    /// Why the order ended at once. `None` if it filled or rests.
    pub end: Option<EndReason>,
}

/// An order that was placed and waits until the venue's taker delay is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderDelayed {
    /// The order's market, side and names.
    pub placement: Placement,
    /// The order's terms. For an order by amount, the quantity is what the amount would buy at
    /// placement.
    pub terms: Terms,
    /// The end of the delay, and the cash or shares reserved meanwhile.
    pub delay: Delay,
    /// The time of the decision.
    pub at: Timestamp,
}

/// A fill of an open order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RestingFilled {
    /// The order that filled.
    pub order: OrderId,
    /// The fill, with the account's balance and position after it.
    pub fill: Fill,
    /// The best level that the venue displayed within the order's limit.
    pub displayed: Level,
    /// The sequence of the book that displayed the level.
    pub book_sequence: u64,
    /// The displayed levels that the order took from, and what is left of each. Empty if these
    /// levels no longer matter, and in records written before this field existed.
    pub used: SmallVec<[UsedLevel; 1]>,
}

/// A fill was undone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FillUndone {
    /// The account that placed the order.
    pub account: AccountId,
    /// The fill's number within the account, from 1.
    pub number: u64,
    /// The order that had filled.
    pub order: OrderId,
    /// The fill's number within its order, from 1.
    pub part: u32,
    /// The account's cash without the fill.
    pub balance: Usd,
    /// The account's shares of the outcome without the fill.
    pub position_shares: Shares,
    /// The cost of the position without the fill, without fees.
    pub position_cost: Usd,
    /// The realised profit of the position without the fill, without fees.
    pub realised: Usd,
    /// The time of the decision.
    pub at: Timestamp,
}

/// An account was reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccountReset {
    /// The account that was reset.
    pub account: AccountId,
    /// The number of open positions that were closed.
    pub position_count: u32,
    /// The cost of the closed positions, without fees.
    pub cost: Usd,
    /// The play money granted; negative if money was taken.
    pub granted: Usd,
    /// The account's cash after the reset.
    pub balance: Usd,
    /// The time of the decision.
    pub at: Timestamp,
}

/// An operator's act on an account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OperatorActed {
    /// The account acted on.
    pub account: AccountId,
    /// The act.
    pub act: Act,
    /// The operator who acted.
    pub by: Operator,
    /// The operator's reason.
    pub reason: Box<str>,
    /// The time of the decision.
    pub at: Timestamp,
}
