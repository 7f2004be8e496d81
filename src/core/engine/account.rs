//! An account: its money, positions and keys.

pub mod equity;
pub mod extension;
pub mod ledger;
pub(in crate::engine) mod opening;
pub mod position;

mod footprint;
mod open;
mod reset;
mod standing;
mod undo;

use std::collections::VecDeque;
use std::hash::BuildHasher as _;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use smallvec::SmallVec;

use crate::engine::account::extension::AccountExtension;
use crate::engine::account::ledger::Ledger;
use crate::engine::account::position::Position;
use crate::engine::fills::fill::Fill;
use crate::engine::market::payout::{
    PaidPosition, SETTLEMENTS_PER_ACCOUNT_MAX, Settlement, Settlements, payout,
};
use crate::engine::order::terms::Reserve;
use crate::engine::state::hash::{StateHash, Term, TermKind};
use crate::engine::state::slab::PackedSlot;
use crate::ids::{AccountId, MarketIndex, OutcomeIndex, Timestamp};
use crate::market::book::Side;
use crate::money::{Price, Shares, Usd};

/// The maximum number of positions that are searched linearly. An account with more positions has
/// an index.
const POSITIONS_SEARCHED_MAX: usize = 16;

/// The number of positions stored inline, next to the sums, which saves a pointer dereference.
const POSITIONS_INLINE: usize = 2;

/// An account as its shard stores it. Most accounts are idle, so trading data is stored separately.
/// The fields that a trade touches come first. Their 32 bytes never straddle two cache lines,
/// because rows are 96 bytes.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Account {
    pub(super) id: AccountId,
    granted: Usd,
    /// The log position of the newest record that changed the account.
    pub(super) position_in_log: u64,
    activity: Option<Box<Activity>>,
    pub(super) digest: [u8; 32],
    pub(super) subject: Box<str>,
    pub(super) opened_at: Timestamp,
    /// The issuer of the identity, as an index into the shard's list of issuers.
    pub(super) issuer: u32,
    /// The slot of the newest key; each key links to the next older one.
    pub(super) newest_key: Option<PackedSlot>,
}

const _: () = assert!(size_of::<Option<Account>>() <= 96, "a million accounts are 96 MB");

/// The data of an account that has traded. A trade in its first position touches only the first two
/// cache lines, which processors fetch as a pair.
#[derive(Clone, Debug, Default)]
#[repr(C, align(64))]
struct Activity {
    purchases: Usd,
    sales: Usd,
    fees: Usd,
    payouts: Usd,
    reserved: Usd,
    /// The slots of the kept finished orders, in the order in which they finished. Open orders are
    /// not in this list and so are never forgotten.
    finished: VecDeque<u32>,
    /// The number of orders the account has ever finished.
    order_count_ever: u64,
    /// Index into `positions` by outcome; `None` while there are few.
    position_of: Option<Box<HashTable<u32>>>,
    /// All positions in order of opening, including closed ones.
    positions: SmallVec<[Position; POSITIONS_INLINE]>,
    /// The settlements of positions in resolved markets; most accounts have none.
    settlements: Option<Box<Settlements>>,
    /// Open orders and other data that most accounts never have.
    extension: Option<Box<AccountExtension>>,
}

const _: () = assert!(size_of::<Activity>() == 3 * 64, "an active account has three cache lines");

impl Account {
    /// Creates an account that has not traded.
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

    /// Returns the account's id.
    #[inline]
    pub const fn id(&self) -> AccountId {
        self.id
    }

    /// Returns the account's money.
    #[inline]
    pub fn ledger(&self) -> Ledger {
        let granted = self.granted;
        self.activity
            .as_ref()
            .map_or(Ledger { granted, ..Ledger::default() }, |activity| activity.ledger(granted))
    }

    /// Returns one position per outcome ever held, in order of opening, including closed ones.
    pub fn positions(&self) -> &[Position] {
        self.activity.as_ref().map_or(&[], |activity| &activity.positions)
    }

    /// Returns the position in an outcome, if the account ever had one.
    #[inline]
    pub fn position(&self, market: MarketIndex, outcome: OutcomeIndex) -> Option<&Position> {
        let activity = self.activity.as_ref()?;
        activity.find(market, outcome).map(|index| &activity.positions.as_slice()[index])
    }

    /// Returns the position in an outcome, or an empty position if the account never had one.
    pub(super) fn holding(&self, market: MarketIndex, outcome: OutcomeIndex) -> Position {
        self.position(market, outcome).copied().unwrap_or(Position::empty(market, outcome))
    }

    /// Returns the part of the account that is needed to decide a trade.
    #[inline]
    pub(super) fn holdings(&self) -> Holdings<'_> {
        match &self.activity {
            None => Holdings::opened_with(self.granted),
            Some(activity) => Holdings {
                ledger: activity.ledger(self.granted),
                kept_order_count: activity.finished.len(),
                positions: &activity.positions,
                position_of: activity.position_of.as_deref(),
                extension: activity.extension.as_deref(),
                freed: Shares::ZERO,
                is_deciding_delayed: false,
            },
        }
    }

    /// Reads some of the memory that a fill changes: the account, the end of its list of orders,
    /// and its first position. Returns a number that depends on everything read, so that the
    /// compiler keeps the reads.
    #[inline]
    pub(super) fn prefetch(&self) -> i64 {
        let Some(activity) = &self.activity else { return 0 };
        let newest_order = activity.finished.back().map_or(0, |&slot| i64::from(slot));
        let first = activity.positions.first().map_or(0, |position| position.shares.micros());
        activity.order_count_ever.cast_signed() ^ newest_order ^ first
    }

    /// Returns the number of orders the account has ever finished, including forgotten ones.
    pub fn order_count_ever(&self) -> u64 {
        self.activity.as_ref().map_or(0, |activity| activity.order_count_ever)
    }

    /// Returns the number of finished orders the account keeps.
    #[inline]
    pub(super) fn kept_order_count(&self) -> usize {
        self.activity.as_ref().map_or(0, |activity| activity.finished.len())
    }

    /// Returns the slots of the kept orders, in the order in which they finished.
    pub(super) fn orders(&self) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator {
        self.activity.as_ref().map(|activity| activity.finished.iter()).unwrap_or_default().copied()
    }

    /// Returns the number and slot of each kept order before `number`, oldest first. Numbers start
    /// at 1 and count all orders the account has ever finished.
    pub(super) fn orders_before(&self, number: u64) -> impl DoubleEndedIterator<Item = (u64, u32)> {
        let newest = self.order_count_ever();
        let oldest = newest + 1 - self.kept_order_count() as u64;
        let count = number.min(newest + 1).saturating_sub(oldest);
        let slots = self.orders().take(usize::try_from(count).unwrap_or(usize::MAX));
        slots.enumerate().map(move |(index, slot)| (oldest + index as u64, slot))
    }

    /// Applies a fill and returns the change to the state hash. `finishes` tells whether the fill
    /// completes its order. Fails if the fill contradicts the account, which is then in an
    /// undefined state.
    pub(super) fn fill(
        &mut self,
        (market, outcome, side): (MarketIndex, OutcomeIndex, Side),
        fill: &Fill,
        finishes: bool,
    ) -> Result<StateHash, &'static str> {
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
        if fill.balance < after.reserved {
            return Err("spends what open orders hold back");
        }
        let finished = u64::from(finishes);
        let order_count =
            activity.order_count_ever.checked_add(finished).ok_or("is one too many")?;
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
        let extension = activity.extension.as_deref();
        if extension.is_some_and(|it| after.shares < it.reserved_shares(market, outcome)) {
            return Err("sells what open orders hold back");
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

    /// Pays and closes a position and returns the change to the state hash. Fails if the payment
    /// contradicts the account, which is then in an undefined state.
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

    /// Adds a settlement. If the account then has too many, removes the settlement of its oldest
    /// position, and returns it with the position's index.
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

    /// Returns the settlements that the account keeps, by position index.
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

    /// Appends the order in this slot to the account's finished orders.
    #[inline]
    pub(super) fn finish_order(&mut self, slot: u32) {
        self.activity.get_or_insert_default().finished.push_back(slot);
    }

    /// Removes the oldest kept order and returns its slot.
    pub(super) fn pop_order(&mut self) -> Option<u32> {
        self.activity.as_mut()?.finished.pop_front()
    }

    /// Adds a position. Returns `None` if the account already has a position in the same outcome.
    pub(super) fn add_position(&mut self, position: Position) -> Option<()> {
        let activity = self.activity.get_or_insert_default();
        if activity.find(position.market, position.outcome).is_some() {
            return None;
        }
        activity.push_position(position);
        Some(())
    }

    /// Returns the identity's term in the state hash. The term never changes.
    pub(super) fn identity_term(&self) -> StateHash {
        Term::new(TermKind::Identity)
            .pair(self.id.get(), self.opened_at.nanos().cast_unsigned())
            .bytes(&self.digest)
            .finish()
    }

    /// Returns the sum of the account's terms in the state hash, excluding the terms of its keys
    /// and orders.
    pub(super) fn all_terms(&self) -> StateHash {
        let id = self.id;
        let mut terms = self.identity_term();
        terms += self.term();
        terms += heartbeat_term(id, self.heartbeat_ms());
        terms += self.resets().map(|it| it.term(id)).unwrap_or_default();
        terms += self.standing().map(|it| it.term(id)).unwrap_or_default();
        for position in self.positions() {
            terms += position.term(id);
        }
        for (&position, settlement) in self.settlements() {
            terms += settlement.term(id, position);
        }
        for (&number, undone) in self.undone_fills().into_iter().flatten() {
            terms += undone.term(id, number);
        }
        let log = self.fill_log().map(|log| log.term(id, self.fill_count_ever()));
        terms += log.unwrap_or_default();
        terms
    }

    /// Returns the sum of the state hash's terms for the account's money, order count and fill
    /// count.
    pub(super) fn term(&self) -> StateHash {
        let mut term = money_term(self.id, &self.ledger(), self.order_count_ever());
        term += fills_term(self.id, self.fill_surplus());
        term
    }
}

/// Returns the state hash's term for an account's heartbeat; zero without a heartbeat.
pub(super) fn heartbeat_term(account: AccountId, interval_ms: Option<u32>) -> StateHash {
    let term = |interval_ms: u32| {
        Term::new(TermKind::Heartbeat).pair(account.get(), interval_ms.into()).finish()
    };
    interval_ms.map_or_else(StateHash::default, term)
}

/// Returns the state hash's term for an account's fill count. The term is zero if all of the
/// account's orders filled at once, since the account then has as many fills as orders.
fn fills_term(account: AccountId, fill_surplus: i64) -> StateHash {
    if fill_surplus == 0 {
        return StateHash::default();
    }
    Term::new(TermKind::Fills).pair(account.get(), fill_surplus.cast_unsigned()).finish()
}

/// Returns the state hash's term for an account's money and its number of finished orders.
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
            // The first position beyond the limit creates the index, which must then cover all
            // positions.
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

/// The part of an account that is needed to decide a trade. It is read early, so that its cache
/// misses overlap with each other and with the lookups of the names and the market.
pub(super) struct Holdings<'a> {
    pub(super) ledger: Ledger,
    pub(super) kept_order_count: usize,
    positions: &'a [Position],
    position_of: Option<&'a HashTable<u32>>,
    extension: Option<&'a AccountExtension>,
    /// The shares released by the delayed order that is being decided.
    freed: Shares,
    is_deciding_delayed: bool,
}

impl Holdings<'_> {
    /// Returns the holdings of an account that has not traded.
    pub(super) fn opened_with(granted: Usd) -> Self {
        let ledger = Ledger { granted, ..Ledger::default() };
        Self {
            ledger,
            kept_order_count: 0,
            positions: &[],
            position_of: None,
            extension: None,
            freed: Shares::ZERO,
            is_deciding_delayed: false,
        }
    }

    /// Returns the position in an outcome, or an empty position if there is none.
    #[inline]
    pub(super) fn position(&self, market: MarketIndex, outcome: OutcomeIndex) -> Position {
        match find(self.positions, self.position_of, market, outcome) {
            Some(index) => self.positions[index],
            None => Position::empty(market, outcome),
        }
    }

    /// Returns the shares of a position that a new order can sell: the shares that no open order
    /// reserves.
    #[inline]
    pub(super) fn available(&self, position: &Position) -> Shares {
        match self.extension {
            None => position.shares,
            Some(extension) => {
                let reserved = extension.reserved_shares(position.market, position.outcome);
                position.shares - (reserved - self.freed)
            }
        }
    }

    /// Returns the number of open orders, not counting a delayed order that is being decided.
    pub(super) fn open_order_count(&self) -> usize {
        self.extension.map_or(0, |extension| extension.open.len())
            - usize::from(self.is_deciding_delayed)
    }

    /// Returns the holdings for deciding a delayed order, with the order's own reserve released.
    pub(super) fn without(mut self, reserve: Reserve) -> Self {
        self.ledger.reserved -= reserve.cash;
        self.freed = reserve.shares;
        self.is_deciding_delayed = true;
        self
    }
}

/// Returns the index of the position in an outcome.
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

/// Hashes an outcome with a fixed seed. The server numbers markets and outcomes itself, so no
/// client can choose numbers that collide.
fn position_hash(market: MarketIndex, outcome: OutcomeIndex) -> u64 {
    FixedState::with_seed(0).hash_one((market, outcome))
}
