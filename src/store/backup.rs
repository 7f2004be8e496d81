//! Copies a data directory so that a server can start on the copy, even while a server is running
//! on the original.
//!
//! The backup holds the newest snapshot and the journal after it, up to the last complete block:
//! every write acknowledged before the backup began. The running server is not involved and never
//! waits. Everything is checked as at startup, and the copy is verified before it gets its final
//! name, so a server can start on any finished backup. Preallocated segments and the archive are
//! not copied: a server makes new segments and needs no archive.

mod add;
mod assemble;
mod check;
mod line;
mod moment;
#[cfg(feature = "cluster")]
pub mod parts;
mod point;
mod repository;
mod restore;
mod restored;
mod retention;
mod target;

use std::fmt;
use std::ops::Not;
use std::path::Path;

use serde::Serialize;

use crate::inspect::{self, InspectError, count, run, walk};
use crate::journal::{Batch, SegmentReader, segment_name};
use crate::key_file::KeyFile;
use crate::snapshot::{Folder, Snapshot};

pub use add::{AddReport, BeginsAnew, add};
pub use check::{CheckReport, ListReport, check, list};
pub use moment::{Known, Moment};
pub use point::PointError;
pub use repository::RepositoryError;
pub use restore::{RestoreError, restore};
pub use restored::RestoreReport;
pub use retention::{Keep, PruneReport, prune};
pub use target::TargetError;

/// The contents of a backup.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BackupReport {
    /// Path of the backup.
    pub target: String,
    /// The last segment that the snapshot covers. `None` without a snapshot.
    pub snapshot_segment: Option<u64>,
    /// Number of segments after the snapshot.
    pub segments: u64,
    /// Position of the newest record in the backup. All earlier records are included.
    pub last_position: u64,
    /// Size of snapshot and journal, in bytes.
    pub bytes: u64,
    /// Whether the backup includes the key of the embedded issuer.
    pub has_issuer_key: bool,
    /// Whether the backup includes the master key of wallets.
    #[serde(skip_serializing_if = "Not::not")]
    pub has_wallets_key: bool,
    /// Whether the hourly prices were left out because they are not in a regular file. A server can
    /// start without them.
    pub lacks_price_hours: bool,
}

/// Copies a data directory to `target`, which must either not exist or be an empty directory.
pub fn backup(directory: &Path, target: &Path) -> Result<BackupReport, TargetError> {
    let folder = inspect::folder(directory)?;
    let (target, report) = target::make(&folder.disk, target, |temporary| {
        let mut report = walk::start_over_when_gone(|| {
            folder.disk.remove_directory(temporary)?;
            folder.disk.create_directory(temporary)?;
            copy(&folder, &Folder::new(folder.disk.clone(), temporary))
        })?;
        report.has_issuer_key = KeyFile::Issuer.copy(directory, temporary)?;
        report.has_wallets_key = KeyFile::Wallets.copy(directory, temporary)?;
        target::share_mode(directory, temporary)?;
        report.last_position = target::verified(&folder.disk, temporary)?;
        Ok::<_, TargetError>(report)
    })?;
    Ok(BackupReport { target: target.display().to_string(), ..report })
}

fn copy(from: &Folder, to: &Folder) -> Result<BackupReport, InspectError> {
    let disk = &from.disk;
    let mut report = BackupReport {
        target: String::new(),
        snapshot_segment: None,
        segments: 0,
        last_position: 0,
        bytes: 0,
        has_issuer_key: false,
        has_wallets_key: false,
        lacks_price_hours: false,
    };
    // Copy the snapshot first: the segments after it stay until two newer snapshots exist.
    let snapshot = Snapshot::newest(from)?;
    if let Some(snapshot) = &snapshot {
        target::copy_snapshot(snapshot, to)?;
        report.snapshot_segment = Some(snapshot.number);
        report.bytes += snapshot.bytes();
    }
    disk.create_directory(&to.journal())?;
    let first = snapshot.as_ref().map_or(1, |snapshot| snapshot.number + 1);
    let reader = SegmentReader::after(snapshot.as_ref().map(Snapshot::mark));
    walk::read_to_end(from, reader, first, &mut |batch: &Batch| -> Result<(), InspectError> {
        let path = to.journal().join(segment_name(batch.segment()));
        let bytes = batch.content().len() as u64;
        disk.create_zeroed(&path, &batch.content()[..batch.end() as usize], bytes, || ())?;
        report.segments += 1;
        report.bytes += bytes;
        Ok(())
    })?;
    disk.sync_directory(&to.journal())?;
    report.lacks_price_hours = !target::copy_price_hours(from, to)?;
    target::copy_mark(from, to)?;
    Ok(report)
}

impl fmt::Display for BackupReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: everything up to position {}", self.target, self.last_position)?;
        if let Some(last) = self.snapshot_segment {
            write!(formatter, ", a snapshot of {}", run("segment", 1, last))?;
        }
        write!(formatter, ", {}", count(self.segments, "segment"))?;
        write!(formatter, ", {}", count(self.bytes, "byte"))?;
        let key = if self.has_issuer_key { "with" } else { "without" };
        write!(formatter, ", {key} the issuer's key")?;
        if self.has_wallets_key {
            formatter.write_str(", with the master key of wallets")?;
        }
        if self.lacks_price_hours {
            formatter.write_str(", without price-hours, which is not a regular file")?;
        }
        Ok(())
    }
}
