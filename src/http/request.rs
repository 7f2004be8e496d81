//! What clients send, read into typed values.
//!
//! Nothing is looked up here: a value that is well-formed may still name nothing.

pub mod comment;
pub mod key;
pub mod order;
pub mod path;
pub mod price;
pub mod query;
