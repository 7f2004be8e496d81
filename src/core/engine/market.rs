//! The markets that a shard has used.
//!
//! `table` stores each of them as a [`UsedMarket`](used::UsedMarket). [`settlement`] pays the
//! positions in a resolved market, and [`payout`] computes the amounts.

pub mod payout;
pub mod settlement;
pub(in crate::engine) mod table;
pub(in crate::engine) mod used;
