//! All file operations on a data directory, behind one interface, so that tests can substitute a
//! simulated disk.
//!
//! An error names the operation and the path. Its meaning is up to the caller.

#[cfg(any(test, feature = "test-util"))]
pub mod simulated;
mod system;

use std::any::Any;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use paperbourse_core::faults::{self, Fault};

/// Long files are written and synced in parts of this size, so that a flush of the journal never
/// waits for a whole file.
const PART_BYTES: usize = 256 << 10;

/// The unit in which the kernel and many disks write.
pub const PAGE_BYTES: usize = 4096;

/// A failed file operation.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}", path.display())]
pub struct DiskError {
    /// The operation, as a verb.
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The operating system's error.
    #[source]
    pub source: io::Error,
}

/// Adds the operation and the path to an error.
fn done<T>(action: &'static str, path: &Path, result: io::Result<T>) -> Result<T, DiskError> {
    #[cfg(test)]
    trace::record(action, path);
    result.map_err(|source| DiskError { action, path: path.to_path_buf(), source })
}

impl DiskError {
    /// Whether the disk or the table of open files is full, so that a retry may succeed later. Such
    /// an error does not cast doubt on the data already on disk.
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

/// The access mode of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Access {
    /// Read an existing file.
    Read,
    /// Read and write an existing file.
    Write,
    /// Read and write a new or truncated file.
    Create,
}

/// A disk. Clones share the same disk.
#[derive(Clone, Debug)]
pub enum Disk {
    /// The file systems of this machine.
    System,
    /// An in-memory model that loses unsynced data.
    #[cfg(any(test, feature = "test-util"))]
    Simulated(simulated::SimulatedDisk),
}

impl Disk {
    /// Opens an existing file for reading and writing.
    pub fn open(&self, path: &Path) -> Result<DiskFile, DiskError> {
        self.open_for(Access::Write, path)
    }

    /// Opens an existing file for reading.
    pub fn open_read(&self, path: &Path) -> Result<DiskFile, DiskError> {
        self.open_for(Access::Read, path)
    }

    /// Creates an empty file or truncates an existing one. Its name is durable only after
    /// [`Self::sync_directory`].
    pub fn create(&self, path: &Path) -> Result<DiskFile, DiskError> {
        self.open_for(Access::Create, path)
    }

    /// Opens an existing file for durable writes: a write returns once its bytes are on disk. With
    /// `may_bypass`, writes bypass the page cache if the file system supports that, and each takes
    /// a single system call; offsets, lengths and addresses must then be multiples of
    /// [`PAGE_BYTES`].
    pub fn open_durable(&self, path: &Path, may_bypass: bool) -> Result<DiskFile, DiskError> {
        let direct = match self {
            Self::System if may_bypass => system::open_direct(path),
            Self::System => Ok(None),
            #[cfg(any(test, feature = "test-util"))]
            Self::Simulated(_) => Ok(None),
        };
        if let Some(file) = done("open", path, direct)? {
            let (handle, path) = (Handle::System(file), path.to_path_buf());
            return Ok(DiskFile { handle, path, writes: Writes::Direct });
        }
        Ok(DiskFile { writes: Writes::Synced, ..self.open(path)? })
    }

    fn open_for(&self, access: Access, path: &Path) -> Result<DiskFile, DiskError> {
        let action = if access == Access::Create { "create" } else { "open" };
        let opened = match self {
            Self::System => system::open(access, path).map(Handle::System),
            #[cfg(any(test, feature = "test-util"))]
            Self::Simulated(disk) => disk.open(access, path).map(Handle::Simulated),
        };
        let handle = done(action, path, opened)?;
        Ok(DiskFile { handle, path: path.to_path_buf(), writes: Writes::Cached })
    }

    /// Creates a file that starts with `head` and is zero-filled to a length of `bytes`. The file
    /// is written and synced under a temporary name and then renamed; the caller must sync the
    /// directory. Calls `between_parts` after each part of the zeros, when no write is pending, so
    /// that the caller may pause there.
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

    /// Whether the path exists.
    pub fn exists(&self, path: &Path) -> Result<bool, DiskError> {
        let found = match self {
            Self::System => std::fs::exists(path),
            #[cfg(any(test, feature = "test-util"))]
            Self::Simulated(disk) => disk.exists(path),
        };
        done("look for", path, found)
    }

    /// Whether this existing path is a regular file. Opening or reading anything else, such as a
    /// pipe, could block on another process.
    pub fn is_regular_file(&self, path: &Path) -> Result<bool, DiskError> {
        let found = match self {
            Self::System => std::fs::metadata(path).map(|metadata| metadata.is_file()),
            // The simulated disk has only directories and regular files.
            #[cfg(any(test, feature = "test-util"))]
            Self::Simulated(disk) => disk.names(path).map_or(Ok(true), |_| Ok(false)),
        };
        done("look for", path, found)
    }

    /// Lists the names in a directory, sorted.
    pub fn names(&self, directory: &Path) -> Result<Vec<String>, DiskError> {
        let names = match self {
            Self::System => system::names(directory),
            #[cfg(any(test, feature = "test-util"))]
            Self::Simulated(disk) => disk.names(directory),
        };
        let mut names = done("list", directory, names)?;
        names.sort_unstable();
        Ok(names)
    }

    /// Creates a directory and its missing parents, and syncs the parent of each.
    pub fn create_directory(&self, path: &Path) -> Result<(), DiskError> {
        let parent = parent_of(path);
        if self.exists(path)? {
            // The process that created the directory may have ended before it synced the parent. If
            // this process may not read the parent, it did not create the directory.
            return match self.sync_directory(&parent) {
                Err(error) if error.source.kind() == io::ErrorKind::PermissionDenied => Ok(()),
                synced => synced,
            };
        }
        self.create_directory(&parent)?;
        let created = match self {
            Self::System => system::create_directory(path),
            #[cfg(any(test, feature = "test-util"))]
            Self::Simulated(disk) => disk.create_directory(path),
        };
        match created {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => done("create", path, created)?,
        }
        self.sync_directory(&parent)
    }

    /// Syncs the names in a directory.
    pub fn sync_directory(&self, path: &Path) -> Result<(), DiskError> {
        if faults::is_on(Fault::NoDirectorySync) {
            return Ok(());
        }
        let synced = match self {
            Self::System => File::open(path).and_then(|directory| directory.sync_all()),
            #[cfg(any(test, feature = "test-util"))]
            Self::Simulated(disk) => disk.sync_directory(path),
        };
        done("sync", path, synced)
    }

    /// Renames a file or directory, replacing a file at `to`. Durable only after
    /// [`Self::sync_directory`].
    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        let renamed = match self {
            Self::System => std::fs::rename(from, to),
            #[cfg(any(test, feature = "test-util"))]
            Self::Simulated(disk) => disk.rename(from, to),
        };
        done("rename", from, renamed)
    }

    /// Removes a file. It may reappear after a crash before [`Self::sync_directory`].
    pub fn remove_file(&self, path: &Path) -> Result<(), DiskError> {
        let removed = match self {
            Self::System => std::fs::remove_file(path),
            #[cfg(any(test, feature = "test-util"))]
            Self::Simulated(disk) => disk.remove_file(path),
        };
        done("remove", path, removed)
    }

    /// Removes a directory with its contents, if it exists.
    pub fn remove_directory(&self, path: &Path) -> Result<(), DiskError> {
        let removed = match self {
            Self::System => std::fs::remove_dir_all(path),
            #[cfg(any(test, feature = "test-util"))]
            Self::Simulated(disk) => disk.remove_directory(path),
        };
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => done("remove", path, removed),
        }
    }

    /// Copies a file and syncs both the copy and its name.
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

    /// Locks a file, creating it if necessary, until the returned lock is dropped. Returns `None`
    /// if another process holds the lock.
    pub fn lock(&self, path: &Path) -> Result<Option<DiskLock>, DiskError> {
        let locked = match self {
            Self::System => system::lock(path),
            #[cfg(any(test, feature = "test-util"))]
            Self::Simulated(disk) => disk.lock(path),
        };
        Ok(done("lock", path, locked)?.map(|held| DiskLock { _held: held }))
    }
}

/// A file lock, released on drop.
#[derive(Debug)]
pub struct DiskLock {
    _held: Box<dyn Any + Send + Sync>,
}

/// An open file and its path.
#[derive(Debug)]
pub struct DiskFile {
    handle: Handle,
    path: PathBuf,
    writes: Writes,
}

/// The state of a write's bytes when it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Writes {
    /// The bytes are in the page cache.
    Cached,
    /// The bytes are on disk: the write was followed by a sync.
    Synced,
    /// The bytes are on disk: the write bypassed the page cache.
    Direct,
}

#[derive(Debug)]
enum Handle {
    System(File),
    #[cfg(any(test, feature = "test-util"))]
    Simulated(simulated::SimulatedFile),
}

impl DiskFile {
    /// Returns the path under which the file was opened or created.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the length of the file, in bytes.
    pub fn bytes(&self) -> Result<u64, DiskError> {
        let bytes = match &self.handle {
            Handle::System(file) => file.metadata().map(|metadata| metadata.len()),
            #[cfg(any(test, feature = "test-util"))]
            Handle::Simulated(file) => file.bytes(),
        };
        done("measure", &self.path, bytes)
    }

    /// Whether writes bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.writes == Writes::Direct
    }

    /// Writes all bytes at an offset. They are on disk only if the file was opened by
    /// [`Disk::open_durable`].
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), DiskError> {
        let written = match &self.handle {
            Handle::System(file) => file.write_all_at(bytes, offset),
            #[cfg(any(test, feature = "test-util"))]
            Handle::Simulated(file) => file.write_at(bytes, offset),
        };
        let is_refused = |error: &io::Error| error.kind() == io::ErrorKind::InvalidInput;
        let written = match written {
            Err(error) if self.is_direct() && is_refused(&error) => Err(io::Error::other(format!(
                "{error}; the file system refuses direct writes although it offers them: start \
                 with --journal-sync fdatasync"
            ))),
            written => written,
        };
        done("write", &self.path, written)?;
        if self.writes == Writes::Synced { self.sync_data() } else { Ok(()) }
    }

    /// Appends all bytes to the file.
    pub fn append(&self, bytes: &[u8]) -> Result<(), DiskError> {
        self.write_at(bytes, self.bytes()?)
    }

    /// Syncs the content and the length.
    pub fn sync_data(&self) -> Result<(), DiskError> {
        let synced = match &self.handle {
            Handle::System(file) => file.sync_data(),
            #[cfg(any(test, feature = "test-util"))]
            Handle::Simulated(file) => file.sync(),
        };
        done("sync", &self.path, synced)
    }

    /// Syncs the content and all metadata of the file, but not its name.
    pub fn sync_all(&self) -> Result<(), DiskError> {
        let synced = match &self.handle {
            Handle::System(file) => file.sync_all(),
            #[cfg(any(test, feature = "test-util"))]
            Handle::Simulated(file) => file.sync(),
        };
        done("sync", &self.path, synced)
    }

    /// Fills the buffer from an offset. Fails if the file is too short.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), DiskError> {
        let read = match &self.handle {
            Handle::System(file) => file.read_exact_at(buffer, offset),
            #[cfg(any(test, feature = "test-util"))]
            Handle::Simulated(file) => file.read_at(buffer, offset),
        };
        done("read", &self.path, read)
    }

    /// Reads the whole file into a reusable buffer. If the file is longer than `bytes_max`, returns
    /// `None` before allocating anything.
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

/// Returns the temporary name under which a file or directory is prepared.
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

/// Returns the length of the next part, given the number of bytes left.
fn part_bytes(left: u64) -> usize {
    usize::try_from(left).map_or(PART_BYTES, |left| left.min(PART_BYTES))
}

/// Records this thread's operations, for tests of their order.
#[cfg(test)]
pub(crate) mod trace {
    use std::cell::RefCell;
    use std::path::Path;

    type Trace = Vec<(&'static str, String)>;

    thread_local! {
        /// `None` until the first call of `take`.
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

    /// Returns all operations since the last call, each with the last component of its path. The
    /// first call starts the trace.
    pub(crate) fn take() -> Trace {
        TRACE.replace(Some(Vec::new())).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_not_mistaken_for_a_fault() {
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
    fn a_refused_direct_write_names_the_way_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        Disk::System.create_zeroed(&path, &[], PAGE_BYTES as u64, || ()).unwrap();
        let file = Disk::System.open_durable(&path, true).unwrap();
        if !file.is_direct() {
            eprintln!("SKIPPED: the file system of {} has no direct writes", path.display());
            return;
        }
        // Not a multiple of any sector size.
        let error = file.write_at(&[1; 3], 1).unwrap_err();
        let reason = error.source.to_string();
        assert!(reason.contains("start with --journal-sync fdatasync"), "{reason}");
        let cached = Disk::System.open(&path).unwrap();
        cached.write_at(&[1; 3], 1).unwrap();
    }

    #[test]
    fn a_long_head_is_written_before_the_zeros() {
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
