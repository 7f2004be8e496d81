//! Reads the files of a recording, compressed or not, with bounded memory.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

/// Maximum length of a line, and of a value in a compressed file, in bytes. A file of a few
/// megabytes may unpack to gigabytes.
pub const VALUE_BYTES_MAX: u64 = 128 << 20;

/// The first bytes of a gzip file.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The reason why a file cannot be read any further.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// The operating system failed to read the file.
    #[error("{0}")]
    Io(io::Error),
    /// The file cannot be decompressed from here on.
    #[error("it cannot be unpacked: {0}")]
    Damaged(io::Error),
    /// A value exceeds [`VALUE_BYTES_MAX`].
    #[error("a value of more than {VALUE_BYTES_MAX} bytes")]
    TooLong,
    /// The recording exceeds its maximum size.
    #[error("more bytes than a recording may have")]
    TooLarge,
}

/// An open file of a recording.
pub(super) struct Reader {
    bytes: Box<dyn BufRead>,
    has_lines: bool,
    is_packed: bool,
}

impl Reader {
    /// Opens a file of one value, or of one value per line. Detects compression from the content,
    /// regardless of the name.
    pub(super) fn open(path: &Path, has_lines: bool) -> io::Result<Self> {
        let mut file = BufReader::new(File::open(path)?);
        let is_packed = file.fill_buf()?.starts_with(&GZIP_MAGIC);
        let bytes: Box<dyn BufRead> = if is_packed {
            Box::new(BufReader::new(MultiGzDecoder::new(file)))
        } else {
            Box::new(file)
        };
        Ok(Self { bytes, has_lines, is_packed })
    }

    /// Reads the next value into `value`, and subtracts its length from `bytes_left`. Returns false
    /// at the end of the file.
    pub(super) fn next(
        &mut self,
        value: &mut Vec<u8>,
        bytes_left: &mut u64,
    ) -> Result<bool, ReadError> {
        value.clear();
        let is_bounded = self.has_lines || self.is_packed;
        let bytes_max = if is_bounded { VALUE_BYTES_MAX } else { u64::MAX };
        // One byte beyond the limit detects a file that is too large, even one that is growing.
        let mut bytes = (&mut self.bytes).take(bytes_max.min(*bytes_left) + 1);
        let read =
            if self.has_lines { bytes.read_until(b'\n', value) } else { bytes.read_to_end(value) };
        let count = read.map_err(|error| {
            // Errors of the operating system have a number, those of the decoder have none.
            if self.is_packed && error.raw_os_error().is_none() {
                ReadError::Damaged(error)
            } else {
                ReadError::Io(error)
            }
        })?;
        let count = count as u64;
        *bytes_left = bytes_left.checked_sub(count).ok_or(ReadError::TooLarge)?;
        if count > bytes_max { Err(ReadError::TooLong) } else { Ok(count > 0) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    /// Data beyond the limit takes no memory, regardless of its length.
    #[test]
    fn no_more_is_read_than_there_is_room_for() {
        let plain = vec![b' '; 1 << 20];
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&plain).unwrap();
        let packed = encoder.finish().unwrap();
        for content in [&packed, &plain] {
            for has_lines in [false, true] {
                let file = tempfile::NamedTempFile::new().unwrap();
                file.as_file().write_all(content).unwrap();
                let mut reader = Reader::open(file.path(), has_lines).unwrap();
                let (mut value, mut bytes_left) = (Vec::new(), 1_000);
                let error = reader.next(&mut value, &mut bytes_left).unwrap_err();
                assert!(matches!(error, ReadError::TooLarge), "{error}");
                assert_eq!(value.len(), 1_001);
            }
        }
    }

    #[test]
    fn lines_are_read_one_by_one() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().write_all(b"1\r\n\n22").unwrap();
        let mut reader = Reader::open(file.path(), true).unwrap();
        let (mut value, mut bytes_left) = (Vec::new(), 6);
        for expected in [&b"1\r\n"[..], b"\n", b"22"] {
            assert!(reader.next(&mut value, &mut bytes_left).unwrap());
            assert_eq!(value, expected);
        }
        assert!(!reader.next(&mut value, &mut bytes_left).unwrap());
        assert_eq!(bytes_left, 0);
    }
}
