//! Watches the memory of the process, so that it refuses requests before the system kills it.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use crate::shard::Room;
use crate::telemetry::{kilobytes, resident_bytes};

/// How often memory is checked. At the highest rate of orders, it grows by a few megabytes in
/// between.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// The default limit, in fifths of the available memory.
const DEFAULT_FIFTHS: u64 = 4;

/// The memory limit: the operator's choice, or a share of what is available. `None` if the system
/// does not report memory use.
pub(super) fn limit_bytes(chosen: Option<u64>) -> Option<u64> {
    resident_bytes()?;
    chosen.or_else(|| Some(available_bytes()? / 5 * DEFAULT_FIFTHS))
}

/// Checks whether the process is above the limit.
pub(super) fn look(room: &Room, limit_bytes: u64) {
    let Some(resident_bytes) = resident_bytes() else { return };
    let is_full = resident_bytes > limit_bytes;
    if is_full != room.is_full() {
        room.set_full(is_full);
        let (resident, limit) = (megabytes(resident_bytes), megabytes(limit_bytes));
        if is_full {
            tracing::warn!(
                resident_megabytes = resident,
                limit_megabytes = limit,
                "--memory-limit reached: refusing new accounts, keys, orders and comments"
            );
        } else {
            tracing::info!(
                resident_megabytes = resident,
                limit_megabytes = limit,
                "memory is below --memory-limit again: accepting everything"
            );
        }
    }
}

/// Checks memory periodically until the process ends.
pub(super) async fn watch(room: Arc<Room>, limit_bytes: u64) {
    loop {
        look(&room, limit_bytes);
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// For log lines.
pub(super) const fn megabytes(bytes: u64) -> u64 {
    bytes / 1_000_000
}

/// Memory of the machine, or of the container if that has less.
fn available_bytes() -> Option<u64> {
    let machine = kilobytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")?;
    let container = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let container = container.and_then(|text| text.trim().parse().ok());
    Some(container.map_or(machine, |container: u64| container.min(machine)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn requests_are_refused_while_memory_is_above_the_limit() {
        let room = Room::default();
        look(&room, 1);
        assert!(room.is_full());
        look(&room, u64::MAX);
        assert!(!room.is_full());
        let machine = limit_bytes(None).unwrap();
        assert!(machine > resident_bytes().unwrap());
        assert_eq!(limit_bytes(Some(5)), Some(5));
    }
}
