//! The journal of a restored data directory, written segment by segment up to a moment.

use std::borrow::Cow;
use std::fmt;
use std::ops::Not;

use serde::Serialize;

use super::moment::{Known, Moment};
use super::restore::RestoreError;
use crate::inspect::{InspectError, Text, count, run};
use crate::journal::{Batch, record, segment_name};
use crate::snapshot::Folder;
use paperbourse_core::ids::Timestamp;

/// The result of a restore.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RestoreReport {
    /// Path of the restored data directory.
    pub target: String,
    /// The last segment that the snapshot covers. `None` without a snapshot.
    pub snapshot_segment: Option<u64>,
    /// Number of segments after the snapshot.
    pub segments: u64,
    /// Size of snapshot and journal, in bytes.
    pub bytes: u64,
    /// Position of the newest restored record. All earlier records were restored, too.
    pub last_position: u64,
    /// Decision time of the newest restored record. `None` before the first record.
    pub last_time: Option<Text<Timestamp>>,
    /// Decision time of the first record that was left out. `None` if no record was left out.
    pub next_time: Option<Text<Timestamp>>,
    /// Whether the key of the embedded issuer was restored.
    pub has_issuer_key: bool,
    /// Whether the master key of wallets was restored.
    #[serde(skip_serializing_if = "Not::not")]
    pub has_wallets_key: bool,
    /// Whether the hourly prices were left out: they are not in a regular file, or are missing from
    /// an incomplete copy of a repository. A server can start without them.
    pub lacks_price_hours: bool,
}

/// Reason reading the journal ended early.
pub(super) enum Stop {
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

/// The journal of a restored data directory.
pub(super) struct RestoredJournal<'a> {
    to: &'a Folder,
    moment: Moment,
    segments: u64,
    bytes: u64,
    last: Known,
    /// The first record after the moment; set once the moment is reached.
    next: Option<Known>,
}

impl<'a> RestoredJournal<'a> {
    /// Creates the journal, which continues after `last`, the newest record that a snapshot covers.
    pub(super) const fn new(to: &'a Folder, moment: Moment, last: Known) -> Self {
        Self { to, moment, segments: 0, bytes: 0, last, next: None }
    }

    /// Writes the next segment, up to the moment. Fails with [`Stop::Reached`] once the moment is
    /// reached.
    pub(super) fn add(&mut self, batch: &Batch) -> Result<(), Stop> {
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

    /// Reports what was restored. Fails if the moment is outside the journal.
    pub(super) fn finish(self) -> Result<RestoreReport, RestoreError> {
        let Self { moment, segments, bytes, last, next, .. } = self;
        match (moment, next) {
            (_, Some(oldest)) if oldest.position == 1 => {
                return Err(RestoreError::TooEarly { moment, oldest });
            }
            (Moment::Position(position), None) if position > last.position => {
                return Err(RestoreError::TooLate { moment, newest: last, taken_at: None });
            }
            _ => {}
        }
        Ok(RestoreReport {
            target: String::new(),
            snapshot_segment: None,
            segments,
            bytes,
            last_position: last.position,
            last_time: last.decided_at(),
            next_time: next.map(|next| Text(next.time)),
            has_issuer_key: false,
            has_wallets_key: false,
            lacks_price_hours: false,
        })
    }
}

impl fmt::Display for RestoreReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, last_position, .. } = self;
        write!(formatter, "{target}: everything up to position {last_position}")?;
        if let Some(time) = &self.last_time {
            write!(formatter, ", decided at {time}")?;
        }
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
        if self.has_wallets_key {
            formatter.write_str(", with the master key of wallets")?;
        }
        if self.lacks_price_hours {
            formatter.write_str(", without the hourly prices")?;
        }
        Ok(())
    }
}
