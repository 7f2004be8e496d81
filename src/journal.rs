//! The journal: a total order of records, and the word that a record is on disk.
//!
//! To the journal a record is bytes. Who reserves a place decides what stands there; the journal
//! decides the order, puts it on disk, and says when it is there. It knows nothing of accounts,
//! shards or commands.
//!
//! # The contract
//!
//! - [`Journal::reserve`] takes the next place without blocking, or refuses and changes nothing.
//!   After it **nothing may fail**: a reservation that is dropped unfilled would be a hole in the
//!   order, and ends the process.
//! - [`Reservation::fill`] copies the record. Records become durable in the order of their places:
//!   one that is not filled holds back all after it.
//! - [`Waiters::durable`] ends when the record at a place, and with it every one before, is on
//!   disk. No answer that rests on a record may leave before.
//! - **Nobody has to help**: the flush of a record that was filled begins within
//!   [`FLUSH_DELAY_MAX`], whoever waits for it and whatever all workers do. [`Journal::tend`] makes
//!   it sooner.
//! - **Lost**: a write or a sync that fails is final, since the system may have thrown the bytes
//!   away and marked them clean. It is never tried again: the process ends with
//!   [`EXIT_JOURNAL_LOST`], for its state runs ahead of the disk and must be forgotten.
//!
//! # On disk
//!
//! The data directory holds the file `lock` and the directory `journal`; in it segments
//! ([`segment`]) full of blocks ([`block`]). One thread at a time writes ([`writer`]), one prepares
//! segments ([`maker`]), and [`recovery`] reads it all back. A reservation is a promise of space in
//! segments that are on disk already, so a full disk refuses new records and never hurts one.
//!
//! # What it cannot tell
//!
//! Nothing on disk says that the newest block was acknowledged; each other one is vouched for by
//! the block behind it. If the process crashes, and the disk later loses a sector of the newest
//! block that it had confirmed, the block looks as if it had never been whole: the next start cuts
//! it, keeps what it cut, and says so. Its only sector, or all of them, may go without a trace.
//! Every other damage stops the start, and so does this one as soon as anything was written behind
//! the block: each start writes a block.
//!
//! # The rules of a write-ahead log, and the tests that hold them
//!
//! `tests/tidy` checks that each row names a test that is there. Besides these, `simulation`
//! meets all of them at once, thousands of times. Rule 24 asks for `O_DIRECT`, which spares one the
//! page cache; here the newest block is written once more at each start instead. That is the one
//! exception to rule 14: its pages are written again, with the bytes that they hold.
//!
//! | | rule | test |
//! |---|---|---|
//! | 1 | acknowledge after the flush that covers it | `an_acknowledged_record_lies_in_the_file` |
//! | 2 | nothing is seen that is not on disk | `nothing_is_durable_while_the_gate_is_held` |
//! | 3 | a failed sync ends the process | `a_failed_sync_is_final` |
//! | 4 | sync files, then their directory, then read | `opening_syncs_before_it_reads` |
//! | 5 | sync the directory after a new name | `names_are_on_disk_before_they_are_relied_on` |
//! | 6 | the directory appears whole | `a_half_made_journal_is_made_again` |
//! | 7 | segments are zeros on disk before use | `segments_are_made_of_zeros` |
//! | 8 | checksums chain over blocks and segments | `segments_do_not_swap` |
//! | 9 | no stale record is read: segments are never used twice | `a_torn_tail_is_cut_for_good` |
//! | 10 | lengths are aligned, and checked before use | `a_length_is_checked_before_it_is_used` |
//! | 11 | a torn end is cut | `every_torn_last_block_is_cut` |
//! | 11 | and nowhere else | `a_torn_block_before_the_last_segment_refuses_to_start` |
//! | 12 | a copy is kept of what is cut | `every_torn_last_block_is_cut` |
//! | 13 | zeros after the last block | `a_torn_tail_is_cut_for_good` |
//! | 14 | acknowledged pages stay untouched | `blocks_start_on_pages_of_their_own` |
//! | 15 | a segment is durable before the next | `rotation_keeps_every_record` |
//! | 16 | a failed or short write ends the process | `a_failed_write_is_final` |
//! | 16 | a full disk is met before a reservation | `without_prepared_space_nothing_is_reserved` |
//! | 17 | a snapshot is whole before segments move | `what_a_crash_left_is_put_where_it_belongs` |
//! | 17 | and the one before it stays | `a_damaged_snapshot_refuses_to_start` |
//! | 18 | one process | `a_second_process_is_refused` |
//! | 19 | what is read is checked again | `a_record_that_does_not_follow_is_refused` |
//! | 20 | what is not known stops it | `another_version_is_refused_with_a_clear_word` |
//! | 20 | and what is missing | `a_journal_without_its_beginning_refuses_to_start` |
//! | 21 | names of orders survive with them | `a_crash_loses_nothing_that_was_answered` |
//! | 22 | time enters as a value | `pure_modules_stay_pure` |
//! | 23 | flushes are counted, slow ones named | `flushes_are_counted` |
//! | 24 | the page cache is not trusted at start | `a_process_that_ended_leaves_nothing_in_doubt` |

mod bell;
mod block;
mod broken;
mod directory;
mod local;
mod maker;
mod memory;
mod metrics;
pub(crate) mod primitives;
mod reader;
pub mod record;
mod recovery;
mod ring;
mod segment;
mod tail;
mod waiters;
mod watch;
mod writer;

use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use crate::disk::DiskError;
pub use crate::ids::Place;
pub use block::{Damage, LogId};
pub(crate) use block::{u32_at, u64_at};
pub use directory::DataDirectory;
pub(crate) use directory::{ARCHIVE_NAME, JOURNAL_NAME};
pub use local::LocalJournal;
#[cfg(test)]
pub(crate) use local::Steps;
pub use memory::{Gate, MemoryJournal};
pub use metrics::{BUCKET_COUNT, Histogram, JournalMetrics};
pub use reader::{
    Batch, ChainMark, JournalMark, OpenBatch, RecordAt, SegmentReader, segment_name, segment_number,
};
pub use recovery::{OpenError, ReadError, RecoveryReport, TornTail, UnopenedJournal};
use ring::Ticket;
pub(crate) use segment::number_before;
use waiters::Progress;
pub use waiters::{DurableWait, WAITER_GROUPS_MAX, Waiters};
pub use watch::FLUSH_DELAY_MAX;

/// The longest record: an order that takes all 9,999 levels of a side needs 160,000 bytes for them.
pub const RECORD_BYTES_MAX: usize = 256 * 1024;

/// How the process ends when the journal is lost: the code that `sysexits` calls an input/output
/// error.
pub const EXIT_JOURNAL_LOST: i32 = 74;

/// The log of all places in a directory.
const LOCAL_LOG: u8 = 0;

/// Why no place was given. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// More is on its way to the disk than may be: try again soon.
    #[error("the journal has as much in flight as it may have")]
    Busy,
    /// No prepared disk space is left for it.
    #[error("the journal has no prepared disk space left")]
    Full,
}

/// Whether a flush waits for the disk.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum SyncMode {
    /// A record is durable when the disk has it.
    #[default]
    Always,
    /// A record is durable when the operating system has it: for benchmarks.
    Never,
}

/// What to do when the journal is lost. The one for production is [`end_process`]; after one that
/// returns, as in a test, nothing becomes durable any more.
pub type OnLost = Arc<dyn Fn(&DiskError) + Send + Sync>;

/// The bounds of a journal.
#[derive(Clone)]
pub struct JournalConfig {
    /// The length of a new segment, a multiple of 4096.
    pub segment_bytes: u64,
    /// How many segments are kept ready, at least 1.
    pub segments_ahead: usize,
    /// How many records may be reserved and not yet with the writer; raised to a power of two.
    pub ring_slots: usize,
    /// How many bytes on disk those may need, each counted as if it were alone in its block.
    pub ring_bytes: u64,
    /// The longest block, a multiple of 4096 up to 4 MiB.
    pub block_bytes_max: usize,
    /// The longest record, at most [`RECORD_BYTES_MAX`].
    pub record_bytes_max: usize,
    /// Whether flushes wait for the disk.
    pub sync: SyncMode,
    /// What happens on a failed write or sync.
    pub on_lost: OnLost,
}

impl Default for JournalConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            segments_ahead: 1,
            ring_slots: 16 << 10,
            ring_bytes: 48 << 20,
            block_bytes_max: 1 << 20,
            record_bytes_max: RECORD_BYTES_MAX,
            sync: SyncMode::Always,
            on_lost: Arc::new(|error| end_process(error)),
        }
    }
}

impl JournalConfig {
    fn check(&self) {
        let page = block::PAGE_BYTES;
        let alone = block::alone_bytes(self.record_bytes_max);
        assert!(self.record_bytes_max <= RECORD_BYTES_MAX, "records are too long");
        assert!(self.block_bytes_max.is_multiple_of(page), "blocks end on pages");
        assert!(self.block_bytes_max <= block::BLOCK_BYTES_MAX, "blocks are too long");
        assert!(self.block_bytes_max >= alone, "a record must fit into a block");
        assert!(self.segment_bytes.is_multiple_of(page as u64), "segments end on pages");
        assert!(self.segment_bytes <= segment::SEGMENT_BYTES_MAX, "segments are too long");
        // Its header, the block that begins an epoch, a record, and what may stay unused.
        let segment_min = (2 * page + 2 * alone) as u64;
        assert!(self.segment_bytes >= segment_min, "a record must fit into a segment");
        assert!(self.segments_ahead >= 1, "one segment must be ready");
        assert!(self.ring_slots >= 1 && self.ring_bytes >= alone as u64, "the ring is too small");
    }
}

/// The last words of a process whose journal is lost.
pub fn end_process(error: &DiskError) -> ! {
    // Written by hand: a closed stderr must not keep the process alive.
    let _ = writeln!(
        std::io::stderr(),
        "paperbourse: the journal is lost: {error}: {}. Nothing that was not acknowledged can be \
         trusted any more, so the process ends. Check the disk and start again: every \
         acknowledged write is in the journal.",
        error.source
    );
    std::process::exit(EXIT_JOURNAL_LOST)
}

/// The order of records, and what of it is on disk.
pub enum Journal {
    /// Segments in a directory.
    Local(LocalJournal),
    /// Nothing but memory.
    Memory(MemoryJournal),
}

impl Journal {
    /// Opens the journal in a data directory, making it if need be, and shows each record to
    /// `replay` with its epoch and position, in order. On an error what was shown means nothing.
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
        let read = Self::read(data, config, None, |batch| {
            batch.iter().zip(batch.records()).try_for_each(|((position, record), at)| {
                replay(at.epoch, position, record)
                    .map_err(|source| OpenError::Replay { position, source: source.into() })
            })
        });
        read.map_err(|error| match error {
            ReadError::Journal(error) | ReadError::Stopped(error) => error,
        })
    }

    /// Reads the journal in a data directory, from behind the mark on, which a snapshot has kept,
    /// and shows the records of each segment, in order. Only [`UnopenedJournal::open`] changes it.
    pub fn read<E>(
        data: &DataDirectory,
        config: &JournalConfig,
        mark: Option<JournalMark>,
        show: impl FnMut(Batch) -> Result<(), E>,
    ) -> Result<UnopenedJournal, ReadError<E>> {
        config.check();
        recovery::read(data, config, mark, show)
    }

    /// Opens the journal as [`Self::open`] does, without threads: nothing is written and no segment
    /// is made but by the steps.
    #[cfg(test)]
    pub(crate) fn open_stepped<E: Into<Box<dyn Error + Send + Sync>>>(
        data: &DataDirectory,
        config: &JournalConfig,
        replay: impl FnMut(u64, u64, &[u8]) -> Result<(), E>,
    ) -> Result<(Self, Steps, RecoveryReport), OpenError> {
        Self::read_records(data, config, replay)?.open_stepped()
    }

    /// Takes the next place for a record of at most `record_bytes`, which is at most the
    /// configured length. It never blocks.
    pub fn reserve(&self, record_bytes: usize) -> Result<Reservation<'_>, Refused> {
        let ticket = match self {
            Self::Local(local) => local.reserve(record_bytes),
            Self::Memory(memory) => memory.reserve(record_bytes),
        }?;
        Ok(Reservation { journal: self, ticket, record_bytes, is_filled: false })
    }

    /// The longest record that [`Self::reserve`] takes.
    pub fn record_bytes_max(&self) -> usize {
        match self {
            Self::Local(local) => local.record_bytes_max,
            Self::Memory(memory) => memory.record_bytes_max(),
        }
    }

    /// Whether the record at this place is on disk.
    pub fn is_durable(&self, place: Place) -> bool {
        self.progress().is_durable(place)
    }

    /// The newest place that is on disk.
    pub fn durable_place(&self) -> Place {
        self.progress().durable_place()
    }

    /// Blocks the thread until the record at this place is on disk: for start and shutdown.
    pub fn wait_blocking(&self, place: Place) {
        self.progress().wait_blocking(place);
    }

    /// Blocks the thread until everything that was reserved so far is on disk: for shutdown, when
    /// no reservation is on its way any more.
    pub fn flush_blocking(&self) {
        self.progress().wait_blocking(self.newest_place());
    }

    /// The newest place that was given.
    pub fn newest_place(&self) -> Place {
        let newest = match self {
            Self::Local(local) => local.newest_position(),
            Self::Memory(memory) => memory.newest_position(),
        };
        self.progress().place(newest)
    }

    /// A group for the waits of one worker. At most [`WAITER_GROUPS_MAX`] live at a time.
    pub fn register(&self) -> Arc<Waiters> {
        self.progress().register()
    }

    /// Has the records that are there put on disk at once: for a worker that has nothing else to
    /// do, each time before it sleeps. On a quick disk it returns when they are there. Nobody's
    /// flush depends on it.
    pub fn tend(&self) {
        match self {
            Self::Local(local) => local.tend(),
            Self::Memory(_) => {}
        }
    }

    /// The epoch in which records are written now. In memory it is always 1.
    pub fn epoch(&self) -> u64 {
        match self {
            Self::Local(local) => local.epoch,
            Self::Memory(_) => 1,
        }
    }

    /// The segment that is written now: all before it are closed. In memory there is none.
    pub fn segment(&self) -> Option<u64> {
        match self {
            Self::Local(local) => Some(local.shared.segment.load(Ordering::Acquire)),
            Self::Memory(_) => None,
        }
    }

    /// The figures of the flushes. In memory there are none.
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

/// A place that is taken and must be filled: a hole in the order would hold back everything after
/// it, so dropping this unfilled ends the process.
#[must_use = "a reservation that is not filled ends the process"]
pub struct Reservation<'a> {
    journal: &'a Journal,
    ticket: Ticket,
    record_bytes: usize,
    is_filled: bool,
}

impl Reservation<'_> {
    /// The place of the record.
    pub fn place(&self) -> Place {
        self.journal.progress().place(self.ticket.position)
    }

    /// Writes the record into an empty buffer, no longer than was reserved, and publishes it: from
    /// now on a flush will take it along.
    pub fn fill(mut self, write: impl FnOnce(&mut Vec<u8>)) -> Place {
        let record_bytes = self.record_bytes;
        let write = |buffer: &mut Vec<u8>| {
            write(buffer);
            assert!(buffer.len() <= record_bytes, "a record must not outgrow its reservation");
        };
        match self.journal {
            Journal::Local(local) => local.fill(&self.ticket, write),
            Journal::Memory(memory) => memory.fill(&self.ticket, write),
        }
        self.is_filled = true;
        self.place()
    }

    /// Copies the record, no longer than was reserved, and publishes it.
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
                 could ever become durable, so the process ends. This is a bug: please report it."
            );
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests;
