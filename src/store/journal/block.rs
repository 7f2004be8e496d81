//! The block: one group commit on disk. Pure: bytes in, bytes out.
//!
//! A block starts and ends on a page boundary. The kernel writes whole pages, so if two blocks
//! shared a page, writing the second would rewrite acknowledged records of the first. All numbers
//! are little endian.
//!
//! ```text
//!        0       4       8      12      16              24              32
//!        ┌───────┬───────┬───────┬───────┬───────────────┬───────────────┐
//!      0 │ magic │ flags │record │payload│ first         │ epoch         │
//!        │ PBBK  │       │ count │ bytes │ position      │               │
//!        ├───────┼───────┼───────┼───────┴───────────────┴───────┬───────┤
//!     32 │ crc of│payload│ zero  │ reserved (0)                  │ header│
//!        │ before│ crc   │sectors│                               │ crc   │
//!        ├───────┼───────┴───────┴───────────┬───────┬───────────┴───────┤
//!     64 │ record│ record's bytes, padded to │ record│ …                 │
//!        │ bytes │ a multiple of 8 with it   │ bytes │                   │
//!        ├───────┴───────────────────────────┴───────┴───────────────────┤
//!      … │ zeros up to the next multiple of 4096                         │
//!        └───────────────────────────────────────────────────────────────┘
//! ```
//!
//! - *header crc*: CRC-32C of the 60 bytes before it, seeded with the CRC-32C of the log's id. So
//!   neither a block of another log nor bytes that a client put into a record can pass for a block.
//! - *crc of before*: the header crc of the previous block, in this segment or the one before. The
//!   header crc covers the payload crc, so each block vouches for all earlier ones. The first block
//!   of a log carries the CRC-32C of the log's id.
//! - *zero sectors*: how many of the block's 512-byte sectors were all zeros when it was written.
//!   Segments are zero-filled before use, so a block with more zero sectors than this was torn, and
//!   a block with exactly this many but a wrong checksum was damaged.
//! - A block without records and without a flag begins a new epoch, one above the last; a block
//!   with records continues the current epoch. The first position of an empty block is that of the
//!   next record.
//! - *flags*: 0, except in the kinds of block that only a replicated log has (`notice`).
//!
//! The format version is in the segment header ([`super::segment`]). In segments of version 1,
//! blocks start and end on sectors instead of pages; everything else is the same.

#[cfg(feature = "cluster")]
pub(super) mod notice;

use super::RECORD_BYTES_MAX;
use super::aligned::AlignedBytes;
use super::log_id::LogId;
use super::reader::ChainMark;
use crate::disk;
use paperbourse_core::faults::{self, Fault};

/// Sector size in bytes: the unit that a disk writes atomically.
pub(super) const SECTOR_BYTES: usize = 512;

/// Page size in bytes: the unit in which the kernel and many disks write.
pub(super) const PAGE_BYTES: usize = 4096;

/// Longest block, and so the longest possible torn write, in bytes.
pub(super) const BLOCK_BYTES_MAX: usize = 4 << 20;

const MAGIC: [u8; 4] = *b"PBBK";

const MAGIC_AT: usize = 0;
const FLAGS_AT: usize = MAGIC_AT + MAGIC.len();
const RECORD_COUNT_AT: usize = FLAGS_AT + size_of::<u32>();
const PAYLOAD_BYTES_AT: usize = RECORD_COUNT_AT + size_of::<u32>();
const FIRST_POSITION_AT: usize = PAYLOAD_BYTES_AT + size_of::<u32>();
const EPOCH_AT: usize = FIRST_POSITION_AT + size_of::<u64>();
const PREVIOUS_CRC_AT: usize = EPOCH_AT + size_of::<u64>();
const PAYLOAD_CRC_AT: usize = PREVIOUS_CRC_AT + size_of::<u32>();
const ZERO_SECTORS_AT: usize = PAYLOAD_CRC_AT + size_of::<u32>();
const RESERVED_AT: usize = ZERO_SECTORS_AT + size_of::<u32>();
const HEADER_CRC_AT: usize = RESERVED_AT + 16;
const HEADER_BYTES: usize = HEADER_CRC_AT + size_of::<u32>();

const RECORD_HEADER_BYTES: usize = size_of::<u32>();
/// The length field of each record is aligned to this many bytes, so that it cannot be torn.
const RECORD_ALIGNMENT: usize = 8;

const _: () = assert!(HEADER_BYTES == 64);
const _: () = assert!(HEADER_BYTES.is_multiple_of(RECORD_ALIGNMENT));
const _: () = assert!(SECTOR_BYTES.is_multiple_of(HEADER_BYTES));
const _: () = assert!(PAGE_BYTES.is_multiple_of(SECTOR_BYTES));
const _: () = assert!(PAGE_BYTES.is_multiple_of(disk::PAGE_BYTES));
const _: () = assert!(BLOCK_BYTES_MAX.is_multiple_of(PAGE_BYTES));
const _: () = assert!(alone_bytes(RECORD_BYTES_MAX) <= BLOCK_BYTES_MAX);

/// Returns the length of a block that holds a single record of `record_bytes` bytes. A block of
/// several records is never longer than the sum of these lengths.
pub(super) const fn alone_bytes(record_bytes: usize) -> usize {
    let record = (RECORD_HEADER_BYTES + record_bytes).next_multiple_of(RECORD_ALIGNMENT);
    (HEADER_BYTES + record).next_multiple_of(PAGE_BYTES)
}

/// The end of the checksum chain: the state that the next block must continue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Chain {
    log_crc: u32,
    previous_crc: u32,
    /// The epoch of the newest block; 0 before the first.
    pub(super) epoch: u64,
    /// The position of the newest record; 0 before the first.
    pub(super) position: u64,
}

impl Chain {
    /// Returns the chain of a log that has no blocks yet.
    pub(super) fn start(log: LogId) -> Self {
        let log_crc = crc32c::crc32c(&log.0);
        Self { log_crc, previous_crc: log_crc, epoch: 0, position: 0 }
    }

    /// Returns the chain at the mark stored in a snapshot.
    pub(super) fn at(log: LogId, mark: ChainMark) -> Self {
        let ChainMark { epoch, position, crc } = mark;
        Self { log_crc: crc32c::crc32c(&log.0), previous_crc: crc, epoch, position }
    }

    /// Returns the mark that a snapshot stores.
    pub(super) const fn mark(&self) -> ChainMark {
        ChainMark { epoch: self.epoch, position: self.position, crc: self.previous_crc }
    }

    fn advance(&mut self, crc: u32, epoch: u64, record_count: u32) {
        self.previous_crc = crc;
        self.epoch = epoch;
        self.position += u64::from(record_count);
    }
}

/// Damage at an offset in a segment.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Damage {
    /// Neither zeros nor the magic number of a block.
    #[error("no block starts here")]
    NoBlock,
    /// The header does not match its checksum.
    #[error("the header of the block does not match its checksum")]
    HeaderChecksum,
    /// Bytes that this version writes as zeros are not zero.
    #[error("reserved bytes of the block are not zero")]
    Reserved,
    /// The block claims to be longer than the maximum, or than the rest of its segment.
    #[error("the block claims {payload_bytes} bytes of records")]
    Length {
        /// The claimed length of the records, in bytes.
        payload_bytes: u32,
    },
    /// The block is intact but does not continue the previous one.
    #[error("the block does not continue the one before it, which ends at position {position}")]
    Chain {
        /// The newest position before the block.
        position: u64,
    },
    /// The records do not match their checksum, and the block was not torn.
    #[error("the records of the block do not match their checksum")]
    PayloadChecksum,
    /// The records match their checksum, but not the length of the block.
    #[error("the records of the block do not add up to its length")]
    Records,
    /// Nonzero bytes follow the end of the journal, where nothing can have been written.
    #[error("bytes follow the end of the journal")]
    Beyond,
    /// A block is incomplete but is not the last.
    #[error("the block is incomplete and others follow it")]
    Followed,
    /// A segment is empty but a later one is not.
    #[error("the segment is empty but a later one holds records")]
    Gap,
}

/// The result of [`read`] at an offset where a block may start.
#[derive(Debug)]
pub(super) enum Reading<'a> {
    /// An intact block that continues the chain.
    Block(Block<'a>),
    /// A sector of zeros.
    Blank,
    /// An intact header that continues the chain, followed by incomplete records.
    Incomplete {
        /// Length of the complete block, in bytes.
        block_bytes: usize,
        /// Number of zero sectors when the block was written.
        zero_sector_count: usize,
    },
    /// Anything else.
    Damaged(Damage),
}

/// An intact block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block<'a> {
    /// The epoch that the block belongs to or begins.
    pub(super) epoch: u64,
    pub(super) first_position: u64,
    /// Length on disk, in bytes.
    pub(super) bytes: usize,
    payload: &'a [u8],
}

impl<'a> Block<'a> {
    /// Returns the records in order.
    pub(super) fn records(&self) -> Records<'a> {
        Records { rest: self.payload }
    }

    /// Returns the offset of each record within the block, and its length, in bytes.
    pub(super) fn record_ranges(&self) -> impl Iterator<Item = (usize, usize)> {
        let mut at = HEADER_BYTES;
        self.records().map(move |record| {
            let offset = at + RECORD_HEADER_BYTES;
            at += (RECORD_HEADER_BYTES + record.len()).next_multiple_of(RECORD_ALIGNMENT);
            (offset, record.len())
        })
    }
}

/// Iterator over the records of a payload. Stops early at a length that does not fit, and leaves
/// the remaining bytes in `rest`.
pub(super) struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Records<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (length, after) = self.rest.split_first_chunk::<RECORD_HEADER_BYTES>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        if length > RECORD_BYTES_MAX {
            return None;
        }
        let record = after.get(..length)?;
        let framed = (RECORD_HEADER_BYTES + length).next_multiple_of(RECORD_ALIGNMENT);
        self.rest = self.rest.get(framed..)?;
        Some(record)
    }
}

/// Returns the length that the header at the start of `bytes` claims for its block, at most
/// [`BLOCK_BYTES_MAX`]; 0 if there is no header of this log.
pub(super) fn claimed_bytes(bytes: &[u8], page_bytes: usize, chain: &Chain) -> usize {
    Header::read(bytes, chain.log_crc).map_or(0, |header| {
        let block_bytes = HEADER_BYTES + header.payload_bytes as usize;
        block_bytes.next_multiple_of(page_bytes).min(BLOCK_BYTES_MAX)
    })
}

/// Reads the block at the start of `bytes` and, if it is intact, advances the chain past it.
/// `bytes` must extend to the end of the segment and hold at least a page. Block lengths are
/// multiples of `page_bytes`.
pub(super) fn read<'a>(bytes: &'a [u8], page_bytes: usize, chain: &mut Chain) -> Reading<'a> {
    if is_zero(&bytes[..SECTOR_BYTES]) {
        return Reading::Blank;
    }
    let header = match Header::read(bytes, chain.log_crc) {
        Ok(header) => header,
        Err(damage) => return Reading::Damaged(damage),
    };
    let payload_bytes = header.payload_bytes as usize;
    let block_bytes = (HEADER_BYTES + payload_bytes).next_multiple_of(page_bytes);
    // Check the length before slicing: an intact header may still claim more than the segment
    // holds.
    if block_bytes > BLOCK_BYTES_MAX || block_bytes > bytes.len() {
        return Reading::Damaged(Damage::Length { payload_bytes: header.payload_bytes });
    }
    if !header.continues(chain) {
        return Reading::Damaged(Damage::Chain { position: chain.position });
    }
    let (payload, padding) = bytes[HEADER_BYTES..block_bytes].split_at(payload_bytes);
    // The block is either torn or damaged: `tail::judge` decides, by the number of zero sectors.
    if crc32c::crc32c(payload) != header.payload_crc && !faults::is_on(Fault::CrcUnchecked) {
        let zero_sector_count = header.zero_sector_count as usize;
        return Reading::Incomplete { block_bytes, zero_sector_count };
    }
    if !is_zero(padding) {
        return Reading::Damaged(Damage::Reserved);
    }
    let mut records = Records { rest: payload };
    let record_count = records.by_ref().count();
    if record_count != header.record_count as usize || !records.rest.is_empty() {
        return Reading::Damaged(Damage::Records);
    }
    chain.advance(header.crc, header.epoch, header.record_count);
    Reading::Block(Block {
        epoch: header.epoch,
        first_position: header.first_position,
        bytes: block_bytes,
        payload,
    })
}

/// Whether `bytes` start with an intact block header of this log.
pub(super) fn is_header(bytes: &[u8], chain: &Chain) -> bool {
    Header::read(bytes, chain.log_crc).is_ok()
}

/// Returns the chain that the block at the start of `bytes` claims to continue, in the log of
/// `start`. `None` if no block starts there.
pub(super) fn chain_before(bytes: &[u8], start: &Chain) -> Option<Chain> {
    let header = Header::read(bytes, start.log_crc).ok()?;
    Some(Chain {
        log_crc: start.log_crc,
        previous_crc: header.previous_crc,
        epoch: header.epoch.checked_sub(u64::from(header.record_count == 0))?,
        position: header.first_position.checked_sub(1)?,
    })
}

struct Header {
    record_count: u32,
    payload_bytes: u32,
    first_position: u64,
    epoch: u64,
    previous_crc: u32,
    payload_crc: u32,
    zero_sector_count: u32,
    crc: u32,
}

impl Header {
    fn read(bytes: &[u8], log_crc: u32) -> Result<Self, Damage> {
        Self::read_flagged(bytes, log_crc, 0)
    }

    /// Reads the header of a block with these flags.
    fn read_flagged(bytes: &[u8], log_crc: u32, flags: u32) -> Result<Self, Damage> {
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(Damage::NoBlock);
        };
        if bytes[MAGIC_AT..FLAGS_AT] != MAGIC {
            return Err(Damage::NoBlock);
        }
        let crc = u32_at(bytes, HEADER_CRC_AT);
        let expected = crc32c::crc32c_append(log_crc, &bytes[..HEADER_CRC_AT]);
        if crc != expected && !faults::is_on(Fault::CrcUnchecked) {
            return Err(Damage::HeaderChecksum);
        }
        if u32_at(bytes, FLAGS_AT) != flags || !is_zero(&bytes[RESERVED_AT..HEADER_CRC_AT]) {
            return Err(Damage::Reserved);
        }
        Ok(Self {
            record_count: u32_at(bytes, RECORD_COUNT_AT),
            payload_bytes: u32_at(bytes, PAYLOAD_BYTES_AT),
            first_position: u64_at(bytes, FIRST_POSITION_AT),
            epoch: u64_at(bytes, EPOCH_AT),
            previous_crc: u32_at(bytes, PREVIOUS_CRC_AT),
            payload_crc: u32_at(bytes, PAYLOAD_CRC_AT),
            zero_sector_count: u32_at(bytes, ZERO_SECTORS_AT),
            crc,
        })
    }

    fn write(&self, bytes: &mut [u8; HEADER_BYTES], log_crc: u32) -> u32 {
        bytes.fill(0);
        bytes[MAGIC_AT..FLAGS_AT].copy_from_slice(&MAGIC);
        put_u32(bytes, RECORD_COUNT_AT, self.record_count);
        put_u32(bytes, PAYLOAD_BYTES_AT, self.payload_bytes);
        put_u64(bytes, FIRST_POSITION_AT, self.first_position);
        put_u64(bytes, EPOCH_AT, self.epoch);
        put_u32(bytes, PREVIOUS_CRC_AT, self.previous_crc);
        put_u32(bytes, PAYLOAD_CRC_AT, self.payload_crc);
        put_u32(bytes, ZERO_SECTORS_AT, self.zero_sector_count);
        let crc = crc32c::crc32c_append(log_crc, &bytes[..HEADER_CRC_AT]);
        put_u32(bytes, HEADER_CRC_AT, crc);
        crc
    }

    fn continues(&self, chain: &Chain) -> bool {
        let begins_epoch = u64::from(self.record_count == 0);
        self.previous_crc == chain.previous_crc
            && self.first_position == chain.position + 1
            && self.epoch == chain.epoch + begins_epoch
    }
}

/// Builds blocks in one reused buffer, which begins on a page boundary.
pub(super) struct Builder {
    buffer: AlignedBytes,
    record_count: u32,
}

impl Builder {
    pub(super) fn new() -> Self {
        let mut builder = Self { buffer: AlignedBytes::default(), record_count: 0 };
        builder.clear();
        builder
    }

    /// Appends a record. Returns false, without appending it, if the block would exceed
    /// `bytes_max`.
    pub(super) fn push(&mut self, record: &[u8], bytes_max: usize) -> bool {
        assert!(record.len() <= RECORD_BYTES_MAX, "a record is at most {RECORD_BYTES_MAX} bytes");
        let end = (self.buffer.len() + RECORD_HEADER_BYTES + record.len())
            .next_multiple_of(RECORD_ALIGNMENT);
        if end.next_multiple_of(PAGE_BYTES) > bytes_max {
            return false;
        }
        self.buffer.extend(&to_u32(record.len()).to_le_bytes());
        self.buffer.extend(record);
        self.buffer.pad_to(end);
        self.record_count += 1;
        true
    }

    /// Seals the block as the next in `chain` and returns its bytes, a whole number of pages. A
    /// block without records begins the next epoch.
    pub(super) fn seal(&mut self, chain: &mut Chain) -> &[u8] {
        self.seal_in(PAGE_BYTES, chain)
    }

    /// Seals the block as [`Self::seal`] does, to a length that is a multiple of `page_bytes`.
    pub(super) fn seal_in(&mut self, page_bytes: usize, chain: &mut Chain) -> &[u8] {
        let payload_bytes = self.buffer.len() - HEADER_BYTES;
        let payload_crc = crc32c::crc32c(&self.buffer[HEADER_BYTES..]);
        self.buffer.pad_to(self.buffer.len().next_multiple_of(page_bytes));
        // The first sector holds the header.
        let zero_sector_count = zero_sector_count(&self.buffer[SECTOR_BYTES..]);
        let header = Header {
            record_count: self.record_count,
            payload_bytes: to_u32(payload_bytes),
            first_position: chain.position + 1,
            epoch: chain.epoch + u64::from(self.record_count == 0),
            previous_crc: chain.previous_crc,
            payload_crc,
            zero_sector_count: to_u32(zero_sector_count),
            crc: 0,
        };
        let head = self.buffer.first_chunk_mut().expect("the buffer starts with the header");
        let crc = header.write(head, chain.log_crc);
        chain.advance(crc, header.epoch, self.record_count);
        &self.buffer
    }

    /// Empties the buffer for the next block.
    pub(super) fn clear(&mut self) {
        self.buffer.clear();
        self.buffer.pad_to(HEADER_BYTES);
        self.record_count = 0;
    }
}

/// Whether all bytes are zero.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    const ZEROS: [u8; SECTOR_BYTES] = [0; SECTOR_BYTES];
    bytes.chunks(SECTOR_BYTES).all(|chunk| chunk == &ZEROS[..chunk.len()])
}

/// Counts the sectors that hold only zeros.
pub(super) fn zero_sector_count(bytes: &[u8]) -> usize {
    bytes.chunks(SECTOR_BYTES).filter(|sector| is_zero(sector)).count()
}

/// Reads a little-endian `u32`. Panics if it extends past the end of `bytes`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("the offset lies in the bytes"))
}

/// Reads a little-endian `u64`. Panics if it extends past the end of `bytes`.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("the offset lies in the bytes"))
}

pub(super) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + size_of::<u32>()].copy_from_slice(&value.to_le_bytes());
}

pub(super) fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + size_of::<u64>()].copy_from_slice(&value.to_le_bytes());
}

fn to_u32(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("a block is at most BLOCK_BYTES_MAX")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LOG: LogId = LogId([7; 16]);

    /// Returns the chain after a log's first block, which begins an epoch, and a second block with
    /// these records.
    fn epoch_and_block(records: &[Vec<u8>]) -> (Chain, Vec<u8>) {
        let mut chain = Chain::start(LOG);
        let mut builder = Builder::new();
        builder.seal(&mut chain);
        builder.clear();
        let before = chain;
        for record in records {
            assert!(builder.push(record, BLOCK_BYTES_MAX));
        }
        (before, builder.seal(&mut chain).to_vec())
    }

    #[test]
    fn the_layout_matches_the_diagram() {
        let (_, block) = epoch_and_block(&[b"abcde".to_vec(), vec![]]);
        assert_eq!(block.len(), PAGE_BYTES);
        assert_eq!(&block[..8], b"PBBK\0\0\0\0");
        assert_eq!(&block[8..24], [2, 0, 0, 0, 24, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&block[24..32], 1_u64.to_le_bytes());
        assert_eq!(&block[40..60], [&[7, 0, 0, 0][..], &[0; 16]].concat());
        assert_eq!(&block[64..88], b"\x05\0\0\0abcde\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(crc32c::crc32c(&block[64..88]).to_le_bytes(), block[36..40]);
    }

    #[test]
    fn a_block_of_another_log_is_refused() {
        let (_, block) = epoch_and_block(&[b"theirs".to_vec()]);
        let mut chain = Chain::start(LogId([8; 16]));
        assert!(matches!(
            read(&block, PAGE_BYTES, &mut chain),
            Reading::Damaged(Damage::HeaderChecksum)
        ));
    }

    #[test]
    fn a_block_must_continue_the_one_before() {
        let (before, block) = epoch_and_block(&[b"record".to_vec()]);
        for wrong in [
            Chain { previous_crc: before.previous_crc ^ 1, ..before },
            Chain { position: before.position + 1, ..before },
            Chain { epoch: before.epoch + 1, ..before },
        ] {
            let mut chain = wrong;
            let reading = read(&block, PAGE_BYTES, &mut chain);
            assert!(matches!(reading, Reading::Damaged(Damage::Chain { .. })), "{reading:?}");
            assert_eq!(chain, wrong);
        }
    }

    #[test]
    fn a_length_is_checked_before_it_is_used() {
        let (before, mut block) = epoch_and_block(&[b"record".to_vec()]);
        for payload_bytes in [u32::MAX, 4033, 1 << 22] {
            put_u32(&mut block, PAYLOAD_BYTES_AT, payload_bytes);
            let crc = crc32c::crc32c_append(before.log_crc, &block[..HEADER_CRC_AT]);
            put_u32(&mut block, HEADER_CRC_AT, crc);
            let reading = read(&block, PAGE_BYTES, &mut before.clone());
            assert!(matches!(reading, Reading::Damaged(Damage::Length { .. })), "{reading:?}");
        }
    }

    #[test]
    fn every_changed_byte_of_a_block_is_detected() {
        let (before, block) = epoch_and_block(&[vec![1; 300], vec![2; 500]]);
        for at in 0..block.len() {
            let mut damaged = block.clone();
            damaged[at] ^= 0x40;
            let reading = read(&damaged, PAGE_BYTES, &mut before.clone());
            assert!(
                matches!(reading, Reading::Damaged(_) | Reading::Incomplete { .. }),
                "byte {at}: {reading:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn records_survive_a_round_trip(
            records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..700), 1..20),
        ) {
            let (mut chain, block) = epoch_and_block(&records);
            let alone: usize = records.iter().map(|record| alone_bytes(record.len())).sum();
            prop_assert!(block.len() <= alone);
            let Reading::Block(read_back) = read(&block, PAGE_BYTES, &mut chain) else {
                return Err(TestCaseError::fail("not read"));
            };
            prop_assert_eq!(read_back.bytes, block.len());
            prop_assert_eq!((read_back.epoch, read_back.first_position), (1, 1));
            prop_assert_eq!(chain.position, records.len() as u64);
            prop_assert!(read_back.records().eq(records.iter().map(Vec::as_slice)));
        }

        #[test]
        fn a_block_never_exceeds_its_maximum_length(
            lengths in prop::collection::vec(0_usize..9000, 1..20), pages in 1_usize..8,
        ) {
            let bytes_max = pages * PAGE_BYTES;
            let mut builder = Builder::new();
            for length in lengths {
                let fits = builder.push(&vec![1; length], bytes_max);
                if builder.record_count == 0 {
                    prop_assert!(!fits && alone_bytes(length) > bytes_max);
                }
            }
            prop_assert!(builder.seal(&mut Chain::start(LOG)).len() <= bytes_max);
        }
    }
}
