#![doc = include_str!("README.md")]

#[cfg(feature = "cluster")]
pub use paperbourse_cluster as cluster;
pub use paperbourse_core::{clock, engine, histogram, ids, limits, market, money, wire};
pub use paperbourse_edge::{allocator, build, http, telemetry, trouble, ws};
#[cfg(feature = "traces")]
pub use paperbourse_exchange::trace;
pub use paperbourse_exchange::{auth, candles, service, shard};
pub use paperbourse_store::{backup, disk, hours, inspect, journal, key_file, snapshot};
pub use paperbourse_venue as venue;

pub mod cli;
pub mod config;
pub mod operators;
pub mod record;
pub mod server;

#[cfg(test)]
#[cfg(not(paperbourse_loom))]
mod simulation;
