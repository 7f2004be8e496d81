//! Comparing books with the hashes that a venue tells of them: each venue brings its own way.

use crate::ids::Timestamp;
use crate::market::book::Ladder;
use crate::money::{Price, Shares};

/// Knows how a venue computes the hash of a book.
pub trait Verifier: Send {
    /// Whether a book gives the told hash with one of these candidates for the price of the newest
    /// trade; `None` stands for a book that never traded.
    fn verifies(
        &mut self,
        book: HashedBook<'_>,
        told: &str,
        last_trade_prices: &[Option<Price>],
    ) -> bool;
}

/// Everything that a hash may cover but the price of the newest trade.
#[derive(Clone, Copy, Debug)]
pub struct HashedBook<'a> {
    /// The condition id.
    pub market: &'a str,
    /// The token.
    pub token_id: &'a str,
    /// The venue's time of this book, of which the milliseconds count.
    pub at: Timestamp,
    /// Both sides.
    pub ladder: &'a Ladder,
    /// The smallest resting order.
    pub order_size_min: Shares,
    /// The smallest step of a price.
    pub tick: Price,
    /// One of several markets of an event of which exactly one wins.
    pub neg_risk: bool,
}
