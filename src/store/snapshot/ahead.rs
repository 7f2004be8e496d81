//! Reads a data directory ahead of a start, while another process still writes to it. The start
//! itself then only reads what came since.
//!
//! Nothing here takes the lock or changes a file. The newest segment, which the other process is
//! still writing, is read again by the start: it must still contain the last block applied here,
//! and only what follows is applied.

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

/// Maximum number of attempts if files disappear: they move to the archive, and from there away.
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
    /// The end of the last closed segment; `None` if no segment has been closed yet.
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

    /// The greatest epoch of a record; 0 if there are none.
    #[cfg(feature = "cluster")]
    pub fn newest_epoch(&self) -> u64 {
        self.groups.iter().flatten().map(|shard| shard.epoch).max().unwrap_or_default()
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
    let mut pause = || thread::sleep(READING_PAUSE);
    for _ in 1..ATTEMPTS_MAX {
        match read(&folder, thread_count, &mut pause) {
            Err(error) if is_gone(&error) => {}
            result => return result,
        }
    }
    read(&folder, thread_count, &mut pause)
}

/// Reads once, and calls `pause` between two readings of the newest segment.
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
        // It is closed once the next one is begun.
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
            // It was closed meanwhile.
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

/// The complete blocks of the segment that is being written. `None` if there are none. Those made
/// ahead must be blank.
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

/// Whether a segment held what a reader may see while a block is written, besides real damage.
const fn is_damage(error: &RecoverError) -> bool {
    matches!(error, RecoverError::Journal(OpenError::Damaged { .. }))
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
