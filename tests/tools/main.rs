//! The tools for a data folder, from outside: the real binary beside a real server under load, on
//! folders that were damaged on purpose, and with what people get wrong.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod beside;
mod damage;
mod output;
mod world;
