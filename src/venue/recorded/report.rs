//! The report on loading a recording, for the log.

use std::fmt;
use std::sync::Arc;

use crate::market::catalogue::MarketStatus;

/// Malformed rows past this many are counted but not named.
pub const MALFORMED_NAMED_MAX: usize = 20;

/// The report on loading a recording.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LoadReport {
    /// Files read.
    pub file_count: usize,
    /// Files in formats that cannot be played.
    pub not_playable: Vec<NotPlayableFile>,
    /// Malformed rows of the other files.
    pub malformed_count: usize,
    /// The first [`MALFORMED_NAMED_MAX`] of them.
    pub malformed: Vec<MalformedRow>,
    /// Closed markets whose sources disagree on the payouts.
    pub contradictory_count: usize,
    /// The first [`MALFORMED_NAMED_MAX`] of them.
    pub contradictory: Vec<Arc<str>>,
    /// Markets by status, in the order of [`MarketStatus::ALL`].
    pub markets: [usize; MarketStatus::ALL.len()],
    /// Markets with a recorded book of at least one outcome.
    pub market_with_book_count: usize,
    /// Books from the book endpoints.
    pub book_count: usize,
    /// Messages of the market socket.
    pub message_count: usize,
    /// Empty books without ids, which recorders write for closed markets.
    pub placeholder_count: usize,
}

/// A file that cannot be played.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotPlayableFile {
    /// Its path within the recording.
    pub file: String,
    /// The reason.
    pub why: NotPlayable,
}

/// Why a file cannot be played.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotPlayable {
    /// Level changes as the socket sent them before 2025-09-15, from which no book can be kept.
    #[error("socket frames in the format before 2025-09-15")]
    OldFormat,
    /// Frames in a recorder's envelope.
    #[error("frames in a recorder's envelope")]
    FrameEnvelope,
    /// Decoded level changes without an initial book.
    #[error("tick rows without an initial book")]
    TickRows,
    /// Books without ids.
    #[error("books without ids")]
    BookWithoutIds,
    /// Trades without ids.
    #[error("trades without ids")]
    TradeWithoutIds,
    /// Public trades of the Data API, which change no book.
    #[error("trades of the Data API")]
    DataApiTrades,
    /// Answers of several kinds in an envelope.
    #[error("probe answers, truncated by their recorder")]
    Probe,
    /// Bytes that are not text.
    #[error("not UTF-8")]
    NotText,
    /// All rows are malformed.
    #[error("all rows are malformed")]
    NothingReadable,
}

impl NotPlayable {
    /// Whether one such row makes the whole file useless: books that miss its level changes would
    /// be wrong.
    pub(super) const fn spoils_its_file(self) -> bool {
        matches!(self, Self::OldFormat)
    }
}

/// A malformed row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MalformedRow {
    /// The path of its file within the recording.
    pub file: String,
    /// The line number, or the item number in a file of one array; from 1.
    pub row: usize,
    /// What is wrong with the row.
    pub error: String,
}

impl LoadReport {
    /// The number of markets with this status.
    pub fn market_count(&self, status: MarketStatus) -> usize {
        let index = MarketStatus::ALL.iter().position(|&other| other == status);
        self.markets[index.expect("`ALL` contains every status")]
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
