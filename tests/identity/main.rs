//! Who is calling, by tokens of others: a certified provider that runs beside the server, and a
//! provider of our own that lies in every way that can be thought of.

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
