//! An account's equity over time, computed from its records of fills and settlements.
//!
//! Equity is not stored. Cash is the starting cash plus the payments in the records. Each outcome
//! is valued separately, at prices that the caller supplies.

use crate::ids::Timestamp;
use crate::money::{Notional, Price, Shares, Usd};

/// An account's shares of an outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holding {
    /// The shares held; 0 if none.
    pub shares: Shares,
    /// The cost of the shares, without fees. It serves as their value while the outcome has no
    /// price.
    pub cost: Usd,
}

/// A change in the account's cash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Payment {
    /// The time of the payment.
    pub at: Timestamp,
    /// The amount received; negative if the account paid.
    pub amount: Usd,
    /// The cash after the payment, if the record states it.
    pub balance: Option<Usd>,
}

/// A change in the account's shares of an outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// The time of the change.
    pub at: Timestamp,
    /// The holding before the change.
    pub before: Holding,
    /// The holding after the change.
    pub after: Holding,
}

/// An account's equity at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EquityPoint {
    /// The moment at which the equity is computed.
    pub at: Timestamp,
    /// All cash, including the part reserved for open orders.
    pub cash: Usd,
    /// The value of the positions.
    pub position_value: Usd,
}

/// An account's equity over time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Equity {
    points: Vec<EquityPoint>,
}

impl Holding {
    /// A holding of no shares.
    pub const NONE: Self = Self { shares: Shares::ZERO, cost: Usd::ZERO };

    fn value(self, price: Option<Price>) -> Usd {
        price.map_or(self.cost, |price| Notional::of(price, self.shares).floor())
    }
}

impl EquityPoint {
    /// Returns the cash plus the value of the positions.
    pub fn total(&self) -> Usd {
        self.cash + self.position_value
    }
}

impl Equity {
    /// Computes the cash at each of the given moments, without positions. `moments` and `payments`
    /// must be sorted by time. `start` is the time at which the records begin and the cash at that
    /// time; earlier moments get no point.
    ///
    /// A gap in the records, such as a settlement that is no longer kept, shows as an unexpected
    /// balance after the next fill. Moments before that fill get no point either.
    pub fn new(
        moments: impl IntoIterator<Item = Timestamp>,
        start: (Timestamp, Usd),
        payments: &[Payment],
    ) -> Self {
        let (began_at, mut cash) = start;
        let mut payments = payments.iter().peekable();
        let mut points = Vec::new();
        for at in moments.into_iter().filter(|at| *at >= began_at) {
            while let Some(payment) = payments.next_if(|payment| payment.at <= at) {
                let expected = cash + payment.amount;
                cash = payment.balance.unwrap_or(expected);
                if cash != expected {
                    points.clear();
                }
            }
            points.push(EquityPoint { at, cash, position_value: Usd::ZERO });
        }
        Self { points }
    }

    /// Adds the value of the account's shares of one outcome to each point. `moves` must be sorted
    /// by time; if it is empty, the account holds `held` throughout. Calls `price` only for moments
    /// at which the account held shares.
    pub fn add(
        &mut self,
        held: Holding,
        moves: &[Move],
        mut price: impl FnMut(Timestamp) -> Option<Price>,
    ) {
        let mut held = moves.first().map_or(held, |first| first.before);
        let mut moves = moves.iter().peekable();
        for point in &mut self.points {
            while let Some(change) = moves.next_if(|change| change.at <= point.at) {
                held = change.after;
            }
            if held.shares > Shares::ZERO {
                point.position_value += held.value(price(point.at));
            }
        }
    }

    /// Returns the points, oldest first.
    pub fn points(&self) -> &[EquityPoint] {
        &self.points
    }
}

#[cfg(test)]
mod tests;
