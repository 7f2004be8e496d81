//! Arbitrary bytes over the end of a valid segment: the journal opens with a prefix of what was
//! written, or says why not. It never panics and never shows a record that was not written.
//!
//! The first two bytes of the input choose where in the segment the rest is written.

#![no_main]

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use paperbourse::journal::{Journal, JournalConfig, OpenError};
use tempfile::TempDir;

const SEGMENT: &str = "00000000000000000001.segment";

struct Fixture {
    data: TempDir,
    image: Vec<u8>,
    records: Vec<Vec<u8>>,
}

/// The segment as it was written, and a directory in memory where there is one.
static FIXTURE: LazyLock<Fixture> = LazyLock::new(|| {
    let root = if Path::new("/dev/shm").is_dir() { "/dev/shm".into() } else { std::env::temp_dir() };
    let data = TempDir::new_in(root).unwrap();
    let records: Vec<Vec<u8>> =
        [700, 0, 100, 2900, 513].iter().map(|&length| vec![0x5a; length]).collect();
    let (journal, _) = open(data.path()).unwrap();
    for record in &records {
        let place = journal.reserve(record.len()).unwrap().fill_from(record);
        journal.wait_blocking(place);
    }
    drop(journal);
    let image = fs::read(segment(data.path())).unwrap();
    Fixture { data, image, records }
});

fn segment(data: &Path) -> PathBuf {
    data.join("journal").join(SEGMENT)
}

fn open(data: &Path) -> Result<(Journal, Vec<Vec<u8>>), OpenError> {
    let config = JournalConfig {
        segment_bytes: 16 << 10,
        ring_slots: 8,
        ring_bytes: 16 << 10,
        block_bytes_max: 8 << 10,
        record_bytes_max: 3000,
        ..JournalConfig::default()
    };
    let mut records = Vec::new();
    let (journal, _) = Journal::open(data, &config, |_, _, record| {
        records.push(record.to_vec());
        Ok::<_, Infallible>(())
    })?;
    Ok((journal, records))
}

fuzz_target!(|input: &[u8]| {
    let Some((place, bytes)) = input.split_first_chunk::<2>() else { return };
    let Fixture { data, image, records } = &*FIXTURE;
    let start = usize::from(u16::from_le_bytes(*place)) % image.len();
    let bytes = &bytes[..bytes.len().min(image.len() - start)];
    let mut damaged = image.clone();
    damaged[start..start + bytes.len()].copy_from_slice(bytes);
    let directory = data.path().join("journal");
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir(&directory).unwrap();
    fs::write(segment(data.path()), &damaged).unwrap();
    if let Ok((_, shown)) = open(data.path()) {
        assert!(records.starts_with(&shown), "a record that was not written");
    }
});
