//! Tests against a stand-in that plays the live venue by its rules, over TLS: no test machine can
//! reach the real one.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod auditor;
mod clock;
mod connector;
mod crowd;
mod current;
mod delayed;
mod delays;
mod doctor;
mod evening;
mod follows;
mod listings;
mod misbehaves;
mod monitoring;
mod races;
mod recordings;
mod restarts;
mod served;
mod standin;
mod tape;
