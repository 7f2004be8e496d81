//! The data directory: everything of one server that must outlive it, for one process at a time.

use std::path::Path;
use std::sync::Arc;

use super::OpenError;
use crate::disk::{Disk, DiskLock};

const LOCK_NAME: &str = "lock";

/// Where the segments are that a start reads.
pub(crate) const JOURNAL_NAME: &str = "journal";

/// Where segments go that a snapshot covers.
pub(crate) const ARCHIVE_NAME: &str = "archive";

/// A data directory that no other process can open as long as this or a clone of it lives.
#[derive(Clone, Debug)]
pub struct DataDirectory {
    disk: Disk,
    path: Arc<Path>,
    _lock: Arc<DiskLock>,
}

impl DataDirectory {
    /// Makes the directory if need be and takes its lock.
    pub fn open(disk: Disk, path: &Path) -> Result<Self, OpenError> {
        disk.create_directory(path)?;
        let Some(lock) = disk.lock(&path.join(LOCK_NAME))? else {
            return Err(OpenError::InUse { directory: path.to_path_buf() });
        };
        Ok(Self { disk, path: path.into(), _lock: Arc::new(lock) })
    }

    /// The disk on which it lies.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Where it lies on the disk.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
