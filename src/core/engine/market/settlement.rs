//! Settlement of positions when a market is resolved.
//!
//! The decision, with each token's payout and the source of the resolution, is journaled once, in
//! the shard derived from the market's id. Then each shard that has used the market settles it. A
//! shard's first record closes the market to orders, the next ones end a bounded number of open
//! orders and then pay a bounded number of open positions, and the last one marks the market as
//! paid. The remaining work is part of the state, so the settler can repeat the command until
//! nothing is left, even across crashes.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::smallvec;

use crate::engine::account::Account;
use crate::engine::account::position::Position;
use crate::engine::command::{DecideSettlement, Settle};
use crate::engine::contradiction::Flaw;
use crate::engine::decide::{Command, Given, Verdict};
use crate::engine::event::{Event, Events};
use crate::engine::market::payout::{
    Decided, Decision, PaidPosition, Payouts, PositionsSettled, SettledMarket, Settlement, payout,
};
use crate::engine::order::cancel::{ENDED_PER_RECORD_MAX, ended};
use crate::engine::order::terms::EndReason;
use crate::engine::rejection::Rejection;
use crate::engine::state::State;
use crate::ids::{Lsn, MarketIndex, OrderId, OutcomeIndex, Timestamp};
use crate::money::Price;

/// The maximum number of positions that one record pays.
pub const POSITIONS_PER_RECORD_MAX: usize = 64;

/// A shard's progress in paying a market.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payment {
    /// Some positions may be unpaid. Repeat the command.
    Part,
    /// All positions are paid.
    Whole,
}

impl Command for DecideSettlement {
    type Subject = ();
    type Answer = ();

    fn decide(&self, state: &State, given: Given<'_, '_>) -> Result<Verdict<()>, Rejection> {
        let Self(decision) = self;
        if state.decisions.contains_key(&decision.condition_id) {
            return Ok(Verdict::Already(()));
        }
        decision.check(state.shard).map_err(|rule| Rejection::Broken { rule })?;
        let decision = decision.clone();
        Ok(Verdict::Happens(smallvec![Event::SettlementDecided { decision, at: given.now }], ()))
    }

    fn answer(_: &State, (): (), _: bool) {}

    /// Decisions are never removed. If there is none, the answer therefore depends on no record.
    fn depends_on(&self, state: &State) -> Lsn {
        let made = state.decision(&self.0.condition_id);
        made.map_or(Lsn::START, |decided| state.lsn_at(decided.position_in_log))
    }
}

impl Command for Settle {
    type Subject = Payment;
    type Answer = Payment;

    fn decide(&self, state: &State, given: Given<'_, '_>) -> Result<Verdict<Payment>, Rejection> {
        let Self(decision) = self;
        let Some(market) = state.market_named(&decision.condition_id) else {
            // No account of this shard has ever traded the market, and the catalogue accepts no new
            // orders in it.
            return Ok(Verdict::Already(Payment::Whole));
        };
        let payouts = match state.settled.get(&market) {
            Some(settled) if settled.is_paid => return Ok(Verdict::Already(Payment::Whole)),
            Some(settled) => settled.payouts.clone(),
            None => {
                decision.payouts_of(state.used_market(market)).ok_or(Rejection::MarketChanged)?
            }
        };
        if let Some(events) = end_orders(state, market, &payouts, given.now) {
            return Ok(Verdict::Happens(events, Payment::Part));
        }
        let mut events = Events::new();
        let mut positions: Vec<PaidPosition> = Vec::new();
        let (open, is_paid) = state.next_to_pay(market);
        for (slot, outcome) in open {
            let account = &state.accounts[slot];
            let before = match positions.last() {
                // An account with positions in several outcomes appears several times in a row.
                // Each payment starts from the balance after the previous one.
                Some(last) if last.account == account.id => last.balance,
                _ => account.ledger().cash(),
            };
            let held = account.position(market, outcome).expect("an open position is one");
            let payout = payout(held.shares, payouts[outcome.index()]);
            let broken = Rejection::Broken { rule: "an account's sums outgrow their range" };
            account.ledger().after_payout(payout).ok_or_else(|| broken.clone())?;
            positions.push(PaidPosition {
                account: account.id,
                outcome,
                shares: held.shares,
                payout,
                balance: before.checked_add(payout).ok_or(broken)?,
            });
        }
        if !positions.is_empty() {
            let payouts = payouts.clone();
            let settled = PositionsSettled { market, payouts, positions, at: given.now };
            events.push(Event::PositionsSettled(Box::new(settled)));
        }
        if is_paid {
            events.push(Event::MarketSettled { market, payouts, at: given.now });
        }
        let payment = if is_paid { Payment::Whole } else { Payment::Part };
        Ok(Verdict::Happens(events, payment))
    }

    fn answer(_: &State, payment: Payment, _: bool) -> Payment {
        payment
    }

    fn depends_on(&self, state: &State) -> Lsn {
        state.settled_lsn(&self.0.condition_id)
    }

    fn refusal_depends_on(&self, state: &State, rejection: &Rejection) -> Lsn {
        let lsn = self.depends_on(state);
        match rejection {
            // This rejection reveals that the shard has used the market with other tokens.
            Rejection::MarketChanged => lsn.max(state.introduction_lsn(&self.0.condition_id)),
            _ => lsn,
        }
    }
}

/// Returns the record that ends a bounded number of the market's open orders, whose reserves must
/// be released before positions are paid. `None` if no order is open.
fn end_orders(
    state: &State,
    market: MarketIndex,
    payouts: &Payouts,
    at: Timestamp,
) -> Option<Events> {
    let mut open = state.open_orders_in(market).peekable();
    open.peek()?;
    let mut events = Events::new();
    if !state.is_settled(market) {
        // This event pays no position, but it closes the market to new orders.
        let (payouts, positions) = (payouts.clone(), Vec::new());
        let closed = PositionsSettled { market, payouts, positions, at };
        events.push(Event::PositionsSettled(Box::new(closed)));
    }
    let ends = open.take(ENDED_PER_RECORD_MAX);
    events.extend(ends.map(|order| ended(order, EndReason::Resolved, at)));
    Some(events)
}

impl State {
    /// Returns the open positions that the next record of a settlement pays, sorted by account, and
    /// whether they are the last ones.
    ///
    /// The first call for a market scans all positions ever opened in it, and so does applying the
    /// first record. Later calls read only the positions that they return.
    fn next_to_pay(&self, market: MarketIndex) -> (Vec<(u32, OutcomeIndex)>, bool) {
        let holders = &self.holders[market.0 as usize];
        let (mut next, count): (Vec<_>, usize) = if self.is_settled(market) {
            (holders.iter().take(POSITIONS_PER_RECORD_MAX).copied().collect(), holders.len())
        } else {
            let open: Vec<_> =
                holders.iter().copied().filter(|&it| self.holds_shares(market, it)).collect();
            let count = open.len();
            (open, count)
        };
        next.sort_unstable();
        next.truncate(POSITIONS_PER_RECORD_MAX);
        (next, count <= POSITIONS_PER_RECORD_MAX)
    }

    /// Whether the account in this slot holds shares of an outcome.
    fn holds_shares(&self, market: MarketIndex, (slot, outcome): (u32, OutcomeIndex)) -> bool {
        self.accounts[slot].position(market, outcome).is_some_and(Position::is_open)
    }

    /// Drops the closed positions from a market's list, and sorts the open ones.
    fn keep_open_positions(&mut self, market: MarketIndex) {
        let mut holders = std::mem::take(&mut self.holders[market.0 as usize]);
        holders.retain(|&position| self.holds_shares(market, position));
        holders.make_contiguous().sort_unstable();
        self.holders[market.0 as usize] = holders;
    }

    /// Sorts the unpaid positions of settlements in progress. This is needed after a restore, which
    /// adds each account's positions in order of opening.
    pub(in crate::engine) fn sort_unpaid_positions(&mut self) {
        for market in self.settled.keys() {
            self.holders[market.0 as usize].make_contiguous().sort_unstable();
        }
    }

    /// Removes an account's open positions from settlements in progress, because the positions are
    /// about to be closed without a payment.
    pub(in crate::engine) fn leave_unpaid(
        &mut self,
        account_slot: u32,
    ) -> Result<(), &'static str> {
        let open = self.accounts[account_slot].positions().iter().filter(|it| it.is_open());
        for position in open.filter(|it| self.is_settled[it.market.0 as usize]) {
            let holders = &mut self.holders[position.market.0 as usize];
            let place = holders.binary_search(&(account_slot, position.outcome));
            let place = place.map_err(|_| "has an open position that no settlement would pay")?;
            holders.remove(place);
        }
        Ok(())
    }

    /// Returns the open orders of a market, including delayed ones.
    fn open_orders_in(&self, market: MarketIndex) -> impl Iterator<Item = OrderId> + '_ {
        let resting = self.open.of_market(market).map(|slot| self.orders[slot].id());
        let delayed = self.delays.of_market(market);
        resting.chain(delayed.filter_map(|counter| OrderId::new(self.shard, counter)))
    }

    pub(in crate::engine) fn add_decision(
        &mut self,
        decision: &Arc<Decision>,
        at: Timestamp,
        position_in_log: u64,
    ) -> Result<(), &'static str> {
        decision.check(self.shard)?;
        let decided = Decided { decision: decision.clone(), at, position_in_log };
        let term = decided.term();
        if self.decisions.insert(decision.condition_id.clone(), decided).is_some() {
            return Err("was made before");
        }
        self.hash += term;
        Ok(())
    }

    pub(in crate::engine) fn settle_positions(
        &mut self,
        settled: &PositionsSettled,
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        let market = settled.market;
        self.settle_market(market, &settled.payouts, false, position_in_log)?;
        if !settled.positions.is_empty() && self.open_orders_in(market).next().is_some() {
            return Err(Flaw::market(market, "is paid, and orders in it are open"));
        }
        for paid in &settled.positions {
            let flaw = |flaw| Flaw::account(paid.account, flaw);
            let slot = self.account_slot(paid.account).ok_or(flaw("is not there to be paid"))?;
            let holders = &mut self.holders[market.0 as usize];
            let Ok(place) = holders.binary_search(&(slot, paid.outcome)) else {
                return Err(flaw("is paid for a position that is not open"));
            };
            holders.remove(place);
            let price = settled.payouts[paid.outcome.index()];
            let account = &mut self.accounts[slot];
            self.hash += account.settle(market, paid, price, settled.at).map_err(flaw)?;
            account.position_in_log = position_in_log;
        }
        Ok(())
    }

    /// Marks a market as being settled, or as paid if `is_paid`. From then on, the market accepts
    /// no orders. Fails if `is_paid` and a position or an order in the market is still open.
    pub(in crate::engine) fn settle_market(
        &mut self,
        market: MarketIndex,
        payouts: &Payouts,
        is_paid: bool,
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        let flaw = |flaw| Err(Flaw::market(market, flaw));
        let Some(used) = self.markets.get(market.0 as usize) else {
            return flaw("is settled and was never used");
        };
        if used.outcomes.len() != payouts.len() {
            return flaw("is settled with payouts of other outcomes");
        }
        if payouts.iter().any(|price| !(Price::ZERO..=Price::ONE).contains(price)) {
            return flaw("pays less than nothing or more than a dollar a share");
        }
        if !self.is_settled(market) {
            self.keep_open_positions(market);
        }
        if is_paid && !self.holders[market.0 as usize].is_empty() {
            return flaw("is paid, and somebody holds it");
        }
        if is_paid && self.open_orders_in(market).next().is_some() {
            return flaw("is paid, and orders in it are open");
        }
        if let Some(before) = self.settled.get(&market) {
            if before.is_paid {
                return flaw("was settled before");
            }
            if before.payouts != *payouts {
                return flaw("is settled in two ways");
            }
            self.hash -= before.term(market);
        }
        let payouts = payouts.clone();
        let settled = SettledMarket { payouts, is_paid, position_in_log };
        self.hash += settled.term(market);
        self.settled.insert(market, settled);
        self.is_settled[market.0 as usize] = true;
        if is_paid {
            self.holders[market.0 as usize] = VecDeque::new();
        }
        Ok(())
    }

    /// Returns the decision about a market, if this shard keeps one.
    pub fn decision(&self, condition_id: &str) -> Option<&Decided> {
        self.decisions.get(condition_id)
    }

    /// Returns all decisions that this shard keeps, by condition id.
    pub fn decisions(&self) -> impl ExactSizeIterator<Item = &Decided> {
        self.decisions.values()
    }

    /// Returns the condition ids of the markets with open positions or open orders, without
    /// duplicates.
    pub fn held_markets(&self) -> impl Iterator<Item = &Arc<str>> {
        let used = (0_u32..).map(MarketIndex).take(self.markets.len());
        let held = used.filter(|&market| {
            self.holders[market.0 as usize]
                .iter()
                .any(|&position| self.holds_shares(market, position))
        });
        let mut markets: Vec<MarketIndex> = held
            .chain(self.open_sides().map(|on| on.market))
            .chain(self.delays.markets())
            .collect();
        markets.sort_unstable();
        markets.dedup();
        markets.into_iter().map(|market| &self.used_market(market).condition_id)
    }

    /// Whether the shard has used a market and has not paid all positions in it.
    pub fn is_unsettled(&self, condition_id: &str) -> bool {
        let market = self.market_named(condition_id);
        market.is_some_and(|market| self.settled.get(&market).is_none_or(|it| !it.is_paid))
    }
}

impl Account {
    /// Returns the settlement of the position with this index, if the position was settled and its
    /// settlement is still kept.
    pub fn settlement(&self, position: u32) -> Option<&Settlement> {
        self.settlements().get(&position)
    }
}
