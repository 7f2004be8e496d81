//! What the venue has and this server has not, and what clients get instead: rewards, rebates and
//! builders' fees, of which there are none.

#![expect(clippy::unnecessary_wraps, reason = "all rows of the table run functions of one type")]

use hyper::StatusCode;

use super::{Answer, object};
use crate::http::call::Call;
use crate::http::cursor::END;
use crate::http::error::ClobError;
use crate::http::json::write::write_list;
use crate::http::reply::Reply;

/// The `limit` of an empty page, the venue's.
const LIMIT: u64 = 100;

pub(super) fn empty_list(_: &Call<'_>) -> Answer {
    Ok(Reply::json(StatusCode::OK, b"[]".to_vec()))
}

/// Returns a page without rows, which is the last.
pub(super) fn empty_page(_: &Call<'_>) -> Answer {
    Ok(object(|body| {
        write_list(body.value("data"), [(); 0], |_, ()| {});
        body.text("next_cursor", END);
        body.integer("limit", LIMIT);
        body.integer("count", 0);
    }))
}

/// Returns the fees of a builder, whoever it is.
pub(super) fn no_builder_fee(_: &Call<'_>) -> Answer {
    Ok(object(|body| {
        body.integer("builder_maker_fee_rate_bps", 0);
        body.integer("builder_taker_fee_rate_bps", 0);
    }))
}

/// Returns the error of a series of which this server has none.
pub(super) fn absent(_: &Call<'_>) -> Answer {
    Err(ClobError::NO_MARKET)
}
