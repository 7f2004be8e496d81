//! The data directory: all persistent data of one server, locked by one process at a time.

use std::path::Path;
use std::sync::Arc;

use super::OpenError;
use crate::disk::{Disk, DiskLock};

const LOCK_NAME: &str = "lock";

/// Directory of the segments that are read at startup.
pub const JOURNAL_NAME: &str = "journal";

/// Directory of the segments covered by a snapshot.
pub const ARCHIVE_NAME: &str = "archive";

/// File that names the cluster log that the records belong to; absent on a single server.
pub const CLUSTER_NAME: &str = "cluster";

/// File that names the log in a copy of a node's directory. A single server can also serve the
/// copy.
pub const CLUSTER_COPY_NAME: &str = "cluster-copy";

/// A locked data directory. No other process can open it while this or a clone of it is alive.
#[derive(Clone, Debug)]
pub struct DataDirectory {
    disk: Disk,
    path: Arc<Path>,
    _lock: Arc<DiskLock>,
}

impl DataDirectory {
    /// Creates the directory if necessary and locks it.
    pub fn open(disk: Disk, path: &Path) -> Result<Self, OpenError> {
        disk.create_directory(path)?;
        let Some(lock) = disk.lock(&path.join(LOCK_NAME))? else {
            return Err(OpenError::InUse { directory: path.to_path_buf() });
        };
        Ok(Self { disk, path: path.into(), _lock: Arc::new(lock) })
    }

    /// Fails if another process has opened the directory. Creates no files.
    pub fn require_free(disk: &Disk, path: &Path) -> Result<(), OpenError> {
        let lock = path.join(LOCK_NAME);
        if disk.exists(&lock)? && disk.lock(&lock)?.is_none() {
            return Err(OpenError::InUse { directory: path.to_path_buf() });
        }
        Ok(())
    }

    /// Returns the disk that holds the directory.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
