//! A log in memory, written as naively as possible. It misbehaves as networks and brokers do:
//! messages are late, come twice or not at all, leaders die, replicas lack blocks.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::{sleep, timeout};

use super::super::{Appended, Extent, Log, NoAnswer, beyond};
use super::level::Level;
use crate::disk::simulated::random::Random;

/// How long a client waits for an answer.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// How often what goes wrong: once in so many times, or never if 0.
#[derive(Clone, Copy, Default, Debug)]
pub struct Rates {
    /// A message to the brokers is lost.
    pub lost: u64,
    /// It comes when the client has given up.
    pub late: u64,
    /// It comes a second time, later.
    pub doubled: u64,
    /// The answer to it is lost.
    pub unanswered: u64,
    /// The leader counts a block that it never commits.
    pub phantom: u64,
    /// The leader dies, and an election begins.
    pub election: u64,
    /// The replica that is asked lacks the block.
    pub missing: u64,
    /// It has the block with one bit flipped.
    pub flipped: u64,
    /// The replica does not answer.
    pub silent: u64,
}

/// Everything that can pass, and pass often.
pub const TROUBLE: Rates = Rates {
    lost: 20,
    late: 10,
    doubled: 10,
    unanswered: 10,
    phantom: 20,
    election: 400,
    missing: 5,
    flipped: 10,
    silent: 50,
};

/// A log in memory. Clones are handles on the same log.
#[derive(Clone)]
pub struct MemoryLog(Arc<Mutex<State>>);

struct State {
    /// The blocks, from sequence 1; an element is `None` if every replica has lost that block.
    blocks: Vec<Option<Bytes>>,
    /// The sequence of the oldest block.
    first: u64,
    rates: Rates,
    random: Random,
    /// How many elections are under way.
    elections: Arc<Level>,
    /// Where the brokers' own work is done; `None` for the runtime of whoever asks for it.
    brokers: Option<Handle>,
    /// Notified at each release that is announced.
    released: Arc<Notify>,
}

impl MemoryLog {
    /// A log that always works.
    pub fn whole() -> Self {
        Self::troubled(0, Rates::default())
    }

    /// A log in which this much goes wrong.
    pub fn troubled(seed: u64, rates: Rates) -> Self {
        Self(Arc::new(Mutex::new(State {
            blocks: Vec::new(),
            first: 1,
            rates,
            random: Random::new(seed),
            elections: Arc::default(),
            brokers: None,
            released: Arc::default(),
        })))
    }

    /// From now on, the brokers' own work is done here, and goes on when a client is gone.
    pub fn run_on(&self, brokers: Handle) {
        self.0.lock().brokers = Some(brokers);
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let brokers = self.0.lock().brokers.clone();
        brokers.unwrap_or_else(Handle::current).spawn(work);
    }

    /// From now on, this much goes wrong.
    pub fn trouble(&self, seed: u64, rates: Rates) {
        let state = &mut *self.0.lock();
        (state.rates, state.random) = (rates, Random::new(seed));
    }

    /// From now on, nothing else goes wrong.
    pub fn heal(&self) {
        self.0.lock().rates = Rates::default();
    }

    /// Every replica loses this block, which is returned.
    pub fn lose(&self, sequence: u64) -> Option<Bytes> {
        self.0.lock().blocks[index(sequence)].take()
    }

    /// Puts a lost block back.
    pub fn restore(&self, sequence: u64, block: Option<Bytes>) {
        self.0.lock().blocks[index(sequence)] = block;
    }

    /// This bit of the block is flipped on every replica.
    pub fn flip(&self, sequence: u64, bit: usize) {
        let state = &mut *self.0.lock();
        let block = &mut state.blocks[index(sequence)];
        *block = block.as_ref().map(|block| flipped(block, bit));
    }

    /// All replicas lose the newest blocks.
    pub fn lose_tail(&self, count: usize) {
        let state = &mut *self.0.lock();
        state.blocks.truncate(state.blocks.len() - count);
    }

    /// Removes all blocks below this sequence at once.
    pub fn forget(&self, below: u64) -> Result<(), NoAnswer> {
        let state = &mut *self.0.lock();
        if below > state.last() + 1 {
            return Err(beyond(below, state.last()));
        }
        state.first = below.max(state.first);
        Ok(())
    }

    /// The newest block's sequence.
    pub fn tail(&self) -> u64 {
        self.0.lock().last()
    }

    fn roll(&self, rate: impl Fn(&Rates) -> u64) -> bool {
        let state = &mut *self.0.lock();
        let times = rate(&state.rates);
        times > 0 && state.random.one_in(times)
    }

    /// Somewhere between nothing and this many milliseconds.
    async fn delay(&self, milliseconds_max: usize) {
        let milliseconds = self.0.lock().random.below(milliseconds_max) as u64;
        sleep(Duration::from_millis(milliseconds)).await;
    }

    async fn election(&self) {
        if self.roll(|rates| rates.election) {
            self.elect();
        }
        let elections = self.0.lock().elections.clone();
        elections.until(|count| count == 0).await;
    }

    /// The leader dies, and an election begins.
    pub fn elect(&self) {
        let (length, elections) = {
            let state = &mut *self.0.lock();
            (500 + state.random.below(3_500) as u64, state.elections.clone())
        };
        elections.change(|count| count + 1);
        self.spawn(async move {
            sleep(Duration::from_millis(length)).await;
            elections.change(|count| count - 1);
        });
    }

    fn apply(&self, expected: u64, block: Bytes) -> Appended {
        let state = &mut *self.0.lock();
        if state.last() != expected {
            return Appended::Stale { tail: state.last() };
        }
        state.blocks.push(Some(block));
        Appended::Acknowledged
    }

    /// The message comes once more, later than a client waits.
    fn apply_late(&self, expected: u64, block: Bytes) {
        let log = self.clone();
        self.spawn(async move {
            sleep(PATIENCE).await;
            log.delay(2_000).await;
            log.apply(expected, block);
        });
    }

    /// What the brokers do with a block and answer; `None` if they do not.
    async fn append_slowly(&self, expected: u64, block: Bytes) -> Option<Appended> {
        self.delay(20).await;
        self.election().await;
        if self.roll(|rates| rates.lost) {
            return None;
        }
        if self.roll(|rates| rates.phantom) {
            return Some(Appended::Stale { tail: expected + 1 });
        }
        if self.roll(|rates| rates.late) {
            self.apply_late(expected, block);
            return None;
        }
        if self.roll(|rates| rates.doubled) {
            self.apply_late(expected, block.clone());
        }
        let appended = self.apply(expected, block);
        if self.roll(|rates| rates.unanswered) {
            return None;
        }
        self.delay(20).await;
        Some(appended)
    }
}

impl Log for MemoryLog {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn append(&self, expected: u64, block: Bytes) -> Appended {
        // A block on its way gets there whatever becomes of its sender.
        let (answer, answered) = oneshot::channel();
        let log = self.clone();
        self.spawn(async move {
            if let Some(appended) = log.append_slowly(expected, block).await {
                let _ = answer.send(appended);
            } else {
                sleep(PATIENCE).await;
            }
        });
        match timeout(PATIENCE, answered).await {
            Ok(Ok(appended)) => appended,
            _ => unanswered(),
        }
    }

    async fn read(&self, sequence: u64) -> Result<Option<Bytes>, NoAnswer> {
        self.delay(5).await;
        if self.roll(|rates| rates.silent) {
            sleep(PATIENCE).await;
            return Err(NoAnswer("no answer".to_owned()));
        }
        if self.roll(|rates| rates.missing) {
            return Ok(None);
        }
        let is_flipped = self.roll(|rates| rates.flipped);
        let state = &mut *self.0.lock();
        if sequence < state.first {
            return Ok(None);
        }
        let block = state.blocks.get(index(sequence)).cloned().flatten();
        Ok(block.map(|block| {
            let bit = state.random.below(8 * block.len());
            if is_flipped { flipped(&block, bit) } else { block }
        }))
    }

    async fn extent(&self) -> Result<Extent, NoAnswer> {
        self.delay(5).await;
        if self.0.lock().elections.get() > 0 {
            sleep(PATIENCE).await;
            return Err(NoAnswer("no leader".to_owned()));
        }
        let state = &*self.0.lock();
        Ok(Extent { first: state.first, last: state.last() })
    }

    async fn trim(&self, below: u64) -> Result<(), NoAnswer> {
        self.forget(below)
    }

    async fn announce_release(&self) {
        self.0.lock().released.notify_one();
    }

    async fn release_announced(&self) {
        let released = self.0.lock().released.clone();
        released.notified().await;
    }
}

impl State {
    fn last(&self) -> u64 {
        self.blocks.len() as u64
    }
}

fn index(sequence: u64) -> usize {
    usize::try_from(sequence - 1).unwrap()
}

fn flipped(block: &Bytes, bit: usize) -> Bytes {
    let mut block = block.to_vec();
    block[bit / 8] ^= 1 << (bit % 8);
    Bytes::from(block)
}

fn unanswered() -> Appended {
    Appended::Unknown(NoAnswer("no answer".to_owned()))
}
