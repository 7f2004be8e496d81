//! Following a venue as it is now, whichever it is: how far each of its books can be trusted, how
//! late its messages are, and when it is asked again. Pure: time comes in.

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

use crate::ids::Timestamp;

/// When something reached us, by both clocks. What is late is judged by this: a message that had to
/// wait for us was not late for that.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// The time since the start.
    pub elapsed: Duration,
    /// The time of day.
    pub time: Timestamp,
}
