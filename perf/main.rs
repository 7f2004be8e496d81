//! Measures the server's speed against the best possible and against well-known software, and
//! prints tables.
//!
//! `paperbourse-perf run` measures everything; each of the other commands measures one thing, some
//! in more detail. `perf/README.md` explains the columns and why the comparison is fair.

mod attack;
#[path = "bare/plan.rs"]
mod bare_plan;
#[cfg_attr(not(test), expect(dead_code, reason = "tests start its server"))]
mod canned;
mod client;
mod closed;
mod cores;
mod engine;
mod event_stream;
mod executions;
mod growth;
mod load;
mod machine;
mod open;
mod peers;
mod plot;
mod prepared;
mod price_readers;
mod process;
mod report;
mod run;
mod schedule;
mod server;
mod setup;
mod snapshots;
mod socket;
mod spread;
mod streams;
mod subscribers;
mod trade;
mod venue;

/// The venue stand-in, shared with the tests of the connector.
#[path = "../tests/polymarket"]
mod venue_side {
    #[expect(dead_code, unused_imports, reason = "the tests of the connector use the rest")]
    #[expect(clippy::unwrap_used, reason = "made for tests")]
    pub(crate) mod standin;
}

use clap::{Args, Parser, Subcommand};

use cores::Cores;
use report::Part;
use setup::{Setup, SetupArgs};

/// Number of trading accounts for commands without an option for it.
const ACCOUNTS: u32 = 64;

/// The load generator of paperbourse.
#[derive(Parser, Debug)]
#[command(name = "paperbourse-perf", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Measure everything, next to all peers, and print the tables
    Run(Box<run::RunArgs>),
    /// Measure the cost of snapshots to concurrent trades: with snapshots all the time, and with
    /// none
    Snapshots(One<snapshots::SnapshotArgs>),
    /// Measure with many accounts, keys and orders
    Growth(One<growth::GrowthArgs>),
    /// Measure what a bot notices of an attack, compared with as many readers
    Attack(One<attack::AttackArgs>),
    /// Measure subscribers of the price socket and their cost to concurrent trades
    Subscribers(One<subscribers::SubscriberArgs>),
    /// Measure price sockets and price streams, alone and together, and their memory
    Streams(One<streams::StreamArgs>),
    /// Measure the live venue under load: many tokens, many messages a second
    Venue(One<venue::VenueArgs>),
    /// Measure the delay from a change of the venue's book to the frame of the fill that it causes
    Executions(One<executions::ExecutionArgs>),
    /// Play the venue; others start this in a separate process
    #[command(hide = true)]
    StandIn(venue::stand_in::StandInArgs),
}

/// The options of a command that measures one thing.
#[derive(Args, Debug)]
struct One<A: Args> {
    #[command(flatten)]
    setup: SetupArgs,
    #[command(flatten)]
    own: A,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    process::end_children_on_signals()?;
    match cli.command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Snapshots(One { setup, own }) => measure(&setup, |setup| {
            let cores = Cores::divide(setup.arguments.threads)?;
            Ok(snapshots::run(setup, &cores, &own, None, true)?.part())
        }),
        Command::Growth(One { setup, own }) => {
            measure(&setup, |setup| Ok(growth::run(setup, &own)?.part()))
        }
        Command::Attack(One { setup, own }) => {
            measure(&setup, |setup| Ok(attack::run(setup, &own)?.part()))
        }
        Command::Subscribers(One { setup, own }) => measure(&setup, |setup| {
            let cores = Cores::divide(setup.arguments.threads)?;
            Ok(subscribers::run(setup, &cores, None, &own, ACCOUNTS)?.part())
        }),
        Command::Streams(One { setup, own }) => {
            measure(&setup, |setup| Ok(streams::run(setup, &own)?.part()))
        }
        Command::Venue(One { setup, own }) => {
            measure(&setup, |setup| Ok(venue::run(setup, &own)?.part()))
        }
        Command::Executions(One { setup, own }) => {
            measure(&setup, |setup| Ok(executions::run(setup, &own)?.part()))
        }
        Command::StandIn(arguments) => venue::stand_in::run(&arguments),
    }
}

fn measure(
    arguments: &SetupArgs,
    work: impl FnOnce(&Setup) -> anyhow::Result<Part>,
) -> anyhow::Result<()> {
    let setup = Setup::prepare(arguments)?;
    let mut report = run::report(&setup);
    report.parts.push(work(&setup)?);
    report.publish(arguments.json.as_deref())
}
