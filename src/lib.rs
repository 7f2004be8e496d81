#![doc = include_str!("README.md")]

pub mod auth;
pub mod engine;
pub mod http;
pub mod ids;
pub mod journal;
pub mod limits;
pub mod market;
pub mod money;
pub mod shard;
pub mod venue;
pub mod ws;
