#![doc = include_str!("README.md")]

pub mod backup;
pub mod disk;
pub mod hours;
pub mod inspect;
pub mod journal;
pub mod key_file;
pub mod snapshot;
