//! Statistics of a data directory.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::Serialize;

use super::text::{Grouped, Text, count, run};
use super::{InspectError, describe, folder, walk};
use crate::journal::Batch;
use crate::journal::record::{self, RecordHeader};
use crate::snapshot::{Folder, Snapshot};
use paperbourse_core::engine::State;
use paperbourse_core::engine::event::Event;
use paperbourse_core::ids::{SHARD_COUNT, ShardId, Timestamp};

/// Statistics of a data directory, from its oldest record onwards.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Stats {
    /// Segments in the journal that hold records.
    pub live: Files,
    /// Segments in the archive.
    pub archived: Files,
    /// Preallocated segments.
    pub prepared: Files,
    /// Bytes used in live and archived segments.
    pub used_bytes: u64,
    /// Number of times the server was started.
    pub starts: u64,
    /// Number of blocks with records. Each was one write to the disk.
    pub blocks: u64,
    /// Number of records in the fullest block.
    pub block_records_max: u64,
    /// Number of records.
    pub records: u64,
    /// Position of the oldest record.
    pub first_position: Option<u64>,
    /// Position of the newest record.
    pub last_position: Option<u64>,
    /// Epoch of the oldest record.
    pub first_epoch: Option<u64>,
    /// Epoch of the newest record.
    pub last_epoch: Option<u64>,
    /// Decision time of the oldest record.
    pub first_time: Option<Text<Timestamp>>,
    /// Decision time of the newest record.
    pub last_time: Option<Text<Timestamp>>,
    /// Smallest number of records in any shard.
    pub shard_records_min: u64,
    /// Largest number of records in any shard.
    pub shard_records_max: u64,
    /// Events by kind, named as in `journal dump`.
    pub events: BTreeMap<&'static str, EventStats>,
    /// The newest snapshot.
    pub snapshot: Option<SnapshotStats>,
}

/// Number and total size of files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Files {
    /// Number of files.
    pub count: u64,
    /// Total size, in bytes.
    pub bytes: u64,
}

/// Number and total size of the events of one kind, without framing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct EventStats {
    /// Number of events.
    pub count: u64,
    /// Total size, in bytes.
    pub bytes: u64,
}

/// Statistics of a snapshot that was read completely.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct SnapshotStats {
    /// The last segment that the snapshot covers.
    pub segment: u64,
    /// Number of accounts.
    pub accounts: u64,
    /// Number of keys, including expired and revoked ones.
    pub keys: u64,
    /// Number of orders.
    pub orders: u64,
    /// Total size of the snapshot's files, in bytes.
    pub bytes: u64,
}

/// Reads a whole data directory and counts its contents.
pub fn stats(directory: &Path) -> Result<Stats, InspectError> {
    let folder = folder(directory)?;
    walk::start_over_when_gone(|| {
        let mut counter = Counter::new(&folder);
        let first = walk::first_segment(&folder)?;
        let show = &mut |batch: &Batch| counter.add(batch);
        let end = walk::read_to_end(&folder, walk::reader_from(first), first, show)?;
        let mut stats = counter.finish();
        stats.snapshot = match Snapshot::newest(&folder)? {
            Some(snapshot) => Some(SnapshotStats::of(&snapshot)?),
            None => None,
        };
        let archived = folder.archived_numbers()?;
        for number in walk::numbers(&folder)? {
            let files = match number {
                _ if number > end.begun => &mut stats.prepared,
                // Segments begun after the journal was read are not counted.
                _ if number > end.segment => continue,
                _ if archived.binary_search(&number).is_ok() => &mut stats.archived,
                _ => &mut stats.live,
            };
            files.count += 1;
            files.bytes += walk::with_segment(&folder, number, |path| {
                Ok(folder.disk.open_read(path)?.bytes()?)
            })?;
        }
        Ok(stats)
    })
}

impl SnapshotStats {
    /// Creates the statistics of a snapshot before any shard is read.
    pub(super) fn new(snapshot: &Snapshot) -> Self {
        let (segment, orders) = (snapshot.number, snapshot.orders_kept());
        Self { segment, accounts: 0, keys: 0, orders, bytes: snapshot.bytes() }
    }

    /// Adds one of the snapshot's shards.
    pub(super) fn add(&mut self, state: &State) {
        self.accounts += state.accounts().len() as u64;
        self.keys += state.keys().count() as u64;
    }

    /// Reads a whole snapshot.
    fn of(snapshot: &Snapshot) -> Result<Self, InspectError> {
        let mut stats = Self::new(snapshot);
        for shard in ShardId::all() {
            stats.add(&snapshot.shard(shard)?.state);
        }
        Ok(stats)
    }
}

impl fmt::Display for SnapshotStats {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}: {}, {}, {}, {}",
            run("segment", 1, self.segment),
            count(self.accounts, "account"),
            count(self.keys, "key"),
            count(self.orders, "order"),
            count(self.bytes, "byte")
        )
    }
}

impl fmt::Display for Files {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, {}", count(self.count, "segment"), count(self.bytes, "byte"))
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = (self.live.bytes + self.archived.bytes).max(1);
        writeln!(formatter, "journal   {}", self.live)?;
        writeln!(formatter, "archive   {}", self.archived)?;
        writeln!(formatter, "prepared  {}", self.prepared)?;
        writeln!(
            formatter,
            "used      {}, {} % of journal and archive",
            count(self.used_bytes, "byte"),
            self.used_bytes * 100 / bytes
        )?;
        write!(formatter, "records   {}", Grouped(self.records))?;
        if let (Some(first), Some(last)) = (self.first_position, self.last_position) {
            write!(formatter, " at {}", run("position", first, last))?;
        }
        if let (Some(first), Some(last)) = (self.first_epoch, self.last_epoch) {
            write!(formatter, ", {}", run("epoch", first, last))?;
        }
        if let (Some(first), Some(last)) = (self.first_time, self.last_time) {
            write!(formatter, ", {first} to {last}")?;
        }
        let tenths = self.records * 10 / self.blocks.max(1);
        writeln!(
            formatter,
            "\nblocks    {} with {}.{} records on average and {} at most",
            Grouped(self.blocks),
            tenths / 10,
            tenths % 10,
            Grouped(self.block_records_max)
        )?;
        writeln!(
            formatter,
            "shards    {} with {} to {} records each",
            SHARD_COUNT,
            Grouped(self.shard_records_min),
            Grouped(self.shard_records_max)
        )?;
        match &self.snapshot {
            Some(snapshot) => writeln!(formatter, "snapshot  {snapshot}")?,
            None => writeln!(formatter, "snapshot  none")?,
        }
        write!(formatter, "events    {:<18}{:>14}{:>18}", "kind", "count", "bytes")?;
        for (kind, EventStats { count, bytes }) in &self.events {
            let (count, bytes) = (Grouped(*count), Grouped(*bytes));
            write!(formatter, "\n          {kind:<18}{count:>14}{bytes:>18}")?;
        }
        Ok(())
    }
}

struct Counter<'a> {
    folder: &'a Folder,
    stats: Stats,
    shards: [u64; SHARD_COUNT],
    /// Reused to measure the encoded length of events.
    buffer: Vec<u8>,
}

impl<'a> Counter<'a> {
    fn new(folder: &'a Folder) -> Self {
        Self { folder, stats: Stats::default(), shards: [0; SHARD_COUNT], buffer: Vec::new() }
    }

    fn add(&mut self, batch: &Batch) -> Result<(), InspectError> {
        let stats = &mut self.stats;
        stats.used_bytes += u64::from(batch.end());
        stats.starts += batch.epochs_begun();
        stats.blocks += batch.blocks() - batch.epochs_begun();
        stats.block_records_max = stats.block_records_max.max(batch.block_records_max().into());
        for ((position, _), &at) in batch.iter().zip(batch.records()) {
            let (header, events) = walk::decode(self.folder, batch, at)?;
            self.add_record(position, &header, &events);
        }
        Ok(())
    }

    fn add_record(&mut self, position: u64, header: &RecordHeader, events: &[Event]) {
        let stats = &mut self.stats;
        stats.records += 1;
        stats.first_position.get_or_insert(position);
        stats.last_position = Some(position);
        stats.first_epoch.get_or_insert(header.epoch);
        stats.last_epoch = Some(header.epoch);
        stats.first_time.get_or_insert(Text(header.at));
        stats.last_time = Some(Text(header.at));
        self.shards[header.shard.index()] += 1;
        for event in events {
            self.buffer.clear();
            record::encode_event(event, &mut self.buffer);
            let kind = stats.events.entry(describe::kind(event)).or_default();
            kind.count += 1;
            kind.bytes += self.buffer.len() as u64;
        }
    }

    fn finish(mut self) -> Stats {
        self.stats.shard_records_min = self.shards.into_iter().min().unwrap_or(0);
        self.stats.shard_records_max = self.shards.into_iter().max().unwrap_or(0);
        self.stats
    }
}
