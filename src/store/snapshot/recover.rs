//! Recovers the states of all shards from a data directory, and opens its journal.
//!
//! The calling thread loads the newest snapshot, reads the segments after it and checks their
//! chain. Shards are independent, so their records are applied by as many threads as there are
//! processors. Nothing is written before the last record has been applied.

use std::fmt;
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use super::ahead::{Ahead, Resumes};
use super::folder::Folder;
use super::load::{LoadError, Snapshot};
use super::replay::{RecordObserver, ReplayError, ShardState};
use crate::disk::{Disk, DiskError};
use crate::journal::{
    Batch, DataDirectory, Journal, JournalConfig, OpenError, ReadError, RecoveryReport,
    SegmentReader, UnopenedJournal, record,
};
use paperbourse_core::engine::State;
use paperbourse_core::ids::{SHARD_COUNT, ShardId, Timestamp};

/// Interval between progress logs of a long recovery.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

/// Number of records decoded before the first of them is applied, so that the memory that they
/// change is fetched in parallel.
const RECORDS_AHEAD: usize = 32;

/// Maximum number of segments read ahead of each thread that applies their records.
const BATCHES_AHEAD_MAX: usize = 2;

/// The states recovered from a snapshot and the journal.
pub struct Recovered {
    shards: Vec<ShardState>,
}

/// An empty state, without accounts or records.
impl Default for Recovered {
    fn default() -> Self {
        Self { shards: ShardId::all().map(ShardState::new).collect() }
    }
}

impl Recovered {
    /// Returns the states in the order of their shards.
    pub fn states(&self) -> impl Iterator<Item = &State> {
        self.shards.iter().map(|shard| &shard.state)
    }

    /// Returns the time of the newest decision, as the clock showed it then.
    pub fn newest_time(&self) -> Timestamp {
        self.shards.iter().map(|shard| shard.decided_at).max().unwrap_or_default()
    }

    /// Returns the greatest epoch of any record; 0 if there are no records.
    pub fn newest_epoch(&self) -> u64 {
        self.shards.iter().map(|shard| shard.epoch).max().unwrap_or_default()
    }

    /// Returns the shards in order.
    pub fn into_shards(self) -> Vec<ShardState> {
        self.shards
    }

    /// Applies the next record, at `position`, and passes its events to `observer`. After an error,
    /// discard the states.
    #[cfg(any(test, feature = "cluster", feature = "test-util"))]
    pub fn replay(
        &mut self,
        position: u64,
        bytes: &[u8],
        observer: RecordObserver<'_>,
    ) -> Result<(), RecoverError> {
        let shard = record::shard_of(bytes).map_or(0, ShardId::index);
        self.shards[shard]
            .replay_decoded(record::decode(bytes), observer)
            .map_err(|reason| RecoverError::Replay { position, reason })
    }
}

/// Error recovering a data directory. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The journal cannot be opened.
    #[error(transparent)]
    Journal(#[from] OpenError),
    /// The snapshot cannot be read.
    #[error(transparent)]
    Snapshot(#[from] LoadError),
    /// A record cannot be applied to the state before it.
    #[error(
        "the record at position {position} was refused: {reason}; the journal was not changed; \
         start from a backup"
    )]
    Replay {
        /// The position of the record.
        position: u64,
        /// The reason.
        reason: ReplayError,
    },
}

impl From<ReadError<Self>> for RecoverError {
    fn from(error: ReadError<Self>) -> Self {
        match error {
            ReadError::Journal(error) => error.into(),
            ReadError::Stopped(error) => error,
        }
    }
}

impl From<DiskError> for RecoverError {
    fn from(error: DiskError) -> Self {
        Self::Journal(error.into())
    }
}

/// The result of a recovery.
#[derive(Clone, Debug)]
pub struct RecoverReport {
    /// The last segment that the snapshot covers. `None` if there is no snapshot.
    pub snapshot: Option<u64>,
    /// Time taken to load the snapshot.
    pub snapshot_elapsed: Duration,
    /// The recovery of the journal after the snapshot.
    pub journal: RecoveryReport,
}

impl fmt::Display for RecoverReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(number) = self.snapshot {
            let seconds = self.snapshot_elapsed.as_secs_f64();
            write!(formatter, "loaded the snapshot of segment {number} in {seconds:.3} s, ")?;
        }
        self.journal.fmt(formatter)
    }
}

/// An open data directory.
pub struct Opened {
    /// The journal, ready for new records.
    pub journal: Journal,
    /// The recovered states.
    pub recovered: Recovered,
    /// The result of the recovery.
    pub report: RecoverReport,
    /// The layout of the directory.
    pub folder: Folder,
    /// Whether the states continue those that were read ahead.
    pub has_resumed: bool,
}

/// Whether a server that starts on this data directory raises its format version, after which an
/// older server can no longer read it.
pub fn raises_format(disk: &Disk, data: &Path) -> Result<bool, RecoverError> {
    let folder = Folder::new(disk.clone(), data);
    if Snapshot::newest(&folder)?.is_some_and(|snapshot| snapshot.is_older()) {
        return Ok(true);
    }
    for number in folder.segment_numbers()?.into_iter().rev() {
        let Some(path) = folder.segment_path(number)? else { continue };
        // Segments without a block are replaced.
        if SegmentReader::is_begun(disk, &path)? {
            return Ok(SegmentReader::is_older(disk, &path)?);
        }
    }
    Ok(false)
}

/// Opens a data directory, creating it if necessary, and recovers it with `thread_count` threads.
pub fn open(
    disk: Disk,
    data: &Path,
    config: &JournalConfig,
    thread_count: NonZeroUsize,
) -> Result<Opened, RecoverError> {
    open_read(read(disk, data, config, thread_count, None, &|_, _| {})?)
}

/// Opens a data directory that was read ahead. Reads only the records written since, and passes
/// their events to `observer`. If the directory no longer continues the states read ahead, logs
/// that, drops them, and reads everything without calling the observer.
pub fn open_ahead(
    disk: Disk,
    data: &Path,
    config: &JournalConfig,
    ahead: Ahead,
    observer: RecordObserver<'_>,
    thread_count: NonZeroUsize,
) -> Result<Opened, RecoverError> {
    let position = ahead.resumes.position();
    // The thread count has no effect here: the groups are those of `ahead`.
    match read(disk.clone(), data, config, NonZeroUsize::MIN, Some(ahead), observer) {
        Ok(read) => return Ok(Opened { has_resumed: true, ..open_read(read)? }),
        // Snapshots cover more by now, and the segments that they cover were removed.
        Err(RecoverError::Journal(error @ OpenError::MissingSegment { .. })) => tracing::warn!(
            %error,
            position,
            "what was read ahead of the start is too old: reading the whole data folder again"
        ),
        Err(RecoverError::Journal(
            error @ (OpenError::Changed { .. } | OpenError::NoSegments { .. }),
        )) => tracing::error!(
            %error,
            position,
            "the disk lost blocks of the journal that were readable a moment ago: acknowledged \
             orders up to this position may be missing. Check the disk, and compare with a \
             backup. Starting with what the data folder still holds"
        ),
        Err(error) => return Err(error),
    }
    open(disk, data, config, thread_count)
}

fn open_read((unopened, recovered, report, folder): Read) -> Result<Opened, RecoverError> {
    let (journal, journal_report) = unopened.open()?;
    journal.raise_epoch(recovered.newest_epoch());
    let report = RecoverReport { journal: journal_report, ..report };
    Ok(Opened { journal, recovered, report, folder, has_resumed: false })
}

/// Opens a data directory on a single thread. Afterwards the caller writes blocks and makes
/// segments through [`Steps`](crate::journal::Steps).
#[cfg(any(test, feature = "test-util"))]
pub fn open_stepped(
    disk: Disk,
    data: &Path,
    config: &JournalConfig,
) -> Result<(Opened, crate::journal::Steps), RecoverError> {
    let (unopened, recovered, report, folder) =
        read(disk, data, config, NonZeroUsize::MIN, None, &|_, _| {})?;
    let (journal, steps, journal_report) = unopened.open_stepped()?;
    journal.raise_epoch(recovered.newest_epoch());
    let report = RecoverReport { journal: journal_report, ..report };
    Ok((Opened { journal, recovered, report, folder, has_resumed: false }, steps))
}

/// A data directory that has been read but not opened yet.
type Read = (UnopenedJournal, Recovered, RecoverReport, Folder);

/// Reads a data directory, or the part of it that was not read ahead. Changes nothing except
/// removing the unfinished files of an earlier process.
fn read(
    disk: Disk,
    data: &Path,
    config: &JournalConfig,
    thread_count: NonZeroUsize,
    ahead: Option<Ahead>,
    observer: RecordObserver<'_>,
) -> Result<Read, RecoverError> {
    // Once the directory is locked, no other process touches the snapshots.
    let directory = DataDirectory::open(disk.clone(), data)?;
    let folder = Folder::new(disk, data);
    let began = Instant::now();
    folder.settle()?;
    let Ahead { snapshot: number, resumes, groups, .. } = match ahead {
        Some(ahead) => ahead,
        None => Ahead::of_snapshot(&folder, thread_count)?,
    };
    let snapshot_elapsed = began.elapsed();

    let progress = Progress::new();
    let (unopened, recovered) = if let [_] = groups.as_slice() {
        replay_alone(&directory, config, resumes, groups, progress, observer)?
    } else {
        replay_together(&directory, config, resumes, groups, progress, observer)?
    };
    let journal = unopened.report();
    let report = RecoverReport { snapshot: number, snapshot_elapsed, journal };
    Ok((unopened, recovered, report, folder))
}

/// The shards of one thread: every `count`-th shard, starting at the group's number.
pub(super) type Group = Vec<ShardState>;

/// Loads all shards, distributed over one group per thread.
pub(super) fn load(
    snapshot: Option<&Snapshot>,
    thread_count: NonZeroUsize,
) -> Result<Vec<Group>, LoadError> {
    let count = thread_count.get().min(SHARD_COUNT);
    let load_group = |group: usize| -> Result<Group, LoadError> {
        ShardId::all()
            .filter(|shard| shard.index() % count == group)
            .map(|shard| match snapshot {
                Some(snapshot) => snapshot.shard(shard),
                None => Ok(ShardState::new(shard)),
            })
            .collect()
    };
    if count == 1 || snapshot.is_none() {
        return (0..count).map(load_group).collect();
    }
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..count).map(|group| scope.spawn(move || load_group(group))).collect();
        threads.into_iter().map(joined).collect()
    })
}

/// The records of one shard in a batch, stored contiguously for the processor's prefetcher.
#[derive(Clone, Default)]
pub(super) struct Sorted {
    bytes: Vec<u8>,
    /// The position and length of each record.
    records: Vec<(u64, usize)>,
}

/// Applies the records of a group's shards, one shard after the other: the tables looked up for one
/// shard's records fit into caches that could not hold those of all shards.
pub(super) fn replay_batch(
    group: &mut Group,
    number: usize,
    count: usize,
    batch: &Batch,
    sorted: &mut Vec<Sorted>,
    observer: RecordObserver<'_>,
) -> Result<(), RecoverError> {
    sorted.resize_with(group.len(), Sorted::default);
    for (position, record) in batch.iter() {
        // An invalid record goes to the first shard, which reports the error.
        let shard = record::shard_of(record).map_or(0, ShardId::index);
        if shard % count == number {
            let sorted = &mut sorted[shard / count];
            sorted.bytes.extend_from_slice(record);
            sorted.records.push((position, record.len()));
        }
    }
    let mut ahead = Vec::with_capacity(RECORDS_AHEAD);
    for (shard, sorted) in group.iter_mut().zip(sorted) {
        let mut rest = sorted.bytes.as_slice();
        for records in sorted.records.chunks(RECORDS_AHEAD) {
            for &(position, length) in records {
                let (record, behind) = rest.split_at(length);
                ahead.push((position, record::decode(record)));
                rest = behind;
            }
            let decoded = ahead.iter().filter_map(|(_, record)| record.as_ref().ok());
            black_box(shard.state.prefetch(decoded.flat_map(|(_, events)| events)));
            for (position, record) in ahead.drain(..) {
                shard
                    .replay_decoded(record, observer)
                    .map_err(|reason| RecoverError::Replay { position, reason })?;
            }
        }
        sorted.records.clear();
        sorted.bytes.clear();
    }
    Ok(())
}

fn replay_alone(
    directory: &DataDirectory,
    config: &JournalConfig,
    resumes: Resumes,
    mut groups: Vec<Group>,
    mut progress: Progress,
    observer: RecordObserver<'_>,
) -> Result<(UnopenedJournal, Recovered), RecoverError> {
    let group = &mut groups[0];
    let mut sorted = Vec::new();
    let unopened = Journal::read(directory, config, resumes.mark, resumes.open, |batch| {
        progress.read(&batch);
        replay_batch(group, 0, 1, &batch, &mut sorted, observer)
    })?;
    Ok((unopened, gathered(groups)))
}

/// Stops the reader after another thread has refused a record. That thread's error is reported.
struct Interrupted;

fn replay_together(
    directory: &DataDirectory,
    config: &JournalConfig,
    resumes: Resumes,
    groups: Vec<Group>,
    mut progress: Progress,
    observer: RecordObserver<'_>,
) -> Result<(UnopenedJournal, Recovered), RecoverError> {
    let count = groups.len();
    thread::scope(|scope| {
        let (senders, threads): (Vec<SyncSender<Arc<Batch>>>, Vec<_>) = groups
            .into_iter()
            .enumerate()
            .map(|(number, mut group)| {
                let (sender, batches): (_, Receiver<Arc<Batch>>) = sync_channel(BATCHES_AHEAD_MAX);
                let thread = scope.spawn(move || {
                    let mut sorted = Vec::new();
                    for batch in batches {
                        replay_batch(&mut group, number, count, &batch, &mut sorted, observer)?;
                    }
                    Ok::<_, RecoverError>(group)
                });
                (sender, thread)
            })
            .unzip();
        let read = Journal::read(directory, config, resumes.mark, resumes.open, |batch| {
            progress.read(&batch);
            let batch = Arc::new(batch);
            senders
                .iter()
                .try_for_each(|sender| sender.send(batch.clone()).map_err(|_| Interrupted))
        });
        drop(senders);
        // A thread that refused a record also stopped the reading, so report the thread's error.
        let groups =
            threads.into_iter().map(joined).collect::<Result<Vec<Group>, RecoverError>>()?;
        let unopened = read.map_err(|error| match error {
            ReadError::Journal(error) => RecoverError::from(error),
            ReadError::Stopped(Interrupted) => unreachable!("each thread took all of its batches"),
        })?;
        Ok((unopened, gathered(groups)))
    })
}

fn gathered(groups: Vec<Group>) -> Recovered {
    let count = groups.len();
    let mut groups: Vec<_> = groups.into_iter().map(Vec::into_iter).collect();
    let next = |shard: usize| groups[shard % count].next().expect("each group holds its shards");
    Recovered { shards: (0..SHARD_COUNT).map(next).collect() }
}

pub(super) fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Logs the progress of a long recovery.
struct Progress {
    logged_at: Instant,
    records: u64,
}

impl Progress {
    fn new() -> Self {
        Self { logged_at: Instant::now(), records: 0 }
    }

    fn read(&mut self, batch: &Batch) {
        self.records += batch.records().len() as u64;
        if self.logged_at.elapsed() >= PROGRESS_INTERVAL {
            tracing::info!(segment = batch.segment(), records = self.records, "recovering");
            self.logged_at = Instant::now();
        }
    }
}
