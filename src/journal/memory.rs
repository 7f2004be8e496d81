//! The journal without a disk, for tests, benches and servers that may forget.
//!
//! A record is durable as soon as it and all before it are filled in, unless a gate is held: then
//! nothing beyond the gate is durable until the test that holds it lets it go. That is how a test
//! proves that no answer leaves early.

use std::sync::Arc;

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
    ring: Arc<Ring>,
    progress: Arc<Progress>,
    state: Mutex<State>,
    record_bytes_max: usize,
}

struct State {
    taker: Taker,
    /// The newest position of the filled prefix.
    filled: u64,
    /// Nothing beyond it is durable.
    gate: u64,
    kept: Option<Vec<Vec<u8>>>,
}

impl MemoryJournal {
    /// A journal that forgets its records.
    pub fn new(config: &JournalConfig) -> Self {
        Self::with(config, u64::MAX, None)
    }

    /// A journal that keeps its records, without a bound: for tests.
    pub fn keeping(config: &JournalConfig) -> Self {
        Self::with(config, u64::MAX, Some(Vec::new()))
    }

    /// A journal that keeps its records, and a gate that holds all of them back.
    pub fn gated(config: &JournalConfig) -> (Self, Gate) {
        let journal = Self::with(config, 0, Some(Vec::new()));
        let gate = Gate { journal: journal.clone() };
        (journal, gate)
    }

    fn with(config: &JournalConfig, gate: u64, kept: Option<Vec<Vec<u8>>>) -> Self {
        let (ring, taker) = Ring::new(config.ring_slots, config.ring_bytes, 0);
        ring.add_space(u64::MAX / 2);
        let state = Mutex::new(State { taker, filled: 0, gate, kept });
        let progress = Arc::new(Progress::new(LOG, 0));
        let record_bytes_max = config.record_bytes_max;
        Self { shared: Arc::new(Shared { ring, progress, state, record_bytes_max }) }
    }

    /// All records in order, of a journal that keeps them; otherwise none.
    pub fn records(&self) -> Vec<Vec<u8>> {
        self.shared.state.lock().kept.clone().unwrap_or_default()
    }

    pub(super) fn progress(&self) -> &Arc<Progress> {
        &self.shared.progress
    }

    pub(super) fn reserve(&self, record_bytes: usize) -> Result<Ticket, Refused> {
        let record_bytes_max = self.shared.record_bytes_max;
        assert!(record_bytes <= record_bytes_max, "a record is too long: {record_bytes}");
        self.shared.ring.reserve(alone_bytes(record_bytes) as u64)
    }

    pub(super) fn newest_position(&self) -> u64 {
        self.shared.ring.newest_position()
    }

    pub(super) fn fill(&self, ticket: &Ticket, write: impl FnOnce(&mut Vec<u8>)) {
        self.shared.ring.fill(ticket, write);
        let mut state = self.shared.state.lock();
        let State { taker, kept, .. } = &mut *state;
        let taken = taker.take(|bytes| {
            if let Some(kept) = kept {
                kept.push(bytes.to_vec());
            }
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
        let mut state = self.journal.shared.state.lock();
        state.gate = position;
        self.journal.publish(&state);
    }
}
