//! The journal on disk: its threads, from opening to the last flush.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use super::preallocator::{Preallocator, Stock};
use super::primitives::{AtomicBool, Mutex};
#[cfg(all(any(test, feature = "test-util"), feature = "cluster"))]
use super::replicated::NextBlock;
#[cfg(feature = "cluster")]
use super::replicated::Upstream;
use super::ring::{Claim, Ring};
use super::waiters::Progress;
use super::writer::{self, Writer, WriterSlot};
use super::{
    DataDirectory, JournalConfig, JournalMetrics, LOCAL_LOG, OnLost, Refused, block, recovery,
    segment,
};
use crate::disk::DiskError;

/// The journal on disk. Dropping it waits until every filled record is flushed. The exception is a
/// drop on the journal's own thread, by a task that the thread woke: the thread then flushes as
/// soon as the drop returns.
pub struct LocalJournal {
    pub(super) shared: Arc<writer::Shared>,
    pub(super) stock: Arc<Stock>,
    writer: Arc<WriterSlot>,
    on_lost: OnLost,
    threads: Vec<JoinHandle<()>>,
    /// The epoch of new records.
    pub(super) epoch: AtomicU64,
    pub(super) record_bytes_max: usize,
    pub(super) is_direct: bool,
    /// Released after the threads have ended.
    data: DataDirectory,
}

impl LocalJournal {
    /// Starts a journal with both its threads.
    pub(super) fn start(recovered: recovery::Recovered, config: &JournalConfig) -> Self {
        let (mut journal, preallocator) = Self::assemble(recovered, config);
        let (writer, data) = (journal.writer.clone(), journal.data.clone());
        let run = move || {
            let ended = writer.run();
            // Keep the lock until the last flush: no other process may open the directory before
            // then.
            drop(data);
            ended
        };
        journal.threads = vec![
            spawn("journal", &config.on_lost, run),
            spawn("journal-preallocator", &config.on_lost, move || preallocator.run()),
        ];
        journal
    }

    /// Starts a journal without threads: the caller does their work through [`Steps`].
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn start_stepped(
        recovered: recovery::Recovered,
        config: &JournalConfig,
    ) -> (Self, Steps) {
        let (journal, preallocator) = Self::assemble(recovered, config);
        let writer = journal.writer.clone();
        (journal, Steps { writer, preallocator })
    }

    fn assemble(recovered: recovery::Recovered, config: &JournalConfig) -> (Self, Preallocator) {
        let recovery::Recovered { data, template, tail, ready, next_number, .. } = recovered;
        let (epoch, position) = (tail.chain.epoch, tail.chain.position);
        let is_direct = tail.file.is_direct();
        let (ring, drain) = Ring::new(config.ring_slots(), config.ring_bytes, position);
        ring.add_space(tail.room() - segment::unused_bytes_max(config.record_bytes_max));
        for segment in &ready {
            let bytes = segment.header.segment_bytes;
            ring.add_space(segment::usable_bytes(bytes, config.record_bytes_max));
        }
        let stock = Arc::new(Stock::new(ready, next_number));
        let shared = Arc::new(writer::Shared {
            ring: ring.clone(),
            progress: Arc::new(Progress::new(LOCAL_LOG, position)),
            newest_flush_us: AtomicU64::new(0),
            metrics: JournalMetrics::default(),
            segment: AtomicU64::new(tail.number),
            is_closing: AtomicBool::new(false),
        });
        let writer = Writer {
            shared: shared.clone(),
            stock: stock.clone(),
            drain,
            tail,
            builder: block::Builder::new(),
            block_bytes_max: config.block_bytes_max,
            record_bytes_max: config.record_bytes_max,
            #[cfg(feature = "cluster")]
            upstream: None,
        };
        let preallocator = Preallocator {
            template,
            stock: stock.clone(),
            ring,
            segments_ahead_max: config.segments_ahead_fitting(),
            record_bytes_max: config.record_bytes_max,
        };
        let record_bytes_max = config.record_bytes_max;
        let threads = Vec::new();
        let writer =
            Arc::new(WriterSlot { shared: shared.clone(), writer: Mutex::new(Some(writer)) });
        let on_lost = config.on_lost.clone();
        let journal = Self {
            shared,
            stock,
            writer,
            on_lost,
            threads,
            epoch: AtomicU64::new(epoch),
            record_bytes_max,
            is_direct,
            data,
        };
        (journal, preallocator)
    }

    pub(super) fn reserve(&self, record_bytes: usize) -> Result<Claim, Refused> {
        assert!(record_bytes <= self.record_bytes_max, "a record is too long: {record_bytes}");
        let result = self.shared.ring.reserve(block::alone_bytes(record_bytes) as u64);
        if result.is_err() {
            // The records that fill the ring may have no waiter, so request a flush.
            self.shared.progress.wakeup.request();
        }
        result
    }

    /// Sends each block to `upstream` before writing it, from the next block on.
    #[cfg(feature = "cluster")]
    pub(super) fn put_behind(&self, upstream: Arc<dyn Upstream>) {
        let mut slot = self.writer.writer.lock();
        self.epoch.store(upstream.epoch(), Ordering::Relaxed);
        // If the journal is lost, the process is about to end.
        if let Some(writer) = &mut *slot {
            writer.put_behind(upstream);
        }
    }

    pub(super) fn newest_position(&self) -> u64 {
        self.shared.ring.newest_position()
    }

    pub(super) fn fill(&self, claim: &Claim, write: impl FnOnce(&mut Vec<u8>)) {
        self.shared.ring.fill(claim, write);
        self.shared.progress.wakeup.notify();
    }

    pub(super) fn has_unflushed(&self) -> bool {
        self.shared.ring.has_next()
    }

    pub(super) fn tend(&self) {
        if let Err(error) = self.writer.tend() {
            (self.on_lost)(&error);
        }
    }
}

impl Drop for LocalJournal {
    fn drop(&mut self) {
        // Set the flag before requesting the flush: `WriterSlot::run` relies on this order.
        self.shared.is_closing.store(true, Ordering::Release);
        self.shared.progress.wakeup.request();
        self.stock.close();
        let this = thread::current().id();
        // A task woken by a flush may drop the last reference, on the journal's own thread. That
        // thread cannot join itself; it exits as soon as this returns.
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != this) {
            // A thread that panicked has already reported why, and with `panic = "abort"` the
            // process is gone.
            let _ = thread.join();
        }
    }
}

/// The work of the journal's threads, one step at a time, for callers that run it all on one
/// thread, in an order of their choice. After an error the journal is lost.
#[cfg(any(test, feature = "test-util"))]
pub struct Steps {
    writer: Arc<WriterSlot>,
    preallocator: Preallocator,
}

#[cfg(any(test, feature = "test-util"))]
impl Steps {
    /// Runs the loop of the journal's own thread until the journal closes.
    #[cfg(paperbourse_loom)]
    pub fn run(&self) -> Result<(), DiskError> {
        self.writer.run()
    }

    /// Flushes the filled records as one block. Returns false when there were none.
    pub fn flush(&mut self) -> Result<bool, DiskError> {
        self.writer.flush()
    }

    /// Flushes as [`Self::flush`] does, for a journal behind an upstream, which receives the block
    /// first.
    #[cfg(feature = "cluster")]
    pub async fn flush_through(
        &mut self,
        upstream: impl AsyncFnOnce(NextBlock<'_>),
    ) -> Result<bool, DiskError> {
        self.writer.flush_through(upstream).await
    }

    /// Preallocates a segment if one is wanted. Returns false if none was wanted or the disk is
    /// full.
    pub fn make_segment(&mut self) -> Result<bool, DiskError> {
        self.preallocator.make_segment(|| ())
    }
}

fn spawn(
    name: &str,
    on_lost: &OnLost,
    run: impl FnOnce() -> Result<(), DiskError> + Send + 'static,
) -> JoinHandle<()> {
    let on_lost = on_lost.clone();
    let body = move || {
        if let Err(error) = run() {
            on_lost(&error);
        }
    };
    thread::Builder::new().name(name.to_owned()).spawn(body).expect("a thread can be started")
}
