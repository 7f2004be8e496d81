//! Assumptions about descriptions of markets: that they can be read, agree, and have known values.

use std::fmt::Write as _;

use serde_json::Value;

use super::assumption::{Assumption, RestsOn, Tally};
use super::fields;
use super::seen::{MarketSeen, Observation, Source};
use crate::polymarket::resolution::Stage;
use crate::polymarket::wire::Description;
use paperbourse_core::market::catalogue::{FeeExponent, Fees};
use paperbourse_core::money::Price;

/// The ticks that the venue documents, in millionths of a dollar.
const TICKS: [i64; 6] = [100_000, 10_000, 5_000, 2_500, 1_000, 100];

/// Fields in which services state how long they hold marketable orders.
const DELAY_FIELDS: [&str; 6] =
    ["itode", "sd", "secondsDelay", "seconds_delay", "takerDelayMs", "taker_delay_ms"];

/// Names of the stages of a resolution in version 2 of the protocol.
const RESOLUTION_STATUSES: [&str; 3] = ["inactive", "active", "resolved"];

/// Returns the assumptions of this module.
pub(super) fn all() -> Vec<Box<dyn Assumption>> {
    vec![
        Box::new(GammaReadable),
        Box::new(ClobReadable),
        Box::new(Agreement),
        Box::new(FeeCurves),
        Box::new(Ticks),
        Box::new(Delays),
        Box::new(Statuses),
        Box::new(CompactFields),
    ]
}

/// Assumes that Gamma's markets can be read.
struct GammaReadable;

impl Assumption for GammaReadable {
    fn name(&self) -> &'static str {
        "Gamma's markets can be read"
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Fills
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        readable(seen, tally, |source| source == Source::Gamma);
    }
}

/// Assumes that the CLOB service's markets can be read.
struct ClobReadable;

impl Assumption for ClobReadable {
    fn name(&self) -> &'static str {
        "the CLOB service's markets can be read"
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Fills
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        readable(seen, tally, |source| matches!(source, Source::Compact | Source::Long));
    }
}

fn readable(seen: &Observation<'_>, tally: &mut Tally, is_of: impl Fn(Source) -> bool) {
    match seen {
        Observation::Unreadable { what, problem, origin } if is_of(*what) => {
            tally.breaks(problem, *origin);
        }
        Observation::Market(MarketSeen { source, description, origin, .. }) if is_of(*source) => {
            match description {
                Ok(_) => tally.holds(),
                Err(error) => tally.breaks(error, *origin),
            }
        }
        _ => {}
    }
}

/// Assumes that Gamma and the CLOB service describe a market alike.
struct Agreement;

impl Assumption for Agreement {
    fn name(&self) -> &'static str {
        "Gamma and CLOB describe markets alike"
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Fills
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        let (difference, origin) = match seen {
            Observation::Twice { gamma, clob, origin } => (difference(gamma, clob), origin),
            Observation::Book { book: Ok(book), gamma: Some(gamma), origin, .. } => {
                let info = &gamma.info;
                let is_size = book.order_size_min.is_none_or(|size| size == info.order_size_min);
                let is_kind = book.neg_risk.is_none_or(|neg_risk| neg_risk == info.neg_risk);
                let difference = match (is_size, is_kind) {
                    (false, _) => Some("the smallest order differs in the book"),
                    (_, false) => Some("negRisk differs in the book"),
                    _ => None,
                };
                (difference, origin)
            }
            _ => return,
        };
        match difference {
            None => tally.holds(),
            Some(difference) => tally.breaks(difference, *origin),
        }
    }
}

/// Returns the first difference between two descriptions. Ignores the tick, since ticks change and
/// Gamma's may be some minutes old.
fn difference(gamma: &Description, clob: &Description) -> Option<&'static str> {
    let tokens = |of: &Description| {
        let mut tokens: Vec<_> = of.info.outcomes.iter().map(|it| it.token_id.clone()).collect();
        tokens.sort_unstable();
        tokens
    };
    let is_same = |same: bool, difference| if same { None } else { Some(difference) };
    let (gamma_info, clob_info) = (&gamma.info, &clob.info);
    is_same(tokens(gamma) == tokens(clob), "the tokens differ")
        .or(is_same(
            gamma_info.order_size_min == clob_info.order_size_min,
            "the smallest order differs",
        ))
        .or(is_same(gamma_info.neg_risk == clob_info.neg_risk, "negRisk differs"))
        .or(is_same(
            gamma_info.fees == clob_info.fees || !gamma.is_fee_stated || !clob.is_fee_stated,
            "the fees differ",
        ))
}

/// Assumes that fees follow a schedule that this server can compute.
struct FeeCurves;

impl Assumption for FeeCurves {
    fn name(&self) -> &'static str {
        "fees follow a known schedule"
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Fills
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        let Observation::Market(MarketSeen { source, fields, description, origin, .. }) = seen
        else {
            return;
        };
        let Ok(description) = description else { return };
        match description.info.fees {
            // The long form never states the rate.
            _ if *source == Source::Long => {}
            Fees::Free => tally.holds_with("free"),
            Fees::Curve(curve) => {
                let exponent = if curve.exponent == FeeExponent::One { 1 } else { 2 };
                let rate = Price::from_micros(curve.rate.micros());
                tally.holds_with(format!("rate {rate} exponent {exponent}"));
            }
            Fees::Unsupported => {
                let schedule = if *source == Source::Gamma { "feeSchedule" } else { "fd" };
                let mut stated = fields[schedule].to_string();
                stated.truncate(stated.floor_char_boundary(120));
                tally.breaks(stated, *origin);
            }
        }
    }
}

/// Assumes that all ticks are among those that the venue documents.
struct Ticks;

impl Assumption for Ticks {
    fn name(&self) -> &'static str {
        "ticks are known"
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Nothing
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        let (tick, origin) = match seen {
            Observation::Market(MarketSeen { description: Ok(description), origin, .. }) => {
                (description.info.tick, origin)
            }
            Observation::Book { book: Ok(book), origin, .. } => match book.tick {
                Some(tick) => (tick, origin),
                None => return,
            },
            _ => return,
        };
        if TICKS.contains(&tick.micros()) {
            tally.holds_with(tick.to_string());
        } else {
            tally.breaks(tick, *origin);
        }
    }
}

/// Assumes that the delay on marketable orders is stated in a known field.
struct Delays;

impl Assumption for Delays {
    fn name(&self) -> &'static str {
        "taker delay fields are known"
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Fills
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        let Observation::Market(MarketSeen { fields: Value::Object(fields), origin, .. }) = seen
        else {
            return;
        };
        let is_stated = |value: &Value| !matches!(value, Value::Null);
        for (name, value) in fields.iter().filter(|(_, value)| is_stated(value)) {
            let value = short(value);
            if DELAY_FIELDS.contains(&name.as_str()) {
                tally.holds_with(format!("{name} {value}"));
            } else if name.to_ascii_lowercase().contains("delay") {
                tally.breaks(format!("{name} {value} is new"), *origin);
            }
        }
    }
}

/// Formats a value, truncated to fit into a column.
fn short(value: &Value) -> String {
    let mut text = String::new();
    let _ = match value {
        Value::String(content) => write!(text, "\"{content}\""),
        value => write!(text, "{value}"),
    };
    text.truncate(text.floor_char_boundary(20));
    text
}

/// Assumes that the connector knows the stages of all resolutions.
struct Statuses;

impl Assumption for Statuses {
    fn name(&self) -> &'static str {
        "resolution statuses are known"
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Payouts
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        let Observation::Market(MarketSeen { source: Source::Gamma, fields, origin, .. }) = seen
        else {
            return;
        };
        let uma = fields["umaResolutionStatus"].as_str();
        match Stage::of(uma) {
            Stage::Unreported => {}
            Stage::Unknown(name) => tally.breaks(format!("umaResolutionStatus {name:?}"), *origin),
            _ => tally.holds_with(uma.unwrap_or_default()),
        }
        match fields["resolutionStatus"].as_str() {
            None | Some("") => {}
            Some(status) if RESOLUTION_STATUSES.contains(&status) => tally.holds_with(status),
            Some(status) => {
                let status: String = status.chars().take(40).collect();
                tally.breaks(format!("resolutionStatus {status:?}"), *origin);
            }
        }
    }
}

/// Assumes that `/clob-markets` sends no new fields.
struct CompactFields;

impl Assumption for CompactFields {
    fn name(&self) -> &'static str {
        "/clob-markets fields are known"
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Nothing
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        let Observation::Market(MarketSeen { source: Source::Compact, fields, origin, .. }) = seen
        else {
            return;
        };
        match fields::unknown(fields, &fields::COMPACT) {
            None => tally.holds(),
            Some(name) => tally.breaks(format!("{name} is new"), *origin),
        }
    }
}
