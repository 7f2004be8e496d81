//! What clients of the venue send: tokens, sides and lists of them.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::Deserialize;

use crate::http::call::Call;
use crate::http::error::ClobError;
use paperbourse_core::market::book::Side;
use paperbourse_exchange::service::OutcomeSnapshot;

/// Maximum number of entries in a list that is asked for.
const ENTRIES_MAX: usize = 500;

/// An entry of a list that is asked for. Other fields are ignored.
#[derive(Deserialize)]
pub(super) struct Entry<'a> {
    /// The outcome's token.
    #[serde(borrow)]
    pub(super) token_id: Cow<'a, str>,
    /// The side, which only prices have.
    #[serde(borrow)]
    pub(super) side: Option<Cow<'a, str>>,
}

/// Returns the value of a query parameter, the last one if it is repeated.
pub(super) fn parameter<'a>(call: &Call<'a>, name: &str) -> Option<Cow<'a, str>> {
    value(call.head.uri.query(), name)
}

/// Returns the value of a parameter of this query; `None` if it is absent or empty, since clients
/// send empty text for parameters that they leave out.
pub(super) fn filled<'a>(query: Option<&'a str>, name: &str) -> Option<Cow<'a, str>> {
    value(query, name).filter(|text| !text.is_empty())
}

fn value<'a>(query: Option<&'a str>, name: &str) -> Option<Cow<'a, str>> {
    let pairs = form_urlencoded::parse(query?.as_bytes());
    pairs.filter(|(field, _)| field == name).last().map(|(_, value)| value)
}

/// Returns the outcome whose token is in the path or in the query, or `missing` if no outcome has
/// it. Fails with [`ClobError::INVALID_TOKEN`] for text that is no token.
pub(super) fn outcome(call: &Call<'_>, missing: ClobError) -> Result<OutcomeSnapshot, ClobError> {
    let token_id = match call.operation.path.parameter() {
        "" => parameter(call, "token_id").unwrap_or_default(),
        _ => call.parameter(),
    };
    find(call, &token_id).ok_or_else(|| {
        let is_number = !token_id.is_empty() && token_id.bytes().all(|it| it.is_ascii_digit());
        if is_number { missing } else { ClobError::INVALID_TOKEN }
    })
}

/// Returns the outcome with this token, if there is one.
pub(super) fn find(call: &Call<'_>, token_id: &str) -> Option<OutcomeSnapshot> {
    call.service().outcome_by_token(token_id).ok().filter(|_| !token_id.is_empty())
}

/// Reads the list in a body.
pub(super) fn entries(body: &[u8]) -> Result<Vec<Entry<'_>>, ClobError> {
    let entries: Vec<Entry<'_>> =
        serde_json::from_slice(body).map_err(|_| ClobError::INVALID_PAYLOAD)?;
    if entries.len() > ENTRIES_MAX {
        return Err(ClobError::TOO_LARGE);
    }
    Ok(entries)
}

/// Reads the ids of orders in a body, each once.
pub(super) fn order_ids(body: &[u8]) -> Result<Vec<Cow<'_, str>>, ClobError> {
    let ids: Vec<Name<'_>> =
        serde_json::from_slice(body).map_err(|_| ClobError::INVALID_PAYLOAD)?;
    if ids.len() > ENTRIES_MAX {
        return Err(ClobError::TOO_LARGE);
    }
    Ok(each_once(ids.into_iter().map(|Name(id)| id)))
}

/// Leaves out texts that were there before.
pub(super) fn each_once<'a>(texts: impl Iterator<Item = Cow<'a, str>>) -> Vec<Cow<'a, str>> {
    let mut seen = HashSet::new();
    texts.filter(|text| seen.insert(text.clone())).collect()
}

/// Text that is borrowed where it has no escapes.
#[derive(Deserialize)]
pub(super) struct Name<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// Reads the tokens in a body, each once.
pub(super) fn tokens(body: &[u8]) -> Result<Vec<Cow<'_, str>>, ClobError> {
    Ok(each_once(entries(body)?.into_iter().map(|entry| entry.token_id)))
}

/// Reads a side, in any case.
pub(super) fn side(text: Option<&str>) -> Result<Side, ClobError> {
    let text = text.unwrap_or_default();
    let is = |side: &Side| text.eq_ignore_ascii_case(side.as_str());
    [Side::Buy, Side::Sell].into_iter().find(is).ok_or(ClobError::INVALID_SIDE)
}
