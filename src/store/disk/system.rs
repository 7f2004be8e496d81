//! Operations of the real file system that take more than one call.

use std::any::Any;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

#[cfg(target_os = "linux")]
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
#[cfg(target_os = "linux")]
use rustix::io::Errno;

use super::Access;
#[cfg(target_os = "linux")]
use super::PAGE_BYTES;

/// The data reveals who trades what, so only its owner may read it. Existing files and directories
/// keep their mode.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

pub(super) fn open(access: Access, path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).mode(FILE_MODE);
    match access {
        Access::Read => {}
        Access::Write => _ = options.write(true),
        Access::Create => _ = options.write(true).create(true).truncate(true),
    }
    options.open(path)
}

/// Opens an existing file for durable writes that bypass the page cache, in whole pages. Returns
/// `None` if the file system does not support that, if the kernel does not report whether it does
/// (before Linux 6.1), or if a sandbox forbids the query.
#[cfg(target_os = "linux")]
pub(super) fn open_direct(path: &Path) -> io::Result<Option<File>> {
    match open_if_direct(path) {
        Err(error) if is_refusal(&error) => Ok(None),
        opened => opened,
    }
}

#[cfg(target_os = "linux")]
fn is_refusal(error: &io::Error) -> bool {
    let refusals = [Errno::NOSYS, Errno::PERM, Errno::INVAL, Errno::OPNOTSUPP];
    refusals.iter().any(|refusal| error.raw_os_error() == Some(refusal.raw_os_error()))
}

#[cfg(target_os = "linux")]
fn open_if_direct(path: &Path) -> io::Result<Option<File>> {
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::DIOALIGN)?;
    let is_told = found.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    let alignments = [found.stx_dio_mem_align, found.stx_dio_offset_align];
    // Alignments are powers of two, so any alignment of at most a page divides the page size.
    let fits = |alignment| alignment != 0 && u64::from(alignment) <= PAGE_BYTES as u64;
    if !is_told || !alignments.into_iter().all(fits) {
        return Ok(None);
    }
    // Not rustix's flags: its `DSYNC` is `O_SYNC`, which also waits for the file's timestamps.
    let flags = libc::O_DIRECT | libc::O_DSYNC;
    OpenOptions::new().write(true).custom_flags(flags).open(path).map(Some)
}

/// Only Linux reports whether a file system supports writes that bypass the page cache.
#[cfg(not(target_os = "linux"))]
pub(super) fn open_direct(_path: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

pub(super) fn names(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
}

pub(super) fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIRECTORY_MODE).create(path)
}

/// An open file that holds a lock.
struct LockedFile(File);

/// Unlocks explicitly. Closing the file is not enough: a child forked in the meantime shares the
/// lock until it executes its own program.
impl Drop for LockedFile {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Opens and locks a file. The open file holds the lock. Returns `None` if another process has
/// locked the file.
pub(super) fn lock(path: &Path) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(FILE_MODE);
    let file = options.open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(Box::new(LockedFile(file)))),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(source)) => Err(source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_lock_is_free_although_a_forked_process_still_has_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let held = lock(&path).unwrap().unwrap();
        let forked = held.downcast_ref::<LockedFile>().unwrap().0.try_clone().unwrap();
        assert!(lock(&path).unwrap().is_none(), "it is held");
        drop(held);
        assert!(lock(&path).unwrap().is_some(), "it is free");
        drop(forked);
    }
}
