//! Code shared by the server's tests and the load generator: a client of HTTP/1.1,
//! WebSockets and server-sent events that works on the bytes of the wire, and the server as a
//! process.
//!
//! It does not use the server's code, so that neither side can hide a mistake of the other.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

pub mod address;
pub mod brokers;
mod connection;
pub mod event_stream;
pub mod follower;
pub mod head;
pub mod link;
pub mod process;
pub mod recordings;
mod request;
mod response;
pub mod socket;
pub mod value;
pub mod witness;

#[cfg(feature = "otlp")]
pub use opentelemetry_proto::tonic as otlp;

pub use connection::{Client, Connection, NOBODY, PATIENCE, uninterrupted};
pub use request::Request;
pub use response::Response;
