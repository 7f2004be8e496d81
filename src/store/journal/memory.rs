//! The journal without a disk, for tests, benchmarks and servers that need no persistence.
//!
//! It either discards records or keeps them. If it discards them, every LSN is durable from the
//! start. If it keeps them, a record is durable once it and all records before it are filled,
//! unless a [`Gate`] is held: then nothing beyond the gate is durable until the test releases it.
//! This is how a test proves that no response is sent early.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::block::alone_bytes;
use super::ring::{Claim, Drain, Ring};
use super::waiters::Progress;
use super::{JournalConfig, Lsn, Refused};

/// The log id of every LSN of a journal in memory.
const LOG: u8 = 0;

/// A journal in memory. Clones share the same journal.
#[derive(Clone)]
pub struct MemoryJournal {
    shared: Arc<Shared>,
}

struct Shared {
    progress: Arc<Progress>,
    records: Records,
    record_bytes_max: usize,
}

enum Records {
    /// Records are discarded. Holds the newest reserved position.
    Forgotten(AtomicU64),
    Kept(Kept),
}

struct Kept {
    ring: Arc<Ring>,
    state: Mutex<State>,
}

struct State {
    drain: Drain,
    /// The newest position up to which every record is filled.
    filled: u64,
    /// No position beyond this is durable.
    gate: u64,
    records: Vec<Vec<u8>>,
}

impl MemoryJournal {
    /// Creates a journal that discards its records.
    pub fn new(config: &JournalConfig) -> Self {
        Self::with(config, Progress::new(LOG, u64::MAX), Records::Forgotten(AtomicU64::new(0)))
    }

    /// Creates a journal that keeps its records in unbounded memory. For tests.
    pub fn keeping(config: &JournalConfig) -> Self {
        Self::kept_behind(config, u64::MAX)
    }

    /// Creates a journal that keeps its records, with a gate that holds back all of them.
    pub fn gated(config: &JournalConfig) -> (Self, Gate) {
        let journal = Self::kept_behind(config, 0);
        let gate = Gate { journal: journal.clone() };
        (journal, gate)
    }

    fn kept_behind(config: &JournalConfig, gate: u64) -> Self {
        let (ring, drain) = Ring::new(config.ring_slots(), config.ring_bytes, 0);
        ring.add_space(u64::MAX / 2);
        let state = Mutex::new(State { drain, filled: 0, gate, records: Vec::new() });
        Self::with(config, Progress::new(LOG, 0), Records::Kept(Kept { ring, state }))
    }

    fn with(config: &JournalConfig, progress: Progress, records: Records) -> Self {
        let (progress, record_bytes_max) = (Arc::new(progress), config.record_bytes_max);
        Self { shared: Arc::new(Shared { progress, records, record_bytes_max }) }
    }

    fn kept(&self) -> Option<&Kept> {
        match &self.shared.records {
            Records::Kept(kept) => Some(kept),
            Records::Forgotten(_) => None,
        }
    }

    /// Returns all records, in order. Empty if the journal discards them.
    pub fn records(&self) -> Vec<Vec<u8>> {
        self.kept().map(|kept| kept.state.lock().records.clone()).unwrap_or_default()
    }

    pub(super) fn record_bytes_max(&self) -> usize {
        self.shared.record_bytes_max
    }

    pub(super) fn progress(&self) -> &Arc<Progress> {
        &self.shared.progress
    }

    pub(super) fn reserve(&self, record_bytes: usize) -> Result<Claim, Refused> {
        let record_bytes_max = self.shared.record_bytes_max;
        assert!(record_bytes <= record_bytes_max, "a record is too long: {record_bytes}");
        match &self.shared.records {
            Records::Kept(kept) => kept.ring.reserve(alone_bytes(record_bytes) as u64),
            Records::Forgotten(newest) => {
                Ok(Claim::of_nothing(newest.fetch_add(1, Ordering::Relaxed) + 1))
            }
        }
    }

    pub(super) fn newest_position(&self) -> u64 {
        match &self.shared.records {
            Records::Kept(kept) => kept.ring.newest_position(),
            Records::Forgotten(newest) => newest.load(Ordering::Relaxed),
        }
    }

    pub(super) fn fill(&self, claim: &Claim, write: impl FnOnce(&mut Vec<u8>)) {
        let Some(Kept { ring, state }) = self.kept() else { return };
        ring.fill(claim, write);
        let mut state = state.lock();
        let State { drain, records, .. } = &mut *state;
        let taken = drain.take(|bytes| {
            records.push(bytes.to_vec());
            true
        });
        if taken.count > 0 {
            state.filled = taken.last_position;
            self.publish(&state);
        }
    }

    /// Must run under the state lock, so that positions are published in order.
    fn publish(&self, state: &State) {
        let durable = state.filled.min(state.gate);
        if durable > self.shared.progress.durable_lsn().position {
            self.shared.progress.publish(durable);
        }
    }
}

/// Controls which records of a journal in memory are durable.
pub struct Gate {
    journal: MemoryJournal,
}

impl Gate {
    /// Releases all records, present and future.
    pub fn release(&self) {
        self.set(u64::MAX);
    }

    /// Releases records up to `lsn` and holds back later ones. Durable records stay durable.
    pub fn release_to(&self, lsn: Lsn) {
        self.set(lsn.position);
    }

    /// Holds back every record that is not durable yet.
    pub fn hold(&self) {
        self.set(0);
    }

    fn set(&self, position: u64) {
        let kept = self.journal.kept().expect("only a journal that keeps its records has a gate");
        let mut state = kept.state.lock();
        state.gate = position;
        self.journal.publish(&state);
    }
}
