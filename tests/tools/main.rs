//! The tools for a data folder, from outside: the real binary beside a real server under load, on
//! folders that were damaged on purpose, and with what people get wrong.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod beside;
#[path = "../server/client.rs"]
mod client;
mod damage;
mod output;
#[path = "../server/process.rs"]
mod process;
mod world;
