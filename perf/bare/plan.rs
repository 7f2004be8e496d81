//! The plan of the frames that the bare loop writes to its sockets.

use serde::{Deserialize, Serialize};

/// Frames of markets that change at certain times.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    /// The length of each frame, in bytes.
    pub(crate) frame_bytes: usize,
    /// The number of open sockets at which the loop begins.
    pub(crate) socket_count: usize,
    /// The changes in order: milliseconds since the beginning, and the market.
    pub(crate) changes: Vec<(u64, u32)>,
    /// Time after which all changes repeat, in milliseconds.
    pub(crate) cycle_ms: u64,
}
