//! Orders.
//!
//! - Placing one: [`payload`] is what the caller wrote, [`idempotency`] how a repeat is recognised,
//!   [`place`] the decision, `take` the checks and what is taken of the book; [`terms`], [`fee`],
//!   `cost` and `slippage` are its rules. [`preview`] decides without an event.
//! - Waiting, where the venue delays takers: [`hold`] and [`held`].
//! - Resting and filling: [`open`] has the open orders by price, [`matching`] fills them.
//! - Ending: [`cancel`], and [`heartbeats`] of accounts that go silent (`silences`).
//! - In the state: [`life`] is an order's terms, progress and end, `packed_life` how a shard stores
//!   it, `transitions` how it changes, `table` the kept orders, [`placed`] which of them are kept,
//!   and [`receipt`] what an answer is written from.

pub mod cancel;
pub(in crate::engine) mod cost;
pub mod fee;
pub mod heartbeats;
pub mod held;
pub mod hold;
pub mod idempotency;
pub mod life;
pub mod matching;
pub mod open;
pub(in crate::engine) mod packed_life;
pub mod payload;
pub mod place;
pub mod placed;
pub mod preview;
pub mod receipt;
pub(in crate::engine) mod silences;
pub(in crate::engine) mod slippage;
pub(in crate::engine) mod table;
pub(in crate::engine) mod take;
pub mod terms;
pub(in crate::engine) mod transitions;
