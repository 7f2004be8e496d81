//! The comparison: every server, every number of connections, several rounds.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::RunArgs;
use crate::load::{Load, Outcome};
use crate::machine;
use crate::report::{Report, Sample};
use crate::server::{Binaries, Kind, Server};
use crate::trade::{Instrument, TradeTemplate};

/// A market of the simulated venue that can always be traded.
const MARKET_ID: &str = paperbourse::venue::simulated::DEEP_MARKET_CONDITION_ID;

/// Measures and prints.
pub(crate) fn run(arguments: &RunArgs) -> anyhow::Result<()> {
    let binaries = Binaries {
        server: beside(arguments.server.as_ref(), "paperbourse")?,
        bare: beside(arguments.bare.as_ref(), "paperbourse-bare")?,
    };
    let scratch = arguments.scratch.join(format!("paperbourse-perf-{}", std::process::id()));
    std::fs::create_dir_all(&scratch)
        .with_context(|| format!("failed to make {}", scratch.display()))?;
    let mut report = Report::new(arguments, machine::description());
    let mut run_number = 0;
    for round in 0..arguments.rounds {
        report.sync_us.push(machine::sync_us(&scratch)?);
        for kind in Kind::ALL {
            let folder = scratch.join(format!("{round}-{}", kind.name().replace([' ', ','], "-")));
            std::fs::create_dir_all(&folder)?;
            let server = Server::start(kind, &binaries, &folder, arguments.workers)?;
            let keys: Arc<[String]> = match kind {
                Kind::Bare => Arc::new(["ps_live_bare".to_owned()]),
                _ => server.make_keys(arguments.accounts)?.into(),
            };
            for &connection_count in &arguments.connections {
                run_number += 1;
                let outcome =
                    measure(arguments, &server, keys.clone(), connection_count, run_number)?;
                ensure!(
                    outcome.failure_count() == 0,
                    "{} at {connection_count} connections: not every answer was a success: {:?}",
                    kind.name(),
                    outcome.statuses
                );
                let sample = Sample::of(kind, connection_count, &outcome);
                eprintln!("round {}: {}", round + 1, sample.line());
                report.samples.push(sample);
            }
            drop(server);
            std::fs::remove_dir_all(&folder)?;
        }
    }
    std::fs::remove_dir_all(&scratch)?;
    print!("{}", report.markdown());
    if let Some(path) = &arguments.json {
        std::fs::write(path, report.json())
            .with_context(|| format!("failed to write {}", path.display()))?;
    }
    Ok(())
}

fn measure(
    arguments: &RunArgs,
    server: &Server,
    keys: Arc<[String]>,
    connection_count: usize,
    run_number: u32,
) -> anyhow::Result<Outcome> {
    let instrument = Instrument { market_id: MARKET_ID.to_owned(), outcome: "Yes".to_owned() };
    Load {
        address: server.address,
        template: Arc::new(TradeTemplate::new(server.address, &instrument)),
        keys,
        connection_count,
        thread_count: arguments.threads as usize,
        warm_up: Duration::from_secs(arguments.warm_up_seconds),
        measured: Duration::from_secs(arguments.seconds),
        server_pid: server.pid(),
        run_number,
    }
    .run()
}

/// The binary that was named, or the one beside this program.
fn beside(named: Option<&PathBuf>, name: &str) -> anyhow::Result<PathBuf> {
    if let Some(path) = named {
        return Ok(path.clone());
    }
    let own = std::env::current_exe().context("failed to find this program's own path")?;
    let path = own.with_file_name(name);
    ensure!(path.is_file(), "no {name} beside {}: build it or name it", own.display());
    Ok(path)
}
