//! Settlement by the real binary: what resolved markets owe is paid to the micro-dollar and once,
//! however often the server is killed meanwhile and whoever trades.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../server/client.rs"]
mod client;
mod kills;
#[path = "../server/process.rs"]
#[expect(dead_code, reason = "other tests use all of it")]
mod process;
mod race;
mod world;
