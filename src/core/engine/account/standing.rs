//! An account's standing: the lasting effects of operators' acts.

use super::{Account, money_term};
use crate::engine::admin::standing::{DEPOSITS_KEPT_MAX, Deposit, Standing, Suspension};
use crate::engine::rejection::Rejection;
use crate::engine::state::hash::StateHash;
use crate::faults::{self, Fault};
use crate::limits::tier::Tier;
use crate::money::Usd;

impl Account {
    /// Returns the lasting effects of operators' acts, if there are any.
    #[inline]
    pub fn standing(&self) -> Option<&Standing> {
        self.extension()?.standing.as_deref()
    }

    /// Returns the suspension, if the account is suspended.
    #[inline]
    pub fn suspension(&self) -> Option<&Suspension> {
        self.standing()?.suspension.as_ref()
    }

    /// Whether the account is suspended and so accepts no writes.
    #[inline]
    pub fn is_suspended(&self) -> bool {
        self.suspension().is_some()
    }

    #[inline]
    pub(in crate::engine) fn require_writable(&self) -> Result<(), Rejection> {
        match self.standing() {
            Some(Standing { erased_at: Some(_), .. }) => Err(Rejection::AccountNotFound),
            Some(Standing { suspension: Some(_), .. })
                if !faults::is_on(Fault::SuspensionIgnored) =>
            {
                Err(Rejection::AccountSuspended)
            }
            _ => Ok(()),
        }
    }

    /// Whether the account was erased.
    pub fn is_erased(&self) -> bool {
        self.standing().is_some_and(|standing| standing.erased_at.is_some())
    }

    /// Returns the tier set by an operator, if any.
    pub fn tier(&self) -> Option<Tier> {
        self.standing()?.tier
    }

    /// Returns the sum of all deposits since the account was opened or last reset.
    pub(in crate::engine) fn deposited(&self) -> Usd {
        self.standing().map_or(Usd::ZERO, |standing| standing.deposited)
    }

    /// Returns the deposits that the account keeps, oldest first.
    pub fn deposits(&self) -> &[Deposit] {
        self.standing().map_or(&[], |standing| &standing.deposits)
    }

    /// Whether a deposit of this amount keeps all sums in range.
    pub(in crate::engine) fn can_take(&self, amount: Usd) -> bool {
        self.ledger().after_grant(amount).is_some()
            && self.baseline().checked_add(amount).is_some()
            && self.deposited().checked_add(amount).is_some()
    }

    /// Adds a deposit and returns the change to the state hash, without the terms of the standing.
    /// Fails if a sum would exceed its range.
    pub(in crate::engine) fn deposit(
        &mut self,
        deposit: Deposit,
    ) -> Result<StateHash, &'static str> {
        if !self.can_take(deposit.amount) {
            return Err("has sums out of range");
        }
        let (id, order_count, before) = (self.id, self.order_count_ever(), self.ledger());
        let after = before.after_grant(deposit.amount).ok_or("has sums out of range")?;
        let mut change = StateHash::default();
        change -= money_term(id, &before, order_count);
        change += money_term(id, &after, order_count);
        self.set_ledger(after);
        self.change_standing(|standing| {
            standing.deposited += deposit.amount;
            if standing.deposits.len() >= DEPOSITS_KEPT_MAX {
                standing.deposits.remove(0);
            }
            standing.deposits.push(deposit);
        });
        Ok(change)
    }

    pub(in crate::engine) fn change_standing(&mut self, change: impl FnOnce(&mut Standing)) {
        let kept = &mut self.extension_mut().standing;
        let standing = kept.get_or_insert_default();
        change(standing);
        if standing.is_empty() {
            *kept = None;
        }
    }
}
