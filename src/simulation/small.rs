//! Small limits, which make rare events frequent.

use std::sync::Arc;
use std::time::Duration;

use crate::journal::JournalConfig;
use crate::snapshot::{Pace, SnapshotConfig, Stopped};

/// The data directory on every disk.
pub(super) const DATA: &str = "/data";

pub(super) const SEGMENT_BYTES: u64 = 64 << 10;

/// A pace that takes a snapshot without running anything else.
pub(super) struct Uninterrupted;

impl Pace for Uninterrupted {
    fn step(&mut self) -> Result<(), Stopped> {
        Ok(())
    }
}

/// Returns a configuration that takes a snapshot of every segment.
pub(super) fn snapshot_config() -> SnapshotConfig {
    SnapshotConfig {
        journal_bytes: 1,
        interval: Duration::MAX,
        cpu_percent: 100,
        archive_bytes: 4 * SEGMENT_BYTES,
    }
}

pub(super) fn journal_config() -> JournalConfig {
    JournalConfig {
        segment_bytes: SEGMENT_BYTES,
        segments_ahead_max: 1,
        ring_bytes: 64 << 10,
        block_bytes_max: 16 << 10,
        record_bytes_max: 3000,
        on_lost: Arc::new(|error| panic!("never called without threads: {error}")),
        ..JournalConfig::default()
    }
}
