//! The cost of snapshots to concurrent trades: the same open-loop load on a server with much state,
//! in turn with continuous snapshots and with none.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use paperbourse::disk::Disk;
use serde::Serialize;

use crate::cores::Cores;
use crate::machine::{self, SyncTimes};
use crate::open::{Highest, QUANTILES, Sample};
use crate::prepared::{self, Contents};
use crate::report::{Goal, Part};
use crate::server::{Kind, Server};
use crate::setup::{NO_SNAPSHOTS, Setup, Shape, Target};
use crate::spread::{Spread, median};

/// Number of trading accounts.
const TRADING_ACCOUNTS: u32 = 64;

/// Maximum number of loads at full speed until a segment of the journal is full.
const WARM_UPS_MAX: u32 = 60;

/// Duration of the measurement of the disk alone in each round.
const SYNC_OPEN_LOOP: Duration = Duration::from_secs(2);

/// The options of this measurement.
#[derive(Args, Clone, Debug)]
pub(crate) struct SnapshotArgs {
    /// Existing accounts
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    prepared_accounts: u64,

    /// Existing kept orders
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    prepared_orders: u64,

    /// Requests per second [default: half of the highest throughput of a closed loop]
    #[arg(long, value_name = "N")]
    rate: Option<f64>,

    /// Seconds of each measurement with snapshots: enough to start a new segment of the journal,
    /// which takes some 270,000 trades
    #[arg(long, default_value_t = 15.0, value_name = "SECONDS")]
    snapshot_seconds: f64,
}

/// The results of one measurement.
#[derive(Serialize)]
struct Measured {
    has_snapshots: bool,
    sample: Sample,
    /// Whether a snapshot was in progress at the end, and whether one was completed since the
    /// start.
    is_making: bool,
    has_completed: bool,
    /// The number of journal segments started in the measured time.
    segments: u64,
}

/// The results of the measurement.
pub(crate) struct Figures {
    rate: f64,
    connection_count: usize,
    /// The division of the cores, in words.
    cores: String,
    contents: (u64, u64),
    measured: Vec<Measured>,
    sync: Vec<SyncTimes>,
}

/// Runs the measurement. `with_and_without` selects whether to measure without snapshots too.
pub(crate) fn run(
    setup: &Setup,
    cores: &Cores,
    arguments: &SnapshotArgs,
    highest: Option<Highest>,
    with_and_without: bool,
) -> anyhow::Result<Figures> {
    let prepared = setup.scratch.0.join("prepared");
    let (accounts, trades) = (arguments.prepared_accounts, arguments.prepared_orders);
    prepared::write(&prepared, Contents { accounts, has_keys: false, trades, resting: 0 })?;
    prepared::take_snapshot(&prepared)?;
    eprintln!("prepared {accounts} accounts and {trades} orders");
    let highest = match highest {
        Some(highest) => highest,
        None => Highest::find(setup, cores, TRADING_ACCOUNTS)?,
    };
    let rate = arguments.rate.unwrap_or(highest.throughput / 2.0);
    let mut figures = Figures {
        rate,
        connection_count: highest.connection_count,
        cores: cores.description(),
        contents: (accounts, trades),
        measured: Vec::new(),
        sync: Vec::new(),
    };
    for round in 1..=setup.arguments.rounds {
        figures.sync.push(machine::sync_times(&setup.scratch.0, SYNC_OPEN_LOOP)?);
        // Swap the order in each round, so that each mode comes first in turn.
        let both = [round % 2 != 0, round % 2 == 0];
        let modes = if with_and_without { &both[..] } else { &[true] };
        for &has_snapshots in modes {
            let folder = setup.scratch.0.join(format!("snapshots-{round}-{has_snapshots}"));
            copy(&prepared, &folder).context("failed to copy the prepared data")?;
            let (server, target) = start(setup, cores, &folder, has_snapshots)?;
            let Highest { connection_count, .. } = highest;
            let closed = setup.closed_loop(connection_count);
            let shape = |seconds| Shape { rate: Some(rate), seconds, ..closed };
            let full = setup.closed_loop(connection_count);
            warm_up(setup, &target, full, &folder, has_snapshots)?;
            let before = newest(&folder)?;
            let outcome = setup.load(&target, shape(arguments.snapshot_seconds))?;
            let after = newest(&folder)?;
            let measured = Measured {
                has_snapshots,
                sample: Sample::of(round, rate, &outcome),
                is_making: is_making(&folder)?,
                has_completed: after.0 > before.0,
                segments: after.1.saturating_sub(before.1),
            };
            eprintln!("snapshots {}, {}", measured.mode(), measured.sample.line());
            figures.measured.push(measured);
            drop(server);
            std::fs::remove_dir_all(&folder).context("failed to remove a round's data")?;
        }
    }
    std::fs::remove_dir_all(&prepared).context("failed to remove the prepared data")?;
    Ok(figures)
}

/// Loads a server at full speed until a segment of the journal is full, so that a snapshot is in
/// progress if snapshots are on. This also warms the caches after the start.
fn warm_up(
    setup: &Setup,
    target: &Target,
    full: Shape,
    folder: &Path,
    has_snapshots: bool,
) -> anyhow::Result<()> {
    let (_, before) = newest(folder)?;
    for _ in 0..WARM_UPS_MAX {
        setup.load(target, Shape { seconds: 1.0, ..full })?;
        let (_, segment) = newest(folder)?;
        if segment > before && (!has_snapshots || is_making(folder)?) {
            return Ok(());
        }
    }
    bail!("no snapshot started after {WARM_UPS_MAX} loads: the journal grows too slowly")
}

/// Returns the last segment that a snapshot covers, and the newest segment of the journal.
fn newest(folder: &Path) -> anyhow::Result<(u64, u64)> {
    let newest = |folder: &Path, end: &str| -> anyhow::Result<u64> {
        let mut newest = 0;
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let number = name.strip_suffix(end).and_then(|number| number.parse().ok());
            newest = newest.max(number.unwrap_or(0));
        }
        Ok(newest)
    };
    let snapshot = newest(&folder.join("snapshots"), ".snapshot")?;
    Ok((snapshot, newest(&folder.join("journal"), ".segment")?))
}

/// Whether there is a snapshot that does not have its final name yet.
fn is_making(folder: &Path) -> anyhow::Result<bool> {
    // The first snapshot creates the folder.
    let Ok(entries) = std::fs::read_dir(folder.join("snapshots")) else { return Ok(false) };
    for entry in entries {
        if entry?.file_name().to_string_lossy().ends_with(".tmp") {
            return Ok(true);
        }
    }
    Ok(false)
}

fn start(
    setup: &Setup,
    cores: &Cores,
    folder: &Path,
    has_snapshots: bool,
) -> anyhow::Result<(Server, Target)> {
    let always = ["--snapshot-bytes", "1", "--snapshot-interval", "1000000"];
    let flags = if has_snapshots { always } else { NO_SNAPSHOTS };
    let server = setup.start_apart(cores, Kind::Durable, folder, &flags)?;
    let keys = server.make_keys(TRADING_ACCOUNTS)?;
    let target = Target::apart(&server, keys, cores);
    Ok((server, target))
}

/// Copies a folder and syncs it, since later write-back by the system would disturb the
/// measurement.
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

impl Measured {
    const fn mode(&self) -> &'static str {
        if self.has_snapshots { "all the time" } else { "none" }
    }
}

impl Figures {
    /// Returns the section of the report.
    pub(crate) fn part(&self) -> Part {
        Part {
            name: "snapshots",
            title: "Half of the highest throughput while snapshots are made",
            markdown: self.markdown(),
            goals: self.goals(),
            json: serde_json::json!({
                "rate": self.rate,
                "connections": self.connection_count,
                "prepared_accounts": self.contents.0,
                "prepared_orders": self.contents.1,
                "samples": self.measured,
                "fdatasync_us": self.sync,
            }),
        }
    }

    fn with(&self, has_snapshots: bool) -> Vec<&Measured> {
        self.measured.iter().filter(|measured| measured.has_snapshots == has_snapshots).collect()
    }

    /// Returns the median of a latency, by its index in [`QUANTILES`].
    fn latency_us(&self, has_snapshots: bool, index: usize) -> f64 {
        median(self.with(has_snapshots), |measured| measured.sample.quantile_us(index))
    }

    #[expect(clippy::cast_precision_loss, reason = "small counts")]
    fn goals(&self) -> Vec<Goal> {
        let [p50, p99, p999] = [0, 1, 2].map(|index| self.latency_us(true, index));
        let with = self.with(true);
        let segments = Spread::of(with.iter().map(|row| row.segments as f64));
        let made = with.iter().filter(|row| row.is_making || row.has_completed).count();
        let throughput = median(self.with(true), |row| row.sample.throughput());
        vec![
            // Without this goal, a server that does not keep up would pass: it has one long latency
            // and so good ratios.
            Goal::at_least(
                "4: open loop at half load, with snapshots: answered / offered",
                throughput / self.rate,
                0.99,
            ),
            Goal::at_most("4: open loop at half load, with snapshots: p99 / p50", p99 / p50, 4.0),
            Goal::at_most(
                "4: open loop at half load, with snapshots: p99.9 / p50",
                p999 / p50,
                10.0,
            ),
            Goal::at_least(
                "4: segments of the journal begun in that time, in the round with the fewest",
                segments.lowest,
                1.0,
            ),
            Goal::at_least(
                "4: fraction of rounds with a snapshot in progress or completed",
                made as f64 / with.len() as f64,
                1.0,
            ),
        ]
    }

    fn markdown(&self) -> String {
        let names = QUANTILES.map(|(name, _)| name).join(" | ");
        let (accounts, orders) = self.contents;
        let mut out = format!(
            "A durable server on {accounts} accounts and {orders} kept orders, {} connections, an \
             open loop at {:.0} requests a second, with cores of their own: {}. *All the time* \
             means that a snapshot is being made, paced as by default, from the first second to \
             the last. Latencies from when a request was due, in microseconds: medians, with the \
             lowest and the highest.\n\n\
             | snapshots | requests/s | {names} | p99 / p50 | p99.9 / p50 | segments begun |\n\
             |---|---|{}---|---|---|\n",
            self.connection_count,
            self.rate,
            self.cores,
            "---|".repeat(QUANTILES.len())
        );
        for has_snapshots in [false, true] {
            let rows = self.with(has_snapshots);
            let Some(first) = rows.first() else { continue };
            let throughput = median(self.with(has_snapshots), |row| row.sample.throughput());
            let _ = write!(out, "| {} | {throughput:.0} |", first.mode());
            for index in 0..QUANTILES.len() {
                let spread = Spread::of(rows.iter().map(|row| row.sample.quantile_us(index)));
                let _ = write!(out, " {} |", spread.cell(0));
            }
            let [p50, p99, p999] = [0, 1, 2].map(|index| self.latency_us(has_snapshots, index));
            #[expect(clippy::cast_precision_loss, reason = "a small count")]
            let segments = Spread::of(rows.iter().map(|row| row.segments as f64));
            let (first, second) = (p99 / p50, p999 / p50);
            let _ = writeln!(out, " {first:.2} | {second:.2} | {} |", segments.cell(0));
        }
        let [p50, p99, p999] =
            [0, 1, 2].map(|index| median(&self.sync, |times| times.open_loop[index]));
        let _ = writeln!(
            out,
            "| `fdatasync` alone, open loop | | {p50:.0} | {p99:.0} | {p999:.0} | | | {:.2} | \
             {:.2} | |",
            p99 / p50,
            p999 / p50
        );
        let with = self.with(true);
        let count = |is: fn(&Measured) -> bool| with.iter().filter(|row| is(row)).count();
        let _ = writeln!(
            out,
            "\nOf {} rounds with snapshots, {} ended with a snapshot in progress, and {} had \
             completed one.",
            with.len(),
            count(|row| row.is_making),
            count(|row| row.has_completed)
        );
        out
    }
}
