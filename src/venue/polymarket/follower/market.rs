//! The state of one followed market, and its updates from descriptions and sockets.

use std::time::Duration;

use crate::follow::request::Notice;
use crate::polymarket::resolution::{self, Pending, Resolution, Source, SourceReport, Stage};
use crate::polymarket::wire::Description;
use crate::polymarket::wire::clob::BookMessage;
use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::catalogue::{MarketInfo, MarketStatus, Outcome};

/// An unresolved market that is followed, or was followed until it closed.
pub(super) struct Followed {
    pub(super) info: MarketInfo,
    /// The timestamp of the newest description that had a timestamp. Older descriptions are
    /// ignored.
    described_at: Option<Timestamp>,
    /// The time at which a source other than a description last reported the tick. Older
    /// descriptions do not change the tick back.
    tick_reported_at: Option<Timestamp>,
    /// A socket's report that the market has a winner.
    winner_report: Option<SourceReport>,
    /// Whether the newest description lists different tokens.
    has_other_tokens: bool,
    pub(super) is_subscribed: bool,
    /// The delay on marketable orders according to Gamma.
    listed_delay: Delay,
    /// The delay on marketable orders according to the CLOB service, which is requested once.
    own_delay: Delay,
}

/// The delay on marketable orders according to one source.
#[derive(Clone, Copy, Default)]
struct Delay {
    /// The delay in milliseconds; 0 if none is stated.
    ms: u32,
    /// Whether the source states the delay in milliseconds.
    is_exact: bool,
    /// Whether orders are held for a time that the source does not state.
    is_unstated: bool,
}

impl Delay {
    const fn of(description: &Description) -> Self {
        let MarketInfo { taker_delay_ms, has_unstated_delay, .. } = description.info;
        let is_exact = description.is_delay_exact;
        Self { ms: taker_delay_ms, is_exact, is_unstated: has_unstated_delay }
    }
}

/// Gamma's description of a market and, if it is closed, those of the other services.
pub struct Described {
    /// Gamma's description.
    pub gamma: Description,
    /// The CLOB service's description, if one was requested.
    pub clob: Option<Description>,
    /// The data API's description, if one was requested.
    pub data: Option<Description>,
}

impl From<Description> for Described {
    fn from(gamma: Description) -> Self {
        Self { gamma, clob: None, data: None }
    }
}

impl Followed {
    pub(super) fn new(description: Description, now: Timestamp) -> Self {
        Self {
            listed_delay: Delay::of(&description),
            own_delay: Delay::default(),
            info: description.info,
            described_at: description.updated_at.map(|at| at.min(now)),
            tick_reported_at: None,
            winner_report: None,
            has_other_tokens: false,
            is_subscribed: false,
        }
    }

    /// Sets the tick reported by a socket. Returns whether the tick has changed.
    pub(super) fn set_tick(&mut self, tick: paperbourse_core::money::Price, at: Timestamp) -> bool {
        self.tick_reported_at = Some(at);
        std::mem::replace(&mut self.info.tick, tick) != tick
    }

    /// Takes tick, minimum size and negative-risk flag from a requested book: the hash covers them,
    /// and they are newer than the catalogue's. Returns whether any of them has changed.
    pub(super) fn set_grid(&mut self, book: &BookMessage<'_>, at: Timestamp) -> bool {
        let info = &mut self.info;
        let before = (info.tick, info.order_size_min, info.neg_risk);
        info.tick = book.tick.unwrap_or(info.tick);
        info.order_size_min = book.order_size_min.unwrap_or(info.order_size_min);
        info.neg_risk = book.neg_risk.unwrap_or(info.neg_risk);
        let is_changed = (info.tick, info.order_size_min, info.neg_risk) != before;
        if is_changed {
            self.tick_reported_at = Some(at);
        }
        is_changed
    }

    /// Takes the delay on marketable orders from the CLOB service, which states some delays that
    /// Gamma does not. Returns whether the delay has changed.
    pub(super) fn set_delay(&mut self, description: &Description) -> bool {
        self.own_delay = Delay::of(description);
        let known = (self.info.taker_delay_ms, self.info.has_unstated_delay);
        (self.info.taker_delay_ms, self.info.has_unstated_delay) = self.taker_delay();
        (self.info.taker_delay_ms, self.info.has_unstated_delay) != known
    }

    /// Returns the longest stated delay in milliseconds, since a source that states no delay may be
    /// unaware of one. Also returns whether the delay may be longer, because a source says that
    /// orders are held and no source states the time in milliseconds.
    fn taker_delay(&self) -> (u32, bool) {
        let delays = [self.listed_delay, self.own_delay];
        let is_unstated = delays.iter().any(|delay| delay.is_unstated)
            && delays.iter().all(|delay| !delay.is_exact);
        (self.listed_delay.ms.max(self.own_delay.ms), is_unstated)
    }

    /// Closes the market because a socket reported a winner. Returns whether the market was open.
    pub(super) fn end(&mut self, winning_token: Option<&str>, at: Timestamp) -> bool {
        self.winner_report = Some(SourceReport::winner(winning_token, at, &self.info.outcomes));
        let was_open = !self.info.status.is_closed();
        if was_open {
            self.info.status = MarketStatus::Closed;
        }
        was_open
    }

    /// Applies a description. Returns whether the market has changed.
    pub(super) fn describe(
        &mut self,
        described: &Described,
        now: Timestamp,
        retraction_after: Duration,
        notices: &mut Vec<Notice>,
    ) -> bool {
        let description = &described.gamma;
        // A description from a cached page may be older than the previous description.
        if description.updated_at.is_some() && description.updated_at < self.described_at {
            return false;
        }
        // A timestamp in the future would block all descriptions until that time.
        let described_at = description.updated_at.map(|at| at.min(now));
        self.described_at = described_at.or(self.described_at);
        let market = &description.info.condition_id;
        if let Stage::Unknown(stage) = &description.stage {
            notices.push(Notice::UnknownStage { stage: stage.clone(), market: market.clone() });
        }
        let mut info = description.info.clone();
        info.condition_id = self.info.condition_id.clone();
        if info.align(&self.info.outcomes).is_ok() {
            self.has_other_tokens = false;
            if self.is_end_retracted(&description.info, described_at, retraction_after) {
                notices.push(Notice::EndRetracted { market: market.clone() });
                self.winner_report = None;
            }
            if self.winner_report.is_some() && !info.status.is_closed() {
                // The catalogue lags behind the socket.
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
            info.withhold(description.info.status);
            if !std::mem::replace(&mut self.has_other_tokens, true) {
                notices.push(Notice::TokensChanged { market: market.clone() });
            }
        }
        if self.is_tick_newer(description.updated_at) {
            let known = &self.info;
            (info.tick, info.order_size_min) = (known.tick, known.order_size_min);
            info.neg_risk = known.neg_risk;
        }
        if description.is_delay_stated {
            self.listed_delay = Delay::of(description);
        }
        (info.taker_delay_ms, info.has_unstated_delay) = self.taker_delay();
        let is_changed = info != self.info;
        self.info = info;
        is_changed
    }

    /// Returns whether the known tick is newer than a description with this timestamp.
    fn is_tick_newer(&self, described_at: Option<Timestamp>) -> bool {
        match (self.tick_reported_at, described_at) {
            (Some(tick_reported_at), Some(described_at)) => described_at < tick_reported_at,
            (tick_reported_at, None) => tick_reported_at.is_some(),
            (None, Some(_)) => false,
        }
    }

    /// Returns whether a description disproves the socket's report that the market has ended. The
    /// market must still accept orders, so long after the report that the catalogue's lag cannot
    /// explain it.
    fn is_end_retracted(
        &self,
        described: &MarketInfo,
        described_at: Option<Timestamp>,
        after: Duration,
    ) -> bool {
        let ended_at = self.winner_report.as_ref().and_then(|report| report.at);
        let (Some(ended_at), Some(described_at)) = (ended_at, described_at) else { return false };
        let after = i64::try_from(after.as_nanos()).unwrap_or(i64::MAX);
        described.status == MarketStatus::Open
            && described_at.nanos() > ended_at.nanos().saturating_add(after)
    }

    fn resolution(&self, described: &Described) -> Resolution {
        let mut reports = described.reports(&self.info.outcomes);
        reports.extend(self.winner_report.clone());
        resolution::decide(&reports)
    }
}

impl Described {
    /// Returns each service's report on the resolution of a market with these outcomes.
    pub(crate) fn reports(&self, outcomes: &[Outcome]) -> Vec<SourceReport> {
        let descriptions = [
            (Source::Gamma, Some(&self.gamma)),
            (Source::Clob, self.clob.as_ref()),
            (Source::Data, self.data.as_ref().filter(|_| self.is_order_certain(outcomes))),
        ];
        let reports = descriptions.into_iter().filter_map(|(source, description)| {
            Some(SourceReport::of(source, description?, outcomes))
        });
        reports.collect()
    }

    /// Returns whether Gamma and the CLOB service both list the tokens in the order known here. The
    /// data API names no tokens, so its payouts are read in Gamma's order. If that order is wrong,
    /// the data API would only seem to agree.
    fn is_order_certain(&self, outcomes: &[Outcome]) -> bool {
        let is_same = |description: &Description| {
            let tokens = description.info.outcomes.iter().map(|outcome| &outcome.token_id);
            tokens.eq(outcomes.iter().map(|outcome| &outcome.token_id))
        };
        is_same(&self.gamma) && self.clob.as_ref().is_some_and(is_same)
    }
}
