//! A journal with damaged files opens with a prefix of what was written, or reports an error. It
//! never panics, never returns a record that was not written, and returns the same when opened
//! again. If the newest block is intact, a prefix is not enough: it returns everything, or an
//! error.
//!
//! The input is a list of damages, as by a crash or a faulty disk, since random bytes would always
//! fail at the checksum of the first header. Each is a letter and its numbers, of which those of
//! two bytes are little-endian; the list ends where the input does.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use paperbourse::disk::Disk;
use paperbourse::journal::{DataDirectory, Journal, JournalConfig, OpenError, SyncMode};
use tempfile::TempDir;

const SECTOR_BYTES: usize = 512;
const SEGMENT_BYTES: usize = 32 << 10;
const DAMAGES_MAX: usize = 8;

/// Damage to the journal's files. Sectors are counted over all segments, and wrap around at the
/// end.
#[derive(Debug)]
enum Damage<'a> {
    /// Sectors that were never written to disk.
    Zeros { sector: u8, count: u8 },
    /// The content of other sectors: a misdirected write, or an old image.
    Copied { from: u8, to: u8, count: u8 },
    /// A flipped bit.
    Flipped { sector: u8, byte: u16, bit: u8 },
    /// Arbitrary bytes.
    Written { sector: u8, byte: u16, bytes: &'a [u8] },
    /// A file with another length.
    Resized { segment: u8, bytes: u16 },
    /// A missing file.
    Removed { segment: u8 },
}

struct Fixture {
    data: TempDir,
    /// The content of all segments, one after another.
    image: Vec<u8>,
    /// The sectors of the newest block.
    newest: std::ops::Range<usize>,
    records: Vec<Vec<u8>>,
}

/// The undamaged journal, and a directory to open it in, in memory if possible.
static FIXTURE: LazyLock<Fixture> = LazyLock::new(|| {
    let memory = Path::new("/dev/shm");
    let data = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.unwrap();
    let lengths = [700, 0, 100, 2900, 513, 1, 2000, 3000, 40, 900];
    let records: Vec<Vec<u8>> =
        (1_u8..).zip(lengths).map(|(number, length)| vec![number; length]).collect();
    for part in records.chunks(4) {
        let (journal, _) = open(data.path()).unwrap();
        for record in part {
            // The next segment may still be in preparation.
            let mut reserved = journal.reserve(record.len());
            while reserved.is_err() {
                std::thread::yield_now();
                reserved = journal.reserve(record.len());
            }
            let lsn = reserved.expect("the loop ends with a reservation").fill_from(record);
            journal.wait_blocking(lsn);
        }
    }
    let paths = (1..).map(|number| segment(data.path(), number));
    let segments = paths.take_while(|path| path.exists()).map(|path| fs::read(path).unwrap());
    let image: Vec<u8> = segments.flatten().collect();
    let sectors: Vec<&[u8]> = image.chunks(SECTOR_BYTES).collect();
    let newest = sectors.iter().rposition(|sector| sector.starts_with(b"PBBK")).unwrap();
    let length = sectors[newest..].iter().take_while(|sector| sector.iter().any(|&byte| byte != 0));
    let newest = newest..newest + length.count();
    assert!(image.len() >= 2 * SEGMENT_BYTES && newest.len() == 2, "the last record takes two");
    Fixture { data, image, newest, records }
});

fn segment(data: &Path, number: usize) -> PathBuf {
    data.join("journal").join(format!("{number:020}.segment"))
}

fn open(data: &Path) -> Result<(Journal, Vec<Vec<u8>>), OpenError> {
    let config = JournalConfig {
        segment_bytes: SEGMENT_BYTES as u64,
        ring_bytes: 32 << 10,
        block_bytes_max: 8 << 10,
        record_bytes_max: 3000,
        sync: SyncMode::Never,
        ..JournalConfig::default()
    };
    let mut records = Vec::new();
    let data = DataDirectory::open(Disk::System, data)?;
    let (journal, _) = Journal::open(&data, &config, |_, _, record| {
        records.push(record.to_vec());
        Ok::<_, Infallible>(())
    })?;
    Ok((journal, records))
}

impl<'a> Damage<'a> {
    /// Takes the next damage from an input; `None` at its end, or at another letter.
    fn read(input: &mut &'a [u8]) -> Option<Self> {
        let [letter, a, b, c, rest @ ..] = *input else { return None };
        *input = rest;
        let wide = |low: &u8, high: &u8| u16::from_le_bytes([*low, *high]);
        Some(match letter {
            b'z' => Self::Zeros { sector: *a, count: *b },
            b'c' => Self::Copied { from: *a, to: *b, count: *c },
            b'f' => {
                let (&bit, rest) = input.split_first()?;
                *input = rest;
                Self::Flipped { sector: *a, byte: wide(b, c), bit }
            }
            b'w' => {
                let (&length, rest) = input.split_first()?;
                let (bytes, rest) = rest.split_at_checked(length.into())?;
                *input = rest;
                Self::Written { sector: *a, byte: wide(b, c), bytes }
            }
            b'l' => Self::Resized { segment: *a, bytes: wide(b, c) },
            b'r' => Self::Removed { segment: *a },
            _ => return None,
        })
    }

    fn inflict(&self, segments: &mut [Option<Vec<u8>>], image: &[u8]) {
        let sector_count = image.len() / SECTOR_BYTES;
        let segment_count = segments.len();
        let mut write = |sector: usize, byte: usize, bytes: &[u8]| {
            let start = sector % sector_count * SECTOR_BYTES + byte % SECTOR_BYTES;
            let Some(file) = &mut segments[start / SEGMENT_BYTES] else { return };
            let rest = file.get_mut(start % SEGMENT_BYTES..).unwrap_or_default();
            let length = bytes.len().min(rest.len());
            rest[..length].copy_from_slice(&bytes[..length]);
        };
        match *self {
            Self::Zeros { sector, count } => {
                for sector in (usize::from(sector)..).take(usize::from(count)) {
                    write(sector, 0, &[0; SECTOR_BYTES]);
                }
            }
            Self::Copied { from, to, count } => {
                for offset in 0..usize::from(count) {
                    let from = (usize::from(from) + offset) % sector_count * SECTOR_BYTES;
                    write(usize::from(to) + offset, 0, &image[from..from + SECTOR_BYTES]);
                }
            }
            Self::Flipped { sector, byte, bit } => {
                let (sector, byte) = (usize::from(sector), usize::from(byte) % SECTOR_BYTES);
                let was = image[sector % sector_count * SECTOR_BYTES + byte];
                write(sector, byte, &[was ^ 1 << (bit % 8)]);
            }
            Self::Written { sector, byte, bytes } => {
                write(sector.into(), byte.into(), bytes);
            }
            Self::Resized { segment, bytes } => {
                if let Some(file) = &mut segments[usize::from(segment) % segment_count] {
                    file.resize(usize::from(bytes) % (2 * SEGMENT_BYTES), 0);
                }
            }
            Self::Removed { segment } => segments[usize::from(segment) % segment_count] = None,
        }
    }
}

pub(crate) fn run(mut input: &[u8]) {
    let Fixture { data, image, newest, records } = &*FIXTURE;
    let mut segments: Vec<_> =
        image.chunks(SEGMENT_BYTES).map(|file| Some(file.to_vec())).collect();
    let damages = std::iter::from_fn(|| Damage::read(&mut input));
    for damage in damages.take(DAMAGES_MAX) {
        damage.inflict(&mut segments, image);
    }
    let directory = data.path().join("journal");
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir(&directory).unwrap();
    for (number, file) in (1..).zip(&segments) {
        if let Some(file) = file {
            fs::write(segment(data.path(), number), file).unwrap();
        }
    }
    let Ok((journal, shown)) = open(data.path()) else { return };
    assert!(records.starts_with(&shown), "a record that was not written");
    let newest = newest.start * SECTOR_BYTES..newest.end * SECTOR_BYTES;
    let file = segments[newest.start / SEGMENT_BYTES].as_deref().unwrap_or_default();
    let within = newest.start % SEGMENT_BYTES..newest.start % SEGMENT_BYTES + newest.len();
    if file.get(within) == Some(&image[newest]) {
        assert_eq!(shown.len(), records.len(), "records before an intact block are missing");
    }
    drop(journal);
    let (_, again) = open(data.path()).expect("a journal that opened opens again");
    assert!(again == shown, "the second opening returns other records");
}
