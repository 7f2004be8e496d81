//! Adds a point to a repository: data written since the newest point is stored, and everything else
//! is shared with it.
//!
//! The new point follows the newest one if the journal still holds the segment in which the newest
//! one ends, with the same bytes up to there: each block vouches for all blocks before it.
//! Otherwise the new point starts a new line with the snapshot and the journal after it, and
//! moments between the two points cannot be restored.

use std::fmt;
use std::ops::Not;
use std::path::Path;

use serde::Serialize;

use super::moment::Known;
use super::point::{
    LogText, Point, SnapshotFile, StoredFile, StoredSegment, StoredSnapshot, TimeText,
};
use super::repository::{Content, Repository, RepositoryError};
use super::retention::{Keep, PruneReport};
use crate::disk::DiskFile;
use crate::inspect::{self, InspectError, Text, count, walk};
use crate::journal::{Batch, JournalMark, LogId, SegmentReader};
use crate::key_file::{self, KeyFile};
use crate::snapshot::{Folder, Snapshot};
use paperbourse_core::ids::Timestamp;

/// The result of adding a backup to a repository.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct AddReport {
    /// Path of the repository.
    pub repository: String,
    /// The number of the new point.
    pub point: u64,
    /// Reason the point does not follow the previous one. `None` if it does.
    pub begins_anew: Option<BeginsAnew>,
    /// Position of the newest record in the point.
    pub last_position: u64,
    /// Decision time of the newest record in the point.
    pub last_time: Option<Text<Timestamp>>,
    /// Number of files stored.
    pub new_files: u64,
    /// Size of the stored files, in bytes.
    pub new_bytes: u64,
    /// Size of all files that the point needs, in bytes.
    pub bytes: u64,
    /// The points and files removed by the retention policy.
    pub removed: PruneReport,
    /// Whether the point has the key of the embedded issuer.
    pub has_issuer_key: bool,
    /// Whether the point has the master key of wallets.
    #[serde(skip_serializing_if = "Not::not")]
    pub has_wallets_key: bool,
    /// Whether the hourly prices were left out because they are not in a regular file. A server can
    /// start without them.
    pub lacks_price_hours: bool,
}

/// Reason a point does not follow the previous one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BeginsAnew {
    /// There is no previous point.
    First,
    /// Segments between the two points have left the archive.
    ArchiveTooShort,
    /// The data directory was restored to an earlier moment and has continued from there.
    OtherHistory,
}

/// Adds the current state of a data directory to a repository, which is created if it does not
/// exist. The directory's server may be running. Once the point is on disk and verified, removes
/// the points that the policy `keep` does not cover.
pub fn add(
    directory: &Path,
    repository: &Path,
    keep: Keep,
    now: Timestamp,
) -> Result<AddReport, RepositoryError> {
    let folder = inspect::folder(directory)?;
    let (repository, _lock) = Repository::open_or_create(folder.disk.clone(), repository)?;
    let mut points = repository.undamaged_points()?;
    repository.clean(&points)?;
    let (point, mut report) = walk::start_over_when_gone(|| {
        let mut addition = Addition::new(&folder, &repository, points.last(), now);
        addition.store()?;
        addition.store_keys(directory)?;
        addition.report.bytes = addition.point.bytes_alone(addition.point.number);
        repository.add(&addition.point)?;
        Ok::<_, RepositoryError>((addition.point, addition.report))
    })?;
    points.push(point);
    report.removed = keep.apply(&repository, &mut points, now)?;
    Ok(report)
}

/// The point to follow and the segment from which to continue, or the reason that the new point
/// follows none.
type Resumed<'a> = Result<(&'a Point, &'a StoredSegment), BeginsAnew>;

/// A point that is being added.
struct Addition<'a> {
    folder: &'a Folder,
    repository: &'a Repository,
    previous: Option<&'a Point>,
    point: Point,
    report: AddReport,
}

impl<'a> Addition<'a> {
    fn new(
        folder: &'a Folder,
        repository: &'a Repository,
        previous: Option<&'a Point>,
        now: Timestamp,
    ) -> Self {
        let number = previous.map_or(1, |previous| previous.number + 1);
        let report = AddReport {
            repository: repository.path.display().to_string(),
            point: number,
            begins_anew: None,
            last_position: 0,
            last_time: None,
            new_files: 0,
            new_bytes: 0,
            bytes: 0,
            removed: PruneReport::default(),
            has_issuer_key: false,
            has_wallets_key: false,
            lacks_price_hours: false,
        };
        Self { folder, repository, previous, point: Point::new(number, now), report }
    }

    /// Stores the snapshot, journal and hourly prices.
    fn store(&mut self) -> Result<(), RepositoryError> {
        // Open the snapshot first: the segments after it stay until two newer snapshots exist.
        let snapshot = Snapshot::newest(self.folder).map_err(InspectError::from)?;
        let resumed = self.resume()?;
        self.report.begins_anew = resumed.err();
        if let Some(snapshot) = &snapshot {
            self.store_snapshot(snapshot, resumed.ok().map(|(previous, _)| previous))?;
        }
        let (reader, first) = if let Ok((previous, newest)) = resumed {
            self.point.follows = Some(previous.number);
            // The previous point may end after the new snapshot: keep its segments in between.
            let is_kept = |segment: &&StoredSegment| {
                segment.number > self.point.covered() && segment.number < newest.number
            };
            self.point.segments = previous.segments.iter().filter(is_kept).cloned().collect();
            let (log, chain) = (previous.log.0, newest.before.into());
            let mark = JournalMark { log, segment: newest.number - 1, chain };
            (SegmentReader::after(Some(mark)), newest.number)
        } else {
            let mark = snapshot.as_ref().map(Snapshot::mark);
            (SegmentReader::after(mark), self.point.covered() + 1)
        };
        self.point.set_last(match (&self.point.snapshot, resumed) {
            (_, Ok((previous, _))) => previous.last(),
            (Some(snapshot), Err(_)) => snapshot.last(),
            (None, Err(_)) => Known::default(),
        });
        let folder = self.folder;
        walk::read_to_end(folder, reader, first, &mut |batch: &Batch| {
            self.store_segment(batch, resumed.ok().map(|(_, newest)| newest))
        })?;
        self.store_price_hours()?;
        let last = self.point.last();
        self.report.last_position = last.position;
        self.report.last_time = last.decided_at();
        Ok(())
    }

    /// Returns the previous point and its last segment with blocks, from which to continue, or the
    /// reason the journal does not follow that point.
    fn resume(&self) -> Result<Resumed<'a>, InspectError> {
        let Some(previous) = self.previous else { return Ok(Err(BeginsAnew::First)) };
        let begun = previous.segments.iter().rfind(|segment| segment.before != segment.after);
        let Some(newest) = begun else { return Ok(Err(BeginsAnew::OtherHistory)) };
        let numbers = walk::numbers(self.folder)?;
        if numbers.last().is_none_or(|&last| last < newest.number) {
            return Ok(Err(BeginsAnew::OtherHistory));
        }
        if walk::first_segment(self.folder)? > newest.number {
            return Ok(Err(BeginsAnew::ArchiveTooShort));
        }
        let is_same = walk::with_segment(self.folder, newest.number, |path| {
            let file = self.folder.disk.open_read(path)?;
            let (bytes, mut offset) = (file.bytes()?, 0);
            for part in &newest.parts {
                if bytes - offset < part.bytes {
                    return Ok(false);
                }
                let length = usize::try_from(part.bytes).expect("a segment is at most a GiB");
                let mut content = vec![0; length];
                file.read_at(&mut content, offset)?;
                if !part.holds(&content) {
                    return Ok(false);
                }
                offset += part.bytes;
            }
            Ok(bytes == newest.bytes)
        })?;
        Ok(if is_same { Ok((previous, newest)) } else { Err(BeginsAnew::OtherHistory) })
    }

    /// Refuses to mix the journals of two data directories.
    fn check_log(&mut self, log: LogId) -> Result<(), RepositoryError> {
        self.point.log = LogText(log);
        if self.previous.is_some_and(|previous| previous.log != self.point.log) {
            return Err(RepositoryError::OtherJournal { path: self.repository.path.clone() });
        }
        Ok(())
    }

    /// Stores the files of the snapshot that the followed point does not have.
    fn store_snapshot(
        &mut self,
        snapshot: &Snapshot,
        followed: Option<&Point>,
    ) -> Result<(), RepositoryError> {
        self.check_log(snapshot.log)?;
        let known = followed.and_then(|point| point.snapshot.as_ref());
        let mut files = Vec::new();
        for path in snapshot.paths() {
            let original = path.file_name().expect("a file of the snapshot has a name");
            let original = original.to_string_lossy().into_owned();
            let opened = self.open(path)?;
            let bytes = opened.bytes()?;
            // A name is never reused within a history.
            let mut known = known.iter().flat_map(|known| &known.files);
            let same = known.find(|it| it.original == original && it.stored.bytes == bytes);
            let stored = match same {
                Some(same) => same.stored.clone(),
                None => self.put(&format!("snapshot-{original}"), &Content::File(&opened))?,
            };
            files.push(SnapshotFile { original, stored });
        }
        let time = snapshot.newest_time().map_err(InspectError::from)?;
        let chain = snapshot.mark().chain.into();
        let segment = snapshot.number;
        self.point.snapshot = Some(StoredSnapshot { segment, chain, time: TimeText(time), files });
        Ok(())
    }

    /// Stores the part of a segment that the repository does not have. The segment's chain has been
    /// checked.
    fn store_segment(
        &mut self,
        batch: &Batch,
        known: Option<&StoredSegment>,
    ) -> Result<(), RepositoryError> {
        self.check_log(batch.log())?;
        let number = batch.segment();
        let known = known.filter(|known| known.number == number);
        let mut parts = known.map_or_else(Vec::new, |known| known.parts.clone());
        let from = known.map_or(0, StoredSegment::end);
        let end = batch.end();
        for ((position, _), &at) in batch.iter().zip(batch.records()) {
            if u64::from(at.offset) >= from {
                let (header, _) = walk::decode(self.folder, batch, at)?;
                self.point.set_last(Known { position, time: header.at });
            }
        }
        if from < end.into() {
            let from_index = usize::try_from(from).expect("a segment is at most a GiB");
            let new = &batch.content()[from_index..end as usize];
            let label = format!("segment-{number:020}-{from:010}");
            parts.push(self.put(&label, &Content::Bytes(new))?);
        }
        self.point.segments.push(StoredSegment {
            number,
            bytes: batch.content().len() as u64,
            before: batch.before().into(),
            after: batch.after().into(),
            parts,
        });
        Ok(())
    }

    fn store_price_hours(&mut self) -> Result<(), RepositoryError> {
        let path = self.folder.price_hours();
        if !self.folder.disk.exists(&path)? {
            return Ok(());
        }
        if !self.folder.disk.is_regular_file(&path)? {
            self.report.lacks_price_hours = true;
            return Ok(());
        }
        // The file is replaced as a whole while the server runs.
        let opened = self.open(&path)?;
        self.point.price_hours = Some(self.put("price-hours", &Content::File(&opened))?);
        Ok(())
    }

    fn store_keys(&mut self, directory: &Path) -> Result<(), RepositoryError> {
        if let Some(key) = key_file::load(&KeyFile::Issuer.path(directory))? {
            self.point.issuer_key = Some(self.put("issuer-key", &Content::Bytes(&key))?);
            self.report.has_issuer_key = true;
        }
        if let Some(key) = key_file::load(&KeyFile::Wallets.path(directory))? {
            let key = self.put("wallets-key", &Content::Bytes(&key))?;
            self.point.set_wallets_key(key);
            self.report.has_wallets_key = true;
        }
        Ok(())
    }

    /// Opens a file of the data directory. It may have been removed since it was found.
    fn open(&self, path: &Path) -> Result<DiskFile, InspectError> {
        Ok(self.folder.disk.open_read(path)?)
    }

    fn put(&mut self, label: &str, content: &Content<'_>) -> Result<StoredFile, RepositoryError> {
        let (stored, is_new) = self.repository.store(label, content)?;
        if is_new {
            self.report.new_files += 1;
            self.report.new_bytes += stored.bytes;
        }
        Ok(stored)
    }
}

impl fmt::Display for AddReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { repository, point, last_position, .. } = self;
        write!(
            formatter,
            "{repository}: point {point}, everything up to position {last_position}"
        )?;
        if let Some(time) = self.last_time {
            write!(formatter, ", decided at {time}")?;
        }
        write!(formatter, "; {}", count(self.new_files, "new file"))?;
        write!(formatter, ", {}", count(self.new_bytes, "byte"))?;
        let key = if self.has_issuer_key { "with" } else { "without" };
        write!(formatter, ", {key} the issuer's key")?;
        if self.has_wallets_key {
            formatter.write_str(", with the master key of wallets")?;
        }
        if self.lacks_price_hours {
            formatter.write_str(", without price-hours, which is not a regular file")?;
        }
        if self.removed.removed_points > 0 {
            write!(formatter, "; {}", self.removed)?;
        }
        let reason = match self.begins_anew {
            None | Some(BeginsAnew::First) => return Ok(()),
            Some(BeginsAnew::ArchiveTooShort) => "the archive no longer reaches back to it",
            Some(BeginsAnew::OtherHistory) => {
                "the data folder was restored, or lost what came last"
            }
        };
        let previous = point - 1;
        write!(
            formatter,
            "; it does not follow point {previous}, since {reason}: no moment between "
        )?;
        formatter.write_str("the two can be restored")
    }
}
