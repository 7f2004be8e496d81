//! Whether a server would start on a data directory and have everything: all that a start checks,
//! the archive as well, and nothing is changed.
//!
//! The records behind the snapshot are found in one pass over the segments, and then one shard
//! after the other is loaded and brought up to date, so that no more than one is in memory.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use super::stats::SnapshotStats;
use super::text::{count, run};
use super::{DamageReport, InspectError, folder, walk};
use crate::ids::ShardId;
use crate::journal::{Batch, SegmentReader};
use crate::snapshot::{Folder, RecordIndex, ShardState, Snapshot};

/// What was found in a data directory. Parts behind damage are left out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct VerifyReport {
    /// The newest snapshot, if there is any.
    pub snapshot: Option<SnapshotStats>,
    /// The segments that it covers and that are still there without a gap up to it.
    pub covered: Option<Part>,
    /// The segments behind it.
    pub journal: Option<Part>,
    /// What a start would cut: a crash left it half written, or a server is writing it right now.
    pub torn: Option<Torn>,
    /// How many records were applied to the snapshot.
    pub replayed_records: u64,
    /// The position of the newest record.
    pub last_position: u64,
    /// What is wrong. Nobody should write to such a directory before it is put right.
    pub damage: Option<DamageReport>,
}

/// A run of segments whose blocks continue each other and whose records can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Part {
    /// Its first segment.
    pub first_segment: u64,
    /// Its last segment that holds anything.
    pub last_segment: u64,
    /// How many records are in it.
    pub records: u64,
}

/// A block that is not whole, at the end of the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Torn {
    /// The segment.
    pub segment: u64,
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
}

impl VerifyReport {
    /// Whether nothing is wrong.
    pub const fn is_ok(&self) -> bool {
        self.damage.is_none()
    }

    /// How many records were read.
    pub fn records(&self) -> u64 {
        self.covered.iter().chain(&self.journal).map(|part| part.records).sum()
    }
}

/// Checks a data directory. Damage is part of the report; an error means that it is not known.
pub fn verify(directory: &Path) -> Result<VerifyReport, InspectError> {
    let folder = folder(directory)?;
    let mut report = VerifyReport::default();
    let result = walk::start_over_when_gone(|| {
        report = VerifyReport::default();
        check(&folder, &mut report)
    });
    match result {
        Ok(()) => {}
        Err(error) if error.is_damage() => report.damage = Some(DamageReport::of(&error)),
        Err(error) => return Err(error),
    }
    Ok(report)
}

fn check(folder: &Folder, report: &mut VerifyReport) -> Result<(), InspectError> {
    let snapshot = Snapshot::newest(folder)?;
    if let Some(snapshot) = &snapshot {
        report.covered = check_covered(folder, snapshot)?;
    }
    let first = snapshot.as_ref().map_or(1, |snapshot| snapshot.number + 1);
    let mut index = RecordIndex::new();
    let mut part = Part { first_segment: first, last_segment: first, records: 0 };
    let reader = SegmentReader::after(snapshot.as_ref().map(Snapshot::mark));
    let end = walk::read_to_end(folder, reader, first, &mut |batch: &Batch| {
        part.add(batch);
        let file =
            walk::with_segment(folder, batch.segment(), |path| Ok(folder.disk.open_read(path)?))?;
        index.add(batch, file, || Ok::<_, InspectError>(()))
    })?;
    let (_, chain) = end.chain;
    report.last_position = chain.position;
    report.journal = Some(part);
    report.torn = (end.torn_bytes > 0).then_some(Torn {
        segment: end.segment,
        offset: end.offset,
        bytes: end.torn_bytes as u64,
    });
    let mut snapshot_stats = snapshot.as_ref().map(SnapshotStats::new);
    for shard in ShardId::all() {
        let mut state = match &snapshot {
            Some(snapshot) => snapshot.shard(shard)?,
            None => ShardState::new(shard),
        };
        if let Some(stats) = &mut snapshot_stats {
            stats.add(&state.state);
        }
        index.replay(&mut state, || Ok::<_, InspectError>(()))?;
        report.replayed_records += index.count(shard);
    }
    report.snapshot = snapshot_stats;
    Ok(())
}

/// Checks what of the covered segments is there. It is no part of a start, but of going back by a
/// snapshot, and of what a dump tells.
fn check_covered(folder: &Folder, snapshot: &Snapshot) -> Result<Option<Part>, InspectError> {
    let last = snapshot.number;
    let Some(first) = walk::first_before(&walk::numbers(folder)?, last) else { return Ok(None) };
    let mut part = Part { first_segment: first, last_segment: first, records: 0 };
    let mut reader = walk::reader_from(first);
    walk::read_closed(folder, &mut reader, first..last + 1, &mut |batch: &Batch| {
        part.add(batch);
        batch.records().iter().try_for_each(|&at| walk::decode(folder, batch, at).map(drop))
    })?;
    let mark = snapshot.mark();
    if reader.end() != Some((mark.log, mark.chain)) {
        return Err(InspectError::Parted { path: walk::path_of(folder, last), segment: last });
    }
    Ok(Some(part))
}

impl Part {
    fn add(&mut self, batch: &Batch) {
        self.last_segment = batch.segment();
        self.records += batch.records().len() as u64;
    }
}

impl fmt::Display for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let segments = run("segment", self.first_segment, self.last_segment);
        write!(formatter, "{segments}: {}", count(self.records, "record"))
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(part) = &self.covered {
            writeln!(formatter, "covered   {part}")?;
        }
        if let Some(part) = &self.journal {
            writeln!(formatter, "journal   {part}")?;
        }
        if let Some(Torn { segment, offset, bytes }) = self.torn {
            writeln!(
                formatter,
                "torn      segment {segment} at offset {offset}: {} of a block that is not whole; \
                 a start cuts them, nobody was told that they are on disk",
                count(bytes, "byte")
            )?;
        }
        if let Some(snapshot) = &self.snapshot {
            writeln!(formatter, "snapshot  {snapshot}")?;
        }
        match &self.damage {
            Some(damage) => write!(formatter, "damaged: {damage}"),
            None => write!(
                formatter,
                "ok: {} up to position {}, {} replayed",
                count(self.records(), "record"),
                self.last_position,
                count(self.replayed_records, "record")
            ),
        }
    }
}
