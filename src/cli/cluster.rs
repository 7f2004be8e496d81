//! `paperbourse cluster`: the brokers that carry replicated logs.

use std::io::{self, Write as _};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};

use super::{WRONG_CONFIGURATION, print_report};
use crate::cluster::folder::Membership;
use crate::cluster::origin::Origin;
use crate::cluster::{Cluster, ClusterError, ClusterFile};
use crate::disk::Disk;
use crate::inspect;
use crate::journal::{CLUSTER_NAME, DataDirectory};
use crate::snapshot::{self, Folder};
use crate::telemetry::OneLine;

pub(super) const EXIT_CODES: &str =
    "Exit codes: 0 the brokers are safe; 1 they are not, or do not answer; 2 wrong file";

#[derive(Args, Debug)]
pub(super) struct ClusterArgs {
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Subcommand, Debug)]
enum ClusterCommand {
    /// Create the streams that carry the logs of a cluster, except those that exist already
    ///
    /// Creates nothing unless every broker is safe: NATS 2.15.1 or newer with `sync_interval:
    /// always`. Run it again after a failure.
    Init(InitArgs),
    /// Recreate a log that the brokers have lost, from a node's data folder
    ///
    /// Stop all nodes first. Use the folder whose records reach the highest position, as shown by
    /// `paperbourse journal verify`; any other may lack the newest answers. Then start that node on
    /// it, and the others on empty folders. If the brokers still have part of the log, first give
    /// the cluster a new name in every node's file.
    Repair(RepairArgs),
    /// Show each broker and each log: its leader, its replicas, its newest block
    ///
    /// Problems are listed last, each with what to change.
    Status(StatusArgs),
}

#[derive(Args, Debug)]
struct InitArgs {
    /// The cluster file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Import the data folder of a single server, API keys included. Stop the server first; then
    /// start one node on that folder and the others on empty ones
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct RepairArgs {
    /// The cluster file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The data folder of a stopped node
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
}

#[derive(Args, Debug)]
struct StatusArgs {
    /// The cluster file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: ClusterArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    let done = runtime.block_on(async {
        match arguments.command {
            ClusterCommand::Init(arguments) => init(arguments).await,
            ClusterCommand::Repair(arguments) => repair(arguments).await,
            ClusterCommand::Status(arguments) => status(arguments).await,
        }
    });
    match done.as_ref().map_err(anyhow::Error::downcast_ref) {
        Err(Some(ClusterError::File(error))) => {
            eprintln!("paperbourse: {}", OneLine(error));
            Ok(ExitCode::from(WRONG_CONFIGURATION))
        }
        _ => done,
    }
}

async fn connect(file: PathBuf) -> Result<Cluster, ClusterError> {
    Cluster::connect(ClusterFile::read(&file)?).await
}

async fn init(InitArgs { file, from }: InitArgs) -> anyhow::Result<ExitCode> {
    let origin = from.as_deref().map(single_server_origin).transpose()?;
    let cluster = connect(file).await?;
    let created = cluster.init(origin).await?;
    let logs = if created == 1 { "log" } else { "logs" };
    let existing = match usize::from(cluster.logs()) - created {
        0 => String::new(),
        1 => ", 1 exists already".to_owned(),
        existing => format!(", {existing} exist already"),
    };
    writeln!(io::stdout(), "created {created} {logs}{existing}")
        .context("failed to print the result")?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the origin of a log that continues a standalone server's folder. Fails if a server is
/// running on the folder, or if the folder belongs to a cluster node.
fn single_server_origin(data: &Path) -> anyhow::Result<Origin> {
    ensure!(
        !data.join(CLUSTER_NAME).exists(),
        "{} already belongs to a node of a cluster. If the brokers have lost its log, run \
         `paperbourse cluster repair`",
        data.display()
    );
    DataDirectory::require_free(&Disk::System, data)?;
    origin(data)
}

/// Returns the origin of a log that continues this folder. Fails if the folder is damaged or empty.
fn origin(data: &Path) -> anyhow::Result<Origin> {
    let failed = || format!("cannot import {}", data.display());
    let report = inspect::verify(data).with_context(failed)?;
    if let Some(damage) = report.damage {
        bail!("{}: {}", failed(), damage.message);
    }
    let begun = Folder::new(Disk::System, data).begun_segments().with_context(failed)?;
    // No server is writing to the folder, so this reads all of it.
    let threads = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let ahead = snapshot::read_ahead(Disk::System, data, threads).with_context(failed)?;
    let origin = Origin::of(&Disk::System, &begun, ahead.newest_epoch()).with_context(failed)?;
    let origin = origin.filter(|origin| origin.end.position > 0);
    origin.with_context(|| format!("{} holds no records", data.display()))
}

async fn repair(RepairArgs { file, from }: RepairArgs) -> anyhow::Result<ExitCode> {
    let disk = Disk::System;
    let former = Membership::read(&disk, &from)?;
    let former = former.with_context(|| {
        format!(
            "{} does not belong to a node of a cluster: `paperbourse cluster init --from` begins a \
             cluster with it",
            from.display()
        )
    })?;
    // Held until the end, so that no node starts on the folder meanwhile.
    let _held = DataDirectory::open(disk.clone(), &from)?;
    let origin = origin(&from)?;
    let cluster = connect(file).await?;
    cluster.init(Some(origin)).await?;
    let logs = cluster.open().await?;
    let log = logs.first().context("the cluster has no log")?;
    let membership = Membership { log: log.id, owned_epoch: 0, ..former };
    membership.write(&disk, &from)?;
    writeln!(
        io::stdout(),
        "the log continues after record {}. Start {} on {}, and every other node on an empty \
         folder",
        origin.end.position,
        membership.node,
        from.display()
    )
    .context("failed to print the result")?;
    Ok(ExitCode::SUCCESS)
}

async fn status(StatusArgs { file, json }: StatusArgs) -> anyhow::Result<ExitCode> {
    let status = connect(file).await?.status().await;
    print_report(&status, json)?;
    Ok(if status.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
