//! Plays recordings: Gamma descriptions, CLOB books and socket frames in a folder.
//!
//! Our own recorder writes a [`Tape`], which [`TapePlayer`] replays exactly as it happened. The
//! rest of this module handles recordings made by others, in various formats.
//!
//! `DIR/gamma`, `DIR/clob` and `DIR/ws`, and their subfolders, hold `.json` files with one value
//! and `.jsonl` or `.ndjson` files with one value per line, plain or with gzip. Values are
//! recognised by their keys; the three folders are only a convenience. Files in unplayable formats,
//! malformed rows and everything that is not read are reported and skipped.
//!
//! A recording is its own present: nothing in it is stale, closed or expired because of the wall
//! clock. It starts with the first frame or book, and lists the markets as described up to that
//! point. Later descriptions, books from the book endpoint and frames follow in the order of the
//! venue's timestamps. The frames of a socket file keep their order, regardless of their
//! timestamps.

mod descriptions;
mod file;
mod folder;
mod read;
mod report;
mod shape;
mod tape;
mod timeline;

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use folder::{ENTRIES_MAX, FOLDER_DEPTH_MAX};
pub use read::VALUE_BYTES_MAX;
pub use report::{
    LEFT_OUT_NAMED_MAX, LeftOut, LoadReport, MALFORMED_NAMED_MAX, MalformedRow, NotPlayable,
    NotPlayableFile,
};
pub use tape::TapePlayer;

use descriptions::Descriptions;
use file::{Contents, Names, Room, TimedUpdate};
use folder::{Files, RecordedFile};
use read::{ReadError, Reader};
use timeline::Timeline;

use super::feed::Feed;
use super::polymarket::hash::BookHasher;
use super::polymarket::unstated_delay;
use super::speed::{Ratio, Speed};
use super::tape::{Folder, Tape};
use super::{VenueChange, VenueEvent};
use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::MARKETS_MAX;
use paperbourse_core::market::catalogue::{MarketInfo, MarketStatus};

/// The folders of a recording.
pub const FOLDERS: [&str; Folder::ALL.len()] =
    [Folder::Gamma.as_str(), Folder::Clob.as_str(), Folder::Ws.as_str()];

/// Maximum number of files in a recording.
pub const FILES_MAX: usize = 10_000;

/// Maximum size of all files of a recording, in bytes after decompression. Their content is kept in
/// memory.
pub const RECORDING_BYTES_MAX: u64 = 1 << 30;

/// Maximum number of rows in a recording, including nested ones: more than fit into
/// [`RECORDING_BYTES_MAX`] of frames.
pub const ROWS_MAX: usize = 8_000_000;

/// Maximum number of market descriptions in a recording: several times as many as fit into
/// [`RECORDING_BYTES_MAX`] of Gamma's answers.
pub const DESCRIPTIONS_MAX: usize = 1_000_000;

/// A recording made by others, loaded into memory.
#[derive(Clone, PartialEq, Debug)]
pub struct Recording {
    start: Timestamp,
    listed: Vec<MarketInfo>,
    tape: Vec<VenueEvent>,
}

/// The content of a recording's folder.
pub enum Recorded {
    /// A tape of our own recorder.
    Tape(Tape),
    /// A recording made by others.
    Files(Recording, LoadReport),
}

impl Recorded {
    /// Opens a tape, or loads a recording made by others. Logs the files beside a tape that are not
    /// read.
    pub fn open(directory: &Path) -> Result<Self, LoadError> {
        let unreadable = |source| LoadError::Unreadable { path: directory.to_owned(), source };
        let Some(tape) = Tape::open(directory).map_err(unreadable)? else {
            return Recording::load(directory)
                .map(|(recording, report)| Self::Files(recording, report));
        };
        let files = Files::of(directory)?;
        if let Some(file) = files.found.into_iter().next() {
            return Err(LoadError::Mixed { path: file.path });
        }
        files.left_out.log();
        Ok(Self::Tape(tape))
    }
}

/// An error from loading a recording.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The path is missing or is not a folder.
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
    /// The folder has a tape and other recorded files.
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
        /// The I/O error.
        source: io::Error,
    },
    /// There are more than [`FILES_MAX`] files.
    #[error("more than {FILES_MAX} files in {}", directory.display())]
    TooManyFiles {
        /// The folder.
        directory: PathBuf,
    },
    /// There are more than [`ENTRIES_MAX`] files and folders.
    #[error("more than {ENTRIES_MAX} files and folders in {}", directory.display())]
    TooManyEntries {
        /// The folder.
        directory: PathBuf,
    },
    /// There are more than [`ROWS_MAX`] rows, or more than [`DESCRIPTIONS_MAX`] descriptions.
    #[error(
        "the recording exceeds {ROWS_MAX} rows or {DESCRIPTIONS_MAX} descriptions at {}",
        path.display()
    )]
    TooManyRows {
        /// The file that exceeds the limit.
        path: PathBuf,
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
    /// Loads a recording. Files and rows that cannot be used are not errors; the report lists them.
    pub fn load(directory: &Path) -> Result<(Self, LoadReport), LoadError> {
        let files = Files::of(directory)?;
        let mut report = LoadReport { left_out: files.left_out, ..LoadReport::default() };
        let mut loading = Loading::new();
        let mut descriptions = Descriptions::default();
        let mut updates = Vec::new();
        for file in files.found {
            report.file_count += 1;
            match loading.read(&file)?.checked() {
                Ok(contents) => {
                    take(contents, &file.name, &mut report, &mut descriptions, &mut updates);
                }
                Err(why) => {
                    report.not_playable.push(NotPlayableFile { file: file.name, why });
                }
            }
        }
        if descriptions.market_count() > MARKETS_MAX {
            return Err(LoadError::TooManyMarkets { count: descriptions.market_count() });
        }
        let Timeline { start, listed, tape } = Timeline::new(descriptions, updates, &mut report);
        count_markets(&listed, &tape, &mut report);
        Ok((Self { start, listed, tape }, report))
    }

    /// Returns the markets listed before the first event.
    pub fn listed(&self) -> &[MarketInfo] {
        &self.listed
    }

    /// Returns the events, in order.
    pub fn tape(&self) -> &[VenueEvent] {
        &self.tape
    }

    /// Lists all markets and returns a player. With [`Speed::Max`] this also plays all events; at
    /// other speeds [`Player::run`] plays them.
    pub fn play(self, speed: Speed, mut feed: Feed) -> Player {
        feed.verify_with(BookHasher::default());
        let start = self.start;
        apply(&mut feed, VenueEvent { at: start, change: VenueChange::Listed(self.listed) });
        let mut tape = self.tape.into_iter();
        feed.markets().set_delay_speed(speed.micros());
        let speed = match speed {
            Speed::Max => {
                play_at_once(&mut feed, tape.by_ref());
                None
            }
            Speed::Times(ratio) => Some(ratio),
        };
        Player { feed, start, speed, tape }
    }
}

/// A player of a [`Recording`].
pub struct Player {
    feed: Feed,
    start: Timestamp,
    /// `None` if everything was played at the start.
    speed: Option<Ratio>,
    tape: std::vec::IntoIter<VenueEvent>,
}

impl Player {
    /// Returns the feed that receives the events.
    pub fn feed(&self) -> &Feed {
        &self.feed
    }

    /// Plays the events at their own pace, starting now, and returns after the last one, leaving
    /// the final state.
    pub async fn run(&mut self) {
        let Some(ratio) = self.speed else { return };
        let began = tokio::time::Instant::now();
        while let Some(next) = self.tape.as_slice().first() {
            let delay = ratio.delay(self.start, next.at);
            if let Some(due) = began.checked_add(delay) {
                tokio::time::sleep_until(due).await;
            }
            // A recording can wait until the shards have matched earlier books, so that the queue
            // does not overflow.
            self.feed.markets().crossings_room().await;
            let event = self.tape.next().expect("the next event was checked above");
            apply(&mut self.feed, event);
        }
        // At the end of the recording the venue's time stops, so no order may wait for it any
        // longer.
        self.feed.markets().set_delay_speed(0);
    }
}

/// Applies an event as of its own timestamp.
fn apply(feed: &mut Feed, event: VenueEvent) {
    feed.markets().set_unstated_delay(unstated_delay::ms_at(event.at));
    feed.apply(event);
}

/// Plays all events. Consecutive descriptions are listed together, since listing one market takes
/// as long as listing all.
fn play_at_once(feed: &mut Feed, events: impl Iterator<Item = VenueEvent>) {
    let mut at = Timestamp::EPOCH;
    let mut listed: Vec<MarketInfo> = Vec::new();
    let mut places: HashMap<Arc<str>, usize> = HashMap::new();
    for event in events {
        let VenueChange::Listed(infos) = event.change else {
            if !listed.is_empty() {
                places.clear();
                let change = VenueChange::Listed(std::mem::take(&mut listed));
                apply(feed, VenueEvent { at, change });
            }
            apply(feed, event);
            continue;
        };
        at = event.at;
        for info in infos {
            let place = *places.entry(info.condition_id.clone()).or_insert(listed.len());
            match listed.get_mut(place) {
                Some(older) => *older = info,
                None => listed.push(info),
            }
        }
    }
    if !listed.is_empty() {
        apply(feed, VenueEvent { at, change: VenueChange::Listed(listed) });
    }
}

/// The state of loading the files of a recording, with the room left for further files.
struct Loading {
    bytes_left: u64,
    room: Room,
    names: Names,
}

impl Loading {
    fn new() -> Self {
        Self { bytes_left: RECORDING_BYTES_MAX, room: Room::new(), names: Names::default() }
    }

    /// Reads a file to its end, or as far as it can be read.
    fn read(&mut self, file: &RecordedFile) -> Result<Contents, LoadError> {
        let path = &file.path;
        let unreadable = |source| LoadError::Unreadable { path: path.clone(), source };
        let mut reader = Reader::open(path, file.has_lines).map_err(unreadable)?;
        let mut contents = Contents::new(!file.has_lines);
        let mut value = Vec::new();
        for row in 1.. {
            match reader.next(&mut value, &mut self.bytes_left) {
                Ok(true) => contents.row(row, &value, &mut self.names, &mut self.room),
                Ok(false) => break,
                Err(ReadError::Io(source)) => return Err(unreadable(source)),
                Err(ReadError::TooLarge) => {
                    return Err(LoadError::TooLarge { path: path.clone() });
                }
                Err(error @ (ReadError::Damaged(_) | ReadError::TooLong)) => {
                    contents.end_at(row, &error.to_string());
                    break;
                }
            }
            if self.room.is_exceeded {
                return Err(LoadError::TooManyRows { path: path.clone() });
            }
        }
        Ok(contents)
    }
}

/// Adds the contents of one file to the report, the descriptions and the updates.
fn take(
    contents: Contents,
    file: &str,
    report: &mut LoadReport,
    descriptions: &mut Descriptions,
    updates: &mut Vec<TimedUpdate>,
) {
    report.note_malformed(file, contents.malformed_count, contents.malformed);
    report.book_count += contents.book_count;
    report.message_count += contents.message_count;
    report.placeholder_count += contents.placeholder_count;
    for described in contents.descriptions {
        descriptions.add(described);
    }
    updates.extend(contents.updates);
}

/// Counts all markets by the status in their first description, and the tokens without a
/// description.
fn count_markets(listed: &[MarketInfo], tape: &[VenueEvent], report: &mut LoadReport) {
    let mut with_book: HashSet<&Arc<str>> = HashSet::new();
    let mut seen: HashSet<&Arc<str>> = HashSet::new();
    let mut known: HashSet<&str> = HashSet::new();
    let mut infos: Vec<&MarketInfo> = listed.iter().collect();
    for event in tape {
        match &event.change {
            VenueChange::Book(book) => {
                with_book.insert(&book.token_id);
            }
            VenueChange::Levels(levels) => {
                seen.extend(levels.iter().map(|level| &level.token_id));
            }
            VenueChange::Traded { token_id, .. } => {
                seen.insert(token_id);
            }
            VenueChange::Listed(later) => infos.extend(later),
            VenueChange::Top { .. } | VenueChange::Stale { .. } => {}
        }
    }
    seen.extend(&with_book);
    for info in infos {
        for outcome in &info.outcomes {
            seen.remove(&outcome.token_id);
        }
        if !known.insert(&info.condition_id) {
            continue;
        }
        let index = MarketStatus::ALL.iter().position(|&status| status == info.status);
        report.markets[index.expect("`ALL` contains every status")] += 1;
        let has_book = info.outcomes.iter().any(|outcome| with_book.contains(&outcome.token_id));
        report.market_with_book_count += usize::from(has_book);
    }
    report.undescribed_count = seen.len();
    report.undescribed = seen.into_iter().min().cloned();
}
