//! The fold: builds the next snapshot from the newest one and the segments closed since.
//!
//! It reads only files, so the shards never wait for it, and each fold is a recovery: if a state
//! does not match the hashes that its shard wrote into the journal, the fold fails and leaves the
//! files unchanged.
//!
//! The segments are read once, to check their chain and index each shard's records. Then the shards
//! are rebuilt one after the other, so only one is in memory at a time.

use std::path::PathBuf;

use super::container::{self, ContainerError, Header, Kind};
use super::folder::Folder;
use super::index::{ROWS_PER_STEP, RecordIndex, RefusedRecord};
use super::load::{LoadError, Snapshot};
use super::manifest::{Manifest, ORDER_FILE_COUNT_MAX, OrderFile};
use super::pace::{Pace, Stopped};
use super::replay::{ReplayError, ShardState};
use super::state;
use crate::disk::{DiskError, temporary_name};
use crate::journal::{Batch, ChainMark, LogId, OpenError, SegmentReader};
use paperbourse_core::ids::ShardId;

/// Forgotten orders, which no account keeps, stay in the order files until they outnumber both the
/// kept orders and this minimum.
const FORGOTTEN_ORDERS_MIN: u64 = 10_000;

/// Error that ended a fold. The old snapshot and the segments are unchanged.
#[derive(Debug, thiserror::Error)]
pub enum FoldError {
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The previous snapshot cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A segment cannot be read.
    #[error(transparent)]
    Journal(#[from] OpenError),
    /// A segment to be covered is neither in the journal nor in the archive.
    #[error("segment {number} is missing")]
    Missing {
        /// The number of the segment.
        number: u64,
    },
    /// A record cannot be applied to the state before it.
    #[error("{} at offset {offset}: {reason}", path.display())]
    Replay {
        /// The segment.
        path: PathBuf,
        /// File offset of the record.
        offset: u64,
        /// The reason.
        reason: ReplayError,
    },
    /// The fold was stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl From<RefusedRecord> for FoldError {
    fn from(refused: RefusedRecord) -> Self {
        let RefusedRecord { path, offset, reason } = refused;
        Self::Replay { path, offset, reason }
    }
}

impl From<ContainerError> for FoldError {
    fn from(error: ContainerError) -> Self {
        Self::Load(error.into())
    }
}

/// The result of a fold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoldReport {
    /// The number of the snapshot: the last segment that it covers.
    pub number: u64,
    /// Number of records folded in.
    pub records: u64,
    /// Number of bytes written.
    pub bytes: u64,
}

/// The closed segments, with the records of each shard indexed.
struct Closed {
    records: RecordIndex,
    chain: ChainMark,
    log: LogId,
}

/// Folds the segments after the newest snapshot, up to and including the closed segment `through`,
/// into a new snapshot.
pub(super) fn fold(
    folder: &Folder,
    through: u64,
    pace: &mut dyn Pace,
) -> Result<FoldReport, FoldError> {
    let before = Snapshot::newest(folder)?;
    let closed = read_closed(folder, before.as_ref(), through, pace)?;
    let old_files = before.as_ref().map_or(&[][..], |snapshot| &snapshot.manifest.order_files);
    let mut rewrites_orders = before.as_ref().is_some_and(|snapshot| {
        let rows: u64 = old_files.iter().map(|file| file.rows).sum();
        let forgotten = rows.saturating_sub(snapshot.manifest.orders_kept);
        old_files.len() >= ORDER_FILE_COUNT_MAX
            || forgotten > snapshot.manifest.orders_kept.max(FORGOTTEN_ORDERS_MIN)
    });

    folder.disk.create_directory(&folder.snapshots())?;
    loop {
        let from = (before.as_ref(), rewrites_orders);
        match write(folder, through, from, &closed, pace)? {
            Some(report) => return Ok(report),
            // The old order files hold orders of an account that has been erased since.
            None => rewrites_orders = true,
        }
    }
}

/// Writes snapshot number `through` and its order file. The order file holds all orders, or only
/// those that finished since the previous snapshot. Returns `None` if all orders have to be
/// rewritten because an account was erased.
fn write(
    folder: &Folder,
    through: u64,
    (before, rewrites_orders): (Option<&Snapshot>, bool),
    closed: &Closed,
    pace: &mut dyn Pace,
) -> Result<Option<FoldReport>, FoldError> {
    let old_files = before.map_or(&[][..], |snapshot| &snapshot.manifest.order_files);
    let disk = &folder.disk;
    let paths = [folder.snapshot_path(through), folder.orders_path(through)];
    let temporary = paths.each_ref().map(|path| temporary_name(path));
    let header = |kind| Header { kind, log: closed.log, number: through };
    let mut states = container::Writer::create(disk, &temporary[0], header(Kind::Snapshot))?;
    let mut orders = container::Writer::create(disk, &temporary[1], header(Kind::Orders))?;
    let mut orders_kept = 0;
    let mut order_rows = 0;
    let mut section = Vec::new();
    for shard in ShardId::all() {
        let mut folded = match before {
            Some(snapshot) => snapshot.shard(shard)?,
            None => ShardState::new(shard),
        };
        let written_before: Vec<u64> = if rewrites_orders {
            Vec::new()
        } else {
            folded.state.accounts().map(|account| account.order_count_ever).collect()
        };
        let erased_before = folded.state.erased_count();
        closed.records.replay(&mut folded, || Ok::<_, FoldError>(pace.step()?))?;
        // Orders of an erased account must not survive in the old order files.
        if !rewrites_orders && !old_files.is_empty() && folded.state.erased_count() > erased_before
        {
            return Ok(None);
        }

        section.clear();
        order_rows += encode_orders(&folded, &written_before, &mut section, pace)?;
        orders_kept += folded.state.orders_kept();
        orders.section(&section, || Ok::<_, FoldError>(pace.step()?))?;
        section.clear();
        state::encode(&folded, &mut section);
        states.section(&section, || Ok::<_, FoldError>(pace.step()?))?;
        pace.step()?;
    }
    let order_bytes = orders.finish()?;
    let mut order_files = if rewrites_orders { Vec::new() } else { old_files.to_vec() };
    order_files.push(OrderFile { number: through, bytes: order_bytes, rows: order_rows });
    let manifest = Manifest { chain: closed.chain, orders_kept, order_files };
    section.clear();
    manifest.encode(&mut section);
    states.section(&section, || Ok::<_, FoldError>(pace.step()?))?;
    let state_bytes = states.finish()?;

    // The order file first: once the snapshot has its name, every file that it refers to must be on
    // disk.
    for at in [1, 0] {
        disk.rename(&temporary[at], &paths[at])?;
        disk.sync_directory(&folder.snapshots())?;
    }
    let records = ShardId::all().map(|shard| closed.records.count(shard)).sum();
    Ok(Some(FoldReport { number: through, records, bytes: state_bytes + order_bytes }))
}

/// Reads the closed segments after a snapshot and indexes each shard's records.
fn read_closed(
    folder: &Folder,
    before: Option<&Snapshot>,
    through: u64,
    pace: &mut dyn Pace,
) -> Result<Closed, FoldError> {
    let first = before.map_or(1, |snapshot| snapshot.number + 1);
    let mut reader = SegmentReader::after(before.map(Snapshot::mark));
    let mut records = RecordIndex::new();
    for number in first..=through {
        let path = folder.segment_path(number)?.ok_or(FoldError::Missing { number })?;
        records.open(folder.disk.open_read(&path)?);
        let mut add = |batch: Batch| Ok::<_, FoldError>(records.add(&batch, || pace.step())?);
        reader.read_closed_in_pieces(&folder.disk, &path, number, &mut add)?;
    }
    let (log, chain) = reader.end().expect("at least one segment is folded");
    Ok(Closed { records, chain, log })
}

/// Writes the kept orders that finished since the previous snapshot. `written_before` is, for each
/// account, the number of all orders that had finished by then. Returns the number of orders
/// written.
fn encode_orders(
    folded: &ShardState,
    written_before: &[u64],
    out: &mut Vec<u8>,
    pace: &mut dyn Pace,
) -> Result<u64, FoldError> {
    let state = &folded.state;
    let mut rows = 0;
    let before = written_before.iter().copied().chain(std::iter::repeat(0));
    for (account, before) in state.accounts().zip(before) {
        let finished = account.order_count_ever.saturating_sub(before);
        let finished = usize::try_from(finished).unwrap_or(usize::MAX);
        for order in state.newest_orders_of(account.id, finished) {
            state::encode_order(&order, out);
            rows += 1;
            if rows % ROWS_PER_STEP as u64 == 0 {
                pace.step()?;
            }
        }
    }
    Ok(rows)
}
