//! A repository of backups: points, and the files that they share.
//!
//! ```text
//! points/      00000000000000000017.point    one for each backup (`point`)
//! files/       segment-…-2f5c8a0d1b7e4693    parts of segments, files of snapshots, …
//! unfinished/                                what a backup is writing
//! lock                                       keeps out a second backup
//! ```
//!
//! A file is written in `unfinished`, synced, read back, and then renamed to a name that ends with
//! the start of its SHA-256. It never changes from then on, and is removed only when no point lists
//! it. A point is written the same way, after all its files. So the repository is valid whenever a
//! backup stops, and so is a copy of it if files are copied before points. Leftovers are removed by
//! the next backup.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Context, SHA256};

use super::point::{NUMBER_MAX, Point, PointError, StoredFile, hexadecimal};
use crate::disk::{Disk, DiskError, DiskFile, DiskLock};
use crate::inspect::{InspectError, message, walk};
use crate::journal::number_before;
use crate::key_file::KeyFileError;

const POINTS_NAME: &str = "points";
const FILES_NAME: &str = "files";
const UNFINISHED_NAME: &str = "unfinished";
const LOCK_NAME: &str = "lock";
const POINT_SUFFIX: &str = ".point";

/// Longest file of a point, in bytes: enough for 300,000 files.
const POINT_BYTES_MAX: u64 = 128 << 20;

/// Files are written, synced and read in parts of this size, so that no flush of the journal waits
/// for a whole file.
const PART_BYTES: usize = 1 << 20;

/// Number of hexadecimal digits of the SHA-256 in the name of a file.
const NAME_DIGITS: usize = 16;

/// Error using a repository.
#[derive(Debug, thiserror::Error)]
pub enum RepositoryError {
    /// The data directory cannot be read.
    #[error(transparent)]
    Inspect(#[from] InspectError),
    /// The directory holds other files and is not a repository.
    #[error(
        "{} is not a repository of backups; name a new or empty directory, or one that `backup \
         --repository` has made",
        path.display()
    )]
    NotARepository {
        /// The path of the repository.
        path: PathBuf,
    },
    /// The repository holds no backup yet.
    #[error("{} holds no complete backup", path.display())]
    Empty {
        /// The path of the repository.
        path: PathBuf,
    },
    /// The repository has no point with this number.
    #[error("{} has no point {number}", path.display())]
    NoPoint {
        /// The path of the repository.
        path: PathBuf,
        /// The requested number.
        number: u64,
    },
    /// Another process is changing the repository.
    #[error("{} is in use by another backup; wait until that has finished", path.display())]
    InUse {
        /// The path of the repository.
        path: PathBuf,
    },
    /// The repository holds backups of another journal.
    #[error(
        "{} holds backups of another data folder; name a repository of its own for this one",
        path.display()
    )]
    OtherJournal {
        /// The path of the repository.
        path: PathBuf,
    },
    /// A point cannot be read.
    #[error(
        "{} is damaged: {reason}; nothing was changed; restore the file from a copy of the \
         repository, or move it out of the directory to go on without it",
        path.display()
    )]
    Point {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: PointError,
    },
    /// A file of a point is missing or is not the one that was stored.
    #[error(
        "{} {flaw}; point {point} needs it: restore the file from a copy of the repository, or \
         restore another point",
        path.display()
    )]
    File {
        /// The file.
        path: PathBuf,
        /// A point that lists the file.
        point: u64,
        /// The problem with the file.
        flaw: &'static str,
    },
    /// A file does not read back as it was written: the disk is unreliable.
    #[error("{} does not read back as it was written: check the disk", path.display())]
    Unreliable {
        /// The file.
        path: PathBuf,
    },
    /// A key cannot be read.
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl RepositoryError {
    /// Whether files are damaged, as opposed to a failure of this program or the machine.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Inspect(error) => error.is_damage(),
            Self::Point { reason, .. } => !matches!(reason, PointError::Newer(_)),
            Self::File { .. } | Self::Unreliable { .. } => true,
            _ => false,
        }
    }

    /// Returns the error's message, followed by the messages of its causes.
    pub fn message(&self) -> String {
        message(self)
    }
}

impl walk::Gone for RepositoryError {
    fn is_gone(&self) -> bool {
        matches!(self, Self::Inspect(error) if error.is_gone())
    }
}

/// A directory of backups.
#[derive(Clone, Debug)]
pub(super) struct Repository {
    pub(super) disk: Disk,
    pub(super) path: PathBuf,
}

/// The points of a repository, oldest first, and the errors of the unreadable ones.
pub(super) struct Points {
    pub(super) readable: Vec<Point>,
    pub(super) damaged: Vec<RepositoryError>,
    /// The number of the newest point, readable or not.
    pub(super) newest: u64,
}

/// The content of a file to store.
pub(super) enum Content<'a> {
    Bytes(&'a [u8]),
    File(&'a DiskFile),
}

impl Repository {
    /// Whether there is a repository at this path.
    pub(super) fn is_at(disk: &Disk, path: &Path) -> Result<bool, DiskError> {
        disk.exists(&path.join(POINTS_NAME))
    }

    /// Opens a repository to read it.
    pub(super) fn open(disk: Disk, path: &Path) -> Result<Self, RepositoryError> {
        if Self::is_at(&disk, path)? {
            Ok(Self { disk, path: path.to_path_buf() })
        } else {
            Err(RepositoryError::NotARepository { path: path.to_path_buf() })
        }
    }

    /// Opens a repository to change it, creating it if there is none.
    pub(super) fn open_or_create(
        disk: Disk,
        path: &Path,
    ) -> Result<(Self, DiskLock), RepositoryError> {
        let repository = Self { disk, path: path.to_path_buf() };
        let disk = &repository.disk;
        disk.create_directory(path)?;
        let own = [POINTS_NAME, FILES_NAME, UNFINISHED_NAME, LOCK_NAME];
        let names = disk.names(path)?;
        // Creating a repository makes the lock first, so an interrupted creation has left at least
        // the lock. Other files may belong to someone else, or to a repository that is being copied
        // back and has no points yet.
        let is_unfinished = names.iter().all(|name| own.contains(&name.as_str()))
            && (names.is_empty() || names.iter().any(|name| name == LOCK_NAME));
        if !is_unfinished && !Self::is_at(disk, path)? {
            return Err(RepositoryError::NotARepository { path: repository.path });
        }
        let Some(lock) = disk.lock(&path.join(LOCK_NAME))? else {
            return Err(RepositoryError::InUse { path: repository.path });
        };
        // Create the directory of points last: its presence marks a repository.
        for name in [UNFINISHED_NAME, FILES_NAME, POINTS_NAME] {
            disk.create_directory(&path.join(name))?;
        }
        Ok((repository, lock))
    }

    pub(super) fn file_path(&self, file: &StoredFile) -> PathBuf {
        self.path.join(FILES_NAME).join(&file.name)
    }

    fn point_path(&self, number: u64) -> PathBuf {
        self.path.join(POINTS_NAME).join(format!("{number:020}{POINT_SUFFIX}"))
    }

    /// Reads all points.
    pub(super) fn points(&self) -> Result<Points, RepositoryError> {
        let mut points = Points { readable: Vec::new(), damaged: Vec::new(), newest: 0 };
        for name in self.disk.names(&self.path.join(POINTS_NAME))? {
            let number = number_before(&name, POINT_SUFFIX).filter(|it| *it <= NUMBER_MAX);
            let Some(number) = number else { continue };
            points.newest = number;
            match self.point(number) {
                Ok(point) => points.readable.push(point),
                Err(error @ RepositoryError::Point { .. }) => points.damaged.push(error),
                // The point was removed after its name was read.
                Err(RepositoryError::Disk(error)) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(points)
    }

    /// Whether there is a point with a greater number, readable or not.
    pub(super) fn has_point_after(&self, number: u64) -> Result<bool, DiskError> {
        let names = self.disk.names(&self.path.join(POINTS_NAME))?;
        Ok(names.iter().filter_map(|name| number_before(name, POINT_SUFFIX)).any(|it| it > number))
    }

    /// Reads all points. Fails if any is damaged.
    pub(super) fn undamaged_points(&self) -> Result<Vec<Point>, RepositoryError> {
        let Points { readable, damaged, .. } = self.points()?;
        damaged.into_iter().next().map_or(Ok(readable), Err)
    }

    fn point(&self, number: u64) -> Result<Point, RepositoryError> {
        let path = self.point_path(number);
        let damaged = |reason| RepositoryError::Point { path: path.clone(), reason };
        let mut text = Vec::new();
        if self.disk.open_read(&path)?.read_into(&mut text, POINT_BYTES_MAX)?.is_none() {
            return Err(damaged(PointError::Value("length")));
        }
        let point = Point::decode(&text).map_err(damaged)?;
        if point.number == number { Ok(point) } else { Err(damaged(PointError::Value("number"))) }
    }

    /// Stores a file under its label and checksum, unless it is already stored. Returns whether it
    /// is new.
    pub(super) fn store(
        &self,
        label: &str,
        content: &Content<'_>,
    ) -> Result<(StoredFile, bool), RepositoryError> {
        let temporary = self.path.join(UNFINISHED_NAME).join(label);
        let file = self.disk.create(&temporary)?;
        let sha256 = digest_of(content, |part, offset| {
            file.write_at(part, offset)?;
            file.sync_data()
        })?;
        file.sync_all()?;
        let read_back = digest_of(&Content::File(&file), |_, _| Ok(()))?;
        if read_back != sha256 {
            return Err(RepositoryError::Unreliable { path: temporary });
        }
        let name = format!("{label}-{}", &sha256[..NAME_DIGITS]);
        let stored = StoredFile { name, bytes: file.bytes()?, sha256 };
        let path = self.file_path(&stored);
        if self.flaw_of(&stored)?.is_none() {
            self.disk.remove_file(&temporary)?;
            return Ok((stored, false));
        }
        self.disk.rename(&temporary, &path)?;
        Ok((stored, true))
    }

    /// Adds a point. Its files must be stored.
    pub(super) fn add(&self, point: &Point) -> Result<(), RepositoryError> {
        // Sync the names of the files first: a point on disk must never list a missing file.
        self.disk.sync_directory(&self.path.join(FILES_NAME))?;
        let temporary = self.path.join(UNFINISHED_NAME).join("point");
        let text = point.encode();
        let file = self.disk.create(&temporary)?;
        file.write_at(text.as_bytes(), 0)?;
        file.sync_all()?;
        self.disk.rename(&temporary, &self.point_path(point.number))?;
        self.disk.sync_directory(&self.path.join(POINTS_NAME))?;
        Ok(())
    }

    /// Removes a point. Its files stay.
    pub(super) fn remove_point(&self, number: u64) -> Result<(), DiskError> {
        self.disk.remove_file(&self.point_path(number))?;
        self.disk.sync_directory(&self.path.join(POINTS_NAME))
    }

    /// Removes the files that no point needs, left over from an interrupted backup or from removed
    /// points. Returns the number of files and bytes removed.
    pub(super) fn clean(&self, points: &[Point]) -> Result<(u64, u64), RepositoryError> {
        let unfinished = self.path.join(UNFINISHED_NAME);
        for name in self.disk.names(&unfinished)? {
            self.disk.remove_file(&unfinished.join(name))?;
        }
        let newest = points.last().map_or(0, |point| point.number);
        let needed: BTreeSet<&str> =
            needed_files(points, newest).map(|(_, file)| &*file.name).collect();
        let files = self.path.join(FILES_NAME);
        let (mut count, mut bytes) = (0, 0);
        for name in self.disk.names(&files)? {
            if !needed.contains(name.as_str()) {
                let path = files.join(name);
                bytes += self.disk.open_read(&path)?.bytes()?;
                self.disk.remove_file(&path)?;
                count += 1;
            }
        }
        Ok((count, bytes))
    }

    pub(super) fn missing(&self, file: &StoredFile, point: u64) -> RepositoryError {
        RepositoryError::File { path: self.file_path(file), point, flaw: "is missing" }
    }

    /// Reads a stored file and checks it.
    pub(super) fn read(&self, file: &StoredFile, point: u64) -> Result<Vec<u8>, RepositoryError> {
        let mut content = Vec::new();
        self.read_parts(file, point, |part, _| {
            content.extend_from_slice(part);
            Ok(())
        })?;
        Ok(content)
    }

    /// Passes a stored file to `take` in parts, with their offsets, and checks the whole file.
    pub(super) fn read_parts(
        &self,
        file: &StoredFile,
        point: u64,
        take: impl FnMut(&[u8], u64) -> Result<(), DiskError>,
    ) -> Result<(), RepositoryError> {
        let path = self.file_path(file);
        let flawed = |flaw| RepositoryError::File { path: path.clone(), point, flaw };
        let opened = match self.disk.open_read(&path) {
            Err(error) if is_gone(&error) => return Err(self.missing(file, point)),
            opened => opened?,
        };
        if opened.bytes()? != file.bytes {
            return Err(flawed("has another length than when it was stored"));
        }
        if digest_of(&Content::File(&opened), take)? != file.sha256 {
            return Err(flawed("does not match its checksum"));
        }
        Ok(())
    }

    /// Returns the problem with a stored file, if there is one.
    fn flaw_of(&self, file: &StoredFile) -> Result<Option<&'static str>, RepositoryError> {
        match self.read_parts(file, 0, |_, _| Ok(())) {
            Ok(()) => Ok(None),
            Err(RepositoryError::File { flaw, .. }) => Ok(Some(flaw)),
            Err(error) => Err(error),
        }
    }
}

fn is_gone(error: &DiskError) -> bool {
    error.source.kind() == ErrorKind::NotFound
}

/// Returns the files that points need, oldest point first, each with the number of its point. For
/// the oldest point, the segments before its snapshot are not needed, and the hourly prices are
/// needed only for point `newest`.
pub(super) fn needed_files(
    points: &[Point],
    newest: u64,
) -> impl Iterator<Item = (u64, &StoredFile)> {
    points.iter().enumerate().flat_map(move |(at, point)| {
        let is_oldest = at == 0;
        let snapshot = point.snapshot.iter().flat_map(|it| it.files.iter().map(|it| &it.stored));
        let segments = point.segments.iter();
        let segments = segments.filter(move |it| !is_oldest || it.number > point.covered());
        let hours = point.price_hours.as_ref().filter(|_| point.number == newest);
        let files = snapshot.chain(segments.flat_map(|segment| &segment.parts));
        let keys = point.issuer_key.iter().chain(&point.wallets_key);
        files.chain(keys).chain(hours).map(|file| (point.number, file))
    })
}

/// Returns the SHA-256 of the content in hexadecimal. Passes each part with its offset to `take`.
fn digest_of(
    content: &Content<'_>,
    mut take: impl FnMut(&[u8], u64) -> Result<(), DiskError>,
) -> Result<String, DiskError> {
    let mut context = Context::new(&SHA256);
    match content {
        Content::Bytes(bytes) => {
            let mut offset = 0;
            for part in bytes.chunks(PART_BYTES) {
                context.update(part);
                take(part, offset)?;
                offset += part.len() as u64;
            }
        }
        Content::File(file) => {
            let bytes = file.bytes()?;
            let mut buffer = vec![0; PART_BYTES];
            let mut offset = 0;
            while offset < bytes {
                let left = usize::try_from(bytes - offset).unwrap_or(PART_BYTES);
                let part = &mut buffer[..left.min(PART_BYTES)];
                file.read_at(part, offset)?;
                context.update(part);
                take(part, offset)?;
                offset += part.len() as u64;
            }
        }
    }
    Ok(hexadecimal(context.finish().as_ref()))
}
