//! What a feed has counted.

use std::fmt;

/// What has happened since the feed began.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FeedCounts {
    /// Full books taken.
    pub books: u64,
    /// Level changes applied.
    pub level_changes: u64,
    /// Level changes of tokens of which no book is known; left out.
    pub level_changes_without_book: u64,
    /// Level changes that cannot stand in a book; left out.
    pub level_changes_refused: u64,
    /// Level changes and full books that are older than the book; left out.
    pub late: u64,
    /// Removals of levels that were not there: a sign of a lost update.
    pub removals_of_nothing: u64,
    /// Trades taken.
    pub trades: u64,
    /// Books, trades and marks of tokens that no listed market has; left out.
    pub unlisted: u64,
    /// Told hashes that our book gives as well.
    pub hashes_verified: u64,
    /// Told hashes that contradict our book.
    pub hashes_mismatched: u64,
    /// Told hashes that could not be checked: the newest trade's price is not known, or it is not
    /// known how the venue computes them.
    pub hashes_unchecked: u64,
    /// Told best prices that are not those of our book.
    pub tops_mismatched: u64,
    /// Publications from which crossed levels were left out.
    pub crossed: u64,
    /// Descriptions that were not taken: too many markets, texts that are too long, or other tokens
    /// than their market has.
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
