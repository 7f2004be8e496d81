//! Locates each shard's records in segments that were read once, so that shards can be brought up
//! to date one after the other, with only one in memory.

use std::path::PathBuf;

use super::replay::{ReplayError, ShardState};
use crate::disk::{DiskError, DiskFile};
use crate::journal::{Batch, record};
use paperbourse_core::ids::{SHARD_COUNT, ShardId};

/// Maximum number of records processed between two steps.
pub(super) const ROWS_PER_STEP: usize = 64;

/// The locations of each shard's records, in order, and the files that hold them.
pub(crate) struct RecordIndex {
    files: Vec<DiskFile>,
    records: Vec<Vec<Entry>>,
}

/// Location of a record. Kept to 12 bytes, since there is one for each record.
#[derive(Clone, Copy)]
struct Entry {
    file: u32,
    offset: u32,
    bytes: u32,
}

/// A record that cannot be applied to the state before it.
#[derive(Debug)]
pub(crate) struct RefusedRecord {
    /// The segment.
    pub(crate) path: PathBuf,
    /// File offset of the record.
    pub(crate) offset: u64,
    /// The reason.
    pub(crate) reason: ReplayError,
}

impl RecordIndex {
    pub(crate) fn new() -> Self {
        Self { files: Vec::new(), records: vec![Vec::new(); SHARD_COUNT] }
    }

    /// Begins the next segment, stored in `file`.
    pub(crate) fn open(&mut self, file: DiskFile) {
        self.files.push(file);
    }

    /// Adds records of the newest segment passed to [`Self::open`]. Calls `step` regularly.
    pub(crate) fn add<E>(
        &mut self,
        batch: &Batch,
        mut step: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let number = self.files.len().checked_sub(1).expect("a segment was begun");
        let number = u32::try_from(number).expect("a process has fewer open files");
        for (row, &at) in batch.records().iter().enumerate() {
            // An invalid record is reported when it is replayed.
            let shard = record::shard_of(batch.record(at)).map_or(0, ShardId::index);
            let entry = Entry { file: number, offset: at.offset, bytes: at.bytes };
            self.records[shard].push(entry);
            if row % ROWS_PER_STEP == 0 {
                step()?;
            }
        }
        Ok(())
    }

    /// Returns the number of records of the shard.
    pub(crate) fn count(&self, shard: ShardId) -> u64 {
        self.records[shard.index()].len() as u64
    }

    /// Applies the records of a shard to its state. Calls `step` regularly.
    pub(crate) fn replay<E: From<DiskError> + From<RefusedRecord>>(
        &self,
        state: &mut ShardState,
        mut step: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut bytes = Vec::new();
        for (row, at) in self.records[state.state.shard().index()].iter().enumerate() {
            let file = &self.files[at.file as usize];
            let offset = at.offset.into();
            bytes.resize(at.bytes as usize, 0);
            file.read_at(&mut bytes, offset)?;
            state.replay(&bytes).map_err(|reason| {
                let path = file.path().to_path_buf();
                RefusedRecord { path, offset, reason }
            })?;
            if row % ROWS_PER_STEP == 0 {
                step()?;
            }
        }
        Ok(())
    }
}
