//! The report on loading a recording, for the log.

use std::fmt;
use std::sync::Arc;

use paperbourse_core::market::catalogue::MarketStatus;

/// Maximum number of malformed rows named in a report, besides the first one of each file.
pub const MALFORMED_NAMED_MAX: usize = 20;

/// Maximum number of left-out files named in a report.
pub const LEFT_OUT_NAMED_MAX: usize = 100;

/// The report on loading a recording.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LoadReport {
    /// Number of files read.
    pub file_count: usize,
    /// Files in formats that cannot be played.
    pub not_playable: Vec<NotPlayableFile>,
    /// Files and folders that were not read at all.
    pub left_out: LeftOut,
    /// Number of malformed rows in the other files.
    pub malformed_count: usize,
    /// The first [`MALFORMED_NAMED_MAX`] malformed rows, and the first one of each file.
    pub malformed: Vec<MalformedRow>,
    /// Number of closed markets whose sources disagree on the payouts.
    pub contradictory_count: usize,
    /// Condition ids of the first [`MALFORMED_NAMED_MAX`] contradictory markets.
    pub contradictory: Vec<Arc<str>>,
    /// Number of markets by status, in the order of [`MarketStatus::ALL`].
    pub markets: [usize; MarketStatus::ALL.len()],
    /// Number of markets with a recorded book of at least one outcome.
    pub market_with_book_count: usize,
    /// Number of books from the book endpoints.
    pub book_count: usize,
    /// Number of messages from the market socket.
    pub message_count: usize,
    /// Number of empty books without ids, which recorders write for closed markets.
    pub placeholder_count: usize,
    /// Number of tokens that have books or trades but no described market.
    pub undescribed_count: usize,
    /// One undescribed token, as an example.
    pub undescribed: Option<Arc<str>>,
}

/// Files and folders that are not read.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LeftOut {
    /// Number of files and folders.
    pub count: usize,
    /// The first [`LEFT_OUT_NAMED_MAX`] of them, with reasons.
    pub named: Vec<NotPlayableFile>,
}

/// A file that cannot be played.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotPlayableFile {
    /// The file's path within the recording.
    pub file: String,
    /// The reason.
    pub why: NotPlayable,
}

/// The reason why a file cannot be played.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotPlayable {
    /// Level changes in the socket's format before 2025-09-15, from which no book can be built.
    #[error("socket frames in the format before 2025-09-15")]
    OldFormat,
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
    #[error("all rows are malformed; row {row}: {error}")]
    NothingReadable {
        /// The number of the first row, as in [`MalformedRow::row`].
        row: usize,
        /// The error in that row.
        error: String,
    },
    /// A row that is too long, or that cannot be decompressed.
    #[error("row {row}: {error}")]
    Unread {
        /// The number of the row, as in [`MalformedRow::row`].
        row: usize,
        /// The error in that row.
        error: String,
    },
    /// A name with an extension that is not read.
    #[error("its name does not end in .json, .jsonl or .ndjson, or one of these with .gz")]
    Ending,
    /// Neither a file nor a folder, or a dangling link.
    #[error("it is not a file")]
    NotAFile,
    /// A folder nested deeper than [`FOLDER_DEPTH_MAX`](super::FOLDER_DEPTH_MAX).
    #[error("it is below {} other folders", super::FOLDER_DEPTH_MAX)]
    Deep,
    /// A file or folder beside the folders of a recording.
    #[error("it is in none of the folders gamma, clob, ws")]
    Elsewhere,
    /// A tape file in a folder where tape files do not belong.
    #[error("it is part of a tape, whose files belong directly in gamma, clob or ws")]
    OfTape,
}

impl LeftOut {
    pub(super) fn note(&mut self, file: NotPlayableFile) {
        self.count += 1;
        if self.named.len() < LEFT_OUT_NAMED_MAX {
            self.named.push(file);
        }
    }

    /// Logs the left-out files and folders, with the reasons.
    pub fn log(&self) {
        for file in &self.named {
            tracing::info!("{file}");
        }
        let unnamed = self.count - self.named.len();
        if unnamed > 0 {
            tracing::info!("not playable: {unnamed} more files and folders");
        }
    }
}

impl NotPlayable {
    /// Returns whether one row of this kind makes the whole file useless, because the books would
    /// be wrong without its level changes.
    pub(super) const fn spoils_its_file(&self) -> bool {
        matches!(self, Self::OldFormat)
    }
}

/// A malformed row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MalformedRow {
    /// The path of the row's file within the recording.
    pub file: String,
    /// The line number, or the item number in a file of one array, starting at 1.
    pub row: usize,
    /// The error in the row.
    pub error: String,
}

impl LoadReport {
    /// Returns the number of markets with this status.
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

    /// Counts the malformed rows of a file and names the first ones, at least one per file.
    pub(super) fn note_malformed(&mut self, file: &str, count: usize, rows: Vec<(usize, String)>) {
        self.malformed_count += count;
        let room = MALFORMED_NAMED_MAX.saturating_sub(self.malformed.len()).max(1);
        let named = rows.into_iter().take(room);
        self.malformed.extend(named.map(|(row, error)| MalformedRow {
            file: file.to_owned(),
            row,
            error,
        }));
    }

    /// Logs everything that was not played, with the reasons, and the totals.
    pub fn log(&self) {
        for file in &self.not_playable {
            tracing::info!("{file}");
        }
        self.left_out.log();
        for row in &self.malformed {
            tracing::warn!("{row}");
        }
        for id in &self.contradictory {
            tracing::warn!(
                market = &**id,
                "sources disagree on the payout of a market, which stays closed"
            );
        }
        if let Some(token) = &self.undescribed {
            tracing::warn!(
                tokens = self.undescribed_count,
                "no market is described for some tokens, such as {token}: nothing of them can be \
                 traded; put what Gamma's /markets says about them into the folder gamma"
            );
        }
        tracing::info!("loaded the recording: {self}");
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} files: {} markets ({} open, {} paused, {} closed, {} resolved, {} hydrating; \
             {} with a book), {} books, {} socket messages; {} files not playable, {} left out, \
             {} malformed rows, {} tokens without a market",
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
            self.left_out.count,
            self.malformed_count,
            self.undescribed_count,
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
