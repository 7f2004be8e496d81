//! Applies resets to accounts.

use super::{Account, money_term};
use crate::engine::account::ledger::Resets;
use crate::engine::event::AccountReset;
use crate::engine::state::hash::StateHash;
use crate::money::Usd;

impl Account {
    /// Returns the account's resets, if there were any.
    pub fn resets(&self) -> Option<Resets> {
        self.extension()?.resets
    }

    /// Returns the balance against which profit is measured: the play money granted on opening, or
    /// the cash after the newest reset, plus all deposits since.
    pub fn baseline(&self) -> Usd {
        self.resets().map_or(self.granted, |resets| resets.balance + self.deposited())
    }

    /// Returns the number of open positions and their total cost, without fees; `None` if the cost
    /// exceeds its range.
    pub(in crate::engine) fn count_open_positions(&self) -> Option<(u32, Usd)> {
        let mut open = self.positions().iter().filter(|position| position.is_open());
        open.try_fold((0, Usd::ZERO), |(count, cost), position| {
            Some((count + 1, cost.checked_add(position.cost)?))
        })
    }

    pub(in crate::engine) fn set_resets(&mut self, resets: Resets) {
        self.extension_mut().resets = Some(resets);
    }

    /// Resets the account and returns the change to the state hash. Fails if the reset contradicts
    /// the account, which is then in an undefined state.
    pub(in crate::engine) fn reset(
        &mut self,
        reset: &AccountReset,
    ) -> Result<StateHash, &'static str> {
        if self.open_order_count() > 0 {
            return Err("is reset while orders are open");
        }
        let (id, order_count) = (self.id, self.order_count_ever());
        let before = self.ledger();
        let after = before.after_grant(reset.granted).ok_or("has sums out of range")?;
        if after.cash() != reset.balance {
            return Err("is reset without conserving money");
        }
        if reset.balance < Usd::ZERO {
            return Err("is reset to a debt");
        }
        let open = self.count_open_positions().ok_or("has positions that cost too much")?;
        if open != (reset.position_count, reset.cost) {
            return Err("is reset with other positions than it has");
        }
        let mut change = StateHash::default();
        if let Some(activity) = &mut self.activity {
            for position in activity.positions.iter_mut().filter(|position| position.is_open()) {
                change -= position.term(id);
                *position = position.after_reset();
                change += position.term(id);
            }
        }
        change -= money_term(id, &before, order_count);
        change += money_term(id, &after, order_count);
        self.set_ledger(after);
        let resets = self.resets();
        if let Some(resets) = resets {
            change -= resets.term(id);
        }
        let count = resets.map_or(0, |resets| resets.count).checked_add(1);
        let count = count.ok_or("is reset too often")?;
        let resets = Resets { count, balance: reset.balance, at: reset.at };
        change += resets.term(id);
        self.set_resets(resets);
        if let Some(standing) = self.standing() {
            change -= standing.term(id);
            self.change_standing(|standing| standing.deposited = Usd::ZERO);
            change += self.standing().map(|standing| standing.term(id)).unwrap_or_default();
        }
        Ok(change)
    }
}
