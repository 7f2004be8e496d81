//! Settlement by the real binary: resolved markets pay exactly once and to the micro-dollar,
//! however often the server is killed and whatever is traded meanwhile.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod kills;
mod race;
mod recorded;
mod world;
