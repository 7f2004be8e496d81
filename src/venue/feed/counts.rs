//! The counters of a feed.

use std::fmt;

/// Counts since the feed was created.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FeedCounts {
    /// Full books received.
    pub books: u64,
    /// Level changes applied.
    pub level_changes: u64,
    /// Level changes for tokens without a book; ignored.
    pub level_changes_without_book: u64,
    /// Level changes that are invalid in any book; ignored.
    pub level_changes_refused: u64,
    /// Level changes and full books that are older than our book; ignored.
    pub late: u64,
    /// Removals of missing levels, a sign of a lost update.
    pub removals_of_nothing: u64,
    /// Trades received.
    pub trades: u64,
    /// Books, trades, best prices and stale marks for tokens of unlisted markets; ignored.
    pub unlisted: u64,
    /// Hashes that matched our book.
    pub hashes_verified: u64,
    /// Hashes that did not match our book.
    pub hashes_mismatched: u64,
    /// Hashes that could not be checked: the price of the newest trade is unknown, or there is no
    /// [`Verifier`](super::verify::Verifier).
    pub hashes_unchecked: u64,
    /// Best prices that differed from our book's.
    pub tops_mismatched: u64,
    /// Books published without their crossed levels.
    pub crossed: u64,
    /// Market descriptions refused because there are too many markets, a text is too long, or the
    /// market's tokens have changed.
    pub markets_refused: u64,
}

impl fmt::Display for FeedCounts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} books, {} level changes, {} trades; hashes {} verified, {} mismatched, \
             {} unchecked; left out {} of tokens without a market, {} without a book",
            self.books,
            self.level_changes,
            self.trades,
            self.hashes_verified,
            self.hashes_mismatched,
            self.hashes_unchecked,
            self.unlisted,
            self.level_changes_without_book,
        )
    }
}
