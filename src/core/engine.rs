//! The state of one shard. [`State::decide`] decides commands, and [`State::apply`] applies the
//! resulting events.
//!
//! The engine is pure. It has no clock, no randomness and no I/O: the time and the quote are
//! arguments, so the same events always fold to the same state, and recovery is that fold.
//!
//! `decide` never changes the state. It rejects a command, finds that its work is already done, or
//! returns the events that carry it out. `apply` never refuses: an event that contradicts the state
//! ends the process, because one of the two is wrong. Events from disk go through
//! [`State::replay`], which returns the contradiction as an error instead.
//!
//! Each noun has a module: [`order`], [`fills`], [`account`], [`key`], [`comment`], [`market`],
//! [`admin`] and [`state`]. Shared code is in [`command`], `decide`, [`event`], `apply`,
//! [`rejection`], [`contradiction`] and `rules`.

pub mod account;
pub mod admin;
pub mod command;
pub mod comment;
pub mod contradiction;
pub mod event;
pub mod fills;
pub mod key;
pub mod market;
pub mod order;
pub mod rejection;
pub mod state;

mod apply;
mod decide;
mod rules;

pub use decide::{Command, Given, Verdict};
pub use market::used::UsedMarket;
pub use rules::{
    AUTHOR_COMMENTS_MAX_DEFAULT, KEPT_ORDERS_MAX_DEFAULT, OPEN_ORDERS_MAX_DEFAULT, Rules,
};
pub use state::State;

#[cfg(test)]
mod tests;
