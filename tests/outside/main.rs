//! What nobody here wrote, against the whole program: a browser, the official SDK, Polymarket's
//! client, libraries for sockets, and tools that read the description of the API. The scripts in
//! `.ci` that have these names install them. One binary, since some of them wait while others keep
//! the processors busy.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod browser;
mod clients;
mod clob;
mod schemathesis;
mod sdk;
