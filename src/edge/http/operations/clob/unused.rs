//! What the venue has and this server has not, and what clients get instead: rewards, rebates,
//! builders' fees, scores and notifications, of which there are none.

#![expect(clippy::unnecessary_wraps, reason = "all rows of the table run functions of one type")]

use hyper::StatusCode;

use super::{Answer, object, request};
use crate::http::call::Call;
use crate::http::cursor::END;
use crate::http::error::ClobError;
use crate::http::json::write::write_list;
use crate::http::operations::clob::prices::write_map;
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

pub(super) fn empty_object(_: &Call<'_>) -> Answer {
    Ok(Reply::json(StatusCode::OK, b"{}".to_vec()))
}

/// Says that an order earns no rewards, whichever it is.
pub(super) fn score(_: &Call<'_>) -> Answer {
    Ok(object(|body| body.flag("scoring", false)))
}

/// Says for each order of a list that it earns no rewards.
pub(super) fn scores(call: &Call<'_>) -> Answer {
    let sent = call.take_body();
    let orders = request::order_ids(&sent)?;
    let mut body = Vec::with_capacity(16 + 80 * orders.len());
    write_map(&mut body, orders.into_iter().map(|id| (id, ())), |out, ()| {
        out.extend_from_slice(b"false");
    });
    Ok(Reply::json(StatusCode::OK, body))
}

/// Lists the keys that only read, in an object: the one client that looks into the answer, the one
/// for Rust, expects that.
pub(super) fn no_readonly_keys(_: &Call<'_>) -> Answer {
    Ok(object(|body| write_list(body.value("readonlyApiKeys"), [(); 0], |_, ()| {})))
}

pub(super) fn no_such_keys(_: &Call<'_>) -> Answer {
    Err(ClobError::NO_SUCH_KEYS)
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
