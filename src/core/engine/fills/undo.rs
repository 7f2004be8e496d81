//! Undoing a fill, as if its settlement on the venue's chain had failed.
//!
//! Afterwards the account has the cash, the shares, their cost, the profit and the sums that it
//! would have if the fill had never been, all exact to the millionth: the position is computed
//! again from the fills of its outcome, without the undone ones. Where that is not possible, the
//! fill stays. What stays in any case:
//!
//! - the fill in the history, marked as undone, and its number; the order's filled quantity and its
//!   status; what the books displayed and the order took of it;
//! - what other commands decided meanwhile: orders that the fill's cash or shares made possible,
//!   and refusals for want of them;
//! - the numbers in the records of later fills, such as the balance after them;
//! - an emptied position among the account's positions. It no longer counts as closed by a reset,
//!   even if a reset closed it before the fill.

use std::ops::RangeInclusive;

use smallvec::smallvec;

use crate::engine::account::Account;
use crate::engine::account::ledger::Ledger;
use crate::engine::account::position::Position;
use crate::engine::contradiction::Flaw;
use crate::engine::decide::{Command, Given, Verdict};
use crate::engine::event::{Event, FillUndone};
use crate::engine::fills::log::LoggedFill;
use crate::engine::fills::undone::{UNDONE_FILLS_MAX, UndoFlaw, UndoneFill, UndoneRow};
use crate::engine::rejection::Rejection;
use crate::engine::state::State;
use crate::ids::{AccountId, Lsn, OrderId, Timestamp};
use crate::market::book::Side;
use crate::money::Usd;

/// The maximum number of an account's newest fills from which a position is computed again. Replay
/// depends on this number, so operators cannot configure it.
const FILLS_COUNTED_MAX: u64 = 10_000;

/// Undoes a part of an order. Nothing but a failed settlement may send it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UndoFill {
    /// The account that placed the order.
    pub account: AccountId,
    /// The order that filled.
    pub order: OrderId,
    /// The fill's number within its order, from 1.
    pub part: u32,
}

/// What an account has without a fill.
struct Without {
    fill: LoggedFill,
    ledger: Ledger,
    position: Position,
}

impl Command for UndoFill {
    type Subject = ();
    type Answer = ();

    fn decide(&self, state: &State, given: Given<'_, '_>) -> Result<Verdict<()>, Rejection> {
        let account = state.account(self.account).ok_or(Rejection::AccountNotFound)?;
        let number = state.number_of(account, self).ok_or(UndoFlaw::NotKept)?;
        let Without { ledger, position, .. } = state.without_fill(account, number)?;
        let undone = FillUndone {
            account: self.account,
            number,
            order: self.order,
            part: self.part,
            balance: ledger.cash(),
            position_shares: position.shares,
            position_cost: position.cost,
            realised: position.realised,
            at: given.now,
        };
        Ok(Verdict::Happens(smallvec![Event::FillUndone(Box::new(undone))], ()))
    }

    fn answer(_: &State, (): (), _: bool) {}

    fn depends_on(&self, state: &State) -> Lsn {
        state.account_lsn(self.account)
    }

    fn refusal_depends_on(&self, state: &State, rejection: &Rejection) -> Lsn {
        let lsn = self.depends_on(state);
        let resolved = Rejection::FillNotUndone(UndoFlaw::MarketResolved);
        let account = state.account(self.account).filter(|_| *rejection == resolved);
        let Some(account) = account else { return lsn };
        let Some(number) = state.number_of(account, self) else { return lsn };
        let market = state.used_market(state.kept_fill(account, number).market);
        lsn.max(state.settled_lsn(&market.condition_id))
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

    /// Returns the number of a fill within its account, if it is new enough to be undone.
    fn number_of(&self, account: &Account, fill: &UndoFill) -> Option<u64> {
        undoable(account).rev().find(|&number| {
            let LoggedFill { order, part, .. } = self.kept_fill(account, number);
            (order, part) == (fill.order, fill.part)
        })
    }

    /// Computes what the account has without the fill with this number, which must be kept.
    fn without_fill(&self, account: &Account, number: u64) -> Result<Without, Rejection> {
        let fill = self.kept_fill(account, number);
        if account.undone_at(number).is_some() {
            return Err(UndoFlaw::UndoneBefore.into());
        }
        if self.is_settled(fill.market) {
            return Err(UndoFlaw::MarketResolved.into());
        }
        if account.resets().is_some_and(|resets| fill.fill.at <= resets.at) {
            return Err(UndoFlaw::AccountReset.into());
        }
        let ledger = account.ledger().before_fill(fill.side, fill.fill.notional, fill.fill.fee);
        let out_of_range = Rejection::Broken { rule: "an account's sums outgrow their range" };
        let ledger = ledger.ok_or(out_of_range)?;
        let position = self.position_without(account, number, &fill)?;
        if ledger.available() < Usd::ZERO {
            return Err(UndoFlaw::CashGone.into());
        }
        Ok(Without { fill, ledger, position })
    }

    /// Computes the position in a fill's outcome without that fill. Starts at a purchase whose
    /// record tells the position before it, and adds the fills since.
    fn position_without(
        &self,
        account: &Account,
        number: u64,
        fill: &LoggedFill,
    ) -> Result<Position, UndoFlaw> {
        let held = account.position(fill.market, fill.outcome).copied();
        let held = held.ok_or(UndoFlaw::CostUnknown)?;
        let start = self.counted_from(account, number, fill).ok_or(UndoFlaw::CostUnknown)?;
        let LoggedFill { fill: first, .. } = self.kept_fill(account, start);
        let mut with = Position::empty(fill.market, fill.outcome);
        with.shares = first.position_shares - first.quantity;
        with.cost = first.position_cost - first.notional;
        let mut without = with;
        for later in start..=account.fill_count_ever() {
            let LoggedFill { market, outcome, side, fill: added, .. } =
                self.kept_fill(account, later);
            let is_counted = (market, outcome) == (fill.market, fill.outcome)
                && account.undone_at(later).is_none();
            if !is_counted {
                continue;
            }
            let (quantity, notional) = (added.quantity, added.notional);
            let next = with.after_fill(side, quantity, notional);
            with = next.ok_or(UndoFlaw::CostUnknown)?;
            if later != number {
                let next = without.after_fill(side, quantity, notional);
                without = next.ok_or(UndoFlaw::SharesGone)?;
            }
        }
        if (with.shares, with.cost) != (held.shares, held.cost) {
            // The account no longer remembers all fills that were undone.
            return Err(UndoFlaw::CostUnknown);
        }
        if without.shares < account.reserved_shares(fill.market, fill.outcome) {
            return Err(UndoFlaw::SharesGone);
        }
        let realised = held.realised.checked_sub(with.realised);
        let realised = realised.and_then(|others| others.checked_add(without.realised));
        let realised = realised.ok_or(UndoFlaw::CostUnknown)?;
        Ok(Position { realised, shares: without.shares, cost: without.cost, ..held })
    }

    /// Returns the number of the newest purchase in the fill's outcome, up to the fill, before
    /// which the position was what it would be today. That is so unless an earlier fill was undone
    /// after the purchase. `None` if no such purchase is kept.
    fn counted_from(&self, account: &Account, number: u64, fill: &LoggedFill) -> Option<u64> {
        let newest = account.fill_count_ever();
        let oldest = account.oldest_fill().max((newest + 1).saturating_sub(FILLS_COUNTED_MAX));
        let is_of_outcome = |market, outcome| (market, outcome) == (fill.market, fill.outcome);
        let mut end = number;
        loop {
            let start = (oldest..=end).rev().find(|&number| {
                let LoggedFill { market, outcome, side, .. } = self.kept_fill(account, number);
                side == Side::Buy && is_of_outcome(market, outcome)
            })?;
            let undone = account.undone_fills().into_iter().flat_map(|all| all.range(..start));
            let mut later =
                undone.filter(|(_, it)| it.newest >= start && is_of_outcome(it.market, it.outcome));
            match later.next() {
                Some((&earlier, _)) => end = earlier,
                None => return Some(start),
            }
        }
    }

    pub(in crate::engine) fn undo_fill(
        &mut self,
        undone: &FillUndone,
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        let flaw = |flaw| Flaw::account(undone.account, flaw);
        let slot = self.account_slot(undone.account).ok_or(flaw("was never opened"))?;
        let account = &self.accounts[slot];
        let is_undoable = undoable(account).contains(&undone.number);
        let fill = is_undoable.then(|| self.kept_fill(account, undone.number));
        if fill.is_none_or(|fill| (fill.order, fill.part) != (undone.order, undone.part)) {
            return Err(flaw("has no such fill to undo"));
        }
        let without = self.without_fill(account, undone.number);
        let Without { fill, ledger, position } =
            without.map_err(|_| flaw("has a fill undone that cannot be"))?;
        if ledger.cash() != undone.balance {
            return Err(flaw("has a fill undone without conserving money"));
        }
        let Position { shares, cost, realised, .. } = position;
        if (shares, cost, realised)
            != (undone.position_shares, undone.position_cost, undone.realised)
        {
            return Err(flaw("has a fill undone that leaves it another position"));
        }
        let kept = UndoneFill {
            order: undone.order,
            part: undone.part,
            market: fill.market,
            outcome: fill.outcome,
            newest: account.fill_count_ever(),
            at: undone.at,
        };
        let account = &mut self.accounts[slot];
        self.hash += account.undo_fill(undone.number, kept, ledger, position);
        account.position_in_log = position_in_log;
        Ok(())
    }
}

/// Returns the numbers of the fills that are new enough to be undone.
fn undoable(account: &Account) -> RangeInclusive<u64> {
    let newest = account.fill_count_ever();
    let first = (newest + 1).saturating_sub(UNDONE_FILLS_MAX.get() as u64);
    account.oldest_fill().max(first)..=newest
}
