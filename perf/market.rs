//! A market to decide orders against, for code that needs nothing else from a venue.

use paperbourse::ids::Timestamp;
use paperbourse::market::book::{Book, Ladder, Level};
use paperbourse::market::catalogue::{Fees, MarketInfo, Outcome};
use paperbourse::money::{FeeRate, Price, Shares};

/// The venue's condition id of the market.
pub(crate) const MARKET_ID: &str =
    "0x5f65177b394277fd294cd75650044e32ba009a95022d88a0c1d565897d72f8f1";

/// Creates a market with the usual fee, and this book for its first outcome.
pub(crate) fn market(labels: [&str; 2], ladder: Ladder, now: Timestamp) -> (MarketInfo, Book) {
    let outcomes = labels.map(|label| Outcome {
        label: label.into(),
        token_id: format!("7132104567933{label}").into(),
    });
    let fees = Fees::from_schedule(FeeRate::from_micros(70_000), 1);
    let info = MarketInfo { fees, ..MarketInfo::bare(MARKET_ID, outcomes) };
    (info, Book::new(ladder, now))
}

/// Creates a book with a bid at 57 cents and asks at 58 and 59, with these numbers of shares.
pub(crate) fn three_levels(shares: [i64; 3]) -> Ladder {
    let [bid, near, far] = shares;
    Ladder::from_levels(vec![level(57, bid)], vec![level(58, near), level(59, far)])
        .expect("levels of a book")
}

/// Creates a level at a price in cents.
pub(crate) fn level(cents: i64, shares: i64) -> Level {
    Level {
        price: Price::from_micros(cents * 10_000),
        size: Shares::from_micros(shares * 1_000_000),
    }
}
