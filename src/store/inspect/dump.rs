//! Lists all records of the journal.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use super::describe::RecordRow;
use super::walk::{self, Gone};
use super::{InspectError, folder};
use crate::journal::Batch;
use crate::snapshot::{Folder, LoadError, Snapshot};
use paperbourse_core::engine::UsedMarket;
use paperbourse_core::engine::event::Event;
use paperbourse_core::ids::{MarketIndex, SHARD_COUNT, ShardId};

/// Error that ended a dump early.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The journal could not be read.
    #[error(transparent)]
    Inspect(#[from] InspectError),
    /// The records could not be written to the output.
    #[error("failed to write the records")]
    Output(#[source] io::Error),
}

/// Passes the records to `show`, archived ones included, from position `from` or the oldest
/// existing record onwards. An order's market is named if its name can still be found.
pub fn dump(
    directory: &Path,
    from: u64,
    mut show: impl FnMut(&RecordRow<'_>) -> io::Result<()>,
) -> Result<(), DumpError> {
    let folder = folder(directory)?;
    let mut markets =
        Markets { folder: &folder, shards: vec![ShardMarkets::default(); SHARD_COUNT] };
    let mut next = from;
    let mut show_batch = |batch: &Batch| -> Result<(), DumpError> {
        for ((position, _), &at) in batch.iter().zip(batch.records()) {
            let (header, events) = walk::decode(&folder, batch, at)?;
            for event in &events {
                markets.learn(header.shard, event);
            }
            if position >= next {
                let market = |index| markets.find(header.shard, index);
                let row = RecordRow::new(position, &header, &events, market);
                show(&row).map_err(DumpError::Output)?;
                next = position + 1;
            }
        }
        Ok(())
    };
    // Records that left the archive during the dump are skipped; later ones are still shown.
    walk::start_over_when_gone(|| {
        let first = walk::first_segment(&folder)?;
        walk::read_to_end(&folder, walk::reader_from(first), first, &mut show_batch).map(drop)
    })
}

impl Gone for DumpError {
    fn is_gone(&self) -> bool {
        matches!(self, Self::Inspect(error) if error.is_gone())
    }
}

/// Resolves the market indexes of shards: from the records read so far or, if the record that names
/// a market is gone, from the snapshot.
struct Markets<'a> {
    folder: &'a Folder,
    shards: Vec<ShardMarkets>,
}

#[derive(Clone, Default)]
struct ShardMarkets {
    known: HashMap<MarketIndex, UsedMarket>,
    is_snapshot_read: bool,
}

impl Markets<'_> {
    fn learn(&mut self, shard: ShardId, event: &Event) {
        if let Event::MarketIntroduced { index, condition_id, outcomes } = event {
            let market =
                UsedMarket { condition_id: condition_id.clone(), outcomes: outcomes.clone() };
            self.shards[shard.index()].known.insert(*index, market);
        }
    }

    fn find(&mut self, shard: ShardId, index: MarketIndex) -> Option<UsedMarket> {
        let markets = &mut self.shards[shard.index()];
        if !markets.known.contains_key(&index) && !markets.is_snapshot_read {
            markets.is_snapshot_read = true;
            // An unreadable snapshot is not an error here: reporting it is up to `verify`.
            for (index, market) in (0..).zip(of_snapshot(self.folder, shard).unwrap_or_default()) {
                markets.known.entry(MarketIndex(index)).or_insert(market);
            }
        }
        markets.known.get(&index).cloned()
    }
}

fn of_snapshot(folder: &Folder, shard: ShardId) -> Result<Vec<UsedMarket>, LoadError> {
    match Snapshot::newest(folder)? {
        Some(snapshot) => Ok(snapshot.shard(shard)?.state.markets().to_vec()),
        None => Ok(Vec::new()),
    }
}
