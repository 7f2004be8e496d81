//! The parts of following a live venue that all venues share: how far to trust each book, how late
//! each message is, and when to request a book. Pure: callers pass in the time.

pub(super) mod backoff;
pub mod books;
pub mod delay;
pub mod freshness;
pub(super) mod lag;
pub mod request;
pub mod status;
pub mod timing;
pub(super) mod tracker;
pub(super) mod trust;

use std::time::Duration;

use paperbourse_core::ids::Timestamp;

/// An arrival time by both clocks. Lateness is measured at arrival, not at processing, so that time
/// spent in our own queue does not make a message late.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// Monotonic time since the start.
    pub elapsed: Duration,
    /// Wall-clock time.
    pub time: Timestamp,
}
