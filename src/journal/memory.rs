//! The journal without a disk, for tests, benches and servers that may forget.
//!
//! One that forgets gives places and nothing else: each is durable from the start. One that keeps
//! its records calls a record durable as soon as it and all before it are filled in, unless a gate
//! is held: then nothing beyond the gate is durable until the test that holds it lets it go. That
//! is how a test proves that no answer leaves early.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::block::alone_bytes;
use super::ring::{Ring, Taker, Ticket};
use super::waiters::Progress;
use super::{JournalConfig, Place, Refused};

/// The log of all places in a journal in memory.
const LOG: u8 = 0;

/// A journal in memory. Clones are handles of the same journal.
#[derive(Clone)]
pub struct MemoryJournal {
    shared: Arc<Shared>,
}

struct Shared {
    progress: Arc<Progress>,
    records: Records,
    record_bytes_max: usize,
}

/// What becomes of records.
enum Records {
    /// They are forgotten: the newest position that was given away.
    Forgotten(AtomicU64),
    Kept(Kept),
}

/// Where records are kept.
struct Kept {
    ring: Arc<Ring>,
    state: Mutex<State>,
}

struct State {
    taker: Taker,
    /// The newest position of the filled prefix.
    filled: u64,
    /// Nothing beyond it is durable.
    gate: u64,
    records: Vec<Vec<u8>>,
}

impl MemoryJournal {
    /// A journal that forgets its records.
    pub fn new(config: &JournalConfig) -> Self {
        Self::with(config, Progress::new(LOG, u64::MAX), Records::Forgotten(AtomicU64::new(0)))
    }

    /// A journal that keeps its records, without a bound: for tests.
    pub fn keeping(config: &JournalConfig) -> Self {
        Self::kept_behind(config, u64::MAX)
    }

    /// A journal that keeps its records, and a gate that holds all of them back.
    pub fn gated(config: &JournalConfig) -> (Self, Gate) {
        let journal = Self::kept_behind(config, 0);
        let gate = Gate { journal: journal.clone() };
        (journal, gate)
    }

    fn kept_behind(config: &JournalConfig, gate: u64) -> Self {
        let (ring, taker) = Ring::new(config.ring_slots, config.ring_bytes, 0);
        ring.add_space(u64::MAX / 2);
        let state = Mutex::new(State { taker, filled: 0, gate, records: Vec::new() });
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

    /// All records in order, of a journal that keeps them; otherwise none.
    pub fn records(&self) -> Vec<Vec<u8>> {
        self.kept().map(|kept| kept.state.lock().records.clone()).unwrap_or_default()
    }

    pub(super) fn record_bytes_max(&self) -> usize {
        self.shared.record_bytes_max
    }

    pub(super) fn progress(&self) -> &Arc<Progress> {
        &self.shared.progress
    }

    pub(super) fn reserve(&self, record_bytes: usize) -> Result<Ticket, Refused> {
        let record_bytes_max = self.shared.record_bytes_max;
        assert!(record_bytes <= record_bytes_max, "a record is too long: {record_bytes}");
        match &self.shared.records {
            Records::Kept(kept) => kept.ring.reserve(alone_bytes(record_bytes) as u64),
            Records::Forgotten(newest) => {
                Ok(Ticket::of_nothing(newest.fetch_add(1, Ordering::Relaxed) + 1))
            }
        }
    }

    pub(super) fn newest_position(&self) -> u64 {
        match &self.shared.records {
            Records::Kept(kept) => kept.ring.newest_position(),
            Records::Forgotten(newest) => newest.load(Ordering::Relaxed),
        }
    }

    pub(super) fn fill(&self, ticket: &Ticket, write: impl FnOnce(&mut Vec<u8>)) {
        let Some(Kept { ring, state }) = self.kept() else { return };
        ring.fill(ticket, write);
        let mut state = state.lock();
        let State { taker, records, .. } = &mut *state;
        let taken = taker.take(|bytes| {
            records.push(bytes.to_vec());
            true
        });
        if taken.count > 0 {
            state.filled = taken.last_position;
            self.publish(&state);
        }
    }

    /// Under the lock of the state, so that positions are published in order.
    fn publish(&self, state: &State) {
        let durable = state.filled.min(state.gate);
        if durable > self.shared.progress.durable_place().position {
            self.shared.progress.publish(durable);
        }
    }
}

/// Holds back what a journal in memory calls durable.
pub struct Gate {
    journal: MemoryJournal,
}

impl Gate {
    /// Lets everything through, now and later.
    pub fn release(&self) {
        self.set(u64::MAX);
    }

    /// Lets everything up to this place through, and holds back what follows. What is durable
    /// already stays so.
    pub fn release_to(&self, place: Place) {
        self.set(place.position);
    }

    /// Holds back everything that is not durable yet.
    pub fn hold(&self) {
        self.set(0);
    }

    fn set(&self, position: u64) {
        let kept = self.journal.kept().expect("a gate holds what is kept");
        let mut state = kept.state.lock();
        state.gate = position;
        self.journal.publish(&state);
    }
}
