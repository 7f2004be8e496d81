//! Parses the data API's resolutions of markets, which it reads from the chain.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Description, Raw, WireError, list, micros, object, scalar};
use crate::polymarket::resolution::Stage;
use paperbourse_core::ids::condition;
use paperbourse_core::market::catalogue::{MarketInfo, MarketStatus};
use paperbourse_core::money::{Price, Rounding};

#[derive(Deserialize)]
struct ResolutionsObject<'a> {
    #[serde(borrow)]
    data: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
struct ResolutionObject<'a> {
    #[serde(borrow)]
    condition_id: Raw<'a>,
    #[serde(borrow)]
    status: Raw<'a>,
    #[serde(borrow)]
    payouts: Raw<'a>,
}

/// Parses the resolution of a market that Gamma describes; `None` if there is none yet. Payouts
/// name no tokens: they are in the order in which the venue created the outcomes, which is Gamma's
/// order.
pub fn resolution(text: &str, gamma: &Description) -> Result<Option<Description>, WireError> {
    let rows = object::<ResolutionsObject<'_>>(text)?.data.unwrap_or_default();
    for row in rows {
        let row: ResolutionObject<'_> = object(row.get())?;
        let id = scalar("condition_id", row.condition_id)?.unwrap_or_default();
        if !condition::is_same(&id, &gamma.info.condition_id) {
            continue;
        }
        if scalar("status", row.status)?.as_deref() != Some("resolved") {
            return Ok(None);
        }
        let outcomes = gamma.info.outcomes.clone();
        let payouts = payouts(row.payouts)?.filter(|payouts| payouts.len() == outcomes.len());
        let mut info = MarketInfo::bare(&gamma.info.condition_id, outcomes);
        info.status = MarketStatus::Closed;
        return Ok(Some(Description {
            info,
            updated_at: None,
            is_fee_stated: false,
            is_delay_stated: false,
            is_delay_exact: false,
            shown_payouts: payouts,
            has_named_winner: false,
            stage: Stage::Unreported,
        }));
    }
    Ok(None)
}

/// Parses the payout of each outcome, in any unit: everything to one outcome, or half to each of
/// two. `None` for anything else.
fn payouts(raw: Raw<'_>) -> Result<Option<Vec<Price>>, WireError> {
    let texts = list("payouts", raw)?;
    let parts = texts.iter().map(|text| {
        let quoted = serde_json::value::to_raw_value(text.as_ref())?;
        Ok(micros("payouts", Some(&quoted), Rounding::Exact)?.unwrap_or(-1))
    });
    let parts: Vec<i64> = parts.collect::<Result<_, WireError>>()?;
    let paid = parts.iter().filter(|part| **part != 0).count();
    let is_sound = parts.len() >= 2 && parts.iter().all(|part| *part >= 0);
    let share = match (paid, &parts[..]) {
        (1, _) if is_sound => Price::ONE,
        (2, [first, second]) if is_sound && first == second => Price::from_micros(500_000),
        _ => return Ok(None),
    };
    let paid = |part: &i64| if *part == 0 { Price::ZERO } else { share };
    Ok(Some(parts.iter().map(paid).collect()))
}

#[cfg(test)]
mod tests {
    use super::super::gamma;
    use super::*;

    fn shown(rows: &str) -> String {
        let gamma = gamma::market(
            r#"{"conditionId":"0xa","outcomes":["Yes","No"],"clobTokenIds":["1","2"]}"#,
        );
        match resolution(&format!(r#"{{"data":{rows}}}"#), &gamma.unwrap()) {
            Ok(None) => "nothing".to_owned(),
            Ok(Some(description)) => match description.shown_payouts {
                None => "no payouts".to_owned(),
                Some(payouts) => {
                    payouts.iter().map(ToString::to_string).collect::<Vec<_>>().join("/")
                }
            },
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn only_resolutions_with_valid_payouts_pay() {
        for (status, payouts, expected) in [
            ("resolved", "[1000000,0]", "1/0"),
            ("resolved", "[0,1000000]", "0/1"),
            ("resolved", r#"["0","1"]"#, "0/1"),
            ("resolved", "[500000,500000]", "0.5/0.5"),
            ("resolved", "[0.5,0.5]", "0.5/0.5"),
            ("resolved", "[300000,700000]", "no payouts"),
            ("resolved", "[0,0]", "no payouts"),
            ("resolved", "[-1,0]", "no payouts"),
            ("resolved", "[1,0,0]", "no payouts"),
            ("resolved", "[1]", "no payouts"),
            ("resolved", "null", "no payouts"),
            ("resolved", "[[]]", "field payouts: expected a string or a number"),
            ("proposed", "[1000000,0]", "nothing"),
            ("disputed", "[1000000,0]", "nothing"),
        ] {
            let row = |id: &str| {
                format!(r#"{{"condition_id":"{id}","status":"{status}","payouts":{payouts}}}"#)
            };
            assert_eq!(shown(&format!("[{}]", row("0xa"))), expected, "{status} {payouts}");
            assert_eq!(shown(&format!("[{}]", row("0xb"))), "nothing", "another market's");
        }
        assert_eq!(shown("[]"), "nothing");
        assert_eq!(shown("null"), "nothing");
    }
}
