//! The write-ahead log: a total order of records, and the watermark up to which they are on disk.
//!
//! The journal treats a record as opaque bytes: it orders records, writes them, and reports when
//! they are durable. Accounts, shards and commands have no meaning here.
//!
//! # The contract
//!
//! - [`Journal::reserve`] takes the next LSN (log sequence number) without blocking, or refuses and
//!   changes nothing. After a successful reservation **nothing may fail**: dropping it unfilled
//!   would leave a hole in the log, so it aborts the process.
//! - [`Reservation::fill`] copies the record. Records become durable in the order of their LSNs:
//!   an unfilled one holds back every record after it.
//! - [`Waiters::durable`] completes when the record at an LSN and every record before it are on
//!   disk. No response that depends on a record may be sent before then.
//! - **Flushing needs no help**: the flush of a filled record begins within [`FLUSH_DELAY_MAX`],
//!   even if nothing waits for it and all workers are busy. [`Journal::tend`] starts it sooner.
//! - **Lost**: a failed write or fsync is final, since the kernel may have dropped the pages and
//!   marked them clean. It is never retried: the process exits with [`EXIT_JOURNAL_LOST`], because
//!   its in-memory state is ahead of the disk and must be discarded.
//!
//! # On disk
//!
//! The data directory holds the file `lock` and the directory `journal`, which holds segments
//! ([`segment`]) made of blocks ([`block`]). One thread at a time writes ([`writer`]), one prepares
//! segments ([`preallocator`]), and [`recovery`] reads everything back. A reservation claims space
//! in segments that are already on disk, so a full disk refuses new records but never loses one.
//!
//! # What recovery cannot detect
//!
//! Every block is vouched for by the one after it, except the newest: nothing on disk says that the
//! newest was acknowledged. If the process crashes and the disk then loses a sector of that block,
//! despite having confirmed the write, the block looks torn. The next start cuts it, keeps a copy
//! and reports it. If the disk loses all of the block's sectors, there is no trace of it. Any other
//! damage makes the start fail. So does a lost sector if a later block has been written, and every
//! start writes one.
//!
//! # The rules of a write-ahead log, and the tests that enforce them
//!
//! `tests/tidy` checks that each test named here exists. Besides these, `simulation` exercises all
//! the rules together, thousands of times. Rule 24 is usually met with `O_DIRECT`, which bypasses
//! the page cache; here each start rewrites the newest block instead. That is the one exception to
//! rule 14: the block's pages are written again, with the same bytes.
//!
//! | | rule | test |
//! |---|---|---|
//! | 1 | acknowledge after the flush that covers it | `an_acknowledged_record_is_in_the_file` |
//! | 2 | nothing is visible before it is on disk | `nothing_is_durable_while_the_gate_is_held` |
//! | 3 | a failed sync ends the process | `a_failed_sync_is_final` |
//! | 4 | sync files, then their directory, then read them | `a_start_syncs_before_it_reads` |
//! | 5 | sync the directory after a new name | `new_names_are_synced_before_they_are_used` |
//! | 6 | the directory is created atomically | `a_half_created_journal_is_created_again` |
//! | 7 | segments are zero-filled on disk before use | `segments_are_zero_filled` |
//! | 8 | checksums chain over blocks and segments | `swapped_segments_stop_the_start` |
//! | 9 | no stale record is read: segments are never reused | `a_cut_tail_never_reappears` |
//! | 10 | lengths are aligned, and checked before use | `a_length_is_checked_before_it_is_used` |
//! | 11 | a torn tail is cut | `every_torn_last_block_is_cut` |
//! | 11 | only the tail is ever cut | `a_torn_block_before_the_last_segment_stops_the_start` |
//! | 12 | a copy of the cut bytes is kept | `every_torn_last_block_is_cut` |
//! | 13 | only zeros follow the last block | `a_cut_tail_never_reappears` |
//! | 14 | acknowledged pages are never rewritten | `blocks_start_on_pages_of_their_own` |
//! | 15 | a segment is durable before the next | `rotation_keeps_every_record` |
//! | 16 | a failed or short write ends the process | `a_failed_write_is_final` |
//! | 16 | a full disk refuses reservations | `nothing_is_reserved_beyond_preallocated_space` |
//! | 17 | a snapshot is whole before segments move | `a_start_finishes_what_a_crash_interrupted` |
//! | 17 | the previous snapshot is kept | `a_damaged_snapshot_stops_the_start` |
//! | 18 | one process per data directory | `a_second_process_is_refused` |
//! | 19 | records are validated again when read | `a_contradictory_record_is_refused` |
//! | 20 | an unknown version stops the start | `an_unsupported_version_is_refused` |
//! | 20 | a missing segment stops the start | `a_journal_without_its_beginning_stops_the_start` |
//! | 21 | idempotency keys survive with their orders | `a_crash_loses_nothing_that_was_answered` |
//! | 22 | time is passed in as a value | `pure_modules_stay_pure` |
//! | 23 | flushes are counted, slow ones logged | `flushes_are_counted` |
//! | 24 | the page cache is not trusted at start | `what_a_start_has_read_survives_power_loss` |

mod aligned;
mod block;
mod broken;
mod cut;
mod directory;
mod local;
mod log_id;
mod memory;
mod metrics;
mod patience;
mod preallocator;
pub mod primitives;
mod reader;
pub mod record;
mod recovery;
#[cfg(feature = "cluster")]
pub mod replicated;
mod ring;
mod segment;
mod tail;
mod waiters;
mod wakeup;
mod watch;
mod window;
mod writer;

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use crate::disk::DiskError;
use crate::disk::{Disk, DiskFile};
pub use block::Damage;
pub(crate) use block::{u32_at, u64_at};
pub use directory::DataDirectory;
pub use directory::{ARCHIVE_NAME, CLUSTER_COPY_NAME, CLUSTER_NAME, JOURNAL_NAME};
pub use local::LocalJournal;
#[cfg(any(test, feature = "test-util"))]
pub use local::Steps;
pub use log_id::{LogId, NotALogId};
pub use memory::{Gate, MemoryJournal};
pub use metrics::JournalMetrics;
pub use paperbourse_core::ids::Lsn;
#[cfg(test)]
pub(crate) use patience::SAME_READINGS_MIN;
pub(crate) use patience::{Patience, READING_PAUSE};
pub use reader::{
    Batch, ChainMark, JournalMark, OpenBatch, RecordAt, SegmentReader, segment_name, segment_number,
};
pub use recovery::{OpenError, ReadError, RecoveryReport, TornTail, UnopenedJournal};
use ring::Claim;
pub use segment::SEGMENT_BYTES_MAX;
pub use segment::VERSION as SEGMENT_VERSION;
pub(crate) use segment::number_before;
use waiters::Progress;
pub use waiters::{DurableWait, WAITER_GROUPS_MAX, Waiters};
pub use watch::FLUSH_DELAY_MAX;

/// Longest record, in bytes. An order that takes all 9,999 levels of one side needs 160,000.
pub const RECORD_BYTES_MAX: usize = 256 * 1024;

/// Exit code of a process whose journal is lost: `EX_IOERR` of `sysexits`.
pub const EXIT_JOURNAL_LOST: i32 = 74;

/// The log id of every LSN of a journal on disk.
const LOCAL_LOG: u8 = 0;

/// Reason a reservation was refused. A refusal changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// Too many records or bytes are in flight, or the next segment is not ready yet. Retry soon.
    #[error("the journal has too many writes in flight")]
    Busy,
    /// No preallocated disk space is left for the record, and the disk has no room for more.
    #[error("the journal has no disk space left")]
    Full,
}

/// The sync policy: when a record counts as durable.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum SyncMode {
    /// A record is durable once it is on disk. Writes bypass the page cache (`O_DIRECT` and
    /// `O_DSYNC`, one system call) where the file system supports that; otherwise this is
    /// [`Self::Fdatasync`].
    #[default]
    Always,
    /// A record is durable once it is on disk, after a write and an `fdatasync`.
    Fdatasync,
    /// A record is durable once the operating system has accepted the write. Only for benchmarks.
    Never,
}

impl SyncMode {
    /// Opens a segment whose writes are durable, as this mode defines it, once they return.
    fn open(self, disk: &Disk, path: &Path) -> Result<DiskFile, DiskError> {
        match self {
            Self::Always => disk.open_durable(path, true),
            Self::Fdatasync => disk.open_durable(path, false),
            Self::Never => disk.open(path),
        }
    }
}

/// Called when the journal is lost. Production uses [`end_process`]. If the handler returns, as in
/// tests, nothing becomes durable from then on.
pub type OnLost = Arc<dyn Fn(&DiskError) + Send + Sync>;

/// Maximum number of bytes to preallocate, unless a single segment is longer.
const BYTES_AHEAD_MAX: u64 = 64 << 20;

/// Limits of a journal.
#[derive(Clone)]
pub struct JournalConfig {
    /// Length of a new segment, in bytes; a multiple of 4096.
    pub segment_bytes: u64,
    /// Maximum number of segments to preallocate, at least 1. Starts at one and doubles whenever a
    /// segment was not ready in time.
    pub segments_ahead_max: usize,
    /// Capacity of the ring, in bytes: the worst-case disk space of the records that are reserved
    /// but not yet taken by the writer. Each record counts as if alone in its block, so it takes at
    /// least 4096.
    pub ring_bytes: u64,
    /// Longest block, in bytes; a multiple of 4096, up to 4 MiB.
    pub block_bytes_max: usize,
    /// Longest record, in bytes, at most [`RECORD_BYTES_MAX`].
    pub record_bytes_max: usize,
    /// The sync policy.
    pub sync: SyncMode,
    /// Called on a failed write or fsync.
    pub on_lost: OnLost,
}

impl Default for JournalConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            segments_ahead_max: 16,
            ring_bytes: 48 << 20,
            block_bytes_max: 1 << 20,
            record_bytes_max: RECORD_BYTES_MAX,
            sync: SyncMode::Always,
            on_lost: Arc::new(|error| end_process(error)),
        }
    }
}

impl JournalConfig {
    /// Returns `segments_ahead_max`, reduced if necessary so that the segments fit into
    /// [`BYTES_AHEAD_MAX`], but at least 1.
    fn segments_ahead_fitting(&self) -> usize {
        let fitting = BYTES_AHEAD_MAX / self.segment_bytes;
        self.segments_ahead_max.min(usize::try_from(fitting).unwrap_or(usize::MAX)).max(1)
    }

    /// Returns the number of slots in the ring. Each record takes at least a page of the ring's
    /// capacity, so more slots would never be used.
    fn ring_slots(&self) -> usize {
        usize::try_from(self.ring_bytes).unwrap_or(usize::MAX).div_ceil(block::PAGE_BYTES)
    }

    fn check(&self) {
        let page = block::PAGE_BYTES;
        let alone = block::alone_bytes(self.record_bytes_max);
        assert!(self.record_bytes_max <= RECORD_BYTES_MAX, "record_bytes_max is too large");
        assert!(self.block_bytes_max.is_multiple_of(page), "blocks must end on pages");
        assert!(self.block_bytes_max <= block::BLOCK_BYTES_MAX, "block_bytes_max is too large");
        assert!(self.block_bytes_max >= alone, "a record must fit into a block");
        assert!(self.segment_bytes.is_multiple_of(page as u64), "segments must end on pages");
        assert!(self.segment_bytes <= segment::SEGMENT_BYTES_MAX, "segment_bytes is too large");
        // The header, the block that begins an epoch, one record, and the largest unused tail.
        let segment_min = (2 * page + 2 * alone) as u64;
        assert!(self.segment_bytes >= segment_min, "a record must fit into a segment");
        assert!(self.segments_ahead_max >= 1, "at least one segment must be preallocated");
        assert!(self.ring_bytes >= alone as u64, "the ring is too small");
    }
}

/// Reports a lost journal on stderr and exits with [`EXIT_JOURNAL_LOST`].
pub fn end_process(error: &DiskError) -> ! {
    // Not `eprintln!`, which panics on a closed stderr: the process must exit either way.
    let _ = writeln!(
        std::io::stderr(),
        "paperbourse: the journal is lost: {error}: {}. Writes not yet acknowledged may be gone, \
         so the process exits. Check the disk and restart: every acknowledged write is in the \
         journal.",
        error.source
    );
    std::process::exit(EXIT_JOURNAL_LOST)
}

/// A write-ahead log of records.
pub enum Journal {
    /// Segments in a data directory.
    Local(LocalJournal),
    /// In memory only; nothing survives the process.
    Memory(MemoryJournal),
}

impl Journal {
    /// Opens the journal in a data directory, creating it if necessary, and passes each record to
    /// `replay` with its epoch and position, in order. After an error, discard everything that
    /// `replay` received.
    pub fn open<E: Into<Box<dyn Error + Send + Sync>>>(
        data: &DataDirectory,
        config: &JournalConfig,
        replay: impl FnMut(u64, u64, &[u8]) -> Result<(), E>,
    ) -> Result<(Self, RecoveryReport), OpenError> {
        Self::read_records(data, config, replay)?.open()
    }

    /// Reads the whole journal in a data directory, record by record.
    fn read_records<E: Into<Box<dyn Error + Send + Sync>>>(
        data: &DataDirectory,
        config: &JournalConfig,
        mut replay: impl FnMut(u64, u64, &[u8]) -> Result<(), E>,
    ) -> Result<UnopenedJournal, OpenError> {
        let read = Self::read(data, config, None, None, |batch| {
            batch.iter().zip(batch.records()).try_for_each(|((position, record), at)| {
                replay(at.epoch, position, record)
                    .map_err(|source| OpenError::Replay { position, source: source.into() })
            })
        });
        read.map_err(|error| match error {
            ReadError::Journal(error) | ReadError::Stopped(error) => error,
        })
    }

    /// Reads the journal in a data directory and passes the records to `show` in order, at most a
    /// segment at a time. Starts after `mark`, as stored in a snapshot, or at the beginning. A
    /// caller that already has some records of the first segment passes the block that holds the
    /// last of them as `resumes_at`; only later records are then shown. No block is written until
    /// [`UnopenedJournal::open`].
    pub fn read<E>(
        data: &DataDirectory,
        config: &JournalConfig,
        mark: Option<JournalMark>,
        resumes_at: Option<ChainMark>,
        show: impl FnMut(Batch) -> Result<(), E>,
    ) -> Result<UnopenedJournal, ReadError<E>> {
        config.check();
        recovery::read(data, config, mark, resumes_at, show)
    }

    /// Opens the journal as [`Self::open`] does, without threads: the caller writes blocks and
    /// makes segments through [`Steps`].
    #[cfg(any(test, feature = "test-util"))]
    pub fn open_stepped<E: Into<Box<dyn Error + Send + Sync>>>(
        data: &DataDirectory,
        config: &JournalConfig,
        replay: impl FnMut(u64, u64, &[u8]) -> Result<(), E>,
    ) -> Result<(Self, Steps, RecoveryReport), OpenError> {
        Self::read_records(data, config, replay)?.open_stepped()
    }

    /// Reserves the next place for a record of at most `record_bytes` bytes. Never blocks. Panics
    /// if `record_bytes` exceeds [`Self::record_bytes_max`].
    pub fn reserve(&self, record_bytes: usize) -> Result<Reservation<'_>, Refused> {
        let claim = match self {
            Self::Local(local) => local.reserve(record_bytes),
            Self::Memory(memory) => memory.reserve(record_bytes),
        }?;
        Ok(Reservation { journal: self, claim, record_bytes, is_filled: false })
    }

    /// Returns the length of the longest record that [`Self::reserve`] accepts, in bytes.
    pub fn record_bytes_max(&self) -> usize {
        match self {
            Self::Local(local) => local.record_bytes_max,
            Self::Memory(memory) => memory.record_bytes_max(),
        }
    }

    /// Whether the record at `lsn` is on disk.
    pub fn is_durable(&self, lsn: Lsn) -> bool {
        self.progress().is_durable(lsn)
    }

    /// Returns the newest durable place.
    pub fn durable_lsn(&self) -> Lsn {
        self.progress().durable_lsn()
    }

    /// Blocks the thread until the record at `lsn` is on disk. For startup and shutdown.
    pub fn wait_blocking(&self, lsn: Lsn) {
        self.progress().wait_blocking(lsn);
    }

    /// Blocks the thread until every reserved record is on disk. For shutdown, once no new
    /// reservation can be made.
    pub fn flush_blocking(&self) {
        self.progress().wait_blocking(self.newest_lsn());
    }

    /// Raises the epoch of new records to at least `epoch`. Each node of a cluster counts its own
    /// starts, but its records carry the cluster's epochs, so the folder may already hold records
    /// of a later epoch than the node's own.
    pub fn raise_epoch(&self, epoch: u64) {
        if let Self::Local(local) = self {
            local.epoch.fetch_max(epoch, Ordering::Relaxed);
        }
    }

    /// Puts the journal behind `upstream`: from the next record on, each block is safe there before
    /// it is written here, and new records carry the upstream's epoch. Records reserved before the
    /// call are on disk when it returns and are not sent upstream. During the call, no place may be
    /// reserved and the journal must not be tended. Panics if the journal is in memory.
    #[cfg(feature = "cluster")]
    pub fn put_behind(&self, upstream: Arc<dyn replicated::Upstream>) {
        // Flush first, so that the upstream never receives a record of an earlier epoch.
        self.flush_blocking();
        match self {
            Self::Local(local) => local.put_behind(upstream),
            Self::Memory(_) => panic!("a journal in memory has no upstream"),
        }
    }

    /// Returns the newest reserved place.
    pub fn newest_lsn(&self) -> Lsn {
        let newest = match self {
            Self::Local(local) => local.newest_position(),
            Self::Memory(memory) => memory.newest_position(),
        };
        self.progress().lsn(newest)
    }

    /// Creates the waiter group of one worker. At most [`WAITER_GROUPS_MAX`] groups may exist at a
    /// time.
    pub fn register(&self) -> Arc<Waiters> {
        self.progress().register()
    }

    /// Whether a filled record waits for a flush.
    pub fn has_unflushed(&self) -> bool {
        match self {
            Self::Local(local) => local.has_unflushed(),
            Self::Memory(_) => false,
        }
    }

    /// Flushes the filled records now. A worker calls this when it has nothing else to do. On a
    /// fast disk the calling thread flushes them itself, unless another thread is flushing. Without
    /// this call, records are still flushed within [`FLUSH_DELAY_MAX`].
    pub fn tend(&self) {
        match self {
            Self::Local(local) => local.tend(),
            Self::Memory(_) => {}
        }
    }

    /// Returns the epoch of new records: the number of times the server has started on this folder,
    /// or the epoch that a cluster has set. Always 1 for a journal in memory.
    pub fn epoch(&self) -> u64 {
        match self {
            Self::Local(local) => local.epoch.load(Ordering::Relaxed),
            Self::Memory(_) => 1,
        }
    }

    /// Returns the number of the segment being written; all earlier segments are closed. `None` for
    /// a journal in memory.
    pub fn segment(&self) -> Option<u64> {
        match self {
            Self::Local(local) => Some(local.shared.segment.load(Ordering::Acquire)),
            Self::Memory(_) => None,
        }
    }

    /// Whether writes bypass the page cache. `None` for a journal in memory.
    pub fn is_direct(&self) -> Option<bool> {
        match self {
            Self::Local(local) => Some(local.is_direct),
            Self::Memory(_) => None,
        }
    }

    /// Whether the disk was full at the last attempt to preallocate a segment.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::Local(local) => local.shared.ring.is_disk_full(),
            Self::Memory(_) => false,
        }
    }

    /// Returns the memory that the ring takes up, in bytes: its slots and the buffers that they
    /// keep. 0 for a journal in memory.
    pub fn buffer_bytes(&self) -> usize {
        match self {
            Self::Local(local) => local.shared.ring.bytes(),
            Self::Memory(_) => 0,
        }
    }

    /// Returns the flush metrics. `None` for a journal in memory.
    pub fn metrics(&self) -> Option<&JournalMetrics> {
        match self {
            Self::Local(local) => Some(&local.shared.metrics),
            Self::Memory(_) => None,
        }
    }

    fn progress(&self) -> &Arc<Progress> {
        match self {
            Self::Local(local) => &local.shared.progress,
            Self::Memory(memory) => memory.progress(),
        }
    }
}

impl From<MemoryJournal> for Journal {
    fn from(memory: MemoryJournal) -> Self {
        Self::Memory(memory)
    }
}

/// A reserved LSN, which must be filled: a hole would hold back every later record, so dropping
/// this unfilled aborts the process.
#[must_use = "dropping an unfilled reservation aborts the process"]
pub struct Reservation<'a> {
    journal: &'a Journal,
    claim: Claim,
    record_bytes: usize,
    is_filled: bool,
}

impl Reservation<'_> {
    /// Returns the place of the record.
    pub fn lsn(&self) -> Lsn {
        self.journal.progress().lsn(self.claim.position)
    }

    /// Writes the record into an empty buffer and publishes it: any later flush includes it. Panics
    /// if the record is longer than was reserved.
    pub fn fill(mut self, write: impl FnOnce(&mut Vec<u8>)) -> Lsn {
        let record_bytes = self.record_bytes;
        let write = |buffer: &mut Vec<u8>| {
            write(buffer);
            assert!(buffer.len() <= record_bytes, "a record must not outgrow its reservation");
        };
        match self.journal {
            Journal::Local(local) => local.fill(&self.claim, write),
            Journal::Memory(memory) => memory.fill(&self.claim, write),
        }
        self.is_filled = true;
        self.lsn()
    }

    /// Copies the record and publishes it. Panics if it is longer than was reserved.
    pub fn fill_from(self, record: &[u8]) -> Lsn {
        self.fill(|buffer| buffer.extend_from_slice(record))
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.is_filled {
            let _ = writeln!(
                std::io::stderr(),
                "paperbourse: a place in the journal was reserved and not filled. No later record \
                 could become durable, so the process aborts. This is a bug: please report it."
            );
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests;
