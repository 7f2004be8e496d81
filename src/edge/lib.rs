#![doc = include_str!("README.md")]

pub mod allocator;
pub mod build;
pub mod http;
mod rows;
pub mod telemetry;
pub mod trouble;
pub mod ws;
