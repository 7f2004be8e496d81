//! The parts of a copy of a data directory: files, or prefixes of files, that another machine can
//! read piece by piece while a server writes the original.

use std::path::PathBuf;

use crate::disk::{DiskError, DiskFile};
use crate::inspect::{InspectError, walk};
use crate::journal::{Batch, SegmentReader, segment_name};
use crate::snapshot::{Folder, Snapshot};

/// Maximum length of a piece that is read at once, in bytes.
pub const PIECE_BYTES_MAX: usize = 256 << 10;

/// A file of a data directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum File {
    /// A snapshot, by the last segment that it covers.
    Snapshot(u64),
    /// A file of orders that snapshots refer to, by its number.
    Orders(u64),
    /// A segment of the journal, by its number.
    Segment(u64),
    /// The hourly prices.
    PriceHours,
}

/// The part of a file that a copy needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The file.
    pub file: File,
    /// Number of bytes that are copied, from the start of the file.
    pub bytes: u64,
    /// Length of the file in the copy, in bytes. The rest is zeros.
    pub room_bytes: u64,
}

/// Reads pieces of files. Keeps one file open, so that it can still be read after being replaced,
/// moved or removed.
#[derive(Debug)]
pub struct Pieces {
    folder: Folder,
    open: Option<(File, DiskFile)>,
}

impl Pieces {
    /// Returns the parts that a copy of this directory needs, and a reader for them: the hourly
    /// prices, the newest snapshot and the segments after it, up to the last complete block.
    /// Segments are checked as at startup. The hourly prices come first and have to be read first:
    /// their file is already open, so all pieces are of one version.
    pub fn of(folder: Folder) -> Result<(Vec<Part>, Self), InspectError> {
        let whole = |file, bytes| Part { file, bytes, room_bytes: bytes };
        let (mut parts, mut open) = (Vec::new(), None);
        let hours = folder.price_hours();
        if folder.disk.exists(&hours)? && folder.disk.is_regular_file(&hours)? {
            let file = folder.disk.open_read(&hours)?;
            parts.push(whole(File::PriceHours, file.bytes()?));
            open = Some((File::PriceHours, file));
        }
        // Open the snapshot before the segments: those after it stay until two newer snapshots
        // exist.
        let snapshot = Snapshot::newest(&folder)?;
        if let Some(snapshot) = &snapshot {
            let orders = snapshot.order_files();
            parts.extend(orders.map(|(number, bytes)| whole(File::Orders(number), bytes)));
            parts.push(whole(File::Snapshot(snapshot.number), snapshot.own_bytes()));
        }
        let first = snapshot.as_ref().map_or(1, |snapshot| snapshot.number + 1);
        let reader = SegmentReader::after(snapshot.as_ref().map(Snapshot::mark));
        let add = &mut |batch: &Batch| -> Result<(), InspectError> {
            let (file, room_bytes) = (File::Segment(batch.segment()), batch.content().len() as u64);
            parts.push(Part { file, bytes: batch.end().into(), room_bytes });
            Ok(())
        };
        walk::read_to_end(&folder, reader, first, add)?;
        Ok((parts, Self { folder, open }))
    }

    /// Fills `piece` with the file's content from this offset on.
    pub fn read(&mut self, file: File, offset: u64, piece: &mut [u8]) -> Result<(), DiskError> {
        if self.open.as_ref().is_none_or(|&(open, _)| open != file) {
            let path = match file {
                // The segment may be in the archive by now.
                File::Segment(number) => self.folder.segment_path(number)?,
                _ => None,
            };
            let path = path.unwrap_or_else(|| file.path(&self.folder));
            self.open = Some((file, self.folder.disk.open_read(&path)?));
        }
        let (_, open) = self.open.as_ref().expect("it was opened");
        open.read_at(piece, offset)
    }
}

impl File {
    fn path(self, folder: &Folder) -> PathBuf {
        match self {
            Self::Snapshot(number) => folder.snapshot_path(number),
            Self::Orders(number) => folder.orders_path(number),
            Self::Segment(number) => folder.journal().join(segment_name(number)),
            Self::PriceHours => folder.price_hours(),
        }
    }
}

/// Writes these parts into an empty data directory; they are on disk when it returns. `read` fills
/// a buffer from an offset of a file.
pub fn write<E: From<DiskError>>(
    to: &Folder,
    parts: &[Part],
    mut read: impl FnMut(File, u64, &mut [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let disk = &to.disk;
    for directory in [to.journal(), to.snapshots()] {
        disk.create_directory(&directory)?;
    }
    let mut piece = vec![0; PIECE_BYTES_MAX];
    for &Part { file, bytes, room_bytes } in parts {
        let copy = disk.create(&file.path(to))?;
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
    for directory in [to.journal(), to.snapshots(), to.path().to_owned()] {
        disk.sync_directory(&directory)?;
    }
    Ok(())
}
