//! The comparison: every server, every number of connections, several rounds.

use std::path::{Path, PathBuf};
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
pub(crate) const MARKET_ID: &str = paperbourse::venue::simulated::DEEP_MARKET_CONDITION_ID;

/// A folder that is removed with this value, on every path.
pub(crate) struct ScratchFolder(pub(crate) PathBuf);

/// A server that is up, and the keys of its accounts.
struct Peer {
    kind: Kind,
    server: Server,
    keys: Arc<[String]>,
}

/// Measures and prints.
pub(crate) fn run(arguments: &RunArgs) -> anyhow::Result<()> {
    let binaries = Binaries {
        server: beside(arguments.server.as_ref(), "paperbourse")?,
        bare: beside(arguments.bare.as_ref(), "paperbourse-bare")?,
    };
    let name = format!("paperbourse-perf-{}", std::process::id());
    let scratch = ScratchFolder::make(arguments.scratch.join(name))?;
    let filesystem = machine::disk_filesystem(&scratch.0)?;
    let mut report = Report::new(arguments, machine::description(filesystem));
    let mut run_number = 0;
    for round in 0..arguments.rounds {
        report.sync_us.push(machine::sync_us(&scratch.0)?);
        let mut peers = Vec::new();
        for kind in Kind::ALL {
            let folder = scratch.0.join(format!("{round}-{kind:?}"));
            peers.push(Peer::start(kind, &binaries, &folder, arguments)?);
        }
        // Each comes first, in the middle and last in turn.
        peers.rotate_left(round as usize % Kind::ALL.len());
        for &connection_count in &arguments.connections {
            for peer in &peers {
                run_number += 1;
                let outcome = measure(arguments, peer, connection_count, run_number)?;
                ensure!(
                    outcome.failure_count() == 0,
                    "{} at {connection_count} connections: not every answer was a success: {:?}",
                    peer.kind.name(),
                    outcome.statuses
                );
                let sample = Sample::of(peer.kind, connection_count, &outcome);
                eprintln!("round {}: {}", round + 1, sample.line());
                report.samples.push(sample);
            }
        }
    }
    print!("{}", report.markdown());
    if let Some(path) = &arguments.json {
        std::fs::write(path, report.json())
            .with_context(|| format!("failed to write {}", path.display()))?;
    }
    Ok(())
}

fn measure(
    arguments: &RunArgs,
    peer: &Peer,
    connection_count: usize,
    run_number: u32,
) -> anyhow::Result<Outcome> {
    let instrument = Instrument { market_id: MARKET_ID.to_owned(), outcome: "Yes".to_owned() };
    Load {
        address: peer.server.address,
        template: Arc::new(TradeTemplate::new(peer.server.address, &instrument)),
        keys: peer.keys.clone(),
        rate: None,
        connection_count,
        thread_count: arguments.threads as usize,
        warm_up: Duration::from_secs(arguments.warm_up_seconds),
        measured: Duration::from_secs(arguments.seconds),
        server_pid: peer.server.pid(),
        run_number,
    }
    .run()
}

impl Peer {
    fn start(
        kind: Kind,
        binaries: &Binaries,
        folder: &Path,
        arguments: &RunArgs,
    ) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("failed to make {}", folder.display()))?;
        let server = Server::start(kind, binaries, folder, arguments.workers, &[])?;
        let keys = match kind {
            Kind::Bare => vec!["ps_live_".to_owned() + &"0".repeat(64)],
            Kind::Durable | Kind::Memory => server.make_keys(arguments.accounts)?,
        };
        Ok(Self { kind, server, keys: keys.into() })
    }
}

impl ScratchFolder {
    pub(crate) fn make(path: PathBuf) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&path)
            .with_context(|| format!("failed to make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // What cannot be removed now is left where temporary files are.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The binary that was named, or the one beside this program.
pub(crate) fn beside(named: Option<&PathBuf>, name: &str) -> anyhow::Result<PathBuf> {
    if let Some(path) = named {
        return Ok(path.clone());
    }
    let own = std::env::current_exe().context("failed to find this program's own path")?;
    let path = own.with_file_name(name);
    ensure!(path.is_file(), "no {name} beside {}: build it or name it", own.display());
    Ok(path)
}
