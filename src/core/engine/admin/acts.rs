//! Operator commands on accounts. Each act is journaled as one event with the operator and the
//! reason. The events that follow from the act are in the same record.

use smallvec::smallvec;

use crate::engine::account::Account;
use crate::engine::admin::reset::{ORDERS_PER_RECORD_MAX, Reset, reset};
use crate::engine::admin::standing::{
    Act, DEPOSIT_MAX, Deposit, DepositToken, Operator, REASON_BYTES_MAX, Suspension, USER_BYTES_MAX,
};
use crate::engine::contradiction::{Flaw, NOT_KEPT};
use crate::engine::decide::{Command, Given, Verdict};
use crate::engine::event::{Event, Events, OperatorActed};
use crate::engine::order::cancel::end_at_most;
use crate::engine::order::terms::EndReason;
use crate::engine::rejection::Rejection;
use crate::engine::state::State;
use crate::engine::state::view::Observed;
use crate::faults::{self, Fault};
use crate::ids::{AccountId, Lsn, Timestamp};
use crate::money::Usd;

/// Performs an act on an account on behalf of an operator. Repeat while [`Acted::has_more`] is set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OperatorCommand {
    /// The account.
    pub account: AccountId,
    /// The act to perform.
    pub act: Act,
    /// The operator who requested the act.
    pub by: Operator,
    /// The operator's reason, at most [`REASON_BYTES_MAX`] bytes.
    pub reason: Box<str>,
}

/// The result of one [`OperatorCommand`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Acted {
    /// Whether this command journaled the act. False if an earlier command already did, or if the
    /// command must first be repeated.
    pub is_new: bool,
    /// The number of open orders that ended.
    pub order_count: usize,
    /// The number of open positions that were closed.
    pub position_count: u32,
    /// Whether the command must be repeated.
    pub has_more: bool,
}

impl Command for OperatorCommand {
    type Subject = Acted;
    type Answer = Acted;

    fn decide(&self, state: &State, given: Given<'_, '_>) -> Result<Verdict<Acted>, Rejection> {
        let account = state.account(self.account).ok_or(Rejection::AccountNotFound)?;
        let now = given.now;
        if account.is_erased() {
            return match self.act {
                Act::Erase => Ok(Verdict::Already(Acted::default())),
                _ => Err(Rejection::AccountNotFound),
            };
        }
        Ok(match self.act {
            Act::Suspend => self.suspend(state, account, now),
            Act::Resume if account.is_suspended() => {
                let acted = Acted { is_new: true, ..Acted::default() };
                Verdict::Happens(smallvec![self.event(now)], acted)
            }
            Act::Resume => Verdict::Already(Acted::default()),
            Act::Deposit { amount, token } => self.deposit(account, amount, token, now)?,
            Act::Reset => self.reset(state, account, given)?,
            // Suspend first, so that no new order or comment arrives between the records.
            Act::Erase if !account.is_suspended() || account.open_order_count() > 0 => {
                let suspend = Self { act: Act::Suspend, ..self.clone() };
                match suspend.suspend(state, account, now) {
                    Verdict::Happens(events, acted) => {
                        Verdict::Happens(events, Acted { is_new: false, has_more: true, ..acted })
                    }
                    already @ Verdict::Already(_) => already,
                }
            }
            Act::Erase if let Some(events) = state.forgotten_before_erasure(account) => {
                Verdict::Happens(events, Acted { has_more: true, ..Acted::default() })
            }
            Act::Erase => {
                let (position_count, _) = account.count_open_positions().unwrap_or_default();
                let acted = Acted { is_new: true, position_count, ..Acted::default() };
                Verdict::Happens(smallvec![self.event(now)], acted)
            }
            Act::Tier(tier) => {
                let has_it = account.tier() == Some(tier)
                    && state.keys_of(account).all(|key| key.tier() == tier);
                let acted = Acted { is_new: !has_it, ..Acted::default() };
                let events = (!has_it).then(|| self.event(now));
                Verdict::of(events.into_iter().collect(), acted)
            }
        })
    }

    fn answer(_: &State, acted: Acted, _: bool) -> Acted {
        acted
    }

    fn depends_on(&self, state: &State) -> Lsn {
        state.account_lsn(self.account)
    }
}

impl OperatorCommand {
    fn event(&self, at: Timestamp) -> Event {
        let Self { account, ref act, ref by, ref reason } = *self;
        let (act, by, reason) = (act.clone(), by.clone(), reason.clone());
        Event::OperatorActed(Box::new(OperatorActed { account, act, by, reason, at }))
    }

    /// Suspends the account first and then ends its open orders, so that no order can be placed in
    /// between. Takes more than one record only if an operator's setting allows the account more
    /// than [`ORDERS_PER_RECORD_MAX`] open orders.
    fn suspend(&self, state: &State, account: &Account, now: Timestamp) -> Verdict<Acted> {
        let is_new = !account.is_suspended();
        let mut events = Events::new();
        if is_new {
            events.push(self.event(now));
        }
        let orders = account.open_orders().map(|slot| state.orders[slot].id());
        let (ends, has_more) =
            end_at_most(ORDERS_PER_RECORD_MAX, orders, EndReason::Suspended, now);
        let order_count = ends.len();
        events.extend(ends);
        Verdict::of(events, Acted { is_new, order_count, has_more, ..Acted::default() })
    }
}

impl OperatorCommand {
    /// Decides a deposit. If the account has kept a deposit with the same token, this one is a
    /// retry and changes nothing.
    fn deposit(
        &self,
        account: &Account,
        amount: Usd,
        token: DepositToken,
        now: Timestamp,
    ) -> Result<Verdict<Acted>, Rejection> {
        let mut known = account.deposits().iter();
        if let Some(known) = known.find(|known| known.token == token)
            && !faults::is_on(Fault::DepositRepeated)
        {
            return if known.amount == amount {
                Ok(Verdict::Already(Acted::default()))
            } else {
                Err(Rejection::DepositTokenReused { amount: known.amount })
            };
        }
        if !account.can_take(amount) {
            return Err(Rejection::DepositTooLarge { amount });
        }
        let acted = Acted { is_new: true, ..Acted::default() };
        Ok(Verdict::Happens(smallvec![self.event(now)], acted))
    }
}

impl OperatorCommand {
    /// Decides the next record of a reset. The act's own event comes last, in the record that
    /// completes the reset.
    fn reset(
        &self,
        state: &State,
        account: &Account,
        given: Given<'_, '_>,
    ) -> Result<Verdict<Acted>, Rejection> {
        Ok(match reset(state, account, given)? {
            Verdict::Already(_) => Verdict::Already(Acted::default()),
            Verdict::Happens(mut events, Reset { order_count, position_count, balance }) => {
                let is_new = balance.is_some();
                if is_new {
                    events.push(self.event(given.now));
                }
                let has_more = !is_new;
                Verdict::Happens(events, Acted { is_new, order_count, position_count, has_more })
            }
        })
    }
}

impl State {
    /// Returns the account if it accepts writes.
    pub(in crate::engine) fn writable_account(&self, id: AccountId) -> Result<&Account, Rejection> {
        let account = self.account(id).ok_or(Rejection::AccountNotFound)?;
        account.require_writable()?;
        Ok(account)
    }

    /// Checks whether the account accepts writes.
    pub fn observe_writable(&self, id: AccountId) -> Observed<Result<(), Rejection>> {
        let value = self.writable_account(id).map(drop);
        Observed { value, lsn: self.account_lsn(id) }
    }

    pub(in crate::engine) fn operator_acted(
        &mut self,
        acted: &OperatorActed,
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        let OperatorActed { account, act, by, reason, at } = acted;
        let flaw = |flaw| Flaw::account(*account, flaw);
        if reason.len() > REASON_BYTES_MAX
            || by.user.as_ref().is_some_and(|user| user.len() > USER_BYTES_MAX)
        {
            return Err(flaw("was acted on with a text that is too long"));
        }
        let slot = self.account_slot(*account).ok_or(flaw(NOT_KEPT))?;
        let row = &mut self.accounts[slot];
        if row.is_erased() {
            return Err(flaw("is erased"));
        }
        let before = row.standing().map(|it| it.term(*account)).unwrap_or_default();
        match act {
            Act::Suspend if row.is_suspended() => return Err(flaw("is suspended already")),
            Act::Suspend => {
                let suspension = Suspension { at: *at, by: by.clone(), reason: reason.clone() };
                row.change_standing(|standing| standing.suspension = Some(suspension));
            }
            Act::Resume if !row.is_suspended() => return Err(flaw("is not suspended")),
            Act::Resume => row.change_standing(|standing| standing.suspension = None),
            Act::Erase => {
                return self.erase_account(slot, *at, position_in_log).map_err(flaw);
            }
            Act::Reset if row.resets().is_none_or(|resets| resets.at != *at) => {
                return Err(flaw("was not reset"));
            }
            Act::Reset => {}
            Act::Tier(tier) => {
                row.change_standing(|standing| standing.tier = Some(*tier));
                let mut next = row.newest_key;
                // The account's keys form a linked list, newest first.
                while let Some(slot) = next {
                    self.hash -= self.key_term(&self.keys[slot.get()]);
                    self.keys[slot.get()].set_tier(*tier);
                    self.hash += self.key_term(&self.keys[slot.get()]);
                    next = self.keys[slot.get()].older;
                }
            }
            Act::Deposit { amount, .. } if *amount <= Usd::ZERO || *amount > DEPOSIT_MAX => {
                return Err(flaw("gets a deposit out of range"));
            }
            Act::Deposit { amount, token } => {
                let deposit = Deposit { token: *token, amount: *amount, at: *at };
                self.hash += row.deposit(deposit).map_err(flaw)?;
            }
        }
        self.accounts[slot].position_in_log = position_in_log;
        self.hash -= before;
        self.hash += self.accounts[slot].standing().map(|it| it.term(*account)).unwrap_or_default();
        Ok(())
    }
}
