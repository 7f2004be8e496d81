//! Polymarket: the formats of its public services.
//!
//! `wire` reads what they send. Recordings of them are played by [`super::recorded`]; nothing here
//! opens a connection.

pub mod wire;
