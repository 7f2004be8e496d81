//! How fast the server is, beside what it could be at best: one command, one table.
//!
//! `paperbourse-perf run` starts the bare server, the server with its journal on disk and the
//! server with its journal in memory, sends them the same closed-loop load in turn, at several
//! numbers of connections and in several rounds, and prints medians with their spread.
//! `paperbourse-perf snapshots` measures what snapshots cost in an open loop. What the columns mean
//! and what is fair about them stands in `perf/README.md`.

#[cfg(test)]
mod canned;
mod client;
mod load;
mod machine;
mod prepared;
mod report;
mod run;
mod schedule;
mod server;
mod snapshots;
mod trade;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// The load generator of paperbourse.
#[derive(Parser, Debug)]
#[command(name = "paperbourse-perf", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Measure all servers side by side and print the table
    Run(RunArgs),
    /// Measure what snapshots cost those who trade meanwhile, in an open loop on much state
    Snapshots(snapshots::SnapshotArgs),
}

/// The choices of `paperbourse-perf run`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RunArgs {
    /// The server's binary [default: `paperbourse` beside this program]
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,

    /// The bare server's binary [default: `paperbourse-bare` beside this program]
    #[arg(long, value_name = "FILE")]
    bare: Option<PathBuf>,

    /// Where the servers keep their data; must be on the disk that is to be measured
    #[arg(long, default_value_os_t = std::env::temp_dir(), value_name = "DIR")]
    scratch: PathBuf,

    /// Numbers of connections
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64, 256], value_name = "N")]
    connections: Vec<usize>,

    /// How often each server is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..100))]
    rounds: u32,

    /// Seconds of each measurement
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..3600))]
    seconds: u64,

    /// Seconds of load before each measurement
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(0..3600))]
    warm_up_seconds: u64,

    /// Threads that send the load
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..64))]
    threads: u32,

    /// Accounts that trade, each with one key
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..10_000))]
    accounts: u32,

    /// Threads that serve requests
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..64))]
    workers: u32,

    /// Where to write the figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Snapshots(arguments) => snapshots::run(&arguments),
    }
}
