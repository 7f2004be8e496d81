//! Reads a data directory ahead of a start, while another process still writes to it. The start
//! itself then only reads what came since.
//!
//! Nothing here takes the lock or changes a file. Of the newest segment, in which the other process
//! writes, the start reads everything again, and applies what was not there before: it must find
//! the last block that was applied here.

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
use crate::journal::{Batch, ChainMark, JournalMark, OpenError, SegmentReader, segment_name};

/// Maximum number of attempts if files disappear: they move to the archive, and from there away.
/// Also of those to read the newest segment, in which a reader can see a block without the one
/// before it.
const ATTEMPTS_MAX: usize = 5;

/// The states at the end of a block.
pub struct Ahead {
    pub(super) groups: Vec<Group>,
    /// The last segment that the snapshot covers. `None` if there is no snapshot.
    pub(super) snapshot: Option<u64>,
    /// Where the journal is read on.
    pub(super) resumes: Resumes,
    /// How many records were read.
    pub records: u64,
    /// How long it took.
    pub elapsed: Duration,
}

/// Where the journal is read on: after a closed segment, and after a block of the next segment.
#[derive(Clone, Copy)]
pub(super) struct Resumes {
    /// The end of the last closed segment. `None` if nothing was closed yet.
    pub(super) mark: Option<JournalMark>,
    /// The last block that was applied of the next segment. `None` if none was.
    pub(super) open: Option<ChainMark>,
}

impl Resumes {
    /// The position of the last record that was applied; 0 if none was.
    pub(super) fn position(&self) -> u64 {
        let chain = self.open.or(self.mark.map(|mark| mark.chain));
        chain.map_or(0, |chain| chain.position)
    }
}

impl Ahead {
    /// The states of the newest snapshot, or those of an empty journal, for `thread_count` threads.
    pub(super) fn of_snapshot(
        folder: &Folder,
        thread_count: NonZeroUsize,
    ) -> Result<Self, RecoverError> {
        let began = Instant::now();
        let snapshot = Snapshot::newest(folder)?;
        let groups = load(snapshot.as_ref(), thread_count)?;
        let (number, mark) = (snapshot.as_ref().map(|s| s.number), snapshot.map(|s| s.mark()));
        let resumes = Resumes { mark, open: None };
        let elapsed = began.elapsed();
        Ok(Self { groups, snapshot: number, resumes, records: 0, elapsed })
    }

    /// Applies a batch to all groups at the same time.
    fn apply(&mut self, batch: &Batch) -> Result<(), RecoverError> {
        self.records += batch.records().len() as u64;
        let count = self.groups.len();
        thread::scope(|scope| {
            let threads: Vec<_> = self
                .groups
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

    /// The states, in any order.
    pub fn states(&self) -> impl Iterator<Item = &State> {
        self.groups.iter().flatten().map(|shard| &shard.state)
    }
}

/// Loads the newest snapshot and everything after it, with `thread_count` threads.
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
    let mut ahead = Ahead::of_snapshot(folder, thread_count)?;
    let mut reader = SegmentReader::after(ahead.resumes.mark);
    let mut segment = ahead.snapshot.unwrap_or(0) + 1;
    // It is closed once the next one is begun.
    while is_begun(folder, segment + 1)? {
        let path = folder.segment_path(segment)?.ok_or_else(|| OpenError::MissingSegment {
            path: folder.journal().join(segment_name(segment)),
        })?;
        let batch = reader.read_closed(&folder.disk, &path, segment)?;
        ahead.apply(&batch)?;
        let end = reader.end();
        ahead.resumes.mark = end.map(|(log, chain)| JournalMark { log, segment, chain });
        segment += 1;
    }
    if let Some(batch) = read_newest(folder, &reader, segment)? {
        ahead.apply(&batch)?;
        ahead.resumes.open = Some(batch.after());
    }
    ahead.elapsed = began.elapsed();
    Ok(ahead)
}

fn is_begun(folder: &Folder, segment: u64) -> Result<bool, RecoverError> {
    let Some(path) = folder.segment_path(segment)? else { return Ok(false) };
    Ok(SegmentReader::is_begun(&folder.disk, &path)?)
}

/// The complete blocks of the segment that is being written. `None` if there are none, or if the
/// segment cannot be read: what is wrong with it is said by the start, which reads it once more.
fn read_newest(
    folder: &Folder,
    reader: &SegmentReader,
    segment: u64,
) -> Result<Option<Batch>, RecoverError> {
    for _ in 0..ATTEMPTS_MAX {
        let Some(path) = folder.segment_path(segment)? else { break };
        if let Ok(open) = reader.clone().read_open(&folder.disk, &path, segment) {
            return Ok(Some(open.batch).filter(|batch| batch.blocks() > 0));
        }
    }
    Ok(None)
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
