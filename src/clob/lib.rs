#![doc = include_str!("README.md")]

pub mod credentials;
pub mod order;
pub mod signature;
#[cfg(any(test, feature = "test-util"))]
pub mod signing;
mod text;
pub mod timestamp;
pub mod trouble;
#[cfg(test)]
mod vectors;
