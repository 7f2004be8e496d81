//! The rules of the stand-in, as seen by a plain client.

mod books;
mod client;
mod events;
mod faults;
mod recorded;
mod refusals;
mod rest;
mod walks;
