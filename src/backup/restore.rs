//! Restores a data directory to a moment: the newest snapshot that is not after it, and the journal
//! from there up to it.
//!
//! A moment in the middle of a block ends the journal there: the block is sealed anew without the
//! later records ([`Batch::cut`]). The result is verified like any backup, so a server starts on
//! it, and goes on as if nothing had happened after that moment. The original does not change.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use serde::Serialize;

use super::moment::{Known, Moment};
use super::target::{self, TargetError};
use crate::auth::identity::key_file;
use crate::ids::Timestamp;
use crate::inspect::{self, InspectError, Text, count, run, walk};
use crate::journal::record;
use crate::journal::{Batch, SegmentReader, segment_name};
use crate::snapshot::{Folder, Snapshot};

/// Why nothing was restored. Nothing is left behind unless stated.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The data directory could not be made.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The journal before the oldest snapshot is not there any more.
    #[error("{moment} is too early: what is left begins at {oldest}")]
    TooEarly {
        /// The moment that was asked for.
        moment: Moment,
        /// The oldest that can be restored.
        oldest: Known,
    },
    /// The journal does not reach as far.
    #[error("{moment} is too late: the newest record is at {newest}")]
    TooLate {
        /// The moment that was asked for.
        moment: Moment,
        /// The newest that can be restored.
        newest: Known,
    },
    /// The time has not come yet.
    #[error("{time} is in the future: it is {now}")]
    Future {
        /// The time that was asked for.
        time: Timestamp,
        /// The present time.
        now: Timestamp,
    },
}

/// What was restored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RestoreReport {
    /// Path of the restored data directory.
    pub target: String,
    /// The last segment that its snapshot covers. `None` without a snapshot.
    pub snapshot_segment: Option<u64>,
    /// Number of segments after that.
    pub segments: u64,
    /// Size of snapshot and journal, in bytes.
    pub bytes: u64,
    /// Position of the newest record that was restored. All earlier ones were, too.
    pub last_position: u64,
    /// When that record was decided.
    pub last_time: Text<Timestamp>,
    /// When the first record that was left out was decided.
    pub next_time: Option<Text<Timestamp>>,
    /// Whether the key of the embedded issuer was restored.
    pub has_issuer_key: bool,
    /// Whether the hourly prices were left out because they are not in a regular file. A server
    /// starts without them, too.
    pub lacks_price_hours: bool,
}

/// Restores the data directory `from`, whose server may be running, to a moment, as `target`, which
/// must not exist or be an empty directory.
pub fn restore(
    from: &Path,
    target: &Path,
    moment: Moment,
    now: Timestamp,
) -> Result<RestoreReport, RestoreError> {
    let folder = inspect::folder(from).map_err(TargetError::from)?;
    if let Moment::Time(time) = moment
        && time > now
    {
        return Err(RestoreError::Future { time, now });
    }
    let disk = &folder.disk;
    let (target, report) = target::make(disk, target, |temporary| {
        let copied = walk::start_over_when_gone(|| {
            disk.remove_directory(temporary)?;
            disk.create_directory(temporary)?;
            copy(&folder, &Folder::new(disk.clone(), temporary), moment)
        });
        let mut report = copied.map_err(TargetError::from)??;
        let finish = || {
            report.has_issuer_key = key_file::copy(from, temporary)?;
            target::share_mode(from, temporary)?;
            verify(&report, target::verified(disk, temporary)?)?;
            Ok::<_, TargetError>(report)
        };
        Ok::<_, RestoreError>(finish()?)
    })?;
    Ok(RestoreReport { target: target.display().to_string(), ..report })
}

/// The restored directory has to end with the record that was read last.
fn verify(report: &RestoreReport, last_position: u64) -> Result<(), TargetError> {
    if last_position == report.last_position {
        return Ok(());
    }
    let message = format!("it ends at position {last_position}, not {}", report.last_position);
    Err(TargetError::CopyDamaged { message })
}

/// Copies what leads up to the moment. The outer error says that the original cannot be read, the
/// inner one that it does not hold the moment.
fn copy(
    from: &Folder,
    to: &Folder,
    moment: Moment,
) -> Result<Result<RestoreReport, RestoreError>, InspectError> {
    let snapshot = match snapshot_before(from, moment)? {
        Ok(snapshot) => snapshot,
        Err(error) => return Ok(Err(error)),
    };
    let mut last = Known::default();
    if let Some(snapshot) = &snapshot {
        target::copy_snapshot(snapshot, to)?;
        last = known(snapshot)?;
    }
    to.disk.create_directory(&to.journal())?;
    let mut restored = RestoredJournal::new(to, moment, last);
    let first = snapshot.as_ref().map_or(1, |snapshot| snapshot.number + 1);
    let reader = SegmentReader::after(snapshot.as_ref().map(Snapshot::mark));
    let read = walk::read_to_end(from, reader, first, &mut |batch: &Batch| restored.add(batch));
    match read {
        Ok(_) | Err(Stop::Reached) => {}
        Err(Stop::Inspect(error)) => return Err(error),
    }
    let mut report = match restored.finish() {
        Ok(report) => report,
        Err(error) => return Ok(Err(error)),
    };
    to.disk.sync_directory(&to.journal())?;
    report.snapshot_segment = snapshot.as_ref().map(|snapshot| snapshot.number);
    report.bytes += snapshot.as_ref().map_or(0, Snapshot::bytes);
    report.lacks_price_hours = !target::copy_price_hours(from, to)?;
    Ok(Ok(report))
}

/// The newest snapshot that holds nothing after the moment; `None` if the journal is complete and
/// no snapshot is as old.
fn snapshot_before(
    from: &Folder,
    moment: Moment,
) -> Result<Result<Option<Snapshot>, RestoreError>, InspectError> {
    let mut oldest = None;
    for number in from.snapshot_numbers()?.into_iter().rev() {
        let snapshot = Snapshot::open(from, number)?;
        let known = known(&snapshot)?;
        if moment.includes(known) {
            return Ok(Ok(Some(snapshot)));
        }
        oldest = Some(known);
    }
    Ok(match oldest {
        Some(oldest) if walk::first_segment(from)? > 1 => {
            Err(RestoreError::TooEarly { moment, oldest })
        }
        _ => Ok(None),
    })
}

/// The newest record that a snapshot covers.
fn known(snapshot: &Snapshot) -> Result<Known, InspectError> {
    Ok(Known { position: snapshot.mark().chain.position, time: snapshot.newest_time()? })
}

/// Why reading the journal ended early.
enum Stop {
    /// The moment was reached.
    Reached,
    /// The journal cannot be read or written.
    Inspect(InspectError),
}

impl<E: Into<InspectError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Inspect(error.into())
    }
}

/// The journal of the restored directory, written segment by segment up to a moment.
struct RestoredJournal<'a> {
    to: &'a Folder,
    moment: Moment,
    segments: u64,
    bytes: u64,
    last: Known,
    /// The first record after the moment.
    next: Option<Known>,
}

impl<'a> RestoredJournal<'a> {
    /// Continues after the record `last`, which a snapshot covers.
    const fn new(to: &'a Folder, moment: Moment, last: Known) -> Self {
        Self { to, moment, segments: 0, bytes: 0, last, next: None }
    }

    /// Writes the next segment, as far as the moment allows.
    fn add(&mut self, batch: &Batch) -> Result<(), Stop> {
        for ((position, record), at) in batch.iter().zip(batch.records()) {
            let header = record::decode_header(record).map_err(|source| InspectError::Replay {
                path: self.to.journal().join(segment_name(batch.segment())),
                offset: at.offset.into(),
                source: source.into(),
            })?;
            let known = Known { position, time: header.at };
            if !self.moment.includes(known) {
                self.next = Some(known);
                break;
            }
            self.last = known;
        }
        let content = match self.next {
            None => Cow::Borrowed(&batch.content()[..batch.end() as usize]),
            Some(_) => Cow::Owned(batch.cut(self.last.position)),
        };
        let path = self.to.journal().join(segment_name(batch.segment()));
        let bytes = batch.content().len() as u64;
        self.to.disk.create_zeroed(&path, &content, bytes, || ())?;
        self.segments += 1;
        self.bytes += bytes;
        if self.next.is_some() { Err(Stop::Reached) } else { Ok(()) }
    }

    /// Reports what was restored, or that the moment lies outside the journal.
    fn finish(self) -> Result<RestoreReport, RestoreError> {
        let Self { moment, segments, bytes, last, next, .. } = self;
        match (moment, next) {
            (_, Some(oldest)) if oldest.position == 1 => {
                return Err(RestoreError::TooEarly { moment, oldest });
            }
            (Moment::Position(position), None) if position > last.position => {
                return Err(RestoreError::TooLate { moment, newest: last });
            }
            _ => {}
        }
        Ok(RestoreReport {
            target: String::new(),
            snapshot_segment: None,
            segments,
            bytes,
            last_position: last.position,
            last_time: Text(last.time),
            next_time: next.map(|next| Text(next.time)),
            has_issuer_key: false,
            lacks_price_hours: false,
        })
    }
}

impl fmt::Display for RestoreReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, last_position, last_time, .. } = self;
        write!(formatter, "{target}: everything up to position {last_position}")?;
        write!(formatter, ", decided at {last_time}")?;
        match &self.next_time {
            Some(time) => write!(formatter, "; the next record, decided at {time}, is left out")?,
            None => formatter.write_str(", the newest record")?,
        }
        formatter.write_str("; ")?;
        if let Some(last) = self.snapshot_segment {
            write!(formatter, "a snapshot of {}, ", run("segment", 1, last))?;
        }
        write!(formatter, "{}", count(self.segments, "segment"))?;
        write!(formatter, ", {}", count(self.bytes, "byte"))?;
        let key = if self.has_issuer_key { "with" } else { "without" };
        write!(formatter, ", {key} the issuer's key")?;
        if self.lacks_price_hours {
            formatter.write_str(", without price-hours, which is not a regular file")?;
        }
        Ok(())
    }
}
