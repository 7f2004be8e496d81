//! The file systems of this machine, where an operation takes more than one call.

use std::any::Any;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;

use super::Access;

pub(super) fn open(access: Access, path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    match access {
        Access::Read => {}
        Access::Write => _ = options.write(true),
        Access::Create => _ = options.write(true).create(true).truncate(true),
    }
    options.open(path)
}

pub(super) fn names(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
}

/// The lock is held by the open file.
pub(super) fn lock(path: &Path) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(Box::new(file))),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(source)) => Err(source),
    }
}
