//! The write-ahead log: a total order of records, and the watermark up to which they are on disk.
//!
//! The journal treats a record as opaque bytes: it orders records, writes them, and reports when
//! they are durable. It knows nothing of accounts, shards or commands.
//!
//! # The contract
//!
//! - [`Journal::reserve`] takes the next place without blocking, or refuses and changes nothing.
//!   After a successful reservation **nothing may fail**: dropping one unfilled would leave a hole
//!   in the log, so it aborts the process.
//! - [`Reservation::fill`] copies the record. Records become durable in the order of their places:
//!   an unfilled one holds back every record after it.
//! - [`Waiters::durable`] completes when the record at a place and every record before it are on
//!   disk. No answer that depends on a record may leave before that.
//! - **Flushing needs no help**: the flush of a filled record begins within [`FLUSH_DELAY_MAX`],
//!   even if nobody waits for it and all workers are busy. [`Journal::tend`] makes it sooner.
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
//! Every block is vouched for by the one after it, except the newest: nothing on disk says that it
//! was acknowledged. If the process crashes and the disk later loses a sector of that block
//! although it had confirmed the write, the block looks torn. The next start cuts it, keeps a copy
//! and reports it. If the disk loses all of the block's sectors, nothing is left to notice. Any
//! other damage stops the start, and so does this one once anything has been written after the
//! block; each start writes a block.
//!
//! # The rules of a write-ahead log, and the tests that enforce them
//!
//! `tests/tidy` checks that each test named here exists. Besides these, `simulation` exercises all
//! the rules together, thousands of times. Rule 24 usually means `O_DIRECT`, which bypasses the
//! page cache; here each start rewrites the newest block instead. That is the one exception to rule
//! 14: its pages are written again, with the same bytes.
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
pub use paperbourse_core::ids::Place;
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

/// The log id of every place in a journal on disk.
const LOCAL_LOG: u8 = 0;

/// Why a reservation was refused. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// Too many records or bytes are in flight, or the next segment is not ready yet. Retry soon.
    #[error("the journal has too many writes in flight")]
    Busy,
    /// No preallocated disk space is left for the record, and the disk has no room for more.
    #[error("the journal has no disk space left")]
    Full,
}

/// How records get to disk.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum SyncMode {
    /// A record is durable once it is on disk: written around the page cache with `O_DIRECT` and
    /// `O_DSYNC` where the file system can, which takes one system call, and otherwise as for
    /// [`Self::Fdatasync`].
    #[default]
    Always,
    /// A record is durable once it is on disk, by a write and an `fdatasync`.
    Fdatasync,
    /// A record is durable once the operating system has it. For benchmarks.
    Never,
}

impl SyncMode {
    /// Opens a segment whose writes are durable, in the sense of this mode, when they return.
    fn open(self, disk: &Disk, path: &Path) -> Result<DiskFile, DiskError> {
        match self {
            Self::Always => disk.open_durable(path, true),
            Self::Fdatasync => disk.open_durable(path, false),
            Self::Never => disk.open(path),
        }
    }
}

/// Called when the journal is lost. Production uses [`end_process`]. After a handler that returns,
/// as in a test, nothing becomes durable any more.
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
    /// Maximum disk space that records may need which are reserved but not yet taken by the writer,
    /// in bytes, counting each as if it had a block of its own: at least 4096 for each.
    pub ring_bytes: u64,
    /// Longest block, in bytes; a multiple of 4096, up to 4 MiB.
    pub block_bytes_max: usize,
    /// Longest record, in bytes, at most [`RECORD_BYTES_MAX`].
    pub record_bytes_max: usize,
    /// How records get to disk.
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
    /// As many as are configured, but no more bytes than [`BYTES_AHEAD_MAX`].
    fn segments_ahead_fitting(&self) -> usize {
        let fitting = BYTES_AHEAD_MAX / self.segment_bytes;
        self.segments_ahead_max.min(usize::try_from(fitting).unwrap_or(usize::MAX)).max(1)
    }

    /// How many records the ring can hold: each needs at least a page.
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
        // The header, the block that begins an epoch, one record, and the largest unused end.
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
    /// Segments in a directory.
    Local(LocalJournal),
    /// Memory only.
    Memory(MemoryJournal),
}

impl Journal {
    /// Opens the journal in a data directory, creating it if necessary, and passes each record to
    /// `replay` with its epoch and position, in order. After an error, discard what `replay` has
    /// received.
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

    /// Reads the journal in a data directory, starting after the mark that a snapshot stores, and
    /// passes the records of each segment to `show`, in order. A caller that already has records of
    /// the first of these segments names the block with the last of them, and is shown what follows
    /// it. Nothing is written until [`UnopenedJournal::open`].
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

    /// Takes the next place, for a record of at most `record_bytes` bytes. Never blocks. Panics if
    /// `record_bytes` exceeds [`Self::record_bytes_max`].
    pub fn reserve(&self, record_bytes: usize) -> Result<Reservation<'_>, Refused> {
        let claim = match self {
            Self::Local(local) => local.reserve(record_bytes),
            Self::Memory(memory) => memory.reserve(record_bytes),
        }?;
        Ok(Reservation { journal: self, claim, record_bytes, is_filled: false })
    }

    /// Longest record that [`Self::reserve`] accepts, in bytes.
    pub fn record_bytes_max(&self) -> usize {
        match self {
            Self::Local(local) => local.record_bytes_max,
            Self::Memory(memory) => memory.record_bytes_max(),
        }
    }

    /// Whether the record at `place` is on disk.
    pub fn is_durable(&self, place: Place) -> bool {
        self.progress().is_durable(place)
    }

    /// The newest durable place.
    pub fn durable_place(&self) -> Place {
        self.progress().durable_place()
    }

    /// Blocks the thread until the record at `place` is on disk. For startup and shutdown.
    pub fn wait_blocking(&self, place: Place) {
        self.progress().wait_blocking(place);
    }

    /// Blocks the thread until every reserved record is on disk. For shutdown, once no new
    /// reservation can be made.
    pub fn flush_blocking(&self) {
        self.progress().wait_blocking(self.newest_place());
    }

    /// The folder has records of this epoch already, so new ones are at least of the same. Each
    /// node of a cluster counts its own starts, and the records are of the cluster's epochs.
    pub fn raise_epoch(&self, epoch: u64) {
        if let Self::Local(local) = self {
            local.epoch.fetch_max(epoch, Ordering::Relaxed);
        }
    }

    /// Puts the journal behind `upstream`: from the next record on, each block is safe there before
    /// it is written here, and new records are of its epoch. Everything reserved before is on disk
    /// when this returns, and does not go there. Meanwhile nobody may reserve a place or tend the
    /// journal. Panics if the journal is in memory.
    #[cfg(feature = "cluster")]
    pub fn put_behind(&self, upstream: Arc<dyn replicated::Upstream>) {
        self.flush_blocking();
        match self {
            Self::Local(local) => local.put_behind(upstream),
            Self::Memory(_) => panic!("a journal in memory has no upstream"),
        }
    }

    /// The newest place that was given.
    pub fn newest_place(&self) -> Place {
        let newest = match self {
            Self::Local(local) => local.newest_position(),
            Self::Memory(memory) => memory.newest_position(),
        };
        self.progress().place(newest)
    }

    /// Creates the waiter group of one worker. At most [`WAITER_GROUPS_MAX`] groups may exist at a
    /// time.
    pub fn register(&self) -> Arc<Waiters> {
        self.progress().register()
    }

    /// Flushes the filled records now. An idle worker calls this each time before it sleeps. On a
    /// fast disk the calling thread flushes them itself, unless another one is flushing. No record
    /// depends on this to be flushed.
    pub fn tend(&self) {
        match self {
            Self::Local(local) => local.tend(),
            Self::Memory(_) => {}
        }
    }

    /// The epoch of new records: how often the server was started on this folder, unless a cluster
    /// has counted further. Always 1 in memory.
    pub fn epoch(&self) -> u64 {
        match self {
            Self::Local(local) => local.epoch.load(Ordering::Relaxed),
            Self::Memory(_) => 1,
        }
    }

    /// The number of the segment being written; all earlier ones are closed. `None` in memory.
    pub fn segment(&self) -> Option<u64> {
        match self {
            Self::Local(local) => Some(local.shared.segment.load(Ordering::Acquire)),
            Self::Memory(_) => None,
        }
    }

    /// Whether records are written around the page cache. `None` in memory.
    pub fn is_direct(&self) -> Option<bool> {
        match self {
            Self::Local(local) => Some(local.is_direct),
            Self::Memory(_) => None,
        }
    }

    /// Whether the disk was full when a segment was last to be made.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::Local(local) => local.shared.ring.is_disk_full(),
            Self::Memory(_) => false,
        }
    }

    /// The memory of the records that wait for the disk, and of the room for more.
    pub fn buffer_bytes(&self) -> usize {
        match self {
            Self::Local(local) => local.shared.ring.bytes(),
            Self::Memory(_) => 0,
        }
    }

    /// Flush metrics. `None` in memory.
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

/// A reserved place, which must be filled: a hole would hold back every later record, so dropping
/// this unfilled aborts the process.
#[must_use = "dropping an unfilled reservation aborts the process"]
pub struct Reservation<'a> {
    journal: &'a Journal,
    claim: Claim,
    record_bytes: usize,
    is_filled: bool,
}

impl Reservation<'_> {
    /// The place of the record.
    pub fn place(&self) -> Place {
        self.journal.progress().place(self.claim.position)
    }

    /// Writes the record into an empty buffer and publishes it: any later flush includes it. Panics
    /// if the record is longer than was reserved.
    pub fn fill(mut self, write: impl FnOnce(&mut Vec<u8>)) -> Place {
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
        self.place()
    }

    /// Copies the record and publishes it. Panics if it is longer than was reserved.
    pub fn fill_from(self, record: &[u8]) -> Place {
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
