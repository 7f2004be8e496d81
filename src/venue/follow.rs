//! Following a live venue, whichever it is: how far each book can be trusted, how late each message
//! is, and when to request a book. Pure: callers pass the time in.

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

/// When something arrived, by both clocks. Lateness is judged by the arrival and not by the time of
/// processing: waiting in our own queue does not make a message late.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// Monotonic time since the start.
    pub elapsed: Duration,
    /// Wall-clock time.
    pub time: Timestamp,
}
