//! The layout of a data directory, and the files that may be removed from it.
//!
//! ```text
//! lock
//! journal/    00000000000000000041.segment    being written
//!             00000000000000000042.segment    preallocated
//! snapshots/  00000000000000000020.snapshot   the previous one
//!             00000000000000000020.orders
//!             00000000000000000040.snapshot   the newest: covers segments 1 to 40
//!             00000000000000000040.orders
//! archive/    00000000000000000033.segment …  covered segments, as many as --archive-bytes allows
//! price-hours hourly prices
//! cluster     the log that the records belong to, in a node's folder; cluster-copy in a copy of it
//! incoming/   a copy of another node's data, until all of it is moved to its place
//! ```
//!
//! A snapshot exists once its file has its final name: by then, its content and the order files
//! that it refers to have been synced. Files whose names end in `.tmp` are unfinished and ignored.

use std::path::{Path, PathBuf};

use crate::disk::{Disk, DiskError};
use crate::journal::{ARCHIVE_NAME, JOURNAL_NAME, number_before, segment_name, segment_number};
#[cfg(feature = "cluster")]
use crate::journal::{OpenError, SegmentReader};

const SNAPSHOTS_NAME: &str = "snapshots";
const PRICE_HOURS_NAME: &str = "price-hours";
const SNAPSHOT_SUFFIX: &str = ".snapshot";
const ORDERS_SUFFIX: &str = ".orders";
const TEMPORARY_SUFFIX: &str = ".tmp";

/// A data directory and its disk.
#[derive(Clone, Debug)]
pub struct Folder {
    /// The disk that the directory is on.
    pub disk: Disk,
    root: PathBuf,
}

impl Folder {
    /// Creates the layout of the data directory at `root`, which need not exist yet.
    pub fn new(disk: Disk, root: &Path) -> Self {
        Self { disk, root: root.to_path_buf() }
    }

    /// Returns the path of the data directory.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Returns the directory of the snapshots.
    pub fn snapshots(&self) -> PathBuf {
        self.root.join(SNAPSHOTS_NAME)
    }

    pub(super) fn archive(&self) -> PathBuf {
        self.root.join(ARCHIVE_NAME)
    }

    /// Returns the directory of the segments that are read at startup.
    pub fn journal(&self) -> PathBuf {
        self.root.join(JOURNAL_NAME)
    }

    /// Returns the number and path of each segment that holds a block, newest first.
    #[cfg(feature = "cluster")]
    pub fn begun_segments(&self) -> Result<Vec<(u64, PathBuf)>, OpenError> {
        let mut begun = Vec::new();
        for number in self.segment_numbers()?.into_iter().rev() {
            if let Some(path) = self.segment_path(number)?
                && SegmentReader::is_begun(&self.disk, &path)?
            {
                begun.push((number, path));
            }
        }
        Ok(begun)
    }

    /// Returns the path of the file of hourly prices. The journal and the snapshots do not depend
    /// on it.
    pub fn price_hours(&self) -> PathBuf {
        self.root.join(PRICE_HOURS_NAME)
    }

    pub(crate) fn snapshot_path(&self, number: u64) -> PathBuf {
        self.snapshots().join(format!("{number:020}{SNAPSHOT_SUFFIX}"))
    }

    pub(crate) fn orders_path(&self, number: u64) -> PathBuf {
        self.snapshots().join(format!("{number:020}{ORDERS_SUFFIX}"))
    }

    /// Returns the path of a segment, in the journal or the archive. `None` if it is in neither.
    pub fn segment_path(&self, number: u64) -> Result<Option<PathBuf>, DiskError> {
        for directory in [self.journal(), self.archive()] {
            let path = directory.join(segment_name(number));
            if self.disk.exists(&path)? {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    /// Returns the numbers of the snapshots, oldest first.
    pub fn snapshot_numbers(&self) -> Result<Vec<u64>, DiskError> {
        self.numbers(&self.snapshots(), |name| number_before(name, SNAPSHOT_SUFFIX))
    }

    /// Returns the numbers of the segments in the archive, oldest first.
    pub fn archived_numbers(&self) -> Result<Vec<u64>, DiskError> {
        self.numbers(&self.archive(), segment_number)
    }

    /// Returns the numbers of the segments in the journal, oldest first.
    pub fn segment_numbers(&self) -> Result<Vec<u64>, DiskError> {
        self.numbers(&self.journal(), segment_number)
    }

    fn numbers(
        &self,
        directory: &Path,
        number_of: impl Fn(&str) -> Option<u64>,
    ) -> Result<Vec<u64>, DiskError> {
        if !self.disk.exists(directory)? {
            return Ok(Vec::new());
        }
        let names = self.disk.names(directory)?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| number_of(name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Syncs data that an earlier process may have left in the page cache, and removes the
    /// unfinished files of that process.
    pub(super) fn settle(&self) -> Result<(), DiskError> {
        let directory = self.snapshots();
        if !self.disk.exists(&directory)? {
            return Ok(());
        }
        for name in self.disk.names(&directory)? {
            if name.strip_suffix(TEMPORARY_SUFFIX).is_some() {
                self.disk.remove_file(&directory.join(name))?;
            }
        }
        self.disk.sync_directory(&directory)
    }

    /// Moves segments up to `covered` into the archive. At any moment, each is in exactly one of
    /// the two directories. Returns the number of segments moved.
    pub(super) fn archive_segments(&self, covered: u64) -> Result<u64, DiskError> {
        let numbers = self.segment_numbers()?;
        let numbers: Vec<u64> = numbers.into_iter().filter(|&number| number <= covered).collect();
        if numbers.is_empty() {
            return Ok(0);
        }
        let (journal, archive) = (self.journal(), self.archive());
        self.disk.create_directory(&archive)?;
        for &number in &numbers {
            let name = segment_name(number);
            self.disk.rename(&journal.join(&name), &archive.join(&name))?;
        }
        self.disk.sync_directory(&archive)?;
        self.disk.sync_directory(&journal)?;
        Ok(numbers.len() as u64)
    }

    /// Removes the oldest archived segments until the archive takes up at most `bytes_max`.
    /// Segments after `needed_after` stay, so that a server can still go back to the snapshot with
    /// that number. Returns the number of segments removed.
    pub(super) fn prune_archive(
        &self,
        bytes_max: u64,
        needed_after: u64,
    ) -> Result<u64, DiskError> {
        let archive = self.archive();
        let mut sizes = Vec::new();
        for number in self.archived_numbers()? {
            let path = archive.join(segment_name(number));
            let bytes = self.disk.open_read(&path)?.bytes()?;
            sizes.push((number, path, bytes));
        }
        let mut total: u64 = sizes.iter().map(|(_, _, bytes)| bytes).sum();
        let mut removed = 0;
        for (number, path, bytes) in sizes {
            if total <= bytes_max || number > needed_after {
                break;
            }
            self.disk.remove_file(&path)?;
            total -= bytes;
            removed += 1;
        }
        if removed > 0 {
            self.disk.sync_directory(&archive)?;
        }
        Ok(removed)
    }

    /// Removes the snapshots before `previous`, and the order files that are no longer needed.
    pub(super) fn prune_snapshots(
        &self,
        previous: u64,
        is_needed: impl Fn(u64) -> bool,
    ) -> Result<(), DiskError> {
        let directory = self.snapshots();
        let mut has_changed = false;
        for name in self.disk.names(&directory)? {
            let is_old = number_before(&name, SNAPSHOT_SUFFIX).is_some_and(|n| n < previous)
                || number_before(&name, ORDERS_SUFFIX).is_some_and(|number| !is_needed(number));
            if is_old {
                self.disk.remove_file(&directory.join(name))?;
                has_changed = true;
            }
        }
        if has_changed { self.disk.sync_directory(&directory) } else { Ok(()) }
    }
}
