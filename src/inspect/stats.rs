//! What a data directory is full of.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::Serialize;

use super::text::{Grouped, Text, count, run};
use super::{InspectError, describe, folder, walk};
use crate::engine::State;
use crate::engine::event::Event;
use crate::ids::{SHARD_COUNT, ShardId, Timestamp};
use crate::journal::Batch;
use crate::journal::record::{self, RecordHeader};
use crate::snapshot::{Folder, Snapshot};

/// What is in a data directory, from the oldest record on that is still there.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Stats {
    /// Segments that are written or were written.
    pub live: Files,
    /// Segments in the archive.
    pub archived: Files,
    /// Segments that are ready for what comes.
    pub prepared: Files,
    /// How many bytes of the segments that are not prepared are used.
    pub used_bytes: u64,
    /// How many starts of the server there were.
    pub starts: u64,
    /// How many blocks hold records: each was one write to the disk.
    pub blocks: u64,
    /// How many records the fullest block holds.
    pub block_records_max: u64,
    /// How many records there are.
    pub records: u64,
    /// The position of the oldest.
    pub first_position: Option<u64>,
    /// The position of the newest.
    pub last_position: Option<u64>,
    /// Which start of the server wrote the oldest.
    pub first_epoch: Option<u64>,
    /// Which start of the server wrote the newest.
    pub last_epoch: Option<u64>,
    /// When the oldest was decided.
    pub first_time: Option<Text<Timestamp>>,
    /// When the newest was decided.
    pub last_time: Option<Text<Timestamp>>,
    /// How many records the shard with the fewest has.
    pub shard_records_min: u64,
    /// How many records the shard with the most has.
    pub shard_records_max: u64,
    /// The events by their kind, as `journal dump` calls it.
    pub events: BTreeMap<&'static str, EventStats>,
    /// The newest snapshot.
    pub snapshot: Option<SnapshotStats>,
}

/// How many files, and how long they are together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Files {
    /// How many.
    pub count: u64,
    /// Their length.
    pub bytes: u64,
}

/// How many events of a kind, and how long they are together, what stands around them excluded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct EventStats {
    /// How many.
    pub count: u64,
    /// Their length.
    pub bytes: u64,
}

/// A snapshot, all of which was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct SnapshotStats {
    /// The last segment that it covers.
    pub segment: u64,
    /// How many accounts it holds.
    pub accounts: u64,
    /// How many keys it holds, those included that have ended.
    pub keys: u64,
    /// How many orders it holds.
    pub orders: u64,
    /// The length of all its files.
    pub bytes: u64,
}

/// Reads a whole data directory and counts.
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
                // It was not read.
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
    /// A snapshot of which no shard was read yet.
    pub(super) fn new(snapshot: &Snapshot) -> Self {
        let (segment, orders) = (snapshot.number, snapshot.orders_kept());
        Self { segment, accounts: 0, keys: 0, orders, bytes: snapshot.bytes() }
    }

    /// Counts what is in one of its shards.
    pub(super) fn add(&mut self, state: &State) {
        self.accounts += state.accounts().len() as u64;
        self.keys += state.keys().count() as u64;
    }

    /// Reads all of a snapshot.
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
    /// Events are measured in it.
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
