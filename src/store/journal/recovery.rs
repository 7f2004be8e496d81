//! Opens the journal of a directory: creates it if there is none, reads the records that no
//! snapshot covers, cuts a torn tail and begins the next epoch.
//!
//! Nothing is written until everything has been read and the caller has accepted every record.
//! Recovery refuses any on-disk state that cannot result from a crash.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::block::{self, BLOCK_BYTES_MAX, Builder, Chain, Damage, PAGE_BYTES};
use super::broken;
use super::directory::{ARCHIVE_NAME, JOURNAL_NAME};
use super::local::LocalJournal;
#[cfg(any(test, feature = "test-util"))]
use super::local::Steps;
use super::log_id::LogId;
use super::preallocator::{BlankSegment, SegmentTemplate};
use super::reader::{Batch, ChainMark, JournalMark, Parsed, Segment, SegmentReader};
use super::segment;
use super::tail;
use super::writer::Tail;
use super::{DataDirectory, Journal, JournalConfig, Lsn, SyncMode};
use crate::disk::{self, Disk, DiskError};

/// The result of opening a journal.
#[derive(Clone, Debug)]
pub struct RecoveryReport {
    /// Number of records read.
    pub records: u64,
    /// Number of segments that hold blocks.
    pub segments: u64,
    /// The LSN of the newest record.
    pub last: Lsn,
    /// The epoch that this startup began.
    pub epoch: u64,
    /// The torn tail that was cut, if any.
    pub torn: Option<TornTail>,
    /// Duration of the recovery.
    pub elapsed: Duration,
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { records, segments, torn, .. } = self;
        write!(formatter, "{records} records of {segments} segments recovered")?;
        if let Some(TornTail { bytes, copy, .. }) = torn {
            write!(formatter, ", a torn tail of {bytes} bytes cut ")?;
            match copy {
                Some(copy) => write!(formatter, "(kept as {})", copy.display())?,
                None => write!(formatter, "(not kept: the disk is full)")?,
            }
        }
        write!(formatter, " in {:.3} s", self.elapsed.as_secs_f64())
    }
}

/// A partially written block left by a crash. It was never acknowledged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TornTail {
    /// Number of bytes cut, including zeros between them.
    pub bytes: u64,
    /// Offset in the segment.
    pub offset: u64,
    /// Path of the copy of the cut bytes. `None` if the disk had no room for a copy.
    pub copy: Option<PathBuf>,
}

/// Error opening a journal. Nothing was changed unless stated otherwise.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Another process has locked the directory.
    #[error(
        "the data folder {} is in use by another process; stop it or choose another folder",
        directory.display()
    )]
    InUse {
        /// The data directory.
        directory: PathBuf,
    },
    /// The system provided no random bytes for the id of a new log.
    #[error("cannot generate the id of a new journal: {0}")]
    Random(getrandom::Error),
    /// The journal directory holds no segment.
    #[error(
        "{} holds no segment, so records are missing; start from a backup, or on another data \
         directory",
        directory.display()
    )]
    NoSegments {
        /// The journal's directory.
        directory: PathBuf,
    },
    /// The first segment is missing, or there is a gap between segments.
    #[error("{} is missing; restore it from a backup", path.display())]
    MissingSegment {
        /// The missing file.
        path: PathBuf,
    },
    /// The file is not a segment, or its header is damaged.
    #[error("{} at offset 0: the header of the segment is damaged; {REMEDY}", path.display())]
    SegmentHeader {
        /// The segment.
        path: PathBuf,
    },
    /// The file's length or number differs from its header.
    #[error(
        "{} does not match its header: it was truncated or renamed; {REMEDY}",
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
        /// The segment's version.
        version: u32,
    },
    /// The segment was written by a server too old for this one to read.
    #[error(
        "{} has format version {version}, older than {}, the oldest this server reads; run \
         the server version that wrote it",
        path.display(),
        segment::OLDEST_VERSION
    )]
    OlderVersion {
        /// The segment.
        path: PathBuf,
        /// The segment's version.
        version: u32,
    },
    /// The content of a segment is damaged.
    #[error("{} at offset {offset}: {damage}; {REMEDY}", path.display())]
    Damaged {
        /// The segment.
        path: PathBuf,
        /// Offset where the last intact block before the damage ends.
        offset: u64,
        /// The damage after that offset.
        damage: Damage,
    },
    /// The segment no longer holds the records that were read from it while the previous server was
    /// running.
    #[error(
        "{} no longer holds what was read of it while the last server ran",
        path.display()
    )]
    Changed {
        /// The segment.
        path: PathBuf,
    },
    /// The consumer of the records refused a record.
    #[error("the record at position {position} was refused: {source}")]
    Replay {
        /// The position of the record.
        position: u64,
        /// The consumer's reason.
        source: Box<dyn Error + Send + Sync>,
    },
}

const REMEDY: &str = "the journal was not changed; restore the file from a backup";

/// Reason reading a journal ended early.
#[derive(Debug)]
pub enum ReadError<E> {
    /// The journal cannot be read.
    Journal(OpenError),
    /// The consumer of the records stopped.
    Stopped(E),
}

impl<E> From<OpenError> for ReadError<E> {
    fn from(error: OpenError) -> Self {
        Self::Journal(error)
    }
}

impl<E> From<DiskError> for ReadError<E> {
    fn from(error: DiskError) -> Self {
        Self::Journal(error.into())
    }
}

/// A journal that is ready for writing.
pub(super) struct Recovered {
    /// Keeps the lock while the journal is open.
    pub(super) data: DataDirectory,
    pub(super) template: SegmentTemplate,
    pub(super) tail: Tail,
    pub(super) ready: VecDeque<BlankSegment>,
    pub(super) next_number: u64,
    pub(super) report: RecoveryReport,
}

/// A journal that has been read to its end but not changed yet.
pub struct UnopenedJournal {
    data: DataDirectory,
    config: JournalConfig,
    directory: PathBuf,
    log: LogId,
    end: End,
    ready: VecDeque<BlankSegment>,
    next_number: u64,
    records: u64,
    segments: u64,
    began: Instant,
}

/// Reads the journal in the data directory, starting after `mark`, and passes its records to `show`
/// in order, a piece of a segment at a time. Records up to the block `resumes_at` are checked but
/// not shown. Creates a journal if the directory has none.
pub(super) fn read<E>(
    data: &DataDirectory,
    config: &JournalConfig,
    mark: Option<JournalMark>,
    resumes_at: Option<ChainMark>,
    mut show: impl FnMut(Batch) -> Result<(), E>,
) -> Result<UnopenedJournal, ReadError<E>> {
    let began = Instant::now();
    let disk = data.disk();
    let directory = data.path().join(JOURNAL_NAME);
    if !disk.exists(&directory)? && mark.is_none() {
        create(data, &directory, config)?;
    }
    // Sync even if the directory already existed: the process that created it may have ended before
    // syncing it.
    disk.sync_directory(data.path())?;
    let paths = settle(data, &directory, mark.map_or(0, |mark| mark.segment))?;
    let mut reader = SegmentReader::after(mark).resuming_at(resumes_at);
    let mut end: Option<End> = None;
    let mut ready = VecDeque::new();
    let (mut records, mut segments, mut next_number) = (0, 0, 1);
    let mut show = |batch| show(batch).map_err(ReadError::Stopped);
    for (number, path) in paths {
        next_number = number + 1;
        let Segment { file, parsed } =
            reader.read_in_pieces(disk.open(&path)?, number, &mut show)?;
        let (is_blank, chain) = (parsed.is_blank(), parsed.chain);
        let Parsed { header, batch, record_count, newest_block, end: offset, tail, .. } = parsed;
        if is_blank && end.is_some() {
            let file = config.sync.open(disk, file.path())?;
            ready.push_back(BlankSegment { file, header });
            continue;
        }
        let blank = BlankSegment { file, header };
        let torn_bytes = match tail {
            tail::Tail::Clean => 0,
            tail::Tail::Torn(bytes) => bytes,
        };
        let (block_offset, offset) = (newest_block as u64, offset as u64);
        end = Some(End { segment: blank, block_offset, offset, torn_bytes, chain });
        if !is_blank {
            records += record_count;
            segments += 1;
            show(batch)?;
        }
    }
    let (Some((log, _)), Some(end)) = (reader.end(), end) else {
        return Err(OpenError::NoSegments { directory }.into());
    };
    let (data, config) = (data.clone(), config.clone());
    Ok(UnopenedJournal {
        data,
        config,
        directory,
        log,
        end,
        ready,
        next_number,
        records,
        segments,
        began,
    })
}

impl UnopenedJournal {
    /// Cuts a torn tail, begins the next epoch and starts the journal's threads.
    pub fn open(self) -> Result<(Journal, RecoveryReport), OpenError> {
        let config = self.config.clone();
        let recovered = self.recover()?;
        let report = recovered.report.clone();
        Ok((Journal::Local(LocalJournal::start(recovered, &config)), report))
    }

    /// Opens the journal without threads: the caller writes blocks and makes segments through
    /// [`Steps`].
    #[cfg(any(test, feature = "test-util"))]
    pub fn open_stepped(self) -> Result<(Journal, Steps, RecoveryReport), OpenError> {
        let config = self.config.clone();
        let recovered = self.recover()?;
        let report = recovered.report.clone();
        let (journal, steps) = LocalJournal::start_stepped(recovered, &config);
        Ok((Journal::Local(journal), steps, report))
    }

    /// Returns the report so far: `torn` is unset and the epoch is that of the newest block.
    pub fn report(&self) -> RecoveryReport {
        RecoveryReport {
            records: self.records,
            segments: self.segments,
            last: Lsn { log: super::LOCAL_LOG, position: self.end.chain.position },
            epoch: self.end.chain.epoch,
            torn: None,
            elapsed: self.began.elapsed(),
        }
    }

    pub(super) fn recover(self) -> Result<Recovered, OpenError> {
        let report = self.report();
        let Self { data, config, directory, log, end, mut ready, mut next_number, began, .. } =
            self;
        let disk = data.disk();
        // Copy the torn bytes first: `rewrite` overwrites them with zeros.
        let torn = if end.torn_bytes > 0 { Some(keep_torn(disk, &directory, &end)?) } else { None };
        end.rewrite()?;
        let segment_bytes = config.segment_bytes;
        let sync = config.sync;
        let template = SegmentTemplate { disk: disk.clone(), directory, log, segment_bytes, sync };
        remove_older(&template, &mut ready, &mut next_number)?;
        let header = end.segment.header;
        let is_older = header.version < segment::VERSION;
        let mut tail = end.tail(disk, sync)?;
        // Room for the block that begins the epoch, and for one record of any length.
        let room_min = PAGE_BYTES + block::alone_bytes(config.record_bytes_max);
        if is_older || tail.room() < room_min as u64 {
            let segment = if is_older && tail.offset == header.blocks_at() as u64 {
                // Replace the empty segment: left before one with blocks, it would be a gap.
                template.make(header.number, || ())?
            } else if let Some(segment) = ready.pop_front() {
                segment
            } else {
                next_number += 1;
                template.make(next_number - 1, || ())?
            };
            tail = Tail::at_start_of(segment, tail.chain);
        }
        // A block without records puts the epoch on disk before its first record can be reserved.
        tail.append(&mut Builder::new())?;
        let (epoch, elapsed) = (tail.chain.epoch, began.elapsed());
        let report = RecoveryReport { epoch, torn, elapsed, ..report };
        Ok(Recovered { data, template, tail, ready, next_number, report })
    }
}

/// Creates the journal's directory with its first segment, under a temporary name until it is
/// complete.
fn create(data: &DataDirectory, directory: &Path, config: &JournalConfig) -> Result<(), OpenError> {
    let disk = data.disk();
    let temporary = disk::temporary_name(directory);
    // An earlier process may have ended before the rename below.
    disk.remove_directory(&temporary)?;
    disk.create_directory(&temporary)?;
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(OpenError::Random)?;
    let template = SegmentTemplate {
        disk: disk.clone(),
        directory: temporary.clone(),
        log: LogId(id),
        segment_bytes: config.segment_bytes,
        sync: config.sync,
    };
    template.make(1, || ())?;
    disk.rename(&temporary, directory)?;
    Ok(())
}

/// Syncs data that an earlier process may have left in the page cache, removes unfinished files,
/// and returns the segments after number `covered`, which must have no gaps. If a newer snapshot
/// was moved away, the segments that it covered may be in the archive and are read from there.
fn settle(
    data: &DataDirectory,
    directory: &Path,
    covered: u64,
) -> Result<Vec<(u64, PathBuf)>, OpenError> {
    let disk = data.disk();
    let archive = data.path().join(ARCHIVE_NAME);
    let mut paths = BTreeMap::new();
    let mut directories = Vec::new();
    for directory in [&archive, directory] {
        if !disk.exists(directory)? {
            continue;
        }
        for name in disk.names(directory)? {
            let path = directory.join(&name);
            if let Some(number) = segment::number_of(&name) {
                paths.insert(number, path);
            } else if name.strip_suffix(".tmp").and_then(segment::number_of).is_some()
                || broken::is_unfinished(&name)
            {
                disk.remove_file(&path)?;
            }
        }
        directories.push(directory);
    }
    paths.retain(|&number, _| number > covered);
    // The archive alone is not enough: the newest records are missing.
    if !paths.values().next_back().is_some_and(|path| path.starts_with(directory)) {
        return Err(OpenError::NoSegments { directory: directory.to_path_buf() });
    }
    for (expected, (&number, path)) in (covered + 1..).zip(&paths) {
        if number != expected {
            let path = directory.join(segment::file_name(expected));
            return Err(OpenError::MissingSegment { path });
        }
        disk.open(path)?.sync_all()?;
    }
    for directory in directories {
        disk.sync_directory(directory)?;
    }
    Ok(paths.into_iter().collect())
}

/// Removes the empty segments that a server of an older version preallocated. Starts with the last
/// one and syncs each removal, so that there is never a gap.
fn remove_older(
    template: &SegmentTemplate,
    ready: &mut VecDeque<BlankSegment>,
    next_number: &mut u64,
) -> Result<(), DiskError> {
    let is_current = |segment: &&BlankSegment| segment.header.version == segment::VERSION;
    let kept = ready.iter().take_while(is_current).count();
    for older in ready.drain(kept..).rev() {
        template.disk.remove_file(older.file.path())?;
        template.disk.sync_directory(&template.directory)?;
        *next_number = older.header.number;
    }
    Ok(())
}

/// Copies the torn tail before it is cut. Startup continues if the disk is full: the tail was never
/// acknowledged, and cutting it needs no space.
fn keep_torn(disk: &Disk, directory: &Path, end: &End) -> Result<TornTail, OpenError> {
    let (file, offset) = (&end.segment.file, end.offset);
    let mut torn = vec![0; end.torn_bytes];
    file.read_at(&mut torn, offset)?;
    let copy = broken::keep(disk, directory, (end.segment.header.number, offset), &torn)?;
    if copy.is_none() {
        tracing::warn!(
            path = %file.path().display(),
            offset,
            bytes = torn.len(),
            crc32c = crc32c::crc32c(&torn),
            "cutting a torn journal tail without keeping a copy: the disk is full"
        );
    }
    Ok(TornTail { bytes: torn.len() as u64, offset, copy })
}

/// The end of the newest block.
struct End {
    segment: BlankSegment,
    /// Offset of the newest block, or `offset` if the segment has none.
    block_offset: u64,
    offset: u64,
    torn_bytes: usize,
    chain: Chain,
}

impl End {
    /// Rewrites the newest block, followed by zeros as far as a torn block can reach.
    ///
    /// After a failed fsync, the kernel may mark the pages clean and keep serving them: the next
    /// process then reads bytes that are not on disk, and its own fsync changes nothing. At most
    /// one block is in flight, so only that block, or the zeros written by an earlier start, can be
    /// in doubt.
    fn rewrite(&self) -> Result<(), DiskError> {
        let segment_bytes = self.segment.header.segment_bytes;
        assert!(
            self.block_offset <= self.offset && self.offset <= segment_bytes,
            "the newest block ends behind its start and within its segment"
        );
        let zeros = (segment_bytes - self.offset).min(BLOCK_BYTES_MAX as u64);
        let block_bytes = to_usize(self.offset - self.block_offset);
        let mut bytes = vec![0; block_bytes + to_usize(zeros)];
        self.segment.file.read_at(&mut bytes[..block_bytes], self.block_offset)?;
        self.segment.file.write_at(&bytes, self.block_offset)?;
        self.segment.file.sync_data()
    }

    fn tail(self, disk: &Disk, sync: SyncMode) -> Result<Tail, DiskError> {
        Ok(Tail {
            file: sync.open(disk, self.segment.file.path())?,
            number: self.segment.header.number,
            offset: self.offset,
            segment_bytes: self.segment.header.segment_bytes,
            chain: self.chain,
        })
    }
}

/// Converts a length of at most two blocks.
fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a block fits into memory")
}
