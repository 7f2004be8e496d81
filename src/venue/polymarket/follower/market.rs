//! One market that is followed, and what its descriptions make of it.

use std::time::Duration;

use crate::ids::Timestamp;
use crate::market::catalogue::{MarketInfo, MarketStatus, Outcome};
use crate::venue::follow::request::Notice;
use crate::venue::polymarket::resolution::{self, Pending, Resolution, Source, Stage, Told};
use crate::venue::polymarket::wire::Description;
use crate::venue::polymarket::wire::clob::BookMessage;

/// A market that is followed, or was until it closed, and that is not resolved yet.
pub(super) struct Followed {
    pub(super) info: MarketInfo,
    /// When its description was so, of those that tell: an older one says nothing new.
    described_at: Option<Timestamp>,
    /// When a socket told its tick: an older description does not bring the tick before it back.
    tick_told_at: Option<Timestamp>,
    /// The winner that its socket told.
    winner_told: Option<Told>,
    /// Whether its newest description names other tokens.
    is_withheld: bool,
    /// Whether sockets tell of it.
    pub(super) is_subscribed: bool,
}

/// A market as Gamma describes it, and what else was asked about one that is closed.
pub struct Described {
    /// What Gamma tells.
    pub gamma: Description,
    /// What the CLOB service tells, where it was asked.
    pub clob: Option<Description>,
    /// What the data API tells, where it was asked.
    pub data: Option<Description>,
}

impl From<Description> for Described {
    fn from(gamma: Description) -> Self {
        Self { gamma, clob: None, data: None }
    }
}

impl Followed {
    /// As it was described first, at the latest now.
    pub(super) fn new(told: Description, now: Timestamp) -> Self {
        Self {
            info: told.info,
            described_at: told.updated_at.map(|at| at.min(now)),
            tick_told_at: None,
            winner_told: None,
            is_withheld: false,
            is_subscribed: false,
        }
    }

    /// Its socket tells a tick. Whether it is another one.
    pub(super) fn set_tick(&mut self, tick: crate::money::Price, at: Timestamp) -> bool {
        self.tick_told_at = Some(at);
        std::mem::replace(&mut self.info.tick, tick) != tick
    }

    /// A book of the book endpoint tells its grid, which the hash covers and which is newer than
    /// what the catalogue tells. Whether it is another one.
    pub(super) fn set_grid(&mut self, book: &BookMessage<'_>, at: Timestamp) -> bool {
        let info = &mut self.info;
        let before = (info.tick, info.order_size_min, info.neg_risk);
        info.tick = book.tick.unwrap_or(info.tick);
        info.order_size_min = book.order_size_min.unwrap_or(info.order_size_min);
        info.neg_risk = book.neg_risk.unwrap_or(info.neg_risk);
        let is_changed = (info.tick, info.order_size_min, info.neg_risk) != before;
        if is_changed {
            self.tick_told_at = Some(at);
        }
        is_changed
    }

    /// Its socket tells a winner. Whether it was open until then.
    pub(super) fn end(&mut self, winning_token: Option<&str>, at: Timestamp) -> bool {
        self.winner_told = Some(Told::winner(winning_token, at, &self.info.outcomes));
        let was_open = !self.info.status.is_closed();
        if was_open {
            self.info.status = MarketStatus::Closed;
        }
        was_open
    }

    /// Takes what is told of it. Whether that has changed its description.
    pub(super) fn describe(
        &mut self,
        described: &Described,
        now: Timestamp,
        retraction_after: Duration,
        notices: &mut Vec<Notice>,
    ) -> bool {
        let told = &described.gamma;
        // A page may come out of a cache, and be older than what was told before it.
        if told.updated_at.is_some() && told.updated_at < self.described_at {
            return false;
        }
        // What is from the future would keep out all that comes until then.
        let described_at = told.updated_at.map(|at| at.min(now));
        self.described_at = described_at.or(self.described_at);
        let market = &told.info.condition_id;
        if let Stage::Unknown(word) = &told.stage {
            notices.push(Notice::UnknownStage { stage: word.clone(), market: market.clone() });
        }
        let mut info = told.info.clone();
        if info.align(&self.info.outcomes).is_ok() {
            self.is_withheld = false;
            if self.is_end_taken_back(&told.info, described_at, retraction_after) {
                notices.push(Notice::EndRetracted { market: market.clone() });
                self.winner_told = None;
            }
            if self.winner_told.is_some() && !info.status.is_closed() {
                // The catalogue is behind its socket.
                info.status = MarketStatus::Closed;
            }
            match self.resolution(described).describe(&mut info) {
                Some(Pending::Contradiction) if !self.info.status.is_closed() => {
                    notices.push(Notice::Contradiction { market: market.clone() });
                }
                Some(_) => {}
                None => {
                    let evidence = info.evidence.clone().unwrap_or_default();
                    notices.push(Notice::Resolved { market: market.clone(), evidence });
                }
            }
        } else {
            info = self.info.clone();
            info.withhold(told.info.status);
            if !std::mem::replace(&mut self.is_withheld, true) {
                notices.push(Notice::TokensChanged { market: market.clone() });
            }
        }
        if self.is_tick_newer(told.updated_at) {
            let known = &self.info;
            (info.tick, info.order_size_min) = (known.tick, known.order_size_min);
            info.neg_risk = known.neg_risk;
        }
        let is_changed = info != self.info;
        self.info = info;
        is_changed
    }

    /// Whether a socket told the tick after a description of this time was so.
    fn is_tick_newer(&self, described_at: Option<Timestamp>) -> bool {
        match (self.tick_told_at, described_at) {
            (Some(tick_told_at), Some(described_at)) => described_at < tick_told_at,
            (tick_told_at, None) => tick_told_at.is_some(),
            (None, Some(_)) => false,
        }
    }

    /// Whether a description shows that a socket's word of its end was false: it accepts orders, so
    /// long after that word that the catalogue cannot only be behind.
    fn is_end_taken_back(
        &self,
        told: &MarketInfo,
        described_at: Option<Timestamp>,
        after: Duration,
    ) -> bool {
        let ended_at = self.winner_told.as_ref().and_then(|told| told.at);
        let (Some(ended_at), Some(described_at)) = (ended_at, described_at) else { return false };
        let after = i64::try_from(after.as_nanos()).unwrap_or(i64::MAX);
        told.status == MarketStatus::Open
            && described_at.nanos() > ended_at.nanos().saturating_add(after)
    }

    /// What the rule makes of all that is told of it.
    fn resolution(&self, described: &Described) -> Resolution {
        let mut told = described.told(&self.info.outcomes);
        told.extend(self.winner_told.clone());
        resolution::decide(&told)
    }
}

impl Described {
    /// What its sources tell of a market with these outcomes.
    pub(crate) fn told(&self, outcomes: &[Outcome]) -> Vec<Told> {
        let sources = [
            (Source::Gamma, Some(&self.gamma)),
            (Source::Clob, self.clob.as_ref()),
            (Source::Data, self.data.as_ref().filter(|_| self.is_order_certain(outcomes))),
        ];
        let told = sources.into_iter().filter_map(|(source, told)| Some((source, told?)));
        told.map(|(source, told)| Told::of(source, told, outcomes)).collect()
    }

    /// Whether both services list the tokens in the order in which they are known here. The data
    /// API names none and is read in that order: where Gamma is wrong about it, the data API would
    /// only seem to agree.
    fn is_order_certain(&self, outcomes: &[Outcome]) -> bool {
        let is_same = |told: &Description| {
            let tokens = told.info.outcomes.iter().map(|outcome| &outcome.token_id);
            tokens.eq(outcomes.iter().map(|outcome| &outcome.token_id))
        };
        is_same(&self.gamma) && self.clob.as_ref().is_some_and(is_same)
    }
}
