//! The thread that makes snapshots while the server runs, and keeps the data directory small.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::fold::{FoldError, FoldReport, fold};
use super::folder::Folder;
use super::load::Snapshot;
use super::pace::{Pace, SharedProcessor, Stop};
use crate::disk::DiskError;
use crate::ids::Timestamp;
use crate::journal::Journal;

/// How often the thread looks whether there is enough to fold.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// One snapshot covers at most so many segments more than the one before: what it notes about their
/// records is held in memory. When more are closed, the next one follows at once.
const SEGMENTS_PER_FOLD_MAX: u64 = 16;

/// How long it waits after a snapshot that failed.
const RETRY_PAUSE: Duration = Duration::from_secs(30);

/// When snapshots are made, and what is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotConfig {
    /// So many bytes of closed segments make a snapshot due.
    pub journal_bytes: u64,
    /// After so long any closed segment makes a snapshot due.
    pub interval: Duration,
    /// How much of one processor it may use, in percent, 1 to 100.
    pub cpu_percent: u32,
    /// How many bytes of covered segments stay in the archive.
    pub archive_bytes: u64,
}

/// What the snapshots were like, for the metrics.
#[derive(Default, Debug)]
pub struct SnapshotMetrics {
    /// How many were made since the start.
    pub made: AtomicU64,
    /// How many came to nothing.
    pub failed: AtomicU64,
    /// The last segment that the newest one covers.
    pub covered_segment: AtomicU64,
    /// When the newest one of this start was finished, in seconds; 0 before.
    pub made_at_seconds: AtomicI64,
    /// How long the newest one took.
    pub elapsed_ms: AtomicU64,
    /// How long its files are.
    pub bytes: AtomicU64,
}

/// Makes snapshots in the background until it is dropped.
pub struct SnapshotKeeper {
    metrics: Arc<SnapshotMetrics>,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl SnapshotKeeper {
    /// Starts the thread. `folder` is the directory that `journal` was opened in.
    pub fn start(folder: Folder, journal: Arc<Journal>, config: SnapshotConfig) -> Self {
        let metrics = Arc::new(SnapshotMetrics::default());
        let noted = metrics.clone();
        let stop = Arc::new(Stop::default());
        let stopped = stop.clone();
        let work = move || {
            give_way();
            let pace = SharedProcessor::new(config.cpu_percent, stopped.clone());
            let upkeep = Upkeep::new(folder, config, noted);
            run(upkeep, &journal, &stopped, pace);
        };
        let thread = thread::Builder::new().name("snapshot".to_owned()).spawn(work);
        Self { metrics, stop, thread: Some(thread.expect("a thread can be started")) }
    }

    /// What the snapshots were like.
    pub fn metrics(&self) -> &Arc<SnapshotMetrics> {
        &self.metrics
    }
}

impl Drop for SnapshotKeeper {
    fn drop(&mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said why, and with `panic = "abort"` there is none.
            let _ = thread.join();
        }
    }
}

/// Lets this thread run only where no other wants to: each piece of its work may be long, and the
/// system ends it at once when a thread that serves requests wakes up. With a low priority alone it
/// would be left its slice of some milliseconds first, and they would wait.
///
/// Where other processes leave the processors no rest it still has a three-hundredth of one: a
/// second of its work then takes some minutes, in which the journal grows.
#[cfg(target_os = "linux")]
fn give_way() {
    use thread_priority::unix::{
        NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy,
        thread_native_id,
    };
    let policy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    let lowest = thread_priority::ThreadPriority::Min;
    // Where it is not allowed, the share of the processor alone has to do.
    if let Err(error) = set_thread_priority_and_policy(thread_native_id(), lowest, policy) {
        tracing::warn!(%error, "failed to lower the priority of the snapshot thread");
    }
}

/// Elsewhere a priority belongs to the whole process.
#[cfg(not(target_os = "linux"))]
const fn give_way() {}

fn run(mut upkeep: Upkeep, journal: &Journal, stop: &Stop, mut pace: SharedProcessor) {
    let mut pause = Duration::ZERO;
    while !stop.wait(pause) {
        pause = LOOK_INTERVAL;
        // All segments before the one that is written now are closed.
        let Some(current) = journal.segment() else { return };
        if let Err(error) = upkeep.keep(current - 1, &mut pace) {
            if matches!(error, FoldError::Stopped(_)) {
                return;
            }
            upkeep.metrics.failed.fetch_add(1, Ordering::Relaxed);
            tracing::error!(
                retry_seconds = RETRY_PAUSE.as_secs(),
                "failed to take a snapshot: {error}{}. The journal and the previous snapshot are \
                 unharmed",
                source_of(&error)
            );
            pause = RETRY_PAUSE;
        }
    }
}

/// What the system said, where the error itself does not tell.
fn source_of(error: &FoldError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!(": {source}"),
        None => String::new(),
    }
}

/// Folds when it is time, and throws away what nobody needs.
pub(crate) struct Upkeep {
    folder: Folder,
    config: SnapshotConfig,
    metrics: Arc<SnapshotMetrics>,
    /// When the newest snapshot was made, or the start.
    made_at: Instant,
    /// The last segment that the newest snapshot covers; not known before the first look.
    covered: Option<u64>,
}

impl Upkeep {
    pub(crate) fn new(
        folder: Folder,
        config: SnapshotConfig,
        metrics: Arc<SnapshotMetrics>,
    ) -> Self {
        Self { folder, config, metrics, made_at: Instant::now(), covered: None }
    }

    /// One look. `closed` is the last segment that is written no more.
    pub(crate) fn keep(
        &mut self,
        closed: u64,
        pace: &mut dyn Pace,
    ) -> Result<Option<FoldReport>, FoldError> {
        let covered = match self.covered {
            Some(covered) => covered,
            None => self.begin()?,
        };
        if closed <= covered || !self.is_due(covered, closed)? {
            return Ok(None);
        }
        let began = Instant::now();
        let through = closed.min(covered + SEGMENTS_PER_FOLD_MAX);
        let folded = fold(&self.folder, through, pace);
        if folded.is_err() {
            // It may have its name, if only the last sync failed: to make it once more would write
            // its order file anew, without the orders that are in it. So look again.
            self.covered = None;
            // What was begun takes room that the journal may need.
            self.folder.settle()?;
        }
        let report = folded?;
        let elapsed = began.elapsed();
        self.made_at = Instant::now();
        self.covered = Some(report.number);
        self.note(&report, elapsed);
        self.tidy()?;
        Ok(Some(report))
    }

    /// Goes on where an earlier process, or a fold that failed, stopped. What that left half made
    /// was removed when the directory was opened, or when the fold failed.
    fn begin(&mut self) -> Result<u64, FoldError> {
        let covered = self.folder.snapshot_numbers()?.last().copied().unwrap_or(0);
        self.covered = Some(covered);
        self.metrics.covered_segment.store(covered, Ordering::Relaxed);
        if covered > 0 {
            self.tidy()?;
        }
        Ok(covered)
    }

    fn is_due(&self, covered: u64, closed: u64) -> Result<bool, DiskError> {
        if self.made_at.elapsed() >= self.config.interval {
            return Ok(true);
        }
        let mut bytes = 0;
        for number in covered + 1..=closed {
            if let Some(path) = self.folder.segment_path(number)? {
                bytes += self.folder.disk.open_read(&path)?.bytes()?;
            }
            if bytes >= self.config.journal_bytes {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn note(&self, report: &FoldReport, elapsed: Duration) {
        let metrics = &self.metrics;
        metrics.made.fetch_add(1, Ordering::Relaxed);
        metrics.covered_segment.store(report.number, Ordering::Relaxed);
        metrics.made_at_seconds.store(Timestamp::now().seconds(), Ordering::Relaxed);
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        metrics.elapsed_ms.store(elapsed_ms, Ordering::Relaxed);
        metrics.bytes.store(report.bytes, Ordering::Relaxed);
        tracing::info!(
            segment = report.number,
            records = report.records,
            bytes = report.bytes,
            elapsed_ms,
            "took a snapshot"
        );
    }

    /// Moves what is covered into the archive and removes what no way back needs: the newest
    /// snapshot and the one before it stay.
    fn tidy(&self) -> Result<(), FoldError> {
        let numbers = self.folder.snapshot_numbers()?;
        let Some(&newest) = numbers.last() else { return Ok(()) };
        let previous = numbers.iter().rev().nth(1).copied();
        self.folder.archive_segments(newest)?;
        let mut needed = Vec::new();
        for number in previous.into_iter().chain([newest]) {
            // One that cannot be read must not cost the files of another: nothing is removed.
            let snapshot = Snapshot::open(&self.folder, number)?;
            needed.extend(snapshot.manifest.order_files.iter().map(|file| file.number));
        }
        self.folder
            .prune_snapshots(previous.unwrap_or(newest), |number| needed.contains(&number))?;
        self.folder.prune_archive(self.config.archive_bytes, previous.unwrap_or(0))?;
        Ok(())
    }
}
