//! A full run: all parts, one after another, in one report.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};

use crate::closed::Comparison;
use crate::cores::Cores;
use crate::engine;
use crate::growth::{self, GrowthArgs};
use crate::machine;
use crate::open::{self, Highest};
use crate::peers::Peer;
use crate::report::Report;
use crate::setup::{Setup, SetupArgs};
use crate::snapshots::{self, SnapshotArgs};
use crate::subscribers::{self, SubscriberArgs};

/// The options of `paperbourse-perf run`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    setup: SetupArgs,

    /// The parts to run
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = PartName::ALL)]
    only: Vec<PartName>,

    /// The servers to compare with. A peer whose programs are missing is skipped, and the report
    /// says so
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = Peer::ALL)]
    peers: Vec<Peer>,

    /// Numbers of connections in the closed loop
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64, 256], value_name = "N")]
    connections: Vec<usize>,

    /// In how many turns each server is measured at a number of connections, in each round
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..100))]
    slices: u32,

    /// Trading accounts, each with one key
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..10_000))]
    accounts: u32,

    /// A Python interpreter that has the packages of perf/fastapi/requirements.txt [default: a
    /// virtual environment is created]
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,

    /// The folder with criterion's results of `cargo bench` [default: `../criterion` beside this
    /// program]
    #[arg(long, value_name = "DIR")]
    criterion: Option<PathBuf>,

    /// Where to write the plot of latency against offered load, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    #[command(flatten)]
    snapshots: SnapshotArgs,

    #[command(flatten)]
    growth: GrowthArgs,

    #[command(flatten)]
    subscribers: SubscriberArgs,
}

/// A part of the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum PartName {
    /// Throughput, compared with all peers
    Closed,
    /// Latency against offered load
    Open,
    /// Half of the highest load during snapshots
    Snapshots,
    /// Many accounts, keys and orders
    Growth,
    /// Subscribers of the price socket
    Subscribers,
    /// The engine alone: reports the latest results of `cargo bench`, measures nothing
    Engine,
}

impl PartName {
    const ALL: [Self; 6] =
        [Self::Closed, Self::Open, Self::Snapshots, Self::Growth, Self::Subscribers, Self::Engine];
}

/// Runs the measurements and publishes the report.
pub(crate) fn run(arguments: &RunArgs) -> anyhow::Result<()> {
    let setup = Setup::prepare(&arguments.setup)?;
    let mut report = report(&setup);
    let peers = available(&arguments.peers, &mut report.skipped);
    ensure!(peers.iter().any(|&peer| peer != Peer::Wrk), "there is no server to compare");
    let wants = |part| arguments.only.contains(&part);
    // Reject a machine with one core now, and not after all other parts.
    let needs_cores =
        [PartName::Open, PartName::Snapshots, PartName::Subscribers].into_iter().any(wants);
    let cores = needs_cores.then(|| Cores::divide(arguments.setup.threads)).transpose()?;
    let mut highest = None;
    if wants(PartName::Closed) {
        let comparison = Comparison {
            setup: &setup,
            peers: &peers,
            connections: &arguments.connections,
            slices: arguments.slices,
            account_count: arguments.accounts,
            python: arguments.python.as_deref(),
        };
        let figures = comparison.run()?;
        report.parts.push(figures.part(&arguments.connections));
    }
    if let Some(cores) = cores.as_ref().filter(|_| wants(PartName::Open)) {
        let found = Highest::find(&setup, cores, arguments.accounts)?;
        highest = Some(found);
        let figures = open::run(&setup, cores, found, arguments.accounts)?;
        if let Some(path) = &arguments.plot {
            std::fs::write(path, figures.plot())
                .with_context(|| format!("failed to write {}", path.display()))?;
        }
        report.parts.push(figures.part(arguments.plot.as_deref()));
    }
    if let Some(cores) = cores.as_ref().filter(|_| wants(PartName::Snapshots)) {
        let figures = snapshots::run(&setup, cores, &arguments.snapshots, highest, false)?;
        report.parts.push(figures.part());
    }
    if wants(PartName::Engine) {
        let folder = arguments.criterion.clone().or_else(engine::Figures::default_folder);
        report.parts.push(engine::Figures::read(&folder.unwrap_or_default()).part());
    }
    if wants(PartName::Growth) {
        report.parts.push(growth::run(&setup, &arguments.growth)?.part());
    }
    if let Some(cores) = cores.as_ref().filter(|_| wants(PartName::Subscribers)) {
        let (own, account_count) = (&arguments.subscribers, arguments.accounts);
        let figures = subscribers::run(&setup, cores, highest, own, account_count)?;
        report.parts.push(figures.part());
    }
    report.publish(arguments.setup.json.as_deref())
}

/// Creates a report without sections: the machine, the build and the shape of the load.
pub(crate) fn report(setup: &Setup) -> Report {
    let SetupArgs { rounds, seconds, warm_up_seconds, threads, workers, .. } = &setup.arguments;
    let mut description = machine::description(setup.filesystem.clone());
    description.push((
        "load",
        format!(
            "{rounds} interleaved rounds; {warm_up_seconds} s of warm-up and {seconds} s measured \
             each; {threads} generator threads on the same machine, {workers} server workers; \
             BUY 1 and SELL 1 in turn, an idempotency key of its own on every request"
        ),
    ));
    Report { description, ..Report::default() }
}

/// Returns the peers whose programs are all installed. The others are listed in `skipped` and on
/// stderr.
fn available(peers: &[Peer], skipped: &mut Vec<String>) -> Vec<Peer> {
    let mut available = Vec::new();
    for &peer in peers {
        let missing = peer.missing_programs();
        if missing.is_empty() {
            available.push(peer);
        } else {
            let reason = format!("{}: there is no {}", peer.name(), missing.join(", no "));
            eprintln!("LEFT OUT: {reason}");
            skipped.push(reason);
        }
    }
    available
}
