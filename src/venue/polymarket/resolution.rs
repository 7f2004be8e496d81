//! When a market is resolved, and what it pays: the rule, on what the venue's services tell.
//!
//! Gamma describes a market with a stage of its resolution and with prices that become payouts; the
//! CLOB service names a winner; the data API tells what the chain has decided, once it has; the
//! socket names a winner too, as a hint, and cannot tell a market that pays half to each side. Each
//! can be early, late or wrong. So payouts are final when a service calls the market closed and
//! shows them, and either Gamma calls the resolution `resolved` and shows the same, or another
//! source does. ½ and ½ is also what both show where there never was a price, so there the other
//! source has to be the data API. What contradicts itself stays as it is and is reported. A wrong
//! payout cannot be taken back, a late one can be made up for.

use std::fmt;

use super::wire::Description;
use crate::ids::Timestamp;
use crate::market::catalogue::{MarketInfo, MarketStatus, Outcome};
use crate::money::Price;

/// Who tells something about a resolution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The catalogue service.
    Gamma,
    /// The order book service.
    Clob,
    /// The data API, which reads the chain.
    Data,
    /// The market socket: a hint, which alone settles nothing.
    Socket,
}

/// How far a resolution is, as Gamma tells it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Stage {
    /// Nothing was told.
    #[default]
    Untold,
    /// A result was asked for.
    Requested,
    /// Somebody has proposed a result.
    Proposed,
    /// The proposal is disputed.
    Disputed,
    /// The result is final.
    Resolved,
    /// A word that nobody documents, cut to [`STAGE_CHARACTERS_MAX`].
    Unknown(Box<str>),
}

/// So much is kept of a stage that is not known.
pub const STAGE_CHARACTERS_MAX: usize = 40;

impl Stage {
    /// The stage that a word of Gamma's stands for.
    pub fn of(word: Option<&str>) -> Self {
        match word {
            None | Some("") => Self::Untold,
            Some("requested") => Self::Requested,
            Some("proposed") => Self::Proposed,
            Some("disputed") => Self::Disputed,
            Some("resolved" | "settled") => Self::Resolved,
            Some(word) => {
                let word: String = word.chars().take(STAGE_CHARACTERS_MAX).collect();
                Self::Unknown(word.into())
            }
        }
    }
}

/// What a source tells of payouts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Payouts {
    /// Nothing that a market could resolve to.
    None,
    /// What each outcome pays, in order: one outcome 1 and the others 0, or both of two ½.
    Shown(Vec<Price>),
    /// Something about other tokens than those of the market.
    OfOthers,
}

/// What one source tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// Who.
    pub source: Source,
    /// When the venue says that it was so, if it says.
    pub at: Option<Timestamp>,
    /// Whether the market is closed.
    pub is_closed: bool,
    /// How far the resolution is.
    pub stage: Stage,
    /// What it pays.
    pub payouts: Payouts,
}

/// Why a market is not resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pending {
    /// No service calls it closed.
    Open,
    /// A result was asked for, and nobody has proposed one.
    Requested,
    /// A result is proposed, and can be disputed.
    Proposed,
    /// The proposal is disputed.
    Disputed,
    /// Gamma tells a stage that is not known here.
    UnknownStage,
    /// Nobody shows what a market could resolve to, as is so of many old ones.
    NoPayouts,
    /// One source shows payouts, and nobody confirms them.
    Unconfirmed,
    /// Two sources contradict each other: somebody should look at it.
    Contradiction,
}

/// What the rule says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// Not yet, or never.
    Pending(Pending),
    /// It pays this.
    Final {
        /// What each outcome pays, in order.
        payouts: Vec<Price>,
        /// Who said so, for people.
        evidence: String,
    },
}

impl Resolution {
    /// Writes into a description what the rule says, if that is final. Else what it waits for is
    /// told, and the market pays nothing yet.
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

impl Told {
    /// What a description tells of a market with these outcomes.
    ///
    /// The CLOB service must name a winner, or show ½ and ½: it leaves out the winners of many old
    /// markets, and the prices that it shows then are not confirmed by anything.
    pub fn of(source: Source, description: &Description, outcomes: &[Outcome]) -> Self {
        let is_told = match &description.payouts_shown {
            Some(payouts) if source == Source::Clob => {
                description.names_winner || payouts.iter().all(|price| *price != Price::ONE)
            }
            payouts => payouts.is_some(),
        };
        let payouts = match &description.payouts_shown {
            Some(payouts) if is_told => aligned(payouts, &description.info.outcomes, outcomes),
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

    /// What the socket tells of a market with these outcomes: which token has won, if any.
    pub fn winner(winning_token: Option<&str>, at: Timestamp, outcomes: &[Outcome]) -> Self {
        let payouts = match winning_token {
            None => Payouts::None,
            Some(token) if outcomes.iter().all(|outcome| *outcome.token_id != *token) => {
                Payouts::OfOthers
            }
            Some(token) => Payouts::Shown(
                outcomes
                    .iter()
                    .map(|it| if *it.token_id == *token { Price::ONE } else { Price::ZERO })
                    .collect(),
            ),
        };
        let (source, stage) = (Source::Socket, Stage::Untold);
        Self { source, at: Some(at), is_closed: false, stage, payouts }
    }
}

/// Payouts in the order of the market's outcomes.
fn aligned(payouts: &[Price], told: &[Outcome], outcomes: &[Outcome]) -> Payouts {
    let price = |outcome: &Outcome| {
        let place = told.iter().position(|other| other.token_id == outcome.token_id)?;
        payouts.get(place).copied()
    };
    let aligned: Option<Vec<Price>> = outcomes.iter().map(price).collect();
    match aligned {
        Some(aligned) if told.len() == outcomes.len() => Payouts::Shown(aligned),
        _ => Payouts::OfOthers,
    }
}

/// The rule.
pub fn decide(told: &[Told]) -> Resolution {
    for it in told {
        match it.stage {
            Stage::Untold | Stage::Resolved => {}
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
    for it in told {
        is_closed |= it.is_closed;
        // A service that does not call the market closed shows prices, which pay nothing.
        if !it.is_closed && it.source != Source::Socket {
            continue;
        }
        match (&it.payouts, shown) {
            (Payouts::None, _) => continue,
            (Payouts::OfOthers, _) => return Resolution::Pending(Pending::Contradiction),
            (Payouts::Shown(payouts), Some(others)) if payouts != others => {
                return Resolution::Pending(Pending::Contradiction);
            }
            (Payouts::Shown(payouts), _) => shown = Some(payouts),
        }
        if !sources.contains(&it.source) {
            sources.push(it.source);
        }
        is_final |= it.stage == Stage::Resolved;
    }
    match shown {
        _ if !is_closed => Resolution::Pending(Pending::Open),
        None => Resolution::Pending(Pending::NoPayouts),
        Some(payouts) if is_final || is_confirmed(payouts, &sources) => {
            let evidence: Vec<String> = told.iter().map(ToString::to_string).collect();
            Resolution::Final { payouts: payouts.clone(), evidence: evidence.join("; ") }
        }
        Some(_) => Resolution::Pending(Pending::Unconfirmed),
    }
}

/// Whether these sources are enough where Gamma does not call the resolution final. Gamma and the
/// CLOB service also show ½ and ½ where no price was ever made, so ½ needs the data API's word.
fn is_confirmed(payouts: &[Price], sources: &[Source]) -> bool {
    sources.len() > 1 && (payouts.contains(&Price::ONE) || sources.contains(&Source::Data))
}

/// One clause, for the evidence.
impl fmt::Display for Told {
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
            Payouts::None | Payouts::OfOthers => write!(formatter, " tells no payouts")?,
        }
        match self.at {
            Some(at) => write!(formatter, " at {at}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
