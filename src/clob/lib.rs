#![doc = include_str!("README.md")]

pub mod signature;
mod text;
pub mod timestamp;
#[cfg(test)]
mod vectors;
