//! The journal on a real disk, rule by rule. Segments are small, so that every case occurs often.

mod broken;
mod contract;
mod cutting;
mod damage;
mod liveness;
mod opening;
mod reading;
mod simulation;
mod stepped;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::block::{PAGE_BYTES, SECTOR_BYTES};
use super::*;
use crate::disk::{self, Disk};

/// Small enough that segments rotate constantly, large enough for blocks of several pages.
fn config() -> JournalConfig {
    JournalConfig {
        segment_bytes: 48 << 10,
        segments_ahead_max: 1,
        ring_bytes: 48 << 10,
        block_bytes_max: 16 << 10,
        record_bytes_max: 6000,
        on_lost: Arc::new(|error| panic!("{error}")),
        ..JournalConfig::default()
    }
}

/// A record as passed to `replay`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Replayed {
    epoch: u64,
    position: u64,
    bytes: Vec<u8>,
}

struct Opened {
    journal: Journal,
    report: RecoveryReport,
    records: Vec<Replayed>,
}

impl Opened {
    fn bytes(&self) -> Vec<Vec<u8>> {
        self.records.iter().map(|record| record.bytes.clone()).collect()
    }
}

fn try_open(data: &Path) -> Result<Opened, OpenError> {
    let mut records = Vec::new();
    let data = DataDirectory::open(Disk::System, data)?;
    let (journal, report) = Journal::open(&data, &config(), |epoch, position, bytes| {
        records.push(Replayed { epoch, position, bytes: bytes.to_vec() });
        Ok::<_, std::convert::Infallible>(())
    })?;
    assert_eq!(report.records, records.len() as u64);
    Ok(Opened { journal, report, records })
}

#[track_caller]
fn open(data: &Path) -> Opened {
    try_open(data).unwrap()
}

/// A data directory, in memory if the system has a RAM disk, for tests that open it thousands of
/// times.
fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory).unwrap() } else { TempDir::new().unwrap() }
}

/// Writes a record, retrying until there is room.
fn write(journal: &Journal, record: &[u8]) -> Lsn {
    loop {
        match journal.reserve(record.len()) {
            Ok(reservation) => return reservation.fill_from(record),
            Err(Refused::Busy | Refused::Full) => std::thread::yield_now(),
        }
    }
}

/// Writes a record as a block of its own.
fn write_alone(journal: &Journal, record: &[u8]) -> Lsn {
    let lsn = write(journal, record);
    journal.wait_blocking(lsn);
    lsn
}

/// A record without zero bytes.
fn record(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|index| u8::try_from((seed * 31 + index) % 255).unwrap() + 1).collect()
}

fn segment_path(data: &Path, number: u64) -> PathBuf {
    data.join("journal").join(segment::file_name(number))
}

/// One segment that holds the block of its epoch and one block for each record.
struct Image {
    bytes: Vec<u8>,
    records: Vec<Vec<u8>>,
    /// The offset of each block, the epoch's first, and then the end of the last one.
    offsets: Vec<usize>,
}

impl Image {
    fn of(records: Vec<Vec<u8>>) -> Self {
        let data = TempDir::new().unwrap();
        let opened = open(data.path());
        let mut offsets = vec![segment::BLOCKS_AT, segment::BLOCKS_AT + PAGE_BYTES];
        for record in &records {
            write_alone(&opened.journal, record);
            offsets.push(offsets.last().unwrap() + block::alone_bytes(record.len()));
        }
        drop(opened);
        let bytes = std::fs::read(segment_path(data.path(), 1)).unwrap();
        assert!(*offsets.last().unwrap() < bytes.len(), "the records must fit into one segment");
        Self { bytes, records, offsets }
    }

    /// Writes the bytes as the only segment of an otherwise empty data directory.
    fn install(bytes: &[u8], data: &Path) {
        let _ = std::fs::remove_dir_all(data.join("journal"));
        std::fs::create_dir_all(data.join("journal")).unwrap();
        std::fs::write(segment_path(data, 1), bytes).unwrap();
    }
}
