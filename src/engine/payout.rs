//! What a resolved market pays, and what is kept of what was paid.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::state_hash::{StateHash, Term, TermKind};
use super::used_market::UsedMarket;
use crate::ids::{AccountId, MarketIndex, OutcomeIndex, ShardId, Timestamp};
use crate::market::catalogue::OUTCOMES_PER_MARKET_MAX;
use crate::money::{Notional, Price, Shares, Usd};

/// An account keeps its settlements of at most this many positions: the newest.
pub const SETTLEMENTS_PER_ACCOUNT_MAX: usize = 10_000;

/// What is written down of who said what is at most this long.
pub const EVIDENCE_BYTES_MAX: usize = 1_000;

/// How a market is resolved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The venue's name for it.
    pub condition_id: Arc<str>,
    /// Each token and what a share of it pays: together one dollar.
    pub payouts: Vec<(Arc<str>, Price)>,
    /// Who said so, for people: at most [`EVIDENCE_BYTES_MAX`] bytes.
    pub evidence: Box<str>,
}

impl Decision {
    /// The shard that decisions about this market are journaled in.
    pub fn home(condition_id: &str) -> ShardId {
        ShardId::of_digest(crc32c::crc32c(condition_id.as_bytes()).to_le_bytes()[0])
    }

    /// Whether a market can be resolved like this, and this shard be told of it.
    pub(super) fn check(&self, shard: ShardId) -> Result<(), &'static str> {
        if Self::home(&self.condition_id) != shard {
            return Err("is about a market of another shard");
        }
        if !(2..=OUTCOMES_PER_MARKET_MAX).contains(&self.payouts.len()) {
            return Err("is about too few or too many outcomes");
        }
        if self.payouts.iter().any(|(_, price)| !(Price::ZERO..=Price::ONE).contains(price)) {
            return Err("pays less than nothing or more than a dollar a share");
        }
        // At most 64 prices of at most a million each.
        let sum: i64 = self.payouts.iter().map(|(_, price)| price.micros()).sum();
        if sum != Price::ONE.micros() {
            return Err("does not pay one dollar for a share of each outcome");
        }
        let is_twice = |(at, (token, _)): (usize, &(Arc<str>, Price))| {
            self.payouts[..at].iter().any(|(other, _)| other == token)
        };
        if self.payouts.iter().enumerate().any(is_twice) {
            return Err("names a token twice");
        }
        if self.evidence.len() > EVIDENCE_BYTES_MAX {
            return Err("has more evidence than is kept");
        }
        Ok(())
    }

    /// What each outcome of a market pays, in its order. `None` when its tokens are others than
    /// those that the decision is about.
    pub(super) fn payouts_of(&self, market: &UsedMarket) -> Option<Payouts> {
        if market.outcomes.len() != self.payouts.len() {
            return None;
        }
        let payout = |(_, token_id): &(Arc<str>, Arc<str>)| {
            self.payouts.iter().find(|(token, _)| token == token_id).map(|&(_, price)| price)
        };
        market.outcomes.iter().map(payout).collect()
    }
}

/// What a share of each outcome pays.
pub type Payouts = SmallVec<[Price; 2]>;

/// A decision that was made.
#[derive(Clone, Debug)]
pub struct Decided {
    /// What.
    pub decision: Arc<Decision>,
    /// When.
    pub at: Timestamp,
    /// The record, 0 for what is on disk since before the start.
    pub(super) position_in_log: u64,
}

/// A market that a shard settles or has settled: no order touches it again.
#[derive(Clone, Debug)]
pub struct SettledMarket {
    /// What a share of each outcome pays.
    pub payouts: Payouts,
    /// Whether every position is paid.
    pub is_paid: bool,
    /// The newest record of its settlement, 0 for what is on disk since before the start.
    pub(super) position_in_log: u64,
}

/// On which place of a log it rests does not count.
impl PartialEq for Decided {
    fn eq(&self, other: &Self) -> bool {
        self.decision == other.decision && self.at == other.at
    }
}

/// On which place of a log it rests does not count.
impl PartialEq for SettledMarket {
    fn eq(&self, other: &Self) -> bool {
        self.payouts == other.payouts && self.is_paid == other.is_paid
    }
}

/// A position that a settlement has paid and closed: part of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PaidPosition {
    /// Whose.
    pub account: AccountId,
    /// Of which outcome.
    pub outcome: OutcomeIndex,
    /// How many shares it held.
    pub shares: Shares,
    /// Shares × payout, rounded down to a micro-dollar.
    pub payout: Usd,
    /// Cash of the account afterwards.
    pub balance: Usd,
}

/// Some positions of a market have been paid and closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PositionsSettled {
    /// Which market.
    pub market: MarketIndex,
    /// What a share of each outcome pays.
    pub payouts: Payouts,
    /// Which positions, each once.
    pub positions: Vec<PaidPosition>,
    /// When.
    pub at: Timestamp,
}

/// What an account keeps of a position that was settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settlement {
    /// Shares that were held.
    pub shares: Shares,
    /// What they had cost, fees outside.
    pub cost: Usd,
    /// What they paid.
    pub payout: Usd,
    /// What one of them pays.
    pub payout_per_share: Price,
    /// When.
    pub at: Timestamp,
}

/// The settlements of an account, by the place of the position among all that it ever had.
pub(super) type Settlements = BTreeMap<u32, Settlement>;

impl Settlement {
    /// The term in the state hash.
    pub(super) fn term(&self, account: AccountId, position: u32) -> StateHash {
        Term::new(TermKind::Settlement)
            .pair(account.get(), position.into())
            .signed_pair(self.shares.micros(), self.cost.micros())
            .signed_pair(self.payout.micros(), self.payout_per_share.micros())
            .signed(self.at.nanos())
            .finish()
    }
}

impl SettledMarket {
    /// The term in the state hash.
    pub(super) fn term(&self, market: MarketIndex) -> StateHash {
        let term = Term::new(TermKind::SettledMarket).pair(market.0.into(), self.is_paid.into());
        self.payouts.iter().fold(term, |term, price| term.signed(price.micros())).finish()
    }
}

impl Decided {
    /// The term in the state hash.
    pub(super) fn term(&self) -> StateHash {
        let Decision { condition_id, payouts, evidence } = &*self.decision;
        let term = Term::new(TermKind::Decision).signed(self.at.nanos());
        let term = term.bytes(condition_id.as_bytes()).bytes(evidence.as_bytes());
        let payouts = payouts.iter();
        payouts
            .fold(term, |term, (token, price)| term.bytes(token.as_bytes()).signed(price.micros()))
            .finish()
    }
}

/// What shares pay.
pub(super) fn payout(shares: Shares, price: Price) -> Usd {
    Notional::of(price, shares).floor()
}
