//! What an account was worth over time, from its records of fills and settlements.
//!
//! Nothing is stored for it. Cash follows from where the records begin and from what each of them
//! paid; each outcome is valued by itself, at prices that the caller knows.

use crate::ids::Timestamp;
use crate::money::{Notional, Price, Shares, Usd};

/// The account's shares of an outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holding {
    /// The shares held; 0 if none.
    pub shares: Shares,
    /// The cost of those shares, without fees: their value while the outcome has no price.
    pub cost: Usd,
}

/// A change in the account's cash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Payment {
    /// When it happened.
    pub at: Timestamp,
    /// What the account got; below 0 if it paid.
    pub amount: Usd,
    /// The cash afterwards, if the record has it.
    pub balance: Option<Usd>,
}

/// A change in the account's shares of an outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// When it happened.
    pub at: Timestamp,
    /// What was held until then.
    pub before: Holding,
    /// What was held from then on.
    pub after: Holding,
}

/// What an account was worth at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EquityPoint {
    /// The moment.
    pub at: Timestamp,
    /// All cash, including what open orders held back.
    pub cash: Usd,
    /// The value of the positions.
    pub position_value: Usd,
}

/// What an account was worth over time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Equity {
    points: Vec<EquityPoint>,
}

impl Holding {
    /// No shares.
    pub const NONE: Self = Self { shares: Shares::ZERO, cost: Usd::ZERO };

    fn value(self, price: Option<Price>) -> Usd {
        price.map_or(self.cost, |price| Notional::of(price, self.shares).floor())
    }
}

impl EquityPoint {
    /// Cash and positions together.
    pub fn total(&self) -> Usd {
        self.cash + self.position_value
    }
}

impl Equity {
    /// The cash at each of these moments, without positions. `moments` and `payments` must be in
    /// order. `start` is when the account began and its cash then; earlier moments get no point.
    ///
    /// A gap in the records, such as a settlement that is no longer kept, shows as an unexpected
    /// balance after the next fill. Moments before that fill get no point, either.
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

    /// Adds the value of the shares of one outcome, whose moves are in order; without a move,
    /// `held` was held all the time. Asks for a price only while there were shares.
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

    /// The points, oldest first.
    pub fn points(&self) -> &[EquityPoint] {
        &self.points
    }
}

#[cfg(test)]
mod tests;
