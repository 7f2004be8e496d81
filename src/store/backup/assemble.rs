//! Restores from a repository: assembles a data directory from the files of points.

use std::path::Path;

use super::line::{self, Line, Source, lines};
use super::moment::{Known, Moment};
use super::point::{StoredFile, StoredSegment, StoredSnapshot};
use super::repository::{Points, Repository, RepositoryError};
use super::restore::RestoreError;
use super::restored::{RestoreReport, RestoredJournal, Stop};
use crate::inspect::InspectError;
use crate::journal::{Batch, JournalMark, SegmentReader, segment_name};
use crate::key_file::KeyFile;
use crate::snapshot::Folder;

/// The parts of a repository that are to be restored.
pub(super) struct Chosen<'a> {
    repository: &'a Repository,
    source: Source<'a>,
    /// The hourly prices, which only the newest point has, and the number of that point.
    price_hours: Option<(u64, &'a StoredFile)>,
    /// Whether the hourly prices may be missing: the newest point cannot be read, or the caller
    /// named another point because the newest is incomplete.
    may_lack_hours: bool,
}

/// Chooses the parts to restore for a moment, from points up to `number` if it is given. An
/// unreadable point is an error if it could be the one to restore from.
pub(super) fn choose<'a>(
    repository: &'a Repository,
    points: &'a mut Points,
    moment: Moment,
    number: Option<u64>,
) -> Result<Chosen<'a>, RestoreError> {
    let damaged = points.damaged.pop().map(RestoreError::from);
    let readable = &points.readable;
    let mut lines = lines(readable);
    let path = repository.path.clone();
    if let Some(number) = number {
        let line = lines.iter().find_map(|line| line.up_to(number));
        lines = line.map_or_else(Vec::new, |line| vec![line]);
    }
    let found = match (lines.last().map(Line::newest), number) {
        (None, Some(number)) => Err(RepositoryError::NoPoint { path, number }.into()),
        (None, None) => Err(RepositoryError::Empty { path }.into()),
        (Some(newest), _) if moment == Moment::Newest => Ok(Source::of(newest)),
        (Some(_), _) => line::find(&lines, moment),
    };
    // A damaged point may be the newest.
    let is_in_doubt = found.is_err() || (moment == Moment::Newest && number.is_none());
    let source = match damaged {
        Some(damaged) if is_in_doubt => return Err(damaged),
        _ => found?,
    };
    let price_hours = readable
        .last()
        .and_then(|newest| newest.price_hours.as_ref().map(|hours| (newest.number, hours)));
    let newest = readable.last().map(|newest| newest.number);
    let may_lack_hours = number.is_some() || newest != Some(points.newest);
    Ok(Chosen { repository, source, price_hours, may_lack_hours })
}

impl Chosen<'_> {
    /// Writes everything up to the moment into an empty data directory.
    pub(super) fn write(&self, to: &Path, moment: Moment) -> Result<RestoreReport, RestoreError> {
        let Self { repository, source, price_hours, may_lack_hours } = self;
        let folder = Folder::new(repository.disk.clone(), to);
        let mut last = Known::default();
        if let Some(snapshot) = source.snapshot {
            folder.disk.create_directory(&folder.snapshots())?;
            for file in &snapshot.files {
                let path = folder.snapshots().join(&file.original);
                self.copy(&file.stored, source.point.number, &path)?;
            }
            folder.disk.sync_directory(&folder.snapshots())?;
            last = snapshot.last();
        }
        folder.disk.create_directory(&folder.journal())?;
        let mut journal = RestoredJournal::new(&folder, moment, last);
        let mut reader = SegmentReader::after(source.snapshot.map(|it| self.mark(it)));
        for &(point, segment) in &source.segments {
            let batch = self.read(&mut reader, point, segment, &folder)?;
            match journal.add(&batch) {
                Ok(()) => {}
                Err(Stop::Reached) => break,
                Err(Stop::Inspect(error)) => return Err(error.into()),
            }
        }
        let mut report = journal.finish()?;
        folder.disk.sync_directory(&folder.journal())?;
        if let Some(snapshot) = source.snapshot {
            report.snapshot_segment = Some(snapshot.segment);
            report.bytes += snapshot.files.iter().map(|file| file.stored.bytes).sum::<u64>();
        }
        if let Some((point, hours)) = price_hours {
            let path = repository.file_path(hours);
            // A backup that has finished in the meantime has replaced the hourly prices with its
            // own.
            let may_lack_hours = *may_lack_hours || repository.has_point_after(*point)?;
            report.lacks_price_hours = may_lack_hours && !repository.disk.exists(&path)?;
            if !report.lacks_price_hours {
                self.copy(hours, *point, &folder.price_hours())?;
            }
        }
        if let Some(key) = &source.point.issuer_key {
            let key = repository.read(key, source.point.number)?;
            KeyFile::Issuer.load_or_create(to, || Some(key))?;
            report.has_issuer_key = true;
        }
        if let Some((point, key)) = source.wallets_key {
            let key = repository.read(key, point)?;
            KeyFile::Wallets.load_or_create(to, || Some(key))?;
            report.has_wallets_key = true;
        }
        Ok(report)
    }

    fn mark(&self, snapshot: &StoredSnapshot) -> JournalMark {
        let log = self.source.point.log.0;
        JournalMark { log, segment: snapshot.segment, chain: snapshot.chain.into() }
    }

    /// Assembles a segment from its parts, and reads it as the journal's next segment.
    fn read(
        &self,
        reader: &mut SegmentReader,
        point: u64,
        segment: &StoredSegment,
        folder: &Folder,
    ) -> Result<Batch, RestoreError> {
        let bytes = usize::try_from(segment.bytes).expect("a segment is at most a GiB");
        let mut content = Vec::with_capacity(bytes);
        for part in &segment.parts {
            self.repository.read_parts(part, point, |bytes, _| {
                content.extend_from_slice(bytes);
                Ok(())
            })?;
        }
        content.resize(bytes, 0);
        let path = folder.journal().join(segment_name(segment.number));
        Ok(reader.read_bytes(&path, content, segment.number).map_err(InspectError::from)?)
    }

    fn copy(&self, file: &StoredFile, point: u64, to: &Path) -> Result<(), RestoreError> {
        let target = self.repository.disk.create(to)?;
        self.repository.read_parts(file, point, |part, offset| {
            target.write_at(part, offset)?;
            target.sync_data()
        })?;
        Ok(target.sync_all()?)
    }
}
