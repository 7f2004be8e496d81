//! A node of a cluster, from its start to the moment at which it owns the log.
//!
//! The node copies the log into its data folder, as a journal like any other, and applies each
//! record, until no other node owns the log. Then it takes the log, and starts with what it has.
//! From then on each block is in the log before it is on this disk, so a folder never holds what
//! the log does not.

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

/// How long a node that ends tries to give the log up. Other nodes find out without it.
pub(crate) const RELEASE_TIME_MAX: Duration = Duration::from_secs(2);

/// How often an owner that has released its log looks whether the last block is on its own disk.
const FLUSH_CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// How long a standby waits before it retries brokers that did not answer.
const BROKERS_PAUSE: Duration = Duration::from_secs(1);

/// What waits for others is reported at the first and then at every so many tries.
const TRIES_PER_WARNING: u32 = 30;

/// How long a standby waits for room on its disk before it tries again.
const ROOM_PAUSE: Duration = Duration::from_secs(1);

/// What a server is in a cluster: the owner of its log, or nothing at all.
pub(super) struct Member(Option<Ownership>);

/// The log is released when this is dropped, also by a start that fails.
struct Ownership {
    seat: Arc<Seat<JetStreamLog>>,
    brokers: Handle,
    /// Tells the supervisor's watchdog that the node is alive, until the server does.
    alive: JoinHandle<()>,
    /// Hears of the release, once that has begun.
    released: Option<mpsc::Receiver<()>>,
}

impl Member {
    /// Joins the cluster, if the server belongs to one, and returns once this node owns its log.
    /// From then on the server answers only while no other node can have taken it. Breaks if a
    /// signal asks for the end before that.
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
        // Not on the thread of the brokers, which waits for the disk.
        let alive = tokio::spawn(keep_alive(supervisor.clone()));
        // On the thread of the brokers' connection, where the copy may wait for the disk.
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
        // From now on the log is this node's also after a crash.
        membership.write(&Disk::System, data)?;
        let before = server.lease.set(ownership.seat.lease().clone());
        assert!(before.is_ok(), "a process owns the log once");
        let data = Beforehand::Followed(followed);
        let prepared = Some(Prepared { data, keys, identity, live });
        let member = Self(Some(ownership));
        Ok(ControlFlow::Continue(Joined { member, prepared, ending: Some(ending) }))
    }

    /// The server answers from here on, and tells the supervisor's watchdog that it is alive. Other
    /// nodes pass on their requests to it.
    pub(super) fn serves(&self, server: &Server) {
        if let Some(ownership) = &self.0 {
            ownership.alive.abort();
            server.place.set_owner(Owner::Here { epoch: ownership.seat.epoch() });
        }
    }

    /// Gives the log up, so that another node takes it at once. What waits for the disk is answered
    /// before that, unless it takes long, and from then on nothing becomes durable any more.
    pub(super) async fn release(&mut self, server: &Server, journal: &Arc<Journal>) {
        let Some(ownership) = &mut self.0 else { return };
        server.place.set_owner(Owner::Unknown);
        let began = Instant::now();
        let flushing = journal.clone();
        let flushed = spawn_blocking(move || flushing.flush_blocking());
        let _ = timeout(RELEASE_TIME_MAX, flushed).await;
        let time_left = RELEASE_TIME_MAX.saturating_sub(began.elapsed());
        let Some(position) = ownership.leave(time_left) else { return };
        // What is in the log is answered as done. No other record was or ever will be in it.
        while journal.durable_place().position() < position {
            tokio::time::sleep(FLUSH_CHECK_INTERVAL).await;
        }
        server.give_up(position);
    }

    /// Ends the process of a node: what is left in its journal can never be written.
    pub(super) fn end(self) {
        if let Some(ownership) = self.0 {
            drop(ownership);
            process::exit(0);
        }
    }
}

impl Ownership {
    /// Leaves the place in the log unless a block takes too long, and begins to release the log.
    /// Returns the position of the newest record in it.
    fn leave(&mut self, time_max: Duration) -> Option<u64> {
        let seat = self.seat.clone();
        let (to_left, left) = mpsc::channel();
        let (to_released, released) = mpsc::channel();
        self.brokers.spawn(async move {
            // A caller that does not get the place in time still has it.
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

/// Releases the log, if that does not take long.
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

/// A server that may start.
pub(super) struct Joined {
    pub(super) member: Member,
    /// What was done before the start.
    pub(super) prepared: Option<Prepared>,
    /// The watch on signals, if there is one by now.
    pub(super) ending: Option<Ending>,
}

/// A log that a standby has come to own, and what it stood by with.
struct Owned {
    seat: Arc<Seat<JetStreamLog>>,
    membership: Membership,
    data: Followed,
    keys: KeysAndTiers,
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

/// Counts tries.
#[derive(Default)]
struct Tries(u32);

impl Tries {
    /// Counts one more. Returns whether it is reported.
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
    /// Copies the log until it can be owned, and owns it. From then on it shows that it is alive.
    async fn own(self, file: ClusterFile, runtime: Handle) -> anyhow::Result<Owned> {
        let mut trim = Trim::new(Duration::from_mins(file.keep_minutes.into()));
        let log = self.only_log(file.clone()).await?;
        let (opened, reader, membership) = self.open(&log, &file, &runtime).await?;
        let OpenedData { journal, mut recovered, folder, .. } = opened;
        let folder = folder.context("a node has a data folder")?;
        let keys = prepared::keys_of(recovered.states(), self.arguments.limits().tiers)?;
        let position = journal.newest_place().position;
        // Nothing more is known before the log is read.
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
            // No node need wait for one that does not start.
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

    /// The data of this node, which may first have to be copied from another, and a reader of what
    /// follows it.
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
            let position = opened.journal.newest_place().position;
            let entry = Entry { node, log, disk, folder: &folder, position };
            let halted = || {
                self.server.place.set_owner(Owner::Halted);
                self.metrics.halted();
            };
            match entry.enter(halted).await {
                Ok((reader, membership)) => return Ok((opened, reader, membership)),
                // The brokers have removed what follows while it was copied.
                Err(error) if is_copied && copy::is_outrun(&error) => {
                    tracing::warn!("the brokers have removed what follows the copy, copying anew");
                    drop(opened);
                    copy::discard(folder.path())?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Copies another node's data, if this one has none and the log alone is not enough. Returns
    /// whether it has, and the folder holds nothing else.
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
        // The brokers' thread has to be free for the answers.
        let filled = spawn_blocking(move || copy::fill(&data, (&node, id), &file, &brokers));
        filled.await.context("the copy panicked")?
    }

    /// The log of the cluster, once the brokers say that it is safe. Waits for those that do not
    /// answer.
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
