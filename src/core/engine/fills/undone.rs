//! The fills of an account that were undone. [`crate::engine::fills::undo`] says how.

use std::collections::BTreeMap;

use crate::engine::state::hash::{StateHash, Term, TermKind};
use crate::ids::{AccountId, MarketIndex, OrderId, OutcomeIndex, Timestamp};
use crate::sizes::Size;

/// The maximum number of undone fills that an account remembers; it forgets the oldest fill first.
/// Only as many of its newest fills can be undone, so a fill that it forgot cannot be undone again.
/// Replay depends on this number, so operators cannot configure it.
pub const UNDONE_FILLS_MAX: Size = Size::new(1_000, 8);

/// A fill that was undone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UndoneFill {
    /// The order that had filled.
    pub order: OrderId,
    /// The fill's number within its order, from 1.
    pub part: u32,
    /// The market's index in the shard.
    pub market: MarketIndex,
    /// The outcome's index in the market.
    pub outcome: OutcomeIndex,
    /// The number of the account's newest fill at that time. The numbers of fills up to it tell
    /// what the account had while this fill counted.
    pub newest: u64,
    /// When the fill was undone.
    pub at: Timestamp,
}

/// The reason why a fill cannot be undone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UndoFlaw {
    /// The account has no such fill, or has had too many since.
    #[error("the account has no such fill among its newest")]
    NotKept,
    /// The fill was undone before.
    #[error("it was undone before")]
    UndoneBefore,
    /// The market is resolved, and positions in it are being paid.
    #[error("its market is resolved")]
    MarketResolved,
    /// The account was reset after the fill.
    #[error("the account was reset since")]
    AccountReset,
    /// The shares bought were sold since, or open sales reserve them.
    #[error("its shares were sold since, or open orders reserve them")]
    SharesGone,
    /// The proceeds were spent since, or open orders reserve them.
    #[error("its proceeds were spent since, or open orders reserve them")]
    CashGone,
    /// The cost of the position before the fill is no longer known.
    #[error("the fills that tell what its position had cost are no longer kept")]
    CostUnknown,
}

/// The undone fills of an account, by the fill's number within the account.
pub(in crate::engine) type UndoneFills = BTreeMap<u64, UndoneFill>;

/// An undone fill, as snapshots write and read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UndoneRow {
    /// The account.
    pub account: AccountId,
    /// The fill's number within the account, from 1.
    pub number: u64,
    /// The fill.
    pub fill: UndoneFill,
}

impl UndoneFill {
    /// Returns the fill's term in the state hash. `number` is the fill's number within the account.
    pub(in crate::engine) fn term(&self, account: AccountId, number: u64) -> StateHash {
        let Self { order, part, market, outcome, newest, at } = *self;
        Term::new(TermKind::UndoneFill)
            .pair(account.get(), number)
            .pair(order.get(), part.into())
            .pair(u64::from(market.0) << 8 | u64::from(outcome.0), newest)
            .signed(at.nanos())
            .finish()
    }
}
