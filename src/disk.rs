//! Every operation on files that the journal needs, and nothing else touches a file: the place
//! where another disk can be put in.
//!
//! An error names what was tried and on which path. What it means is for the caller to say.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// New segments are written and synced in parts of this size, so that the flushes of the journal
/// never stand behind a whole segment of zeros.
const ZEROS_BYTES: usize = 1 << 20;

/// An operation on a file or directory that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}", path.display())]
pub struct DiskError {
    /// What was tried.
    pub action: &'static str,
    /// On what.
    pub path: PathBuf,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

/// Says what the result of an operation is about.
fn done<T>(action: &'static str, path: &Path, result: io::Result<T>) -> Result<T, DiskError> {
    #[cfg(test)]
    trace::record(action, path);
    result.map_err(|source| DiskError { action, path: path.to_path_buf(), source })
}

impl DiskError {
    /// Whether there was no room, so that the same may succeed later.
    pub fn is_full(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}

/// An open file that knows its name.
#[derive(Debug)]
pub(crate) struct DiskFile {
    file: File,
    path: PathBuf,
}

impl DiskFile {
    /// Opens a file that exists, for reading and writing.
    pub(crate) fn open(path: &Path) -> Result<Self, DiskError> {
        let file = done("open", path, OpenOptions::new().read(true).write(true).open(path))?;
        Ok(Self { file, path: path.to_path_buf() })
    }

    /// Creates a file of `bytes` zeros after `head`, all on disk, under a name that nothing reads,
    /// and then gives it its name. The directory is left to sync.
    pub(crate) fn create_zeroed(path: &Path, head: &[u8], bytes: u64) -> Result<Self, DiskError> {
        let temporary = temporary_name(path);
        let mut file = done("create", &temporary, File::create(&temporary))?;
        done("write", &temporary, file.write_all(head))?;
        let zeros = vec![0; ZEROS_BYTES];
        let mut left = bytes - head.len() as u64;
        while left > 0 {
            let part = usize::try_from(left).map_or(ZEROS_BYTES, |left| left.min(ZEROS_BYTES));
            done("write", &temporary, file.write_all(&zeros[..part]))?;
            done("sync", &temporary, file.sync_data())?;
            left -= part as u64;
        }
        done("sync", &temporary, file.sync_all())?;
        rename(&temporary, path)?;
        Ok(Self { file, path: path.to_path_buf() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes all bytes at an offset.
    pub(crate) fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), DiskError> {
        done("write", &self.path, self.file.write_all_at(bytes, offset))
    }

    /// Waits until what was written is on disk. The length of the file must not have changed.
    pub(crate) fn sync_data(&self) -> Result<(), DiskError> {
        done("sync", &self.path, self.file.sync_data())
    }

    /// Waits until content and length are on disk.
    pub(crate) fn sync_all(&self) -> Result<(), DiskError> {
        done("sync", &self.path, self.file.sync_all())
    }

    /// The whole content, into a buffer that is used again. `None` when it is longer than
    /// `bytes_max`, which is looked at before any memory is taken.
    pub(crate) fn read_into(
        &self,
        buffer: &mut Vec<u8>,
        bytes_max: u64,
    ) -> Result<Option<()>, DiskError> {
        let length = done("read", &self.path, self.file.metadata())?.len();
        if length > bytes_max {
            return Ok(None);
        }
        buffer.clear();
        done("read", &self.path, (&self.file).take(length).read_to_end(buffer))?;
        Ok(Some(()))
    }
}

/// The name under which a file or directory is prepared.
pub(crate) fn temporary_name(path: &Path) -> PathBuf {
    path.with_added_extension("tmp")
}

/// Takes the lock on a file, making it if need be, until the returned file is dropped. `None` when
/// someone else holds it.
pub(crate) fn lock(path: &Path) -> Result<Option<File>, DiskError> {
    let opened = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    let file = done("open", path, opened)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(source)) => done("lock", path, Err(source)),
    }
}

/// Whether something has this name.
pub(crate) fn exists(path: &Path) -> Result<bool, DiskError> {
    done("look for", path, fs::exists(path))
}

/// The names in a directory, in no order.
pub(crate) fn names(directory: &Path) -> Result<Vec<String>, DiskError> {
    let entries = done("list", directory, fs::read_dir(directory))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = done("list", directory, entry)?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
}

/// Makes a directory and those above it, each on disk in the one above.
pub(crate) fn create_directory(path: &Path) -> Result<(), DiskError> {
    if exists(path)? {
        return Ok(());
    }
    let parent = parent_of(path);
    create_directory(&parent)?;
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => done("create", path, created)?,
    }
    sync_directory(&parent)
}

/// Waits until the names in a directory are on disk.
pub(crate) fn sync_directory(path: &Path) -> Result<(), DiskError> {
    let directory = done("open", path, File::open(path))?;
    done("sync", path, directory.sync_all())
}

pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), DiskError> {
    done("rename", from, fs::rename(from, to))
}

pub(crate) fn remove_file(path: &Path) -> Result<(), DiskError> {
    done("remove", path, fs::remove_file(path))
}

/// Removes a directory with all that is in it, if it is there.
pub(crate) fn remove_directory(path: &Path) -> Result<(), DiskError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => done("remove", path, removed),
    }
}

/// Copies a file, with the copy on disk and its name too.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), DiskError> {
    done("copy", from, fs::copy(from, to))?;
    DiskFile::open(to)?.sync_all()?;
    sync_directory(&parent_of(to))
}

fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        Some(_) => PathBuf::from("."),
        None => PathBuf::from("/"),
    }
}

/// What this thread did, for tests of the order of operations.
#[cfg(test)]
pub(crate) mod trace {
    use std::cell::RefCell;
    use std::path::Path;

    thread_local! {
        static TRACE: RefCell<Vec<(&'static str, String)>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn record(action: &'static str, path: &Path) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        TRACE.with_borrow_mut(|trace| trace.push((action, name)));
    }

    /// All operations since the last call, each with the last part of its path.
    pub(crate) fn take() -> Vec<(&'static str, String)> {
        TRACE.take()
    }
}
