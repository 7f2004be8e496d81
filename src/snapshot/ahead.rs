//! Reads a data directory ahead of a start, while another process still writes to it. The start
//! itself then only reads what came since.
//!
//! Nothing here takes the lock or changes a file. Only closed segments are read: the newest one is
//! left to the start.

use std::io;
use std::num::NonZeroUsize;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::folder::Folder;
use super::load::{LoadError, Snapshot};
use super::recover::{Group, RecoverError, joined, load, replay_batch};
use crate::disk::{Disk, DiskError};
use crate::engine::State;
use crate::journal::{Batch, JournalMark, OpenError, SegmentReader, segment_name};

/// Maximum number of attempts if files disappear: they move to the archive, and from there away.
const ATTEMPTS_MAX: usize = 5;

/// The states at the end of a closed segment.
pub struct Ahead {
    pub(super) groups: Vec<Group>,
    /// The last segment that the snapshot covers. `None` if there is no snapshot.
    pub(super) snapshot: Option<u64>,
    /// Where the journal continues. `None` if nothing was closed yet.
    pub(super) mark: Option<JournalMark>,
    /// How many records were read.
    pub records: u64,
    /// How long it took.
    pub elapsed: Duration,
}

impl Ahead {
    /// The states, in any order.
    pub fn states(&self) -> impl Iterator<Item = &State> {
        self.groups.iter().flatten().map(|shard| &shard.state)
    }
}

/// Loads the newest snapshot and the closed segments after it, with `thread_count` threads.
pub fn read_ahead(
    disk: Disk,
    data: &Path,
    thread_count: NonZeroUsize,
) -> Result<Ahead, RecoverError> {
    let folder = Folder::new(disk, data);
    for _ in 1..ATTEMPTS_MAX {
        match read(&folder, thread_count) {
            Err(error) if is_gone(&error) => {}
            result => return result,
        }
    }
    read(&folder, thread_count)
}

fn read(folder: &Folder, thread_count: NonZeroUsize) -> Result<Ahead, RecoverError> {
    let began = Instant::now();
    let snapshot = Snapshot::newest(folder)?;
    let mut groups = load(snapshot.as_ref(), thread_count)?;
    let (number, mut mark) =
        (snapshot.as_ref().map(|s| s.number), snapshot.as_ref().map(Snapshot::mark));
    let mut reader = SegmentReader::after(mark);
    let mut records = 0;
    for segment in number.unwrap_or(0) + 1.. {
        // It is closed once the next one is begun.
        let Some(next) = folder.segment_path(segment + 1)? else { break };
        if !SegmentReader::is_begun(&folder.disk, &next)? {
            break;
        }
        let path = folder.segment_path(segment)?.ok_or_else(|| OpenError::MissingSegment {
            path: folder.journal().join(segment_name(segment)),
        })?;
        let batch = reader.read_closed(&folder.disk, &path, segment)?;
        records += batch.records().len() as u64;
        replay(&mut groups, &batch)?;
        mark = reader.end().map(|(log, chain)| JournalMark { log, segment, chain });
    }
    Ok(Ahead { groups, snapshot: number, mark, records, elapsed: began.elapsed() })
}

/// Applies a batch to all groups at the same time.
fn replay(groups: &mut [Group], batch: &Batch) -> Result<(), RecoverError> {
    let count = groups.len();
    thread::scope(|scope| {
        let threads: Vec<_> = groups
            .iter_mut()
            .enumerate()
            .map(|(number, group)| {
                scope.spawn(move || {
                    replay_batch(group, number, count, batch, &mut Vec::new(), &|_, _| {})
                })
            })
            .collect();
        threads.into_iter().try_for_each(joined)
    })
}

/// Whether a file was missing that another process may have moved or removed.
fn is_gone(error: &RecoverError) -> bool {
    let is_not_found = |error: &DiskError| error.source.kind() == io::ErrorKind::NotFound;
    match error {
        RecoverError::Journal(OpenError::MissingSegment { .. }) => true,
        RecoverError::Journal(OpenError::Disk(error))
        | RecoverError::Snapshot(LoadError::Disk(error)) => is_not_found(error),
        _ => false,
    }
}
