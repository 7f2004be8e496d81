//! Account resets: open orders end, open positions are closed without a payment, and a grant brings
//! the cash to the starting balance.
//!
//! One record completes the reset, so after a crash the account is either reset or untouched apart
//! from ended orders. The ledger's sums do not restart from zero: the change in cash is booked as a
//! grant, which is negative if money is taken. Money is conserved as with any other event.

use crate::engine::account::Account;
use crate::engine::contradiction::{Flaw, NOT_KEPT};
use crate::engine::decide::{Command, Given, Verdict};
use crate::engine::event::{AccountReset, Event};
use crate::engine::order::cancel::end_at_most;
use crate::engine::order::terms::EndReason;
use crate::engine::rejection::Rejection;
use crate::engine::state::State;
use crate::ids::{AccountId, Lsn};
use crate::money::Usd;

/// The maximum number of orders that one record of a reset ends. An account can have more open
/// orders only if an operator's setting allows it. In that case, the oldest orders end in earlier
/// records.
pub const ORDERS_PER_RECORD_MAX: usize = 1_000;

/// Resets an account. Repeat until [`Reset::balance`] is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResetAccount(pub AccountId);

/// The result of one [`ResetAccount`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reset {
    /// The number of open orders that ended.
    pub order_count: usize,
    /// The number of open positions that were closed.
    pub position_count: u32,
    /// The account's cash after the reset, which is the starting balance. `None` if more orders
    /// have to end first.
    pub balance: Option<Usd>,
}

impl Command for ResetAccount {
    type Subject = Reset;
    type Answer = Reset;

    fn decide(&self, state: &State, given: Given<'_, '_>) -> Result<Verdict<Reset>, Rejection> {
        reset(state, state.writable_account(self.0)?, given)
    }

    fn answer(_: &State, reset: Reset, _: bool) -> Reset {
        reset
    }

    fn depends_on(&self, state: &State) -> Lsn {
        state.account_lsn(self.0)
    }
}

/// Decides the next record of a reset. A reset that ends many orders takes several records.
pub(in crate::engine) fn reset(
    state: &State,
    account: &Account,
    given: Given<'_, '_>,
) -> Result<Verdict<Reset>, Rejection> {
    // Oldest first, including delayed orders.
    let orders = account.open_orders().map(|slot| state.orders[slot].id());
    let (mut events, has_more) =
        end_at_most(ORDERS_PER_RECORD_MAX, orders, EndReason::Reset, given.now);
    let order_count = events.len();
    if has_more {
        let reset = Reset { order_count, position_count: 0, balance: None };
        return Ok(Verdict::Happens(events, reset));
    }
    let (balance, ledger) = (given.rules.starting_balance, account.ledger());
    let granted = balance - ledger.cash();
    let open = account.count_open_positions();
    let (position_count, cost) =
        open.ok_or(Rejection::Broken { rule: "positions cost too much" })?;
    let subject = Reset { order_count, position_count, balance: Some(balance) };
    let is_fresh = granted == Usd::ZERO && account.baseline() == balance;
    if is_fresh && order_count == 0 && position_count == 0 {
        return Ok(Verdict::Already(subject));
    }
    if ledger.after_grant(granted).is_none() {
        return Err(Rejection::Broken { rule: "an account's sums outgrow their range" });
    }
    let at = given.now;
    let reset = AccountReset { account: account.id, position_count, cost, granted, balance, at };
    events.push(Event::AccountReset(reset));
    Ok(Verdict::Happens(events, subject))
}

impl State {
    pub(in crate::engine) fn reset_account(
        &mut self,
        reset: &AccountReset,
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        let flaw = |flaw| Flaw::account(reset.account, flaw);
        let slot = self.account_slot(reset.account).ok_or(flaw(NOT_KEPT))?;
        self.leave_unpaid(slot).map_err(flaw)?;
        let account = &mut self.accounts[slot];
        self.hash += account.reset(reset).map_err(flaw)?;
        account.position_in_log = position_in_log;
        Ok(())
    }
}
