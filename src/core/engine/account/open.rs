//! What only accounts with resting orders have: open orders and what they hold back, the number of
//! fills, and the heartbeat.

use super::{Account, fills_term};
use crate::engine::account::resting::{NotedLevel, Resting, UsedLevels};
use crate::engine::fills::log::FillLog;
use crate::engine::order::open::BookSide;
use crate::engine::order::terms::Reserve;
use crate::engine::state::hash::StateHash;
use crate::ids::{MarketIndex, OutcomeIndex};
use crate::money::{Shares, Usd};

impl Account {
    /// The slots of the open orders, oldest first.
    pub(in crate::engine) fn open_orders(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.resting().into_iter().flat_map(|resting| resting.open.values().copied())
    }

    /// The slots of the open orders after this counter, oldest first.
    pub(in crate::engine) fn open_orders_after(
        &self,
        counter: u64,
    ) -> impl Iterator<Item = u32> + '_ {
        let open = self.resting().into_iter();
        open.flat_map(move |resting| resting.open.range(counter + 1..).map(|(_, &slot)| slot))
    }

    /// The counters and the slots of the open orders before this counter, oldest first.
    pub(in crate::engine) fn open_orders_before(
        &self,
        counter: u64,
    ) -> impl DoubleEndedIterator<Item = (u64, u32)> + '_ {
        let open = self.resting().into_iter();
        open.flat_map(move |resting| resting.open.range(..counter).map(|(&at, &slot)| (at, slot)))
    }

    /// How many orders of the account are open.
    pub fn open_order_count(&self) -> usize {
        self.resting().map_or(0, |resting| resting.open.len())
    }

    /// How many fills the account ever had.
    pub fn fill_count_ever(&self) -> u64 {
        self.order_count_ever().saturating_add_signed(self.fill_surplus())
    }

    /// How many fills the account ever had, less the orders that it ever finished.
    pub(in crate::engine) fn fill_surplus(&self) -> i64 {
        self.resting().map_or(0, |resting| resting.fill_surplus)
    }

    pub(in crate::engine) fn set_fill_surplus(&mut self, surplus: i64) {
        if surplus != 0 {
            self.resting_mut().fill_surplus = surplus;
        }
    }

    /// The log of the account's fills, if it has begun.
    #[inline]
    pub(in crate::engine) fn fill_log(&self) -> Option<&FillLog> {
        self.resting()?.fill_log.as_ref()
    }

    #[inline]
    pub(in crate::engine) fn fill_log_mut(&mut self) -> Option<&mut FillLog> {
        self.activity.as_mut()?.resting.as_mut()?.fill_log.as_mut()
    }

    pub(in crate::engine) fn set_fill_log(&mut self, log: FillLog) {
        self.resting_mut().fill_log = Some(log);
    }

    /// How often the account sends a heartbeat, in milliseconds; `None` if it does not.
    pub fn heartbeat_ms(&self) -> Option<u32> {
        self.resting()?.heartbeat_ms
    }

    pub(in crate::engine) fn set_heartbeat_ms(&mut self, interval_ms: Option<u32>) {
        self.resting_mut().heartbeat_ms = interval_ms;
    }

    pub(super) fn resting(&self) -> Option<&Resting> {
        self.activity.as_ref()?.resting.as_deref()
    }

    pub(super) fn resting_mut(&mut self) -> &mut Resting {
        self.activity.get_or_insert_default().resting.get_or_insert_default()
    }

    /// Adds an open order with what it holds back; `None` if the account does not have that. It is
    /// then in an undefined state.
    pub(in crate::engine) fn open_order(
        &mut self,
        counter: u64,
        slot: u32,
        on: BookSide,
        reserve: Reserve,
    ) -> Option<()> {
        self.resting_mut().insert(counter, slot, on, reserve.shares)?;
        let activity = self.activity.get_or_insert_default();
        activity.reserved = activity.reserved.checked_add(reserve.cash)?;
        let held = self.position(on.market, on.outcome).map_or(Shares::ZERO, |held| held.shares);
        let can_reserve = self.ledger().available() >= Usd::ZERO
            && self.reserved_shares(on.market, on.outcome) <= held;
        can_reserve.then_some(())
    }

    /// The shares of an outcome that open sales hold back.
    pub(in crate::engine) fn reserved_shares(
        &self,
        market: MarketIndex,
        outcome: OutcomeIndex,
    ) -> Shares {
        self.resting().map_or(Shares::ZERO, |resting| resting.reserved_shares(market, outcome))
    }

    /// Changes what an open order holds back.
    pub(in crate::engine) fn release(&mut self, on: BookSide, before: Reserve, after: Reserve) {
        if let Some(activity) = &mut self.activity {
            activity.reserved -= before.cash - after.cash;
            if let Some(resting) = &mut activity.resting {
                resting.release(on, before.shares - after.shares);
            }
        }
    }

    /// Removes an open order that holds back nothing any more.
    pub(in crate::engine) fn close_order(&mut self, counter: u64, on: BookSide) {
        if let Some(resting) = self.activity.as_mut().and_then(|it| it.resting.as_mut()) {
            resting.remove(counter, on);
        }
    }

    /// The displayed sizes that the account's orders on one side of a book have used.
    pub(in crate::engine) fn used_levels(&self, on: BookSide) -> &[NotedLevel] {
        self.resting().map_or(&[], |resting| resting.used(on))
    }

    /// The sides of books on which the account's orders have used displayed sizes.
    pub(in crate::engine) fn used_sides(&self) -> impl Iterator<Item = (BookSide, &[NotedLevel])> {
        self.resting().into_iter().flat_map(Resting::used_sides)
    }

    /// Adds displayed sizes that an order has used to those that the account's orders have.
    pub(in crate::engine) fn note_used(
        &mut self,
        on: BookSide,
        levels: impl IntoIterator<Item = NotedLevel>,
    ) {
        if let Some(resting) = self.activity.as_mut().and_then(|it| it.resting.as_mut()) {
            resting.note_used(on, levels);
        }
    }

    /// Remembers the displayed sizes that the account's orders on one side of a book have used.
    pub(in crate::engine) fn remember_used(&mut self, on: BookSide, used: UsedLevels) {
        if let Some(resting) = self.activity.as_mut().and_then(|it| it.resting.as_mut()) {
            resting.remember(on, used);
        }
    }

    /// Counts an order that finished without a fill, or after the last of its fills, and returns
    /// the change of the state hash.
    pub(in crate::engine) fn count_finished(&mut self) -> Result<StateHash, &'static str> {
        let mut change = StateHash::default();
        change -= self.term();
        let activity = self.activity.get_or_insert_default();
        let order_count = activity.order_count_ever.checked_add(1).ok_or("is one too many")?;
        activity.order_count_ever = order_count;
        self.resting_mut().fill_surplus -= 1;
        change += self.term();
        Ok(change)
    }

    /// Counts a fill that did not finish its order, and returns the change of the state hash.
    pub(in crate::engine) fn count_part(&mut self) -> StateHash {
        let mut change = StateHash::default();
        change -= fills_term(self.id, self.fill_surplus());
        self.resting_mut().fill_surplus += 1;
        change += fills_term(self.id, self.fill_surplus());
        change
    }
}
