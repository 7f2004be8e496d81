//! How books are compared with a venue's hashes. Each venue brings its own algorithm.

use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::book::Ladder;
use paperbourse_core::money::{Price, Shares};

/// Checks a venue's hashes of books.
pub trait Verifier: Send {
    /// The candidate for the price of the last trade with which the book has this hash, if any;
    /// the candidate `None` stands for a market without trades.
    fn matching(
        &mut self,
        book: HashedBook<'_>,
        hash: &str,
        last_trade_prices: &[Option<Price>],
    ) -> Option<Option<Price>>;
}

/// Everything that a hash may cover, except the price of the last trade.
#[derive(Clone, Copy, Debug)]
pub struct HashedBook<'a> {
    /// The condition id.
    pub market: &'a str,
    /// The token.
    pub token_id: &'a str,
    /// The venue's timestamp of the book, in whole milliseconds.
    pub at: Timestamp,
    /// Both sides.
    pub ladder: &'a Ladder,
    /// The smallest resting order.
    pub order_size_min: Shares,
    /// The price increment.
    pub tick: Price,
    /// Whether the market is one of several in an event of which exactly one wins.
    pub neg_risk: bool,
    /// The version of the venue's protocol, if its books state one.
    pub version: Option<&'a str>,
}
