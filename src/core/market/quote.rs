//! A market's terms and books at one moment, as a decision sees them. Pure.
//!
//! A quote borrows everything, so creating one copies no levels and no texts.

use std::sync::Arc;

use smallvec::SmallVec;

use super::book::{Book, Side};
use super::catalogue::{self, Fees, MarketInfo, MarketStatus, Outcome};
use super::walk::Liquidity;
use crate::ids::OutcomeIndex;
use crate::money::{Price, Shares};

/// A market as one decision sees it.
#[derive(Clone, Debug)]
pub struct Quote<'a> {
    /// The venue's name for the market.
    pub condition_id: &'a Arc<str>,
    /// Label and token of each outcome.
    pub outcomes: &'a [Outcome],
    /// The market's stage in its life cycle.
    pub status: MarketStatus,
    /// Whether the market is a placeholder; see [`MarketInfo::is_placeholder`].
    pub is_placeholder: bool,
    /// The fee schedule for takers.
    pub fees: Fees,
    /// The smallest price step.
    pub tick: Price,
    /// The smallest order that may rest.
    pub order_size_min: Shares,
    /// How long a marketable order is held before it is matched, in milliseconds of wall time; 0 if
    /// it is matched at once. This is [`MarketInfo::taker_delay_ms`] scaled by the speed of the
    /// venue's time.
    pub taker_delay_ms: u32,
    /// The book of each outcome; `None` if no book is known.
    books: SmallVec<[Option<&'a Book>; 2]>,
}

/// The liquidity that an outcome trades on, and the book it comes from.
#[derive(Clone, Copy, Debug)]
pub struct QuotedBook<'a> {
    /// The levels, mirrored if they come from the other outcome's book.
    pub liquidity: Liquidity<'a>,
    /// The book itself, of either outcome.
    pub book: &'a Book,
}

impl<'a> QuotedBook<'a> {
    /// Returns the liquidity of the book's own outcome.
    #[inline]
    pub fn own(book: &'a Book) -> Self {
        Self { liquidity: Liquidity::own(book.ladder()), book }
    }

    /// Returns the liquidity of the other outcome of a binary market, for use if that outcome has
    /// no book of its own.
    #[inline]
    fn mirror_of(book: &'a Book) -> Self {
        Self { liquidity: Liquidity::mirror_of(book.ladder()), book }
    }

    /// Returns the total growth of the level at this price, on the side of the book that the taker
    /// takes from. Growth can be compared only within one [era](Self::era).
    pub fn grown(&self, taker: Side, price: Price) -> Shares {
        // On a mirror, a taker of asks takes bids.
        let (side, price) = if self.liquidity.is_mirrored() {
            (taker, price.complement())
        } else {
            (taker.opposite(), price)
        };
        Shares::from_micros(self.book.grown(side, price))
    }

    /// Returns the era of the growth that [`Self::grown`] returns.
    pub fn era(&self) -> u64 {
        // A mirrored book has eras of its own, since its levels are numbered by their complements.
        u64::from(self.book.era) << 1 | u64::from(self.liquidity.is_mirrored())
    }
}

impl<'a> Quote<'a> {
    /// Creates a quote from the terms of a market and the books of its outcomes, in order. The
    /// delay assumes that the venue's time is real time.
    #[inline]
    pub fn new(info: &'a MarketInfo, books: impl IntoIterator<Item = Option<&'a Book>>) -> Self {
        Self {
            condition_id: &info.condition_id,
            outcomes: &info.outcomes,
            status: info.status,
            is_placeholder: info.is_placeholder,
            fees: info.fees,
            tick: info.tick,
            order_size_min: info.order_size_min,
            taker_delay_ms: info.taker_delay_ms,
            books: books.into_iter().collect(),
        }
    }

    /// Returns the quote with another delay of marketable orders.
    #[must_use]
    pub fn with_delay(self, taker_delay_ms: u32) -> Self {
        Self { taker_delay_ms, ..self }
    }

    /// Returns the outcome with this label; see [`MarketInfo::outcome`].
    pub fn outcome(&self, label: &str) -> Option<OutcomeIndex> {
        catalogue::outcome_called(self.outcomes, label)
    }

    /// Returns the book that an outcome trades on: its own or, in a binary market, the mirror of
    /// the other outcome's if it has none. The two are never combined, since each already includes
    /// the other.
    #[inline]
    pub fn book(&self, outcome: OutcomeIndex) -> Option<QuotedBook<'a>> {
        if let Some(book) = *self.books.get(outcome.index())? {
            return Some(QuotedBook::own(book));
        }
        if self.books.len() != 2 {
            return None;
        }
        let book = self.books[1 - outcome.index()]?;
        Some(QuotedBook::mirror_of(book))
    }

    /// Returns the books that the outcomes trade on, in the order of the outcomes.
    pub fn all_books(&self) -> QuotedBooks<'_> {
        let outcomes = (0..=u8::MAX).take(self.books.len()).map(OutcomeIndex);
        let mut books = QuotedBooks::new();
        for outcome in outcomes {
            if let Some(quoted) = self.book(outcome) {
                books.push((outcome, quoted));
            }
        }
        books
    }

    /// Returns the outcomes that trade on this book, which belongs to `outcome`, in order:
    /// `outcome` itself, and the other outcome if it trades on the mirror.
    pub fn books_with<'b>(&self, outcome: OutcomeIndex, book: &'b Book) -> QuotedBooks<'b> {
        let mut books = QuotedBooks::new();
        books.push((outcome, QuotedBook::own(book)));
        if self.books.len() == 2 && self.books[1 - outcome.index()].is_none() {
            let other = OutcomeIndex(1 - outcome.0);
            books.insert(usize::from(other.0 > outcome.0), (other, QuotedBook::mirror_of(book)));
        }
        books
    }
}

/// Outcomes with the books that they trade on.
pub type QuotedBooks<'a> = SmallVec<[(OutcomeIndex, QuotedBook<'a>); 2]>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Timestamp;
    use crate::market::book::{Ladder, Level, Side};

    fn info(labels: &[&str]) -> MarketInfo {
        let outcome = |&label: &&str| Outcome { label: label.into(), token_id: label.into() };
        MarketInfo::bare("0xa", labels.iter().map(outcome))
    }

    fn book(bid_micros: i64) -> Book {
        let bid =
            Level { price: Price::from_micros(bid_micros), size: Shares::from_micros(1_000_000) };
        Book::new(Ladder::from_levels(vec![bid], vec![]).unwrap(), Timestamp::EPOCH)
    }

    #[test]
    fn a_quote_carries_the_terms_of_its_market() {
        let status = MarketStatus::Paused;
        let info = MarketInfo { status, taker_delay_ms: 3_000, ..info(&["Yes", "No"]) };
        let quote = Quote::new(&info, [None, None]);
        assert_eq!((&**quote.condition_id, quote.status), ("0xa", MarketStatus::Paused));
        assert_eq!((quote.fees, quote.outcomes), (Fees::Free, &info.outcomes[..]));
        assert_eq!((quote.tick, quote.order_size_min), (info.tick, info.order_size_min));
        assert_eq!(quote.taker_delay_ms, 3_000);
        assert_eq!(quote.outcome("no"), Some(OutcomeIndex(1)));
    }

    #[test]
    fn an_outcome_without_a_book_trades_on_the_mirror_of_the_other() {
        let (info, book) = (info(&["Yes", "No"]), book(400_000));
        assert!(Quote::new(&info, [None, None]).book(OutcomeIndex(0)).is_none());
        let quote = Quote::new(&info, [None, Some(&book)]);
        let touch = |outcome, side| quote.book(outcome).unwrap().liquidity.touch(side);
        assert_eq!(touch(OutcomeIndex(1), Side::Sell), Some(Price::from_micros(400_000)));
        assert_eq!(touch(OutcomeIndex(0), Side::Buy), Some(Price::from_micros(600_000)));
        assert_eq!(touch(OutcomeIndex(0), Side::Sell), None);
    }

    #[test]
    fn three_outcomes_have_no_mirror() {
        let (info, book) = (info(&["A", "B", "C"]), book(400_000));
        let quote = Quote::new(&info, [None, Some(&book), None]);
        assert!(quote.book(OutcomeIndex(1)).is_some());
        assert!(quote.book(OutcomeIndex(0)).is_none());
        assert!(quote.book(OutcomeIndex(2)).is_none());
        assert!(quote.book(OutcomeIndex(3)).is_none());
    }
}
