//! The world of one seed: a disk, a clock, traders, and a sequence of server processes, each with
//! its own faults.

mod bits;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::answers::deliver;
use super::auditor::Auditor;
use super::clients::{Clients, KEPT_ORDERS_MAX, RESTERS, Request, START_MICROS};
use super::markets::MARKETS;
use super::process::Process;
use super::resting::orders::OPEN_ORDERS_MAX;
use super::resting::venue::Venue;
use super::small::{DATA, SEGMENT_BYTES, journal_config, snapshot_config};
use super::totals::Totals;
use crate::clock::Clock;
use crate::disk::simulated::random::Random;
use crate::disk::simulated::{Faults, SimulatedDisk, When};
use crate::disk::{Disk, DiskError};
use crate::engine::Rules;
use crate::ids::Timestamp;
use crate::journal::OpenError;
use crate::money::Usd;
use crate::snapshot::{FoldError, LoadError, Pace, RecoverError, Stopped, Upkeep, open_stepped};
use paperbourse_core::sizes;

/// Average number of actions until the next market is resolved, while any is left to resolve.
const MARKET_RESOLVED_ONE_IN: u64 = 200;

/// Jumps of the clock, in seconds: an hour, forty days and seventy years forward, and an hour and
/// forty years back. All exceed the 60 s for which a shard's time stands still when the clock is
/// set back.
const JUMPS_SECONDS: [i64; 5] = [3_600, 3_456_000, 2_208_988_800, -3_600, -1_262_304_000];

/// Maximum number of rounds without faults until every order is answered.
const ROUNDS_MAX: usize = 1000;

/// Number of requests that are enough to fill all segments prepared by the journal.
const REQUESTS_MAX: usize = 400;

/// The condition of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Condition {
    Running,
    /// The disk has failed, so the process must end.
    DiskFailed,
}

pub(super) struct World {
    random: Random,
    simulated: SimulatedDisk,
    nanos: Arc<AtomicI64>,
    /// The difference between the clock and the true time, in nanoseconds.
    jumped_nanos: i64,
    clients: Clients,
    venue: Venue,
    auditor: Auditor,
    totals: Totals,
    /// The disk faults planned for this process.
    planned: Faults,
    /// Whether the disk's contents would survive a power loss unchanged.
    is_settled: bool,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        sizes::make_small();
        Self {
            random: Random::new(!seed),
            simulated: SimulatedDisk::new(seed),
            nanos: Arc::new(AtomicI64::new(1_800_000_000_000_000_000)),
            jumped_nanos: 0,
            clients: Clients::new(),
            venue: Venue::new(),
            auditor: Auditor::new(),
            totals: Totals::default(),
            planned: Faults::default(),
            is_settled: true,
        }
    }

    /// Runs `lives` processes, and then a last one without faults. An error names the process.
    pub(super) fn run(&mut self, lives: u64) -> Result<(), String> {
        for life in 0..lives {
            self.live().map_err(|failure| format!("life {life}: {failure}"))?;
        }
        self.live_without_faults().map_err(|failure| format!("life {lives}: {failure}"))
    }

    pub(super) fn totals(&self) -> Totals {
        let operations = self.simulated.operations();
        Totals { compared: self.auditor.compared, operations, ..self.totals }
    }

    fn live(&mut self) -> Result<(), String> {
        if self.is_settled && self.random.one_in(8) {
            return self.live_with_flipped_bits();
        }
        let is_early = self.random.one_in(2);
        self.choose_faults(if is_early { &[30, 200, 1000] } else { &[] });
        let Some((mut process, mut upkeep)) = self.open()? else {
            self.count_faults();
            let was_lost = self.simulated.is_crashed();
            self.totals.power_lost_in_start += u64::from(was_lost);
            self.totals.disk_failed += u64::from(!was_lost);
            self.lose_power_or_process();
            return Ok(());
        };
        if !is_early {
            self.choose_faults(&[15, 60, 250, 1000]);
        }
        let mut condition = Condition::Running;
        for _ in 0..self.random.below(150) {
            condition = if self.random.one_in(25) {
                self.snapshot(&mut process, &mut upkeep)?
            } else {
                self.act(&mut process)?
            };
            if condition == Condition::DiskFailed {
                break;
            }
        }
        self.end(process, condition)
    }

    /// Plans one or two disk faults, each within a number of operations picked from `reaches`.
    /// Plans none if `reaches` is empty.
    fn choose_faults(&mut self, reaches: &[u64]) {
        self.empty_disk();
        let mut faults = Faults::default();
        if !reaches.is_empty() {
            let now = self.simulated.operations();
            for _ in 0..=usize::from(self.random.one_in(3)) {
                let reach = reaches[self.random.below(reaches.len())];
                let when = When::From(now + 1 + self.random.next() % reach);
                match self.random.below(10) {
                    0 => faults.write_error = when,
                    1 => faults.short_write = when,
                    2 => faults.sync_error = when,
                    3..6 => faults.crash = when,
                    6 | 7 => faults.crash_at_names = when,
                    _ => {}
                }
            }
            if self.random.one_in(8) {
                self.fill_disk();
            }
        }
        self.planned = faults;
        self.simulated.set_faults(faults);
    }

    /// Counts the planned faults that have occurred; a crash is always the last.
    fn count_faults(&mut self) {
        let whens = |faults: Faults| {
            let Faults { write_error, short_write, sync_error, crash, crash_at_names, .. } = faults;
            [write_error, short_write, sync_error, crash, crash_at_names]
        };
        let faults = whens(self.planned).into_iter().zip(whens(self.simulated.faults()));
        let is_over = |(planned, now): &(When, When)| *planned != When::Never && planned != now;
        self.totals.two_faults += u64::from(faults.filter(is_over).count() > 1);
    }

    fn fill_disk(&self) {
        self.simulated.set_capacity(self.simulated.bytes() + SEGMENT_BYTES / 2);
    }

    fn empty_disk(&self) {
        self.simulated.set_capacity(u64::MAX);
    }

    fn disk(&self) -> Disk {
        Disk::Simulated(self.simulated.clone())
    }

    /// Starts a process. Returns `None` if the disk failed.
    fn open(&mut self) -> Result<Option<(Process, Upkeep)>, String> {
        let data = Path::new(DATA);
        // A full disk may prevent a start, but once there is room the start must succeed.
        let opened = loop {
            match open_stepped(self.disk(), data, &journal_config()) {
                Err(error) if is_full(&error) => self.empty_disk(),
                opened => break opened,
            }
        };
        let (opened, steps) = match opened {
            Ok(opened) => opened,
            Err(error) if disk_error(&error).is_some() => return Ok(None),
            Err(error) => return Err(format!("the server does not start: {error}")),
        };
        let (auditor, totals) = (&mut self.auditor, &mut self.totals);
        auditor.recovered(&opened.recovered, &self.clients, &self.venue, totals)?;
        self.clients.begin_life(&opened.recovered.states().collect::<Vec<_>>());
        self.totals.recoveries += 1;
        let rules = Rules {
            starting_balance: Usd::from_micros(START_MICROS),
            kept_orders_max: KEPT_ORDERS_MAX,
            open_orders_max: OPEN_ORDERS_MAX,
            ..Rules::default()
        };
        let mut process = Process::new(
            opened.recovered,
            (opened.journal, steps),
            &self.clients.resolved(),
            rules,
            Clock::Virtual(self.nanos.clone()),
            self.auditor.history.clone(),
        );
        process.jumps = self.totals.clock_jumps;
        for change in self.venue.opening(&mut self.random) {
            process.publish(change);
        }
        let upkeep = Upkeep::new(opened.folder, snapshot_config(), Arc::default());
        Ok(Some((process, upkeep)))
    }

    /// Resolves the next market, which takes no orders from now on.
    fn resolve_market(&mut self, process: &Process) {
        let Some(market) = self.clients.resolve() else { return };
        let resolved = MARKETS[market].resolved(market);
        process.markets.list(vec![resolved]).expect("it is listed");
    }

    /// Moves the books in which orders rest.
    fn move_books(&mut self, process: &mut Process) -> Result<(), String> {
        for _ in 0..=self.random.below(3) {
            let change = self.venue.step(&mut self.random);
            process.publish(change);
        }
        if !self.random.one_in(4) {
            process.match_orders(&self.auditor.history);
        }
        self.auditor.check_history()
    }

    /// Decides all delayed orders, as if their wait were over.
    fn decide_delayed(&self, process: &mut Process) -> Result<(), String> {
        process.decide_delayed(&self.auditor.history);
        self.auditor.check_history()
    }

    /// Runs the settler for a while.
    fn settle(&mut self, process: &mut Process) -> Result<(), String> {
        process.settle(1 + self.random.below(80), &self.auditor.history);
        self.auditor.check_history()?;
        if process.markets.unsettled_count() == 0 {
            for market in self.clients.resolved() {
                self.totals.settled += u64::from(self.auditor.saw_settled(market));
            }
        }
        Ok(())
    }

    /// Performs one random action.
    fn act(&mut self, process: &mut Process) -> Result<Condition, String> {
        if self.random.one_in(MARKET_RESOLVED_ONE_IN) {
            self.resolve_market(process);
        }
        if self.random.one_in(MARKET_RESOLVED_ONE_IN)
            && let Some(change) = self.venue.resolve()
        {
            process.publish(change);
        }
        let now = Timestamp::from_nanos(self.nanos.load(Ordering::Relaxed));
        match self.random.below(39) {
            0 => {
                let (clients, random) = (&mut self.clients, &mut self.random);
                let requests = clients.next_together(&self.venue, now, random);
                for request in &requests {
                    self.auditor.requested(request);
                }
                self.totals.handed_over += requests.len() as u64;
                process.submit_together(requests, &mut self.clients, &self.auditor.history)?;
                self.auditor.check_history()?;
                if self.random.one_in(2) {
                    self.deliver_answers(process)?;
                }
            }
            1 if self.random.one_in(3) => {
                let given_up = process.give_up(&mut self.random);
                self.totals.given_up += u64::from(given_up.is_some());
                self.clients.lost(given_up.into_iter());
            }
            1..11 => {
                self.deliver_answers(process)?;
                let request = self.clients.next(&mut self.random);
                self.request(process, request)?;
            }
            20..26 => {
                self.deliver_answers(process)?;
                let (clients, random) = (&mut self.clients, &mut self.random);
                let request = clients.next_resting(&self.venue, now, random);
                self.request(process, request)?;
            }
            26..31 => self.move_books(process)?,
            31 => {
                process.tick(&self.auditor.history);
                self.auditor.check_history()?;
            }
            11..16 | 32..36 => return self.flush(process),
            36..39 => self.decide_delayed(process)?,
            16 if self.random.one_in(2) => self.settle(process)?,
            16..18 => {
                if process.make_segment().is_err() {
                    return Ok(Condition::DiskFailed);
                }
            }
            18 => self.pass_time(process),
            _ if self.random.one_in(4) => self.fill_disk(),
            _ => self.empty_disk(),
        }
        Ok(Condition::Running)
    }

    fn request(&mut self, process: &mut Process, request: Option<Request>) -> Result<(), String> {
        let Some(request) = request else { return Ok(()) };
        self.auditor.requested(&request);
        process.submit(request, &mut self.clients, &self.auditor.history)?;
        self.auditor.check_history()?;
        self.deliver_answers(process)
    }

    /// Flushes the journal, and usually delivers the answers. If it does not, the process may end
    /// before any client receives an answer that is already durable.
    fn flush(&mut self, process: &mut Process) -> Result<Condition, String> {
        let flushed = process.flush();
        if flushed.is_err() || !self.random.one_in(4) {
            self.deliver_answers(process)?;
        }
        Ok(if flushed.is_ok() { Condition::Running } else { Condition::DiskFailed })
    }

    fn deliver_answers(&mut self, process: &mut Process) -> Result<(), String> {
        while let Some((pending, answer)) = process.next_answer() {
            let (clients, auditor) = (&mut self.clients, &mut self.auditor);
            let (venue, totals) = (&self.venue, &mut self.totals);
            deliver(&pending.request, answer, pending.noted, clients, venue, auditor, totals)?;
        }
        Ok(())
    }

    /// Moves the clock, sometimes backwards. Sometimes it jumps and is corrected later.
    fn pass_time(&mut self, process: &mut Process) {
        let nanos = if self.random.one_in(8) {
            self.totals.clock_jumps += 1;
            process.jumps = self.totals.clock_jumps;
            let right = -self.jumped_nanos;
            let jump = JUMPS_SECONDS[self.random.below(JUMPS_SECONDS.len())] * 1_000_000_000;
            self.jumped_nanos = if right == 0 { jump } else { 0 };
            if right == 0 { jump } else { right }
        } else {
            let nanos = i64::try_from(self.random.next() % 2_000_000_000).expect("two seconds");
            if self.random.one_in(5) { -nanos } else { nanos }
        };
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Takes a snapshot if segments are closed, while other actions continue.
    fn snapshot(
        &mut self,
        process: &mut Process,
        upkeep: &mut Upkeep,
    ) -> Result<Condition, String> {
        let closed = process.journal.segment().expect("the journal is on disk") - 1;
        let mut meanwhile = Meanwhile { world: self, process, outcome: Ok(Condition::Running) };
        let kept = upkeep.keep(closed, &mut meanwhile);
        let condition = meanwhile.outcome?;
        match kept {
            Ok(report) => self.totals.snapshots += u64::from(report.is_some()),
            Err(FoldError::Stopped(_)) => {}
            Err(error) if fold_disk_error(&error).is_some() => {
                // A disk error only fails the snapshot, unless the disk has crashed.
                if self.simulated.is_crashed() {
                    return Ok(Condition::DiskFailed);
                }
            }
            Err(error) => return Err(format!("the snapshot failed: {error}")),
        }
        Ok(condition)
    }

    fn end(&mut self, mut process: Process, condition: Condition) -> Result<(), String> {
        self.count_faults();
        let is_crashed = self.simulated.is_crashed();
        let is_lost = is_crashed || condition == Condition::DiskFailed;
        if !is_lost && self.random.one_in(6) {
            self.simulated.set_faults(Faults::default());
            if self.random.one_in(8) {
                self.use_up_disk(&mut process)?;
            }
            return self.end_orderly(process);
        }
        self.clients.lost(process.into_unanswered());
        if is_lost {
            self.totals.power_lost_in_operation += u64::from(is_crashed);
            self.totals.disk_failed += u64::from(!is_crashed);
            self.lose_power_or_process();
        } else if self.random.one_in(3) {
            self.totals.killed += 1;
            self.simulated.kill();
            self.is_settled = false;
        } else {
            self.totals.power_lost += 1;
            self.simulated.power_loss();
            self.is_settled = true;
        }
        Ok(())
    }

    /// Ends the process, with or without a power loss.
    fn lose_power_or_process(&mut self) {
        self.is_settled = !self.random.one_in(3);
        if self.is_settled { self.simulated.power_loss() } else { self.simulated.kill() }
    }

    /// Fills the disk, then sends requests until the existing segments are full and one is refused
    /// for lack of room.
    fn use_up_disk(&mut self, process: &mut Process) -> Result<(), String> {
        self.fill_disk();
        let refused_before = self.totals.journal_full;
        for _ in 0..REQUESTS_MAX {
            let (clients, random) = (&mut self.clients, &mut self.random);
            let request = if random.one_in(2) {
                let now = Timestamp::from_nanos(self.nanos.load(Ordering::Relaxed));
                clients.next_resting(&self.venue, now, random)
            } else {
                clients.next(random)
            };
            self.request(process, request)?;
            process.flush().map_err(|error| error.to_string())?;
            process.make_segment().map_err(|error| error.to_string())?;
            self.deliver_answers(process)?;
            if self.totals.journal_full > refused_before {
                break;
            }
        }
        Ok(())
    }

    /// Ends the process once it has answered all requests. Only a full disk may prevent that, and
    /// only for delayed orders, since deciding one writes a record. A server that shuts down does
    /// not wait for room for ever; the next process decides them.
    fn end_orderly(&mut self, mut process: Process) -> Result<(), String> {
        self.totals.orderly += 1;
        self.is_settled = false;
        self.answer_all(&mut process)?;
        let is_full = self.simulated.room_bytes() < SEGMENT_BYTES;
        if is_full && process.waits_only_for_delayed_orders(&self.clients) {
            if self.random.one_in(2) {
                self.totals.left_delayed += 1;
                self.clients.lost(process.into_unanswered());
                return Ok(());
            }
            // The disk gets room before the process gives up.
            self.totals.waited_for_room += 1;
            self.empty_disk();
            self.answer_all(&mut process)?;
        }
        let mut unanswered = process.into_unanswered();
        unanswered.next().map_or(Ok(()), |request| Err(format!("{request:?} was not answered")))
    }

    /// Runs the process until every request is answered or no further progress is possible.
    fn answer_all(&mut self, process: &mut Process) -> Result<(), String> {
        self.deliver_answers(process)?;
        for _ in 0..ROUNDS_MAX {
            // A delayed order may have to wait for room in the journal.
            process.decide_delayed(&self.auditor.history);
            let mut has_moved = false;
            while process.flush().map_err(|error| error.to_string())? {
                has_moved = true;
            }
            self.deliver_answers(process)?;
            if process.has_answered_all() {
                break;
            }
            has_moved |= process.make_segment().map_err(|error| error.to_string())?;
            if !has_moved {
                break;
            }
        }
        Ok(())
    }

    /// Runs without faults until every order is answered, then cuts the power.
    fn live_without_faults(&mut self) -> Result<(), String> {
        let (mut process, _) = self.open_without_faults()?;
        for round in 0.. {
            if self.clients.all_answered() && process.markets.unsettled_count() == 0 {
                break;
            }
            if round == ROUNDS_MAX {
                return Err("orders stay unanswered without any fault".to_owned());
            }
            for trader in 0..RESTERS.end {
                if let Some(request) = self.clients.resend(trader, &mut self.random) {
                    process.submit(request, &mut self.clients, &self.auditor.history)?;
                }
            }
            self.settle(&mut process)?;
            self.decide_delayed(&mut process)?;
            process.flush().map_err(|error| error.to_string())?;
            process.make_segment().map_err(|error| error.to_string())?;
            self.deliver_answers(&mut process)?;
        }
        self.end_orderly(process)?;
        for _ in 0..2 {
            self.simulated.power_loss();
            let (process, _) = self.open_without_faults()?;
            self.end_orderly(process)?;
        }
        Ok(())
    }

    fn open_without_faults(&mut self) -> Result<(Process, Upkeep), String> {
        self.simulated.set_faults(Faults::default());
        self.empty_disk();
        self.open()?.ok_or_else(|| "the disk fails without a reason".to_owned())
    }
}

/// A pace that runs other actions while a snapshot is taken.
struct Meanwhile<'a> {
    world: &'a mut World,
    process: &'a mut Process,
    outcome: Result<Condition, String>,
}

impl Pace for Meanwhile<'_> {
    fn step(&mut self) -> Result<(), Stopped> {
        if self.world.random.one_in(10) {
            self.outcome = self.world.act(self.process);
        }
        if self.outcome == Ok(Condition::Running) { Ok(()) } else { Err(Stopped) }
    }
}

/// Returns the disk error that caused this error, if any.
fn disk_error(error: &RecoverError) -> Option<&DiskError> {
    match error {
        RecoverError::Journal(OpenError::Disk(error)) => Some(error),
        RecoverError::Snapshot(error) => load_disk_error(error),
        _ => None,
    }
}

fn load_disk_error(error: &LoadError) -> Option<&DiskError> {
    match error {
        LoadError::Disk(error) => Some(error),
        _ => None,
    }
}

fn fold_disk_error(error: &FoldError) -> Option<&DiskError> {
    match error {
        FoldError::Disk(error) | FoldError::Journal(OpenError::Disk(error)) => Some(error),
        FoldError::Load(error) => load_disk_error(error),
        _ => None,
    }
}

fn is_full(error: &RecoverError) -> bool {
    disk_error(error).is_some_and(DiskError::is_full)
}
