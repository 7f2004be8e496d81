//! Tests access tokens of other issuers: a certified provider that runs beside the server, and our
//! own scripted provider that misbehaves in every way we know.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod attacks;
mod certified;
mod forge;
mod provider;
mod scripted;
mod start;
mod unreachable;

/// The binary under test.
const BINARY: &str = env!("CARGO_BIN_EXE_paperbourse");
