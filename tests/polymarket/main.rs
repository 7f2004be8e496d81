//! The live venue, which no test machine can reach: a stand-in plays it, by its rules, over TLS.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod auditor;
mod connector;
mod crowd;
mod follows;
mod listings;
mod misbehaves;
mod recordings;
mod served;
mod standin;
mod tape;
