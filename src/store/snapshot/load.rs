//! Reads a snapshot, one shard at a time.

use std::path::{Path, PathBuf};

use super::container::{self, Container, ContainerError, Kind};
use super::folder::Folder;
use super::manifest::Manifest;
use super::replay::ShardState;
use super::state::{self, Reading, ShardError};
use crate::disk::DiskError;
use crate::journal::record::RecordError;
use crate::journal::{JournalMark, LogId};
use paperbourse_core::ids::{SHARD_COUNT, ShardId, Timestamp};

/// Error loading a snapshot. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// One of the files cannot be read.
    #[error("{0}; {REMEDY}")]
    Container(ContainerError),
    /// The manifest cannot be read.
    #[error("{} has no valid manifest: {reason}; {REMEDY}", path.display())]
    Manifest {
        /// The snapshot.
        path: PathBuf,
        /// The reason.
        reason: RecordError,
    },
    /// A file is not the one that the manifest refers to.
    #[error("{} does not belong to the snapshot; {REMEDY}", path.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
    },
    /// A shard's section is invalid.
    #[error("{}: shard {shard}: {reason}; {REMEDY}", path.display())]
    Shard {
        /// The snapshot.
        path: PathBuf,
        /// The shard's number.
        shard: u8,
        /// The reason.
        reason: ShardError,
    },
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

const REMEDY: &str = "nothing was changed; restore the file from a backup, or move the newest \
                      .snapshot file out of the directory to start from the previous snapshot and \
                      the archive";

/// A failed file operation keeps its own message: there is no file to restore.
impl From<ContainerError> for LoadError {
    fn from(error: ContainerError) -> Self {
        match error {
            ContainerError::Disk(error) => Self::Disk(error),
            error => Self::Container(error),
        }
    }
}

/// A snapshot with its manifest; all its files have been opened.
pub struct Snapshot {
    /// The last segment that the snapshot covers.
    pub number: u64,
    /// The journal that the snapshot belongs to.
    pub log: LogId,
    pub(super) manifest: Manifest,
    states: Container,
    orders: Vec<Container>,
}

impl Snapshot {
    /// Opens the newest snapshot, if there is one.
    pub fn newest(folder: &Folder) -> Result<Option<Self>, LoadError> {
        let numbers = folder.snapshot_numbers()?;
        numbers.last().map(|&number| Self::open(folder, number)).transpose()
    }

    /// Opens the snapshot with this number and all its files.
    pub fn open(folder: &Folder, number: u64) -> Result<Self, LoadError> {
        let path = folder.snapshot_path(number);
        let states = Container::open(&folder.disk, &path, Kind::Snapshot)?;
        let header = states.header();
        if header.number != number || states.section_count() != SHARD_COUNT + 1 {
            return Err(LoadError::Mismatch { path });
        }
        let mut section = Vec::new();
        states.read(SHARD_COUNT, &mut section)?;
        let manifest = Manifest::decode(&section)
            .map_err(|reason| LoadError::Manifest { path: path.clone(), reason })?;
        let mut orders = Vec::with_capacity(manifest.order_files.len());
        for file in &manifest.order_files {
            let path = folder.orders_path(file.number);
            let container = Container::open(&folder.disk, &path, Kind::Orders)?;
            let found = container.header();
            if found.log != header.log
                || found.number != file.number
                || container.bytes() != file.bytes
                || container.section_count() != SHARD_COUNT
            {
                return Err(LoadError::Mismatch { path });
            }
            orders.push(container);
        }
        Ok(Self { number, log: header.log, manifest, states, orders })
    }

    /// Returns the mark from which the journal continues the snapshot.
    pub fn mark(&self) -> JournalMark {
        JournalMark { log: self.log, segment: self.number, chain: self.manifest.chain }
    }

    /// Returns the time of the newest decision in the snapshot.
    pub fn newest_time(&self) -> Result<Timestamp, LoadError> {
        let mut newest = Timestamp::EPOCH;
        let mut section = Vec::new();
        for shard in ShardId::all() {
            self.states.read(shard.index(), &mut section)?;
            let time = state::newest_time(&section);
            newest = newest.max(time.map_err(|reason| self.wrong(shard, reason.into()))?);
        }
        Ok(newest)
    }

    /// Whether the snapshot has an older format than this server writes.
    pub(super) fn is_older(&self) -> bool {
        self.states.version() < container::VERSION
    }

    /// Returns the number of orders that the accounts keep.
    pub fn orders_kept(&self) -> u64 {
        self.manifest.orders_kept
    }

    /// Returns the total size of the snapshot's files, in bytes.
    pub fn bytes(&self) -> u64 {
        self.states.bytes() + self.orders.iter().map(Container::bytes).sum::<u64>()
    }

    /// Returns the size of the snapshot's own file, in bytes.
    pub fn own_bytes(&self) -> u64 {
        self.states.bytes()
    }

    /// Returns the number of each order file and its size in bytes.
    pub fn order_files(&self) -> impl Iterator<Item = (u64, u64)> {
        self.orders.iter().map(|file| (file.header().number, file.bytes()))
    }

    /// Returns the paths of all files, the snapshot's own last.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.orders.iter().map(Container::path).chain([self.states.path()])
    }

    /// Reads one shard's state.
    pub fn shard(&self, shard: ShardId) -> Result<ShardState, LoadError> {
        let wrong = |reason| self.wrong(shard, reason);
        let mut section = Vec::new();
        self.states.read(shard.index(), &mut section)?;
        let mut reading = Reading::begin(shard, self.states.version(), &section).map_err(wrong)?;
        let mut rows = Vec::new();
        for container in &self.orders {
            container.read(shard.index(), &mut rows)?;
            reading.orders(container.version(), &rows).map_err(wrong)?;
        }
        reading.finish().map_err(wrong)
    }

    fn wrong(&self, shard: ShardId, reason: ShardError) -> LoadError {
        LoadError::Shard { path: self.states.path().to_path_buf(), shard: shard.get(), reason }
    }
}
