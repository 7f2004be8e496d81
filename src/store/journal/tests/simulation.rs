//! The journal on a single thread over a simulated disk. It is killed, its disk fails and fills up,
//! and the power fails, even during a start. Every record that was acknowledged or read by a start
//! must survive.
//!
//! Runs are deterministic: a failure names its seed.

use std::convert::Infallible;
use std::path::Path;

use super::*;
use crate::disk::simulated::random::Random;
use crate::disk::simulated::{Faults, SimulatedDisk, When};

/// Starts per seed.
const LIVES: usize = 10;

/// The expected content of one seed's journal, whatever happens to it.
struct Auditor {
    /// Records that must survive: acknowledged, or read by a successful start.
    records: Vec<Replayed>,
    /// Records filled since, in order: any prefix of them may survive.
    unacknowledged: Vec<Replayed>,
    /// The epoch of the newest successful start.
    epoch: u64,
}

impl Auditor {
    /// Compares the records that a start read with those that must and may survive.
    fn opened(&mut self, shown: Vec<Replayed>, report: &RecoveryReport) -> Result<(), String> {
        let acknowledged = self.records.len();
        if shown.len() < acknowledged {
            return Err(format!("{acknowledged} records were acknowledged, {} back", shown.len()));
        }
        let allowed = self.records.iter().chain(&self.unacknowledged);
        if let Some((wrong, _)) = shown.iter().zip(allowed).find(|(one, other)| one != other) {
            return Err(format!("position {} came back with other bytes", wrong.position));
        }
        if shown.len() > acknowledged + self.unacknowledged.len() {
            return Err(format!("{} records that were never written", shown.len()));
        }
        if report.epoch <= self.epoch {
            return Err(format!("epoch {} after epoch {}", report.epoch, self.epoch));
        }
        self.epoch = report.epoch;
        self.records = shown;
        self.unacknowledged.clear();
        Ok(())
    }

    fn acknowledged(&mut self, durable: Lsn) {
        let count = usize::try_from(durable.position()).unwrap() - self.records.len();
        self.records.extend(self.unacknowledged.drain(..count));
    }
}

struct Simulation {
    random: Random,
    simulated: SimulatedDisk,
    auditor: Auditor,
    crashes: usize,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let auditor = Auditor { records: Vec::new(), unacknowledged: Vec::new(), epoch: 0 };
        let simulated = SimulatedDisk::new(seed);
        Self { random: Random::new(!seed), simulated, auditor, crashes: 0 }
    }

    /// Repeats starting, writing and crashing. Returns the number of crashes.
    fn run(mut self) -> Result<usize, String> {
        for _ in 0..LIVES {
            self.choose_faults();
            let (journal, steps) = self.open()?;
            self.live(&journal, steps);
            self.end();
        }
        self.simulated.set_faults(Faults::default());
        self.simulated.set_capacity(u64::MAX);
        self.open()?;
        Ok(self.crashes)
    }

    /// At most one kind of fault per start, so that each takes effect.
    fn choose_faults(&mut self) {
        let now = self.simulated.operations();
        // Half of them during the start.
        let reach = if self.random.one_in(2) { 20 } else { 150 };
        let when = When::From(now + 1 + self.random.next() % reach);
        let mut faults = Faults::default();
        match self.random.below(8) {
            0 => faults.write_error = when,
            1 => faults.short_write = when,
            2 => faults.sync_error = when,
            3 => {}
            _ => faults.crash = when,
        }
        faults.pages_fade = self.random.one_in(2);
        self.simulated.set_faults(faults);
        let segments = 2 + self.random.next() % 20;
        let is_small = self.random.one_in(3);
        let bytes = if is_small { segments * config().segment_bytes } else { u64::MAX };
        self.simulated.set_capacity(bytes);
    }

    /// Retries until the journal opens.
    fn open(&mut self) -> Result<(Journal, Steps), String> {
        loop {
            if let Some(opened) = self.try_open()? {
                return Ok(opened);
            }
            // Each fault happens once, and a disk that is too small gets all the room it needs.
            self.simulated.set_capacity(u64::MAX);
            self.end();
        }
    }

    /// A start may fail only if the disk does.
    fn try_open(&mut self) -> Result<Option<(Journal, Steps)>, String> {
        let mut shown = Vec::new();
        let disk = Disk::Simulated(self.simulated.clone());
        let opened = DataDirectory::open(disk, Path::new("/some/where")).and_then(|data| {
            Journal::open_stepped(&data, &config(), |epoch, position, bytes| {
                shown.push(Replayed { epoch, position, bytes: bytes.to_vec() });
                Ok::<_, Infallible>(())
            })
        });
        match opened {
            Ok((journal, steps, report)) => {
                self.auditor.opened(shown, &report)?;
                Ok(Some((journal, steps)))
            }
            Err(OpenError::Disk(_)) => Ok(None),
            Err(error) => Err(format!("the journal does not open: {error}")),
        }
    }

    /// Does what a server would, in random order, until the disk fails or for a while.
    fn live(&mut self, journal: &Journal, mut steps: Steps) {
        for _ in 0..self.random.below(120) {
            let is_well = match self.random.below(6) {
                0..3 => {
                    self.append(journal);
                    true
                }
                3 | 4 => self.flush(journal, &mut steps),
                _ => steps.make_segment().is_ok(),
            };
            if !is_well {
                return;
            }
        }
    }

    /// Returns false if the disk has failed.
    fn flush(&mut self, journal: &Journal, steps: &mut Steps) -> bool {
        let result = steps.flush();
        self.auditor.acknowledged(journal.durable_lsn());
        result.is_ok()
    }

    fn append(&mut self, journal: &Journal) {
        let random = &mut self.random;
        // Many records are short, so that blocks hold several.
        let length_end = if random.one_in(3) { 3000 } else { 200 };
        let length = random.below(length_end);
        let mut bytes = record(random.below(1000), length);
        if random.one_in(4) {
            bytes[length / 4..].fill(0);
        }
        if let Ok(reservation) = journal.reserve(length) {
            let position = reservation.fill_from(&bytes).position();
            let epoch = journal.epoch();
            self.auditor.unacknowledged.push(Replayed { epoch, position, bytes });
        }
    }

    /// The process exits, or the power fails.
    fn end(&mut self) {
        self.crashes += 1;
        if self.random.one_in(3) {
            self.simulated.kill();
        } else {
            self.simulated.power_loss();
        }
    }
}

/// Runs these seeds. Returns the number of crashes, or the first failure.
fn simulate(seeds: std::ops::Range<u64>) -> Result<usize, String> {
    let one =
        |seed| Simulation::new(seed).run().map_err(|failure| format!("seed {seed}: {failure}"));
    seeds.map(one).sum()
}

#[test]
fn acknowledged_records_survive_every_crash() {
    let crashes = simulate(0..400).unwrap();
    assert!(crashes > 3000, "{crashes}");
}

/// The first process dies during its start or soon after, but the system keeps running. What the
/// second one reads and acknowledges must survive a power failure after that.
#[test]
fn what_a_start_has_read_survives_power_loss() {
    const OPERATIONS: u64 = 50;
    const SEEDS: u64 = 4;
    let faults: [fn(When) -> Faults; 3] = [
        |crash| Faults { crash, ..Faults::default() },
        |write_error| Faults { write_error, ..Faults::default() },
        |sync_error| Faults { sync_error, ..Faults::default() },
    ];
    let check = |seed, faults: Faults| {
        let mut simulation = Simulation::new(seed);
        let one_block = |simulation: &mut Simulation, (journal, mut steps): (Journal, Steps)| {
            simulation.append(&journal);
            simulation.flush(&journal, &mut steps);
        };
        simulation.simulated.set_faults(faults);
        if let Some(opened) = simulation.try_open()? {
            one_block(&mut simulation, opened);
        }
        simulation.simulated.kill();
        simulation.simulated.set_faults(Faults::default());
        for _ in 0..2 {
            let opened = simulation.open()?;
            one_block(&mut simulation, opened);
            simulation.simulated.power_loss();
        }
        simulation.open().map(drop)
    };
    for (index, fault) in faults.iter().enumerate() {
        for operation in 1..=OPERATIONS {
            for seed in 0..SEEDS {
                if let Err(failure) = check(seed, fault(When::From(operation))) {
                    panic!("fault {index} at operation {operation}, seed {seed}: {failure}");
                }
            }
        }
    }
}
