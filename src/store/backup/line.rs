//! Lines of points: each point of a line follows the one before without a gap, so any moment
//! between the first and the last can be restored.

use std::collections::BTreeMap;

use super::moment::{Known, Moment};
use super::point::{Point, StoredSegment, StoredSnapshot};
use super::restore::RestoreError;
use paperbourse_core::ids::Timestamp;

/// Points that follow each other, oldest first; never empty.
pub(super) struct Line<'a>(Vec<&'a Point>);

/// What to restore: a snapshot and the segments after it.
pub(super) struct Source<'a> {
    pub(super) snapshot: Option<&'a StoredSnapshot>,
    /// In order, without gaps, each with the number of its point.
    pub(super) segments: Vec<(u64, &'a StoredSegment)>,
    /// The point that has the issuer's key and the snapshot.
    pub(super) point: &'a Point,
}

impl<'a> Source<'a> {
    /// Everything that a point holds.
    pub(super) fn of(point: &'a Point) -> Self {
        Self::from(&[point])
    }

    /// Everything from the snapshot of the first of these points on.
    fn from(points: &[&'a Point]) -> Self {
        let point = points[0];
        let mut segments = BTreeMap::new();
        for later in points {
            // A later point knows more of the segment that was being written.
            for segment in later.segments.iter().filter(|it| it.number > point.covered()) {
                segments.insert(segment.number, (later.number, segment));
            }
        }
        let segments = segments.into_values().collect();
        Self { snapshot: point.snapshot.as_ref(), segments, point }
    }
}

/// The lines of a repository, oldest first.
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

/// Finds what to restore for a moment: in the newest line that holds it.
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
    /// Ends the line with the point of this number. `None` if it is not one of its points.
    pub(super) fn up_to(&self, number: u64) -> Option<Self> {
        let at = self.0.iter().position(|point| point.number == number)?;
        Some(Self(self.0[..=at].to_vec()))
    }

    pub(super) fn newest(&self) -> &'a Point {
        self.0[self.0.len() - 1]
    }

    /// The oldest moment that can be restored: before the first record, that is position 0.
    pub(super) fn oldest(&self) -> Known {
        self.0[0].snapshot.as_ref().map_or_else(Known::default, StoredSnapshot::last)
    }

    /// The newest moment that can be restored.
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

    /// The newest snapshot of the line that holds nothing after the moment, and what follows it.
    /// `None` if there is none.
    fn source(&self, moment: Moment) -> Option<Source<'a>> {
        let holds = |point: &&Point| match &point.snapshot {
            Some(snapshot) => moment.includes(snapshot.last()),
            // Its segments begin with the first record.
            None => true,
        };
        let at = self.0.iter().rposition(holds)?;
        Some(Source::from(&self.0[at..]))
    }
}
