//! Flushes records: takes the filled records from the ring, writes and syncs them as one block, and
//! publishes the new durable position.
//!
//! One thread at a time flushes. It wakes the waiters after releasing the writer, so that the next
//! flush can begin meanwhile. A worker that runs out of work flushes the records it has filled, so
//! on an idle server a response waits only for the disk and not for another thread. The journal's
//! own thread flushes on request, and flushes records that have waited too long ([`watch`]). No
//! flush is delayed to collect more records: those that arrive during a flush share the next one.
//!
//! No thread waits for the writer. A thread that finds it taken moves on, since the thread that
//! holds it checks for records again after releasing it.
//!
//! [`watch`]: super::watch

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::block::{Builder, Chain};
use super::metrics::JournalMetrics;
use super::preallocator::{BlankSegment, Stock};
use super::primitives::{AtomicBool, Mutex, fence, now};
#[cfg(feature = "cluster")]
use super::replicated::{NextBlock, REPLICATED_BLOCK_BYTES_MAX, Upstream};
use super::ring::{Drain, Ring, Taken};
use super::segment;
use super::waiters::Progress;
use super::watch::{CHECK_INTERVAL, Check, Watch};
use crate::disk::{DiskError, DiskFile};
use paperbourse_core::faults::{self, Fault};

/// A flush that takes longer than this is logged.
const SLOW_FLUSH: Duration = Duration::from_secs(1);

/// The disk counts as fast while its newest flush took at most this long. A worker does nothing
/// else during a flush, so it stalls no longer than this, except in the first flush after the disk
/// has become slow.
const QUICK_FLUSH_US_MAX: u64 = 500;

/// Maximum number of blocks that a worker writes before it returns to its connections. The blocks
/// hold its own records and those that other threads have filled meanwhile. Without a limit, the
/// p99 of trades over 16 connections is 1.85 times as long.
const TENDED_FLUSHES_MAX: usize = 2;

/// State shared between the writer and the threads that reserve LSNs and wait.
pub(super) struct Shared {
    pub(super) ring: Arc<Ring>,
    pub(super) progress: Arc<Progress>,
    pub(super) metrics: JournalMetrics,
    /// Duration of the newest flush, in microseconds.
    pub(super) newest_flush_us: AtomicU64,
    /// The number of the current segment.
    pub(super) segment: AtomicU64,
    /// Set once no more reservations can be made.
    pub(super) is_closing: AtomicBool,
}

/// The end of the log on disk: the current segment, and the chain that the next block continues.
pub(super) struct Tail {
    /// Opened by [`SyncMode::open`](super::SyncMode::open).
    pub(super) file: DiskFile,
    pub(super) number: u64,
    /// Offset of the next block.
    pub(super) offset: u64,
    pub(super) segment_bytes: u64,
    pub(super) chain: Chain,
}

impl Tail {
    /// Returns the tail at the start of a new segment.
    pub(super) fn at_start_of(segment: BlankSegment, chain: Chain) -> Self {
        Self {
            file: segment.file,
            number: segment.header.number,
            offset: segment::BLOCKS_AT as u64,
            segment_bytes: segment.header.segment_bytes,
            chain,
        }
    }

    /// Returns the number of bytes left in the segment.
    pub(super) fn room(&self) -> u64 {
        self.segment_bytes - self.offset
    }

    /// Seals the block and writes it into unused pages. The block is on disk when this returns,
    /// unless the journal does not sync. Returns the length of the block in bytes.
    pub(super) fn append(&mut self, builder: &mut Builder) -> Result<u64, DiskError> {
        let block = builder.seal(&mut self.chain);
        let bytes = block.len() as u64;
        assert!(bytes <= self.room(), "a block must fit into what is left of its segment");
        self.file.write_at(block, self.offset)?;
        self.offset += bytes;
        builder.clear();
        Ok(bytes)
    }
}

/// Holds the writer while no thread is flushing; a thread locks it to flush.
pub(super) struct WriterSlot {
    pub(super) shared: Arc<Shared>,
    /// `None` once the journal is lost.
    pub(super) writer: Mutex<Option<Writer>>,
}

/// The result of [`WriterSlot::drain`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Drained {
    /// No records are left, or only records that another thread, now flushing, will find.
    Fully,
    /// Records are left: they did not fit into the allowed number of blocks.
    Partly,
    /// The journal is lost.
    Lost,
}

impl WriterSlot {
    /// Runs the loop of the journal's own thread: flushes until the journal is lost, or is closed
    /// and everything reserved is on disk.
    pub(super) fn run(&self) -> Result<(), DiskError> {
        let Shared { progress, ring, is_closing, .. } = &*self.shared;
        let wakeup = &progress.wakeup;
        wakeup.attach();
        let mut watch = Watch::new(ring.taken_position());
        loop {
            // The order matters: closing sets the flag before it requests a flush, so the last
            // check sees everything that was filled before the flag was set.
            let is_requested = wakeup.take_request();
            let is_last_check = is_closing.load(Ordering::Acquire);
            let check = watch.check(ring.taken_position(), ring.newest_position());
            let is_due = is_requested || is_last_check || check == Check::Late;
            let is_lost = is_due && self.drain(usize::MAX)? == Drained::Lost;
            if is_last_check || is_lost {
                return Ok(());
            }
            if check == Check::Quiet {
                wakeup.park_unless(|| ring.has_next());
            } else {
                wakeup.doze(CHECK_INTERVAL);
            }
        }
    }

    /// Makes sure that the filled records are flushed soon. Meant for a caller that would otherwise
    /// be idle: it flushes on the calling thread, which saves two context switches. If the disk is
    /// slow, or too many records are left, it wakes the journal's own thread for them. If another
    /// thread is already flushing, it leaves the records to that thread.
    pub(super) fn tend(&self) -> Result<(), DiskError> {
        let Shared { progress, ring, newest_flush_us, .. } = &*self.shared;
        if !ring.has_next() {
            return Ok(());
        }
        let is_quick = newest_flush_us.load(Ordering::Relaxed) <= QUICK_FLUSH_US_MAX;
        if !is_quick || self.drain(TENDED_FLUSHES_MAX)? == Drained::Partly {
            progress.wakeup.request();
        }
        Ok(())
    }

    /// Flushes until no record is left, but at most `blocks_max` blocks. Stops if another thread is
    /// flushing.
    fn drain(&self, blocks_max: usize) -> Result<Drained, DiskError> {
        for _ in 0..blocks_max {
            if !self.has_next() {
                return Ok(Drained::Fully);
            }
            let Some(mut slot) = self.writer.try_lock() else { return Ok(Drained::Fully) };
            if slot.is_none() {
                return Ok(Drained::Lost);
            }
            let flushed = flush(&mut slot)?;
            // Release the writer before waking the waiters, so that the next flush can begin
            // meanwhile.
            drop(slot);
            if let Some(flushed) = flushed {
                self.shared.progress.wake();
                flushed.warn_if_slow();
            }
        }
        Ok(if self.has_next() { Drained::Partly } else { Drained::Fully })
    }

    /// Whether a record is waiting. Call this after releasing the writer, or before locking it.
    fn has_next(&self) -> bool {
        // One thread releases the writer and checks for records; another fills a record and finds
        // the writer taken. With this fence between the two steps of each thread, at least one of
        // them sees what the other did.
        fence(Ordering::SeqCst);
        self.shared.ring.has_next()
    }

    /// Flushes the filled records as one block. Returns false if there were none, or once the
    /// journal is lost.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn flush(&self) -> Result<bool, DiskError> {
        let flushed = flush(&mut self.writer.lock())?;
        self.shared.progress.wake();
        Ok(flushed.is_some())
    }

    /// Flushes without blocking on the upstream: the caller's `upstream` delivers the block
    /// instead.
    #[cfg(all(any(test, feature = "test-util"), feature = "cluster"))]
    #[expect(clippy::await_holding_lock, reason = "everything runs in one thread")]
    pub(super) async fn flush_through(
        &self,
        upstream: impl AsyncFnOnce(NextBlock<'_>),
    ) -> Result<bool, DiskError> {
        let mut slot = self.writer.lock();
        let Some(writer) = &mut *slot else { return Ok(false) };
        let Some(begun) = writer.begin() else { return Ok(false) };
        upstream(NextBlock(&mut writer.builder)).await;
        let result = writer.finish(&begun);
        if result.is_err() {
            *slot = None;
        }
        drop(slot);
        self.shared.progress.wake();
        result.map(|_| true)
    }
}

/// Flushes the filled records as one block. `None` if there were none, or once the journal is lost.
fn flush(slot: &mut Option<Writer>) -> Result<Option<Flushed>, DiskError> {
    let Some(writer) = slot else { return Ok(None) };
    let result = writer.flush();
    if result.is_err() {
        // The state of the pages after a failed fsync is unknowable: no second attempt.
        *slot = None;
    }
    result
}

/// Takes records from the ring and writes them.
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) stock: Arc<Stock>,
    pub(super) drain: Drain,
    pub(super) tail: Tail,
    pub(super) builder: Builder,
    pub(super) block_bytes_max: usize,
    pub(super) record_bytes_max: usize,
    /// Receives each block before it is written here.
    #[cfg(feature = "cluster")]
    pub(super) upstream: Option<Arc<dyn Upstream>>,
}

/// A flush that has taken its records.
struct Begun {
    taken: Taken,
    started: Instant,
}

/// The size and the duration of a finished flush.
struct Flushed {
    records: usize,
    bytes: u64,
    elapsed: Duration,
}

impl Flushed {
    /// Logs a slow flush. Called after the waiters are woken, so that a slow log does not delay
    /// them.
    fn warn_if_slow(&self) {
        let &Self { records, bytes, elapsed } = self;
        if elapsed > SLOW_FLUSH {
            tracing::warn!(
                elapsed_ms = elapsed.as_millis(),
                records,
                bytes,
                "a flush of the journal was slow: the disk is busy or failing"
            );
        }
    }
}

impl Writer {
    /// Flushes the filled records as one block. `None` if there were none.
    fn flush(&mut self) -> Result<Option<Flushed>, DiskError> {
        let Some(begun) = self.begin() else { return Ok(None) };
        #[cfg(feature = "cluster")]
        if let Some(upstream) = &self.upstream {
            upstream.append(NextBlock(&mut self.builder));
        }
        self.finish(&begun).map(Some)
    }

    /// Takes the filled records. `None` if there are none.
    fn begin(&mut self) -> Option<Begun> {
        let mut taken = self.take();
        // A segment ends only when a filled record does not fit. Asking the ring again here could
        // find a record that was filled in the meantime and does fit.
        if taken.count == 0 && taken.is_cut {
            self.go_to_next_segment();
            taken = self.take();
            assert!(taken.count > 0, "a record must fit into an empty segment");
        }
        if taken.count == 0 {
            return None;
        }
        let started = now();
        self.shared.metrics.begin_flush(started);
        if faults::is_on(Fault::AnswerBeforeSync) {
            self.shared.progress.publish(taken.last_position);
        }
        Some(Begun { taken, started })
    }

    /// Writes the records taken and publishes them as durable.
    fn finish(&mut self, Begun { taken, started }: &Begun) -> Result<Flushed, DiskError> {
        let bytes = self.tail.append(&mut self.builder)?;
        let elapsed = now() - *started;
        assert_eq!(self.tail.chain.position, taken.last_position, "positions are contiguous");
        assert!(bytes <= taken.promised, "a block needs no more than its records were promised");
        self.note_speed(elapsed);
        self.shared.progress.advance(taken.last_position);
        self.shared.ring.add_space(taken.promised - bytes);
        self.shared.metrics.record_flush(elapsed, taken.count as u64, bytes);
        Ok(Flushed { records: taken.count, bytes, elapsed })
    }

    /// Sends each block to `upstream` first, and limits blocks to the length that it accepts.
    #[cfg(feature = "cluster")]
    pub(super) fn put_behind(&mut self, upstream: Arc<dyn Upstream>) {
        self.block_bytes_max = self.block_bytes_max.min(REPLICATED_BLOCK_BYTES_MAX);
        // The disk counts as slow, so that `tend` leaves every flush to the journal's own thread.
        self.shared.newest_flush_us.store(u64::MAX, Ordering::Relaxed);
        self.upstream = Some(upstream);
    }

    /// Records how long a flush took: workers flush only while flushes are quick. Behind an
    /// upstream they never do, since they must not wait for it.
    fn note_speed(&self, elapsed: Duration) {
        #[cfg(feature = "cluster")]
        if self.upstream.is_some() {
            return;
        }
        let elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.shared.newest_flush_us.store(elapsed_us, Ordering::Relaxed);
    }

    fn take(&mut self) -> Taken {
        let room = usize::try_from(self.tail.room()).unwrap_or(usize::MAX);
        let bytes_max = room.min(self.block_bytes_max);
        self.drain.take(|record| self.builder.push(record, bytes_max))
    }

    /// Abandons the rest of the segment. All its blocks are on disk: each was synced before the
    /// next was taken.
    fn go_to_next_segment(&mut self) {
        let unused = self.tail.room();
        let segment = self.stock.take();
        let segment = segment.expect("space is promised only in segments that are ready");
        let number = segment.header.number;
        assert_eq!(number, self.tail.number + 1, "segments are filled in order, without gaps");
        self.tail = Tail::at_start_of(segment, self.tail.chain);
        self.shared.segment.store(self.tail.number, Ordering::Release);
        // The promise assumed the largest possible unused tail.
        let unused_max = segment::unused_bytes_max(self.record_bytes_max);
        assert!(unused <= unused_max, "a segment ends only at a record that does not fit");
        self.shared.ring.add_space(unused_max - unused);
    }
}
