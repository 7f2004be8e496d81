//! The part of a segment's file that is in memory while the segment is read.

use std::sync::Arc;

use parking_lot::Mutex;

use super::segment::SEGMENT_BYTES_MAX;
use super::tail;
use crate::disk::{DiskError, DiskFile};

/// Minimum length of a read and of a piece, in bytes; the last one of a file may be shorter.
/// Smaller in tests, which write small segments.
const PIECE_BYTES: usize = if cfg!(any(test, feature = "test-util")) { 8 << 10 } else { 1 << 20 };

/// A window onto a segment's file. It only moves forward.
pub(super) struct Window<'f> {
    /// `None` if the whole file is in memory.
    file: Option<&'f DiskFile>,
    buffer: Buffer,
    /// Offset in the file at which the buffer begins.
    at: usize,
    file_bytes: usize,
}

/// The bytes of a batch of records.
#[derive(Debug)]
pub(super) struct Content {
    buffer: Buffer,
    /// Offset in the file at which the bytes begin.
    at: usize,
    is_whole: bool,
}

/// A buffer, returned to its reader on drop: allocating fresh memory takes longer than reading a
/// segment into it.
#[derive(Debug)]
struct Buffer {
    bytes: Vec<u8>,
    spare: Arc<Spare>,
}

/// The buffer that was returned most recently. Buffers returned earlier are freed.
pub(super) type Spare = Mutex<Vec<u8>>;

impl Buffer {
    fn of(spare: &Arc<Spare>) -> Self {
        Self { bytes: std::mem::take(&mut *spare.lock()), spare: spare.clone() }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        std::mem::swap(&mut *self.spare.lock(), &mut self.bytes);
    }
}

impl Content {
    /// Returns the bytes that follow this offset of the file.
    pub(super) fn starting_at(&self, offset: usize) -> &[u8] {
        debug_assert!(offset >= self.at, "the offset must be in the piece");
        &self.buffer.bytes[offset - self.at..]
    }

    /// Returns the whole file. Panics if only a piece of it is in memory.
    pub(super) fn whole(&self) -> &[u8] {
        assert!(self.is_whole, "only a piece of the file is in memory");
        &self.buffer.bytes
    }
}

impl<'f> Window<'f> {
    /// Creates a window that reads the file as needed. Returns `None` if the file is longer than
    /// any segment.
    pub(super) fn of_file(
        file: &'f DiskFile,
        spare: &Arc<Spare>,
    ) -> Result<Option<Self>, DiskError> {
        let bytes = file.bytes()?;
        let Some(file_bytes) = usize::try_from(bytes).ok().filter(|_| bytes <= SEGMENT_BYTES_MAX)
        else {
            return Ok(None);
        };
        let mut buffer = Buffer::of(spare);
        buffer.bytes.clear();
        Ok(Some(Self { file: Some(file), buffer, at: 0, file_bytes }))
    }

    /// Creates a window and reads the whole file into it. Returns `None` if the file is longer than
    /// any segment.
    pub(super) fn of_whole_file(
        file: &DiskFile,
        spare: &Arc<Spare>,
    ) -> Result<Option<Self>, DiskError> {
        let mut buffer = Buffer::of(spare);
        let read = file.read_into(&mut buffer.bytes, SEGMENT_BYTES_MAX)?;
        let file_bytes = buffer.bytes.len();
        Ok(read.map(|()| Self { file: None, buffer, at: 0, file_bytes }))
    }

    /// Creates a window on the bytes of a file.
    pub(super) fn of_bytes(bytes: Vec<u8>, spare: &Arc<Spare>) -> Self {
        let file_bytes = bytes.len();
        let buffer = Buffer { bytes, spare: spare.clone() };
        Self { file: None, buffer, at: 0, file_bytes }
    }

    /// Returns the length of the file, in bytes.
    pub(super) const fn file_bytes(&self) -> usize {
        self.file_bytes
    }

    /// Returns the bytes that follow this offset of the file: at least `bytes_min`, unless the file
    /// ends first.
    pub(super) fn read(&mut self, offset: usize, bytes_min: usize) -> Result<&[u8], DiskError> {
        debug_assert!(offset >= self.at, "a window only moves forward");
        let end_min = self.file_bytes.min(offset + bytes_min);
        let old_end = self.at + self.buffer.bytes.len();
        if let Some(file) = self.file
            && old_end < end_min
        {
            let end = self.file_bytes.min(end_min.max(old_end + PIECE_BYTES));
            self.buffer.bytes.resize(end - self.at, 0);
            file.read_at(&mut self.buffer.bytes[old_end - self.at..], old_end as u64)?;
        }
        Ok(&self.buffer.bytes[offset - self.at..])
    }

    /// Returns the end of the file's last sector that is not all zeros, relative to `offset`; 0 if
    /// only zeros follow.
    pub(super) fn written_bytes(&self, offset: usize) -> Result<usize, DiskError> {
        debug_assert!(offset >= self.at, "a window only moves forward");
        let mut written = tail::written_bytes(&self.buffer.bytes[offset - self.at..]);
        let Some(file) = self.file else { return Ok(written) };
        let mut next = self.at + self.buffer.bytes.len();
        let mut bytes = vec![0; PIECE_BYTES.min(self.file_bytes - next)];
        while next < self.file_bytes {
            bytes.truncate(self.file_bytes - next);
            file.read_at(&mut bytes, next as u64)?;
            let end = tail::written_bytes(&bytes);
            if end > 0 {
                written = next + end - offset;
            }
            next += bytes.len();
        }
        Ok(written)
    }

    /// Removes and returns the bytes before `end`, if they are enough for a piece.
    pub(super) fn cut_piece(&mut self, end: usize) -> Option<Content> {
        debug_assert!(end >= self.at, "a window only moves forward");
        if self.file.is_none() || end - self.at < PIECE_BYTES {
            return None;
        }
        let mut next = Buffer::of(&self.buffer.spare);
        next.bytes.clear();
        next.bytes.extend_from_slice(&self.buffer.bytes[end - self.at..]);
        let buffer = std::mem::replace(&mut self.buffer, next);
        let at = std::mem::replace(&mut self.at, end);
        Some(Content { buffer, at, is_whole: false })
    }

    /// Returns the bytes that were not cut off as pieces.
    pub(super) fn into_content(self) -> Content {
        Content { buffer: self.buffer, at: self.at, is_whole: self.file.is_none() }
    }
}
