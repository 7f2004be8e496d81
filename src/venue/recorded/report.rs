//! What loading a recording found, for the log.

use std::fmt;
use std::sync::Arc;

use crate::market::catalogue::MarketStatus;

/// Malformed rows past this many are counted but not named.
pub const MALFORMED_NAMED_MAX: usize = 20;

/// What loading a recording found.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LoadReport {
    /// How many files were read.
    pub file_count: usize,
    /// Files in forms that are not played, and why.
    pub not_playable: Vec<NotPlayableFile>,
    /// How many rows of the other files cannot be read.
    pub malformed_count: usize,
    /// The first [`MALFORMED_NAMED_MAX`] of them.
    pub malformed: Vec<MalformedRow>,
    /// How many markets were closed whose sources contradict each other on what they pay.
    pub contradictory_count: usize,
    /// The first [`MALFORMED_NAMED_MAX`] of them.
    pub contradictory: Vec<Arc<str>>,
    /// Markets by status, in the order of [`MarketStatus::ALL`].
    pub markets: [usize; MarketStatus::ALL.len()],
    /// Markets of which at least one outcome's book is recorded.
    pub market_with_book_count: usize,
    /// Books from the book endpoints.
    pub book_count: usize,
    /// Messages of the market socket.
    pub message_count: usize,
    /// Empty books without a name, which recorders write for closed markets.
    pub placeholder_count: usize,
}

/// A file that is not played.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotPlayableFile {
    /// Its path below the recording.
    pub file: String,
    /// What it holds instead.
    pub why: NotPlayable,
}

/// What a file holds when it cannot be played.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotPlayable {
    /// Changes as the socket sent them before 2025-09-15: a book could not be kept with them.
    #[error("socket frames in the format before 2025-09-15")]
    OldFormat,
    /// Frames in a recorder's envelope.
    #[error("frames in a recorder's envelope")]
    FrameEnvelope,
    /// Decoded changes without a book to start from.
    #[error("tick rows without a first book")]
    TickRows,
    /// Books that do not say of what.
    #[error("books without ids")]
    BookWithoutIds,
    /// Trades that do not say of what.
    #[error("trades without ids")]
    TradeWithoutIds,
    /// Public trades of the Data API, which change no book.
    #[error("trades of the Data API")]
    DataApiTrades,
    /// Several answers of different kinds in an envelope.
    #[error("answers of a probe, cut by its recorder")]
    Probe,
    /// Bytes that are not text.
    #[error("not UTF-8")]
    NotText,
    /// Nothing in it could be read.
    #[error("nothing in it can be read")]
    NothingReadable,
}

impl NotPlayable {
    /// Whether one such row makes the rest of its file useless: a book without the changes of its
    /// own time would be wrong.
    pub(super) const fn condemns_its_file(self) -> bool {
        matches!(self, Self::OldFormat)
    }
}

/// A row that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MalformedRow {
    /// The path of its file below the recording.
    pub file: String,
    /// The line of a file of lines, or the number of the item in a file of one array; from 1.
    pub row: usize,
    /// What is wrong with it.
    pub error: String,
}

impl LoadReport {
    /// How many markets have this status.
    pub fn market_count(&self, status: MarketStatus) -> usize {
        let index = MarketStatus::ALL.iter().position(|&other| other == status);
        self.markets[index.expect("every status is one of all")]
    }

    pub(super) fn note_contradiction(&mut self, condition_id: &Arc<str>) {
        self.contradictory_count += 1;
        if self.contradictory.len() < MALFORMED_NAMED_MAX {
            self.contradictory.push(condition_id.clone());
        }
    }

    pub(super) fn note_malformed(&mut self, row: MalformedRow) {
        self.malformed_count += 1;
        if self.malformed.len() < MALFORMED_NAMED_MAX {
            self.malformed.push(row);
        }
    }
}

/// One line.
impl fmt::Display for LoadReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} files: {} markets ({} open, {} paused, {} closed, {} resolved, {} hydrating; \
             {} with a book), {} books, {} socket messages; {} files not playable, \
             {} malformed rows",
            self.file_count,
            self.markets.iter().sum::<usize>(),
            self.market_count(MarketStatus::Open),
            self.market_count(MarketStatus::Paused),
            self.market_count(MarketStatus::Closed),
            self.market_count(MarketStatus::Resolved),
            self.market_count(MarketStatus::Hydrating),
            self.market_with_book_count,
            self.book_count,
            self.message_count,
            self.not_playable.len(),
            self.malformed_count,
        )
    }
}

impl fmt::Display for NotPlayableFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: not playable: {}", self.file, self.why)
    }
}

impl fmt::Display for MalformedRow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, row {}: {}", self.file, self.row, self.error)
    }
}
