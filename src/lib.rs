#![doc = include_str!("README.md")]

pub use paperbourse_core::{clock, engine, histogram, ids, limits, market, money, wire};
pub use paperbourse_venue as venue;

pub mod allocator;
pub mod auth;
pub mod backup;
pub mod build;
pub mod candles;
pub mod cli;
#[cfg(feature = "cluster")]
pub mod cluster;
pub mod config;
pub mod disk;
pub mod hours;
pub mod http;
pub mod inspect;
pub mod journal;
pub mod operators;
pub mod record;
pub mod server;
pub mod service;
pub mod shard;
pub mod snapshot;
pub mod telemetry;
#[cfg(feature = "traces")]
pub mod trace;
pub mod ws;

#[cfg(test)]
#[cfg(not(paperbourse_loom))]
mod simulation;
