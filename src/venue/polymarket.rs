//! The Polymarket connector: the formats of the public services, and how their messages change our
//! books.
//!
//! [`wire`] parses messages, `events` turns them into changes of books, and [`follower`] decides
//! how to react. [`live`] connects the follower to the services; [`super::recorded`] plays
//! recordings made by others. [`doctor`] checks whether the services still behave as this code
//! expects.

pub mod doctor;
mod events;
pub mod filter;
pub mod follower;
pub mod hash;
pub mod live;
pub mod resolution;
pub mod unstated_delay;
pub mod wire;
