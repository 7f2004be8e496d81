#![doc = include_str!("README.md")]

pub mod auth;
pub mod cli;
pub mod config;
pub mod engine;
pub mod http;
pub mod ids;
pub mod journal;
pub mod limits;
pub mod market;
pub mod money;
pub mod server;
pub mod service;
pub mod shard;
pub mod telemetry;
pub mod venue;
pub mod ws;
