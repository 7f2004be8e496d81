//! Looks up an outcome by its token.

use schemars::JsonSchema;
use serde::Serialize;

use crate::http::call::{Answer, Call};
use crate::http::error::ApiError;
use crate::http::parameter::Parameter;
use crate::http::query::Query;
use crate::http::reply::Reply;
use paperbourse_core::market::catalogue::{Fees, ID_BYTES_MAX};
use paperbourse_core::money::FeeRate;
use paperbourse_exchange::service::OutcomeSnapshot;

/// The venue's `base_fee` of every market with a fee: a marker, not the rate.
const BASE_FEE: u32 = 1_000;

pub(in crate::http) fn market(call: &Call<'_>) -> Answer {
    let shown = call.service().outcome_by_token(&call.parameter())?;
    Ok(Reply::ok(&TokenAnswer::of(&shown)))
}

pub(in crate::http) const FEE_RATE_QUERY: [Parameter; 1] =
    [Parameter::own("token_id", "^[0-9]{1,128}$", "the outcome's token").required()];

pub(in crate::http) fn fee_rate(call: &Call<'_>) -> Answer {
    let token_id = read_token(&call.query()).ok_or_else(ApiError::invalid_token_id)?;
    let shown = call.service().outcome_by_token(&token_id)?;
    let fees = shown.market.info().fees;
    Ok(Reply::ok(&FeeRateAnswer::of(fees).ok_or_else(ApiError::fee_rate_not_found)?))
}

/// Reads the token, which is a decimal number. Clients of the venue expect the same error for every
/// other value, even for a missing one.
fn read_token(query: &Query<'_>) -> Option<String> {
    let token_id = query.get("token_id")?;
    let is_number = (1..=ID_BYTES_MAX).contains(&token_id.len())
        && token_id.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| token_id.into_owned())
}

/// The market and the outcome of a token.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "TokenMarket")]
pub(in crate::http) struct TokenAnswer<'a> {
    /// The market's condition id.
    condition_id: &'a str,
    /// The token.
    primary_token_id: &'a str,
    /// Always null.
    secondary_token_id: Option<&'a str>,
    /// The outcome's label.
    outcome: &'a str,
}

/// The taker fee of a market.
#[derive(JsonSchema, Serialize, PartialEq, Eq, Debug)]
#[schemars(rename = "FeeRate")]
pub(in crate::http) struct FeeRateAnswer {
    /// As the venue shows it: 1000 for every market with a fee, else 0.
    base_fee: u32,
    /// The rate of the taker fee, in hundredths of a percent, rounded up.
    fee_rate_bps: i64,
}

impl<'a> TokenAnswer<'a> {
    fn of(shown: &'a OutcomeSnapshot) -> Self {
        let info = shown.market.info();
        let outcome = &info.outcomes[shown.outcome.index()];
        Self {
            condition_id: &info.condition_id,
            primary_token_id: &outcome.token_id,
            secondary_token_id: None,
            outcome: &outcome.label,
        }
    }
}

/// Returns the venue's `base_fee` for this schedule; `None` if the fee cannot be computed.
pub(super) fn base_fee(fees: Fees) -> Option<u32> {
    match fees {
        Fees::Free => Some(0),
        Fees::Curve(_) => Some(BASE_FEE),
        Fees::Unsupported => None,
    }
}

impl FeeRateAnswer {
    /// Returns the fee rate to show; `None` if the fee cannot be computed.
    fn of(fees: Fees) -> Option<Self> {
        const MICROS_PER_BASIS_POINT: i64 = FeeRate::MAX.micros() / 10_000;
        let rate = if let Fees::Curve(curve) = fees { curve.rate } else { FeeRate::ZERO };
        let fee_rate_bps = (rate.micros() + MICROS_PER_BASIS_POINT - 1) / MICROS_PER_BASIS_POINT;
        Some(Self { base_fee: base_fee(fees)?, fee_rate_bps })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::query::tests::query;

    #[test]
    fn a_token_is_a_number() {
        let read = |text: &str| read_token(&query("GET /v1/fee-rate", Some(text)));
        let longest = "7".repeat(ID_BYTES_MAX);
        assert_eq!(read("token_id=0123").as_deref(), Some("0123"));
        assert_eq!(read(&format!("token_id={longest}")), Some(longest.clone()));
        for text in
            ["", "token_id=", "token_id=0xabc", "token_id=-1", "token_id=+1", "token_id=1e3"]
        {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(read(&format!("token_id={longest}7")), None);
    }

    #[test]
    fn a_rate_is_rounded_up_to_a_basis_point() {
        let shown = |rate, exponent| {
            let fees = Fees::from_schedule(FeeRate::from_micros(rate), exponent);
            FeeRateAnswer::of(fees).map(|answer| (answer.base_fee, answer.fee_rate_bps))
        };
        for (rate, exponent, expected) in [
            (0, 1, Some((0, 0))),
            (1, 1, Some((1_000, 1))),
            (100, 2, Some((1_000, 1))),
            (101, 1, Some((1_000, 2))),
            (50_000, 1, Some((1_000, 500))),
            (1_000_000, 2, Some((1_000, 10_000))),
            (50_000, 3, None),
        ] {
            assert_eq!(shown(rate, exponent), expected, "{rate} {exponent}");
        }
    }
}
