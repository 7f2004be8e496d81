//! Polymarket: the formats of its public services, and what its messages mean for our books.
//!
//! [`wire`] parses what they send, `events` turns it into changes of books, and [`follower`]
//! decides what to do about it. [`live`] connects the follower to the services;
//! [`super::recorded`] plays recordings that others made. [`doctor`] judges whether the services
//! still are what all of this takes them for.

pub mod doctor;
mod events;
pub mod filter;
pub mod follower;
pub mod hash;
pub mod live;
pub mod resolution;
pub mod unstated_delay;
pub mod wire;
