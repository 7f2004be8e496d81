//! Decides when a market is resolved, and what it pays.
//!
//! Four sources report on a resolution. Gamma describes a market with a stage and with prices that
//! become payouts. The CLOB service names a winner. The data API reports the decision on the chain,
//! once there is one. The socket also names a winner, but only as a hint, and it cannot express a
//! market that pays half to each side. Each of them can be early, late or wrong.
//!
//! Payouts are final when a service that reports the market as closed shows them, and either Gamma
//! reports the resolution as `resolved` with the same payouts, or a second source shows them too.
//! Gamma and the CLOB service also show ½ and ½ for markets that never had a price, so payouts of ½
//! need the data API as the second source. If sources contradict each other, the market stays
//! unresolved and the contradiction is reported: a late payout can be made up for, a wrong one
//! cannot be taken back.

use std::fmt;

use super::wire::Description;
use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::catalogue::{MarketInfo, MarketStatus, Outcome};
use paperbourse_core::money::Price;

/// A service that reports on resolutions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The catalogue service.
    Gamma,
    /// The order book service.
    Clob,
    /// The data API, which reads the chain.
    Data,
    /// The market socket. Its reports are hints, which settle nothing on their own.
    Socket,
}

/// The stage of a resolution, according to Gamma.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Stage {
    /// The source reports no stage.
    #[default]
    Unreported,
    /// A result was requested.
    Requested,
    /// A result was proposed.
    Proposed,
    /// The proposal is disputed.
    Disputed,
    /// The result is final.
    Resolved,
    /// An undocumented stage, truncated to [`STAGE_CHARACTERS_MAX`].
    Unknown(Box<str>),
}

/// Maximum number of characters kept from the name of an unknown stage.
pub const STAGE_CHARACTERS_MAX: usize = 40;

impl Stage {
    /// Parses `umaResolutionStatus`. A missing or empty status is [`Self::Unreported`].
    pub fn of(status: Option<&str>) -> Self {
        match status {
            None | Some("") => Self::Unreported,
            Some("requested") => Self::Requested,
            Some("proposed") => Self::Proposed,
            Some("disputed") => Self::Disputed,
            Some("resolved" | "settled") => Self::Resolved,
            Some(other) => {
                let name: String = other.chars().take(STAGE_CHARACTERS_MAX).collect();
                Self::Unknown(name.into())
            }
        }
    }
}

/// The payouts that a source shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Payouts {
    /// No payouts, or none that a market could resolve to.
    None,
    /// The payout of each outcome, in order: 1 for one outcome and 0 for the others, or ½ for both
    /// of two.
    Shown(Vec<Price>),
    /// Payouts of tokens that do not belong to the market.
    OtherTokens,
}

/// The report of one source on the resolution of a market.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceReport {
    /// The source of the report.
    pub source: Source,
    /// The source's own timestamp, if stated.
    pub at: Option<Timestamp>,
    /// Whether the source reports the market as closed.
    pub is_closed: bool,
    /// The stage of the resolution.
    pub stage: Stage,
    /// The payouts of the market.
    pub payouts: Payouts,
}

/// The reason why a market is not resolved yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pending {
    /// No service reports the market as closed.
    Open,
    /// A result was requested but has not been proposed yet.
    Requested,
    /// The proposed result can still be disputed.
    Proposed,
    /// The proposal is disputed.
    Disputed,
    /// Gamma reports a stage that this code does not know.
    UnknownStage,
    /// No source shows payouts that a market could resolve to. Common among old markets.
    NoPayouts,
    /// Only one source shows payouts.
    Unconfirmed,
    /// Two sources contradict each other, which an operator should investigate.
    Contradiction,
}

/// The decision of [`decide`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// The market is not resolved yet.
    Pending(Pending),
    /// The market is resolved.
    Final {
        /// The payout of each outcome, in order.
        payouts: Vec<Price>,
        /// The report of each source, as human-readable text.
        evidence: String,
    },
}

impl Resolution {
    /// Marks a market as resolved if this decision is final; otherwise leaves the market unchanged
    /// and returns the reason.
    pub fn describe(self, info: &mut MarketInfo) -> Option<Pending> {
        match self {
            Self::Final { payouts, evidence } => {
                info.status = MarketStatus::Resolved;
                info.payouts = payouts;
                info.evidence = Some(evidence.into());
                None
            }
            Self::Pending(why) => Some(why),
        }
    }
}

impl SourceReport {
    /// Extracts the report on a market with these outcomes from a description.
    ///
    /// The CLOB service must name a winner, or show ½ and ½: it omits the winners of many old
    /// markets, and then nothing confirms the prices that it shows.
    pub fn of(source: Source, description: &Description, outcomes: &[Outcome]) -> Self {
        let is_usable = match &description.shown_payouts {
            Some(payouts) if source == Source::Clob => {
                description.has_named_winner || payouts.iter().all(|price| *price != Price::ONE)
            }
            payouts => payouts.is_some(),
        };
        let payouts = match &description.shown_payouts {
            Some(payouts) if is_usable => aligned(payouts, &description.info.outcomes, outcomes),
            _ => Payouts::None,
        };
        Self {
            source,
            at: description.updated_at,
            is_closed: description.info.status.is_closed(),
            stage: description.stage.clone(),
            payouts,
        }
    }

    /// Creates the report of a socket that a market with these outcomes has ended. `winning_token`
    /// is `None` if the socket names no winner.
    pub fn winner(winning_token: Option<&str>, at: Timestamp, outcomes: &[Outcome]) -> Self {
        let payouts = match winning_token {
            None => Payouts::None,
            Some(token) if outcomes.iter().all(|outcome| *outcome.token_id != *token) => {
                Payouts::OtherTokens
            }
            Some(token) => Payouts::Shown(
                outcomes
                    .iter()
                    .map(|it| if *it.token_id == *token { Price::ONE } else { Price::ZERO })
                    .collect(),
            ),
        };
        let (source, stage) = (Source::Socket, Stage::Unreported);
        Self { source, at: Some(at), is_closed: false, stage, payouts }
    }
}

/// Reorders payouts from the order of `described` to that of the market's own outcomes.
fn aligned(payouts: &[Price], described: &[Outcome], outcomes: &[Outcome]) -> Payouts {
    let price = |outcome: &Outcome| {
        let index = described.iter().position(|other| other.token_id == outcome.token_id)?;
        payouts.get(index).copied()
    };
    let aligned: Option<Vec<Price>> = outcomes.iter().map(price).collect();
    match aligned {
        Some(aligned) if described.len() == outcomes.len() => Payouts::Shown(aligned),
        _ => Payouts::OtherTokens,
    }
}

/// Decides from these reports whether a market is resolved, by the rule in the module
/// documentation.
pub fn decide(reports: &[SourceReport]) -> Resolution {
    // A stage before the final one outweighs anything that the sources show.
    for report in reports {
        match report.stage {
            Stage::Unreported | Stage::Resolved => {}
            Stage::Requested => return Resolution::Pending(Pending::Requested),
            Stage::Proposed => return Resolution::Pending(Pending::Proposed),
            Stage::Disputed => return Resolution::Pending(Pending::Disputed),
            Stage::Unknown(_) => return Resolution::Pending(Pending::UnknownStage),
        }
    }
    let mut shown: Option<&Vec<Price>> = None;
    let mut sources: Vec<Source> = Vec::new();
    let mut is_final = false;
    let mut is_closed = false;
    for report in reports {
        is_closed |= report.is_closed;
        // Until a service reports the market as closed, it shows market prices, not payouts.
        if !report.is_closed && report.source != Source::Socket {
            continue;
        }
        match (&report.payouts, shown) {
            (Payouts::None, _) => continue,
            (Payouts::OtherTokens, _) => return Resolution::Pending(Pending::Contradiction),
            (Payouts::Shown(payouts), Some(others)) if payouts != others => {
                return Resolution::Pending(Pending::Contradiction);
            }
            (Payouts::Shown(payouts), _) => shown = Some(payouts),
        }
        if !sources.contains(&report.source) {
            sources.push(report.source);
        }
        is_final |= report.stage == Stage::Resolved;
    }
    match shown {
        _ if !is_closed => Resolution::Pending(Pending::Open),
        None => Resolution::Pending(Pending::NoPayouts),
        Some(payouts) if is_final || is_confirmed(payouts, &sources) => {
            let evidence: Vec<String> = reports.iter().map(ToString::to_string).collect();
            Resolution::Final { payouts: payouts.clone(), evidence: evidence.join("; ") }
        }
        Some(_) => Resolution::Pending(Pending::Unconfirmed),
    }
}

/// Returns whether these sources suffice without a `resolved` from Gamma. Gamma and the CLOB
/// service also show ½ and ½ for markets that never had a price, so ½ needs the data API.
fn is_confirmed(payouts: &[Price], sources: &[Source]) -> bool {
    sources.len() > 1 && (payouts.contains(&Price::ONE) || sources.contains(&Source::Data))
}

/// Formats one clause of the evidence. Journals store this text.
impl fmt::Display for SourceReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match self.source {
            Source::Gamma => "Gamma",
            Source::Clob => "CLOB",
            Source::Data => "data API",
            Source::Socket => "socket",
        };
        write!(formatter, "{source}:")?;
        if self.is_closed {
            write!(formatter, " closed")?;
        }
        if self.stage == Stage::Resolved {
            write!(formatter, " resolved")?;
        }
        match &self.payouts {
            Payouts::Shown(payouts) => {
                for (index, price) in payouts.iter().enumerate() {
                    let separator = if index == 0 { " pays " } else { "/" };
                    write!(formatter, "{separator}{price}")?;
                }
            }
            Payouts::None | Payouts::OtherTokens => write!(formatter, " tells no payouts")?,
        }
        match self.at {
            Some(at) => write!(formatter, " at {at}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
