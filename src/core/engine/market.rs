//! Markets, as far as a shard needs them.
//!
//! `table` has those that its orders have used, each as [`UsedMarket`](used::UsedMarket);
//! [`settlement`] pays positions when one is resolved, as its [`payout`] says.

pub mod payout;
pub mod settlement;
pub(in crate::engine) mod table;
pub(in crate::engine) mod used;
