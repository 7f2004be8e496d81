//! Data that only accounts with resting orders have: open orders and their reserves, the number of
//! fills, and the heartbeat.

use super::{Account, fills_term};
use crate::engine::account::extension::{
    AccountExtension, NotedLevel, UsedLevels, are_reserves_lost,
};
use crate::engine::fills::log::FillLog;
use crate::engine::order::open::BookSide;
use crate::engine::order::terms::Reserve;
use crate::engine::state::hash::StateHash;
use crate::ids::{MarketIndex, OutcomeIndex};
use crate::money::{Shares, Usd};

impl Account {
    /// Returns the slots of the open orders, oldest first.
    pub(in crate::engine) fn open_orders(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.extension().into_iter().flat_map(|extension| extension.open.values().copied())
    }

    /// Returns the slots of the open orders with counters above `counter`, oldest first.
    pub(in crate::engine) fn open_orders_after(
        &self,
        counter: u64,
    ) -> impl Iterator<Item = u32> + '_ {
        let open = self.extension().into_iter();
        open.flat_map(move |extension| extension.open.range(counter + 1..).map(|(_, &slot)| slot))
    }

    /// Returns the counter and slot of each open order with a counter below `counter`, oldest
    /// first.
    pub(in crate::engine) fn open_orders_before(
        &self,
        counter: u64,
    ) -> impl DoubleEndedIterator<Item = (u64, u32)> + '_ {
        let open = self.extension().into_iter();
        open.flat_map(move |extension| {
            extension.open.range(..counter).map(|(&at, &slot)| (at, slot))
        })
    }

    /// Returns the number of open orders, including delayed ones.
    pub fn open_order_count(&self) -> usize {
        self.extension().map_or(0, |extension| extension.open.len())
    }

    /// Returns the number of fills the account has ever had.
    pub fn fill_count_ever(&self) -> u64 {
        self.order_count_ever().saturating_add_signed(self.fill_surplus())
    }

    /// Returns the number of fills ever, minus the number of orders ever finished.
    pub(in crate::engine) fn fill_surplus(&self) -> i64 {
        self.extension().map_or(0, |extension| extension.fill_surplus)
    }

    pub(in crate::engine) fn set_fill_surplus(&mut self, surplus: i64) {
        if surplus != 0 {
            self.extension_mut().fill_surplus = surplus;
        }
    }

    /// Returns the account's fill log, if it has one.
    #[inline]
    pub(in crate::engine) fn fill_log(&self) -> Option<&FillLog> {
        self.extension()?.fill_log.as_ref()
    }

    #[inline]
    pub(in crate::engine) fn fill_log_mut(&mut self) -> Option<&mut FillLog> {
        self.activity.as_mut()?.extension.as_mut()?.fill_log.as_mut()
    }

    pub(in crate::engine) fn set_fill_log(&mut self, log: FillLog) {
        self.extension_mut().fill_log = Some(log);
    }

    /// Returns the heartbeat interval in milliseconds; `None` without a heartbeat.
    pub fn heartbeat_ms(&self) -> Option<u32> {
        self.extension()?.heartbeat_ms
    }

    pub(in crate::engine) fn set_heartbeat_ms(&mut self, interval_ms: Option<u32>) {
        self.extension_mut().heartbeat_ms = interval_ms;
    }

    pub(super) fn extension(&self) -> Option<&AccountExtension> {
        self.activity.as_ref()?.extension.as_deref()
    }

    pub(super) fn extension_mut(&mut self) -> &mut AccountExtension {
        self.activity.get_or_insert_default().extension.get_or_insert_default()
    }

    /// Adds an open order with its reserve. Returns `None` if the account cannot cover the reserve;
    /// the account is then in an undefined state.
    pub(in crate::engine) fn open_order(
        &mut self,
        counter: u64,
        slot: u32,
        on: BookSide,
        reserve: Reserve,
    ) -> Option<()> {
        self.extension_mut().insert(counter, slot, on, reserve.shares)?;
        let activity = self.activity.get_or_insert_default();
        activity.reserved = activity.reserved.checked_add(reserve.cash)?;
        let held = self.position(on.market, on.outcome).map_or(Shares::ZERO, |held| held.shares);
        let can_reserve = self.ledger().available() >= Usd::ZERO
            && self.reserved_shares(on.market, on.outcome) <= held;
        can_reserve.then_some(())
    }

    /// Returns the shares of an outcome that open sales reserve.
    pub(in crate::engine) fn reserved_shares(
        &self,
        market: MarketIndex,
        outcome: OutcomeIndex,
    ) -> Shares {
        self.extension()
            .map_or(Shares::ZERO, |extension| extension.reserved_shares(market, outcome))
    }

    /// Changes the reserve of an open order from `before` to `after`.
    pub(in crate::engine) fn release(&mut self, on: BookSide, before: Reserve, after: Reserve) {
        if let Some(activity) = &mut self.activity {
            activity.reserved -= before.cash - after.cash;
            assert!(
                activity.reserved >= Usd::ZERO || are_reserves_lost(),
                "an order releases only cash that it reserved"
            );
            if let Some(extension) = &mut activity.extension {
                extension.release(on, before.shares - after.shares);
            }
        }
    }

    /// Removes an open order, whose reserve must already be released.
    pub(in crate::engine) fn close_order(&mut self, counter: u64, on: BookSide) {
        if let Some(extension) = self.activity.as_mut().and_then(|it| it.extension.as_mut()) {
            extension.remove(counter, on);
        }
    }

    /// Returns the displayed levels that the account's orders on one side of a book have taken
    /// from.
    pub(in crate::engine) fn used_levels(&self, on: BookSide) -> &[NotedLevel] {
        self.extension().map_or(&[], |extension| extension.used(on))
    }

    /// Iterates over the book sides on which the account's orders have taken from displayed levels.
    pub(in crate::engine) fn used_sides(&self) -> impl Iterator<Item = (BookSide, &[NotedLevel])> {
        self.extension().into_iter().flat_map(AccountExtension::used_sides)
    }

    /// Merges the displayed levels that an order has taken from into those recorded for the
    /// account.
    pub(in crate::engine) fn note_used(
        &mut self,
        on: BookSide,
        levels: impl IntoIterator<Item = NotedLevel>,
    ) {
        if let Some(extension) = self.activity.as_mut().and_then(|it| it.extension.as_mut()) {
            extension.note_used(on, levels);
        }
    }

    /// Replaces the displayed levels recorded for the account's orders on one side of a book.
    pub(in crate::engine) fn remember_used(&mut self, on: BookSide, used: UsedLevels) {
        if let Some(extension) = self.activity.as_mut().and_then(|it| it.extension.as_mut()) {
            extension.remember(on, used);
        }
    }

    /// Counts an order that finished without a fill, or after its last fill, and returns the change
    /// to the state hash.
    pub(in crate::engine) fn count_finished(&mut self) -> Result<StateHash, &'static str> {
        let mut change = StateHash::default();
        change -= self.term();
        let activity = self.activity.get_or_insert_default();
        let order_count = activity.order_count_ever.checked_add(1).ok_or("is one too many")?;
        activity.order_count_ever = order_count;
        self.extension_mut().fill_surplus -= 1;
        change += self.term();
        Ok(change)
    }

    /// Counts a fill that did not finish its order, and returns the change to the state hash.
    pub(in crate::engine) fn count_part(&mut self) -> StateHash {
        let mut change = StateHash::default();
        change -= fills_term(self.id, self.fill_surplus());
        self.extension_mut().fill_surplus += 1;
        change += fills_term(self.id, self.fill_surplus());
        change
    }
}
