//! Copies of torn tails: the bytes cut off the journal at startup, kept for inspection.
//!
//! A copy holds exactly the bytes that were cut off. Its name consists of the segment's file name,
//! the offset of the cut, and `broken`.

use std::path::{Path, PathBuf};

use super::segment;
use crate::disk::{self, Disk, DiskError};

/// Number of copies kept; the oldest are removed first.
pub(super) const BROKEN_COPIES_MAX: usize = 8;

const SUFFIX: &str = ".broken";

/// The position of a cut: segment number and offset. The journal only grows, so a later cut has a
/// greater position.
type CutAt = (u64, u64);

/// Keeps a copy of the cut bytes. Returns `None` if the disk has no room for the copy even after
/// all older copies were removed.
pub(super) fn keep(
    disk: &Disk,
    directory: &Path,
    (number, offset): CutAt,
    torn: &[u8],
) -> Result<Option<PathBuf>, DiskError> {
    let path = directory.join(format!("{}.{offset}{SUFFIX}", segment::file_name(number)));
    // An interrupted startup has already kept its copy, which may hold more than is left by now.
    if disk.exists(&path)? {
        return Ok(Some(path));
    }
    let mut others = BROKEN_COPIES_MAX - 1;
    loop {
        remove_all_but(disk, directory, others)?;
        match write(disk, &path, torn) {
            Ok(()) => {
                disk.sync_directory(directory)?;
                return Ok(Some(path));
            }
            Err(error) if error.is_full() => remove_temporary(disk, &path)?,
            Err(error) => return Err(error),
        }
        let Some(fewer) = others.checked_sub(1) else { return Ok(None) };
        others = fewer;
    }
}

/// Whether a file is an unfinished copy.
pub(super) fn is_unfinished(file_name: &str) -> bool {
    file_name.strip_suffix(".tmp").and_then(cut_at).is_some()
}

fn write(disk: &Disk, path: &Path, torn: &[u8]) -> Result<(), DiskError> {
    let temporary = disk::temporary_name(path);
    let file = disk.create(&temporary)?;
    file.append(torn)?;
    file.sync_all()?;
    disk.rename(&temporary, path)
}

fn remove_temporary(disk: &Disk, path: &Path) -> Result<(), DiskError> {
    let temporary = disk::temporary_name(path);
    if disk.exists(&temporary)? { disk.remove_file(&temporary) } else { Ok(()) }
}

fn remove_all_but(disk: &Disk, directory: &Path, kept: usize) -> Result<(), DiskError> {
    let names = disk.names(directory)?;
    let mut copies: Vec<_> =
        names.iter().filter_map(|name| cut_at(name).map(|at| (at, name))).collect();
    copies.sort_unstable();
    for (_, name) in copies.iter().take(copies.len().saturating_sub(kept)) {
        let path = directory.join(name);
        disk.remove_file(&path)?;
        tracing::info!(path = %path.display(), "removed an old copy of a torn journal tail");
    }
    Ok(())
}

/// Parses the position in the name of a copy. `None` for any other file.
fn cut_at(file_name: &str) -> Option<CutAt> {
    let (segment, offset) = file_name.strip_suffix(SUFFIX)?.rsplit_once('.')?;
    Some((segment::number_of(segment)?, offset.parse().ok()?))
}
