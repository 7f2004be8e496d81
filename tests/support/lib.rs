//! What the tests of the server and the load generator share: HTTP/1.1 as it is on the wire, and
//! the server as a process of its own.
//!
//! It does not use the server's own code, so that neither side can hide a mistake of the other.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod connection;
pub mod head;
pub mod process;
mod request;
mod response;

pub use connection::{Client, Connection, PATIENCE};
pub use request::Request;
pub use response::Response;
