//! Reads a data directory ahead of startup, while another process still writes to it. Startup then
//! reads only the records written since.
//!
//! Nothing here takes the lock or changes a file. The newest segment, which the other process is
//! still writing, is read again at startup: it must still contain the last block applied here, and
//! only the records after that block are applied.

use std::io;
use std::num::NonZeroUsize;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::folder::Folder;
use super::load::{LoadError, Snapshot};
use super::recover::{Group, RecoverError, joined, load, replay_batch};
use crate::disk::{Disk, DiskError};
use crate::journal::{
    Batch, ChainMark, JournalMark, OpenError, Patience, READING_PAUSE, SegmentReader, segment_name,
};
use paperbourse_core::engine::State;

/// Maximum number of attempts when files disappear: segments move to the archive and are later
/// removed.
const ATTEMPTS_MAX: usize = 5;

/// The states of all shards at the end of a block.
pub struct Ahead {
    pub(super) groups: Vec<Group>,
    /// The last segment that the snapshot covers. `None` if there is no snapshot.
    pub(super) snapshot: Option<u64>,
    /// The point in the journal where reading resumes.
    pub(super) resumes: Resumes,
    /// Number of records read after the snapshot.
    pub records: u64,
    /// Time taken to read the snapshot and the records.
    pub elapsed: Duration,
}

/// The point in the journal where reading resumes: after a closed segment, and after a block of the
/// next segment.
#[derive(Clone, Copy)]
pub(super) struct Resumes {
    /// The end of the last closed segment; `None` if no segment has been closed yet.
    pub(super) mark: Option<JournalMark>,
    /// The last applied block of the next segment. `None` if none of its blocks was applied.
    pub(super) open: Option<ChainMark>,
}

impl Resumes {
    /// Returns the position of the last applied record; 0 if there is none.
    pub(super) fn position(&self) -> u64 {
        let chain = self.open.or(self.mark.map(|mark| mark.chain));
        chain.map_or(0, |chain| chain.position)
    }
}

impl Ahead {
    /// Loads the newest snapshot, or starts from an empty journal, with one group for each of
    /// `thread_count` threads.
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

    /// Applies a batch to all groups in parallel.
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

    /// Returns the greatest epoch of any record; 0 if there are no records.
    #[cfg(feature = "cluster")]
    pub fn newest_epoch(&self) -> u64 {
        self.groups.iter().flatten().map(|shard| shard.epoch).max().unwrap_or_default()
    }

    /// Returns the states, in any order.
    pub fn states(&self) -> impl Iterator<Item = &State> {
        self.groups.iter().flatten().map(|shard| &shard.state)
    }
}

/// Loads the newest snapshot and all records after it, with `thread_count` threads.
pub fn read_ahead(
    disk: Disk,
    data: &Path,
    thread_count: NonZeroUsize,
) -> Result<Ahead, RecoverError> {
    let folder = Folder::new(disk, data);
    let mut pause = || thread::sleep(READING_PAUSE);
    for _ in 1..ATTEMPTS_MAX {
        match read(&folder, thread_count, &mut pause) {
            Err(error) if is_gone(&error) => {}
            result => return result,
        }
    }
    read(&folder, thread_count, &mut pause)
}

/// Makes one attempt to read, and calls `pause` between two readings of the newest segment.
pub(super) fn read(
    folder: &Folder,
    thread_count: NonZeroUsize,
    pause: &mut impl FnMut(),
) -> Result<Ahead, RecoverError> {
    let began = Instant::now();
    let mut ahead = Ahead::of_snapshot(folder, thread_count)?;
    let mut reader = SegmentReader::after(ahead.resumes.mark);
    let mut segment = ahead.snapshot.unwrap_or(0) + 1;
    let mut patience = Patience::default();
    loop {
        // A segment is closed once the next one has a block.
        while is_begun(folder, segment + 1)? {
            let path = folder.segment_path(segment)?.ok_or_else(|| OpenError::MissingSegment {
                path: folder.journal().join(segment_name(segment)),
            })?;
            let mut apply = |batch| ahead.apply(&batch);
            reader.read_closed_in_pieces(&folder.disk, &path, segment, &mut apply)?;
            let end = reader.end();
            ahead.resumes.mark = end.map(|(log, chain)| JournalMark { log, segment, chain });
            segment += 1;
            patience = Patience::default();
        }
        match read_newest(folder, &reader, segment) {
            Ok(batch) => {
                if let Some(batch) = batch {
                    ahead.apply(&batch)?;
                    ahead.resumes.open = Some(batch.after());
                }
                break;
            }
            // The segment was closed in the meantime.
            Err(_) if is_begun(folder, segment + 1)? => {}
            Err(error) if !is_damage(&error) => return Err(error),
            Err(error) if !patience.has_seen(error.to_string()) => pause(),
            Err(error) if patience.is_settled() => return Err(error),
            Err(reason) => {
                let attempts = patience.readings();
                tracing::warn!(
                    attempts,
                    %reason,
                    "cannot read the newest journal segment ahead of the start: it keeps changing"
                );
                break;
            }
        }
    }
    ahead.elapsed = began.elapsed();
    Ok(ahead)
}

fn is_begun(folder: &Folder, segment: u64) -> Result<bool, RecoverError> {
    let Some(path) = folder.segment_path(segment)? else { return Ok(false) };
    Ok(SegmentReader::is_begun(&folder.disk, &path)?)
}

/// Reads the complete blocks of the segment that is being written. Returns `None` if it has no
/// complete block. The preallocated segments after it must be blank.
fn read_newest(
    folder: &Folder,
    reader: &SegmentReader,
    segment: u64,
) -> Result<Option<Batch>, RecoverError> {
    let Some(path) = folder.segment_path(segment)? else { return Ok(None) };
    let mut reader = reader.clone();
    let batch = reader.read_open(&folder.disk, &path, segment)?.batch;
    let mut blank = segment + 1;
    while let Some(path) = folder.segment_path(blank)? {
        reader.read_open(&folder.disk, &path, blank)?;
        blank += 1;
    }
    Ok(Some(batch).filter(|batch| batch.blocks() > 0))
}

/// Whether the error may come from a block that was being written during the read. Real damage
/// looks the same.
const fn is_damage(error: &RecoverError) -> bool {
    matches!(error, RecoverError::Journal(OpenError::Damaged { .. }))
}

/// Whether the error is a missing file, which another process may have moved or removed.
fn is_gone(error: &RecoverError) -> bool {
    let is_not_found = |error: &DiskError| error.source.kind() == io::ErrorKind::NotFound;
    match error {
        RecoverError::Journal(OpenError::MissingSegment { .. }) => true,
        RecoverError::Journal(OpenError::Disk(error))
        | RecoverError::Snapshot(LoadError::Disk(error)) => is_not_found(error),
        _ => false,
    }
}
