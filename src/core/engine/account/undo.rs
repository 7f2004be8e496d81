//! The part of an account that undone fills change.

use super::{Account, money_term};
use crate::engine::account::ledger::Ledger;
use crate::engine::account::position::Position;
use crate::engine::fills::undone::{UNDONE_FILLS_MAX, UndoneFill, UndoneFills};
use crate::engine::state::hash::StateHash;
use crate::ids::{OrderId, Timestamp};

impl Account {
    /// Returns the undone fills that the account remembers; `None` if there never was one.
    #[inline]
    pub(in crate::engine) fn undone_fills(&self) -> Option<&UndoneFills> {
        self.extension()?.undone_fills.as_deref()
    }

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

    /// Gives the account what it has without a fill, and returns the change to the state hash. The
    /// account must have a position in the outcome.
    pub(in crate::engine) fn undo_fill(
        &mut self,
        number: u64,
        undone: UndoneFill,
        ledger: Ledger,
        position: Position,
    ) -> StateHash {
        let (id, order_count) = (self.id, self.order_count_ever());
        let mut change = StateHash::default();
        change -= money_term(id, &self.ledger(), order_count);
        change += money_term(id, &ledger, order_count);
        self.set_ledger(ledger);
        if let Some(activity) = &mut self.activity {
            let index = activity.find(position.market, position.outcome);
            let kept = &mut activity.positions[index.expect("a fill leaves a position")];
            change -= kept.term(id);
            change += position.term(id);
            *kept = position;
        }
        change += undone.term(id, number);
        if let Some((forgotten, number)) = self.remember_undone(number, undone) {
            change -= forgotten.term(id, number);
        }
        change
    }

    /// Remembers that a fill was undone. If the account then remembers too many, forgets the oldest
    /// fill, and returns it with its number.
    pub(in crate::engine) fn remember_undone(
        &mut self,
        number: u64,
        undone: UndoneFill,
    ) -> Option<(UndoneFill, u64)> {
        let fills = self.extension_mut().undone_fills.get_or_insert_default();
        fills.insert(number, undone);
        if fills.len() <= UNDONE_FILLS_MAX.get() {
            return None;
        }
        fills.pop_first().map(|(number, undone)| (undone, number))
    }
}
