//! The thread that takes snapshots while the server runs and prunes the data directory.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::fold::{FoldError, FoldReport, fold};
use super::folder::Folder;
use super::load::Snapshot;
use super::pace::{Pace, SharedProcessor, Stop};
use crate::disk::DiskError;
use crate::journal::Journal;
use paperbourse_core::ids::Timestamp;

/// Interval between checks for a due snapshot.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of segments that one fold adds, because their record index is held in memory. If
/// more segments are closed, the next snapshot follows at once.
const SEGMENTS_PER_FOLD_MAX: u64 = 16;

/// Pause after a failed snapshot.
const RETRY_PAUSE: Duration = Duration::from_secs(30);

/// The snapshot policy: when to take snapshots, and how much to archive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotConfig {
    /// Take a snapshot after this many bytes of closed segments.
    pub journal_bytes: u64,
    /// Take a snapshot after this time if any segment has been closed.
    pub interval: Duration,
    /// Share of one processor that snapshots may use, in percent, 1 to 100.
    pub cpu_percent: u32,
    /// Maximum size of the archive of covered segments, in bytes.
    pub archive_bytes: u64,
}

/// Metrics of the snapshots taken since startup.
#[derive(Default, Debug)]
pub struct SnapshotMetrics {
    /// Number of snapshots taken.
    pub made: AtomicU64,
    /// Number of snapshots that failed.
    pub failed: AtomicU64,
    /// The last segment covered by the newest snapshot.
    pub covered_segment: AtomicU64,
    /// Time at which the newest snapshot since startup was finished, in seconds since 1970; 0
    /// before the first.
    pub made_at_seconds: AtomicI64,
    /// Duration of the newest snapshot, in milliseconds.
    pub elapsed_ms: AtomicU64,
    /// Size of the files written for the newest snapshot, in bytes.
    pub bytes: AtomicU64,
}

/// Takes snapshots in the background until dropped.
pub struct SnapshotKeeper {
    metrics: Arc<SnapshotMetrics>,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl SnapshotKeeper {
    /// Starts the thread. `folder` must be the directory of `journal`.
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

    /// Returns the metrics of the snapshots.
    pub fn metrics(&self) -> &Arc<SnapshotMetrics> {
        &self.metrics
    }
}

impl Drop for SnapshotKeeper {
    fn drop(&mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has already reported why, and with `panic = "abort"` the
            // process is gone.
            let _ = thread.join();
        }
    }
}

/// Runs this thread only on otherwise idle processors. A single step of its work may take long, and
/// the scheduler preempts an idle-class thread as soon as a thread that serves requests wakes up.
/// With only a low priority, this thread would first finish its time slice of some milliseconds,
/// and the serving threads would wait.
///
/// If other processes keep the processors busy, the thread still gets about 1/300 of one: a second
/// of its work then takes several minutes, during which the journal grows.
#[cfg(target_os = "linux")]
fn give_way() {
    use thread_priority::unix::{
        NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy,
        thread_native_id,
    };
    let policy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    let lowest = thread_priority::ThreadPriority::Min;
    // If this is not permitted, the processor share is the only limit.
    if let Err(error) = set_thread_priority_and_policy(thread_native_id(), lowest, policy) {
        tracing::warn!(%error, "failed to lower the priority of the snapshot thread");
    }
}

/// Does nothing: on other systems a priority applies to the whole process.
#[cfg(not(target_os = "linux"))]
const fn give_way() {}

fn run(mut upkeep: Upkeep, journal: &Journal, stop: &Stop, mut pace: SharedProcessor) {
    let mut pause = Duration::ZERO;
    while !stop.wait(pause) {
        pause = LOOK_INTERVAL;
        // All segments before the current one are closed.
        let Some(current) = journal.segment() else { return };
        if let Err(error) = upkeep.keep(current - 1, &mut pace) {
            if matches!(error, FoldError::Stopped(_)) {
                return;
            }
            upkeep.metrics.failed.fetch_add(1, Ordering::Relaxed);
            tracing::error!(
                retry_seconds = RETRY_PAUSE.as_secs(),
                "failed to take a snapshot: {error}{}; the journal and the previous snapshot are \
                 unaffected",
                source_of(&error)
            );
            pause = RETRY_PAUSE;
        }
    }
}

/// Returns the operating system's error, which the error's own message omits.
fn source_of(error: &FoldError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!(": {source}"),
        None => String::new(),
    }
}

/// Folds when a snapshot is due, and prunes files that are no longer needed.
pub struct Upkeep {
    folder: Folder,
    config: SnapshotConfig,
    metrics: Arc<SnapshotMetrics>,
    /// Time at which the newest snapshot was taken, or the server started.
    made_at: Instant,
    /// The last segment that the newest snapshot covers. `None` before the first check and after a
    /// failure.
    covered: Option<u64>,
}

impl Upkeep {
    /// Creates the upkeep of the snapshots in this folder. No snapshot is due at first.
    pub fn new(folder: Folder, config: SnapshotConfig, metrics: Arc<SnapshotMetrics>) -> Self {
        Self { folder, config, metrics, made_at: Instant::now(), covered: None }
    }

    /// Folds if a snapshot is due. `closed` is the number of the last closed segment.
    pub fn keep(
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
            // The snapshot may already have its name, if only the last sync failed. Taking it again
            // would replace its order file with one that lacks the orders, so read the directory
            // again.
            self.covered = None;
            // Partial files take up space that the journal may need.
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

    /// Resumes after an earlier process or a failed fold. Partial files were removed when the
    /// directory was opened, or when the fold failed.
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

    /// Archives covered segments and removes files that are not needed to start from the newest
    /// snapshot or the previous one.
    fn tidy(&self) -> Result<(), FoldError> {
        let numbers = self.folder.snapshot_numbers()?;
        let Some(&newest) = numbers.last() else { return Ok(()) };
        let previous = numbers.iter().rev().nth(1).copied();
        self.folder.archive_segments(newest)?;
        let mut needed = Vec::new();
        for number in previous.into_iter().chain([newest]) {
            // If a snapshot cannot be read, remove nothing: the other one may need the files.
            let snapshot = Snapshot::open(&self.folder, number)?;
            needed.extend(snapshot.manifest.order_files.iter().map(|file| file.number));
        }
        self.folder
            .prune_snapshots(previous.unwrap_or(newest), |number| needed.contains(&number))?;
        self.folder.prune_archive(self.config.archive_bytes, previous.unwrap_or(0))?;
        Ok(())
    }
}
