//! The segment: a zero-filled file with a header, preallocated and then filled with blocks. Pure:
//! names, sizes and the header's bytes.
//!
//! ```text
//!    0               8      12      16                              32
//!    ┌───────────────┬───────┬───────┬───────────────────────────────┐
//!  0 │ PBSEGMNT      │version│ zero  │ id of the log                 │
//!    ├───────────────┼───────┴───────┼───────────────────────────────┤
//! 32 │ number        │ length of the │ reserved (0)                  │
//!    │ (from 1)      │ file in bytes │                               │
//!    ├───────────────┴───────────────┴───────────────────────┬───────┤
//!  … │ reserved (0)                                  to 508  │ crc   │
//!    ├───────────────────────────────────────────────────────┴───────┤
//!    │ zeros                                                         │
//!    ├───────────────────────────────────────────────────────────────┤
//! 4ki│ blocks, each on a page of its own; zeros after the last       │
//!    └───────────────────────────────────────────────────────────────┘
//! ```
//!
//! The header is written when the segment is preallocated, long before its predecessor is complete.
//! So the blocks themselves carry the checksum chain from one segment to the next. A header is
//! written only once: an invalid one is damage, never a torn write.
//!
//! The file name is the number in 20 digits, `00000000000000000001.segment`. Numbers have no gaps.
//! Segments are never reused, so no stale block can be read.
//!
//! # Versions
//!
//! The version in the header applies to the whole file. A server reads every version from the
//! oldest it supports up to its own, but writes only its own: it continues in a new segment if the
//! last one is older. It refuses to start on any other version. The offsets of magic, version and
//! checksum never change.
//!
//! | version | what is different |
//! |---|---|
//! | 1 | blocks start at 512, start and end on sectors |
//! | 2 | blocks start at 4096, start and end on pages |

use super::block::{
    PAGE_BYTES, SECTOR_BYTES, alone_bytes, is_zero, put_u32, put_u64, u32_at, u64_at,
};
use super::log_id::LogId;

/// The format version that this server writes.
pub const VERSION: u32 = 2;

/// The oldest format version that this server reads.
pub(super) const OLDEST_VERSION: u32 = 1;

/// The first version whose blocks are page-aligned.
const PAGES_SINCE: u32 = 2;

/// Longest segment, in bytes. A whole segment can always be read into memory.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;

const MAGIC: [u8; 8] = *b"PBSEGMNT";

const MAGIC_AT: usize = 0;
const VERSION_AT: usize = MAGIC_AT + MAGIC.len();
const ZERO_AT: usize = VERSION_AT + size_of::<u32>();
const LOG_AT: usize = ZERO_AT + size_of::<u32>();
const NUMBER_AT: usize = LOG_AT + size_of::<LogId>();
const BYTES_AT: usize = NUMBER_AT + size_of::<u64>();
const RESERVED_AT: usize = BYTES_AT + size_of::<u64>();
const CRC_AT: usize = SECTOR_BYTES - size_of::<u32>();

/// The header fills one sector.
pub(super) const HEADER_BYTES: usize = CRC_AT + size_of::<u32>();

/// Offset of the first block in a segment of the current version: the header has a page to itself.
pub(super) const BLOCKS_AT: usize = PAGE_BYTES;

const _: () = assert!(HEADER_BYTES == SECTOR_BYTES);
const _: () = assert!(RESERVED_AT == 48);

const SUFFIX: &str = ".segment";

pub(super) fn file_name(number: u64) -> String {
    format!("{number:020}{SUFFIX}")
}

/// Parses the segment number in a file name. `None` for any other file.
pub(super) fn number_of(file_name: &str) -> Option<u64> {
    number_before(file_name, SUFFIX)
}

/// Parses the number in a file name of 20 digits and `suffix`. `None` for any other name.
pub(crate) fn number_before(file_name: &str, suffix: &str) -> Option<u64> {
    let digits = file_name.strip_suffix(suffix)?;
    let is_number = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { digits.parse().ok() } else { None }
}

/// Returns the space that a segment guarantees to records, in bytes. The end of the segment may
/// stay unused, when the next record does not fit there even alone in its block.
pub(super) fn usable_bytes(segment_bytes: u64, record_bytes_max: usize) -> u64 {
    assert!(segment_bytes > alone_bytes(record_bytes_max) as u64, "a record fits into a segment");
    segment_bytes - BLOCKS_AT as u64 - unused_bytes_max(record_bytes_max)
}

/// Returns the maximum number of bytes left unused at the end of a segment.
pub(super) fn unused_bytes_max(record_bytes_max: usize) -> u64 {
    (alone_bytes(record_bytes_max) - PAGE_BYTES) as u64
}

/// The first sector of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) log: LogId,
    /// Counted from 1, without gaps.
    pub(super) number: u64,
    pub(super) segment_bytes: u64,
}

/// Error reading the first sector of a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum HeaderError {
    NotASegment,
    Damaged,
    Older { version: u32 },
    Newer { version: u32 },
}

impl Header {
    /// Returns the unit of block lengths, in bytes.
    pub(super) const fn page_bytes(self) -> usize {
        if self.version < PAGES_SINCE { SECTOR_BYTES } else { PAGE_BYTES }
    }

    /// Returns the offset of the first block, in bytes.
    pub(super) const fn blocks_at(self) -> usize {
        self.page_bytes()
    }

    pub(super) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[MAGIC_AT..VERSION_AT].copy_from_slice(&MAGIC);
        put_u32(&mut bytes, VERSION_AT, self.version);
        bytes[LOG_AT..NUMBER_AT].copy_from_slice(&self.log.0);
        put_u64(&mut bytes, NUMBER_AT, self.number);
        put_u64(&mut bytes, BYTES_AT, self.segment_bytes);
        let crc = crc32c::crc32c(&bytes[..CRC_AT]);
        put_u32(&mut bytes, CRC_AT, crc);
        bytes
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, HeaderError> {
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(HeaderError::NotASegment);
        };
        if bytes[MAGIC_AT..VERSION_AT] != MAGIC {
            return Err(HeaderError::NotASegment);
        }
        if crc32c::crc32c(&bytes[..CRC_AT]) != u32_at(bytes, CRC_AT) {
            return Err(HeaderError::Damaged);
        }
        let version = u32_at(bytes, VERSION_AT);
        if version > VERSION {
            return Err(HeaderError::Newer { version });
        }
        if version < OLDEST_VERSION {
            return Err(HeaderError::Older { version });
        }
        if !is_zero(&bytes[ZERO_AT..LOG_AT]) || !is_zero(&bytes[RESERVED_AT..CRC_AT]) {
            return Err(HeaderError::Damaged);
        }
        let log = bytes[LOG_AT..].first_chunk().expect("the id lies in the header");
        Ok(Self {
            version,
            log: LogId(*log),
            number: u64_at(bytes, NUMBER_AT),
            segment_bytes: u64_at(bytes, BYTES_AT),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header =
        Header { version: VERSION, log: LogId([9; 16]), number: 3, segment_bytes: 1 << 26 };

    #[test]
    fn a_header_survives_a_round_trip_and_every_changed_byte_is_detected() {
        let bytes = HEADER.to_bytes();
        assert_eq!(Header::read(&bytes), Ok(HEADER));
        for at in 0..bytes.len() {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert!(Header::read(&damaged).is_err(), "byte {at}");
        }
        assert_eq!(Header::read(&bytes[..511]), Err(HeaderError::NotASegment));
    }

    #[test]
    fn unsupported_versions_and_nonzero_reserved_bytes_are_refused() {
        let resealed = |at: usize, value: u32| {
            let mut bytes = HEADER.to_bytes();
            put_u32(&mut bytes, at, value);
            let crc = crc32c::crc32c(&bytes[..CRC_AT]);
            put_u32(&mut bytes, CRC_AT, crc);
            Header::read(&bytes)
        };
        assert_eq!(resealed(VERSION_AT, 3), Err(HeaderError::Newer { version: 3 }));
        assert_eq!(resealed(VERSION_AT, 2), Ok(HEADER));
        assert_eq!(resealed(VERSION_AT, 1), Ok(Header { version: 1, ..HEADER }));
        assert_eq!(resealed(VERSION_AT, 0), Err(HeaderError::Older { version: 0 }));
        assert_eq!(resealed(ZERO_AT, 1), Err(HeaderError::Damaged));
        assert_eq!(resealed(RESERVED_AT, 1), Err(HeaderError::Damaged));
    }

    #[test]
    fn names_are_parsed_strictly() {
        assert_eq!(file_name(1), "00000000000000000001.segment");
        assert_eq!(number_of(&file_name(u64::MAX)), Some(u64::MAX));
        for other in [
            "1.segment",
            "00000000000000000001.segment.tmp",
            "+0000000000000000001.segment",
            "99999999999999999999.segment",
            ".segment",
        ] {
            assert_eq!(number_of(other), None, "{other}");
        }
    }
}
