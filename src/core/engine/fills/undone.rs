//! The fills of an account that were undone. [`crate::engine::fills::undo`] says how.

use std::collections::BTreeMap;

use crate::engine::account::Account;
use crate::engine::state::State;
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

impl Account {
    /// Returns when this part of an order was undone; `None` if it was not, or if the account no
    /// longer remembers it.
    pub fn fill_undone_at(&self, order: OrderId, part: u32) -> Option<Timestamp> {
        let is_it = |fill: &&UndoneFill| (fill.order, fill.part) == (order, part);
        self.undone_fills()?.values().rev().find(is_it).map(|fill| fill.at)
    }

    /// Returns when the fill with this number was undone, like [`Self::fill_undone_at`].
    #[inline]
    pub(in crate::engine) fn undone_at(&self, number: u64) -> Option<Timestamp> {
        self.undone_fills()?.get(&number).map(|fill| fill.at)
    }
}

impl State {
    /// Returns when this part of an account's order was undone, like [`Account::fill_undone_at`].
    pub fn fill_undone_at(
        &self,
        account: AccountId,
        order: OrderId,
        part: u32,
    ) -> Option<Timestamp> {
        self.account(account)?.fill_undone_at(order, part)
    }

    /// Iterates over the undone fills that accounts remember, by account and then by number.
    pub fn undone_fills(&self) -> impl Iterator<Item = UndoneRow> {
        self.accounts.iter().flat_map(|(_, account)| {
            let undone = account.undone_fills().into_iter().flatten();
            undone.map(|(&number, &fill)| UndoneRow { account: account.id, number, fill })
        })
    }
}
