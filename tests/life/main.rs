//! The life of the server's process, as a supervisor and its clients see it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod activation;
mod drain;
mod format;
mod notify;
mod starts;
mod supervisor;
mod take_over;
mod watchdog;

/// The binary under test.
const BINARY: &str = env!("CARGO_BIN_EXE_paperbourse");
