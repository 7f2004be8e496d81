//! Copies a data directory so that a server can start on the copy, even while a server is running
//! on the original.
//!
//! The backup holds the newest snapshot and the journal after it, up to the last complete block:
//! every write acknowledged before the backup began. The running server is not involved and never
//! waits. Everything is checked as at a start, and the copy is verified before it gets its final
//! name, so every finished backup can be started on. Preallocated segments and the archive are not
//! copied: a start makes new segments and needs no archive.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::auth::identity::key_file::{self, KeyFileError};
use crate::disk::{DiskError, temporary_name};
use crate::inspect::{self, InspectError, count, run, verify, walk};
use crate::journal::{Batch, SegmentReader, segment_name};
use crate::snapshot::{Folder, Snapshot};

/// Why a backup failed. Nothing is left behind unless stated.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The data directory cannot be read.
    #[error(transparent)]
    Inspect(#[from] InspectError),
    /// The target exists and is not an empty directory.
    #[error(
        "{} exists and is not an empty directory; name one that does not exist",
        path.display()
    )]
    TargetExists {
        /// The target.
        path: PathBuf,
    },
    /// The target path does not end in a name.
    #[error("{} does not end in a name; name a directory that does not exist", path.display())]
    TargetName {
        /// The target.
        path: PathBuf,
    },
    /// Another backup to this target is running or was interrupted.
    #[error(
        "{} exists: another backup is running or was interrupted; remove it if none is running",
        path.display()
    )]
    Unfinished {
        /// The unfinished backup.
        path: PathBuf,
    },
    /// The copy does not match the original: the target's disk is unreliable.
    #[error("the copy is damaged and was removed: {message}")]
    CopyDamaged {
        /// What is wrong with the copy.
        message: String,
    },
    /// The issuer's key cannot be copied.
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// The contents of a backup.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
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
pub fn backup(directory: &Path, target: &Path) -> Result<BackupReport, BackupError> {
    let folder = inspect::folder(directory)?;
    let disk = folder.disk.clone();
    let failed = |action, source| DiskError { action, path: target.to_path_buf(), source };
    let target = std::path::absolute(target).map_err(|error| failed("find", error))?;
    let (Some(_), Some(parent)) = (target.file_name(), target.parent()) else {
        return Err(BackupError::TargetName { path: target });
    };
    if disk.exists(&target)? && !is_empty_directory(&target) {
        return Err(BackupError::TargetExists { path: target });
    }
    let temporary = temporary_name(&target);
    if disk.exists(&temporary)? {
        return Err(BackupError::Unfinished { path: temporary });
    }
    let report = copy_and_verify(&folder, directory, &temporary, &target).and_then(|report| {
        disk.rename(&temporary, &target)?;
        disk.sync_directory(parent)?;
        Ok(report)
    });
    if report.is_err() {
        // Report why the backup failed, not that its remains could not be removed.
        let _ = disk.remove_directory(&temporary);
    }
    report
}

fn is_empty_directory(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

fn copy_and_verify(
    folder: &Folder,
    directory: &Path,
    temporary: &Path,
    target: &Path,
) -> Result<BackupReport, BackupError> {
    let mut report = walk::start_over_when_gone(|| {
        folder.disk.remove_directory(temporary)?;
        folder.disk.create_directory(temporary)?;
        copy(folder, &Folder::new(folder.disk.clone(), temporary))
    })?;
    report.target = target.display().to_string();
    report.has_issuer_key = key_file::copy(directory, temporary)?;
    share_mode(directory, temporary).map_err(|source| DiskError {
        action: "set the mode of",
        path: temporary.to_path_buf(),
        source,
    })?;
    folder.disk.sync_directory(temporary)?;
    let verified = verify(temporary)?;
    match verified.damage {
        None => Ok(BackupReport { last_position: verified.last_position, ..report }),
        Some(damage) => Err(BackupError::CopyDamaged { message: damage.message }),
    }
}

/// Gives the backup the permissions of the data directory.
fn share_mode(from: &Path, to: &Path) -> io::Result<()> {
    fs::set_permissions(to, fs::metadata(from)?.permissions())
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
        lacks_price_hours: false,
    };
    // The snapshot first: the segments after it stay until two newer snapshots exist.
    let snapshot = Snapshot::newest(from)?;
    if let Some(snapshot) = &snapshot {
        disk.create_directory(&to.snapshots())?;
        for path in snapshot.paths() {
            let name = path.file_name().expect("a file of the snapshot has a name");
            disk.copy(path, &to.snapshots().join(name))?;
        }
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
    // It is replaced as a whole while the server runs, so a copy is whole, too.
    let hours = from.price_hours();
    if disk.exists(&hours)? {
        report.lacks_price_hours = !disk.is_regular_file(&hours)?;
        if !report.lacks_price_hours {
            disk.copy(&hours, &to.price_hours())?;
        }
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
