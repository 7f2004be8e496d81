//! Lists the contents of a repository and checks that they are complete.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use serde::Serialize;

use super::line::lines;
use super::point::{Point, StoredFile};
use super::repository::{Points, Repository, RepositoryError, needed_files};
use crate::disk::Disk;
use crate::inspect::{Text, count, run};
use paperbourse_core::ids::Timestamp;

/// The contents of a repository.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ListReport {
    /// The points, oldest first.
    pub points: Vec<PointReport>,
    /// The time spans within which any moment can be restored, oldest first.
    pub spans: Vec<Span>,
    /// Unreadable points and missing files.
    pub damage: Vec<String>,
}

/// A point of a repository.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PointReport {
    /// The point's number.
    pub number: u64,
    /// Time at which the backup was taken.
    pub taken_at: Text<Timestamp>,
    /// Position of the newest record.
    pub last_position: u64,
    /// Size of the files that the point needs, in bytes. Points share files.
    pub bytes: u64,
    /// Size of the files that no earlier point needs, in bytes.
    pub own_bytes: u64,
}

/// A time span within which any moment can be restored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Span {
    /// The oldest time. `None` if it is before the first record.
    pub from: Option<Text<Timestamp>>,
    /// The position at the oldest time.
    pub from_position: u64,
    /// The newest time.
    pub to: Text<Timestamp>,
    /// The position at the newest time.
    pub to_position: u64,
}

/// The result of checking a repository.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct CheckReport {
    /// Number of readable points.
    pub points: u64,
    /// Number of files that the readable points need.
    pub files: u64,
    /// Size of the needed files, in bytes.
    pub bytes: u64,
    /// Unreadable points, and missing or damaged files.
    pub damage: Vec<String>,
}

/// Lists the points of a repository. Checks that files exist, but does not read them.
pub fn list(path: &Path) -> Result<ListReport, RepositoryError> {
    let repository = Repository::open(Disk::System, path)?;
    let Points { readable, damaged, newest } = repository.points()?;
    let mut damage: Vec<String> = damaged.iter().map(ToString::to_string).collect();
    let mut seen = BTreeSet::new();
    let mut missing = Vec::new();
    let mut own = BTreeMap::<u64, u64>::new();
    for (point, file) in needed_files(&readable, newest) {
        if seen.insert(&file.name) {
            *own.entry(point).or_default() += file.bytes;
            if !repository.disk.exists(&repository.file_path(file))? {
                missing.push((file, repository.missing(file, point)));
            }
        }
    }
    damage.extend(still_needed(&repository, missing)?);
    let report = |point: &Point| PointReport {
        number: point.number,
        taken_at: Text(point.taken_at.0),
        last_position: point.last().position,
        bytes: point.bytes_alone(newest),
        own_bytes: own.get(&point.number).copied().unwrap_or_default(),
    };
    let lines = lines(&readable);
    let spans = lines.iter().map(|line| Span {
        from: line.oldest().decided_at(),
        from_position: line.oldest().position,
        to: Text(line.ends_at()),
        to_position: line.newest().last().position,
    });
    let spans = spans.collect();
    Ok(ListReport { points: readable.iter().map(report).collect(), spans, damage })
}

/// Reads and checks every file that the points of a repository need.
pub fn check(path: &Path) -> Result<CheckReport, RepositoryError> {
    let repository = Repository::open(Disk::System, path)?;
    let Points { readable, damaged, newest } = repository.points()?;
    let damage = damaged.iter().map(ToString::to_string).collect();
    let mut report = CheckReport { points: readable.len() as u64, files: 0, bytes: 0, damage };
    let mut files: BTreeMap<&StoredFile, u64> = BTreeMap::new();
    for (point, file) in needed_files(&readable, newest) {
        files.entry(file).or_insert(point);
    }
    let mut flawed = Vec::new();
    for (file, point) in files {
        report.files += 1;
        report.bytes += file.bytes;
        match repository.read_parts(file, point, |_, _| Ok(())) {
            Ok(()) => {}
            Err(error @ RepositoryError::File { .. }) => flawed.push((file, error)),
            Err(error) => return Err(error),
        }
    }
    report.damage.extend(still_needed(&repository, flawed)?);
    Ok(report)
}

/// Returns the errors of the files that are still needed. Another process may have removed points
/// in the meantime, and then the files that only those points needed.
fn still_needed(
    repository: &Repository,
    flawed: Vec<(&StoredFile, RepositoryError)>,
) -> Result<Vec<String>, RepositoryError> {
    if flawed.is_empty() {
        return Ok(Vec::new());
    }
    let Points { readable, newest, .. } = repository.points()?;
    let needed: BTreeSet<&StoredFile> =
        needed_files(&readable, newest).map(|(_, file)| file).collect();
    let flawed = flawed.into_iter().filter(|(file, _)| needed.contains(file));
    Ok(flawed.map(|(_, error)| error.to_string()).collect())
}

impl ListReport {
    /// Whether no point or file is damaged or missing.
    pub const fn is_ok(&self) -> bool {
        self.damage.is_empty()
    }
}

impl CheckReport {
    /// Whether every file is as it was stored.
    pub const fn is_ok(&self) -> bool {
        self.damage.is_empty()
    }
}

impl fmt::Display for ListReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for point in &self.points {
            let PointReport { number, taken_at, last_position, .. } = point;
            write!(formatter, "point {number:<6} {taken_at}  position {last_position}")?;
            let (own, all) = (count(point.own_bytes, "byte"), count(point.bytes, "byte"));
            writeln!(formatter, ", {own} of its own, {all} in all")?;
        }
        for Span { from, from_position, to, to_position } in &self.spans {
            let positions = run("position", *from_position, *to_position);
            match from {
                Some(from) => write!(formatter, "any moment   {from} to {to}")?,
                None => write!(formatter, "any moment   up to {to}")?,
            }
            writeln!(formatter, ", {positions}")?;
        }
        for damage in &self.damage {
            writeln!(formatter, "damaged: {damage}")?;
        }
        write!(formatter, "{}", count(self.points.len() as u64, "point"))
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for damage in &self.damage {
            writeln!(formatter, "damaged: {damage}")?;
        }
        let state = if self.is_ok() { "ok" } else { "not whole" };
        let (points, files) = (count(self.points, "point"), count(self.files, "file"));
        write!(formatter, "{state}: {points}, {files}, {}", count(self.bytes, "byte"))
    }
}
