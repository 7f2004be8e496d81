//! Verifies that a server would start on a data directory without losing anything. Checks every
//! file that is read at startup, and the archive as well, without changing anything.
//!
//! One pass over the segments indexes the records after the snapshot. Then the shards are loaded
//! and brought up to date in turn, so that only one is in memory at a time.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use super::stats::SnapshotStats;
use super::text::{count, run};
use super::{DamageReport, InspectError, folder, message, walk};
use crate::hours;
use crate::journal::{Batch, SegmentReader};
use crate::key_file::KeyFile;
use crate::snapshot::{Folder, RecordIndex, ShardState, Snapshot};
use paperbourse_core::ids::ShardId;

/// The result of verifying a data directory. Covers only what precedes the damage, if there is any.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct VerifyReport {
    /// The newest snapshot, if there is one.
    pub snapshot: Option<SnapshotStats>,
    /// The segments that the snapshot covers and that still exist, as far back as there is no gap.
    pub covered: Option<Part>,
    /// The segments after the snapshot.
    pub journal: Option<Part>,
    /// The torn tail that the server would cut at startup. A crash left it, or a running server is
    /// writing it at this moment.
    pub torn: Option<Torn>,
    /// Number of records applied to the snapshot.
    pub replayed_records: u64,
    /// Position of the newest record.
    pub last_position: u64,
    /// The damage found. No server should write to the directory before it is repaired.
    pub damage: Option<DamageReport>,
    /// Damage to files on which no record depends. At startup, damaged hourly prices are set aside,
    /// and a damaged key makes startup fail if it is used: the issuer's if the embedded issuer
    /// signs tokens, that of wallets if they may call.
    pub besides: Vec<DamageReport>,
}

/// A range of segments with an unbroken chain of blocks and valid records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Part {
    /// The first segment.
    pub first_segment: u64,
    /// The last segment that holds blocks.
    pub last_segment: u64,
    /// Number of records in the range.
    pub records: u64,
}

/// An incomplete block at the end of the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Torn {
    /// The segment.
    pub segment: u64,
    /// File offset of the block.
    pub offset: u64,
    /// Length of the incomplete block, in bytes.
    pub bytes: u64,
}

impl VerifyReport {
    /// Whether no damage was found.
    pub const fn is_ok(&self) -> bool {
        self.damage.is_none() && self.besides.is_empty()
    }

    /// Returns the number of records read.
    pub fn records(&self) -> u64 {
        self.covered.iter().chain(&self.journal).map(|part| part.records).sum()
    }
}

/// Verifies a data directory. Damage is part of the report; an error means that the directory's
/// state is unknown.
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
    report.besides = check_besides(&folder);
    Ok(report)
}

fn check_besides(folder: &Folder) -> Vec<DamageReport> {
    let hours = hours::flaw(folder).map(|flaw| (folder.price_hours(), flaw));
    let keys = KeyFile::ALL.into_iter().filter_map(|key| {
        let error = key.check(folder.path()).err()?;
        Some((key.path(folder.path()), message(&error)))
    });
    let found = hours.into_iter().chain(keys);
    found
        .map(|(path, message)| {
            let file = Some(path.display().to_string());
            DamageReport { file, offset: None, message }
        })
        .collect()
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
        index.open(file);
        index.add(batch, || Ok::<_, InspectError>(()))
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

/// Checks the covered segments that still exist. Startup does not need them, but `journal dump` and
/// going back by one snapshot do.
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
                "torn      segment {segment} at offset {offset}: {} of an incomplete block; the \
                 next start cuts them, they were never acknowledged",
                count(bytes, "byte")
            )?;
        }
        if let Some(snapshot) = &self.snapshot {
            writeln!(formatter, "snapshot  {snapshot}")?;
        }
        if self.is_ok() {
            return write!(
                formatter,
                "ok: {} up to position {}, {} replayed",
                count(self.records(), "record"),
                self.last_position,
                count(self.replayed_records, "record")
            );
        }
        let damage = self.damage.iter().chain(&self.besides);
        let lines: Vec<String> = damage.map(|damage| format!("damaged: {damage}")).collect();
        formatter.write_str(&lines.join("\n"))
    }
}
