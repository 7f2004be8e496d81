//! Reports on a data directory, for people and scripts: its contents, and whether they are intact.
//!
//! Nothing here takes the lock or changes a file, so everything works alongside a running server
//! ([`walk`] explains how) and on a read-only copy. The functions return reports that format
//! themselves as text or JSON; printing them is up to the caller.

pub mod describe;
mod dump;
mod stats;
mod text;
mod verify;
pub(crate) mod walk;

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

pub use dump::{DumpError, dump};
use serde::Serialize;
pub use stats::{Stats, stats};
pub use text::Text;
pub use text::{count, run};
pub use verify::{VerifyReport, verify};

use crate::disk::{Disk, DiskError};
use crate::journal::OpenError;
use crate::journal::record::RecordError;
use crate::snapshot::{ContainerError, Folder, LoadError, RefusedRecord, ReplayError};

/// Error that ended an inspection.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The directory does not exist, or is not a data directory.
    #[error(
        "{} holds no journal: name the server's --data folder",
        directory.display()
    )]
    NoJournal {
        /// The directory that was given.
        directory: PathBuf,
    },
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] OpenError),
    /// The snapshot cannot be read.
    #[error(transparent)]
    Snapshot(#[from] LoadError),
    /// The journal does not continue the snapshot.
    #[error(
        "{} does not end where the snapshot of segments 1 to {segment} says; restore the files \
         from a backup",
        path.display()
    )]
    Parted {
        /// Path of the last segment that the snapshot covers.
        path: PathBuf,
        /// The number of the last segment that the snapshot covers.
        segment: u64,
    },
    /// A record cannot be applied to the state before it.
    #[error("{} at offset {offset}: {source}; start from a backup", path.display())]
    Replay {
        /// The segment.
        path: PathBuf,
        /// File offset of the record.
        offset: u64,
        /// The reason.
        source: ReplayError,
    },
}

impl From<RefusedRecord> for InspectError {
    fn from(refused: RefusedRecord) -> Self {
        let RefusedRecord { path, offset, reason } = refused;
        Self::Replay { path, offset, source: reason }
    }
}

impl From<DiskError> for InspectError {
    fn from(error: DiskError) -> Self {
        Self::Journal(error.into())
    }
}

impl InspectError {
    /// Whether the files are damaged, as opposed to a failure of this program or the machine.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::NoJournal { .. }
            | Self::Journal(
                OpenError::NewerVersion { .. }
                | OpenError::OlderVersion { .. }
                | OpenError::InUse { .. }
                | OpenError::Random(_),
            )
            | Self::Snapshot(LoadError::Container(
                ContainerError::Newer { .. } | ContainerError::Older { .. },
            ))
            | Self::Replay {
                source: ReplayError::Record(RecordError::UnknownKind { .. }), ..
            } => false,
            _ => self.disk_error().is_none_or(is_not_found),
        }
    }

    /// Returns the error's message, followed by the messages of its causes.
    pub fn message(&self) -> String {
        message(self)
    }

    fn disk_error(&self) -> Option<&DiskError> {
        match self {
            Self::Journal(OpenError::Disk(error)) | Self::Snapshot(LoadError::Disk(error)) => {
                Some(error)
            }
            _ => None,
        }
    }
}

/// Returns an error's message, followed by the messages of its causes, except those that it already
/// includes.
pub fn message(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    text
}

impl walk::Gone for InspectError {
    fn is_gone(&self) -> bool {
        matches!(
            self,
            Self::Journal(OpenError::MissingSegment { .. } | OpenError::NoSegments { .. })
        ) || self.disk_error().is_some_and(is_not_found)
    }
}

fn is_not_found(error: &DiskError) -> bool {
    error.source.kind() == io::ErrorKind::NotFound
}

/// Damage to the files, described for the operator.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DamageReport {
    /// The damaged file. `None` if the damage is not in a single file.
    pub file: Option<String>,
    /// Offset in the file, in bytes.
    pub offset: Option<u64>,
    /// The problem, its location and how to repair it.
    pub message: String,
}

impl DamageReport {
    fn of(error: &InspectError) -> Self {
        let (file, offset) = match error {
            InspectError::Journal(error) => match error {
                OpenError::Damaged { path, offset, .. } => (Some(path), Some(*offset)),
                OpenError::SegmentHeader { path } => (Some(path), Some(0)),
                OpenError::MissingSegment { path }
                | OpenError::SegmentMismatch { path }
                | OpenError::ForeignSegment { path }
                | OpenError::NoSegments { directory: path }
                | OpenError::Disk(DiskError { path, .. }) => (Some(path), None),
                _ => (None, None),
            },
            InspectError::Snapshot(error) => match error {
                LoadError::Container(ContainerError::Damaged { path, offset, .. }) => {
                    (Some(path), Some(*offset))
                }
                LoadError::Manifest { path, .. }
                | LoadError::Mismatch { path }
                | LoadError::Shard { path, .. }
                | LoadError::Disk(DiskError { path, .. }) => (Some(path), None),
                LoadError::Container(_) => (None, None),
            },
            InspectError::Replay { path, offset, .. } => (Some(path), Some(*offset)),
            InspectError::Parted { path, .. } => (Some(path), None),
            InspectError::NoJournal { .. } => (None, None),
        };
        let file = file.map(|path| path.display().to_string());
        Self { file, offset, message: error.message() }
    }
}

impl fmt::Display for DamageReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

/// Opens the data directory of a server, which may be running.
pub(crate) fn folder(directory: &Path) -> Result<Folder, InspectError> {
    let folder = Folder::new(Disk::System, directory);
    if folder.disk.exists(&folder.journal())? {
        Ok(folder)
    } else {
        Err(InspectError::NoJournal { directory: directory.to_path_buf() })
    }
}
