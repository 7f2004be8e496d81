//! Nodes that take a log from each other while everything goes wrong, seed by seed, and an oracle
//! that believes only what was acknowledged.
//!
//! `PAPERBOURSE_CLUSTER_SEEDS=10000` makes a long run, `PAPERBOURSE_CLUSTER_SEED=7` repeats a seed.

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, timeout};

use super::super::test_util::flush;
use super::super::test_util::{MemoryLog, TROUBLE};
use super::super::test_util::{node, reader};
use super::super::*;
use crate::disk::simulated::random::Random;
use paperbourse_core::faults::{self, Fault};

/// Seeds of a run in the normal test suite.
const SEEDS: u64 = 100;

/// Seeds within which each fault must be detected.
const SEEDS_PER_FAULT: u64 = 200;

const NODES: usize = 3;

/// For how long the nodes of a seed run, by the clock of the simulation.
const LIFE: Duration = Duration::from_mins(1);

/// What an owner was told is in the log for good.
#[derive(Debug)]
struct Answer {
    epoch: u64,
    sequence: u64,
    /// The position of the first record, and the records. `None` if only the sequence was told.
    records: Option<(u64, Vec<Bytes>)>,
}

/// What the nodes have been told.
#[derive(Default)]
struct Told {
    answers: Vec<Answer>,
    /// For each owner, the epoch, the sequence of its fence, and everything it was shown below it.
    owners: Vec<(u64, u64, Vec<Bytes>)>,
    /// Why nodes have ended.
    errors: Vec<ReadError>,
}

struct Node {
    number: usize,
    log: MemoryLog,
    random: Random,
    told: Rc<Mutex<Told>>,
    ends: Instant,
}

impl Node {
    async fn live(mut self) {
        let mut shown = Vec::new();
        let mut reader = reader(self.log.clone());
        while Instant::now() < self.ends {
            self.pause(8_000).await;
            let take = Owner::take(reader, node(self.number), |_, bytes, _| {
                shown.push(bytes.clone());
            });
            let owner = match take.await {
                Ok(owner) => owner,
                Err((_, error)) => return self.told.lock().errors.push(error),
            };
            let (epoch, fence, chain) = (owner.epoch(), owner.sequence(), owner.reader.chain);
            self.told.lock().owners.push((epoch, fence, shown.clone()));
            reader = match self.own(owner).await {
                Ok(reader) => reader,
                Err(halt) => return self.told.lock().errors.push(halt.into()),
            };
            // What it wrote itself is shown to it like everything else.
            reader = Reader::new(reader.log, chain, fence);
        }
    }

    /// Writes until the log is lost or enough is written.
    async fn own(&mut self, mut owner: Owner<MemoryLog>) -> Result<Reader<MemoryLog>, Halt> {
        for _ in 0..self.random.below(60) {
            let records = (0..=self.random.below(3)).map(|_| self.random.next().to_le_bytes());
            let records: Vec<Bytes> = records.map(|bytes| bytes.to_vec().into()).collect();
            assert!(records.iter().all(|record| owner.push(record)));
            let (before, position) = (owner.sequence(), owner.position() + 1);
            if self.random.one_in(10) && !faults::is_on(Fault::TwoInFlight) {
                // What is given up may be in the log all the same.
                let _ = timeout(Duration::from_millis(25), owner.flush()).await;
            }
            let is_flushed = owner.sequence() > before;
            match if is_flushed { Ok(()) } else { flush(&mut owner).await } {
                Ok(()) => {
                    let told = &mut *self.told.lock();
                    let (epoch, newest) = (owner.epoch(), owner.sequence());
                    let records = Some((position, records));
                    told.answers.push(Answer { epoch, sequence: before + 1, records });
                    if newest > before + 1 {
                        told.answers.push(Answer { epoch, sequence: newest, records: None });
                    }
                }
                Err(Lost::Halted(halt)) => return Err(halt),
                Err(Lost::Fenced { .. }) => return Ok(owner.into_reader()),
            }
            self.pause(200).await;
        }
        if self.random.one_in(2) {
            return match owner.release().await {
                Ok(reader) | Err((reader, Lost::Fenced { .. })) => Ok(reader),
                Err((_, Lost::Halted(halt))) => Err(halt),
            };
        }
        Ok(owner.into_reader())
    }

    async fn pause(&mut self, milliseconds_max: usize) {
        sleep(Duration::from_millis(self.random.below(milliseconds_max) as u64)).await;
    }
}

/// Compares what the nodes were told with what the log holds. Only a gap may have halted them.
fn judge(told: &Told, log: &[Bytes], gap: Option<u64>) -> Result<(), String> {
    for halt in &told.errors {
        match halt {
            ReadError::Halted(halt) if Some(halt.sequence) == gap => {}
            error => return Err(error.to_string()),
        }
    }
    let mut chain = ReplicatedChain::start(super::super::test_util::LOG);
    let mut blocks = Vec::new();
    for block in log {
        let entry = chain.read(block).map_err(|damage| format!("the log is damaged: {damage}"))?;
        let records = match entry {
            Entry::Records(records) => {
                let held = records.iter().map(Bytes::copy_from_slice).collect();
                Some((records.first_position(), held))
            }
            Entry::Notice(_) => None,
        };
        blocks.push((chain.mark().epoch, records));
    }
    for Answer { epoch, sequence, records } in &told.answers {
        let found = usize::try_from(*sequence - 1).ok().and_then(|index| blocks.get(index));
        let is_right = found.is_some_and(|(in_epoch, held)| {
            in_epoch == epoch && held.is_some() && (records.is_none() || held == records)
        });
        if !is_right {
            return Err(format!("block {sequence} of epoch {epoch} is {found:?}"));
        }
    }
    let mut epochs = BTreeSet::new();
    for (epoch, fence, shown) in &told.owners {
        if !epochs.insert(epoch) {
            return Err(format!("epoch {epoch} had two owners"));
        }
        if shown[..] != log[..usize::try_from(*fence).unwrap()] {
            return Err(format!("the owner of epoch {epoch} was not shown all up to its fence"));
        }
    }
    Ok(())
}

/// How much came of a seed.
#[derive(Clone, Copy, Default, Debug)]
struct Done {
    answers: usize,
    owners: usize,
    halts: usize,
}

/// Runs one seed. With a gap, every replica loses a block which some node has yet to read.
fn run(seed: u64, has_gap: bool) -> Result<Done, String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    LocalSet::new().block_on(&runtime.unwrap(), async {
        let log = MemoryLog::troubled(seed, TROUBLE);
        let told = Rc::<Mutex<Told>>::default();
        let ends = Instant::now() + LIFE;
        let nodes = (0..NODES).map(|number| {
            let random = Random::new(seed * NODES as u64 + number as u64);
            let node = Node { number, log: log.clone(), random, told: told.clone(), ends };
            tokio::task::spawn_local(node.live())
        });
        let nodes: Vec<_> = nodes.collect();
        let mut lost = None;
        if has_gap {
            sleep(LIFE / 4).await;
            let sequence = log.tail() - 2;
            lost = Some((sequence, log.lose(sequence)));
        }
        for node in nodes {
            node.await.map_err(|panic| format!("a node panicked: {panic}"))?;
        }
        log.heal();
        // What is late has come by then.
        sleep(Duration::from_secs(10)).await;
        let gap = lost.as_ref().map(|&(sequence, _)| sequence);
        if let Some((sequence, block)) = lost {
            log.restore(sequence, block);
        }
        let mut blocks = Vec::new();
        let mut reader = reader(&log);
        let read = reader.catch_up(|_, bytes, _| blocks.push(bytes.clone())).await;
        read.map_err(|error| error.to_string())?;
        let told = told.lock();
        judge(&told, &blocks, gap)?;
        let (answers, owners) = (told.answers.len(), told.owners.len());
        Ok(Done { answers, owners, halts: told.errors.len() })
    })
}

/// A number from the environment.
fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a whole number"))
}

fn seeds() -> Range<u64> {
    match variable("PAPERBOURSE_CLUSTER_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..variable("PAPERBOURSE_CLUSTER_SEEDS").unwrap_or(SEEDS),
    }
}

/// Runs the seeds and prints how much came of them.
fn check(has_gap: bool) -> Done {
    let mut all = Done::default();
    for seed in seeds() {
        let done = run(seed, has_gap).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        all.answers += done.answers;
        all.owners += done.owners;
        all.halts += done.halts;
    }
    println!("{all:?}");
    all
}

#[test]
fn what_was_acknowledged_is_in_the_log_in_its_epoch() {
    let seeds = seeds();
    let Done { answers, owners, halts } = check(false);
    let count = usize::try_from(seeds.end - seeds.start).unwrap();
    assert!(answers > 20 * count && owners > 3 * count && halts == 0, "too little happened");
}

#[test]
fn nobody_passes_a_gap() {
    assert!(check(true).halts > 0, "too little happened");
}

#[test]
fn every_fault_of_a_replicated_log_is_detected() {
    for (fault, has_gap) in [
        (Fault::TwoInFlight, false),
        (Fault::UnknownTakenForAcknowledged, false),
        (Fault::GapSkipped, true),
    ] {
        let detect = move || {
            faults::switch_on(fault);
            (0..SEEDS_PER_FAULT)
                .find_map(|seed| run(seed, has_gap).err().map(|error| (seed, error)))
        };
        // The switch stays in the thread.
        match std::thread::spawn(detect).join().unwrap() {
            Some((seed, error)) => println!("{fault:?}: seed {seed}: {error}"),
            None => panic!("{fault:?} was not detected within {SEEDS_PER_FAULT} seeds"),
        }
    }
}
