//! A machine: a disk, a clock, a line to the brokers, and at most one running process.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::{advance, sleep};

use super::line::{Condition, Line};
use super::node::{Answer, Node, Port, Request, take_lost};
use crate::clock::Clock;
use crate::cluster::OpenLog;
use crate::cluster::seat::SeatLost;
use crate::disk::Disk;
use crate::disk::simulated::{Faults, SimulatedDisk, When};
use crate::journal::replicated::Lost;
use crate::journal::replicated::test_util::{LOG, MemoryLog, node};
use crate::simulation::paused_runtime;

/// Time after a fault during which other machines may take the log from the faulty machine, in
/// milliseconds. They observe the log's owner for three seconds, and the faulty machine may have
/// been cut off from the brokers for longer than it has noticed.
const EXCUSED_MS: u64 = 6_000;

/// The result of running a process for a while.
#[derive(Default)]
pub(super) struct Ran {
    pub(super) answers: Vec<(u64, Answer)>,
    /// If the process took the log: its epoch, and whether the log had no owner.
    pub(super) took: Option<(u64, bool)>,
    /// Whether the process ended because it lost its log or its brokers.
    pub(super) is_lost: bool,
}

struct Process {
    /// Declared before the runtime that the tasks use, so that it is dropped first.
    tasks: LocalSet,
    life: JoinHandle<anyhow::Result<()>>,
    runtime: Runtime,
    node: Rc<Node>,
    began_ms: u64,
    /// The time on the process's own clock, in milliseconds since its start.
    clock_ms: u64,
    /// Whether the process was paused while its clock kept running.
    was_stopped: bool,
    inbox: VecDeque<(u64, Request)>,
    handling: Vec<JoinHandle<()>>,
}

pub(super) struct Machine {
    number: usize,
    pub(super) disk: SimulatedDisk,
    line: Line,
    clock: Clock,
    /// The speed of the machine's clock, in percent.
    rate_percent: u64,
    process: Option<Process>,
    /// The time at which the next process starts.
    starts_ms: u64,
    /// The time at which the next process starts after a power loss.
    restarts_ms: u64,
    /// The time until which the process is paused.
    stopped_until_ms: u64,
    /// The time at which the line is whole again.
    cut_until_ms: u64,
    /// The time until which other machines may take the log from this machine's process.
    excused_until_ms: u64,
    /// Number of processes started so far.
    pub(super) lives: u64,
}

impl Machine {
    pub(super) fn new(
        number: usize,
        seed: u64,
        log: MemoryLog,
        clock: Clock,
        rate_percent: u64,
    ) -> Self {
        Self {
            number,
            disk: SimulatedDisk::new(seed),
            line: Line::new(log),
            clock,
            rate_percent,
            process: None,
            starts_ms: 0,
            restarts_ms: 0,
            stopped_until_ms: 0,
            cut_until_ms: 0,
            excused_until_ms: 0,
            lives: 0,
        }
    }

    /// Returns the world's view of the process, if one is running.
    pub(super) fn port(&self) -> Option<&Port> {
        self.process.as_ref().map(|process| &process.node.port)
    }

    /// Sends a request. Returns false if no process is running.
    pub(super) fn send(&mut self, number: u64, request: Request) -> bool {
        let Some(process) = &mut self.process else { return false };
        process.inbox.push_back((number, request));
        true
    }

    /// Whether this process is running and free of recent faults.
    pub(super) fn is_well_since(&self, life: u64, now_ms: u64) -> bool {
        self.process.is_some() && self.lives == life && now_ms > self.excused_until_ms
    }

    /// Allows other machines to take the log from this machine until [`EXCUSED_MS`] after
    /// `until_ms`, when the fault ends.
    fn excuse(&mut self, until_ms: u64) {
        self.excused_until_ms = self.excused_until_ms.max(until_ms + EXCUSED_MS);
    }

    /// Makes the machine lose power after this many more disk operations.
    pub(super) fn lose_power_after(&mut self, operations: u64, starts_ms: u64) {
        let crash = When::From(self.disk.operations() + operations);
        self.disk.set_faults(Faults { crash, sectors_tear: true, ..Faults::default() });
        self.restarts_ms = starts_ms;
        self.excuse(starts_ms);
    }

    /// Kills the process.
    pub(super) fn kill(&mut self, starts_ms: u64) {
        self.end(false, starts_ms);
    }

    /// Ends the process. With `loses_power`, unsynced data is lost.
    fn end(&mut self, loses_power: bool, starts_ms: u64) {
        self.process = None;
        self.disk.set_faults(Faults::default());
        if loses_power {
            self.disk.power_loss();
        } else {
            self.disk.kill();
        }
        self.starts_ms = starts_ms;
        self.stopped_until_ms = 0;
        self.excuse(starts_ms);
    }

    /// Kills the process and never restarts it.
    pub(super) fn switch_off(&mut self) {
        self.process = None;
        self.disk.kill();
    }

    /// Pauses the process until this time. Returns false if none is running.
    pub(super) fn stop(&mut self, until_ms: u64) -> bool {
        if self.process.is_some() {
            self.stopped_until_ms = until_ms;
            self.excuse(until_ms);
        }
        self.process.is_some()
    }

    /// Tells the process to shut down. Returns false if none is running.
    pub(super) fn leave(&mut self, now_ms: u64) -> bool {
        if let Some(process) = &self.process {
            process.node.port.leave();
            self.excuse(now_ms);
        }
        self.process.is_some()
    }

    /// Puts the line into this condition until this time.
    pub(super) fn cut(&mut self, condition: Condition, until_ms: u64) {
        self.line.set(condition);
        self.cut_until_ms = until_ms;
        self.excuse(until_ms);
    }

    /// Ends all current faults.
    pub(super) fn heal(&mut self, now_ms: u64) {
        self.disk.set_faults(Faults::default());
        self.line.set(Condition::Whole);
        self.stopped_until_ms = self.stopped_until_ms.min(now_ms);
        self.starts_ms = self.starts_ms.min(now_ms);
    }

    /// Runs the process up to this time. Returns an error if the process ended in a way that no
    /// fault explains.
    pub(super) fn run_until(&mut self, now_ms: u64) -> Result<Ran, String> {
        if now_ms >= self.cut_until_ms {
            self.line.set(Condition::Whole);
        }
        if self.process.is_none() && now_ms >= self.starts_ms {
            self.lives += 1;
            self.process = Some(self.start(now_ms));
        }
        let number = self.number;
        let Some(process) = &mut self.process else { return Ok(Ran::default()) };
        if now_ms < self.stopped_until_ms {
            process.was_stopped = true;
            return Ok(Ran::default());
        }
        process.run((now_ms - process.began_ms) * self.rate_percent / 100);
        let port = &process.node.port;
        let mut ran = Ran { answers: port.answers.take(), took: port.took.take(), is_lost: false };
        let lost = take_lost();
        let is_crashed = self.disk.is_crashed();
        if lost.is_none() && !is_crashed {
            process.require_no_panic(number)?;
        }
        if is_crashed {
            self.end(true, self.restarts_ms.max(now_ms));
        } else if let Some(lost) = lost {
            if let SeatLost::Log(Lost::Halted(halt)) = lost {
                return Err(format!("node {number} ends: {halt}"));
            }
            ran.is_lost = true;
            self.end(false, now_ms + 200);
        } else if process.life.is_finished() {
            let ended = process.runtime.block_on(&mut process.life);
            let ended = ended.map_err(|panic| format!("node {number} panics: {panic}"))?;
            ended.map_err(|error| format!("node {number} ends: {error:#}"))?;
            self.end(false, now_ms + 200);
        }
        Ok(ran)
    }

    fn start(&self, began_ms: u64) -> Process {
        let runtime = paused_runtime();
        let log = OpenLog { log: self.line.clone(), id: LOG, origin: None };
        let node = Rc::new(Node {
            name: node(self.number),
            log,
            disk: Disk::Simulated(self.disk.clone()),
            clock: self.clock.clone(),
            port: Port::default(),
        });
        let tasks = LocalSet::new();
        let life = tasks.spawn_local(node.clone().live());
        let inbox = VecDeque::new();
        let (clock_ms, was_stopped) = (0, false);
        let handling = Vec::new();
        Process { tasks, life, runtime, node, began_ms, clock_ms, was_stopped, inbox, handling }
    }
}

impl Process {
    /// Runs until the process's clock shows this time.
    fn run(&mut self, clock_ms: u64) {
        let time = Duration::from_millis(clock_ms - self.clock_ms);
        self.clock_ms = clock_ms;
        let was_stopped = std::mem::take(&mut self.was_stopped);
        let Self { inbox, node, handling, .. } = self;
        self.tasks.block_on(&self.runtime, async {
            if was_stopped {
                advance(time).await;
            }
            for (number, request) in inbox.drain(..) {
                handling.push(spawn_local(node.clone().handle(number, request)));
            }
            if !was_stopped {
                sleep(time).await;
            }
        });
    }

    /// Fails if a request has panicked.
    fn require_no_panic(&mut self, number: usize) -> Result<(), String> {
        let Self { runtime, handling, .. } = self;
        handling.extract_if(.., |task| task.is_finished()).try_for_each(|task| {
            let handled = runtime.block_on(task);
            handled.map_err(|panic| format!("a request panics at node {number}: {panic}"))
        })
    }
}

/// The runtime for the brokers' own tasks.
pub(super) struct Brokers(Runtime);

impl Brokers {
    pub(super) fn new(log: &MemoryLog) -> Self {
        let runtime = paused_runtime();
        log.run_on(runtime.handle().clone());
        Self(runtime)
    }

    pub(super) fn run(&self, time: Duration) {
        self.block_on(async { sleep(time).await });
    }

    pub(super) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.0.block_on(work)
    }
}
