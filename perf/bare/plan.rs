//! What the bare loop writes to its sockets, and when.

use serde::{Deserialize, Serialize};

/// Frames of markets that change at certain times.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    /// The length of each frame.
    pub(crate) frame_bytes: usize,
    /// It begins once so many sockets are open.
    pub(crate) socket_count: usize,
    /// When markets change, in milliseconds since the beginning, in order, and which.
    pub(crate) changes: Vec<(u64, u32)>,
    /// After this time, all changes come again.
    pub(crate) cycle_ms: u64,
}
