//! Where each shard's records are, in segments that were read once: so one shard after the other
//! can be brought up to date, and no more than one is in memory.

use std::path::PathBuf;

use super::replay::{ReplayError, ShardState};
use crate::disk::{DiskError, DiskFile};
use crate::ids::{SHARD_COUNT, ShardId};
use crate::journal::{Batch, record};

/// Between two steps at most so many records are worked on.
pub(super) const ROWS_PER_STEP: usize = 64;

/// The records of each shard in order, and the files that they are in.
pub(crate) struct RecordIndex {
    files: Vec<DiskFile>,
    records: Vec<Vec<Entry>>,
}

/// Where a record is: 12 bytes, since there is one for each record.
#[derive(Clone, Copy)]
struct Entry {
    file: u32,
    offset: u32,
    bytes: u32,
}

/// A record that does not follow from those before it.
#[derive(Debug)]
pub(crate) struct RefusedRecord {
    /// The segment.
    pub(crate) path: PathBuf,
    /// Where in it the record begins.
    pub(crate) offset: u64,
    /// Why.
    pub(crate) reason: ReplayError,
}

impl RecordIndex {
    pub(crate) fn new() -> Self {
        Self { files: Vec::new(), records: vec![Vec::new(); SHARD_COUNT] }
    }

    /// Notes the records of the next segment, which is this file. `step` is called now and then.
    pub(crate) fn add<E>(
        &mut self,
        batch: &Batch,
        file: DiskFile,
        mut step: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let number = u32::try_from(self.files.len()).expect("a process has fewer files open");
        for (row, &at) in batch.records().iter().enumerate() {
            // What is not a shard's record is found out when it is replayed.
            let shard = record::shard_of(batch.record(at)).map_or(0, ShardId::index);
            let entry = Entry { file: number, offset: at.offset, bytes: at.bytes };
            self.records[shard].push(entry);
            if row % ROWS_PER_STEP == 0 {
                step()?;
            }
        }
        self.files.push(file);
        Ok(())
    }

    /// How many records the shard has.
    pub(crate) fn count(&self, shard: ShardId) -> u64 {
        self.records[shard.index()].len() as u64
    }

    /// Applies the records of a shard to its state. `step` is called now and then.
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
