//! The description of a market: outcomes, life cycle, fee schedule.

use std::sync::Arc;

use crate::ids::{OutcomeIndex, Timestamp};
use crate::money::{FeeRate, MICROS_PER_UNIT, Price, Shares, Usd};

/// Maximum number of outcomes of a market.
pub const OUTCOMES_PER_MARKET_MAX: usize = 64;

/// Longest market or token id, in bytes. The longest known token id has 78 digits.
pub const ID_BYTES_MAX: usize = 80;

/// Longest label of an outcome, in bytes. Orders name outcomes by label.
pub const LABEL_BYTES_MAX: usize = 200;

/// Longest text that is only displayed, such as a question or an address, in bytes.
pub const SHOWN_TEXT_BYTES_MAX: usize = 2_048;

/// Longest delay of marketable orders, in milliseconds of the venue's time. Longer delays are cut
/// to this.
pub const TAKER_DELAY_MS_MAX: u32 = 10_000;

/// Everything known about a market except its books. Immutable: each change creates a new value.
#[derive(Clone, PartialEq, Debug)]
pub struct MarketInfo {
    /// The venue's name for the market, used as the `market_id` of an order.
    pub condition_id: Arc<str>,
    /// The human-readable part of the market's URL, if any.
    pub slug: Option<Box<str>>,
    /// The question being predicted.
    pub question: Option<Box<str>>,
    /// The venue's category for the market.
    pub category: Option<Box<str>>,
    /// The URL of the market's picture.
    pub image_url: Option<Box<str>>,
    /// The event that the market belongs to.
    pub event: Option<Event>,
    /// The outcomes, in the venue's order.
    pub outcomes: Vec<Outcome>,
    /// The market's stage in its life cycle.
    pub status: MarketStatus,
    /// The fee schedule for takers.
    pub fees: Fees,
    /// The smallest price step.
    pub tick: Price,
    /// The smallest order that may rest.
    pub order_size_min: Shares,
    /// Whether the market belongs to an event with several markets, of which exactly one wins.
    pub neg_risk: bool,
    /// Whether the market stands for an unnamed answer while the venue accepts orders for it:
    /// `Other`, whose meaning may change, or an answer without a name yet. This server keeps the
    /// market paused.
    pub is_placeholder: bool,
    /// The scheduled end. The market may close earlier or later.
    pub end_date: Option<Timestamp>,
    /// When the venue clears the market's books of resting orders, at the start of a game.
    pub books_cleared_at: Option<Timestamp>,
    /// How long the venue holds a marketable order before matching it, in milliseconds of the
    /// venue's time; 0 if it does not. A description has the delay that the venue states; in a
    /// listed market it is at most [`TAKER_DELAY_MS_MAX`].
    pub taker_delay_ms: u32,
    /// Whether the venue announces a delay of marketable orders without its length; see
    /// [`super::Markets::set_unstated_delay`]. The longer of the two delays applies.
    pub has_unstated_delay: bool,
    /// Dollars traded in the last 24 hours.
    pub volume_24h: Option<Usd>,
    /// Total dollars traded.
    pub volume_total: Option<Usd>,
    /// The payout of each outcome, in order; empty until resolved.
    pub payouts: Vec<Price>,
    /// The source of the resolution, for display.
    pub evidence: Option<Box<str>>,
}

impl MarketInfo {
    /// Creates an open market from its outcomes alone: no fee, a tick of 0.01, and at least 5
    /// shares per resting order.
    pub fn bare(condition_id: &str, outcomes: impl IntoIterator<Item = Outcome>) -> Self {
        Self {
            condition_id: condition_id.into(),
            slug: None,
            question: None,
            category: None,
            image_url: None,
            event: None,
            outcomes: outcomes.into_iter().collect(),
            status: MarketStatus::Open,
            fees: Fees::Free,
            tick: Price::from_micros(10_000),
            order_size_min: Shares::from_micros(5 * MICROS_PER_UNIT),
            neg_risk: false,
            is_placeholder: false,
            end_date: None,
            books_cleared_at: None,
            taker_delay_ms: 0,
            has_unstated_delay: false,
            volume_24h: None,
            volume_total: None,
            payouts: Vec::new(),
            evidence: None,
        }
    }

    /// Creates a bare market with the outcomes Yes and No, whose tokens are `t-Yes` and `t-No`.
    #[cfg(any(test, feature = "test-util"))]
    pub fn bare_yes_no(condition_id: &str) -> Self {
        let outcomes = ["Yes", "No"]
            .map(|label| Outcome { label: label.into(), token_id: format!("t-{label}").into() });
        Self::bare(condition_id, outcomes)
    }

    /// Checks the limits that apply to descriptions from any venue. Their texts end up in the
    /// journal and in answers, and each token must identify one outcome.
    pub fn check(&self) -> Result<(), DescriptionFlaw> {
        let check = |field, text: &str, bytes_max| {
            let bytes = text.len();
            if bytes > bytes_max {
                return Err(DescriptionFlaw::TooLong { field, bytes, bytes_max });
            }
            Ok(())
        };
        check("condition id", &self.condition_id, ID_BYTES_MAX)?;
        if self.outcomes.len() > OUTCOMES_PER_MARKET_MAX {
            return Err(DescriptionFlaw::TooManyOutcomes);
        }
        for (index, outcome) in self.outcomes.iter().enumerate() {
            check("label", &outcome.label, LABEL_BYTES_MAX)?;
            check("token id", &outcome.token_id, ID_BYTES_MAX)?;
            let is_same = |other: &Outcome| other.token_id == outcome.token_id;
            if !outcome.token_id.is_empty() && self.outcomes[..index].iter().any(is_same) {
                return Err(DescriptionFlaw::SharedToken);
            }
        }
        for (field, text) in [
            ("slug", &self.slug),
            ("question", &self.question),
            ("category", &self.category),
            ("picture address", &self.image_url),
        ] {
            check(field, text.as_deref().unwrap_or_default(), SHOWN_TEXT_BYTES_MAX)?;
        }
        if let Some(Event { id, slug, title }) = &self.event {
            check("event id", id, ID_BYTES_MAX)?;
            check("event slug", slug.as_deref().unwrap_or_default(), SHOWN_TEXT_BYTES_MAX)?;
            check("event title", title.as_deref().unwrap_or_default(), SHOWN_TEXT_BYTES_MAX)?;
        }
        Ok(())
    }

    /// Reorders outcomes and payouts to match the known outcomes, by token. Known outcomes without
    /// a token take the outcomes that remain, in order. If this description has no tokens at all,
    /// keeps the known outcomes and clears the payouts. Fails without changing anything if a known
    /// token is missing.
    pub fn align(&mut self, known: &[Outcome]) -> Result<(), TokensDiffer> {
        if self.outcomes.len() != known.len() {
            return Err(TokensDiffer);
        }
        if self.outcomes.iter().all(|outcome| outcome.token_id.is_empty()) {
            self.outcomes = known.to_vec();
            self.payouts.clear();
            return Ok(());
        }
        let place_of = |wanted: &Outcome| {
            self.outcomes.iter().position(|outcome| outcome.token_id == wanted.token_id)
        };
        let mut places = Vec::with_capacity(known.len());
        for wanted in known {
            let is_known = !wanted.token_id.is_empty();
            places.push(if is_known { Some(place_of(wanted).ok_or(TokensDiffer)?) } else { None });
        }
        let mut left = (0..known.len()).filter(|place| !places.contains(&Some(*place)));
        let order: Vec<usize> = places
            .iter()
            .map(|place| place.or_else(|| left.next()).ok_or(TokensDiffer))
            .collect::<Result<_, _>>()?;
        drop(left);
        self.outcomes = order.iter().map(|&place| self.outcomes[place].clone()).collect();
        if self.payouts.len() == order.len() {
            self.payouts = order.iter().map(|&place| self.payouts[place]).collect();
        }
        Ok(())
    }

    /// Pauses the market while the venue lists other tokens. If the market is closed, here or at
    /// the venue, closes it instead. A resolved market stays resolved.
    pub fn withhold(&mut self, listed_status: MarketStatus) {
        if self.status != MarketStatus::Resolved {
            self.payouts.clear();
            let is_closed = listed_status.is_closed() || self.status.is_closed();
            self.status = if is_closed { MarketStatus::Closed } else { MarketStatus::Paused };
        }
    }

    /// Whether the venue accepts orders for the market and this server can compute its fee.
    pub fn is_tradable(&self) -> bool {
        self.status.is_tradable() && self.fees != Fees::Unsupported
    }

    /// Whether the venue accepts orders for the market, even if this server does not.
    pub fn is_open_at_venue(&self) -> bool {
        match self.status {
            MarketStatus::Open => true,
            MarketStatus::Paused => self.is_placeholder,
            MarketStatus::Hydrating | MarketStatus::Closed | MarketStatus::Resolved => false,
        }
    }

    /// Returns the outcome with this label, ignoring case. In a binary market whose outcomes are
    /// not labelled `yes` and `no`, these stand for the first and the second outcome.
    pub fn outcome(&self, label: &str) -> Option<OutcomeIndex> {
        outcome_called(&self.outcomes, label)
    }
}

/// The error for a description that cannot be listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DescriptionFlaw {
    /// A text is too long.
    #[error("its {field} has {bytes} bytes, more than {bytes_max}")]
    TooLong {
        /// The name of the field.
        field: &'static str,
        /// Length, in bytes.
        bytes: usize,
        /// Maximum length, in bytes.
        bytes_max: usize,
    },
    /// There are more than [`OUTCOMES_PER_MARKET_MAX`] outcomes.
    #[error("it has more than {OUTCOMES_PER_MARKET_MAX} outcomes")]
    TooManyOutcomes,
    /// Two outcomes have the same token.
    #[error("two of its outcomes have the same token")]
    SharedToken,
}

/// The error for a description whose tokens differ from the known market's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("its tokens differ from those of the known market")]
pub struct TokensDiffer;

/// Finds an outcome by its label; see [`MarketInfo::outcome`].
pub(super) fn outcome_called(outcomes: &[Outcome], label: &str) -> Option<OutcomeIndex> {
    let named = outcomes.iter().position(|outcome| same_label(&outcome.label, label));
    let index = named.or_else(|| {
        if outcomes.len() != 2 {
            None
        } else if label.eq_ignore_ascii_case("yes") {
            Some(0)
        } else if label.eq_ignore_ascii_case("no") {
            Some(1)
        } else {
            None
        }
    })?;
    u8::try_from(index).ok().map(OutcomeIndex)
}

/// Compares labels, ignoring case.
fn same_label(left: &str, right: &str) -> bool {
    left.eq_ignore_ascii_case(right)
        || !(left.is_ascii() && right.is_ascii()) && left.to_lowercase() == right.to_lowercase()
}

/// A venue's group of markets: one question, often with a market for each answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The venue's id of the event.
    pub id: Box<str>,
    /// The human-readable part of the event's URL, if any.
    pub slug: Option<Box<str>>,
    /// The subject of the event.
    pub title: Option<Box<str>>,
}

/// A possible outcome, and the token that pays if it happens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The label as the venue writes it: `Yes`, `Up`, a team.
    pub label: Arc<str>,
    /// The venue's id of the outcome's token; empty while unknown.
    pub token_id: Arc<str>,
}

/// The stages of a market's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MarketStatus {
    /// Announced, but the venue has not published everything needed for trading.
    Hydrating,
    /// Orders are accepted.
    Open,
    /// Not closed, but the venue currently accepts no orders.
    Paused,
    /// No more orders are accepted, but the result is not final.
    Closed,
    /// The payouts are final.
    Resolved,
}

impl MarketStatus {
    /// All stages, in order.
    pub const ALL: [Self; 5] =
        [Self::Hydrating, Self::Open, Self::Paused, Self::Closed, Self::Resolved];

    /// Whether an order can fill.
    pub const fn is_tradable(self) -> bool {
        matches!(self, Self::Open)
    }

    /// Whether trading has ended.
    pub const fn is_closed(self) -> bool {
        matches!(self, Self::Closed | Self::Resolved)
    }

    /// Whether a market may move from this stage to `next`. A venue may reopen a market that it
    /// closed by mistake, but a resolution is final.
    pub const fn may_become(self, next: Self) -> bool {
        match (self, next) {
            (Self::Resolved, Self::Resolved) => true,
            (Self::Resolved, _) => false,
            (_, Self::Hydrating) => matches!(self, Self::Hydrating),
            _ => true,
        }
    }
}

/// The fee that a taker pays on top of the notional.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fees {
    /// No fee.
    Free,
    /// The venue's curve.
    Curve(FeeCurve),
    /// A schedule that this server cannot compute: the market is listed but not tradable.
    Unsupported,
}

/// The fee is shares × rate × (p × (1 − p))^exponent dollars for each level taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FeeCurve {
    /// The rate, between 0 and 1.
    pub rate: FeeRate,
    /// The exponent of p × (1 − p).
    pub exponent: FeeExponent,
}

/// The exponent of p × (1 − p).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FeeExponent {
    /// The exponent 1.
    One,
    /// The exponent 2.
    Two,
}

impl Fees {
    /// Returns the schedule with this rate and exponent, or [`Fees::Unsupported`] if the venue does
    /// not document it.
    pub fn from_schedule(rate: FeeRate, exponent: i64) -> Self {
        if rate < FeeRate::ZERO || rate > FeeRate::MAX {
            return Self::Unsupported;
        }
        match exponent {
            _ if rate == FeeRate::ZERO => Self::Free,
            1 => Self::Curve(FeeCurve { rate, exponent: FeeExponent::One }),
            2 => Self::Curve(FeeCurve { rate, exponent: FeeExponent::Two }),
            _ => Self::Unsupported,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn market(labels: &[&str]) -> MarketInfo {
        MarketInfo::bare(
            "0x1",
            labels.iter().map(|&label| Outcome { label: label.into(), token_id: label.into() }),
        )
    }

    #[test]
    fn outcomes_are_found_by_label_in_any_case() {
        let index = |index| Some(OutcomeIndex(index));
        for (labels, label, expected) in [
            (&["Yes", "No"][..], "yes", index(0)),
            (&["Yes", "No"], "NO", index(1)),
            (&["No", "Yes"], "yes", index(1)),
            (&["Up", "Down"], "UP", index(0)),
            (&["Up", "Down"], "Yes", index(0)),
            (&["Up", "Down"], "no", index(1)),
            (&["ÉCLAIR", "x"], "éclair", index(0)),
            (&["Up", "Down"], "left", None),
            (&["A", "B", "C"], "yes", None),
            (&["A", "B", "C"], "c", index(2)),
        ] {
            assert_eq!(market(labels).outcome(label), expected, "{label} of {labels:?}");
        }
    }

    #[test]
    fn transitions_match_the_table() {
        let mut table = String::new();
        for from in MarketStatus::ALL {
            let row = MarketStatus::ALL.map(|to| if from.may_become(to) { "x" } else { "." });
            writeln!(table, "{:<9} {}", format!("{from:?}"), row.join(" ")).unwrap();
        }
        insta::assert_snapshot!(table, @r"
        Hydrating x x x x x
        Open      . x x x x
        Paused    . x x x x
        Closed    . x x x x
        Resolved  . . . . x
        ");
    }

    #[test]
    fn an_undocumented_schedule_is_unsupported() {
        let rate = FeeRate::from_micros(70_000);
        for (rate, exponent, expected) in [
            (rate, 1, Fees::Curve(FeeCurve { rate, exponent: FeeExponent::One })),
            (rate, 2, Fees::Curve(FeeCurve { rate, exponent: FeeExponent::Two })),
            (rate, 0, Fees::Unsupported),
            (rate, 3, Fees::Unsupported),
            (FeeRate::from_micros(-1), 1, Fees::Unsupported),
            (FeeRate::from_micros(1_000_001), 1, Fees::Unsupported),
            (FeeRate::ZERO, 1, Fees::Free),
            (FeeRate::ZERO, 9, Fees::Free),
        ] {
            assert_eq!(Fees::from_schedule(rate, exponent), expected, "{rate} {exponent}");
        }
    }
}
