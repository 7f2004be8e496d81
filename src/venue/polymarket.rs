//! Polymarket: the formats of its public services, and what its messages mean for our books.
//!
//! [`wire`] reads what they send, `events` says what that changes in books, and [`follower`]
//! decides what follows from it. [`live`] carries between the follower and the services as they are
//! now; recordings of others are played by [`super::recorded`].

mod events;
pub mod filter;
pub mod follower;
pub mod hash;
pub mod live;
pub mod resolution;
pub mod wire;
