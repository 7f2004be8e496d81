#![doc = include_str!("README.md")]

pub mod auth;
pub mod candles;
pub mod service;
pub mod shard;
#[cfg(feature = "traces")]
pub mod trace;
