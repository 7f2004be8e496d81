#![doc = include_str!("README.md")]

pub mod ids;
pub mod limits;
pub mod market;
pub mod money;
pub mod venue;
