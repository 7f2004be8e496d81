//! Opens the journal of a directory: makes it when there is none, reads what no snapshot covers,
//! cuts a torn end, begins the next epoch.
//!
//! It changes nothing before it has read everything and whoever was shown the records has agreed,
//! and it refuses whatever it cannot explain by a crash of this very format.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::block::{self, BLOCK_BYTES_MAX, Builder, Chain, Damage, LogId, PAGE_BYTES};
use super::broken;
use super::directory::{ARCHIVE_NAME, JOURNAL_NAME};
use super::local::LocalJournal;
#[cfg(test)]
use super::local::Steps;
use super::maker::{BlankSegment, Mould};
use super::reader::{Batch, JournalMark, Segment, SegmentReader};
use super::segment;
use super::tail;
use super::writer::Tail;
use super::{DataDirectory, Journal, JournalConfig, Place};
use crate::disk::{self, Disk, DiskError};

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
            write!(formatter, ", a torn end of {bytes} bytes cut ")?;
            match copy {
                Some(copy) => write!(formatter, "(kept as {})", copy.display())?,
                None => write!(formatter, "(not kept: the disk is full)")?,
            }
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
    /// Where a copy of them is kept; `None` when the disk had no room for one.
    pub copy: Option<PathBuf>,
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
    /// The segment was written by a server so old that this one cannot read it.
    #[error(
        "{} has format version {version}, older than {}, the oldest that this server reads; start \
         the server that wrote it",
        path.display(),
        segment::OLDEST_VERSION
    )]
    OlderVersion {
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

/// Why the reading of a journal ended.
#[derive(Debug)]
pub enum ReadError<E> {
    /// The journal cannot be read.
    Journal(OpenError),
    /// Whoever was shown the records did not want any more.
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

/// A journal that was read to its end. So far nothing has changed.
pub struct UnopenedJournal {
    data: DataDirectory,
    config: JournalConfig,
    directory: PathBuf,
    log: LogId,
    end: End,
    /// The blank segments after the end.
    ready: VecDeque<BlankSegment>,
    next_number: u64,
    records: u64,
    segments: u64,
    began: Instant,
}

/// Reads the journal in the data directory, from behind the mark on, and shows the records of each
/// segment, in order. A directory without a journal is given one.
pub(super) fn read<E>(
    data: &DataDirectory,
    config: &JournalConfig,
    mark: Option<JournalMark>,
    mut show: impl FnMut(Batch) -> Result<(), E>,
) -> Result<UnopenedJournal, ReadError<E>> {
    let began = Instant::now();
    let disk = data.disk();
    let directory = data.path().join(JOURNAL_NAME);
    if !disk.exists(&directory)? && mark.is_none() {
        create(data, &directory, config)?;
    }
    // Also where it exists: the process that made it may have ended before it did this.
    disk.sync_directory(data.path())?;
    let paths = settle(data, &directory, mark.map_or(0, |mark| mark.segment))?;
    let mut reader = SegmentReader::after(mark);
    let mut end: Option<End> = None;
    let mut ready = VecDeque::new();
    let (mut records, mut segments, mut next_number) = (0, 0, 1);
    for (number, path) in paths {
        next_number = number + 1;
        let segment = reader.read(disk.open(&path)?, number)?;
        let (is_blank, chain) = (segment.is_blank(), segment.chain);
        let Segment { file, header, batch, newest_block, end: offset, tail, .. } = segment;
        let blank = BlankSegment { file, header };
        if is_blank && end.is_some() {
            ready.push_back(blank);
            continue;
        }
        let torn_bytes = match tail {
            tail::Tail::Clean => 0,
            tail::Tail::Torn(bytes) => bytes,
        };
        let (block_offset, offset) = (newest_block as u64, offset as u64);
        end = Some(End { segment: blank, block_offset, offset, torn_bytes, chain });
        if !is_blank {
            records += batch.records().len() as u64;
            segments += 1;
            show(batch).map_err(ReadError::Stopped)?;
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
    /// Cuts a torn end and begins the next epoch.
    pub fn open(self) -> Result<(Journal, RecoveryReport), OpenError> {
        let config = self.config.clone();
        let recovered = self.recover()?;
        let report = recovered.report.clone();
        Ok((Journal::Local(LocalJournal::start(recovered, &config)), report))
    }

    /// The same without threads: nothing is written and no segment is made but by the steps.
    #[cfg(test)]
    pub(crate) fn open_stepped(self) -> Result<(Journal, Steps, RecoveryReport), OpenError> {
        let config = self.config.clone();
        let recovered = self.recover()?;
        let report = recovered.report.clone();
        let (journal, steps) = LocalJournal::start_stepped(recovered, &config);
        Ok((Journal::Local(journal), steps, report))
    }

    /// What a recovery that ended here would have found.
    pub fn report(&self) -> RecoveryReport {
        RecoveryReport {
            records: self.records,
            segments: self.segments,
            last: Place { log: super::LOCAL_LOG, position: self.end.chain.position },
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
        let torn = if end.torn_bytes > 0 { Some(keep_torn(disk, &directory, &end)?) } else { None };
        end.rewrite()?;
        let segment_bytes = config.segment_bytes;
        let mould = Mould { disk: disk.clone(), directory, log, segment_bytes };
        remove_older(&mould, &mut ready, &mut next_number)?;
        let header = end.segment.header;
        let is_older = header.version < segment::VERSION;
        let mut tail = end.tail(&config);
        let room_min = PAGE_BYTES + block::alone_bytes(config.record_bytes_max);
        if is_older || tail.room() < room_min as u64 {
            let segment = if is_older && tail.offset == header.blocks_at() as u64 {
                // In its place, for an empty segment before one with blocks would be a gap.
                mould.make(header.number, || ())?
            } else if let Some(segment) = ready.pop_front() {
                segment
            } else {
                next_number += 1;
                mould.make(next_number - 1, || ())?
            };
            tail = Tail::at_start_of(segment, tail.chain, tail.sync);
        }
        // A block without records: the epoch is on disk before its first record can be reserved.
        tail.append(&mut Builder::new())?;
        let (epoch, elapsed) = (tail.chain.epoch, began.elapsed());
        let report = RecoveryReport { epoch, torn, elapsed, ..report };
        Ok(Recovered { data, mould, tail, ready, next_number, report })
    }
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
    mould.make(1, || ())?;
    disk.rename(&temporary, directory)?;
    Ok(())
}

/// Puts on disk what an earlier process may have left in memory, removes what it did not finish,
/// and lists the segments behind the covered ones, which must have no gaps. Those that an earlier
/// snapshot covered may lie in the archive: they are read there when one goes back by a snapshot.
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
    // The archive alone is no journal: the newest records are not there.
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

/// Removes the empty segments that an older server has made ready. The last one goes first, and for
/// good, so that there is no gap at any time.
fn remove_older(
    mould: &Mould,
    ready: &mut VecDeque<BlankSegment>,
    next_number: &mut u64,
) -> Result<(), DiskError> {
    let is_current = |segment: &&BlankSegment| segment.header.version == segment::VERSION;
    let kept = ready.iter().take_while(is_current).count();
    for older in ready.drain(kept..).rev() {
        mould.disk.remove_file(older.file.path())?;
        mould.disk.sync_directory(&mould.directory)?;
        *next_number = older.header.number;
    }
    Ok(())
}

/// Keeps a copy of the torn end before it is cut. A full disk does not stop the start: nobody was
/// told that what is cut is on disk, and cutting needs no room.
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
            "cutting a torn end of the journal without keeping a copy: the disk is full"
        );
    }
    Ok(TornTail { bytes: torn.len() as u64, offset, copy })
}

/// Where the newest block ends.
struct End {
    segment: BlankSegment,
    /// Where the newest block starts, or `offset` where the segment has none.
    block_offset: u64,
    offset: u64,
    torn_bytes: usize,
    chain: Chain,
}

impl End {
    /// Writes the newest block once more, and zeros as far behind it as a torn one can reach.
    ///
    /// When a sync fails, the system may take the bytes for written and go on showing them: the
    /// next process reads what is not on disk, and its own sync changes nothing. At most one block
    /// is in flight, so all that can be in doubt is that block, or the zeros of an opening.
    fn rewrite(&self) -> Result<(), DiskError> {
        let zeros = (self.segment.header.segment_bytes - self.offset).min(BLOCK_BYTES_MAX as u64);
        let block_bytes = to_usize(self.offset - self.block_offset);
        let mut bytes = vec![0; block_bytes + to_usize(zeros)];
        self.segment.file.read_at(&mut bytes[..block_bytes], self.block_offset)?;
        self.segment.file.write_at(&bytes, self.block_offset)?;
        self.segment.file.sync_data()
    }

    fn tail(self, config: &JournalConfig) -> Tail {
        Tail {
            file: self.segment.file,
            number: self.segment.header.number,
            offset: self.offset,
            segment_bytes: self.segment.header.segment_bytes,
            chain: self.chain,
            sync: config.sync,
        }
    }
}

/// A length within a block or two, which fits into memory.
fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a block fits into memory")
}
