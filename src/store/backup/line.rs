//! Lines of points: each point of a line follows the previous one without a gap, so any moment
//! between the first and the last can be restored.

use std::collections::BTreeMap;

use super::moment::{Known, Moment};
use super::point::{Point, StoredFile, StoredSegment, StoredSnapshot};
use super::restore::RestoreError;
use paperbourse_core::ids::Timestamp;

/// Points that each follow the previous one, oldest first; never empty.
pub(super) struct Line<'a>(Vec<&'a Point>);

/// The input of a restore: a snapshot and the segments after it.
pub(super) struct Source<'a> {
    pub(super) snapshot: Option<&'a StoredSnapshot>,
    /// The segments in order, without gaps, each with the number of its point.
    pub(super) segments: Vec<(u64, &'a StoredSegment)>,
    /// The point that holds the snapshot and the issuer's key.
    pub(super) point: &'a Point,
    /// The master key of wallets, with the number of the newest point that has it: it may have been
    /// created after the snapshot.
    pub(super) wallets_key: Option<(u64, &'a StoredFile)>,
}

impl<'a> Source<'a> {
    /// Returns the source for restoring everything that a point holds.
    pub(super) fn of(point: &'a Point) -> Self {
        Self::from(&[point])
    }

    /// Returns the snapshot of the first point, and all segments of the points after that snapshot.
    fn from(points: &[&'a Point]) -> Self {
        let point = points[0];
        let mut segments = BTreeMap::new();
        for later in points {
            // A later point holds more of a segment that was still being written.
            for segment in later.segments.iter().filter(|it| it.number > point.covered()) {
                segments.insert(segment.number, (later.number, segment));
            }
        }
        let segments = segments.into_values().collect();
        let wallets_key = |point: &&'a Point| Some((point.number, point.wallets_key.as_ref()?));
        let wallets_key = points.iter().rev().find_map(wallets_key);
        Self { snapshot: point.snapshot.as_ref(), segments, point, wallets_key }
    }
}

/// Returns the lines of a repository, oldest first.
pub(super) fn lines(points: &[Point]) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for point in points {
        match lines.last_mut() {
            Some(line) if point.follows == Some(line.newest().number) => line.0.push(point),
            _ => lines.push(Line(vec![point])),
        }
    }
    lines
}

/// Finds the source for restoring a moment, in the newest line that includes it.
pub(super) fn find<'a>(lines: &[Line<'a>], moment: Moment) -> Result<Source<'a>, RestoreError> {
    let newest = lines.last().expect("there are points").newest();
    let mut later = None;
    for line in lines.iter().rev() {
        if line.ends_before(moment) {
            return Err(match later {
                None => RestoreError::TooLate {
                    moment,
                    newest: newest.last(),
                    taken_at: Some(newest.taken_at.0),
                },
                Some(after) => {
                    RestoreError::Between { moment, before: line.newest().last(), after }
                }
            });
        }
        if let Some(source) = line.source(moment) {
            return Ok(source);
        }
        later = Some(line.oldest());
    }
    Err(RestoreError::TooEarly { moment, oldest: later.expect("there are points") })
}

impl<'a> Line<'a> {
    /// Cuts the line after the point with this number. `None` if the line does not have it.
    pub(super) fn up_to(&self, number: u64) -> Option<Self> {
        let at = self.0.iter().position(|point| point.number == number)?;
        Some(Self(self.0[..=at].to_vec()))
    }

    pub(super) fn newest(&self) -> &'a Point {
        self.0[self.0.len() - 1]
    }

    /// Returns the oldest moment that can be restored; position 0 if that is before the first
    /// record.
    pub(super) fn oldest(&self) -> Known {
        self.0[0].snapshot.as_ref().map_or_else(Known::default, StoredSnapshot::last)
    }

    /// Returns the newest moment that can be restored.
    pub(super) fn ends_at(&self) -> Timestamp {
        self.newest().taken_at.0
    }

    fn ends_before(&self, moment: Moment) -> bool {
        match moment {
            Moment::Newest => false,
            Moment::Position(position) => position > self.newest().last().position,
            Moment::Time(time) => time.micros() > self.ends_at().micros(),
        }
    }

    /// Returns the line's newest snapshot without records after the moment, and the segments after
    /// that snapshot. `None` if there is no such snapshot.
    fn source(&self, moment: Moment) -> Option<Source<'a>> {
        let holds = |point: &&Point| match &point.snapshot {
            Some(snapshot) => moment.includes(snapshot.last()),
            // Without a snapshot, the segments begin with the first record.
            None => true,
        };
        let at = self.0.iter().rposition(holds)?;
        Some(Source::from(&self.0[at..]))
    }
}
