//! The file that preserves hourly bars across restarts.
//!
//! It is written as a whole under another name and then renamed, so that a crash leaves either the
//! old file or the new one. An unusable file is set aside, and the server starts without it. Prices
//! are not money: failures here are logged and affect nothing else.

mod bytes;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use self::bytes::Flaw;
use crate::disk::{Disk, DiskError, DiskFile, temporary_name};
use crate::snapshot::Folder;
use paperbourse_core::ids::OutcomeIndex;
use paperbourse_core::market::Markets;
use paperbourse_core::market::history::{BARS_MAX, HOURS_KEPT, PriceRecord, Unit};

/// Maximum length of the file, in bytes: 20 for each of the maximum number of bars, and as much
/// again for names and volumes.
const FILE_BYTES_MAX: u64 = 2 * 20 * BARS_MAX as u64;

/// The file is written in parts of this size and synced after each, so that a flush of the journal
/// never waits for the whole file.
const PART_BYTES: usize = 256 << 10;

/// Interval between checks for a new hour, so that completed hours are written soon.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Interval between writes within an hour: a crash loses at most this much.
const WRITE_INTERVAL: Duration = Duration::from_mins(5);

/// The file of hourly prices in a data directory.
pub struct HoursFile {
    disk: Disk,
    path: PathBuf,
    markets: Arc<Markets>,
    /// The newest hour that was written. Locked while writing, since there is only one temporary
    /// name.
    written: Mutex<i64>,
}

/// Describes what is wrong with the file of a data directory. `None` if the file is usable at
/// startup.
pub fn flaw(folder: &Folder) -> Option<String> {
    let path = folder.price_hours();
    let flaw = read(&folder.disk, &path).err()?;
    Some(format!(
        "{}: the file of hourly prices is unusable, {flaw}; a start sets it aside, and candles \
         start over: restore it from a backup to keep them",
        path.display()
    ))
}

/// Renames the file so that it is not read again. Returns false if that fails.
fn set_aside(disk: &Disk, path: &Path, flaw: &str) -> bool {
    let aside = path.with_added_extension("unusable");
    match disk.rename(path, &aside) {
        Ok(()) => {
            tracing::warn!(
                path = %path.display(),
                aside = %aside.display(),
                "the file of hourly prices is unusable, {flaw}: renamed it, candles start over"
            );
            true
        }
        Err(error) => {
            let cause = &error.source;
            tracing::warn!(
                path = %path.display(),
                "the file of hourly prices is unusable, {flaw}, and cannot be renamed, {error}: \
                 {cause}. Candles start over and are lost at the next restart: move the file"
            );
            false
        }
    }
}

type Records = Vec<(Arc<str>, PriceRecord)>;

/// Returns the records in the file, or the reason that the file cannot be used.
fn read(disk: &Disk, path: &Path) -> Result<Records, String> {
    match try_read(disk, path) {
        Ok(read) => read.map_err(|flaw| flaw.to_string()),
        Err(error) => Err(format!("{error}: {}", error.source)),
    }
}

fn try_read(disk: &Disk, path: &Path) -> Result<Result<Records, Flaw>, DiskError> {
    if !disk.exists(path)? {
        return Ok(Ok(Vec::new()));
    }
    if !disk.is_regular_file(path)? {
        return Ok(Err(Flaw::Kind));
    }
    let mut content = Vec::new();
    let read = disk.open_read(path)?.read_into(&mut content, FILE_BYTES_MAX)?;
    Ok(read.map_or(Err(Flaw::TooLong), |()| bytes::read(&content)))
}

impl HoursFile {
    /// Reads the records in the file of a data directory, for [`Markets::with_histories`]. `None`
    /// if there is an unusable file that cannot be set aside: it must not be overwritten.
    pub fn records(folder: &Folder) -> Option<Vec<(Arc<str>, PriceRecord)>> {
        let path = folder.price_hours();
        match read(&folder.disk, &path) {
            Ok(records) => Some(records),
            Err(flaw) => set_aside(&folder.disk, &path, &flaw).then(Vec::new),
        }
    }

    /// Creates a handle to the file of a data directory, to be written from these markets. Does not
    /// access the disk.
    pub fn new(folder: &Folder, markets: Arc<Markets>) -> Self {
        let (disk, path) = (folder.disk.clone(), folder.price_hours());
        Self { disk, path, markets, written: Mutex::new(0) }
    }

    /// Writes the file at the end of each hour in venue time, and otherwise every few minutes.
    /// Never returns.
    pub async fn keep(self: Arc<Self>) {
        let mut written_at = Instant::now();
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            let is_over = self.newest_hour() != *self.written.lock();
            if is_over || written_at.elapsed() >= WRITE_INTERVAL {
                let file = self.clone();
                let written = tokio::task::spawn_blocking(move || file.write()).await;
                written.expect("writing the file does not panic");
                written_at = Instant::now();
            }
        }
    }

    fn newest_hour(&self) -> i64 {
        self.markets.newest_price_at().seconds() / Unit::Hour.seconds()
    }

    /// Writes the file now. A failure is logged; the previous file stays.
    pub fn write(&self) {
        let mut written = self.written.lock();
        // Set even if the write fails: a full disk must not be retried every other second.
        *written = self.newest_hour();
        if let Err(error) = self.try_write() {
            let cause = &error.source;
            tracing::warn!("{error}: {cause}; a restart loses the candles since the last write");
        }
    }

    fn try_write(&self) -> Result<(), DiskError> {
        let temporary = temporary_name(&self.path);
        let mut part = Part { file: self.disk.create(&temporary)?, offset: 0, bytes: Vec::new() };
        bytes::put_header(&mut part.bytes);
        let mut count = 0;
        let mut put = |token_id: &str, record: &PriceRecord, part: &mut Part| {
            count += usize::from(bytes::put_token(&mut part.bytes, token_id, record));
            if part.bytes.len() < PART_BYTES { Ok(()) } else { part.write() }
        };
        // Use one listing throughout, so that no token is written twice. Collect the unlisted
        // records before it: otherwise a market listed in between would be missing from both.
        let oldest_hour = self.newest_hour() - i64::from(HOURS_KEPT);
        let unlisted = self.markets.unlisted_records(u32::try_from(oldest_hour).unwrap_or(0));
        let listing = self.markets.listing().clone();
        for (token_id, record) in &unlisted {
            if listing.by_token(token_id).is_none() {
                put(token_id, record, &mut part)?;
            }
        }
        for market in listing.markets() {
            for (index, outcome) in (0_u8..).zip(&market.info().outcomes) {
                let record = self.markets.price_record(market, OutcomeIndex(index));
                if let Some(record) = record.filter(|_| !outcome.token_id.is_empty()) {
                    put(&outcome.token_id, &record, &mut part)?;
                }
            }
        }
        bytes::put_end(&mut part.bytes, count);
        part.write()?;
        part.file.sync_all()?;
        self.disk.rename(&temporary, &self.path)?;
        let directory = self.path.parent().expect("the file is in the data directory");
        self.disk.sync_directory(directory)
    }
}

/// The bytes still to be written, and their offset in the file.
struct Part {
    file: DiskFile,
    offset: u64,
    bytes: Vec<u8>,
}

impl Part {
    fn write(&mut self) -> Result<(), DiskError> {
        self.file.write_at(&self.bytes, self.offset)?;
        self.file.sync_data()?;
        self.offset += self.bytes.len() as u64;
        self.bytes.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::simulated::{Faults, SimulatedDisk, When};
    use paperbourse_core::ids::Timestamp;
    use paperbourse_core::market::catalogue::MarketInfo;
    use paperbourse_core::money::{Price, Shares};

    const ROOT: &str = "/data";

    fn folder(disk: &SimulatedDisk) -> Folder {
        let disk = Disk::Simulated(disk.clone());
        disk.create_directory(Path::new(ROOT)).unwrap();
        Folder::new(disk, Path::new(ROOT))
    }

    fn info(number: usize) -> MarketInfo {
        let mut info = MarketInfo::bare_yes_no(&format!("m{number}"));
        for outcome in &mut info.outcomes {
            outcome.token_id = format!("m{number}-{}", outcome.label).into();
        }
        info
    }

    /// Returns markets whose first outcomes had this many prices, one per hour.
    fn markets(market_count: usize, hours: i64) -> Arc<Markets> {
        let markets = Markets::new();
        markets.list((0..market_count).map(info).collect()).unwrap();
        for market in markets.listing().markets() {
            for hour in 0..hours {
                let at = Timestamp::from_seconds(hour * 3_600);
                markets.note_price_time(at);
                markets.record_price(market, OutcomeIndex(0), at, Price::from_micros(hour));
                markets.add_volume(market, OutcomeIndex(0), Shares::from_micros(hour));
            }
        }
        Arc::new(markets)
    }

    /// Returns the number of tokens in the file, and the number of bars of each.
    fn content(folder: &Folder) -> (usize, usize) {
        let records = HoursFile::records(folder).unwrap();
        let counts: Vec<usize> = records.iter().map(|it| it.1.history.bar_count()).collect();
        assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
        (counts.len(), counts.first().copied().unwrap_or(0))
    }

    #[test]
    fn a_crash_leaves_the_old_file_or_the_new_one() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..150 {
            let disk = SimulatedDisk::new(seed);
            let folder = folder(&disk);
            HoursFile::new(&folder, markets(3, 2)).write();
            assert_eq!(content(&folder), (3, 2));
            let crash = When::From(disk.operations() + seed % 15);
            disk.set_faults(Faults { crash, sectors_tear: true, ..Faults::default() });
            HoursFile::new(&folder, markets(40, 5)).write();
            disk.power_loss();
            disk.set_faults(Faults::default());
            let found = content(&folder);
            assert!([(3, 2), (40, 5)].contains(&found), "seed {seed}: {found:?}");
            seen.insert(found);
            HoursFile::new(&folder, markets(1, 1)).write();
            assert_eq!(content(&folder), (1, 1), "seed {seed}");
        }
        assert_eq!(seen.len(), 2, "some crashes are before the rename and some after");
    }

    #[test]
    fn a_damaged_file_is_set_aside() {
        let disk = SimulatedDisk::new(1);
        let folder = folder(&disk);
        assert_eq!(content(&folder), (0, 0), "there is no file yet");
        HoursFile::new(&folder, markets(3, 2)).write();
        disk.flip_bit(&folder.price_hours(), 100, 3);
        assert_eq!(content(&folder), (0, 0));
        assert_eq!(folder.disk.names(Path::new(ROOT)).unwrap(), ["price-hours.unusable"]);
        HoursFile::new(&folder, markets(3, 2)).write();
        assert_eq!(content(&folder), (3, 2));
    }

    /// Opening a pipe would wait for its writer.
    #[test]
    fn a_pipe_is_set_aside_unread() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::new(Disk::System, directory.path());
        let made = std::process::Command::new("mkfifo").arg(folder.price_hours()).status();
        assert!(made.unwrap().success());
        // Read in a separate thread, so that a blocking read fails the test.
        let (done, finished) = std::sync::mpsc::channel();
        let read = folder.clone();
        std::thread::spawn(move || done.send(HoursFile::records(&read)));
        let records = finished.recv_timeout(Duration::from_mins(1));
        assert_eq!(records, Ok(Some(Vec::new())));
        assert!(directory.path().join("price-hours.unusable").exists());
    }

    /// An unreadable file may hold prices, so it is never overwritten.
    #[test]
    fn what_cannot_be_read_is_set_aside_or_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::new(Disk::System, directory.path());
        let aside = directory.path().join("price-hours.unusable");
        std::fs::create_dir(folder.price_hours()).unwrap();
        std::fs::write(folder.price_hours().join("inside"), "").unwrap();
        assert_eq!(HoursFile::records(&folder), Some(Vec::new()));
        assert!(aside.join("inside").exists() && !folder.price_hours().exists());
        // A rename cannot replace a directory that is not empty.
        std::fs::write(folder.price_hours(), "nonsense").unwrap();
        assert_eq!(HoursFile::records(&folder), None);
        assert_eq!(std::fs::read(folder.price_hours()).unwrap(), b"nonsense");
    }

    #[test]
    fn a_disk_that_is_full_keeps_the_old_file() {
        let disk = SimulatedDisk::new(1);
        let folder = folder(&disk);
        HoursFile::new(&folder, markets(3, 2)).write();
        disk.set_capacity(disk.bytes() + 100);
        HoursFile::new(&folder, markets(40, 50)).write();
        assert_eq!(content(&folder), (3, 2));
    }

    #[test]
    fn a_long_file_is_written_in_parts() {
        let disk = SimulatedDisk::new(1);
        let folder = folder(&disk);
        HoursFile::new(&folder, markets(60, 300)).write();
        assert!(disk.bytes() > PART_BYTES as u64, "{}", disk.bytes());
        assert_eq!(content(&folder), (60, 300));
    }

    /// Tokens from an earlier process stay in the file until their market is listed, and never
    /// appear in it twice.
    #[test]
    fn tokens_that_are_not_listed_stay_in_the_file() {
        let disk = SimulatedDisk::new(1);
        let folder = folder(&disk);
        HoursFile::new(&folder, markets(3, 2)).write();
        for listed in [false, true] {
            let markets =
                Arc::new(Markets::new().with_histories(HoursFile::records(&folder).unwrap()));
            if listed {
                markets.list(vec![info(1)]).unwrap();
            }
            HoursFile::new(&folder, markets).write();
            assert_eq!(content(&folder), (3, 2), "listed: {listed}");
        }
    }
}
