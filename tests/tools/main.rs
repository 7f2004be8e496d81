//! The tools: the real binary beside a server under load, on damaged folders, and with wrong
//! arguments.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod accounts;
mod acts;
mod acts_killed;
mod beside;
mod completions;
mod copying;
mod damage;
mod health;
mod midway_killed;
mod output;
mod repository;
mod restore;
mod top;
mod world;
