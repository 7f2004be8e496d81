//! Decides which points of a repository are kept. Points are removed oldest first, so that the
//! remaining points still follow each other. Files that no point needs any more are removed
//! afterwards.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use super::point::Point;
use super::repository::{Repository, RepositoryError};
use crate::disk::Disk;
use crate::inspect::count;
use paperbourse_core::ids::Timestamp;

const DAY_SECONDS: i64 = 24 * 3_600;

/// The retention policy. With both limits, a point stays if either limit keeps it; with neither,
/// all points stay.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Keep {
    /// Keep this many of the newest points.
    pub points: Option<u32>,
    /// Keep the points that are needed to restore any moment of this many days.
    pub days: Option<u32>,
}

/// The result of pruning a repository.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct PruneReport {
    /// Number of points left.
    pub points: u64,
    /// Number of points removed.
    pub removed_points: u64,
    /// Number of files removed.
    pub removed_files: u64,
    /// Size of the removed files, in bytes.
    pub removed_bytes: u64,
}

/// Removes the points of a repository that the policy `keep` does not cover, and the files that no
/// point needs.
pub fn prune(path: &Path, keep: Keep, now: Timestamp) -> Result<PruneReport, RepositoryError> {
    // The repository must exist: a wrong path must not create a new one.
    Repository::open(Disk::System, path)?;
    let (repository, _lock) = Repository::open_or_create(Disk::System, path)?;
    let mut points = repository.undamaged_points()?;
    keep.apply(&repository, &mut points, now)
}

impl Keep {
    /// Removes the points that are not kept, from the repository and from `points`.
    pub(super) fn apply(
        self,
        repository: &Repository,
        points: &mut Vec<Point>,
        now: Timestamp,
    ) -> Result<PruneReport, RepositoryError> {
        let taken: Vec<Timestamp> = points.iter().map(|point| point.taken_at.0).collect();
        let removed: Vec<Point> = points.drain(..self.first_kept(&taken, now)).collect();
        for point in &removed {
            repository.remove_point(point.number)?;
        }
        let (removed_files, removed_bytes) = repository.clean(points)?;
        Ok(PruneReport {
            points: points.len() as u64,
            removed_points: removed.len() as u64,
            removed_files,
            removed_bytes,
        })
    }

    /// Returns the index of the oldest point that stays. `taken` holds the time of each point,
    /// oldest first. The newest point always stays.
    fn first_kept(self, taken: &[Timestamp], now: Timestamp) -> usize {
        let newest = taken.len().saturating_sub(1);
        let by_count = self.points.map(|points| taken.len().saturating_sub(points as usize));
        let by_time = self.days.map(|days| {
            let seconds = now.seconds().saturating_sub(i64::from(days) * DAY_SECONDS);
            // A moment shortly after that time is restored from the last point before it.
            taken.iter().rposition(|taken| taken.seconds() < seconds).unwrap_or(0)
        });
        by_count.into_iter().chain(by_time).min().unwrap_or(0).min(newest)
    }
}

impl fmt::Display for PruneReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { points, removed_points, removed_files, removed_bytes } = *self;
        write!(formatter, "removed {}", count(removed_points, "point"))?;
        write!(formatter, ", {}", count(removed_files, "file"))?;
        write!(formatter, ", {}", count(removed_bytes, "byte"))?;
        write!(formatter, "; {} left", count(points, "point"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hours since each point was taken, the limits on points and days, and the first point kept.
    type Case<'a> = (&'a [i64], Option<u32>, Option<u32>, usize);

    #[test]
    fn the_newest_points_and_days_are_kept() {
        const HOUR: i64 = 3_600;
        let now = Timestamp::from_seconds(1_800_000_000);
        let before = |hours: &[i64]| -> Vec<Timestamp> {
            let at = |hours| Timestamp::from_seconds(now.seconds() - hours * HOUR);
            hours.iter().map(|&hours| at(hours)).collect()
        };
        let hourly: Vec<i64> = (0..100).rev().collect();
        let cases: [Case<'_>; 14] = [
            (&[], Some(1), Some(1), 0),
            (&[0], None, None, 0),
            (&[0], Some(1), None, 0),
            (&[5, 0], None, None, 0),
            (&[5, 0], Some(1), None, 1),
            (&[5, 0], Some(3), None, 0),
            (&hourly, Some(10), None, 90),
            // The point of 25 hours ago, so that any moment of the last 24 can be restored.
            (&hourly, None, Some(1), 74),
            (&hourly, None, Some(4), 2),
            (&hourly, None, Some(5), 0),
            (&hourly, None, Some(u32::MAX), 0),
            (&hourly, Some(10), Some(1), 74),
            (&hourly, Some(50), Some(1), 50),
            // No backup for a long time: the newest one stays.
            (&[500, 400], None, Some(1), 1),
        ];
        for (taken, points, days, expected) in cases {
            let keep = Keep { points, days };
            assert_eq!(keep.first_kept(&before(taken), now), expected, "{keep:?} of {taken:?}");
        }
        // The clock was ahead for a while.
        let keep = Keep { points: None, days: Some(1) };
        assert_eq!(keep.first_kept(&before(&[60, 30, -500, 1]), now), 1);
    }
}
