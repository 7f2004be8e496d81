//! The life of the server's process, as a supervisor and its clients see it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod notify;
mod supervisor;

/// The binary under test.
const BINARY: &str = env!("CARGO_BIN_EXE_paperbourse");
