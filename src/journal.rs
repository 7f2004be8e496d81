//! The order of what happened, and how it is kept.
pub mod record;
