#![doc = include_str!("README.md")]

#[cfg(feature = "cluster")]
pub use paperbourse_cluster as cluster;
pub use paperbourse_core::{clock, engine, histogram, ids, limits, market, money, wire};
#[cfg(feature = "traces")]
pub use paperbourse_exchange::trace;
pub use paperbourse_exchange::{auth, candles, service, shard};
pub use paperbourse_store::{backup, disk, hours, inspect, journal, key_file, snapshot};
pub use paperbourse_venue as venue;

pub mod allocator;
pub mod build;
pub mod cli;
pub mod config;
pub mod http;
pub mod operators;
pub mod record;
pub mod server;
pub mod telemetry;
pub mod ws;

#[cfg(test)]
#[cfg(not(paperbourse_loom))]
mod simulation;
