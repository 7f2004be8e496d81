//! Whether the server is up, its time, and the version of orders that it takes.

#![expect(clippy::unnecessary_wraps, reason = "all rows of the table run functions of one type")]

use hyper::StatusCode;

use super::{Answer, object};
use crate::http::call::Call;
use crate::http::reply::Reply;

/// The version of the venue's orders.
const ORDER_VERSION: u64 = 2;

pub(super) fn ok(_: &Call<'_>) -> Answer {
    Ok(Reply::ok(&"OK"))
}

/// Returns the Unix time, in seconds.
pub(super) fn time(call: &Call<'_>) -> Answer {
    let seconds = call.context.moment.now.seconds().to_string();
    Ok(Reply::json(StatusCode::OK, seconds.into_bytes()))
}

pub(super) fn version(_: &Call<'_>) -> Answer {
    Ok(object(|body| body.integer("version", ORDER_VERSION)))
}
