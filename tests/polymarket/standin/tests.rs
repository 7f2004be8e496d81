//! The rules of the stand-in, as a plain client sees them.

mod books;
mod client;
mod events;
mod faults;
mod recorded;
mod refusals;
mod rest;
mod walks;
