#![doc = include_str!("README.md")]

pub use paperbourse_core::{clock, engine, histogram, ids, limits, market, money, wire};
pub use paperbourse_store::{backup, disk, hours, inspect, journal, key_file, snapshot};
pub use paperbourse_venue as venue;

pub mod allocator;
pub mod auth;
pub mod build;
pub mod candles;
pub mod cli;
#[cfg(feature = "cluster")]
pub mod cluster;
pub mod config;
pub mod http;
pub mod operators;
pub mod record;
pub mod server;
pub mod service;
pub mod shard;
pub mod telemetry;
#[cfg(feature = "traces")]
pub mod trace;
pub mod ws;

#[cfg(test)]
#[cfg(not(paperbourse_loom))]
mod simulation;
