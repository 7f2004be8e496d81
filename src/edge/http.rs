//! The HTTP edge: what comes in on a connection becomes typed values, and values become bytes.
//!
//! It knows paths, headers, JSON and time limits. It decides nothing about orders, keys or markets,
//! and it does not know who is calling: operations join this edge to the use cases.

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
pub mod invalid;
pub mod json;
pub mod openapi;
pub mod operation;
pub mod operations;
pub mod parameter;
pub mod reply;
pub mod route;

mod call;
mod csv;
mod cursor;
mod fields;
mod file;
mod holder;
mod query;
mod request_headers;
#[cfg(feature = "traces")]
mod trace;

use std::sync::LazyLock;

/// Makes the documentation, so that no request waits for that: it takes a while, in which a worker
/// would answer nobody.
pub fn prepare() {
    operations::docs::prepare();
    operations::console::prepare();
    for file in [&openapi::FILE, &asyncapi::FILE] {
        LazyLock::force(file);
    }
}
