//! Memory accounting of the markets.

use super::book::{Book, Level};
use super::catalogue::{MarketInfo, Outcome};
use super::history::Bar;
use super::{Market, Markets};

/// Memory of the markets, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MarketsFootprint {
    /// Memory of the descriptions.
    pub catalogue: usize,
    /// Memory of the books.
    pub books: usize,
    /// Memory of the price histories.
    pub price_histories: usize,
}

impl Markets {
    /// Adds up the memory of all markets. Visits every market.
    pub fn footprint(&self) -> MarketsFootprint {
        let mut footprint = MarketsFootprint {
            price_histories: self.bar_count() * size_of::<Bar>(),
            ..MarketsFootprint::default()
        };
        for market in self.listing().markets() {
            let info = market.info();
            footprint.catalogue += size_of::<Market>() + info_bytes(&info);
            for outcome in (0..).take(info.outcomes.len()).map(crate::ids::OutcomeIndex) {
                if let Some(book) = &*market.book(outcome) {
                    footprint.books += book_bytes(book);
                }
            }
        }
        footprint
    }
}

fn info_bytes(info: &MarketInfo) -> usize {
    let texts = [&info.slug, &info.question, &info.category, &info.image_url, &info.evidence];
    let texts: usize = texts.into_iter().flatten().map(|text| text.len()).sum();
    let outcomes = info
        .outcomes
        .iter()
        .map(|Outcome { label, token_id }| size_of::<Outcome>() + label.len() + token_id.len());
    size_of::<MarketInfo>() + info.condition_id.len() + texts + outcomes.sum::<usize>()
}

/// Returns the size in bytes of the published book and of the feed's own copy of its levels.
fn book_bytes(book: &Book) -> usize {
    let levels = book.ladder().bids().len() + book.ladder().asks().len();
    size_of::<Book>() + 2 * levels * size_of::<Level>()
}
