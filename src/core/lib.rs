#![doc = include_str!("README.md")]

pub mod clock;
pub mod engine;
pub mod faults;
pub mod histogram;
pub mod ids;
pub mod limits;
pub mod market;
pub mod money;
pub mod sizes;
pub mod wire;
