//! What a copy of a data directory consists of: files, or the beginnings of files, that can be read
//! piece by piece while a server writes the original.

use std::path::PathBuf;

use crate::disk::{DiskError, DiskFile};
use crate::inspect::{InspectError, walk};
use crate::journal::{Batch, CLUSTER_COPY_NAME, CLUSTER_NAME, SegmentReader, segment_name};
use crate::snapshot::{Folder, Snapshot};

/// The longest piece that is read at a time, in bytes.
pub const PIECE_BYTES_MAX: usize = 256 << 10;

/// A file of a data directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum File {
    /// A snapshot, by the last segment that it covers.
    Snapshot(u64),
    /// Orders that snapshots refer to, by the number of the file.
    Orders(u64),
    /// A segment of the journal, by its number.
    Segment(u64),
    /// The hourly prices.
    PriceHours,
    /// The mark of a cluster.
    Mark,
}

/// What a copy needs of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The file.
    pub file: File,
    /// How many of its bytes, from the first.
    pub bytes: u64,
    /// The length of the file in the copy, in bytes. The rest is zeros.
    pub room_bytes: u64,
}

/// What a copy of the directory needs, the newest snapshot and what follows it, up to the last
/// complete block. All of that was checked as at a start, and does not change any more. Only the
/// hourly prices may be replaced.
pub fn parts(folder: &Folder) -> Result<Vec<Part>, InspectError> {
    let mut parts = Vec::new();
    let whole = |file, bytes| Part { file, bytes, room_bytes: bytes };
    // The snapshot first: the segments after it stay until two newer snapshots exist.
    let snapshot = Snapshot::newest(folder)?;
    if let Some(snapshot) = &snapshot {
        let orders = snapshot.order_files();
        parts.extend(orders.map(|(number, bytes)| whole(File::Orders(number), bytes)));
        parts.push(whole(File::Snapshot(snapshot.number), snapshot.own_bytes()));
    }
    let first = snapshot.as_ref().map_or(1, |snapshot| snapshot.number + 1);
    let reader = SegmentReader::after(snapshot.as_ref().map(Snapshot::mark));
    walk::read_to_end(folder, reader, first, &mut |batch: &Batch| -> Result<(), InspectError> {
        let (file, room_bytes) = (File::Segment(batch.segment()), batch.content().len() as u64);
        parts.push(Part { file, bytes: batch.end().into(), room_bytes });
        Ok(())
    })?;
    for file in [File::PriceHours, File::Mark] {
        let path = file.original(folder)?;
        if folder.disk.exists(&path)? && folder.disk.is_regular_file(&path)? {
            parts.push(whole(file, folder.disk.open_read(&path)?.bytes()?));
        }
    }
    Ok(parts)
}

impl File {
    /// Where it is in a data directory that a server may be running on.
    fn original(self, folder: &Folder) -> Result<PathBuf, DiskError> {
        let moved = match self {
            Self::Segment(number) => folder.segment_path(number)?,
            Self::Mark => {
                let mark = folder.path().join(CLUSTER_NAME);
                folder.disk.exists(&mark)?.then_some(mark)
            }
            Self::Snapshot(_) | Self::Orders(_) | Self::PriceHours => None,
        };
        Ok(moved.unwrap_or_else(|| self.copied(folder)))
    }

    /// Where it is in a copy. The mark has a name there that lets the copy be served alone as well.
    fn copied(self, folder: &Folder) -> PathBuf {
        match self {
            Self::Snapshot(number) => folder.snapshot_path(number),
            Self::Orders(number) => folder.orders_path(number),
            Self::Segment(number) => folder.journal().join(segment_name(number)),
            Self::PriceHours => folder.price_hours(),
            Self::Mark => folder.path().join(CLUSTER_COPY_NAME),
        }
    }
}

/// Reads pieces of files, of which it keeps one open: that one may be moved or removed meanwhile.
#[derive(Debug)]
pub struct Pieces {
    folder: Folder,
    open: Option<(File, DiskFile)>,
}

impl Pieces {
    /// A reader of this directory.
    pub const fn of(folder: Folder) -> Self {
        Self { folder, open: None }
    }

    /// Fills the buffer from an offset of the file.
    pub fn read(&mut self, file: File, offset: u64, piece: &mut [u8]) -> Result<(), DiskError> {
        if self.open.as_ref().is_none_or(|&(open, _)| open != file) {
            let path = file.original(&self.folder)?;
            self.open = Some((file, self.folder.disk.open_read(&path)?));
        }
        let (_, open) = self.open.as_ref().expect("it was opened");
        open.read_at(piece, offset)
    }
}

/// Writes these parts into a data directory that has none of them, all on disk when it returns.
/// `read` fills a buffer from an offset of a file.
pub fn write<E: From<DiskError>>(
    to: &Folder,
    parts: &[Part],
    mut read: impl FnMut(File, u64, &mut [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let disk = &to.disk;
    disk.create_directory(&to.journal())?;
    if parts.iter().any(|part| matches!(part.file, File::Snapshot(_))) {
        disk.create_directory(&to.snapshots())?;
    }
    let mut piece = vec![0; PIECE_BYTES_MAX];
    for &Part { file, bytes, room_bytes } in parts {
        let copy = disk.create(&file.copied(to))?;
        let mut offset = 0;
        while offset < room_bytes {
            let up_to = |end: u64| {
                let left = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX);
                left.min(PIECE_BYTES_MAX)
            };
            let (known, length) = (up_to(bytes), up_to(room_bytes));
            if known > 0 {
                read(file, offset, &mut piece[..known])?;
            }
            piece[known..length].fill(0);
            copy.write_at(&piece[..length], offset)?;
            copy.sync_data()?;
            offset += length as u64;
        }
        copy.sync_all()?;
    }
    for directory in [to.snapshots(), to.journal()] {
        if disk.exists(&directory)? {
            disk.sync_directory(&directory)?;
        }
    }
    Ok(disk.sync_directory(to.path())?)
}
