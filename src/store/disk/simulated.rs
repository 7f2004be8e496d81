//! An in-memory disk that loses unsynced data and injects faults, for tests.
//!
//! Writes are visible at once and durable after a sync. After a power failure, an arbitrary part of
//! the unsynced changes survives:
//!
//! - of a file, any subset of the written sectors, each in any version written since the last sync,
//!   and any length between the durable and the visible one;
//! - of a directory, any subset of the names added and removed. A rename is atomic, even between
//!   two directories.
//!
//! Syncing a file does not sync its name, and syncing a directory does not sync the content of its
//! files. The same seed and the same operations produce the same disk.

mod content;
mod names;
pub mod random;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use content::{Content, SECTOR_BYTES};
use names::{Change, Inode, Key, Names};
use parking_lot::Mutex;
use random::Random;

use super::Access;

const ROOT: Inode = 0;

/// The operating system's number for an I/O error.
const EIO: i32 = 5;

/// The operation at which a fault occurs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum When {
    /// At no operation.
    #[default]
    Never,
    /// At random: one in this many of the operations that the fault can affect.
    OneIn(u64),
    /// Once: at the first operation that the fault can affect whose number, as counted by
    /// [`SimulatedDisk::operations`], is at least this.
    From(u64),
}

impl When {
    fn strikes(&mut self, operation: u64, random: &mut Random) -> bool {
        match *self {
            Self::Never => false,
            Self::OneIn(times) => random.one_in(times),
            Self::From(first) => {
                let is_due = operation >= first;
                if is_due {
                    *self = Self::Never;
                }
                is_due
            }
        }
    }
}

/// The faults to inject.
#[derive(Clone, Copy, Default, Debug)]
pub struct Faults {
    /// A write fails without writing anything.
    pub write_error: When,
    /// A write fails after writing only part of its bytes. Unless sectors tear, the part ends at a
    /// sector boundary.
    pub short_write: When,
    /// A sync fails. An arbitrary part of the data becomes durable, and the rest is marked clean:
    /// no later sync writes it.
    pub sync_error: When,
    /// The power fails during this operation, which may or may not take effect. This operation and
    /// all later ones fail until [`SimulatedDisk::power_loss`] or [`SimulatedDisk::kill`].
    pub crash: When,
    /// Like `crash`, but the power fails only at an operation that changes or syncs names.
    pub crash_at_names: When,
    /// Whether a power loss or a short write may leave a sector half old and half new.
    pub sectors_tear: bool,
    /// Whether a power loss may destroy any sectors of a page that was being written, including
    /// durable ones.
    pub pages_fade: bool,
}

/// An in-memory disk. Clones share the same disk.
#[derive(Clone, Debug)]
pub struct SimulatedDisk {
    model: Arc<Mutex<Model>>,
}

#[derive(Debug)]
struct Model {
    files: BTreeMap<Inode, Content>,
    directories: BTreeSet<Inode>,
    next_inode: Inode,
    names: Names,
    locks: BTreeSet<PathBuf>,
    /// Number of the current life, which ends at a crash or a kill. Handles from an earlier life
    /// are dead.
    life: u64,
    is_crashed: bool,
    /// Number of operations so far.
    operations: u64,
    faults: Faults,
    /// Capacity for the content of all files, in bytes.
    capacity_bytes: u64,
    random: Random,
}

impl SimulatedDisk {
    /// Creates an empty disk without faults or limits.
    pub fn new(seed: u64) -> Self {
        let model = Model {
            files: BTreeMap::new(),
            directories: BTreeSet::from([ROOT]),
            next_inode: ROOT + 1,
            names: Names::default(),
            locks: BTreeSet::new(),
            life: 0,
            is_crashed: false,
            operations: 0,
            faults: Faults::default(),
            capacity_bytes: u64::MAX,
            random: Random::new(seed),
        };
        Self { model: Arc::new(Mutex::new(model)) }
    }

    /// Returns the number of operations attempted, on files and on names.
    pub fn operations(&self) -> u64 {
        self.model.lock().operations
    }

    /// Returns the faults that may still occur.
    pub fn faults(&self) -> Faults {
        self.model.lock().faults
    }

    /// Replaces the faults that may occur.
    pub fn set_faults(&self, faults: Faults) {
        self.model.lock().faults = faults;
    }

    /// Limits the total size of all files to `bytes`.
    pub fn set_capacity(&self, bytes: u64) {
        self.model.lock().capacity_bytes = bytes;
    }

    /// Returns the total size of all files that have a name, in bytes.
    pub fn bytes(&self) -> u64 {
        self.model.lock().bytes()
    }

    /// Returns the number of bytes that can be written before the disk is full.
    pub fn room_bytes(&self) -> u64 {
        self.model.lock().room_bytes()
    }

    /// Whether the scheduled crash has happened.
    pub fn is_crashed(&self) -> bool {
        self.model.lock().is_crashed
    }

    /// Simulates a power failure and restart: all open files and locks are dead, and only a part of
    /// the unsynced data survives.
    pub fn power_loss(&self) {
        let mut model = self.model.lock();
        model.restart();
        let Model { files, names, faults, random, .. } = &mut *model;
        names.lose(random);
        for content in files.values_mut() {
            content.lose(random, faults.sectors_tear, faults.pages_fade);
        }
        model.forget_nameless();
    }

    /// Simulates the death of the process while the system keeps running: all open files and locks
    /// are dead, and unsynced data may still be lost later.
    pub fn kill(&self) {
        self.model.lock().restart();
    }

    /// Flips a bit of a file's durable content.
    pub fn flip_bit(&self, path: &Path, at: usize, bit: u8) {
        let mut model = self.model.lock();
        let inode = model.find(path).expect("the file exists");
        model.files.get_mut(&inode).expect("a file").flip_bit(at, bit);
    }

    pub(super) fn open(&self, access: Access, path: &Path) -> io::Result<SimulatedFile> {
        let mut model = self.model.lock();
        let inode = match access {
            Access::Create => model.changing(|model| model.create(path)),
            Access::Read | Access::Write => {
                model.begin().and_then(|()| model.find(path)).and_then(|inode| model.file(inode))
            }
        }?;
        let is_writable = access != Access::Read;
        Ok(SimulatedFile { disk: self.clone(), inode, life: model.life, is_writable })
    }

    pub(super) fn exists(&self, path: &Path) -> io::Result<bool> {
        let mut model = self.model.lock();
        model.begin()?;
        Ok(model.find(path).is_ok())
    }

    pub(super) fn names(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut model = self.model.lock();
        model.begin()?;
        let inode = model.find_directory(directory)?;
        Ok(model.names.of(inode).map(|(name, _)| name.to_owned()).collect())
    }

    pub(super) fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.model.lock().changing(|model| {
            let key = model.key(path)?;
            if model.names.get(&key).is_some() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let inode = model.new_inode();
            model.directories.insert(inode);
            model.names.change(Change { taken: None, given: Some((key, inode)) });
            Ok(())
        })
    }

    pub(super) fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let mut model = self.model.lock();
        model.approach_names();
        model.begin()?;
        let directory = model.find_directory(path)?;
        let Model { names, faults, operations, random, .. } = &mut *model;
        if faults.sync_error.strikes(*operations, random) {
            names.fail_sync(random);
            return Err(io::Error::from_raw_os_error(EIO));
        }
        names.sync(directory);
        Ok(())
    }

    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut model = self.model.lock();
        model.approach_names();
        model.changing(|model| {
            let (inode, taken, key) = (model.find(from)?, model.key(from)?, model.key(to)?);
            if model.names.get(&key).is_some_and(|replaced| model.directories.contains(&replaced)) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            model.names.change(Change { taken: Some(taken), given: Some((key, inode)) });
            Ok(())
        })
    }

    pub(super) fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut model = self.model.lock();
        model.approach_names();
        model.changing(|model| {
            let inode = model.find(path)?;
            model.file(inode)?;
            let taken = Some(model.key(path)?);
            model.names.change(Change { taken, given: None });
            Ok(())
        })
    }

    /// Removes a directory with its contents. Removing each name is an operation of its own.
    pub(super) fn remove_directory(&self, path: &Path) -> io::Result<()> {
        for name in self.names(path)? {
            let inside = path.join(name);
            let is_directory = self.model.lock().find_directory(&inside).is_ok();
            if is_directory { self.remove_directory(&inside)? } else { self.remove_file(&inside)? }
        }
        self.model.lock().changing(|model| {
            let taken = Some(model.key(path)?);
            model.names.change(Change { taken, given: None });
            Ok(())
        })
    }

    pub(super) fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        let mut model = self.model.lock();
        if model.find(path).is_err() {
            model.changing(|model| model.create(path))?;
        }
        if !model.locks.insert(path.to_path_buf()) {
            return Ok(None);
        }
        let life = model.life;
        Ok(Some(Box::new(SimulatedLock { disk: self.clone(), path: path.to_path_buf(), life })))
    }
}

impl Model {
    fn restart(&mut self) {
        self.life += 1;
        self.is_crashed = false;
        self.faults.crash = When::Never;
        self.faults.crash_at_names = When::Never;
        self.locks.clear();
    }

    fn forget_nameless(&mut self) {
        let named: BTreeSet<Inode> = self.names.inodes().collect();
        self.files.retain(|inode, _| named.contains(inode));
    }

    /// Counts an operation. Fails if the power is off.
    fn begin(&mut self) -> io::Result<()> {
        self.operations += 1;
        let Self { faults, operations, random, .. } = self;
        self.is_crashed |= faults.crash.strikes(*operations, random);
        if self.is_crashed { Err(power_is_gone()) } else { Ok(()) }
    }

    /// Applies `crash_at_names`. Must be called before each operation on names.
    fn approach_names(&mut self) {
        let Self { faults, operations, random, .. } = self;
        if faults.crash_at_names.strikes(*operations + 1, random) {
            faults.crash = When::From(*operations);
        }
    }

    /// Applies a change. If the power fails at this operation, the change may or may not happen.
    fn changing<T>(&mut self, change: impl FnOnce(&mut Self) -> io::Result<T>) -> io::Result<T> {
        let was_crashed = self.is_crashed;
        let begun = self.begin();
        if begun.is_ok() {
            return change(self);
        }
        if !was_crashed && self.random.one_in(2) {
            change(self)?;
        }
        Err(power_is_gone())
    }

    fn new_inode(&mut self) -> Inode {
        self.next_inode += 1;
        self.next_inode - 1
    }

    fn find(&self, path: &Path) -> io::Result<Inode> {
        let mut inode = ROOT;
        for name in names_of(path) {
            inode = self.names.get(&(inode, name)).ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(inode)
    }

    fn find_directory(&self, path: &Path) -> io::Result<Inode> {
        let inode = self.find(path)?;
        if self.directories.contains(&inode) {
            return Ok(inode);
        }
        Err(io::ErrorKind::NotADirectory.into())
    }

    fn file(&self, inode: Inode) -> io::Result<Inode> {
        if self.files.contains_key(&inode) {
            return Ok(inode);
        }
        Err(io::ErrorKind::IsADirectory.into())
    }

    /// Returns the key of a path, whose directory must exist.
    fn key(&self, path: &Path) -> io::Result<Key> {
        let name = names_of(path).last().ok_or(io::ErrorKind::InvalidInput)?;
        let directory = self.find_directory(path.parent().unwrap_or(Path::new("/")))?;
        Ok((directory, name))
    }

    /// Creates an empty file or truncates an existing one.
    fn create(&mut self, path: &Path) -> io::Result<Inode> {
        if let Ok(inode) = self.find(path) {
            self.file(inode)?;
            self.content(inode).truncate();
            return Ok(inode);
        }
        let key = self.key(path)?;
        let inode = self.new_inode();
        self.files.insert(inode, Content::default());
        self.names.change(Change { taken: None, given: Some((key, inode)) });
        Ok(inode)
    }

    fn content(&mut self, inode: Inode) -> &mut Content {
        self.files.get_mut(&inode).expect("an open file exists")
    }

    /// Writes as many of the bytes as fit on the disk.
    fn write(&mut self, inode: Inode, bytes: &[u8], offset: usize) -> io::Result<()> {
        let Self { faults, operations, random, .. } = self;
        if faults.write_error.strikes(*operations, random) {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        if faults.short_write.strikes(*operations, random) {
            let mut end = offset + random.below(bytes.len().max(1));
            if !faults.sectors_tear {
                end -= end % SECTOR_BYTES;
            }
            let part = end.saturating_sub(offset);
            self.content(inode).write(&bytes[..part], offset);
            return Err(io::Error::from_raw_os_error(EIO));
        }
        let bytes_max = self.content(inode).bytes() + self.room_bytes();
        let end_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let part = bytes.len().min(end_max.saturating_sub(offset));
        self.content(inode).write(&bytes[..part], offset);
        if part < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn room_bytes(&self) -> u64 {
        if self.capacity_bytes == u64::MAX {
            return u64::MAX / 2;
        }
        self.capacity_bytes.saturating_sub(self.bytes())
    }

    fn bytes(&self) -> u64 {
        let files = self.names.inodes().filter_map(|inode| self.files.get(&inode));
        files.map(Content::bytes).sum()
    }

    fn sync(&mut self, inode: Inode) -> io::Result<()> {
        let Self { faults, operations, random, files, .. } = self;
        let content = files.get_mut(&inode).expect("an open file exists");
        if faults.sync_error.strikes(*operations, random) {
            content.fail_sync(random, false);
            return Err(io::Error::from_raw_os_error(EIO));
        }
        content.sync();
        Ok(())
    }
}

/// An open file. It survives the removal of its names, but not a crash.
#[derive(Debug)]
pub struct SimulatedFile {
    disk: SimulatedDisk,
    inode: Inode,
    life: u64,
    is_writable: bool,
}

impl SimulatedFile {
    fn with<T>(&self, operate: impl FnOnce(&mut Model) -> io::Result<T>) -> io::Result<T> {
        let mut model = self.disk.model.lock();
        if model.life != self.life {
            return Err(power_is_gone());
        }
        operate(&mut model)
    }

    pub(super) fn bytes(&self) -> io::Result<u64> {
        self.with(|model| {
            model.begin()?;
            Ok(model.content(self.inode).bytes())
        })
    }

    pub(super) fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if !self.is_writable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        self.with(|model| model.changing(|model| model.write(self.inode, bytes, offset)))
    }

    pub(super) fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        self.with(|model| {
            model.begin()?;
            model.content(self.inode).read(buffer, offset)
        })
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.with(|model| {
            model.begin()?;
            model.sync(self.inode)
        })
    }
}

struct SimulatedLock {
    disk: SimulatedDisk,
    path: PathBuf,
    life: u64,
}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        let mut model = self.disk.model.lock();
        if model.life == self.life {
            model.locks.remove(&self.path);
        }
    }
}

fn power_is_gone() -> io::Error {
    io::Error::other("the power is gone")
}

fn names_of(path: &Path) -> impl Iterator<Item = String> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
        _ => None,
    })
}
