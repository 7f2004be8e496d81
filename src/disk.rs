//! Every operation on the files of a data directory: the place where another disk can be put in.
//!
//! An error names what was tried and on which path. What it means is for the caller to say.

#[cfg(test)]
pub(crate) mod simulated;
mod system;

use std::any::Any;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::faults::{self, Fault};

/// Long files are written and synced in parts of this size, so that the flushes of the journal
/// never stand behind a whole file.
const PART_BYTES: usize = 256 << 10;

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
    /// Whether there was no room on the disk or among the open files, so that the same may succeed
    /// later. Neither says anything about what is on the disk.
    pub fn is_full(&self) -> bool {
        let is_out_of_descriptors = self.source.raw_os_error().is_some_and(|error| {
            [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error).contains(&error)
        });
        is_out_of_descriptors
            || matches!(
                self.source.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            )
    }
}

/// What a file is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Access {
    /// Reading a file that exists.
    Read,
    /// Reading and writing a file that exists.
    Write,
    /// Reading and writing a file that is new or made empty.
    Create,
}

/// Where files are. Clones are handles of the same disk.
#[derive(Clone, Debug)]
pub enum Disk {
    /// The file systems of this machine.
    System,
    /// A model in memory, which loses what was not synced.
    #[cfg(test)]
    Simulated(simulated::SimulatedDisk),
}

impl Disk {
    /// Opens a file that exists, for reading and writing.
    pub fn open(&self, path: &Path) -> Result<DiskFile, DiskError> {
        self.open_for(Access::Write, path)
    }

    /// Opens a file that exists, for reading.
    pub fn open_read(&self, path: &Path) -> Result<DiskFile, DiskError> {
        self.open_for(Access::Read, path)
    }

    /// Makes an empty file, also of one that exists. Its name is not on disk before
    /// [`Self::sync_directory`].
    pub fn create(&self, path: &Path) -> Result<DiskFile, DiskError> {
        self.open_for(Access::Create, path)
    }

    fn open_for(&self, access: Access, path: &Path) -> Result<DiskFile, DiskError> {
        let action = if access == Access::Create { "create" } else { "open" };
        let opened = match self {
            Self::System => system::open(access, path).map(Handle::System),
            #[cfg(test)]
            Self::Simulated(disk) => disk.open(access, path).map(Handle::Simulated),
        };
        Ok(DiskFile { handle: done(action, path, opened)?, path: path.to_path_buf() })
    }

    /// Creates a file of `bytes` zeros after `head`, all on disk, under a name that nothing reads,
    /// and then gives it its name. The directory is left to sync. Calls `between_parts` where it
    /// may take its time: the disk has nothing to do then.
    pub fn create_zeroed(
        &self,
        path: &Path,
        head: &[u8],
        bytes: u64,
        mut between_parts: impl FnMut(),
    ) -> Result<DiskFile, DiskError> {
        let temporary = temporary_name(path);
        let mut file = self.create(&temporary)?;
        let mut written = 0;
        for part in head.chunks(PART_BYTES) {
            file.write_at(part, written)?;
            written += part.len() as u64;
            if part.len() == PART_BYTES {
                file.sync_data()?;
            }
        }
        let zeros = vec![0; PART_BYTES];
        while written < bytes {
            let part = part_bytes(bytes - written);
            file.write_at(&zeros[..part], written)?;
            file.sync_data()?;
            written += part as u64;
            between_parts();
        }
        file.sync_all()?;
        self.rename(&temporary, path)?;
        file.path = path.to_path_buf();
        Ok(file)
    }

    /// Whether something has this name.
    pub fn exists(&self, path: &Path) -> Result<bool, DiskError> {
        let found = match self {
            Self::System => std::fs::exists(path),
            #[cfg(test)]
            Self::Simulated(disk) => disk.exists(path),
        };
        done("look for", path, found)
    }

    /// The names in a directory, sorted.
    pub fn names(&self, directory: &Path) -> Result<Vec<String>, DiskError> {
        let names = match self {
            Self::System => system::names(directory),
            #[cfg(test)]
            Self::Simulated(disk) => disk.names(directory),
        };
        let mut names = done("list", directory, names)?;
        names.sort_unstable();
        Ok(names)
    }

    /// Makes a directory and those above it, each on disk in the one above.
    pub fn create_directory(&self, path: &Path) -> Result<(), DiskError> {
        let parent = parent_of(path);
        if self.exists(path)? {
            // The process that made it may have ended before it did this. One that may not look
            // into the directory above has not made it.
            return match self.sync_directory(&parent) {
                Err(error) if error.source.kind() == io::ErrorKind::PermissionDenied => Ok(()),
                synced => synced,
            };
        }
        self.create_directory(&parent)?;
        let created = match self {
            Self::System => system::create_directory(path),
            #[cfg(test)]
            Self::Simulated(disk) => disk.create_directory(path),
        };
        match created {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => done("create", path, created)?,
        }
        self.sync_directory(&parent)
    }

    /// Waits until the names in a directory are on disk.
    pub fn sync_directory(&self, path: &Path) -> Result<(), DiskError> {
        if faults::is_on(Fault::NoDirectorySync) {
            return Ok(());
        }
        let synced = match self {
            Self::System => File::open(path).and_then(|directory| directory.sync_all()),
            #[cfg(test)]
            Self::Simulated(disk) => disk.sync_directory(path),
        };
        done("sync", path, synced)
    }

    /// Gives a file or directory another name, in the place of a file that has it. Neither is on
    /// disk before [`Self::sync_directory`].
    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        let renamed = match self {
            Self::System => std::fs::rename(from, to),
            #[cfg(test)]
            Self::Simulated(disk) => disk.rename(from, to),
        };
        done("rename", from, renamed)
    }

    /// Removes a file. It may be back after a crash before [`Self::sync_directory`].
    pub fn remove_file(&self, path: &Path) -> Result<(), DiskError> {
        let removed = match self {
            Self::System => std::fs::remove_file(path),
            #[cfg(test)]
            Self::Simulated(disk) => disk.remove_file(path),
        };
        done("remove", path, removed)
    }

    /// Removes a directory with all that is in it, if it is there.
    pub fn remove_directory(&self, path: &Path) -> Result<(), DiskError> {
        let removed = match self {
            Self::System => std::fs::remove_dir_all(path),
            #[cfg(test)]
            Self::Simulated(disk) => disk.remove_directory(path),
        };
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => done("remove", path, removed),
        }
    }

    /// Copies a file, with the copy on disk and its name too.
    pub fn copy(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        let from = self.open_read(from)?;
        let to = self.create(to)?;
        let bytes = from.bytes()?;
        let mut buffer = vec![0; part_bytes(bytes)];
        let mut copied = 0;
        while copied < bytes {
            let part = &mut buffer[..part_bytes(bytes - copied)];
            from.read_at(part, copied)?;
            to.append(part)?;
            copied += part.len() as u64;
            if copied < bytes {
                to.sync_data()?;
            }
        }
        to.sync_all()?;
        self.sync_directory(&parent_of(to.path()))
    }

    /// Takes the lock on a file, making it if need be, until what is returned is dropped. `None`
    /// when someone else holds it.
    pub fn lock(&self, path: &Path) -> Result<Option<DiskLock>, DiskError> {
        let locked = match self {
            Self::System => system::lock(path),
            #[cfg(test)]
            Self::Simulated(disk) => disk.lock(path),
        };
        Ok(done("lock", path, locked)?.map(|held| DiskLock { _held: held }))
    }
}

/// A lock that is held as long as this lives.
#[derive(Debug)]
pub struct DiskLock {
    /// What lets go of it when it is dropped.
    _held: Box<dyn Any + Send + Sync>,
}

/// An open file that knows its name.
#[derive(Debug)]
pub struct DiskFile {
    handle: Handle,
    path: PathBuf,
}

#[derive(Debug)]
enum Handle {
    System(File),
    #[cfg(test)]
    Simulated(simulated::SimulatedFile),
}

impl DiskFile {
    /// The name under which it was opened or made.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length.
    pub fn bytes(&self) -> Result<u64, DiskError> {
        let bytes = match &self.handle {
            Handle::System(file) => file.metadata().map(|metadata| metadata.len()),
            #[cfg(test)]
            Handle::Simulated(file) => file.bytes(),
        };
        done("measure", &self.path, bytes)
    }

    /// Writes all bytes at an offset.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), DiskError> {
        let written = match &self.handle {
            Handle::System(file) => file.write_all_at(bytes, offset),
            #[cfg(test)]
            Handle::Simulated(file) => file.write_at(bytes, offset),
        };
        done("write", &self.path, written)
    }

    /// Writes all bytes behind the end of the file.
    pub fn append(&self, bytes: &[u8]) -> Result<(), DiskError> {
        self.write_at(bytes, self.bytes()?)
    }

    /// Waits until content and length are on disk.
    pub fn sync_data(&self) -> Result<(), DiskError> {
        let synced = match &self.handle {
            Handle::System(file) => file.sync_data(),
            #[cfg(test)]
            Handle::Simulated(file) => file.sync(),
        };
        done("sync", &self.path, synced)
    }

    /// Waits until everything about the file but its name is on disk.
    pub fn sync_all(&self) -> Result<(), DiskError> {
        let synced = match &self.handle {
            Handle::System(file) => file.sync_all(),
            #[cfg(test)]
            Handle::Simulated(file) => file.sync(),
        };
        done("sync", &self.path, synced)
    }

    /// Fills the buffer from an offset. An error when the file ends before.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), DiskError> {
        let read = match &self.handle {
            Handle::System(file) => file.read_exact_at(buffer, offset),
            #[cfg(test)]
            Handle::Simulated(file) => file.read_at(buffer, offset),
        };
        done("read", &self.path, read)
    }

    /// The whole content, into a buffer that is used again. `None` when it is longer than
    /// `bytes_max`, which is looked at before any memory is taken.
    pub fn read_into(&self, buffer: &mut Vec<u8>, bytes_max: u64) -> Result<Option<()>, DiskError> {
        let bytes = self.bytes()?;
        let Some(length) = usize::try_from(bytes).ok().filter(|_| bytes <= bytes_max) else {
            return Ok(None);
        };
        buffer.resize(length, 0);
        self.read_at(buffer, 0)?;
        Ok(Some(()))
    }
}

/// The name under which a file or directory is prepared.
pub fn temporary_name(path: &Path) -> PathBuf {
    path.with_added_extension("tmp")
}

fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        Some(_) => PathBuf::from("."),
        None => PathBuf::from("/"),
    }
}

/// The length of the next part of what is left.
fn part_bytes(left: u64) -> usize {
    usize::try_from(left).map_or(PART_BYTES, |left| left.min(PART_BYTES))
}

/// What this thread did, for tests of the order of operations.
#[cfg(test)]
pub(crate) mod trace {
    use std::cell::RefCell;
    use std::path::Path;

    type Trace = Vec<(&'static str, String)>;

    thread_local! {
        /// Nothing is kept before somebody asks.
        static TRACE: RefCell<Option<Trace>> = const { RefCell::new(None) };
    }

    pub(super) fn record(action: &'static str, path: &Path) {
        TRACE.with_borrow_mut(|trace| {
            if let Some(trace) = trace {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                trace.push((action, name));
            }
        });
    }

    /// All operations since the last call, each with the last part of its path. The first call
    /// begins the trace.
    pub(crate) fn take() -> Trace {
        TRACE.replace(Some(Vec::new())).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_room_is_told_from_a_fault() {
        for (error, is_full) in [
            (Errno::NOSPC, true),
            (Errno::DQUOT, true),
            (Errno::MFILE, true),
            (Errno::NFILE, true),
            (Errno::IO, false),
            (Errno::ACCESS, false),
            (Errno::NOENT, false),
        ] {
            let source = io::Error::from_raw_os_error(error.raw_os_error());
            let failed = DiskError { action: "open", path: "x".into(), source };
            assert_eq!(failed.is_full(), is_full, "{error:?}");
        }
    }

    #[test]
    fn a_long_head_is_written_whole_before_the_zeros() {
        let directory = tempfile::tempdir().unwrap();
        for head_bytes in [1, PART_BYTES, PART_BYTES + 512, 2 * PART_BYTES] {
            let path = directory.path().join("file");
            let head: Vec<u8> =
                (0..head_bytes).map(|at| u8::try_from(at % 251).unwrap() + 1).collect();
            let bytes = 2 * PART_BYTES;
            Disk::System.create_zeroed(&path, &head, bytes as u64, || ()).unwrap();
            let content = std::fs::read(&path).unwrap();
            assert_eq!(content.len(), bytes);
            assert!(content.starts_with(&head), "{head_bytes}");
            assert!(content[head_bytes..].iter().all(|&byte| byte == 0), "{head_bytes}");
            let copy = directory.path().join("copy");
            Disk::System.copy(&path, &copy).unwrap();
            assert!(std::fs::read(&copy).unwrap() == content, "{head_bytes}");
        }
    }
}
