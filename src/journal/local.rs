//! The journal in a directory: its threads, from the opening to the last flush.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use super::maker::{Maker, Stock};
use super::primitives::{AtomicBool, Mutex};
use super::ring::{Ring, Ticket};
use super::waiters::Progress;
use super::writer::{self, Desk, Writer};
use super::{
    DataDirectory, JournalConfig, JournalMetrics, LOCAL_LOG, OnLost, Refused, block, recovery,
    segment,
};
use crate::disk::DiskError;

/// The journal in a directory. Dropping it puts everything that was filled on disk first. Where the
/// journal's own thread drops it, since it woke who had the last reference, that follows at once.
pub struct LocalJournal {
    pub(super) shared: Arc<writer::Shared>,
    pub(super) stock: Arc<Stock>,
    desk: Arc<Desk>,
    on_lost: OnLost,
    threads: Vec<JoinHandle<()>>,
    pub(super) epoch: u64,
    pub(super) record_bytes_max: usize,
    /// Let go after the threads have ended.
    data: DataDirectory,
}

impl LocalJournal {
    /// A journal with both its threads at work.
    pub(super) fn start(recovered: recovery::Recovered, config: &JournalConfig) -> Self {
        let (mut journal, maker) = Self::assemble(recovered, config);
        let (desk, data) = (journal.desk.clone(), journal.data.clone());
        let run = move || {
            let ended = desk.run();
            // Nobody else may open the directory before the last flush.
            drop(data);
            ended
        };
        journal.threads = vec![
            spawn("journal", &config.on_lost, run),
            spawn("journal-maker", &config.on_lost, move || maker.run()),
        ];
        journal
    }

    /// A journal whose threads are steps that the caller takes.
    #[cfg(test)]
    pub(super) fn start_stepped(
        recovered: recovery::Recovered,
        config: &JournalConfig,
    ) -> (Self, Steps) {
        let (journal, maker) = Self::assemble(recovered, config);
        let desk = journal.desk.clone();
        (journal, Steps { desk, maker })
    }

    fn assemble(recovered: recovery::Recovered, config: &JournalConfig) -> (Self, Maker) {
        let recovery::Recovered { data, mould, tail, ready, next_number, .. } = recovered;
        let (epoch, position) = (tail.chain.epoch, tail.chain.position);
        let (ring, taker) = Ring::new(config.ring_slots, config.ring_bytes, position);
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
            taker,
            tail,
            builder: block::Builder::new(),
            block_bytes_max: config.block_bytes_max,
            record_bytes_max: config.record_bytes_max,
        };
        let maker = Maker {
            mould,
            stock: stock.clone(),
            ring,
            segments_ahead: config.segments_ahead,
            record_bytes_max: config.record_bytes_max,
        };
        let record_bytes_max = config.record_bytes_max;
        let threads = Vec::new();
        let desk = Arc::new(Desk { shared: shared.clone(), writer: Mutex::new(Some(writer)) });
        let on_lost = config.on_lost.clone();
        let journal = Self { shared, stock, desk, on_lost, threads, epoch, record_bytes_max, data };
        (journal, maker)
    }

    pub(super) fn reserve(&self, record_bytes: usize) -> Result<Ticket, Refused> {
        assert!(record_bytes <= self.record_bytes_max, "a record is too long: {record_bytes}");
        let result = self.shared.ring.reserve(block::alone_bytes(record_bytes) as u64);
        if result.is_err() {
            // It may be that nobody waits for the records that take the room.
            self.shared.progress.bell.ring();
        }
        result
    }

    pub(super) fn newest_position(&self) -> u64 {
        self.shared.ring.newest_position()
    }

    pub(super) fn fill(&self, ticket: &Ticket, write: impl FnOnce(&mut Vec<u8>)) {
        self.shared.ring.fill(ticket, write);
        self.shared.progress.bell.announce();
    }

    pub(super) fn tend(&self) {
        if let Err(error) = self.desk.tend() {
            (self.on_lost)(&error);
        }
    }
}

impl Drop for LocalJournal {
    fn drop(&mut self) {
        self.shared.is_closing.store(true, Ordering::Release);
        self.shared.progress.bell.ring();
        self.stock.close();
        let this = thread::current().id();
        // Whom a flush wakes may have the last reference. The journal's own thread cannot wait for
        // its own end; it comes to it as soon as this returns.
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != this) {
            // A thread that panicked has said why, and with `panic = "abort"` there is none.
            let _ = thread.join();
        }
    }
}

/// What the threads of a journal do, step by step, for whoever wants it to happen in one thread and
/// in an order of its own. After an error the journal is lost.
#[cfg(test)]
pub(crate) struct Steps {
    desk: Arc<Desk>,
    maker: Maker,
}

#[cfg(test)]
impl Steps {
    /// Does what the journal's own thread does, until the journal closes.
    #[cfg(paperbourse_loom)]
    pub(crate) fn run(&self) -> Result<(), DiskError> {
        self.desk.run()
    }

    /// Puts the records that are there on disk, as one block. False when there were none.
    pub(crate) fn flush(&mut self) -> Result<bool, DiskError> {
        self.desk.flush()
    }

    /// Makes a segment if one is wanted. False when none is, and when the disk is full.
    pub(crate) fn make_segment(&mut self) -> Result<bool, DiskError> {
        self.maker.make_segment(|| ())
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
