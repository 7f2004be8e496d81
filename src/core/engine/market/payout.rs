//! Settlement decisions, payouts, and the settlements that an account keeps.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::engine::market::used::UsedMarket;
use crate::engine::state::hash::{StateHash, Term, TermKind};
use crate::ids::{AccountId, MarketIndex, OutcomeIndex, ShardId, Timestamp};
use crate::market::catalogue::OUTCOMES_PER_MARKET_MAX;
use crate::money::{Notional, Price, Shares, Usd};

/// The maximum number of settlements an account keeps. The settlements of its newest positions are
/// kept.
pub const SETTLEMENTS_PER_ACCOUNT_MAX: usize = 10_000;

/// The maximum length of [`Decision::evidence`], in bytes.
pub const EVIDENCE_BYTES_MAX: usize = 1_000;

/// The resolution of a market.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The market's condition id.
    pub condition_id: Arc<str>,
    /// The token and the payout per share of each outcome; the payouts add up to one dollar.
    pub payouts: Vec<(Arc<str>, Price)>,
    /// A human-readable source of the resolution; at most [`EVIDENCE_BYTES_MAX`] bytes.
    pub evidence: Box<str>,
}

impl Decision {
    /// Returns the shard that journals the decision about this market.
    pub fn home(condition_id: &str) -> ShardId {
        ShardId::of_digest(crc32c::crc32c(condition_id.as_bytes()).to_le_bytes()[0])
    }

    /// Checks that the decision is valid and belongs in this shard.
    pub(in crate::engine) fn check(&self, shard: ShardId) -> Result<(), &'static str> {
        if Self::home(&self.condition_id) != shard {
            return Err("is about a market of another shard");
        }
        if !(2..=OUTCOMES_PER_MARKET_MAX).contains(&self.payouts.len()) {
            return Err("is about too few or too many outcomes");
        }
        if self.payouts.iter().any(|(_, price)| !(Price::ZERO..=Price::ONE).contains(price)) {
            return Err("pays less than nothing or more than a dollar a share");
        }
        // Cannot overflow: at most 64 prices of at most a million each.
        let sum: i64 = self.payouts.iter().map(|(_, price)| price.micros()).sum();
        if sum != Price::ONE.micros() {
            return Err("does not pay one dollar for a share of each outcome");
        }
        let is_duplicate = |(index, (token, _)): (usize, &(Arc<str>, Price))| {
            self.payouts[..index].iter().any(|(other, _)| other == token)
        };
        if self.payouts.iter().enumerate().any(is_duplicate) {
            return Err("names a token twice");
        }
        if self.evidence.len() > EVIDENCE_BYTES_MAX {
            return Err("has more evidence than is kept");
        }
        Ok(())
    }

    /// Returns the payouts in the order of the market's outcomes; `None` if the market's tokens
    /// differ from the decision's.
    pub(in crate::engine) fn payouts_of(&self, market: &UsedMarket) -> Option<Payouts> {
        if market.outcomes.len() != self.payouts.len() {
            return None;
        }
        let payout = |(_, token_id): &(Arc<str>, Arc<str>)| {
            self.payouts.iter().find(|(token, _)| token == token_id).map(|&(_, price)| price)
        };
        market.outcomes.iter().map(payout).collect()
    }
}

/// The payout per share of each outcome.
pub type Payouts = SmallVec<[Price; 2]>;

/// A decision, and when it was made.
#[derive(Clone, Debug)]
pub struct Decided {
    /// The decision.
    pub decision: Arc<Decision>,
    /// When the decision was made.
    pub at: Timestamp,
    /// The log position of the decision's record; 0 if the record was already durable when the
    /// process started.
    pub(in crate::engine) position_in_log: u64,
}

/// A market that a shard is settling or has settled. It accepts no more orders.
#[derive(Clone, Debug)]
pub struct SettledMarket {
    /// The payout per share of each outcome.
    pub payouts: Payouts,
    /// Whether every position is paid.
    pub is_paid: bool,
    /// The log position of the newest record of the settlement; 0 if that record was already
    /// durable when the process started.
    pub(in crate::engine) position_in_log: u64,
}

/// Compares everything except the log position.
impl PartialEq for Decided {
    fn eq(&self, other: &Self) -> bool {
        self.decision == other.decision && self.at == other.at
    }
}

/// Compares everything except the log position.
impl PartialEq for SettledMarket {
    fn eq(&self, other: &Self) -> bool {
        self.payouts == other.payouts && self.is_paid == other.is_paid
    }
}

/// A position that a settlement paid and closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PaidPosition {
    /// The account that held the position.
    pub account: AccountId,
    /// The outcome's index in the market.
    pub outcome: OutcomeIndex,
    /// The shares held.
    pub shares: Shares,
    /// Shares × payout, rounded down to a micro-dollar.
    pub payout: Usd,
    /// The account's cash after the payment.
    pub balance: Usd,
}

/// Some positions in a market were paid and closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PositionsSettled {
    /// The market's index in the shard.
    pub market: MarketIndex,
    /// The payout per share of each outcome.
    pub payouts: Payouts,
    /// The paid positions, without duplicates.
    pub positions: Vec<PaidPosition>,
    /// The time of the payment.
    pub at: Timestamp,
}

/// An account's record of a settled position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settlement {
    /// The shares held.
    pub shares: Shares,
    /// The cost of the shares, without fees.
    pub cost: Usd,
    /// The total payout.
    pub payout: Usd,
    /// The payout per share.
    pub payout_per_share: Price,
    /// The time of the payment.
    pub at: Timestamp,
}

/// An account's settlements, by the position's index among all positions the account ever had.
pub(in crate::engine) type Settlements = BTreeMap<u32, Settlement>;

impl Settlement {
    /// Returns the settlement's term in the state hash.
    pub(in crate::engine) fn term(&self, account: AccountId, position: u32) -> StateHash {
        Term::new(TermKind::Settlement)
            .pair(account.get(), position.into())
            .signed_pair(self.shares.micros(), self.cost.micros())
            .signed_pair(self.payout.micros(), self.payout_per_share.micros())
            .signed(self.at.nanos())
            .finish()
    }
}

impl SettledMarket {
    /// Returns the settled market's term in the state hash.
    pub(in crate::engine) fn term(&self, market: MarketIndex) -> StateHash {
        let term = Term::new(TermKind::SettledMarket).pair(market.0.into(), self.is_paid.into());
        self.payouts.iter().fold(term, |term, price| term.signed(price.micros())).finish()
    }
}

impl Decided {
    /// Returns the decision's term in the state hash.
    pub(in crate::engine) fn term(&self) -> StateHash {
        let Decision { condition_id, payouts, evidence } = &*self.decision;
        let term = Term::new(TermKind::Decision).signed(self.at.nanos());
        let term = term.bytes(condition_id.as_bytes()).bytes(evidence.as_bytes());
        let payouts = payouts.iter();
        payouts
            .fold(term, |term, (token, price)| term.bytes(token.as_bytes()).signed(price.micros()))
            .finish()
    }
}

/// Returns shares × price, rounded down to a micro-dollar.
pub(in crate::engine) fn payout(shares: Shares, price: Price) -> Usd {
    Notional::of(price, shares).floor()
}
