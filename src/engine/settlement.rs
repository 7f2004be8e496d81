//! What becomes of positions when a market is resolved.
//!
//! A decision is journaled once, in the shard that the market's name leads to: what each token
//! pays, and who said so. Then each shard that has used the market settles it: its first record
//! closes the market to orders, each of its records pays a bounded number of open positions, and
//! the last one says that none is left. What is left to pay is part of the state, so whoever
//! settles asks again until nothing is left, before a crash or after it.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::account::Account;
use super::contradiction::Flaw;
use super::event::{Event, Events};
use super::rejection::Rejection;
use super::state_hash::{StateHash, Term, TermKind};
use super::{State, UsedMarket, Verdict};
use crate::ids::{AccountId, MarketIndex, OutcomeIndex, ShardId, Timestamp};
use crate::market::catalogue::OUTCOMES_PER_MARKET_MAX;
use crate::money::{Notional, Price, Shares, Usd};

/// One record pays at most this many positions.
pub const POSITIONS_PER_RECORD_MAX: usize = 64;

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
    fn check(&self, shard: ShardId) -> Result<(), &'static str> {
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
    fn payouts_of(&self, market: &UsedMarket) -> Option<Payouts> {
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

impl State {
    pub(super) fn decide_settlement(
        &self,
        decision: &Decision,
        now: Timestamp,
    ) -> Result<Verdict, Rejection> {
        if self.decisions.contains_key(&decision.condition_id) {
            return Ok(Verdict::Already);
        }
        decision.check(self.shard).map_err(|rule| Rejection::Broken { rule })?;
        let decision = Arc::new(decision.clone());
        Ok(Verdict::Happens(smallvec![Event::SettlementDecided { decision, at: now }]))
    }

    /// Pays some of the positions that are open in a market, all of them in the end.
    pub(super) fn decide_settle(
        &self,
        decision: &Decision,
        now: Timestamp,
    ) -> Result<Verdict, Rejection> {
        let Some(&market) = self.market_of.get(&decision.condition_id) else {
            // Nobody here has ever held it. The catalogue keeps new orders out.
            return Ok(Verdict::Already);
        };
        let payouts = match self.settled.get(&market) {
            Some(settled) if settled.is_paid => return Ok(Verdict::Already),
            Some(settled) => settled.payouts.clone(),
            None => {
                decision.payouts_of(self.used_market(market)).ok_or(Rejection::MarketChanged)?
            }
        };
        let mut events = Events::new();
        let mut positions: Vec<PaidPosition> = Vec::new();
        let mut open = self.open_positions_of(market);
        for (slot, outcome) in open.by_ref().take(POSITIONS_PER_RECORD_MAX) {
            let account = &self.accounts[slot];
            let before = match positions.last() {
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
        let is_paid = open.next().is_none();
        if !positions.is_empty() {
            let payouts = payouts.clone();
            let settled = PositionsSettled { market, payouts, positions, at: now };
            events.push(Event::PositionsSettled(Box::new(settled)));
        }
        if is_paid {
            events.push(Event::MarketSettled { market, payouts, at: now });
        }
        Ok(Verdict::Happens(events))
    }

    /// The open positions of a market, by account.
    fn open_positions_of(
        &self,
        market: MarketIndex,
    ) -> impl Iterator<Item = (u32, OutcomeIndex)> + use<'_> {
        let first = (market, 0, OutcomeIndex(0));
        let last = (market, u32::MAX, OutcomeIndex(u8::MAX));
        self.open_positions.range(first..=last).map(|&(_, slot, outcome)| (slot, outcome))
    }

    pub(super) fn add_decision(
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

    pub(super) fn settle_positions(
        &mut self,
        settled: &PositionsSettled,
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        let market = settled.market;
        self.settle_market(market, &settled.payouts, false, position_in_log)?;
        for paid in &settled.positions {
            let flaw = |flaw| Flaw::account(paid.account, flaw);
            let slot = self.account_slot(paid.account).ok_or(flaw("is not there to be paid"))?;
            if !self.open_positions.remove(&(market, slot, paid.outcome)) {
                return Err(flaw("is paid for a position that is not open"));
            }
            let price = settled.payouts[paid.outcome.index()];
            let account = &mut self.accounts[slot];
            self.hash += account.settle(market, paid, price, settled.at).map_err(flaw)?;
            account.position_in_log = position_in_log;
        }
        Ok(())
    }

    /// No order touches the market from here on. It is paid when nobody holds any of it.
    pub(super) fn settle_market(
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
        if is_paid && self.open_positions_of(market).next().is_some() {
            return flaw("is paid, and somebody holds it");
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
        Ok(())
    }

    /// The decision about a market, if this shard keeps one.
    pub fn decision(&self, condition_id: &str) -> Option<&Decided> {
        self.decisions.get(condition_id)
    }

    /// All decisions that this shard keeps, by condition id.
    pub fn decisions(&self) -> impl ExactSizeIterator<Item = &Decided> {
        self.decisions.values()
    }

    /// The condition ids of the markets in which somebody holds shares, each once.
    pub fn held_markets(&self) -> impl Iterator<Item = &Arc<str>> {
        let mut markets: Vec<MarketIndex> =
            self.open_positions.iter().map(|(market, ..)| *market).collect();
        markets.dedup();
        markets.into_iter().map(|market| &self.used_market(market).condition_id)
    }

    /// Whether the shard has used a market and has not settled it.
    pub fn is_unsettled(&self, condition_id: &str) -> bool {
        let market = self.market_of.get(condition_id);
        market.is_some_and(|market| self.settled.get(market).is_none_or(|it| !it.is_paid))
    }
}

impl Account {
    /// Its settlement of the position in this place, if it was settled and that is kept.
    pub fn settlement(&self, position: u32) -> Option<&Settlement> {
        self.settlements().get(&position)
    }
}
