//! A copy of a data directory on which a server can start, taken beside a running one.
//!
//! The newest snapshot is copied and what is behind it in the journal, up to the last whole block:
//! every write that was acknowledged before the copying began is in it. The server knows nothing of
//! it and never waits. What is read is checked as it is at a start, and the copy is verified before
//! it gets its name, so a backup that is there can be started on. Prepared segments and the archive
//! stay behind: a start makes new ones, and needs no old ones.

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

/// Why there is no backup. Nothing was left behind, but for what it says.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The data directory cannot be read.
    #[error(transparent)]
    Inspect(#[from] InspectError),
    /// The target is there.
    #[error(
        "{} exists and is not an empty directory; name one that does not exist",
        path.display()
    )]
    TargetExists {
        /// The target.
        path: PathBuf,
    },
    /// The target cannot be the name of a directory.
    #[error("{} does not end in a name; name a directory that does not exist", path.display())]
    TargetName {
        /// The target.
        path: PathBuf,
    },
    /// Another backup is being made there, or ended in the middle.
    #[error(
        "{} exists: a backup is being made there, or one did not come to its end; remove it if \
         none is running",
        path.display()
    )]
    Unfinished {
        /// The unfinished backup.
        path: PathBuf,
    },
    /// The copy is not what was read: the disk that it was written to is not to be trusted.
    #[error("the copy is damaged and was removed: {message}")]
    CopyDamaged {
        /// What is wrong with it.
        message: String,
    },
    /// The issuer's key cannot be copied.
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// What a backup holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BackupReport {
    /// Where it is.
    pub target: String,
    /// The last segment that its snapshot covers, if there is one.
    pub snapshot_segment: Option<u64>,
    /// How many segments are behind that.
    pub segments: u64,
    /// The position of its newest record: this one and all before it are in it.
    pub last_position: u64,
    /// How many bytes of snapshot and journal it holds.
    pub bytes: u64,
    /// Whether the key of the embedded issuer is in it.
    pub has_issuer_key: bool,
}

/// Copies a data directory to a place where nothing is yet.
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
        // Why there is no backup is told; that its remains are in the way would not help.
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

/// Who cannot look into the data directory cannot look into its backup.
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
    };
    // First the snapshot: what is behind it stays until there are two newer ones.
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
        write!(formatter, ", {key} the issuer's key")
    }
}
