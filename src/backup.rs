//! Copies a data directory so that a server can start on the copy, even while a server is running
//! on the original.
//!
//! The backup holds the newest snapshot and the journal after it, up to the last complete block:
//! every write acknowledged before the backup began. The running server is not involved and never
//! waits. Everything is checked as at a start, and the copy is verified before it gets its final
//! name, so every finished backup can be started on. Preallocated segments and the archive are not
//! copied: a start makes new segments and needs no archive.

mod add;
mod assemble;
mod check;
mod line;
mod moment;
pub mod parts;
mod point;
mod repository;
mod restore;
mod restored;
mod retention;
mod target;

use std::fmt;
use std::path::Path;

use serde::Serialize;

use crate::auth::identity::key_file;
use crate::inspect::{self, InspectError, count, run, walk};
use crate::snapshot::Folder;

pub use add::{AddReport, BeginsAnew, add};
pub use check::{CheckReport, ListReport, check, list};
pub use moment::{Known, Moment};
use parts::{File, Pieces};
pub use point::PointError;
pub use repository::RepositoryError;
pub use restore::{RestoreError, restore};
pub use restored::RestoreReport;
pub use retention::{Keep, PruneReport, prune};
pub use target::TargetError;

/// The contents of a backup.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct BackupReport {
    /// Path of the backup.
    pub target: String,
    /// The last segment that its snapshot covers. `None` without a snapshot.
    pub snapshot_segment: Option<u64>,
    /// Number of segments after that.
    pub segments: u64,
    /// Position of its newest record. All earlier records are included.
    pub last_position: u64,
    /// Size of snapshot and journal, in bytes.
    pub bytes: u64,
    /// Whether the backup includes the key of the embedded issuer.
    pub has_issuer_key: bool,
    /// Whether the hourly prices were left out because they are not in a regular file. A server
    /// starts without them, too.
    pub lacks_price_hours: bool,
}

/// Copies a data directory to `target`, which must not exist or be an empty directory.
pub fn backup(directory: &Path, target: &Path) -> Result<BackupReport, TargetError> {
    let folder = inspect::folder(directory)?;
    let (target, report) = target::make(&folder.disk, target, |temporary| {
        let mut report = walk::start_over_when_gone(|| {
            folder.disk.remove_directory(temporary)?;
            folder.disk.create_directory(temporary)?;
            copy(&folder, &Folder::new(folder.disk.clone(), temporary))
        })?;
        report.has_issuer_key = key_file::copy(directory, temporary)?;
        target::share_mode(directory, temporary)?;
        report.last_position = target::verified(&folder.disk, temporary)?;
        Ok::<_, TargetError>(report)
    })?;
    Ok(BackupReport { target: target.display().to_string(), ..report })
}

fn copy(from: &Folder, to: &Folder) -> Result<BackupReport, InspectError> {
    let parts = parts::parts(from)?;
    let mut pieces = Pieces::of(from.clone());
    let read =
        |file, offset, piece: &mut [u8]| Ok::<_, InspectError>(pieces.read(file, offset, piece)?);
    parts::write(to, &parts, read)?;
    let has = |file| parts.iter().any(|part| part.file == file);
    let hours = from.price_hours();
    let lacks_price_hours = !has(File::PriceHours) && from.disk.exists(&hours)?;
    let mut report = BackupReport { lacks_price_hours, ..BackupReport::default() };
    for part in &parts {
        match part.file {
            File::Snapshot(number) => report.snapshot_segment = Some(number),
            File::Segment(_) => report.segments += 1,
            File::Orders(_) => {}
            File::PriceHours | File::Mark => continue,
        }
        report.bytes += part.room_bytes;
    }
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
        if self.lacks_price_hours {
            formatter.write_str(", without price-hours, which is not a regular file")?;
        }
        Ok(())
    }
}
