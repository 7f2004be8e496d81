//! A cluster node, from its start until it owns the log.
//!
//! As long as another node owns the log, this node copies it into its data folder, as an ordinary
//! journal, and applies each record. When the log is free, the node takes it and starts serving
//! from its copy. From then on, each block is in the log before it is on this disk, so a folder
//! never holds a record that the log does not.

mod copy;
mod entry;
mod leaving;

use std::ops::ControlFlow;
use std::process;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tokio::runtime::{self, Handle};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use super::ending::Ending;
use super::listener::AdminListener;
use super::prepared::{self, Beforehand, Followed, KeysAndTiers, Prepared};
use super::ready;
use super::start::{self, OpenedData};
use super::supervisor::{Supervisor, watchdog_interval};
use crate::cluster::copies::offer;
use crate::cluster::folder::Membership;
use crate::cluster::metrics::LogMetrics;
use crate::cluster::seat::{Seat, end_process};
use crate::cluster::standby::{Look, LookOutcome, stand_by};
use crate::cluster::trim::{Trim, keep_trimmed, report};
use crate::cluster::{Cluster, ClusterFile, JetStreamLog, OpenLog};
use crate::config::{DataPlace, ServeArgs};
use crate::disk::Disk;
use crate::http::app::Server;
use crate::http::forward::Owner;
use crate::journal::replicated::{NodeName, Reader, Upstream as _};
use crate::journal::{Journal, Refused};
use crate::service::key_observer;
use crate::snapshot::{Folder, SnapshotKeeper};
use copy::Offered;
pub(crate) use entry::{Entry, require_whole};
use leaving::Leaving;
pub(super) use leaving::Left;

/// Maximum time that a node spends on releasing the log at shutdown. Without a release, other nodes
/// have to detect by themselves that the owner is gone.
pub(crate) const RELEASE_TIME_MAX: Duration = Duration::from_secs(2);

/// Interval at which an owner that has released its log checks whether the last block is on its own
/// disk.
const FLUSH_CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// Pause before a standby retries brokers that did not answer.
const BROKERS_PAUSE: Duration = Duration::from_secs(1);

/// Number of tries per warning in the log, beginning with the first try.
const TRIES_PER_WARNING: u32 = 30;

/// Pause before a standby with a full disk tries to write again.
const ROOM_PAUSE: Duration = Duration::from_secs(1);

/// A server's role in a cluster: the owner of its log, or `None` for a single server.
pub(super) struct Member(Option<Ownership>);

/// Ownership of the log. Dropping it releases the log, even if startup fails.
struct Ownership {
    seat: Arc<Seat<JetStreamLog>>,
    brokers: Handle,
    /// Sends keep-alives to the supervisor's watchdog until the server takes over that task.
    alive: JoinHandle<()>,
    /// Receives a message when the release is complete; `None` until it has begun.
    released: Option<mpsc::Receiver<()>>,
}

impl Member {
    /// Joins the cluster, if the server belongs to one, and returns once this node owns its log.
    /// From then on, the server answers only while no other node can have taken the log. Returns
    /// `Break` if a signal ends the node before that.
    pub(super) async fn join(
        arguments: &ServeArgs,
        supervisor: &Arc<Supervisor>,
        server: &Arc<Server>,
        prepared: Option<Prepared>,
        admin: Option<&AdminListener>,
    ) -> anyhow::Result<ControlFlow<Left, Joined>> {
        let (Some(file), Some(name), DataPlace::Folder(data)) =
            (&arguments.cluster.cluster, &arguments.cluster.node, &arguments.data)
        else {
            let joined = Joined { member: Self(None), prepared, ending: None };
            return Ok(ControlFlow::Continue(joined));
        };
        let ending = Ending::watch()?;
        let file = ClusterFile::read(file).context("--cluster")?;
        let log = file.first_stream();
        let metrics = server.observed.log.get_or_init(|| Arc::new(LogMetrics::new(log)));
        let standby = Standby {
            node: NodeName::new(name).context("--node")?,
            arguments: arguments.clone(),
            server: server.clone(),
            metrics: metrics.clone(),
            leaving: Arc::default(),
        };
        let leaving = standby.leaving.clone();
        server.place.join(file.clone(), standby.node.clone());
        let mut live = prepared::try_venue(arguments)?;
        if let Some(live) = &live {
            server.observed.live.get_or_init(|| live.status());
        }
        if let Some(admin) = admin {
            super::serve_metrics(admin, server)?;
        }
        let identity = start::open_identity(arguments)?;
        let brokers = start_thread()?;
        supervisor.ready("standing by");
        // Not on the brokers' thread, which may block on the disk.
        let alive = tokio::spawn(keep_alive(supervisor.clone()));
        // On the thread of the brokers' connection, where the copy may block on the disk.
        let mut owning = brokers.spawn(standby.own(file, brokers.clone()));
        let owned = tokio::select! {
            owned = ready::following(&mut live, &mut owning) => {
                owned.context("the standby panicked")??
            }
            signal = ending.asked() => {
                tracing::info!(signal, "draining");
                let left = Left::begin(ending, leaving, owning, brokers, alive);
                return Ok(ControlFlow::Break(left));
            }
        };
        let Owned { seat, membership, data: followed, keys } = owned;
        let ownership = Ownership { seat, brokers, alive, released: None };
        followed.journal.put_behind(ownership.seat.clone());
        // From now on, this node owns the log even after a crash.
        membership.write(&Disk::System, data)?;
        let before = server.lease.set(ownership.seat.lease().clone());
        assert!(before.is_ok(), "a process owns the log once");
        let data = Beforehand::Followed(followed);
        let prepared = Some(Prepared { data, keys, identity, live });
        let member = Self(Some(ownership));
        Ok(ControlFlow::Continue(Joined { member, prepared, ending: Some(ending) }))
    }

    /// Makes other nodes forward their requests to this node, which serves from now on. Stops the
    /// standby's keep-alives, since the server sends its own.
    pub(super) fn serves(&self, server: &Server) {
        if let Some(ownership) = &self.0 {
            ownership.alive.abort();
            server.place.set_owner(Owner::Here { epoch: ownership.seat.epoch() });
        }
    }

    /// Releases the log, so that another node can take it at once. First sends the answers that
    /// wait for the disk, unless that takes too long. Afterwards nothing becomes durable any more.
    pub(super) async fn release(&mut self, server: &Server, journal: &Arc<Journal>) {
        let Some(ownership) = &mut self.0 else { return };
        server.place.set_owner(Owner::Unknown);
        let began = Instant::now();
        let flushing = journal.clone();
        let flushed = spawn_blocking(move || flushing.flush_blocking());
        let _ = timeout(RELEASE_TIME_MAX, flushed).await;
        let time_left = RELEASE_TIME_MAX.saturating_sub(began.elapsed());
        let Some(position) = ownership.leave(time_left) else { return };
        // All records up to this position are in the log and are answered as durable. No later
        // record ever will be.
        while journal.durable_lsn().position() < position {
            tokio::time::sleep(FLUSH_CHECK_INTERVAL).await;
        }
        server.give_up(position);
    }

    /// Exits the process of a cluster node, since the rest of its journal can never be written.
    /// Does nothing on a standalone server.
    pub(super) fn end(self) {
        if let Some(ownership) = self.0 {
            drop(ownership);
            process::exit(0);
        }
    }
}

impl Ownership {
    /// Stops appending to the log and begins to release it, unless a block in flight takes longer
    /// than `time_max`. Returns the position of the log's newest record, or `None` if the block
    /// took too long.
    fn leave(&mut self, time_max: Duration) -> Option<u64> {
        let seat = self.seat.clone();
        let (to_left, left) = mpsc::channel();
        let (to_released, released) = mpsc::channel();
        self.brokers.spawn(async move {
            // After a timeout, the owner is still in its seat.
            let Ok(Some(owner)) = timeout(time_max, seat.leave()).await else { return };
            let _ = to_left.send(owner.position());
            match owner.release().await {
                Ok(_) => tracing::info!("released the log of the cluster"),
                Err((_, error)) => tracing::warn!(%error, "the log was lost before its release"),
            }
            let _ = to_released.send(());
        });
        let position = left.recv().ok()?;
        self.released = Some(released);
        Some(position)
    }
}

/// Waits for the release of the log, but only briefly.
impl Drop for Ownership {
    fn drop(&mut self) {
        if self.released.is_none() {
            self.leave(RELEASE_TIME_MAX);
        }
        let released = self.released.as_ref();
        if released.is_none_or(|released| released.recv_timeout(RELEASE_TIME_MAX).is_err()) {
            tracing::warn!(
                "the brokers do not answer: other nodes wait until they notice that this one is \
                 gone"
            );
        }
    }
}

/// A server that may start: a standalone server, or the owner of its cluster's log.
pub(super) struct Joined {
    pub(super) member: Member,
    /// The state prepared before startup.
    pub(super) prepared: Option<Prepared>,
    /// The signal watch, if it has already been started.
    pub(super) ending: Option<Ending>,
}

/// A log that this node has taken, with the state that the standby has built.
struct Owned {
    seat: Arc<Seat<JetStreamLog>>,
    membership: Membership,
    data: Followed,
    keys: KeysAndTiers,
}

/// Starts the thread for everything that involves the brokers. It lives as long as the process.
fn start_thread() -> anyhow::Result<Handle> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name("brokers".to_owned())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))
        .context("failed to start the thread of the brokers")?;
    Ok(handle)
}

/// Sends keep-alives to the supervisor's watchdog while the node is a standby.
async fn keep_alive(supervisor: Arc<Supervisor>) {
    let Some(interval) = watchdog_interval() else { return };
    loop {
        supervisor.alive();
        tokio::time::sleep(interval / 4).await;
    }
}

/// A counter of tries, which limits warnings to one in [`TRIES_PER_WARNING`].
#[derive(Default)]
struct Tries(u32);

impl Tries {
    /// Counts a try. Returns whether to log a warning for it.
    const fn is_told(&mut self) -> bool {
        let is_told = self.0.is_multiple_of(TRIES_PER_WARNING);
        self.0 = self.0.wrapping_add(1);
        is_told
    }
}

/// A node that does not own the log yet.
struct Standby {
    node: NodeName,
    arguments: ServeArgs,
    server: Arc<Server>,
    metrics: Arc<LogMetrics>,
    leaving: Arc<Leaving>,
}

impl Standby {
    /// Copies the log until it is free, then takes it. From then on the seat appends heartbeats to
    /// it.
    async fn own(self, file: ClusterFile, runtime: Handle) -> anyhow::Result<Owned> {
        let mut trim = Trim::new(Duration::from_mins(file.keep_minutes.into()));
        let log = self.only_log(file.clone()).await?;
        let (opened, reader, membership) = self.open(&log, &file, &runtime).await?;
        let OpenedData { journal, mut recovered, folder, .. } = opened;
        let folder = folder.context("a node has a data folder")?;
        let keys = prepared::keys_of(recovered.states(), self.arguments.limits().tiers)?;
        let position = journal.newest_lsn().position;
        // The owner is unknown until the log is read.
        self.server.place.set_owner(Owner::Unknown);
        let (log, id) = (log.log, log.id);
        tracing::info!(node = %self.node, position, "standing by");
        runtime.spawn(report(log.clone(), self.node.clone(), journal.clone()));
        let (server, data) = (self.server.clone(), Offered::new(folder.clone(), id));
        runtime.spawn(offer(file, self.node.clone(), move || server.place.is_owner(), data));
        let config = self.arguments.snapshot_config();
        let snapshots = SnapshotKeeper::start(folder.clone(), journal.clone(), config);
        let observed = &self.server.observed;
        observed.journal.get_or_init(|| journal.clone());
        observed.snapshots.get_or_init(|| snapshots.metrics().clone());
        let observe = key_observer(keys.0.clone(), keys.1.clone());
        let (mut copied, metrics) = (position, &self.metrics);
        let copy = |position: u64, record: &[u8]| {
            if position > copied {
                recovered.replay(position, record, &observe)?;
                append(&journal, record);
                copied = position;
            }
            metrics.copied(position);
            anyhow::Ok(())
        };
        let owned_epoch = Some(membership.owned_epoch).filter(|&epoch| epoch > 0);
        let (leaving, place) = (&self.leaving, &self.server.place);
        let looked = |Look { position, sequence, epoch, is_owned, outcome }| {
            trim.mark(position, sequence, tokio::time::Instant::now());
            match outcome {
                LookOutcome::Whole => metrics.read(position, epoch),
                LookOutcome::Silence => {}
                LookOutcome::Halt => metrics.halted(),
            }
            place.set_owner(match outcome {
                LookOutcome::Halt => Owner::Halted,
                _ if is_owned => Owner::There { epoch },
                _ => Owner::Unknown,
            });
            leaving.decide()
        };
        let taken = stand_by(reader, &self.node, owned_epoch, copy, looked).await?;
        self.server.place.set_owner(Owner::Unknown);
        if let Err(error) = require_whole(&taken.owner, &journal, &recovered) {
            // This node will not start, so other nodes need not wait for it.
            let _ = timeout(RELEASE_TIME_MAX, taken.owner.release()).await;
            return Err(error);
        }
        let (epoch, position) = (taken.owner.epoch(), taken.owner.position());
        tracing::info!(node = %self.node, epoch, position, "this node owns the log, and serves");
        let seat = Arc::new(Seat::new(taken, metrics.clone(), runtime.clone(), end_process));
        let (owned, kept) = (seat.clone(), journal.clone());
        runtime.spawn(keep_trimmed(log, owned, self.node.clone(), kept, trim));
        let membership = Membership { owned_epoch: epoch, ..membership };
        let data = Followed { journal, recovered, folder, snapshots };
        Ok(Owned { seat, membership, data, keys })
    }

    /// Opens this node's data, copying it from another node first if necessary, and a reader of the
    /// log's blocks that follow it.
    async fn open(
        &self,
        log: &OpenLog,
        file: &ClusterFile,
        brokers: &Handle,
    ) -> anyhow::Result<(OpenedData, Reader<JetStreamLog>, Membership)> {
        loop {
            let is_copied = self.require_data(log, file, brokers).await?;
            let opened = start::open_data(&self.arguments, None)?;
            let folder = opened.folder.clone().context("a node has a data folder")?;
            let (node, disk) = (&self.node, &Disk::System);
            let position = opened.journal.newest_lsn().position;
            let entry = Entry { node, log, disk, folder: &folder, position };
            let halted = || {
                self.server.place.set_owner(Owner::Halted);
                self.metrics.halted();
            };
            match entry.enter(halted).await {
                Ok((reader, membership)) => return Ok((opened, reader, membership)),
                // The brokers trimmed the blocks that follow the copy while it was being made.
                Err(error) if is_copied && copy::is_outrun(&error) => {
                    tracing::warn!("the brokers have removed what follows the copy, copying anew");
                    drop(opened);
                    copy::discard(folder.path())?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Copies another node's data, if this node has none and the log no longer begins with the
    /// first record. Returns whether it made a copy; if so, the folder holds nothing else.
    async fn require_data(
        &self,
        log: &OpenLog,
        file: &ClusterFile,
        brokers: &Handle,
    ) -> anyhow::Result<bool> {
        let DataPlace::Folder(data) = &self.arguments.data else { return Ok(false) };
        if !copy::is_needed(&Folder::new(Disk::System, data), log).await? {
            return Ok(false);
        }
        let (data, node, id) = (data.clone(), self.node.clone(), log.id);
        let (file, brokers) = (file.clone(), brokers.clone());
        // In a blocking task: the brokers' thread has to stay free to receive their answers.
        let filled = spawn_blocking(move || copy::fill(&data, (&node, id), &file, &brokers));
        filled.await.context("the copy panicked")?
    }

    /// Opens the cluster's log, once the brokers confirm that it is safe. Waits for brokers that do
    /// not answer.
    async fn only_log(&self, file: ClusterFile) -> anyhow::Result<OpenLog> {
        let mut tries = Tries::default();
        let mut logs = loop {
            let opened = match Cluster::connect(file.clone()).await {
                Ok(cluster) => cluster.open().await,
                Err(error) => Err(error),
            };
            match opened {
                Ok(logs) => break logs,
                Err(error) if error.is_silence() => {
                    if tries.is_told() {
                        tracing::warn!(%error, "waiting for the brokers");
                    }
                    tokio::time::sleep(BROKERS_PAUSE).await;
                }
                Err(error) => return Err(error.into()),
            }
        };
        ensure!(
            logs.len() == 1,
            "nodes serve clusters of one log, and this one has {}: choose another name in the \
             file, and logs = 1",
            logs.len()
        );
        Ok(logs.remove(0))
    }
}

/// Appends the record to the journal, and waits for room as long as necessary.
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
