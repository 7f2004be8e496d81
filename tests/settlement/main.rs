//! Settlement by the real binary: what resolved markets owe is paid to the micro-dollar and once,
//! however often the server is killed meanwhile and whoever trades.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod kills;
mod race;
mod world;
