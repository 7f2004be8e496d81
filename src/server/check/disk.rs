//! Checks the disk of a data folder: whether it is in memory, and whether it has enough free space.

use std::fs;
use std::path::Path;

use rustix::fs::{StatFs, statfs};

use crate::config::ServeArgs;
use crate::journal::{ARCHIVE_NAME, JOURNAL_NAME};
use crate::server::memory::megabytes;

/// File systems that are kept in memory, by the magic numbers that Linux assigns to them.
const IN_MEMORY: [(i64, &str); 2] = [(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs")];

/// Returns the risks that the disk poses to this data folder. Returns none if the disk cannot be
/// queried: problems with the folder itself are reported elsewhere.
pub(super) fn risks(folder: &Path, arguments: &ServeArgs) -> Vec<String> {
    let Ok(disk) = statfs(nearest(folder)) else { return Vec::new() };
    let held = held_bytes(&folder.join(JOURNAL_NAME)) + held_bytes(&folder.join(ARCHIVE_NAME));
    let in_memory = memory_of(&disk).map(|kind| {
        format!(
            "{} is in memory ({kind}): what the server has acknowledged is gone when the machine \
             stops. Choose a folder on a disk with --data",
            folder.display()
        )
    });
    in_memory.into_iter().chain(shortage(free_bytes(&disk), held, arguments)).collect()
}

/// Returns the nearest existing folder: this one, or the closest existing ancestor.
pub(super) fn nearest(folder: &Path) -> &Path {
    let is_there = |folder: &&Path| folder.as_os_str().is_empty() || folder.exists();
    let found = folder.ancestors().find(is_there).unwrap_or(Path::new("/"));
    if found.as_os_str().is_empty() { Path::new(".") } else { found }
}

fn memory_of(disk: &StatFs) -> Option<&'static str> {
    #[expect(clippy::unnecessary_cast, reason = "32 bits on some machines")]
    let kind = disk.f_type as i64;
    IN_MEMORY.iter().find(|(number, _)| *number == kind).map(|(_, name)| *name)
}

/// Returns the free space available to this user, in bytes.
fn free_bytes(disk: &StatFs) -> u64 {
    #[expect(clippy::unnecessary_cast, reason = "32 bits on some machines")]
    let block_bytes = u64::try_from(disk.f_bsize as i64).unwrap_or_default();
    disk.f_bavail.saturating_mul(block_bytes)
}

/// Returns a warning if the free space is too small for the growth that the options allow. The
/// `held` bytes in the folder are already part of that growth.
fn shortage(free: u64, held: u64, arguments: &ServeArgs) -> Option<String> {
    // Startup replays up to as much journal as two snapshots span. Two more segments exist: the one
    // being written and the one prepared to follow it.
    let journal = arguments.snapshot_bytes.saturating_mul(2);
    let segments = arguments.journal_segment_bytes.saturating_mul(2);
    let allowed = arguments.archive_bytes.saturating_add(journal).saturating_add(segments);
    let wanted = allowed.saturating_sub(held);
    (free < wanted).then(|| {
        format!(
            "the disk has {} MB free, and the journal with its archive may grow by {} MB: make \
             room, or lower --archive-bytes. A full disk refuses orders",
            megabytes(free),
            megabytes(wanted)
        )
    })
}

/// Returns the total size of the files in this folder, in bytes.
fn held_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|file| file.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::serve;

    #[test]
    fn what_the_options_allow_has_to_fit() {
        const GIB: u64 = 1 << 30;
        // The defaults: 10 GiB of archive, 512 MiB of journal and two segments of 64 MiB.
        let wanted = 10 * GIB + (640 << 20);
        for (flags, free, held, is_short) in [
            (&[][..], wanted, 0, false),
            (&[], wanted - 1, 0, true),
            (&[], GIB, wanted - GIB, false),
            (&[], 0, u64::MAX, false),
            (&["--archive-bytes", "0"], GIB, 0, false),
            (&["--archive-bytes", "1T"], 100 * GIB, 0, true),
            (&["--snapshot-bytes", "18446744073709551615"], 100 * GIB, 0, true),
        ] {
            let arguments = serve(flags).unwrap();
            assert_eq!(shortage(free, held, &arguments).is_some(), is_short, "{flags:?} {free}");
        }
    }

    #[test]
    fn a_folder_to_be_is_on_the_disk_of_the_nearest_one() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(nearest(&folder.path().join("a/b")), folder.path());
        assert_eq!(nearest(folder.path()), folder.path());
        assert_eq!(nearest(Path::new("not/there")), Path::new("."));
        assert_eq!(nearest(Path::new("/not/there")), Path::new("/"));
    }
}
