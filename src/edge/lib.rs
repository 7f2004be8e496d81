#![doc = include_str!("README.md")]

pub mod allocator;
pub mod build;
pub mod http;
pub mod telemetry;
pub mod ws;
