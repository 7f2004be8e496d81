//! A node of a cluster, from its start to the moment at which it owns the log.
//!
//! The node copies the log into its data folder, as a journal like any other, until no other node
//! owns the log. Then it takes the log, and starts on the folder like a single server. From then on
//! each block is in the log before it is on this disk, so a folder never holds what the log does
//! not.

use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::runtime::{self, Handle};
use tokio::time::timeout;

use super::start;
use super::supervisor::{Supervisor, watchdog_interval};
use crate::cluster::folder::Membership;
use crate::cluster::seat::{Seat, end_process};
use crate::cluster::standby::{Taken, stand_by};
use crate::cluster::{Cluster, ClusterFile, JetStreamLog};
use crate::config::{DataPlace, ServeArgs};
use crate::disk::Disk;
use crate::http::exchange::Server;
use crate::journal::replicated::{NodeName, Reader};
use crate::journal::{Journal, JournalConfig, Refused};
use crate::server::ending_signal;
use crate::snapshot::{self, Opened, SnapshotConfig, SnapshotKeeper};

/// How long a node that ends tries to give the log up. Other nodes find out without it.
const RELEASE_TIME_MAX: Duration = Duration::from_secs(2);

/// How long a standby waits for room on its disk before it tries again.
const ROOM_PAUSE: Duration = Duration::from_secs(1);

/// What a server is in a cluster: the owner of its log, or nothing at all.
pub(super) struct Member(Option<Ownership>);

struct Ownership {
    seat: Arc<Seat<JetStreamLog>>,
    /// The position of the newest record below the fence.
    position: u64,
}

impl Member {
    /// Joins the cluster, if the server belongs to one, and returns once this node owns its log.
    /// From then on the server answers only while no other node can have taken it. `None` if a
    /// signal ended that.
    pub(super) async fn join(
        arguments: &ServeArgs,
        supervisor: &Arc<Supervisor>,
        server: &Server,
    ) -> anyhow::Result<Option<Self>> {
        let (Some(file), Some(name), DataPlace::Folder(data)) =
            (&arguments.cluster.cluster, &arguments.cluster.node, &arguments.data)
        else {
            return Ok(Some(Self(None)));
        };
        let standby = Standby {
            node: NodeName::new(name).context("--node")?,
            folder: data.clone(),
            config: start::journal_config(arguments),
            snapshots: arguments.snapshot_config(),
        };
        let ending = ending_signal()?;
        let file = ClusterFile::read(file).context("--cluster")?;
        let brokers = start_thread()?;
        supervisor.ready("standing by");
        let watched = tokio::spawn(keep_alive(supervisor.clone()));
        // On the thread of the brokers' connection, where the copy may wait for the disk.
        let owning = brokers.spawn(standby.own(file, brokers.clone()));
        let ownership = tokio::select! {
            owned = owning => owned.context("the standby panicked")??,
            signal = ending => {
                tracing::info!(signal, "stopped standing by");
                return Ok(None);
            }
        };
        watched.abort();
        let before = server.lease.set(ownership.seat.lease().clone());
        assert!(before.is_ok(), "a process owns the log once");
        Ok(Some(Self(Some(ownership))))
    }

    /// The journal of an owner: each block is in the log first.
    pub(super) fn config(&self, config: JournalConfig) -> JournalConfig {
        match &self.0 {
            Some(ownership) => config.behind(ownership.seat.clone()),
            None => config,
        }
    }

    /// Checks that the server starts with all that is in the log, and with nothing else.
    pub(super) fn require_whole(&self, journal: &Journal) -> anyhow::Result<()> {
        let Some(Ownership { position, .. }) = self.0 else { return Ok(()) };
        let found = journal.newest_place().position;
        ensure!(
            found == position,
            "the data folder ends at record {found}, and the log of the cluster at {position}: \
             start this node on an empty folder"
        );
        Ok(())
    }

    /// Gives the log up, so that another node takes it at once, and ends the process: nothing can
    /// be written any more.
    pub(super) async fn end(self) {
        let Some(Ownership { seat, .. }) = self.0 else { return };
        match timeout(RELEASE_TIME_MAX, seat.release()).await {
            Ok(Ok(())) => tracing::info!("released the log of the cluster"),
            Ok(Err(error)) => tracing::warn!(%error, "the log was lost before it was released"),
            Err(_) => tracing::warn!(
                "the brokers do not answer: other nodes wait until they notice that this one is \
                 gone"
            ),
        }
        process::exit(0);
    }
}

/// The thread of everything that has to do with brokers. It lives as long as the process.
fn start_thread() -> anyhow::Result<Handle> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name("brokers".to_owned())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))
        .context("failed to start the thread of the brokers")?;
    Ok(handle)
}

/// Tells the supervisor's watchdog that a standby is alive.
async fn keep_alive(supervisor: Arc<Supervisor>) {
    let Some(interval) = watchdog_interval() else { return };
    loop {
        supervisor.alive();
        tokio::time::sleep(interval / 4).await;
    }
}

/// A node that does not own the log yet.
struct Standby {
    node: NodeName,
    folder: PathBuf,
    config: JournalConfig,
    snapshots: SnapshotConfig,
}

impl Standby {
    /// Copies the log until it can be owned, and owns it.
    async fn own(self, file: ClusterFile, runtime: Handle) -> anyhow::Result<Ownership> {
        let cluster = Cluster::connect(file).await?;
        let mut logs = cluster.open().await?;
        ensure!(
            logs.len() == 1,
            "nodes serve clusters of one log, and this one has {}: choose another name in the \
             file, and logs = 1",
            logs.len()
        );
        let (log, id) = logs.remove(0);
        let opened =
            snapshot::open(Disk::System, &self.folder, &self.config, start::thread_count())
                .with_context(|| format!("failed to open --data {}", self.folder.display()))?;
        // A standby answers nothing.
        let Opened { journal, recovered, folder, .. } = opened;
        drop(recovered);
        let journal = Arc::new(journal);
        let position = journal.newest_place().position;
        let membership = Membership::require(&Disk::System, &self.folder, id, position)?;
        let reader = Reader::seek(log, id, position).await?;
        let last = reader.end_position().await?;
        ensure!(
            last >= position,
            "{} has records up to {position}, and the log of the cluster ends at {last}: the \
             brokers have lost blocks. Keep their files and this folder",
            self.folder.display()
        );
        tracing::info!(node = %self.node, position, "standing by");
        let keeper = SnapshotKeeper::start(folder, journal.clone(), self.snapshots);
        let mut copied = position;
        let copy = {
            let journal = journal.clone();
            move |position: u64, record: &[u8]| {
                if position > copied {
                    append(&journal, record);
                    copied = position;
                }
            }
        };
        let owned_epoch = Some(membership.owned_epoch).filter(|&epoch| epoch > 0);
        let Taken { owner, was_free } = stand_by(reader, &self.node, owned_epoch, copy).await?;
        drop(keeper);
        // Everything below the fence is on this disk from here on.
        drop(Arc::into_inner(journal).context("the journal of the standby is still in use")?);
        let (epoch, position) = (owner.epoch(), owner.position());
        Membership { owned_epoch: epoch, ..membership }.write(&Disk::System, &self.folder)?;
        tracing::info!(node = %self.node, epoch, position, "owning the log");
        let seat = Seat::new(Taken { owner, was_free }, runtime, end_process);
        Ok(Ownership { seat: Arc::new(seat), position })
    }
}

/// Copies the record into the journal, however long that takes.
fn append(journal: &Journal, record: &[u8]) {
    let mut is_told = false;
    loop {
        match journal.reserve(record.len()) {
            Ok(reservation) => {
                reservation.fill_from(record);
                return;
            }
            Err(Refused::Busy) => journal.flush_blocking(),
            Err(error @ Refused::Full) => {
                if !is_told {
                    tracing::error!(%error, "the standby waits for room on its disk");
                    is_told = true;
                }
                thread::sleep(ROOM_PAUSE);
            }
        }
        // The next segment may not be ready yet.
        thread::yield_now();
    }
}
