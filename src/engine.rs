//! One shard's state: what may happen to it ([`State::decide`]) and what has happened to it
//! ([`State::apply`]).
//!
//! The engine is pure. It has no clock, no randomness and no I/O: the time and the quote come in
//! as arguments, so the same events always fold to the same state, and recovery is that fold.
//!
//! `decide` looks and never changes: it refuses with a reason, finds an earlier order that the
//! request names, or returns the facts that would follow. `apply` changes and never refuses: a fact
//! that contradicts the state ends the process, because the state or the fact is wrong. Facts that
//! come from a disk go through [`State::replay`], which is the same but tells instead.

pub mod account;
pub mod command;
pub mod comment;
pub mod contradiction;
pub mod event;
pub mod fee;
pub mod fill;
pub mod idempotency;
pub mod key;
pub mod order;
pub mod orders;
pub mod payout;
pub mod position;
pub mod rejection;
pub mod restore;
pub mod rows;
pub mod settlement;
pub mod state_hash;
pub mod view;

mod accounts;
mod apply;
mod comments;
mod cost;
mod decide;
mod key_row;
mod keys;
mod markets;
mod order_table;
mod rules;
mod slab;
mod slippage;
mod state;
mod used_market;

pub use decide::{Command, Given, Verdict};
pub use rules::{KEPT_ORDERS_MAX_DEFAULT, Rules};
pub use state::State;
pub use used_market::UsedMarket;

#[cfg(test)]
mod tests;
