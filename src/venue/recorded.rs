//! Plays recordings: Gamma descriptions, CLOB books and socket frames that lie in a directory.
//!
//! What our own recorder has written is a [`Tape`]; [`TapePlayer`] plays it as it happened. All
//! else here is about what others have recorded, in whatever form.
//!
//! `DIR/gamma`, `DIR/clob` and `DIR/ws` hold `.json` files of one value and `.jsonl` files of one
//! value a line. What a value is, its keys tell: the folders are for people. Files in forms that
//! cannot be played and rows that cannot be read are reported, and keep nothing else out.
//!
//! A recording is its own present: nothing in it is stale, closed or past its end because the
//! clock on the wall is later. All markets are listed first, by their newest descriptions; then
//! everything happens in the order of the venue's time, a book from the book endpoint being one
//! more event. The frames of one file of the socket keep their order, whatever times they tell.

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
use file::{Contents, Names, Told, What};

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

/// A recording has at most this many files.
pub const FILES_MAX: usize = 10_000;

/// The files of a recording hold at most this many bytes together: the tape is kept in memory.
pub const RECORDING_BYTES_MAX: u64 = 1 << 30;

/// What was recorded, in order.
#[derive(Clone, PartialEq, Debug)]
pub struct Recording {
    listed: Vec<MarketInfo>,
    tape: Vec<VenueEvent>,
}

/// What lies in a directory.
pub enum Recorded {
    /// What our recorder has written.
    Tape(Tape),
    /// What others have.
    Files(Recording, LoadReport),
}

impl Recorded {
    /// Opens a tape, or reads a recording in another form.
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

/// Why there is nothing to play.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Nothing is there, or a file.
    #[error("{} is not a folder", directory.display())]
    NotAFolder {
        /// Which.
        directory: PathBuf,
    },
    /// The directory has none of the [`FOLDERS`].
    #[error("{} has none of the folders gamma, clob, ws", directory.display())]
    NotARecording {
        /// Which.
        directory: PathBuf,
    },
    /// There is a tape, and something that is no part of it.
    #[error("{} lies beside a tape and is no part of it: move it to a folder of its own",
            path.display())]
    Mixed {
        /// Which.
        path: PathBuf,
    },
    /// Something cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There are more than [`FILES_MAX`] files.
    #[error("more than {FILES_MAX} files in {}", directory.display())]
    TooManyFiles {
        /// Where.
        directory: PathBuf,
    },
    /// The files hold more than [`RECORDING_BYTES_MAX`] together.
    #[error("more than {RECORDING_BYTES_MAX} bytes up to {}", path.display())]
    TooLarge {
        /// The file that is past the bound.
        path: PathBuf,
    },
    /// There are more than [`MARKETS_MAX`] markets.
    #[error("{count} markets, of at most {MARKETS_MAX}")]
    TooManyMarkets {
        /// How many.
        count: usize,
    },
}

impl Recording {
    /// Reads a recording. Only what cannot be read at all is an error; the report names the rest.
    pub fn load(directory: &Path) -> Result<(Self, LoadReport), LoadError> {
        let mut report = LoadReport::default();
        let mut descriptions = Descriptions::default();
        let mut names = Names::default();
        let mut told = Vec::new();
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
                    take(contents, &file, &mut report, &mut descriptions, &mut told);
                }
                Err(why) => report.not_playable.push(NotPlayableFile { file, why }),
            }
        }
        let listed = descriptions.finish(&mut report);
        if listed.len() > MARKETS_MAX {
            return Err(LoadError::TooManyMarkets { count: listed.len() });
        }
        // Stable: what was told at the same time keeps the order of the files and their rows.
        told.sort_by_key(|told| told.order);
        let tape = completed(told, &listed);
        count_markets(&listed, &tape, &mut report);
        Ok((Self { listed, tape }, report))
    }

    /// The markets as they are listed before anything happens.
    pub fn listed(&self) -> &[MarketInfo] {
        &self.listed
    }

    /// What happens, in order.
    pub fn tape(&self) -> &[VenueEvent] {
        &self.tape
    }

    /// Lists all markets and begins to play. With [`Speed::Max`] the whole tape has been played
    /// when this returns; at another speed [`Player::run`] plays it.
    pub fn play(self, speed: Speed, mut feed: Feed) -> Player {
        feed.verify_with(BookHasher::default());
        let start = self.tape.first().map_or(Timestamp::EPOCH, |event| event.at);
        feed.apply(VenueEvent { at: start, change: VenueChange::Listed(self.listed) });
        let mut tape = self.tape.into_iter();
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

/// A recording that is being played.
pub struct Player {
    feed: Feed,
    start: Timestamp,
    /// `None` when everything was played at the start.
    speed: Option<Ratio>,
    tape: std::vec::IntoIter<VenueEvent>,
}

impl Player {
    /// The feed that it plays to.
    pub fn feed(&self) -> &Feed {
        &self.feed
    }

    /// Plays the tape at its own pace and returns at its end: the last state stands. The pace
    /// counts from the call.
    pub async fn run(&mut self) {
        let Some(ratio) = self.speed else { return };
        let began = tokio::time::Instant::now();
        while let Some(next) = self.tape.as_slice().first() {
            let delay = ratio.delay(self.start, next.at);
            if let Some(due) = began.checked_add(delay) {
                tokio::time::sleep_until(due).await;
            }
            let event = self.tape.next().expect("it was looked at");
            self.feed.apply(event);
        }
    }
}

/// The files of a recording, by folder and name.
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

/// A whole file, as long as the recording stays within its bound.
fn read(path: &Path, bytes_left: &mut u64) -> Result<Vec<u8>, LoadError> {
    let unreadable = |source| LoadError::Unreadable { path: path.to_owned(), source };
    let file = fs::File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    // One byte more than is left tells a file that is too large, even one that grows meanwhile.
    io::Read::read_to_end(&mut io::Read::take(file, *bytes_left + 1), &mut bytes)
        .map_err(unreadable)?;
    *bytes_left = bytes_left
        .checked_sub(bytes.len() as u64)
        .ok_or_else(|| LoadError::TooLarge { path: path.to_owned() })?;
    Ok(bytes)
}

/// Adds what one file told.
fn take(
    contents: Contents,
    file: &str,
    report: &mut LoadReport,
    descriptions: &mut Descriptions,
    told: &mut Vec<Told>,
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
    told.extend(contents.told);
}

/// The tape, with what was told about markets turned into their new descriptions.
fn completed(told: Vec<Told>, listed: &[MarketInfo]) -> Vec<VenueEvent> {
    let mut current: HashMap<Arc<str>, MarketInfo> =
        listed.iter().map(|info| (info.condition_id.clone(), info.clone())).collect();
    let completed = told.into_iter().filter_map(|told| {
        let change = match told.what {
            What::Change(change) => change,
            What::Tick { market, tick } => {
                // It comes for each token and often twice: the first one changes the market.
                let info = current.get_mut(&market).filter(|info| info.tick != tick)?;
                info.tick = tick;
                VenueChange::Listed(vec![info.clone()])
            }
            What::Ended { market } => {
                // A winner from one source is not final: the market closes.
                let info = current.get_mut(&market).filter(|info| !info.status.is_closed())?;
                info.status = MarketStatus::Closed;
                VenueChange::Listed(vec![info.clone()])
            }
            What::NewMarket(description) => {
                let info = description.info;
                if current.len() >= MARKETS_MAX || current.contains_key(&info.condition_id) {
                    return None;
                }
                current.insert(info.condition_id.clone(), info.clone());
                VenueChange::Listed(vec![info])
            }
        };
        Some(VenueEvent { at: told.at, change })
    });
    completed.collect()
}

/// Counts markets by the status that they are listed with, those of the tape included.
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
        report.markets[index.expect("every status is one of all")] += 1;
        let has_book = info.outcomes.iter().any(|outcome| with_book.contains(&*outcome.token_id));
        report.market_with_book_count += usize::from(has_book);
    }
}
