//! The interface for checking books against a venue's hashes. Each venue has its own algorithm.

use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::book::Ladder;
use paperbourse_core::money::{Price, Shares};

/// Checks books against a venue's hashes.
pub trait Verifier: Send {
    /// Returns the candidate last trade price for which the book has this hash, or `None` if no
    /// candidate fits. The candidate `None` represents a market without trades.
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
    /// The market's condition id.
    pub market: &'a str,
    /// The token's id.
    pub token_id: &'a str,
    /// The venue's timestamp of the book, in whole milliseconds.
    pub at: Timestamp,
    /// The bids and asks.
    pub ladder: &'a Ladder,
    /// The minimum size of a resting order, in shares.
    pub order_size_min: Shares,
    /// The price increment in dollars.
    pub tick: Price,
    /// Whether the market belongs to an event with several markets, exactly one of which wins.
    pub neg_risk: bool,
    /// The version of the venue's protocol, if its books state one.
    pub version: Option<&'a str>,
}
