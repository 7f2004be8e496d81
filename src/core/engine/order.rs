//! Orders.
//!
//! - Placing: [`payload`] is the order as the caller wrote it, [`idempotency`] recognises retries,
//!   [`place`] decides orders, and `take` checks an order and takes liquidity from the book.
//!   [`terms`], [`fee`], `cost` and `slippage` have the rules. [`preview`] decides an order without
//!   producing an event.
//! - Holding orders where the venue delays takers: [`delay`] and [`delayed`].
//! - Resting and filling: [`open`] indexes the open orders by price, and [`matching`] fills them.
//! - Ending: [`cancel`], and [`heartbeats`] for accounts that go silent (`silences`).
//! - Storing: [`order_state`] is an order's terms, progress and end, `packed_state` is its stored
//!   form, and `transitions` has its changes. `table` stores the kept orders, [`placed`] decides
//!   which orders are kept, and [`receipt`] is the source of every answer.
//! - Following: [`news`] is what records say about the orders of some accounts.

pub mod cancel;
pub(in crate::engine) mod cost;
pub mod delay;
pub mod delayed;
pub mod fee;
pub mod heartbeats;
pub mod idempotency;
pub mod matching;
pub mod news;
pub mod open;
pub mod order_state;
pub(in crate::engine) mod packed_state;
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
