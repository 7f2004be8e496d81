//! Read-only access to segments, for recovery, snapshots and inspection. At most one segment, or
//! one piece of a segment, is in memory at a time.

use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::block::{self, BLOCK_BYTES_MAX, Block, Chain, Damage, Reading, SECTOR_BYTES, is_zero};
use super::log_id::LogId;
use super::recovery::OpenError;
use super::segment::{self, Header, HeaderError};
use super::tail::{self, Tail};
use super::window::{Content, Spare, Window};
use crate::disk::{Disk, DiskError, DiskFile};
use paperbourse_core::faults::{self, Fault};

/// The end of the checksum chain, as a snapshot stores it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChainMark {
    /// The epoch of the newest block.
    pub epoch: u64,
    /// The position of the newest record.
    pub position: u64,
    /// The header checksum that the next block must continue.
    pub crc: u32,
}

/// The end of a closed segment. A reader that has all records up to this point resumes from here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalMark {
    /// The log that the segment belongs to.
    pub log: LogId,
    /// The number of the segment.
    pub segment: u64,
    /// The chain at the end of the segment.
    pub chain: ChainMark,
}

/// The location of a record within its segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordAt {
    /// File offset of the record's first byte.
    pub offset: u32,
    /// Length of the record, in bytes.
    pub bytes: u32,
    /// The epoch in which the record was written.
    pub epoch: u64,
}

/// The records of one segment, or of consecutive blocks of it.
#[derive(Debug)]
pub struct Batch {
    segment: u64,
    content: Content,
    records: Vec<RecordAt>,
    first_position: u64,
    blocks: u64,
    block_records_max: u32,
    epochs_begun: u64,
    end: u32,
    log: LogId,
    before: ChainMark,
    after: ChainMark,
}

impl Batch {
    /// Returns the number of the segment.
    pub const fn segment(&self) -> u64 {
        self.segment
    }

    /// Returns the log that the segment belongs to.
    pub const fn log(&self) -> LogId {
        self.log
    }

    /// Returns the mark that the first block continues.
    pub const fn before(&self) -> ChainMark {
        self.before
    }

    /// Returns the end of the chain after the last block.
    pub const fn after(&self) -> ChainMark {
        self.after
    }

    /// Returns the locations of the records, in order.
    pub fn records(&self) -> &[RecordAt] {
        &self.records
    }

    /// Returns the number of blocks, including those that begin an epoch.
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the number of epochs that begin in the batch, each with a block without records.
    pub const fn epochs_begun(&self) -> u64 {
        self.epochs_begun
    }

    /// Returns the number of records in the fullest block.
    pub const fn block_records_max(&self) -> u32 {
        self.block_records_max
    }

    /// Returns the file offset where the last block ends. Nothing after it belongs to the log.
    pub const fn end(&self) -> u32 {
        self.end
    }

    /// Returns the position of the first record, or of the next one if the batch is empty.
    pub const fn first_position(&self) -> u64 {
        self.first_position
    }

    /// Returns the position of the last record, or of the one before the batch if it is empty.
    pub const fn last_position(&self) -> u64 {
        self.first_position + self.records.len() as u64 - 1
    }

    /// Returns the bytes of a record.
    pub fn record(&self, at: RecordAt) -> &[u8] {
        debug_assert!(
            u64::from(at.offset) + u64::from(at.bytes) <= u64::from(self.end),
            "the record must be in the batch"
        );
        &self.content.starting_at(at.offset as usize)[..at.bytes as usize]
    }

    /// Iterates over all records and their positions, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> {
        (self.first_position..).zip(self.records.iter().map(|&at| self.record(at)))
    }

    /// Returns the whole file. Panics if the segment was read in pieces.
    pub fn content(&self) -> &[u8] {
        self.content.whole()
    }
}

/// A segment file, read up to the end of its blocks.
pub(super) struct Segment {
    pub(super) file: DiskFile,
    pub(super) parsed: Parsed,
}

/// The parsed content of a segment.
pub(super) struct Parsed {
    pub(super) header: Header,
    /// The last piece: the whole segment, unless it was read in pieces.
    pub(super) batch: Batch,
    /// The number of records in all pieces.
    pub(super) record_count: u64,
    /// Offset of the last block, or `end` if there is none.
    pub(super) newest_block: usize,
    /// Offset of the end of the last block.
    pub(super) end: usize,
    /// The rest of the segment after the last block.
    pub(super) tail: Tail,
    /// The chain at `end`.
    pub(super) chain: Chain,
}

impl Parsed {
    /// Whether the segment holds no block.
    pub(super) const fn is_blank(&self) -> bool {
        self.end == self.header.blocks_at() && matches!(self.tail, Tail::Clean)
    }
}

/// A segment read while the server may be writing it.
#[derive(Debug)]
pub struct OpenBatch {
    /// The records of the complete blocks.
    pub batch: Batch,
    /// Length in bytes of an incomplete block after the complete ones, which is being written or
    /// was torn by a crash; 0 if there is none.
    pub torn_bytes: usize,
}

/// Reads the segments of a log in order.
#[derive(Clone, Debug)]
pub struct SegmentReader {
    /// The log and its chain; known after the first segment, or from the mark.
    known: Option<(LogId, Chain)>,
    /// The block of the next segment up to which the caller already has the records.
    resumes_at: Option<ChainMark>,
    /// Whether the first block may continue any chain.
    is_lenient: bool,
    /// The segment and offset where the log appears to end, and the damage to report if anything
    /// follows.
    over: Option<(PathBuf, u64, Damage)>,
    spare: Arc<Spare>,
}

impl SegmentReader {
    /// Creates a reader that starts after the mark, or with the first segment.
    pub fn after(mark: Option<JournalMark>) -> Self {
        let known = mark.map(|mark| (mark.log, Chain::at(mark.log, mark.chain)));
        Self { known, resumes_at: None, is_lenient: false, over: None, spare: Arc::default() }
    }

    /// Makes the reader resume after `block`, a block of the next segment up to which the caller
    /// already has the records. Those records are read and checked again but left out of the batch.
    /// It is an error if the segment no longer holds exactly that block.
    pub(super) fn resuming_at(self, block: Option<ChainMark>) -> Self {
        Self { resumes_at: block, ..self }
    }

    /// Creates a reader that may start with any segment. It trusts the first block's claim about
    /// its predecessors, which it cannot check.
    pub fn anywhere() -> Self {
        Self { is_lenient: true, ..Self::after(None) }
    }

    /// Returns the log and the end of its chain. `None` before the first segment.
    pub fn end(&self) -> Option<(LogId, ChainMark)> {
        self.known.map(|(log, chain)| (log, chain.mark()))
    }

    /// Reads the next segment, which must be closed: an incomplete block or an empty segment is an
    /// error.
    pub fn read_closed(
        &mut self,
        disk: &Disk,
        path: &Path,
        number: u64,
    ) -> Result<Batch, OpenError> {
        let segment = self.read(disk.open_read(path)?, number)?;
        closed(path, segment.parsed)
    }

    /// Reads the next segment, which must be closed, and passes it to `show` piece by piece, to
    /// limit memory use. Some pieces may have been shown before an error is returned.
    pub fn read_closed_in_pieces<E: From<OpenError> + From<DiskError>>(
        &mut self,
        disk: &Disk,
        path: &Path,
        number: u64,
        show: &mut dyn FnMut(Batch) -> Result<(), E>,
    ) -> Result<(), E> {
        let segment = self.read_in_pieces(disk.open_read(path)?, number, show)?;
        show(closed(path, segment.parsed)?)
    }

    /// Whether a segment holds any block. Also false if its header or length is invalid; reading
    /// the segment then reports that.
    pub fn is_begun(disk: &Disk, path: &Path) -> Result<bool, DiskError> {
        let file = disk.open_read(path)?;
        let mut sector = [0; SECTOR_BYTES];
        let bytes = file.bytes()?;
        if bytes < segment::HEADER_BYTES as u64 {
            return Ok(false);
        }
        file.read_at(&mut sector, 0)?;
        let Ok(header) = Header::read(&sector) else { return Ok(false) };
        let blocks_at = header.blocks_at() as u64;
        if bytes < blocks_at + SECTOR_BYTES as u64 {
            return Ok(false);
        }
        file.read_at(&mut sector, blocks_at)?;
        Ok(!is_zero(&sector))
    }

    /// Whether a segment has an older format than this server writes. Also false if its header is
    /// invalid; reading the segment then reports that.
    pub fn is_older(disk: &Disk, path: &Path) -> Result<bool, DiskError> {
        let file = disk.open_read(path)?;
        let mut sector = [0; SECTOR_BYTES];
        if file.bytes()? < segment::HEADER_BYTES as u64 {
            return Ok(false);
        }
        file.read_at(&mut sector, 0)?;
        Ok(Header::read(&sector).is_ok_and(|header| header.version < segment::VERSION))
    }

    /// Reads the next segment, which may be blank or still being written. Afterwards [`Self::end`]
    /// is valid only if nothing was written during the call.
    pub fn read_open(
        &mut self,
        disk: &Disk,
        path: &Path,
        number: u64,
    ) -> Result<OpenBatch, OpenError> {
        let segment = self.read(disk.open_read(path)?, number)?.parsed;
        let torn_bytes = match segment.tail {
            Tail::Clean => 0,
            Tail::Torn(bytes) => bytes,
        };
        Ok(OpenBatch { batch: segment.batch, torn_bytes })
    }

    /// Reads the next segment from its bytes. `path` is used only in errors.
    pub fn read_bytes(
        &mut self,
        path: &Path,
        bytes: Vec<u8>,
        number: u64,
    ) -> Result<Batch, OpenError> {
        let window = Window::of_bytes(bytes, &self.spare);
        Ok(self.parse(path, window, number, &mut unshown)?.batch)
    }

    /// Reads the next segment up to the end of its blocks.
    pub(super) fn read(&mut self, file: DiskFile, number: u64) -> Result<Segment, OpenError> {
        let Some(window) = Window::of_whole_file(&file, &self.spare)? else {
            return Err(OpenError::SegmentMismatch { path: file.path().to_path_buf() });
        };
        let parsed = self.parse(file.path(), window, number, &mut unshown)?;
        Ok(Segment { file, parsed })
    }

    /// Reads the next segment piece by piece, to limit memory use: passes each piece to `show`
    /// except the last, which it returns. Some pieces may have been shown before an error is
    /// returned.
    pub(super) fn read_in_pieces<E: From<OpenError> + From<DiskError>>(
        &mut self,
        file: DiskFile,
        number: u64,
        show: &mut dyn FnMut(Batch) -> Result<(), E>,
    ) -> Result<Segment, E> {
        let Some(window) = Window::of_file(&file, &self.spare)? else {
            return Err(OpenError::SegmentMismatch { path: file.path().to_path_buf() }.into());
        };
        let parsed = self.parse(file.path(), window, number, show)?;
        Ok(Segment { file, parsed })
    }

    fn parse<E: From<OpenError> + From<DiskError>>(
        &mut self,
        path: &Path,
        mut window: Window<'_>,
        number: u64,
        show: &mut dyn FnMut(Batch) -> Result<(), E>,
    ) -> Result<Parsed, E> {
        let header = check_header(path, number, &mut window)?;
        let (blocks_at, page_bytes) = (header.blocks_at(), header.page_bytes());
        let path = || path.to_path_buf();
        let (log, mut chain) = if let Some(known) = self.known {
            known
        } else {
            let start = Chain::start(header.log);
            let blocks = window.read(blocks_at, SECTOR_BYTES)?;
            let found = if self.is_lenient { block::chain_before(blocks, &start) } else { None };
            (header.log, found.unwrap_or(start))
        };
        if log != header.log {
            return Err(OpenError::ForeignSegment { path: path() }.into());
        }
        if let Some((path, offset, damage)) = &self.over
            && !accepts_damage()
            && window.written_bytes(blocks_at)? > 0
        {
            let (path, offset, damage) = (path.clone(), *offset, damage.clone());
            return Err(OpenError::Damaged { path, offset, damage }.into());
        }
        let mut piece = Piece::beginning_at(chain.mark());
        let mut record_count = 0;
        let mut end = blocks_at;
        let mut newest_block = end;
        let mut tail = Tail::Clean;
        while end < window.file_bytes() {
            // Read only the length that the block claims. If the block is not intact, it is read
            // again below, with all bytes that may belong to it.
            let claimed = block::claimed_bytes(window.read(end, SECTOR_BYTES)?, page_bytes, &chain);
            if let Reading::Block(block) =
                block::read(window.read(end, claimed)?, page_bytes, &mut chain)
            {
                piece.add(&block, end, chain.mark());
                newest_block = end;
                end += block.bytes;
                if self.resumes_at.is_some_and(|block| block == chain.mark()) {
                    self.resumes_at = None;
                    piece = Piece::beginning_at(chain.mark());
                }
                if let Some(content) = window.cut_piece(end) {
                    let cut = mem::replace(&mut piece, Piece::beginning_at(chain.mark()));
                    if self.resumes_at.is_none() {
                        record_count += cut.records.len() as u64;
                        show(cut.into_batch(number, log, content, end))?;
                    }
                }
                continue;
            }
            let written = window.written_bytes(end)?;
            // Read the block again, with all bytes that may belong to it if it is torn.
            let rest = window.read(end, BLOCK_BYTES_MAX)?;
            let reading = block::read(rest, page_bytes, &mut chain);
            tail = match tail::judge(rest, written, &reading, &chain) {
                Ok(tail) => tail,
                Err(_) if accepts_damage() => Tail::Torn(window.file_bytes() - end),
                Err(damage) => {
                    let (path, offset) = (path(), end as u64);
                    return Err(OpenError::Damaged { path, offset, damage }.into());
                }
            };
            break;
        }
        if self.resumes_at.is_some() {
            return Err(OpenError::Changed { path: path() }.into());
        }
        self.known = Some((log, chain));
        record_count += piece.records.len() as u64;
        let batch = piece.into_batch(number, log, window.into_content(), end);
        let parsed = Parsed { header, batch, record_count, newest_block, end, tail, chain };
        let damage = match &parsed.tail {
            Tail::Torn(_) => Some(Damage::Followed),
            Tail::Clean if parsed.is_blank() => Some(Damage::Gap),
            Tail::Clean => None,
        };
        if let (None, Some(damage)) = (&self.over, damage) {
            self.over = Some((path(), end as u64, damage));
        }
        Ok(parsed)
    }
}

/// Consecutive blocks that are being collected into a batch.
struct Piece {
    records: Vec<RecordAt>,
    before: ChainMark,
    after: ChainMark,
    blocks: u64,
    block_records_max: u32,
    epochs_begun: u64,
}

impl Piece {
    const fn beginning_at(before: ChainMark) -> Self {
        Self {
            records: Vec::new(),
            before,
            after: before,
            blocks: 0,
            block_records_max: 0,
            epochs_begun: 0,
        }
    }

    /// Adds the block at this offset of the file.
    fn add(&mut self, block: &Block<'_>, at: usize, after: ChainMark) {
        let count_before = self.records.len();
        let expected = self.before.position + 1 + count_before as u64;
        assert_eq!(block.first_position, expected, "block::read checks the chain");
        for (offset, bytes) in block.record_ranges() {
            self.records.push(RecordAt {
                offset: to_u32(at + offset),
                bytes: to_u32(bytes),
                epoch: block.epoch,
            });
        }
        let record_count = to_u32(self.records.len() - count_before);
        self.blocks += 1;
        self.block_records_max = self.block_records_max.max(record_count);
        self.epochs_begun += u64::from(record_count == 0);
        self.after = after;
    }

    fn into_batch(self, segment: u64, log: LogId, content: Content, end: usize) -> Batch {
        let Self { records, before, after, blocks, block_records_max, epochs_begun } = self;
        Batch {
            segment,
            content,
            records,
            first_position: before.position + 1,
            blocks,
            block_records_max,
            epochs_begun,
            end: to_u32(end),
            log,
            before,
            after,
        }
    }
}

/// Returns the last piece of a segment, or an error if the segment is not closed.
fn closed(path: &Path, parsed: Parsed) -> Result<Batch, OpenError> {
    let damage = match parsed.tail {
        Tail::Torn(_) if !accepts_damage() => Damage::Followed,
        Tail::Clean if parsed.is_blank() => Damage::Gap,
        Tail::Torn(_) | Tail::Clean => return Ok(parsed.batch),
    };
    Err(OpenError::Damaged { path: path.to_path_buf(), offset: parsed.end as u64, damage })
}

/// The `show` of a segment that is read as a whole. Never called: its only piece is the last one,
/// which is returned.
fn unshown(_: Batch) -> Result<(), OpenError> {
    unreachable!("a whole segment is returned")
}

fn accepts_damage() -> bool {
    faults::is_on(Fault::TornTailAcceptedInTheMiddle)
}

/// Reads the header and checks it against the segment's number and the length of its file.
fn check_header(path: &Path, number: u64, window: &mut Window<'_>) -> Result<Header, OpenError> {
    let path = || path.to_path_buf();
    let header = match Header::read(window.read(0, segment::HEADER_BYTES)?) {
        Ok(header) => header,
        Err(HeaderError::Newer { version }) => {
            return Err(OpenError::NewerVersion { path: path(), version });
        }
        Err(HeaderError::Older { version }) => {
            return Err(OpenError::OlderVersion { path: path(), version });
        }
        Err(HeaderError::NotASegment | HeaderError::Damaged) => {
            return Err(OpenError::SegmentHeader { path: path() });
        }
    };
    let (file_bytes, blocks_at) = (window.file_bytes(), header.blocks_at());
    let is_whole = file_bytes.is_multiple_of(header.page_bytes()) && file_bytes >= blocks_at;
    if header.number != number || header.segment_bytes != file_bytes as u64 || !is_whole {
        return Err(OpenError::SegmentMismatch { path: path() });
    }
    if !is_zero(&window.read(0, blocks_at)?[segment::HEADER_BYTES..blocks_at]) {
        return Err(OpenError::SegmentHeader { path: path() });
    }
    Ok(header)
}

fn to_u32(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("a segment is at most a GiB")
}

/// Returns the file name of a segment.
pub fn segment_name(number: u64) -> String {
    segment::file_name(number)
}

/// Parses the segment number in a file name. `None` for any other file.
pub fn segment_number(file_name: &str) -> Option<u64> {
    segment::number_of(file_name)
}
