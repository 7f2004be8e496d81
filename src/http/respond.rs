//! What clients receive: each answer as the bytes of its JSON.
//!
//! `/trade` and comments carry JSON numbers, `/v1` carries decimal text; ids, counts and basis
//! points are integers everywhere. Nothing is decided here: what is shown comes in as values.

pub mod account;
pub mod book;
pub mod comment;
pub mod key;
pub mod market;
pub mod order;
pub mod price;
pub mod trade;

use hyper::StatusCode;
use hyper::header::HeaderMap;

/// An answer without the headers that all answers carry.
#[derive(Debug)]
pub struct Reply {
    /// The status of the response.
    pub status: StatusCode,
    /// JSON, or nothing.
    pub body: Vec<u8>,
    /// What only this answer carries; mostly nothing.
    pub headers: HeaderMap,
}

impl Reply {
    /// A JSON answer.
    pub fn json(status: StatusCode, body: Vec<u8>) -> Self {
        Self { status, body, headers: HeaderMap::new() }
    }
}

#[cfg(test)]
mod fixture;
