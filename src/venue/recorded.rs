//! Plays recordings: Gamma descriptions, CLOB books and socket frames in a folder.
//!
//! Our own recorder writes a [`Tape`], which [`TapePlayer`] replays exactly as it happened. The
//! rest of this module is about recordings made by others, in various formats.
//!
//! `DIR/gamma`, `DIR/clob` and `DIR/ws` hold `.json` files with one value and `.jsonl` files with
//! one value per line. Values are recognised by their keys; the three folders only help people.
//! Files in formats that cannot be played and malformed rows are reported and skipped.
//!
//! A recording is its own present: nothing in it is stale, closed or expired because of the wall
//! clock. All markets are listed first, by their newest descriptions. Then everything happens in
//! the order of the venue's timestamps, including books from the book endpoint. The frames of a
//! socket file keep their order, whatever their timestamps.

mod descriptions;
mod file;
mod report;
mod shape;
mod tape;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

pub use report::{LoadReport, MALFORMED_NAMED_MAX, MalformedRow, NotPlayable, NotPlayableFile};
pub use tape::TapePlayer;

use descriptions::Descriptions;
use file::{Contents, Names, TimedUpdate, Update};

use super::feed::Feed;
use super::polymarket::hash::BookHasher;
use super::speed::{Ratio, Speed};
use super::tape::{Folder, Tape, is_tape_file};
use super::{VenueChange, VenueEvent};
use crate::ids::Timestamp;
use crate::market::MARKETS_MAX;
use crate::market::catalogue::{MarketInfo, MarketStatus};

/// The folders of a recording.
pub const FOLDERS: [&str; Folder::ALL.len()] =
    [Folder::Gamma.as_str(), Folder::Clob.as_str(), Folder::Ws.as_str()];

/// The most files of a recording.
pub const FILES_MAX: usize = 10_000;

/// The most bytes of all files of a recording, which is kept in memory.
pub const RECORDING_BYTES_MAX: u64 = 1 << 30;

/// A recording made by others, loaded into memory.
#[derive(Clone, PartialEq, Debug)]
pub struct Recording {
    listed: Vec<MarketInfo>,
    tape: Vec<VenueEvent>,
}

/// The content of a folder.
pub enum Recorded {
    /// A tape of our own recorder.
    Tape(Tape),
    /// A recording made by others.
    Files(Recording, LoadReport),
}

impl Recorded {
    /// Opens a tape, or loads a recording made by others.
    pub fn open(directory: &Path) -> Result<Self, LoadError> {
        let unreadable = |source| LoadError::Unreadable { path: directory.to_owned(), source };
        let Some(tape) = Tape::open(directory).map_err(unreadable)? else {
            return Recording::load(directory)
                .map(|(recording, report)| Self::Files(recording, report));
        };
        match files(directory)?.into_iter().find(|path| !is_tape_file(path)) {
            Some(path) => Err(LoadError::Mixed { path }),
            None => Ok(Self::Tape(tape)),
        }
    }
}

/// Why a recording cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The path is missing or a file.
    #[error("{} is not a folder", directory.display())]
    NotAFolder {
        /// The path.
        directory: PathBuf,
    },
    /// The folder has none of the [`FOLDERS`].
    #[error("{} has none of the folders gamma, clob, ws", directory.display())]
    NotARecording {
        /// The path.
        directory: PathBuf,
    },
    /// The folder has a tape and other files.
    #[error("{} is beside a tape but not part of it: move it to another folder", path.display())]
    Mixed {
        /// The other file.
        path: PathBuf,
    },
    /// A file or folder cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// There are more than [`FILES_MAX`] files.
    #[error("more than {FILES_MAX} files in {}", directory.display())]
    TooManyFiles {
        /// The folder.
        directory: PathBuf,
    },
    /// The files exceed [`RECORDING_BYTES_MAX`].
    #[error("the recording exceeds {RECORDING_BYTES_MAX} bytes at {}", path.display())]
    TooLarge {
        /// The file that exceeds the limit.
        path: PathBuf,
    },
    /// There are more than [`MARKETS_MAX`] markets.
    #[error("{count} markets, more than the {MARKETS_MAX} allowed")]
    TooManyMarkets {
        /// The number of markets.
        count: usize,
    },
}

impl Recording {
    /// Loads a recording. Files and rows that cannot be used are no error: they are in the report.
    pub fn load(directory: &Path) -> Result<(Self, LoadReport), LoadError> {
        let mut report = LoadReport::default();
        let mut descriptions = Descriptions::default();
        let mut names = Names::default();
        let mut updates = Vec::new();
        let mut bytes_left = RECORDING_BYTES_MAX;
        for path in files(directory)? {
            let bytes = read(&path, &mut bytes_left)?;
            let file = path.strip_prefix(directory).unwrap_or(&path).display().to_string();
            report.file_count += 1;
            let is_lines = path.extension().is_some_and(|extension| extension == "jsonl");
            let contents = str::from_utf8(&bytes)
                .map_err(|_| NotPlayable::NotText)
                .and_then(|text| Contents::read(text, is_lines, &mut names));
            match contents {
                Ok(contents) => {
                    take(contents, &file, &mut report, &mut descriptions, &mut updates);
                }
                Err(why) => report.not_playable.push(NotPlayableFile { file, why }),
            }
        }
        let listed = descriptions.finish(&mut report);
        if listed.len() > MARKETS_MAX {
            return Err(LoadError::TooManyMarkets { count: listed.len() });
        }
        // Stable: updates with the same timestamp keep the order of their files and rows.
        updates.sort_by_key(|update| update.order);
        let tape = complete(updates, &listed);
        count_markets(&listed, &tape, &mut report);
        Ok((Self { listed, tape }, report))
    }

    /// The markets listed before the first event.
    pub fn listed(&self) -> &[MarketInfo] {
        &self.listed
    }

    /// The events, in order.
    pub fn tape(&self) -> &[VenueEvent] {
        &self.tape
    }

    /// Lists all markets. With [`Speed::Max`] this also plays all events; at other speeds
    /// [`Player::run`] does.
    pub fn play(self, speed: Speed, mut feed: Feed) -> Player {
        feed.verify_with(BookHasher::default());
        let start = self.tape.first().map_or(Timestamp::EPOCH, |event| event.at);
        feed.apply(VenueEvent { at: start, change: VenueChange::Listed(self.listed) });
        let mut tape = self.tape.into_iter();
        feed.markets().set_delay_speed(speed.micros());
        let speed = match speed {
            Speed::Max => {
                for event in tape.by_ref() {
                    feed.apply(event);
                }
                None
            }
            Speed::Times(ratio) => Some(ratio),
        };
        Player { feed, start, speed, tape }
    }
}

/// Plays a [`Recording`].
pub struct Player {
    feed: Feed,
    start: Timestamp,
    /// `None` if everything was played at the start.
    speed: Option<Ratio>,
    tape: std::vec::IntoIter<VenueEvent>,
}

impl Player {
    /// The feed that receives the events.
    pub fn feed(&self) -> &Feed {
        &self.feed
    }

    /// Plays the events at their own pace and returns at the end, leaving the final state. The
    /// pace counts from the call.
    pub async fn run(&mut self) {
        let Some(ratio) = self.speed else { return };
        let began = tokio::time::Instant::now();
        while let Some(next) = self.tape.as_slice().first() {
            let delay = ratio.delay(self.start, next.at);
            if let Some(due) = began.checked_add(delay) {
                tokio::time::sleep_until(due).await;
            }
            self.feed.markets().crossings_room().await;
            let event = self.tape.next().expect("the next event was checked above");
            self.feed.apply(event);
        }
        self.feed.markets().set_delay_speed(0);
    }
}

/// The files of a recording, sorted by folder and name.
fn files(directory: &Path) -> Result<Vec<PathBuf>, LoadError> {
    if !directory.is_dir() {
        return Err(LoadError::NotAFolder { directory: directory.to_owned() });
    }
    let mut files = Vec::new();
    let mut has_folder = false;
    for folder in FOLDERS {
        let path = directory.join(folder);
        let unreadable = |source| LoadError::Unreadable { path: path.clone(), source };
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(unreadable(error)),
        };
        has_folder = true;
        let begin = files.len();
        for entry in entries {
            let path = entry.map_err(unreadable)?.path();
            let is_json = path.extension().is_some_and(|it| it == "json" || it == "jsonl");
            if is_json && path.is_file() {
                files.push(path);
            }
            if files.len() > FILES_MAX {
                return Err(LoadError::TooManyFiles { directory: directory.to_owned() });
            }
        }
        files[begin..].sort();
    }
    if !has_folder {
        return Err(LoadError::NotARecording { directory: directory.to_owned() });
    }
    Ok(files)
}

/// Reads a whole file, unless the recording would exceed its size limit.
fn read(path: &Path, bytes_left: &mut u64) -> Result<Vec<u8>, LoadError> {
    let unreadable = |source| LoadError::Unreadable { path: path.to_owned(), source };
    let file = fs::File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    // One byte beyond the limit detects a file that is too large, even one that is growing.
    io::Read::read_to_end(&mut io::Read::take(file, *bytes_left + 1), &mut bytes)
        .map_err(unreadable)?;
    *bytes_left = bytes_left
        .checked_sub(bytes.len() as u64)
        .ok_or_else(|| LoadError::TooLarge { path: path.to_owned() })?;
    Ok(bytes)
}

/// Adds the contents of one file.
fn take(
    contents: Contents,
    file: &str,
    report: &mut LoadReport,
    descriptions: &mut Descriptions,
    updates: &mut Vec<TimedUpdate>,
) {
    for (row, error) in contents.malformed {
        report.note_malformed(MalformedRow { file: file.to_owned(), row, error });
    }
    report.book_count += contents.book_count;
    report.message_count += contents.message_count;
    report.placeholder_count += contents.placeholder_count;
    for (source, description) in contents.descriptions {
        descriptions.add(source, description);
    }
    updates.extend(contents.updates);
}

/// Turns updates into events; updates about a market become its new description.
fn complete(updates: Vec<TimedUpdate>, listed: &[MarketInfo]) -> Vec<VenueEvent> {
    let mut current: HashMap<Arc<str>, MarketInfo> =
        listed.iter().map(|info| (info.condition_id.clone(), info.clone())).collect();
    let events = updates.into_iter().filter_map(|TimedUpdate { at, update, .. }| {
        let change = match update {
            Update::Change(change) => change,
            Update::Tick { market, tick } => {
                // It is sent for each token and often twice; only the first changes the market.
                let info = current.get_mut(&market).filter(|info| info.tick != tick)?;
                info.tick = tick;
                VenueChange::Listed(vec![info.clone()])
            }
            Update::Ended { market } => {
                // A winner reported by a single source is not final: the market only closes.
                let info = current.get_mut(&market).filter(|info| !info.status.is_closed())?;
                info.status = MarketStatus::Closed;
                VenueChange::Listed(vec![info.clone()])
            }
            Update::NewMarket(description) => {
                let info = description.info;
                if current.len() >= MARKETS_MAX || current.contains_key(&info.condition_id) {
                    return None;
                }
                current.insert(info.condition_id.clone(), info.clone());
                VenueChange::Listed(vec![info])
            }
        };
        Some(VenueEvent { at, change })
    });
    events.collect()
}

/// Counts all markets by the status with which they are first listed.
fn count_markets(listed: &[MarketInfo], tape: &[VenueEvent], report: &mut LoadReport) {
    let mut with_book: HashSet<&str> = HashSet::new();
    let mut known: HashSet<&str> = HashSet::new();
    let mut infos: Vec<&MarketInfo> = listed.iter().collect();
    for event in tape {
        match &event.change {
            VenueChange::Book(book) => {
                with_book.insert(&book.token_id);
            }
            VenueChange::Listed(later) => infos.extend(later),
            _ => {}
        }
    }
    for info in infos {
        if !known.insert(&info.condition_id) {
            continue;
        }
        let index = MarketStatus::ALL.iter().position(|&status| status == info.status);
        report.markets[index.expect("`ALL` contains every status")] += 1;
        let has_book = info.outcomes.iter().any(|outcome| with_book.contains(&*outcome.token_id));
        report.market_with_book_count += usize::from(has_book);
    }
}
