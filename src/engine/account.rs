//! One account: its money, its positions, its keys.

use std::collections::VecDeque;
use std::hash::BuildHasher as _;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use smallvec::SmallVec;

use super::position::Position;
use super::slab::PackedSlot;
use super::state_hash::{StateHash, Term, TermKind};
use crate::ids::{AccountId, MarketIndex, OutcomeIndex, Timestamp};
use crate::market::book::Side;
use crate::money::Usd;

/// Positions are searched one by one up to this many, and by an index past it.
const POSITIONS_SEARCHED_MAX: usize = 16;

/// The first positions stand beside the sums, where no further look into memory is needed.
const POSITIONS_INLINE: usize = 2;

/// An account as its shard keeps it. Most accounts are idle: what trading needs stands apart.
#[derive(Clone, Debug)]
pub struct Account {
    pub(super) id: AccountId,
    pub(super) digest: [u8; 32],
    pub(super) subject: Box<str>,
    pub(super) opened_at: Timestamp,
    granted: Usd,
    /// The newest record that changed it: its position in the log.
    pub(super) position_in_log: u64,
    activity: Option<Box<Activity>>,
    /// Which of the shard's issuers.
    pub(super) issuer: u32,
    /// The slot of its newest key; the key knows the one before it.
    pub(super) newest_key: Option<PackedSlot>,
}

const _: () = assert!(size_of::<Option<Account>>() <= 96, "a million accounts are 96 MB");

/// What an account has that has traded.
#[derive(Clone, Debug, Default)]
struct Activity {
    purchases: Usd,
    sales: Usd,
    fees: Usd,
    payouts: Usd,
    /// In the order of opening; closed ones stay.
    positions: SmallVec<[Position; POSITIONS_INLINE]>,
    /// Where in `positions` an outcome is; none while there are few.
    position_of: Option<Box<HashTable<u32>>>,
    /// The slots of its kept orders, oldest first.
    orders: VecDeque<u32>,
    /// How many orders it ever finished.
    order_count_ever: u64,
}

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
    pub const fn id(&self) -> AccountId {
        self.id
    }

    /// Its money.
    pub fn ledger(&self) -> Ledger {
        let granted = self.granted;
        self.activity.as_ref().map_or(Ledger { granted, ..Ledger::default() }, |activity| Ledger {
            granted,
            purchases: activity.purchases,
            sales: activity.sales,
            fees: activity.fees,
            payouts: activity.payouts,
        })
    }

    /// One for each outcome that it ever held, in the order of opening; closed ones stay.
    pub fn positions(&self) -> &[Position] {
        self.activity.as_ref().map_or(&[], |activity| &activity.positions)
    }

    /// The position in an outcome, if there ever was one.
    pub fn position(&self, market: MarketIndex, outcome: OutcomeIndex) -> Option<&Position> {
        let activity = self.activity.as_ref()?;
        activity.find(market, outcome).map(|index| &activity.positions[index])
    }

    /// How many orders it ever finished, forgotten ones too.
    pub fn order_count_ever(&self) -> u64 {
        self.activity.as_ref().map_or(0, |activity| activity.order_count_ever)
    }

    /// How many of its orders are kept.
    pub(super) fn kept_order_count(&self) -> usize {
        self.activity.as_ref().map_or(0, |activity| activity.orders.len())
    }

    /// The slots of its kept orders, oldest first.
    pub(super) fn orders(&self) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator {
        self.activity.as_ref().map(|activity| activity.orders.iter()).unwrap_or_default().copied()
    }

    pub(super) fn set_ledger(&mut self, ledger: Ledger) {
        let Ledger { granted, purchases, sales, fees, payouts } = ledger;
        self.granted = granted;
        let activity = self.activity.get_or_insert_default();
        activity.purchases = purchases;
        activity.sales = sales;
        activity.fees = fees;
        activity.payouts = payouts;
    }

    pub(super) fn set_order_count_ever(&mut self, count: u64) {
        self.activity.get_or_insert_default().order_count_ever = count;
    }

    /// Adds the order in this slot behind the others.
    pub(super) fn push_order(&mut self, slot: u32) {
        self.activity.get_or_insert_default().orders.push_back(slot);
    }

    /// Takes the oldest kept order away.
    pub(super) fn pop_order(&mut self) -> Option<u32> {
        self.activity.as_mut()?.orders.pop_front()
    }

    /// Replaces the position in an outcome, and returns the one before.
    pub(super) fn set_position(&mut self, position: Position) -> Option<Position> {
        let activity = self.activity.get_or_insert_default();
        if let Some(index) = activity.find(position.market, position.outcome) {
            return Some(std::mem::replace(&mut activity.positions[index], position));
        }
        activity.push_position(position);
        None
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
        let ledger = self.ledger();
        Term::new(TermKind::Account)
            .pair(self.id.get(), self.order_count_ever())
            .signed_pair(ledger.granted.micros(), ledger.purchases.micros())
            .signed_pair(ledger.sales.micros(), ledger.fees.micros())
            .signed(ledger.payouts.micros())
            .finish()
    }
}

impl Activity {
    /// Where the position in an outcome stands.
    fn find(&self, market: MarketIndex, outcome: OutcomeIndex) -> Option<usize> {
        let is_it = |position: &Position| position.market == market && position.outcome == outcome;
        let Some(position_of) = &self.position_of else {
            return self.positions.iter().position(is_it);
        };
        let is_there = |&index: &u32| is_it(&self.positions[index as usize]);
        position_of.find(position_hash(market, outcome), is_there).map(|&index| index as usize)
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
}

impl Ledger {
    /// What can be spent.
    pub fn cash(&self) -> Usd {
        self.checked_cash().expect("every ledger was checked when its last sum was added")
    }

    /// The same, or `None` past the range of an `i64`. The terms are added in an `i128`: two of
    /// them may be out of range together while cash is not.
    pub(super) fn checked_cash(&self) -> Option<Usd> {
        let wide = |sum: Usd| i128::from(sum.micros());
        let received = wide(self.granted) + wide(self.sales) + wide(self.payouts);
        let spent = wide(self.purchases) + wide(self.fees);
        i64::try_from(received - spent).ok().map(Usd::from_micros)
    }

    /// The ledger after a fill; `None` when a sum or the cash leaves its range.
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
