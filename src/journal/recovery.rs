//! Opens the journal of a directory: makes it when there is none, reads all of it, cuts a torn end,
//! begins the next epoch.
//!
//! It changes nothing before it has read everything, and it refuses whatever it cannot explain by
//! a crash of this very format.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::block::{self, Builder, Chain, Damage, LogId, Reading, SECTOR_BYTES, is_zero};
use super::maker::{BlankSegment, Mould};
use super::segment::{self, Header, HeaderError, SEGMENT_BYTES_MAX};
use super::tail;
use super::writer::Tail;
use super::{DataDirectory, JournalConfig, Place};
use crate::disk::{self, Disk, DiskError};

const JOURNAL_NAME: &str = "journal";

/// What the opening of a journal found and did.
#[derive(Clone, Debug)]
pub struct RecoveryReport {
    /// How many records were read.
    pub records: u64,
    /// How many segments hold blocks.
    pub segments: u64,
    /// The newest record.
    pub last: Place,
    /// The epoch that began with this opening.
    pub epoch: u64,
    /// The torn end that was cut, if there was one.
    pub torn: Option<TornTail>,
    /// How long it took.
    pub elapsed: Duration,
}

/// For the log: what was read, and what was cut.
impl fmt::Display for RecoveryReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { records, segments, torn, .. } = self;
        write!(formatter, "{records} records of {segments} segments recovered")?;
        if let Some(TornTail { bytes, copy, .. }) = torn {
            write!(formatter, ", a torn end of {bytes} bytes cut (kept as {})", copy.display())?;
        }
        write!(formatter, " in {:.3} s", self.elapsed.as_secs_f64())
    }
}

/// The end of a segment that a crash left half written. Nobody was told that it is on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TornTail {
    /// How many bytes were cut, zeros between them included.
    pub bytes: u64,
    /// Where in the segment they began.
    pub offset: u64,
    /// The copy of the segment as it was found.
    pub copy: PathBuf,
}

/// Why a journal cannot be opened. Nothing was changed except where it says so.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Another process has the directory open.
    #[error(
        "the data directory {} is in use by another process; stop it or choose another directory",
        directory.display()
    )]
    InUse {
        /// The data directory.
        directory: PathBuf,
    },
    /// The system gave no random number for a new log.
    #[error("no random number for the id of a new journal: {0}")]
    Random(getrandom::Error),
    /// The journal's directory holds no segment.
    #[error(
        "{} holds no segment, so records are missing; start from a backup, or on another data \
         directory",
        directory.display()
    )]
    NoSegments {
        /// The journal's directory.
        directory: PathBuf,
    },
    /// A segment between others, or the first, is not there.
    #[error("{} is missing; put it back from a backup", path.display())]
    MissingSegment {
        /// The file that should be there.
        path: PathBuf,
    },
    /// The file is not a segment, or its header is damaged.
    #[error("{} at offset 0: the header of the segment is damaged; {REMEDY}", path.display())]
    SegmentHeader {
        /// The segment.
        path: PathBuf,
    },
    /// The length or the number of the file is not what its header says.
    #[error(
        "{} is not the file its header describes: it was cut or renamed; {REMEDY}",
        path.display()
    )]
    SegmentMismatch {
        /// The segment.
        path: PathBuf,
    },
    /// The segment belongs to another log.
    #[error("{} belongs to another journal; {REMEDY}", path.display())]
    ForeignSegment {
        /// The segment.
        path: PathBuf,
    },
    /// The segment was written by a newer server.
    #[error(
        "{} has format version {version}, newer than {}; use a newer server",
        path.display(),
        segment::VERSION
    )]
    NewerVersion {
        /// The segment.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// The content of a segment is damaged.
    #[error("{} at offset {offset}: {damage}; {REMEDY}", path.display())]
    Damaged {
        /// The segment.
        path: PathBuf,
        /// Where the last good block before the damage ends.
        offset: u64,
        /// What is wrong there.
        damage: Damage,
    },
    /// The reader of the records refused one.
    #[error("the record at position {position} was refused: {source}")]
    Replay {
        /// The position of the record.
        position: u64,
        /// Why.
        source: Box<dyn Error + Send + Sync>,
    },
}

const REMEDY: &str = "the journal was left as it is; put the file back from a backup";

/// A journal that is ready to be written.
pub(super) struct Recovered {
    /// Held as long as the journal is open.
    pub(super) data: DataDirectory,
    pub(super) mould: Mould,
    pub(super) tail: Tail,
    pub(super) ready: VecDeque<BlankSegment>,
    pub(super) next_number: u64,
    pub(super) report: RecoveryReport,
}

/// Opens the journal in the data directory and shows each record to `replay`, in order, with its
/// epoch and position.
pub(super) fn recover<E: Into<Box<dyn Error + Send + Sync>>>(
    data: &DataDirectory,
    config: &JournalConfig,
    mut replay: impl FnMut(u64, u64, &[u8]) -> Result<(), E>,
) -> Result<Recovered, OpenError> {
    let started = Instant::now();
    let disk = data.disk();
    let directory = data.path().join(JOURNAL_NAME);
    if !disk.exists(&directory)? {
        create(data, &directory, config)?;
    }
    let numbers = settle(disk, &directory)?;
    let mut reader = Reader::new(disk, &directory);
    for &number in &numbers {
        reader.read_segment(number, &mut |epoch, position, record: &[u8]| {
            replay(epoch, position, record)
                .map_err(|source| OpenError::Replay { position, source: source.into() })
        })?;
    }
    let Reader { mut ready, log, end, records, segments, .. } = reader;
    let (Some(log), Some(end)) = (log, end) else {
        return Err(OpenError::NoSegments { directory });
    };
    let torn = if end.torn_bytes > 0 { Some(cut(disk, &end)?) } else { None };
    let mould = Mould { disk: disk.clone(), directory, log, segment_bytes: config.segment_bytes };
    let mut next_number = numbers.last().expect("the end lies in a segment") + 1;
    let mut tail = end.tail(config);
    let room_min = SECTOR_BYTES + block::alone_bytes(config.record_bytes_max);
    if tail.room() < room_min as u64 {
        let segment = if let Some(segment) = ready.pop_front() {
            segment
        } else {
            next_number += 1;
            mould.make(next_number - 1)?
        };
        tail = Tail::at_start_of(segment, tail.chain, tail.sync);
    }
    // A block without records: the epoch is on disk before its first record can be reserved.
    tail.append(&mut Builder::new())?;
    let report = RecoveryReport {
        records,
        segments,
        last: Place { log: super::LOCAL_LOG, position: tail.chain.position },
        epoch: tail.chain.epoch,
        torn,
        elapsed: started.elapsed(),
    };
    Ok(Recovered { data: data.clone(), mould, tail, ready, next_number, report })
}

/// Makes the journal's directory with its first segment, under another name until it is whole.
fn create(data: &DataDirectory, directory: &Path, config: &JournalConfig) -> Result<(), OpenError> {
    let disk = data.disk();
    let temporary = disk::temporary_name(directory);
    disk.remove_directory(&temporary)?;
    disk.create_directory(&temporary)?;
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(OpenError::Random)?;
    let mould = Mould {
        disk: disk.clone(),
        directory: temporary.clone(),
        log: LogId(id),
        segment_bytes: config.segment_bytes,
    };
    mould.make(1)?;
    disk.rename(&temporary, directory)?;
    disk.sync_directory(data.path())?;
    Ok(())
}

/// Puts on disk what an earlier process may have left in memory, removes what it did not finish,
/// and lists the numbers of the segments, which must have no gaps.
fn settle(disk: &Disk, directory: &Path) -> Result<Vec<u64>, OpenError> {
    let mut numbers = Vec::new();
    for name in disk.names(directory)? {
        if let Some(number) = segment::number_of(&name) {
            disk.open(&directory.join(name))?.sync_all()?;
            numbers.push(number);
        } else if name.strip_suffix(".tmp").and_then(segment::number_of).is_some() {
            disk.remove_file(&directory.join(name))?;
        }
    }
    disk.sync_directory(directory)?;
    numbers.sort_unstable();
    for (expected, &number) in (1..).zip(&numbers) {
        if number != expected {
            let path = directory.join(segment::file_name(expected));
            return Err(OpenError::MissingSegment { path });
        }
    }
    Ok(numbers)
}

/// Keeps a copy of the segment and writes zeros over the torn end.
fn cut(disk: &Disk, end: &End) -> Result<TornTail, OpenError> {
    let path = end.segment.file.path();
    // Named by the place: an opening that is interrupted here makes the same copy again.
    let copy = path.with_added_extension(format!("{}.broken", end.offset));
    disk.copy(path, &copy)?;
    end.segment.file.write_at(&vec![0; end.torn_bytes], end.offset)?;
    end.segment.file.sync_data()?;
    Ok(TornTail { bytes: end.torn_bytes as u64, offset: end.offset, copy })
}

/// Where the newest block ends.
struct End {
    segment: BlankSegment,
    offset: u64,
    torn_bytes: usize,
    chain: Chain,
}

impl End {
    fn tail(self, config: &JournalConfig) -> Tail {
        Tail {
            file: self.segment.file,
            offset: self.offset,
            segment_bytes: self.segment.header.segment_bytes,
            chain: self.chain,
            sync: config.sync,
        }
    }
}

/// Shows a record with its epoch and position.
type Replay<'a> = dyn FnMut(u64, u64, &[u8]) -> Result<(), OpenError> + 'a;

/// Reads the segments in order, one in memory at a time.
struct Reader<'a> {
    disk: &'a Disk,
    directory: &'a Path,
    buffer: Vec<u8>,
    log: Option<LogId>,
    end: Option<End>,
    /// Whether no later segment may hold anything.
    is_over: bool,
    /// The blank segments after the end.
    ready: VecDeque<BlankSegment>,
    records: u64,
    segments: u64,
}

impl<'a> Reader<'a> {
    fn new(disk: &'a Disk, directory: &'a Path) -> Self {
        Self {
            disk,
            directory,
            buffer: Vec::new(),
            log: None,
            end: None,
            is_over: false,
            ready: VecDeque::new(),
            records: 0,
            segments: 0,
        }
    }

    fn read_segment(&mut self, number: u64, replay: &mut Replay<'_>) -> Result<(), OpenError> {
        let segment = self.load(number)?;
        let log = segment.header.log;
        if is_zero(&self.buffer[segment::HEADER_BYTES..]) {
            self.is_over = true;
            if self.end.is_some() {
                self.ready.push_back(segment);
            } else {
                let offset = segment::HEADER_BYTES as u64;
                let chain = Chain::start(log);
                self.end = Some(End { segment, offset, torn_bytes: 0, chain });
            }
            return Ok(());
        }
        if self.is_over {
            return Err(self.gap());
        }
        let chain = self.end.as_ref().map_or_else(|| Chain::start(log), |end| end.chain);
        let end = self.read_blocks(segment, chain, replay)?;
        self.is_over = end.torn_bytes > 0;
        self.segments += 1;
        self.end = Some(end);
        Ok(())
    }

    /// Something is written after a place where the journal seemed to end.
    fn gap(&self) -> OpenError {
        let (segment, offset, damage) = match (self.ready.front(), &self.end) {
            (_, Some(end)) if end.torn_bytes > 0 => (&end.segment, end.offset, Damage::Followed),
            (Some(blank), _) => (blank, segment::HEADER_BYTES as u64, Damage::Gap),
            (None, Some(end)) => (&end.segment, end.offset, Damage::Gap),
            (None, None) => unreachable!("the journal ends somewhere"),
        };
        OpenError::Damaged { path: segment.file.path().to_path_buf(), offset, damage }
    }

    /// Reads the file into the buffer and checks its header.
    fn load(&mut self, number: u64) -> Result<BlankSegment, OpenError> {
        let path = self.directory.join(segment::file_name(number));
        let file = self.disk.open(&path)?;
        if file.read_into(&mut self.buffer, SEGMENT_BYTES_MAX)?.is_none() {
            return Err(OpenError::SegmentMismatch { path });
        }
        let header = match Header::read(&self.buffer) {
            Ok(header) => header,
            Err(HeaderError::Newer { version }) => {
                return Err(OpenError::NewerVersion { path, version });
            }
            Err(HeaderError::NotASegment | HeaderError::Damaged) => {
                return Err(OpenError::SegmentHeader { path });
            }
        };
        if *self.log.get_or_insert(header.log) != header.log {
            return Err(OpenError::ForeignSegment { path });
        }
        let is_whole = self.buffer.len().is_multiple_of(SECTOR_BYTES);
        if header.number != number || header.segment_bytes != self.buffer.len() as u64 || !is_whole
        {
            return Err(OpenError::SegmentMismatch { path });
        }
        Ok(BlankSegment { file, header })
    }

    fn read_blocks(
        &mut self,
        segment: BlankSegment,
        mut chain: Chain,
        replay: &mut Replay<'_>,
    ) -> Result<End, OpenError> {
        let mut offset = segment::HEADER_BYTES;
        let mut torn_bytes = 0;
        while offset < self.buffer.len() {
            let rest = &self.buffer[offset..];
            let reading = block::read(rest, &mut chain);
            if let Reading::Block(block) = &reading {
                for (position, record) in (block.first_position..).zip(block.records()) {
                    replay(block.epoch, position, record)?;
                    self.records += 1;
                }
                offset += block.bytes;
                continue;
            }
            match tail::judge(rest, &reading, &chain) {
                Ok(tail::Tail::Clean) => {}
                Ok(tail::Tail::Torn(bytes)) => torn_bytes = bytes,
                Err(damage) => {
                    let path = segment.file.path().to_path_buf();
                    return Err(OpenError::Damaged { path, offset: offset as u64, damage });
                }
            }
            break;
        }
        Ok(End { segment, offset: offset as u64, torn_bytes, chain })
    }
}
