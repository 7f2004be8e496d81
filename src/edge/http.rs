//! The HTTP edge: turns bytes from connections into typed values, and values into bytes.
//!
//! It handles paths, headers, JSON and time limits. It makes no decisions about orders, keys or
//! markets, and leaves identifying the caller to the use cases. Operations connect the use cases to
//! this edge.

pub mod app;
pub mod asyncapi;
pub mod body;
pub mod connection;
pub mod cors;
pub mod error;
#[cfg(feature = "cluster")]
pub mod forward;
pub mod forwarded;
pub mod handle;
pub mod hot;
pub mod invalid;
pub mod json;
pub mod openapi;
pub mod operation;
pub mod operations;
pub mod parameter;
pub mod reply;
pub mod route;

mod call;
mod complete_reply;
mod csv;
mod cursor;
mod fields;
mod file;
mod holder;
mod idle_flush;
mod query;
mod request_headers;
#[cfg(feature = "traces")]
mod trace;
mod troubled;

use std::sync::LazyLock;

/// Builds the documentation ahead of the first request. Building it takes a while, during which a
/// worker could serve nothing else.
pub fn prepare() {
    operations::docs::prepare();
    operations::console::prepare();
    for file in [&openapi::FILE, &asyncapi::FILE] {
        LazyLock::force(file);
    }
}
