//! The duration of a start: writes a journal of trades and has a separate process recover it, with
//! one thread and with one per processor, and then from a snapshot.
//!
//! `cargo bench --bench recovery -- --trades 10000000 --folder /path/with/room`. By default it is
//! small, so that it can run with the other benches. With `--keep` the journal is kept, and the
//! bench prints how to recover it again, for example under a profiler.

#[path = "../perf/prepared.rs"]
mod prepared;

use std::env;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use paperbourse::disk::Disk;
use paperbourse::engine::State;
use paperbourse::ids::SHARD_COUNT;
use paperbourse::journal::{JournalConfig, SyncMode};
use paperbourse::snapshot;

const TRADES_DEFAULT: u64 = 100_000;
const ORDERS_PER_ACCOUNT: u64 = 100;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let value = |flag: &str| {
        let at = arguments.iter().position(|argument| argument == flag)?;
        arguments.get(at + 1).cloned()
    };
    if let (Some(folder), Some(threads)) = (value("--open"), value("--threads")) {
        let threads = threads.parse().expect("a number of threads");
        return open_and_report(Path::new(&folder), threads);
    }
    let trades = value("--trades").map_or(TRADES_DEFAULT, |n| n.parse().expect("a number"));
    let folder =
        tempfile::TempDir::new_in(value("--folder").map_or_else(env::temp_dir, PathBuf::from))
            .expect("a folder with room");
    let keeps = arguments.iter().any(|argument| argument == "--keep");
    let folder = if keeps { Err(folder.keep()) } else { Ok(folder) };
    let data = folder.as_ref().map_or_else(PathBuf::as_path, |folder| folder.path()).join("data");
    let began = Instant::now();
    let accounts = (trades / ORDERS_PER_ACCOUNT).max(SHARD_COUNT as u64);
    let contents = prepared::Contents { accounts, has_keys: false, trades, resting: 0 };
    prepared::write(&data, contents).expect("a new data directory");
    println!("{trades} trades written in {:.1} s", began.elapsed().as_secs_f64());
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    if keeps {
        println!("--open {} --threads 1 reads it again", data.display());
    }
    println!(
        "| threads | snapshot | records | MB read | s | processor s | million records/s a thread \
         | million records/processor s | peak MB |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    measure(&data, 1);
    measure(&data, all);
    let began = Instant::now();
    prepared::take_snapshot(&data).expect("a data directory of this bench");
    println!("snapshot taken in {:.1} s", began.elapsed().as_secs_f64());
    measure(&data, 1);
    measure(&data, all);
}

/// Opens the directory in a separate process, so that its memory is that of a start.
fn measure(data: &Path, threads: usize) {
    let status = Command::new(env::current_exe().expect("this bench is a file"))
        .arg("--open")
        .arg(data)
        .args(["--threads", &threads.to_string()])
        .status();
    assert!(status.expect("this bench can be started").success());
}

#[expect(clippy::cast_precision_loss, reason = "figures to print")]
fn open_and_report(data: &Path, threads: NonZeroUsize) {
    let bytes: u64 =
        ["journal", "snapshots"].map(|name| folder_bytes(&data.join(name))).iter().sum();
    let began = Instant::now();
    let config = JournalConfig { sync: SyncMode::Never, ..JournalConfig::default() };
    let opened = snapshot::open(Disk::System, data, &config, threads)
        .expect("a data directory of this bench");
    let seconds = began.elapsed().as_secs_f64();
    let processor_seconds = processor_seconds();
    let orders: u64 = opened.recovered.states().map(State::orders_kept).sum();
    let journal = &opened.report.journal;
    let snapshot = opened.report.snapshot.map_or_else(
        || "none".to_owned(),
        |_| format!("{:.2} s", opened.report.snapshot_elapsed.as_secs_f64()),
    );
    println!(
        "| {threads} | {snapshot} | {} ({orders} orders kept) | {} | {seconds:.2} \
         | {processor_seconds:.2} | {:.2} | {:.2} | {} |",
        journal.records,
        bytes / 1_000_000,
        journal.records as f64 / seconds / threads.get() as f64 / 1e6,
        journal.records as f64 / processor_seconds / 1e6,
        peak_bytes() / 1_000_000,
    );
}

fn folder_bytes(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// The processor time used by this process so far, if the system reports it. On a busy machine,
/// this is the cost of the start itself.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the program's name, which may contain anything, the 12th and 13th fields are user and
    // system time, in hundredths of a second.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// The peak memory of this process, if the system reports it.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
    kilobytes.unwrap_or(0_u64) * 1024
}
