#![doc = include_str!("README.md")]

pub mod credentials;
pub mod signature;
mod text;
pub mod timestamp;
#[cfg(test)]
mod vectors;
