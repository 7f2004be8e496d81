//! What clients receive: each answer as the bytes of its JSON.
//!
//! `/trade` and comments carry JSON numbers, `/v1` carries decimal text; ids, counts and basis
//! points are integers everywhere. Nothing is decided here: what is shown comes in as values.

pub mod account;
pub mod book;
pub mod comment;
pub mod json;
pub mod key;
pub mod market;
pub mod order;
pub mod price;
pub mod trade;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};

/// A JSON answer.
pub fn json_response(status: StatusCode, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod fixture;
