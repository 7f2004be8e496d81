//! One account: its money, its positions, its keys.

use std::collections::HashMap;

use super::command::Identity;
use super::position::Position;
use super::state_hash::{StateHash, Term, TermKind};
use crate::ids::{AccountId, KeyId, MarketIndex, OrderId, OutcomeIndex, Place, Timestamp};
use crate::market::book::Side;
use crate::money::Usd;

/// An account as its shard keeps it.
#[derive(Clone, PartialEq, Debug)]
pub struct Account {
    /// Its id.
    pub id: AccountId,
    /// Whose it is.
    pub identity: Identity,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// Its money.
    pub ledger: Ledger,
    /// One for each outcome that it ever held, oldest first; closed ones stay.
    pub positions: Vec<Position>,
    /// Where in `positions` an outcome is.
    position_of: HashMap<(MarketIndex, OutcomeIndex), u32, foldhash::fast::RandomState>,
    /// Its keys, oldest first, revoked ones too.
    pub keys: Vec<KeyId>,
    /// Its orders, oldest first.
    pub orders: Vec<OrderId>,
    /// The newest record that changed it.
    pub last_place: Place,
}

impl Account {
    /// An account that was opened now.
    pub fn opened(id: AccountId, identity: Identity, granted: Usd, at: Timestamp) -> Self {
        Self {
            id,
            identity,
            opened_at: at,
            ledger: Ledger { granted, ..Ledger::default() },
            positions: Vec::new(),
            position_of: HashMap::default(),
            keys: Vec::new(),
            orders: Vec::new(),
            last_place: Place::START,
        }
    }

    /// The position in an outcome, if there ever was one.
    pub fn position(&self, market: MarketIndex, outcome: OutcomeIndex) -> Option<&Position> {
        let &index = self.position_of.get(&(market, outcome))?;
        self.positions.get(index as usize)
    }

    /// Replaces the position in an outcome, and returns the one before.
    pub(super) fn set_position(&mut self, position: Position) -> Option<Position> {
        let key = (position.market, position.outcome);
        if let Some(&index) = self.position_of.get(&key) {
            return Some(std::mem::replace(&mut self.positions[index as usize], position));
        }
        let index = u32::try_from(self.positions.len()).expect("fewer outcomes than a u32 counts");
        self.position_of.insert(key, index);
        self.positions.push(position);
        None
    }

    /// The account's term in the state hash.
    pub(super) fn term(&self) -> StateHash {
        let ledger = &self.ledger;
        Term::new(TermKind::Account)
            .number(self.id.get())
            .bytes(&self.identity.digest)
            .signed(self.opened_at.nanos())
            .signed(ledger.granted.micros())
            .signed(ledger.purchases.micros())
            .signed(ledger.sales.micros())
            .signed(ledger.fees.micros())
            .signed(ledger.payouts.micros())
            .number(self.orders.len() as u64)
            .finish()
    }
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
    fn checked_cash(&self) -> Option<Usd> {
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
