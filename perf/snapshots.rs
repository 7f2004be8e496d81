//! What a snapshot costs those who trade meanwhile: the same open-loop load on a server with much
//! state, with snapshots all the time and with none, in turn.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use paperbourse::disk::Disk;

use crate::load::{Load, Outcome};
use crate::machine;
use crate::prepared;
use crate::run::{MARKET_ID, ScratchFolder, beside};
use crate::server::{Binaries, Kind, Server};
use crate::trade::{Instrument, TradeTemplate};

/// More journal than any run writes: no snapshot is due.
const NEVER_BYTES: &str = "1000000000000";

/// The choices of `paperbourse-perf snapshots`.
#[derive(Args, Clone, Debug)]
pub(crate) struct SnapshotArgs {
    /// The server's binary [default: `paperbourse` beside this program]
    #[arg(long, value_name = "FILE")]
    server: Option<std::path::PathBuf>,

    /// Where the servers keep their data; must be on the disk that is to be measured
    #[arg(long, default_value_os_t = std::env::temp_dir(), value_name = "DIR")]
    scratch: std::path::PathBuf,

    /// Accounts that are there before
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    prepared_accounts: u64,

    /// Kept orders that are there before
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    prepared_orders: u64,

    /// Requests a second [default: half of what a closed loop of 64 connections reaches before the
    /// first round]
    #[arg(long, value_name = "N")]
    rate: Option<f64>,

    /// How often each is measured
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..100))]
    rounds: u32,

    /// Seconds of each measurement
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..3600))]
    seconds: u64,

    /// Connections
    #[arg(long, default_value_t = 64, value_name = "N")]
    connections: usize,
}

/// One measurement.
struct Sample {
    has_snapshots: bool,
    /// How many snapshots were made or being made in the measured time.
    snapshots: u64,
    throughput: f64,
    /// p50, p99, p99.9, p99.99 and the longest, in microseconds.
    latencies_us: [f64; 5],
}

/// Measures and prints.
pub(crate) fn run(arguments: &SnapshotArgs) -> anyhow::Result<()> {
    let server = beside(arguments.server.as_ref(), "paperbourse")?;
    // The bare server is not started here.
    let binaries = Binaries { bare: server.clone(), server };
    let name = format!("paperbourse-snapshots-{}", std::process::id());
    let scratch = ScratchFolder::make(arguments.scratch.join(name))?;
    machine::disk_filesystem(&scratch.0)?;
    let prepared = scratch.0.join("prepared");
    let (accounts, orders) = (arguments.prepared_accounts, arguments.prepared_orders);
    prepared::write(&prepared, accounts, orders)?;
    prepared::take_snapshot(&prepared)?;
    eprintln!("{accounts} accounts and {orders} orders are prepared");
    let mut run_number = 0;
    let rate = if let Some(rate) = arguments.rate {
        rate
    } else {
        let folder = scratch.0.join("rate");
        let peer = Peer::start(arguments, &binaries, &prepared, &folder, false)?;
        peer.load(arguments, None, run_number, 5)?.throughput() / 2.0
    };
    eprintln!("open loop at {rate:.0} requests/s");
    let mut samples = Vec::new();
    for round in 0..arguments.rounds {
        // Each comes first in turn.
        for has_snapshots in [round % 2 == 0, round % 2 != 0] {
            run_number += 1;
            let folder = scratch.0.join(format!("{round}-{has_snapshots}"));
            let peer = Peer::start(arguments, &binaries, &prepared, &folder, has_snapshots)?;
            let outcome = peer.load(arguments, Some(rate), run_number, arguments.seconds)?;
            let failed = outcome.failure_count();
            ensure!(failed == 0, "not every answer was a success: {:?}", outcome.statuses);
            let sample = Sample {
                has_snapshots,
                snapshots: newest_snapshot(&folder)?,
                throughput: outcome.throughput(),
                latencies_us: [0.5, 0.99, 0.999, 0.9999, 1.0]
                    .map(|quantile| outcome.quantile_us(quantile)),
            };
            eprintln!("round {}: {}", round + 1, sample.line());
            samples.push(sample);
            drop(peer);
            std::fs::remove_dir_all(&folder).context("failed to remove a round's data")?;
        }
    }
    print_table(&samples);
    Ok(())
}

/// The last segment that the newest snapshot covers: none at the start of a round.
fn newest_snapshot(folder: &Path) -> anyhow::Result<u64> {
    let Ok(entries) = std::fs::read_dir(folder.join("snapshots")) else { return Ok(0) };
    let mut newest = 0;
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(number) = name.strip_suffix(".snapshot") {
            newest = newest.max(number.parse().unwrap_or(0));
        }
    }
    Ok(newest)
}

struct Peer {
    server: Server,
    keys: Arc<[String]>,
}

impl Peer {
    /// A server on a copy of the prepared data.
    fn start(
        arguments: &SnapshotArgs,
        binaries: &Binaries,
        prepared: &Path,
        folder: &Path,
        has_snapshots: bool,
    ) -> anyhow::Result<Self> {
        copy(prepared, folder)?;
        let bytes = if has_snapshots { "1" } else { NEVER_BYTES };
        let flags = ["--snapshot-bytes", bytes, "--snapshot-interval", "1000000"];
        let server = Server::start(Kind::Durable, binaries, folder, 2, &flags)?;
        let keys = server.make_keys(u32::try_from(arguments.connections)?)?.into();
        Ok(Self { server, keys })
    }

    fn load(
        &self,
        arguments: &SnapshotArgs,
        rate: Option<f64>,
        run_number: u32,
        seconds: u64,
    ) -> anyhow::Result<Outcome> {
        let instrument = Instrument { market_id: MARKET_ID.to_owned(), outcome: "Yes".to_owned() };
        Load {
            address: self.server.address,
            template: Arc::new(TradeTemplate::new(self.server.address, &instrument)),
            keys: self.keys.clone(),
            rate,
            connection_count: arguments.connections,
            thread_count: 2,
            warm_up: Duration::from_secs(2),
            measured: Duration::from_secs(seconds),
            server_pid: self.server.pid(),
            run_number,
        }
        .run()
    }
}

/// Copies a folder, with all of it on disk: what the system writes back later would be measured.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            Disk::System.copy(&entry.path(), &target)?;
        }
    }
    Ok(())
}

impl Sample {
    fn line(&self) -> String {
        let [p50, p99, p999, p9999, max] = self.latencies_us;
        format!(
            "snapshots {}: {:.0}/s, p50 {p50:.0}, p99 {p99:.0}, p99.9 {p999:.0}, p99.99 \
             {p9999:.0}, max {max:.0} us; newest snapshot covers segment {}",
            if self.has_snapshots { "on" } else { "off" },
            self.throughput,
            self.snapshots
        )
    }
}

fn print_table(samples: &[Sample]) {
    println!("| snapshots | requests/s | p50 | p99 | p99.9 | p99.99 | max |");
    println!("|---|---|---|---|---|---|---|");
    let mut p999 = Vec::new();
    for has_snapshots in [false, true] {
        let rows: Vec<_> =
            samples.iter().filter(|sample| sample.has_snapshots == has_snapshots).collect();
        let median = |value: &dyn Fn(&Sample) -> f64| {
            let mut values: Vec<f64> = rows.iter().map(|sample| value(sample)).collect();
            values.sort_by(f64::total_cmp);
            (values[values.len() / 2], values[0], values[values.len() - 1])
        };
        let name = if has_snapshots { "all the time" } else { "none" };
        let (throughput, ..) = median(&|sample| sample.throughput);
        print!("| {name} | {throughput:.0} |");
        for index in 0..5 {
            let (middle, least, most) = median(&|sample| sample.latencies_us[index]);
            print!(" {middle:.0} ({least:.0}–{most:.0}) |");
        }
        println!();
        p999.push(median(&|sample| sample.latencies_us[2]).0);
    }
    println!("\np99.9 with snapshots / without: {:.2}", p999[1] / p999[0]);
}
