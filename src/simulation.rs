//! Deterministic simulation of the whole server except its network, in one thread over a simulated
//! disk: the power fails, processes are killed, the disk fails, fills up and flips bits, and
//! clients carry on where they were.
//!
//! One seed is one world: one disk, one clock, and a sequence of server processes with real shards,
//! journal, snapshots and recovery. The seed alone determines what happens when, so a failing run
//! names its seed, and
//!
//! ```text
//! PAPERBOURSE_SIMULATION_SEED=7 cargo test simulation::the_promise_holds
//! ```
//!
//! repeats it with the number of processes of a long run, or with `PAPERBOURSE_SIMULATION_LIVES`;
//! the last process runs without faults. `PAPERBOURSE_SIMULATION_SEEDS=1000` starts a long run,
//! which prints statistics; `--profile simulation` makes it fast.
//!
//! - [`world`] decides what happens to the disk and when a process ends.
//! - [`process`] is the server, which runs only when called.
//! - [`markets`] have books that never change, so that the cost of every market order is known in
//!   advance.
//! - [`clients`] send orders, comments, key operations and reads, and resend unanswered orders.
//! - [`resting`] places orders that rest, in markets whose books move.
//! - [`operated`] has the accounts that operators act on.
//! - [`auditor`] records every answer and compares it with what each start recovers.
//! - [`cluster`] is another world: nodes that share a log, each with a disk of its own.
//!
//! The seed determines everything except the journal's id. The id is only ever compared, directly
//! or in checksums, and `a_seed_always_runs_the_same` shows that nothing depends on it.
//!
//! For each fault in [`paperbourse_core::faults`], a test checks that the simulation detects it.

macro_rules! ensure {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(format!($($text)*));
        }
    };
}

#[macro_use]
mod totals;

mod answers;
mod auditor;
mod clients;
#[cfg(feature = "cluster")]
mod cluster;
mod command;
mod history;
mod markets;
mod operated;
mod process;
mod resting;
mod small;
mod world;

use std::any::Any;
use std::fmt;
use std::ops::AddAssign;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};

use paperbourse_core::faults::{self, Fault};
use totals::Totals;
use world::World;

/// Number of seeds in the normal test suite.
const SEEDS: u64 = 48;

/// Processes per seed, not counting the last one, which runs without faults.
const LIVES: u64 = 40;

/// Processes per seed in a long run.
const LIVES_LONG: u64 = 160;

/// Runs one seed. An error names the seed.
fn simulate(seed: u64, lives: u64) -> (Totals, Result<(), String>) {
    let mut world = World::new(seed);
    let run = catch_unwind(AssertUnwindSafe(|| world.run(lives)));
    let result = run.unwrap_or_else(|panic| Err(panic_text(&*panic)));
    let named = |failure| format!("seed {seed} of {lives} lives, {failure}");
    (world.totals(), result.map_err(named))
}

/// Builds a single-threaded runtime with a paused clock, which advances only when no task can run.
fn paused_runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime of this thread")
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("a panic: {}", text.unwrap_or_default())
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

#[test]
fn the_promise_holds() {
    if let Some(seed) = number("PAPERBOURSE_SIMULATION_SEED") {
        let lives = number("PAPERBOURSE_SIMULATION_LIVES").unwrap_or(LIVES_LONG);
        let (totals, result) = simulate(seed, lives);
        println!("{totals:#?}");
        result.unwrap();
        return;
    }
    let seeds = number("PAPERBOURSE_SIMULATION_SEEDS");
    let lives = if seeds.is_some() { LIVES_LONG } else { LIVES };
    let totals = run_all(seeds.unwrap_or(SEEDS), |seed| simulate(seed, lives));
    println!("{} crashes", totals.crashes());
    totals.assert_everything_happened();
}

/// Runs every seed below `seeds`, on all cores. Panics if one fails.
fn run_all<T: AddAssign + Default + fmt::Display + Send>(
    seeds: u64,
    run: impl Fn(u64) -> (T, Result<(), String>) + Sync,
) -> T {
    let began = Instant::now();
    let (next, sum) = (AtomicU64::new(0), Mutex::new(T::default()));
    let failure = Mutex::new(None);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds || failure.lock().is_some() {
                return;
            }
            let (totals, result) = run(seed);
            *sum.lock() += totals;
            if let Err(text) = result {
                *failure.lock() = Some(text);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    if let Some(failure) = failure.into_inner() {
        panic!("{failure}");
    }
    let totals = sum.into_inner();
    println!("{seeds} seeds, {totals}, {:.1} s", began.elapsed().as_secs_f64());
    totals
}

#[test]
fn a_seed_always_runs_the_same() {
    let run = || simulate(1, LIVES).0;
    assert_eq!(run(), run());
}

/// Number of seeds within which each fault must be detected. A time limit would depend on the
/// machine's load.
const NOTICED_WITHIN_SEEDS: u64 = 100;

/// Checks that a seed below [`NOTICED_WITHIN_SEEDS`] fails when this fault is switched on.
#[track_caller]
fn check_noticed(fault: Fault) {
    faults::switch_on(fault);
    let began = Instant::now();
    let mut crashes = 0;
    for seed in 0..NOTICED_WITHIN_SEEDS {
        let (totals, result) = simulate(seed, LIVES);
        crashes += totals.crashes();
        if let Err(failure) = result {
            let seconds = began.elapsed().as_secs_f64();
            println!("{fault:?} was noticed after {crashes} crashes, {seconds:.2} s: {failure}");
            return;
        }
    }
    panic!("{fault:?} was not noticed in {crashes} crashes");
}

macro_rules! each_fault_is_noticed {
    ($($name:ident: $fault:ident,)*) => {
        mod each_fault_is_noticed {
            use super::*;
            $(#[test]
            fn $name() {
                check_noticed(Fault::$fault);
            })*
        }
    };
}

each_fault_is_noticed! {
    answer_before_sync: AnswerBeforeSync,
    no_directory_sync: NoDirectorySync,
    torn_tail_accepted_in_the_middle: TornTailAcceptedInTheMiddle,
    crc_unchecked: CrcUnchecked,
    snapshot_renamed_before_sync: SnapshotRenamedBeforeSync,
    idempotency_not_restored: IdempotencyNotRestored,
    reserve_not_restored: ReserveNotRestored,
    read_answered_early: ReadAnsweredEarly,
    rejection_answered_early: RejectionAnsweredEarly,
    handed_over_answered_early: HandedOverAnsweredEarly,
    damaged_end_cut: DamagedEndCut,
    deposit_repeated: DepositRepeated,
    suspension_ignored: SuspensionIgnored,
    tier_ignored: TierIgnored,
}
