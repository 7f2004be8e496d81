//! The price of an outcome over time.

use super::Answer;
use crate::http::call::Call;
use crate::http::error::ClobError;
use crate::http::operations::price_history;

pub(super) fn list(call: &Call<'_>) -> Answer {
    price_history::list(call).map_err(|error| match error.code {
        "INVALID_TOKEN_ID" => ClobError::INVALID_MARKET,
        _ => ClobError::INVALID_PAYLOAD,
    })
}
