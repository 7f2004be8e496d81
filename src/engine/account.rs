//! One account: its money, its positions, its keys.

use std::collections::VecDeque;
use std::hash::BuildHasher as _;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use smallvec::SmallVec;

use super::fill::{Fill, Placement};
use super::payout::{PaidPosition, SETTLEMENTS_PER_ACCOUNT_MAX, Settlement, Settlements, payout};
use super::position::Position;
use super::slab::PackedSlot;
use super::state_hash::{StateHash, Term, TermKind};
use crate::ids::{AccountId, MarketIndex, OutcomeIndex, Timestamp};
use crate::market::book::Side;
use crate::money::{Price, Usd};

/// Positions are searched one by one up to this many, and by an index past it.
const POSITIONS_SEARCHED_MAX: usize = 16;

/// The first positions stand beside the sums, where no further look into memory is needed.
const POSITIONS_INLINE: usize = 2;

/// An account as its shard keeps it. Most accounts are idle: what trading needs stands apart. What
/// a trade touches comes first: half a cache line, which rows of 96 bytes never cut in two.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Account {
    pub(super) id: AccountId,
    granted: Usd,
    /// The newest record that changed it: its position in the log.
    pub(super) position_in_log: u64,
    activity: Option<Box<Activity>>,
    pub(super) digest: [u8; 32],
    pub(super) subject: Box<str>,
    pub(super) opened_at: Timestamp,
    /// Which of the shard's issuers.
    pub(super) issuer: u32,
    /// The slot of its newest key; the key knows the one before it.
    pub(super) newest_key: Option<PackedSlot>,
}

const _: () = assert!(size_of::<Option<Account>>() <= 96, "a million accounts are 96 MB");

/// What an account has that has traded. A trade in its first position touches the first two cache
/// lines of it, which a processor reads as a pair.
#[derive(Clone, Debug, Default)]
#[repr(C, align(64))]
struct Activity {
    purchases: Usd,
    sales: Usd,
    fees: Usd,
    payouts: Usd,
    reserved: Usd,
    /// The slots of its finished orders that are kept, in the order in which they finished. An open
    /// order would not be among them, so nothing could forget it.
    finished: VecDeque<u32>,
    /// How many orders it ever finished.
    order_count_ever: u64,
    /// Where in `positions` an outcome is; none while there are few.
    position_of: Option<Box<HashTable<u32>>>,
    /// In the order of opening; closed ones stay.
    positions: SmallVec<[Position; POSITIONS_INLINE]>,
    /// What it was paid for positions in resolved markets; none for most.
    settlements: Option<Box<Settlements>>,
}

const _: () = assert!(size_of::<Activity>() == 3 * 64, "an active account has three cache lines");

impl Account {
    /// An account that was opened now.
    pub(super) fn opened(
        id: AccountId,
        digest: [u8; 32],
        issuer: u32,
        subject: Box<str>,
        granted: Usd,
        opened_at: Timestamp,
    ) -> Self {
        Self {
            id,
            digest,
            subject,
            opened_at,
            granted,
            position_in_log: 0,
            activity: None,
            issuer,
            newest_key: None,
        }
    }

    /// Its id.
    #[inline]
    pub const fn id(&self) -> AccountId {
        self.id
    }

    /// Its money.
    #[inline]
    pub fn ledger(&self) -> Ledger {
        let granted = self.granted;
        self.activity
            .as_ref()
            .map_or(Ledger { granted, ..Ledger::default() }, |activity| activity.ledger(granted))
    }

    /// One for each outcome that it ever held, in the order of opening; closed ones stay.
    pub fn positions(&self) -> &[Position] {
        self.activity.as_ref().map_or(&[], |activity| &activity.positions)
    }

    /// The position in an outcome, if there ever was one.
    #[inline]
    pub fn position(&self, market: MarketIndex, outcome: OutcomeIndex) -> Option<&Position> {
        let activity = self.activity.as_ref()?;
        activity.find(market, outcome).map(|index| &activity.positions.as_slice()[index])
    }

    /// What a trade looks at.
    #[inline]
    pub(super) fn holdings(&self) -> Holdings<'_> {
        match &self.activity {
            None => Holdings::opened_with(self.granted),
            Some(activity) => Holdings {
                ledger: activity.ledger(self.granted),
                kept_order_count: activity.finished.len(),
                positions: &activity.positions,
                position_of: activity.position_of.as_deref(),
            },
        }
    }

    /// How many orders it ever finished, forgotten ones too.
    pub fn order_count_ever(&self) -> u64 {
        self.activity.as_ref().map_or(0, |activity| activity.order_count_ever)
    }

    /// How many of its orders are kept.
    #[inline]
    pub(super) fn kept_order_count(&self) -> usize {
        self.activity.as_ref().map_or(0, |activity| activity.finished.len())
    }

    /// The slots of its kept orders, oldest first.
    pub(super) fn orders(&self) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator {
        self.activity.as_ref().map(|activity| activity.finished.iter()).unwrap_or_default().copied()
    }

    /// Changes what a fill of it changes, and tells how the state hash changes with that. A fill
    /// that contradicts what there is is an error; the account is of no use any more after it.
    pub(super) fn fill(
        &mut self,
        placement: &Placement,
        fill: &Fill,
    ) -> Result<StateHash, &'static str> {
        let &Placement { market, outcome, side, .. } = placement;
        let mut change = StateHash::default();
        let activity = self.activity.get_or_insert_default();
        let before = activity.ledger(self.granted);
        let after = before.after_fill(side, fill.notional, fill.fee);
        let after = after.ok_or("has sums out of range")?;
        if after.cash() != fill.balance {
            return Err("does not conserve money");
        }
        if fill.balance < Usd::ZERO {
            return Err("leaves a debt");
        }
        let order_count = activity.order_count_ever.checked_add(1).ok_or("is one too many")?;
        change -= money_term(self.id, &before, activity.order_count_ever);
        change += money_term(self.id, &after, order_count);
        activity.set_ledger(after);
        activity.order_count_ever = order_count;

        let index = activity.find(market, outcome);
        let known = index.map(|index| &mut activity.positions.as_mut_slice()[index]);
        let before = known.as_deref().copied().unwrap_or(Position::empty(market, outcome));
        let after = before
            .after_fill(side, fill.quantity, fill.notional)
            .ok_or("sells more than is held, or leaves a position out of range")?;
        if after.shares != fill.position_shares {
            return Err("does not conserve shares");
        }
        if after.cost != fill.position_cost {
            return Err("does not conserve cost");
        }
        change += after.term(self.id);
        match known {
            Some(position) => {
                change -= before.term(self.id);
                *position = after;
            }
            None => activity.push_position(after),
        }
        Ok(change)
    }

    /// Pays and closes a position, and tells how the state hash changes with that. What
    /// contradicts what there is is an error; the account is of no use any more after it.
    pub(super) fn settle(
        &mut self,
        market: MarketIndex,
        paid: &PaidPosition,
        payout_per_share: Price,
        at: Timestamp,
    ) -> Result<StateHash, &'static str> {
        let ledger = self.ledger();
        let order_count = self.order_count_ever();
        let after = ledger.after_payout(paid.payout).ok_or("has sums out of range")?;
        if after.cash() != paid.balance {
            return Err("is paid without conserving money");
        }
        let activity = self.activity.as_mut().ok_or("is paid and never traded")?;
        let index = activity.find(market, paid.outcome).ok_or("is paid for what it never held")?;
        let position = activity.positions[index];
        if position.shares != paid.shares {
            return Err("is paid for other shares than it holds");
        }
        if payout(paid.shares, payout_per_share) != paid.payout {
            return Err("is paid something else than its shares pay");
        }
        let closed = position.after_payout(paid.payout).ok_or("has a profit out of range")?;
        activity.set_ledger(after);
        activity.positions[index] = closed;
        let mut change = StateHash::default();
        change -= money_term(self.id, &ledger, order_count);
        change += money_term(self.id, &after, order_count);
        change -= position.term(self.id);
        change += closed.term(self.id);
        let Position { shares, cost, .. } = position;
        let settlement = Settlement { shares, cost, payout: paid.payout, payout_per_share, at };
        let index = u32::try_from(index).expect("fewer outcomes than a u32 counts");
        change += settlement.term(self.id, index);
        if let Some((forgotten, index)) = self.add_settlement(index, settlement) {
            change -= forgotten.term(self.id, index);
        }
        Ok(change)
    }

    /// Adds a settlement, and takes the oldest position's away when there are too many.
    pub(super) fn add_settlement(
        &mut self,
        position: u32,
        settlement: Settlement,
    ) -> Option<(Settlement, u32)> {
        let settlements = self.activity.get_or_insert_default().settlements.get_or_insert_default();
        settlements.insert(position, settlement);
        if settlements.len() <= SETTLEMENTS_PER_ACCOUNT_MAX {
            return None;
        }
        settlements.pop_first().map(|(position, settlement)| (settlement, position))
    }

    /// What it was paid for positions, by their place among all that it ever had.
    pub(super) fn settlements(&self) -> &Settlements {
        static NONE: Settlements = Settlements::new();
        let settlements = self.activity.as_ref().and_then(|activity| activity.settlements.as_ref());
        settlements.map_or(&NONE, |settlements| settlements)
    }

    pub(super) fn set_ledger(&mut self, ledger: Ledger) {
        self.granted = ledger.granted;
        self.activity.get_or_insert_default().set_ledger(ledger);
    }

    pub(super) fn set_order_count_ever(&mut self, count: u64) {
        self.activity.get_or_insert_default().order_count_ever = count;
    }

    /// The order in this slot has finished, behind all others.
    #[inline]
    pub(super) fn finish_order(&mut self, slot: u32) {
        self.activity.get_or_insert_default().finished.push_back(slot);
    }

    /// Takes the oldest kept order away.
    pub(super) fn pop_order(&mut self) -> Option<u32> {
        self.activity.as_mut()?.finished.pop_front()
    }

    /// Adds a position in an outcome. `None` when there is one already.
    pub(super) fn add_position(&mut self, position: Position) -> Option<()> {
        let activity = self.activity.get_or_insert_default();
        if activity.find(position.market, position.outcome).is_some() {
            return None;
        }
        activity.push_position(position);
        Some(())
    }

    /// The term in the state hash of who it is. That does not change.
    pub(super) fn identity_term(&self) -> StateHash {
        Term::new(TermKind::Identity)
            .pair(self.id.get(), self.opened_at.nanos().cast_unsigned())
            .bytes(&self.digest)
            .finish()
    }

    /// The term in the state hash of its money.
    pub(super) fn term(&self) -> StateHash {
        money_term(self.id, &self.ledger(), self.order_count_ever())
    }
}

/// The term in the state hash of an account's money, and of how many orders it ever finished.
#[inline]
fn money_term(account: AccountId, ledger: &Ledger, order_count_ever: u64) -> StateHash {
    Term::new(TermKind::Account)
        .pair(account.get(), order_count_ever)
        .signed_pair(ledger.granted.micros(), ledger.purchases.micros())
        .signed_pair(ledger.sales.micros(), ledger.fees.micros())
        .signed(ledger.payouts.micros())
        .finish()
}

impl Activity {
    #[inline]
    fn ledger(&self, granted: Usd) -> Ledger {
        Ledger {
            granted,
            purchases: self.purchases,
            sales: self.sales,
            fees: self.fees,
            payouts: self.payouts,
            reserved: self.reserved,
        }
    }

    #[inline]
    fn set_ledger(&mut self, ledger: Ledger) {
        let Ledger { granted: _, purchases, sales, fees, payouts, reserved } = ledger;
        self.purchases = purchases;
        self.sales = sales;
        self.fees = fees;
        self.payouts = payouts;
        self.reserved = reserved;
    }

    #[inline]
    fn find(&self, market: MarketIndex, outcome: OutcomeIndex) -> Option<usize> {
        find(&self.positions, self.position_of.as_deref(), market, outcome)
    }

    fn push_position(&mut self, position: Position) {
        self.positions.push(position);
        let indexed = match self.positions.len() {
            ..=POSITIONS_SEARCHED_MAX => return,
            count if count == POSITIONS_SEARCHED_MAX + 1 => 0,
            count => count - 1,
        };
        let positions = &self.positions;
        let position_of = self.position_of.get_or_insert_default();
        let hash_at = |&index: &u32| {
            let position = &positions[index as usize];
            position_hash(position.market, position.outcome)
        };
        for index in indexed..positions.len() {
            let index = u32::try_from(index).expect("fewer outcomes than a u32 counts");
            position_of.insert_unique(hash_at(&index), index, hash_at);
        }
    }
}

/// What a trade looks at of an account. All of it is read at once, before any of it is needed: a
/// processor then waits for the account's memory once, and looks up names and market meanwhile.
pub(super) struct Holdings<'a> {
    pub(super) ledger: Ledger,
    pub(super) kept_order_count: usize,
    positions: &'a [Position],
    position_of: Option<&'a HashTable<u32>>,
}

impl Holdings<'_> {
    /// Those of an account that has not traded.
    pub(super) fn opened_with(granted: Usd) -> Self {
        let ledger = Ledger { granted, ..Ledger::default() };
        Self { ledger, kept_order_count: 0, positions: &[], position_of: None }
    }

    /// The position in an outcome, empty if there was none.
    #[inline]
    pub(super) fn position(&self, market: MarketIndex, outcome: OutcomeIndex) -> Position {
        match find(self.positions, self.position_of, market, outcome) {
            Some(index) => self.positions[index],
            None => Position::empty(market, outcome),
        }
    }
}

/// Where the position in an outcome stands.
#[inline]
fn find(
    positions: &[Position],
    position_of: Option<&HashTable<u32>>,
    market: MarketIndex,
    outcome: OutcomeIndex,
) -> Option<usize> {
    let is_it = |position: &Position| position.market == market && position.outcome == outcome;
    let Some(position_of) = position_of else {
        return positions.iter().position(is_it);
    };
    let is_there = |&index: &u32| is_it(&positions[index as usize]);
    position_of.find(position_hash(market, outcome), is_there).map(|&index| index as usize)
}

/// The server numbers markets and outcomes itself, so nobody can choose colliding ones.
fn position_hash(market: MarketIndex, outcome: OutcomeIndex) -> u64 {
    FixedState::with_seed(0).hash_one((market, outcome))
}

/// Where an account's money came from and where it went. Cash is the sum of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ledger {
    /// Play money given: at the start, and deposits.
    pub granted: Usd,
    /// Notional paid for shares.
    pub purchases: Usd,
    /// Notional received for shares.
    pub sales: Usd,
    /// Fees paid.
    pub fees: Usd,
    /// Received for shares of resolved markets.
    pub payouts: Usd,
    /// The part of the cash that open orders hold: the sum of what each of them may still spend, so
    /// it is no fact of its own. No order stays open yet, and it is 0.
    pub reserved: Usd,
}

impl Ledger {
    /// What a new order can spend.
    #[inline]
    pub fn available(&self) -> Usd {
        self.cash() - self.reserved
    }

    /// Everything that the account has, what is reserved included.
    #[inline]
    pub fn cash(&self) -> Usd {
        self.checked_cash().expect("every ledger was checked when its last sum was added")
    }

    /// The same, or `None` past the range of an `i64`.
    #[inline]
    pub(super) fn checked_cash(&self) -> Option<Usd> {
        self.narrow_cash().or_else(|| self.wide_cash())
    }

    /// The same, unless a sum on the way leaves the range, as none does in practice.
    #[inline]
    fn narrow_cash(&self) -> Option<Usd> {
        let received = self.granted.checked_add(self.sales)?.checked_add(self.payouts)?;
        received.checked_sub(self.purchases)?.checked_sub(self.fees)
    }

    /// The terms are added in an `i128`: two of them may be out of range together while cash is
    /// not.
    #[cold]
    fn wide_cash(&self) -> Option<Usd> {
        let wide = |sum: Usd| i128::from(sum.micros());
        let received = wide(self.granted) + wide(self.sales) + wide(self.payouts);
        let spent = wide(self.purchases) + wide(self.fees);
        i64::try_from(received - spent).ok().map(Usd::from_micros)
    }

    /// The ledger after a payout; `None` when a sum or the cash leaves its range.
    pub fn after_payout(mut self, payout: Usd) -> Option<Self> {
        self.payouts = self.payouts.checked_add(payout)?;
        self.checked_cash()?;
        Some(self)
    }

    /// The ledger after a fill; `None` when a sum or the cash leaves its range.
    #[inline]
    pub fn after_fill(mut self, side: Side, notional: Usd, fee: Usd) -> Option<Self> {
        let sum = match side {
            Side::Buy => &mut self.purchases,
            Side::Sell => &mut self.sales,
        };
        *sum = sum.checked_add(notional)?;
        self.fees = self.fees.checked_add(fee)?;
        self.checked_cash()?;
        Some(self)
    }
}
