//! JSON text, read one level at a time and written straight into a buffer.

mod plain;
pub(in crate::http) mod read;
mod scan;
pub mod write;
