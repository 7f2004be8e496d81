//! One shard's state, the decisions on commands ([`State::decide`]) and the application of the
//! resulting events ([`State::apply`]).
//!
//! The engine is pure. It has no clock, no randomness and no I/O: the time and the quote are
//! arguments, so the same events always fold to the same state, and recovery is that fold.
//!
//! `decide` never changes the state: it rejects a command, finds that its work is already done, or
//! returns the events that would follow. `apply` never refuses: an event that contradicts the state
//! ends the process, because one of the two is wrong. Events from disk go through
//! [`State::replay`], which returns the contradiction as an error instead.

pub mod account;
pub mod acts;
pub mod cancel;
pub mod command;
pub mod comment;
pub mod contradiction;
pub mod equity;
pub mod erasure;
pub mod event;
pub mod fee;
pub mod fill;
pub mod fill_log;
pub mod fills;
pub mod footprint;
pub mod heartbeats;
pub mod held;
pub mod hold;
pub mod idempotency;
pub mod key;
pub mod ledger;
pub mod life;
pub mod matching;
pub mod open_orders;
pub mod order;
pub mod orders;
mod overlay;
pub mod payload;
pub mod payout;
pub mod place;
pub mod position;
pub mod preview;
pub mod rejection;
pub mod reset;
pub mod resting;
pub mod restore;
pub mod rows;
pub mod settlement;
pub mod standing;
pub mod state_hash;
pub mod summary;
pub mod terms;
pub mod view;

mod accounts;
mod apply;
mod comments;
mod cost;
mod decide;
mod heap;
mod key_row;
mod keys;
mod markets;
mod order_life;
mod order_table;
mod rules;
mod silences;
mod slab;
mod slippage;
mod state;
mod stored_life;
mod take;
mod used_market;

pub use decide::{Command, Given, Verdict};
pub use rules::{
    AUTHOR_COMMENTS_MAX_DEFAULT, KEPT_ORDERS_MAX_DEFAULT, OPEN_ORDERS_MAX_DEFAULT, Rules,
};
pub use state::State;
pub use used_market::UsedMarket;

#[cfg(test)]
mod tests;
