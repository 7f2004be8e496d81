//! The data directory that a backup or a restore creates. It has a temporary name until it is
//! complete and verified, so that a server can start on any directory with a final name.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, DiskError, temporary_name};
use crate::inspect::{InspectError, message, verify};
use crate::journal::{CLUSTER_COPY_NAME, CLUSTER_NAME};
use crate::key_file::KeyFileError;
use crate::snapshot::{Folder, Snapshot};

/// Error creating a data directory. Nothing is left behind unless stated otherwise.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The original cannot be read.
    #[error(transparent)]
    Inspect(#[from] InspectError),
    /// The target exists and is not an empty directory.
    #[error(
        "{} exists and is not an empty folder; name one that does not exist",
        path.display()
    )]
    Exists {
        /// The target.
        path: PathBuf,
    },
    /// The target path does not end in a name.
    #[error("{} does not end in a name; name a folder that does not exist", path.display())]
    Name {
        /// The target.
        path: PathBuf,
    },
    /// Another process is creating this target, or was interrupted.
    #[error(
        "{} exists: another backup or restore is running or was interrupted; remove it if none is \
         running",
        path.display()
    )]
    Unfinished {
        /// The unfinished directory.
        path: PathBuf,
    },
    /// The copy does not match the original: the target's disk is unreliable.
    #[error("the copy is damaged and was removed: {message}")]
    CopyDamaged {
        /// The error found in the copy.
        message: String,
    },
    /// A key cannot be copied.
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl TargetError {
    /// Whether the original is damaged, as opposed to a failure of this program or the machine.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Inspect(error) if error.is_damage())
    }

    /// Returns the error's message, followed by the messages of its causes.
    pub fn message(&self) -> String {
        message(self)
    }
}

/// Creates the directory `target`, which must either not exist or be empty. `fill` writes its
/// contents under the temporary name that it is given. Returns the absolute path of `target` and
/// the result of `fill`.
pub(super) fn make<T, E: From<TargetError>>(
    disk: &Disk,
    target: &Path,
    fill: impl FnOnce(&Path) -> Result<T, E>,
) -> Result<(PathBuf, T), E> {
    let (target, temporary) = prepare(disk, target)?;
    let made = fill(&temporary).and_then(|made| {
        let renamed = disk.rename(&temporary, &target);
        let parent = target.parent().expect("it has a name, so it has a parent");
        renamed.and_then(|()| disk.sync_directory(parent)).map_err(TargetError::from)?;
        Ok(made)
    });
    if made.is_err() {
        // Report the original error rather than a failure to remove the remains.
        let _ = disk.remove_directory(&temporary);
    }
    made.map(|made| (target, made))
}

/// Returns the absolute path of a target and its temporary name. Fails unless both are free.
fn prepare(disk: &Disk, target: &Path) -> Result<(PathBuf, PathBuf), TargetError> {
    let failed = |source| DiskError { action: "find", path: target.to_path_buf(), source };
    let target = std::path::absolute(target).map_err(failed)?;
    if target.file_name().is_none() {
        return Err(TargetError::Name { path: target });
    }
    if disk.exists(&target)? && !is_empty_directory(&target) {
        return Err(TargetError::Exists { path: target });
    }
    let temporary = temporary_name(&target);
    if disk.exists(&temporary)? {
        return Err(TargetError::Unfinished { path: temporary });
    }
    Ok((target, temporary))
}

fn is_empty_directory(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

/// Syncs and verifies a finished copy. Returns the position of its newest record.
pub(super) fn verified(disk: &Disk, copy: &Path) -> Result<u64, TargetError> {
    disk.sync_directory(copy)?;
    let verified = verify(copy)?;
    match verified.damage {
        None => Ok(verified.last_position),
        Some(damage) => Err(TargetError::CopyDamaged { message: damage.message }),
    }
}

/// Gives a copy the permissions of the data directory.
pub(super) fn share_mode(from: &Path, to: &Path) -> Result<(), DiskError> {
    let set = || -> io::Result<()> { fs::set_permissions(to, fs::metadata(from)?.permissions()) };
    set().map_err(|source| DiskError { action: "set the mode of", path: to.to_path_buf(), source })
}

/// Copies a snapshot with all its files.
pub(super) fn copy_snapshot(snapshot: &Snapshot, to: &Folder) -> Result<(), DiskError> {
    to.disk.create_directory(&to.snapshots())?;
    for path in snapshot.paths() {
        let name = path.file_name().expect("a file of the snapshot has a name");
        to.disk.copy(path, &to.snapshots().join(name))?;
    }
    Ok(())
}

/// Copies the hourly prices, if there are any. Returns false if they cannot be copied because they
/// are not in a regular file; a server can start without them.
pub(super) fn copy_price_hours(from: &Folder, to: &Folder) -> Result<bool, DiskError> {
    // The file is replaced as a whole while the server runs, so the copy is consistent, too.
    let hours = from.price_hours();
    if !from.disk.exists(&hours)? {
        return Ok(true);
    }
    let is_regular = from.disk.is_regular_file(&hours)?;
    if is_regular {
        to.disk.copy(&hours, &to.price_hours())?;
    }
    Ok(is_regular)
}

/// Copies the file that names the cluster's log, if there is one. The copy is always named
/// [`CLUSTER_COPY_NAME`], which does not keep a single server from using the folder.
pub(super) fn copy_mark(from: &Folder, to: &Folder) -> Result<(), DiskError> {
    for name in [CLUSTER_NAME, CLUSTER_COPY_NAME] {
        let mark = from.path().join(name);
        if from.disk.exists(&mark)? && from.disk.is_regular_file(&mark)? {
            return to.disk.copy(&mark, &to.path().join(CLUSTER_COPY_NAME));
        }
    }
    Ok(())
}
