//! Restores a data directory to a moment, from the newest snapshot that is not later and the
//! journal from there up to the moment.
//!
//! If the moment is in the middle of a block, the block is resealed without the later records
//! ([`Batch::cut`]). The result is verified like any backup, so a server can start on it, and
//! continues as if nothing had happened after that moment. The original does not change.

use std::path::Path;

use super::assemble;
use super::moment::{Known, Moment};
use super::repository::{Repository, RepositoryError};
use super::restored::{RestoreReport, RestoredJournal, Stop};
use super::target::{self, TargetError};
use crate::disk::{Disk, DiskError};
use crate::inspect::{self, InspectError, message, walk};
use crate::journal::{Batch, SegmentReader};
use crate::key_file::{KeyFile, KeyFileError};
use crate::snapshot::{Folder, Snapshot};
use paperbourse_core::ids::Timestamp;

/// Error that ended a restore. Nothing is left behind unless stated otherwise.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The data directory could not be created.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The repository cannot be read.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// The moment is before the oldest snapshot, and the journal before that snapshot is
    /// incomplete.
    #[error("{moment} is too early: what is left begins at {oldest}")]
    TooEarly {
        /// The requested moment.
        moment: Moment,
        /// The oldest record that can be restored.
        oldest: Known,
    },
    /// The journal ends before the moment.
    #[error("{moment} is too late: the newest record is at {newest}{}", taken(*taken_at))]
    TooLate {
        /// The requested moment.
        moment: Moment,
        /// The newest record that can be restored.
        newest: Known,
        /// Time at which the newest point of the repository was taken.
        taken_at: Option<Timestamp>,
    },
    /// The moment is in a gap between the points of the repository.
    #[error("{moment} cannot be restored: nothing is known between {before}, and {after}")]
    Between {
        /// The requested moment.
        moment: Moment,
        /// The newest record before the moment that can be restored.
        before: Known,
        /// The oldest record after the moment that can be restored.
        after: Known,
    },
    /// The time is in the future.
    #[error("{time} is in the future: it is {now}")]
    Future {
        /// The requested time.
        time: Timestamp,
        /// The current time.
        now: Timestamp,
    },
}

fn taken(at: Option<Timestamp>) -> String {
    at.map_or_else(String::new, |at| format!(", and the newest backup was taken at {at}"))
}

impl From<InspectError> for RestoreError {
    fn from(error: InspectError) -> Self {
        Self::Target(error.into())
    }
}

impl From<DiskError> for RestoreError {
    fn from(error: DiskError) -> Self {
        Self::Target(error.into())
    }
}

impl From<KeyFileError> for RestoreError {
    fn from(error: KeyFileError) -> Self {
        Self::Target(error.into())
    }
}

impl walk::Gone for RestoreError {
    fn is_gone(&self) -> bool {
        matches!(self, Self::Target(TargetError::Inspect(error)) if error.is_gone())
    }
}

impl RestoreError {
    /// Whether files are damaged, as opposed to a failure of this program or the machine.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Target(error) => error.is_damage(),
            Self::Repository(error) => error.is_damage(),
            _ => false,
        }
    }

    /// Returns the error's message, followed by the messages of its causes.
    pub fn message(&self) -> String {
        message(self)
    }
}

/// Restores a data directory, whose server may be running, or a repository of its backups, to a
/// moment. Writes the result to `target`, which must either not exist or be an empty directory. In
/// a repository, points after `point` are ignored.
pub fn restore(
    from: &Path,
    target: &Path,
    moment: Moment,
    point: Option<u64>,
    now: Timestamp,
) -> Result<RestoreReport, RestoreError> {
    if let Moment::Time(time) = moment
        && time > now
    {
        return Err(RestoreError::Future { time, now });
    }
    if Repository::is_at(&Disk::System, from)? {
        let repository = Repository::open(Disk::System, from)?;
        let mut points = repository.points()?;
        let chosen = assemble::choose(&repository, &mut points, moment, point)?;
        let disk = &repository.disk;
        let (target, report) = target::make(disk, target, |temporary| {
            disk.create_directory(temporary)?;
            let report = chosen.write(temporary, moment)?;
            verify(disk, temporary, &report)?;
            Ok::<_, RestoreError>(report)
        })?;
        return Ok(RestoreReport { target: target.display().to_string(), ..report });
    }
    if point.is_some() {
        return Err(RepositoryError::NotARepository { path: from.to_path_buf() }.into());
    }
    let folder = inspect::folder(from)?;
    let disk = &folder.disk;
    let (target, report) = target::make(disk, target, |temporary| {
        let mut report = walk::start_over_when_gone(|| {
            disk.remove_directory(temporary)?;
            disk.create_directory(temporary)?;
            copy(&folder, &Folder::new(disk.clone(), temporary), moment)
        })?;
        report.has_issuer_key = KeyFile::Issuer.copy(from, temporary)?;
        report.has_wallets_key = KeyFile::Wallets.copy(from, temporary)?;
        target::share_mode(from, temporary)?;
        verify(disk, temporary, &report)?;
        Ok::<_, RestoreError>(report)
    })?;
    Ok(RestoreReport { target: target.display().to_string(), ..report })
}

/// Checks that the restored directory ends with the last record that was read.
fn verify(disk: &Disk, restored: &Path, report: &RestoreReport) -> Result<(), TargetError> {
    let last_position = target::verified(disk, restored)?;
    if last_position == report.last_position {
        return Ok(());
    }
    let message = format!("it ends at position {last_position}, not {}", report.last_position);
    Err(TargetError::CopyDamaged { message })
}

/// Copies the newest snapshot before the moment, and the journal from the snapshot up to the
/// moment.
fn copy(from: &Folder, to: &Folder, moment: Moment) -> Result<RestoreReport, RestoreError> {
    let snapshot = snapshot_before(from, moment)?;
    let mut last = Known::default();
    if let Some(snapshot) = &snapshot {
        target::copy_snapshot(snapshot, to).map_err(InspectError::from)?;
        last = known(snapshot)?;
    }
    to.disk.create_directory(&to.journal())?;
    let mut restored = RestoredJournal::new(to, moment, last);
    let first = snapshot.as_ref().map_or(1, |snapshot| snapshot.number + 1);
    let reader = SegmentReader::after(snapshot.as_ref().map(Snapshot::mark));
    let read = walk::read_to_end(from, reader, first, &mut |batch: &Batch| restored.add(batch));
    match read {
        Ok(_) | Err(Stop::Reached) => {}
        Err(Stop::Inspect(error)) => return Err(error.into()),
    }
    let mut report = restored.finish()?;
    report.snapshot_segment = snapshot.as_ref().map(|snapshot| snapshot.number);
    report.bytes += snapshot.as_ref().map_or(0, Snapshot::bytes);
    report.lacks_price_hours = !target::copy_price_hours(from, to).map_err(InspectError::from)?;
    Ok(report)
}

/// Returns the newest snapshot that contains nothing later than `moment`. Returns `None` if there
/// is no such snapshot but the journal is complete.
fn snapshot_before(from: &Folder, moment: Moment) -> Result<Option<Snapshot>, RestoreError> {
    let mut oldest = None;
    for number in from.snapshot_numbers()?.into_iter().rev() {
        let snapshot = Snapshot::open(from, number).map_err(InspectError::from)?;
        let known = known(&snapshot)?;
        if moment.includes(known) {
            return Ok(Some(snapshot));
        }
        oldest = Some(known);
    }
    match oldest {
        Some(oldest) if walk::first_segment(from)? > 1 => {
            Err(RestoreError::TooEarly { moment, oldest })
        }
        _ => Ok(None),
    }
}

/// Returns the newest record that a snapshot covers.
fn known(snapshot: &Snapshot) -> Result<Known, InspectError> {
    Ok(Known { position: snapshot.mark().chain.position, time: snapshot.newest_time()? })
}
