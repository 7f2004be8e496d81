//! Assumptions about the length of ids.

use super::assumption::{Assumption, RestsOn, Tally};
use super::seen::{MarketSeen, Observation, Origin, Source};

/// Number of hexadecimal digits in a condition id.
const DIGITS: usize = 64;

/// Number of hexadecimal digits in a condition id of version 2, as stated by Gamma.
const NARROW_DIGITS: usize = 62;

/// Maximum number of decimal digits in a 256-bit number.
const TOKEN_DIGITS_MAX: usize = 78;

/// Returns the assumptions of this module.
pub(super) fn all() -> Vec<Box<dyn Assumption>> {
    vec![Box::new(ConditionIds), Box::new(NarrowConditionIds), Box::new(TokenIds)]
}

/// Returns the number of digits after `0x`; `None` if the id is not hexadecimal.
fn hex_digits(id: &str) -> Option<usize> {
    let digits = id.strip_prefix("0x")?;
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(digits.len())
}

/// Returns a condition id, its source and origin, and whether the market is of version 2.
fn stated<'a>(seen: &'a Observation<'_>) -> Option<(Source, &'a str, bool, Origin<'a>)> {
    match seen {
        Observation::Market(MarketSeen { source, fields, is_v2, origin, .. }) => {
            let name = match source {
                Source::Gamma => "conditionId",
                Source::Compact => "c",
                Source::Long | Source::Book => "condition_id",
            };
            Some((*source, fields[name].as_str()?, *is_v2, *origin))
        }
        Observation::Book { fields, is_v2, origin, .. } => {
            Some((Source::Book, fields["market"].as_str()?, *is_v2, *origin))
        }
        _ => None,
    }
}

/// Assumes that condition ids of version 1 have 32 bytes.
struct ConditionIds;

impl Assumption for ConditionIds {
    fn name(&self) -> &'static str {
        "V1: a condition id has 64 digits"
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Fills
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        let Some((source, id, false, origin)) = stated(seen) else { return };
        match hex_digits(id) {
            Some(DIGITS) => tally.holds(),
            digits => tally.breaks(format!("{source}: {}", described(digits)), origin),
        }
    }
}

/// Assumes that condition ids of version 2 have 31 bytes, followed by a zero byte everywhere except
/// in Gamma.
struct NarrowConditionIds;

impl Assumption for NarrowConditionIds {
    fn name(&self) -> &'static str {
        "V2: 62 digits in Gamma, 64 elsewhere"
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Fills
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        let Some((source, id, true, origin)) = stated(seen) else { return };
        match (source, hex_digits(id)) {
            (Source::Gamma, Some(NARROW_DIGITS)) => tally.holds_with("62 in Gamma"),
            (Source::Gamma, digits) => {
                tally.breaks(format!("Gamma: {}", described(digits)), origin);
            }
            (_, Some(DIGITS)) if id.ends_with("00") => tally.holds_with("64 elsewhere"),
            (_, digits) => tally.breaks(format!("{source}: {}", described(digits)), origin),
        }
    }
}

fn described(digits: Option<usize>) -> String {
    digits.map_or("not hexadecimal".to_owned(), |digits| format!("{digits} digits"))
}

/// Assumes that token ids are 256-bit numbers.
struct TokenIds;

impl Assumption for TokenIds {
    fn name(&self) -> &'static str {
        "a token id has at most 78 digits"
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Fills
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        let mut judge = |id: &str, origin: &Origin<'_>| {
            let is_number = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
            if is_number && id.len() <= TOKEN_DIGITS_MAX {
                tally.holds();
            } else {
                let length = id.len();
                tally.breaks(format!("{length} characters: no number of 256 bits"), *origin);
            }
        };
        match seen {
            Observation::Market(MarketSeen { description: Ok(description), origin, .. }) => {
                let tokens = description.info.outcomes.iter().map(|it| &*it.token_id);
                tokens.filter(|id| !id.is_empty()).for_each(|id| judge(id, origin));
            }
            Observation::Book { fields, origin, .. } => {
                if let Some(id) = fields["asset_id"].as_str() {
                    judge(id, origin);
                }
            }
            _ => {}
        }
    }
}
