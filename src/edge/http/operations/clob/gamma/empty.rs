//! What Gamma has and this server has not: tags, series, sports, comments and profiles.

#![expect(clippy::unnecessary_wraps, reason = "all rows of the table run functions of one type")]

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue};

use crate::http::call::Call;
use crate::http::error::ClobError;
use crate::http::json::write::write_list;
use crate::http::operations::clob::{Answer, object};
use crate::http::reply::Reply;

/// Says that the server works, in plain text.
pub(super) fn status(_: &Call<'_>) -> Answer {
    let mut reply = Reply::json(StatusCode::OK, b"OK".to_vec());
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    reply.headers.insert(CONTENT_TYPE, kind);
    Ok(reply)
}

pub(super) fn list(_: &Call<'_>) -> Answer {
    Ok(Reply::json(StatusCode::OK, b"[]".to_vec()))
}

pub(super) fn market_types(_: &Call<'_>) -> Answer {
    Ok(object(|body| write_list(body.value("marketTypes"), [(); 0], |_, ()| {})))
}

/// Returns a page of comments, which is the last, as it has no cursor.
pub(super) fn comments(_: &Call<'_>) -> Answer {
    Ok(object(|body| write_list(body.value("comments"), [(); 0], |_, ()| {})))
}

pub(super) fn no_id(_: &Call<'_>) -> Answer {
    Err(ClobError::NO_ID)
}

pub(super) fn no_slug(_: &Call<'_>) -> Answer {
    Err(ClobError::NO_SLUG)
}

pub(super) fn no_profile(_: &Call<'_>) -> Answer {
    Err(ClobError::NO_PROFILE)
}
