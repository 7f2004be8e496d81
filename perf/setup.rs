//! The common setup of all measurements: the binaries, a folder on the disk under test, durations
//! and rounds.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;

use crate::client::{Connection, encode_request};
use crate::cores::Cores;
use crate::load::{Load, Outcome, Threads};
use crate::machine;
use crate::process::ScratchFolder;
use crate::server::{Binaries, Kind, Server};
use crate::trade::{Instrument, TradeTemplate};

/// A market of the simulated venue that always accepts trades.
pub(crate) const MARKET_ID: &str = paperbourse::venue::simulated::DEEP_MARKET_CONDITION_ID;

/// Flags that set snapshot thresholds higher than any run reaches, so that no snapshot is due.
pub(crate) const NO_SNAPSHOTS: [&str; 4] =
    ["--snapshot-bytes", "1000000000000", "--snapshot-interval", "1000000"];

/// Number of shares of every account before wrk trades, since its sales may overtake its purchases.
const STOCK_SHARES: u32 = 100;

/// The options that all measurements share.
#[derive(Args, Clone, Debug)]
pub(crate) struct SetupArgs {
    /// The server's binary [default: `paperbourse` beside this program]
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,

    /// The bare server's binary [default: `paperbourse-bare` beside this program]
    #[arg(long, value_name = "FILE")]
    bare: Option<PathBuf>,

    /// Where the servers keep their data; must be on the disk under test
    #[arg(long, default_value_os_t = std::env::temp_dir(), value_name = "DIR")]
    scratch: PathBuf,

    /// Number of rounds
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..100))]
    pub(crate) rounds: u32,

    /// Seconds per measurement
    #[arg(long, default_value = "3", value_parser = seconds)]
    pub(crate) seconds: f64,

    /// Seconds of load before each measurement
    #[arg(long, default_value = "0.5", value_parser = seconds)]
    pub(crate) warm_up_seconds: f64,

    /// Threads of the load generator
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..64))]
    pub(crate) threads: u32,

    /// Worker threads of each server
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..64))]
    pub(crate) workers: u32,

    /// Where to write the figures as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// The prepared setup.
pub(crate) struct Setup {
    pub(crate) arguments: SetupArgs,
    pub(crate) binaries: Binaries,
    pub(crate) scratch: ScratchFolder,
    /// The filesystem type of the scratch folder.
    pub(crate) filesystem: String,
    run_number: Cell<u32>,
}

/// The target of a load.
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// The server's processes; the CPU time of their descendants counts too.
    pub(crate) pids: Vec<u32>,
    /// The keys of the accounts.
    pub(crate) keys: Arc<[String]>,
    /// The division of the cores, if they are divided.
    pub(crate) cores: Option<Cores>,
}

/// The shape of a load.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) connection_count: usize,
    /// Requests per second in an open loop; `None` for a closed loop.
    pub(crate) rate: Option<f64>,
    pub(crate) seconds: f64,
    /// Whether the generator's threads run at a lower priority than others on their cores.
    pub(crate) gives_way: bool,
}

impl Setup {
    /// Finds the binaries and creates the scratch folder.
    pub(crate) fn prepare(arguments: &SetupArgs) -> anyhow::Result<Self> {
        let binaries = Binaries {
            server: beside(arguments.server.as_ref(), "paperbourse")?,
            bare: beside(arguments.bare.as_ref(), "paperbourse-bare")?,
        };
        let name = format!("paperbourse-perf-{}", std::process::id());
        let parent = arguments.scratch.canonicalize().with_context(|| {
            format!("there is no scratch folder {}", arguments.scratch.display())
        })?;
        let scratch = ScratchFolder::make(parent.join(name))?;
        let filesystem = machine::disk_filesystem(&scratch.0)?;
        let arguments = arguments.clone();
        Ok(Self { arguments, binaries, scratch, filesystem, run_number: Cell::new(0) })
    }

    /// Returns a number that no other load of this run has.
    pub(crate) fn next_run_number(&self) -> u32 {
        self.run_number.update(|number| number + 1);
        self.run_number.get()
    }

    /// Starts a server of this package with its data in `folder`.
    pub(crate) fn start(
        &self,
        kind: Kind,
        folder: &Path,
        flags: &[&str],
    ) -> anyhow::Result<Server> {
        self.start_with(kind, folder, flags, &[])
    }

    /// Like [`Self::start`], with these variables in the server's environment.
    pub(crate) fn start_with(
        &self,
        kind: Kind,
        folder: &Path,
        flags: &[&str],
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Server> {
        self.start_workers(self.arguments.workers, kind, folder, flags, environment)
    }

    /// Like [`Self::start_with`], with another number of workers.
    pub(crate) fn start_workers(
        &self,
        worker_count: u32,
        kind: Kind,
        folder: &Path,
        flags: &[&str],
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Server> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("failed to make {}", folder.display()))?;
        Server::start(kind, &self.binaries, folder, worker_count, flags, environment)
    }

    /// Starts a server on its own cores, with at most one worker for each.
    pub(crate) fn start_apart(
        &self,
        cores: &Cores,
        kind: Kind,
        folder: &Path,
        flags: &[&str],
    ) -> anyhow::Result<Server> {
        let core_count = u32::try_from(cores.server_count()).unwrap_or(u32::MAX);
        let worker_count = self.arguments.workers.min(core_count);
        cores.for_server(|| self.start_workers(worker_count, kind, folder, flags, &[]))
    }

    /// Returns the usual shape: a closed loop of the usual duration.
    pub(crate) fn closed_loop(&self, connection_count: usize) -> Shape {
        Shape { connection_count, rate: None, seconds: self.arguments.seconds, gives_way: false }
    }

    /// Sends trades. Fails unless all of them succeed.
    pub(crate) fn load(&self, target: &Target, shape: Shape) -> anyhow::Result<Outcome> {
        let outcome = Load {
            address: target.address,
            template: Arc::new(TradeTemplate::new(target.address, &instrument())),
            keys: target.keys.clone(),
            rate: shape.rate,
            connection_count: shape.connection_count,
            threads: self.threads(target),
            gives_way: shape.gives_way,
            warm_up: Duration::from_secs_f64(self.arguments.warm_up_seconds),
            measured: Duration::from_secs_f64(shape.seconds),
            server_pids: target.pids.clone(),
            run_number: self.next_run_number(),
        }
        .run()?;
        let failed = outcome.failure_count();
        ensure!(failed == 0, "some answers were errors: {:?}", outcome.statuses);
        Ok(outcome)
    }

    fn threads(&self, target: &Target) -> Threads {
        match &target.cores {
            Some(cores) => Threads::OnCores(cores.generator().to_vec()),
            None => Threads::Anywhere(self.arguments.threads as usize),
        }
    }
}

impl Target {
    /// Creates the target for a server of this package.
    pub(crate) fn of(server: &Server, keys: Vec<String>) -> Self {
        Self { address: server.address, pids: vec![server.pid()], keys: keys.into(), cores: None }
    }

    /// Creates the target for a server that was started on its own cores.
    pub(crate) fn apart(server: &Server, keys: Vec<String>, cores: &Cores) -> Self {
        Self { cores: Some(cores.clone()), ..Self::of(server, keys) }
    }

    /// Buys some shares for each account, since sales may overtake purchases.
    pub(crate) fn stock(&self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let Instrument { market_id, outcome } = instrument();
        let body = serde_json::json!({
            "market_id": market_id, "outcome": outcome, "side": "BUY", "quantity": STOCK_SHARES,
        });
        runtime.block_on(async {
            let mut connection = Connection::open(self.address).await?;
            for key in &*self.keys {
                let headers = [("X-API-Key", key.as_str())];
                let body = body.to_string();
                let request = encode_request("POST", "/trade", self.address, &headers, &body);
                let answer = connection.exchange(request.as_bytes()).await?;
                let text = String::from_utf8_lossy(answer.body);
                ensure!(answer.status == 200, "a purchase failed with {}: {text}", answer.status);
            }
            Ok(())
        })
    }
}

/// Returns the traded outcome.
pub(crate) fn instrument() -> Instrument {
    Instrument { market_id: MARKET_ID.to_owned(), outcome: "Yes".to_owned() }
}

fn seconds(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if (0.0..=3600.0).contains(&value) { Ok(value) } else { Err("0 to 3600 seconds".to_owned()) }
}

/// Returns the path from the option, or else the one beside this program.
fn beside(named: Option<&PathBuf>, name: &str) -> anyhow::Result<PathBuf> {
    if let Some(path) = named {
        return Ok(path.clone());
    }
    let own = std::env::current_exe().context("failed to find the path of this program")?;
    let path = own.with_file_name(name);
    ensure!(path.is_file(), "no {name} beside {}: build it or name it", own.display());
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_a_number_up_to_an_hour() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        for text in ["", "-1", "nan", "inf", "3601", "1s"] {
            assert!(seconds(text).is_err(), "{text:?}");
        }
    }
}
