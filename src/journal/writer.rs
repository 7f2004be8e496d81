//! Putting records on disk: takes what is there, one block, one write, one sync, tells everyone.
//!
//! One thread at a time does it. A worker that would otherwise sleep does it with what it has just
//! filled in: on an idle server an answer then waits for the disk and for no other thread. The
//! journal's own thread does it when it is asked to, and with what was left too long ([`watch`]).
//! There is no delay to collect more records: those that arrive during a flush share the next.
//!
//! Nobody waits for the desk. Whoever finds it taken goes away, since whoever has it looks for
//! records again when it is free.
//!
//! [`watch`]: super::watch

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::block::{Builder, Chain};
use super::maker::{BlankSegment, Stock};
use super::metrics::JournalMetrics;
use super::primitives::{AtomicBool, Mutex, fence, now};
use super::ring::{Ring, Taken, Taker};
use super::waiters::Progress;
use super::watch::{LOOK_INTERVAL, Look, Watch};
use super::{SyncMode, segment};
use crate::disk::{DiskError, DiskFile};
use crate::faults::{self, Fault};

/// A flush that takes longer than this is warned about.
const SLOW_FLUSH: Duration = Duration::from_secs(1);

/// A disk is quick while its newest flush took at most this. Nothing else of a worker's happens
/// while it writes, so it stands still for no longer than that, but for the first flush of a disk
/// that turns slow.
const QUICK_FLUSH_US_MAX: u64 = 500;

/// A worker writes at most this many blocks before it looks after its connections again: its own
/// records, and those that others filled in meanwhile.
const TENDED_FLUSHES_MAX: usize = 2;

/// What the writer shares with those who reserve and wait.
pub(super) struct Shared {
    pub(super) ring: Arc<Ring>,
    pub(super) progress: Arc<Progress>,
    pub(super) metrics: JournalMetrics,
    /// How long the newest flush took, in microseconds.
    pub(super) newest_flush_us: AtomicU64,
    /// The number of the segment that is written now.
    pub(super) segment: AtomicU64,
    /// Set when there will be no further reservations.
    pub(super) is_closing: AtomicBool,
}

/// The end of the log on disk: the segment that is written to, and what the next block continues.
pub(super) struct Tail {
    pub(super) file: DiskFile,
    /// The number of the segment.
    pub(super) number: u64,
    /// Where the next block goes.
    pub(super) offset: u64,
    pub(super) segment_bytes: u64,
    pub(super) chain: Chain,
    pub(super) sync: SyncMode,
}

impl Tail {
    /// The start of a new segment.
    pub(super) fn at_start_of(segment: BlankSegment, chain: Chain, sync: SyncMode) -> Self {
        Self {
            file: segment.file,
            number: segment.header.number,
            offset: segment::BLOCKS_AT as u64,
            segment_bytes: segment.header.segment_bytes,
            chain,
            sync,
        }
    }

    /// How many bytes are left in the segment.
    pub(super) fn room(&self) -> u64 {
        self.segment_bytes - self.offset
    }

    /// Puts the block on disk, into pages that hold nothing yet.
    pub(super) fn append(&mut self, builder: &mut Builder) -> Result<u64, DiskError> {
        let block = builder.seal(&mut self.chain);
        let bytes = block.len() as u64;
        assert!(bytes <= self.room(), "a block must fit into what is left of its segment");
        self.file.write_at(block, self.offset)?;
        if self.sync == SyncMode::Always {
            self.file.sync_data()?;
        }
        self.offset += bytes;
        builder.clear();
        Ok(bytes)
    }
}

/// Where the writer is when it does not write: whoever puts records on disk takes it from here.
pub(super) struct Desk {
    pub(super) shared: Arc<Shared>,
    /// `None` once the journal is lost.
    pub(super) writer: Mutex<Option<Writer>>,
}

/// What a visit to the desk leaves behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Left {
    /// Nothing, or what somebody else who writes sees to.
    Nothing,
    /// Records: there were more than the visit was for.
    Records,
    /// The journal is lost.
    Lost,
}

impl Desk {
    /// Writes until the journal closes and everything reserved is on disk, or is lost: what the
    /// journal's own thread does.
    pub(super) fn run(&self) -> Result<(), DiskError> {
        let Shared { progress, ring, is_closing, .. } = &*self.shared;
        let bell = &progress.bell;
        bell.attach();
        let mut watch = Watch::new(ring.taken_position());
        loop {
            // In this order: who closes says so, and then rings; what was filled before is seen.
            let is_rung = bell.take_ring();
            let is_last_look = is_closing.load(Ordering::Acquire);
            let look = watch.look(ring.taken_position(), ring.newest_position());
            let is_due = is_rung || is_last_look || look == Look::Late;
            let is_lost = is_due && self.visit(usize::MAX)? == Left::Lost;
            if is_last_look || is_lost {
                return Ok(());
            }
            if look == Look::Quiet {
                bell.sleep_unless(|| ring.has_next());
            } else {
                bell.doze(LOOK_INTERVAL);
            }
        }
    }

    /// Sees to it that the records that are there reach the disk soon, for a thread that has
    /// nothing else to do. It writes them itself, which spares the time of two changes of threads,
    /// unless the disk is slow or somebody writes at the moment.
    pub(super) fn tend(&self) -> Result<(), DiskError> {
        let Shared { progress, ring, newest_flush_us, .. } = &*self.shared;
        if !ring.has_next() {
            return Ok(());
        }
        let is_quick = newest_flush_us.load(Ordering::Relaxed) <= QUICK_FLUSH_US_MAX;
        if !is_quick || self.visit(TENDED_FLUSHES_MAX)? == Left::Records {
            progress.bell.ring();
        }
        Ok(())
    }

    /// Writes until no record is there, at most so many blocks, unless somebody else writes.
    fn visit(&self, blocks_max: usize) -> Result<Left, DiskError> {
        for _ in 0..blocks_max {
            if !self.has_next() {
                return Ok(Left::Nothing);
            }
            let Some(mut desk) = self.writer.try_lock() else { return Ok(Left::Nothing) };
            if desk.is_none() {
                return Ok(Left::Lost);
            }
            flush(&mut desk)?;
        }
        Ok(if self.has_next() { Left::Records } else { Left::Nothing })
    }

    /// Whether a record is there, for whoever has just left the desk or goes there next.
    fn has_next(&self) -> bool {
        // One thread leaves the desk and looks for records; another fills one in and finds the desk
        // taken. With this between the two steps of each, at least one sees what the other did.
        fence(Ordering::SeqCst);
        self.shared.ring.has_next()
    }

    /// Puts the records that are there on disk, as one block. False when there were none, and once
    /// the journal is lost.
    #[cfg(test)]
    pub(super) fn flush(&self) -> Result<bool, DiskError> {
        flush(&mut self.writer.lock())
    }
}

fn flush(desk: &mut Option<Writer>) -> Result<bool, DiskError> {
    let Some(writer) = desk else { return Ok(false) };
    let result = writer.flush();
    if result.is_err() {
        // What the system does with pages after a failed sync is not knowable: no second attempt.
        *desk = None;
    }
    result
}

/// Takes what is there and puts it on disk.
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) stock: Arc<Stock>,
    pub(super) taker: Taker,
    pub(super) tail: Tail,
    pub(super) builder: Builder,
    pub(super) block_bytes_max: usize,
    pub(super) record_bytes_max: usize,
}

impl Writer {
    /// Puts the records that are there on disk. False when there were none.
    fn flush(&mut self) -> Result<bool, DiskError> {
        let mut taken = self.take();
        // Only a record that was there and did not fit ends a segment: to ask again whether one is
        // there would also find a record that came just now, for which there is room.
        if taken.count == 0 && taken.is_cut {
            self.go_to_next_segment();
            taken = self.take();
            assert!(taken.count > 0, "a record must fit into an empty segment");
        }
        if taken.count == 0 {
            return Ok(false);
        }
        let started = now();
        self.shared.metrics.begin_flush(started);
        if faults::is_on(Fault::AnswerBeforeSync) {
            self.shared.progress.publish(taken.last_position);
        }
        let bytes = self.tail.append(&mut self.builder)?;
        let elapsed = now() - started;
        assert_eq!(self.tail.chain.position, taken.last_position, "positions are contiguous");
        let elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.shared.newest_flush_us.store(elapsed_us, Ordering::Relaxed);
        self.shared.progress.publish(taken.last_position);
        self.shared.ring.add_space(taken.promised - bytes);
        self.shared.metrics.record_flush(elapsed, taken.count as u64, bytes);
        if elapsed > SLOW_FLUSH {
            tracing::warn!(
                elapsed_ms = elapsed.as_millis(),
                records = taken.count,
                bytes,
                "a flush of the journal was slow: the disk is busy or failing"
            );
        }
        Ok(true)
    }

    fn take(&mut self) -> Taken {
        let room = usize::try_from(self.tail.room()).unwrap_or(usize::MAX);
        let bytes_max = room.min(self.block_bytes_max);
        self.taker.take(|record| self.builder.push(record, bytes_max))
    }

    /// Leaves the rest of the segment unused. All its blocks are on disk: each was synced before
    /// the next was taken.
    fn go_to_next_segment(&mut self) {
        let unused = self.tail.room();
        let segment = self.stock.take();
        let segment = segment.expect("space is promised only in segments that are ready");
        self.tail = Tail::at_start_of(segment, self.tail.chain, self.tail.sync);
        self.shared.segment.store(self.tail.number, Ordering::Release);
        // The promise was made as if the most possible had stayed unused.
        let unused_max = segment::unused_bytes_max(self.record_bytes_max);
        assert!(unused <= unused_max, "a segment is left only when a record does not fit any more");
        self.shared.ring.add_space(unused_max - unused);
    }
}
