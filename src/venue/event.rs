//! Events reported by a venue.

use std::sync::Arc;

use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::book::{Ladder, Side};
use paperbourse_core::market::catalogue::MarketInfo;
use paperbourse_core::money::{Price, Shares};

/// An event reported by a venue.
#[derive(Clone, PartialEq, Debug)]
pub struct VenueEvent {
    /// The venue's timestamp.
    pub at: Timestamp,
    /// The change to the venue's markets or books.
    pub change: VenueChange,
}

/// The change that an event reports.
#[derive(Clone, PartialEq, Debug)]
pub enum VenueChange {
    /// New markets, or markets with new descriptions (status, fees, tick, payouts).
    Listed(Vec<MarketInfo>),
    /// The full book of one token. It replaces the token's previous book.
    Book(BookReplaced),
    /// New sizes at price levels of one or more tokens, applied together.
    Levels(Vec<LevelChanged>),
    /// The best prices of one token. They are checked against the book but do not change it.
    Top {
        /// The token's id.
        token_id: Arc<str>,
        /// Its best bid and ask.
        top: Top,
    },
    /// A trade. It does not change the book by itself.
    Traded {
        /// The token's id.
        token_id: Arc<str>,
        /// The price in dollars per share.
        price: Price,
        /// The number of shares; 0 if the venue reports only the price.
        size: Shares,
        /// The taker's side, if reported.
        side: Option<Side>,
    },
    /// The token's book can no longer be trusted.
    Stale {
        /// The token's id.
        token_id: Arc<str>,
    },
}

/// A full book from the venue.
#[derive(Clone, PartialEq, Debug)]
pub struct BookReplaced {
    /// The token's id.
    pub token_id: Arc<str>,
    /// Bids and asks.
    pub ladder: Ladder,
    /// The venue's hash of the book, if sent.
    pub hash: Option<Box<str>>,
    /// The market's newest trade, if the book states it.
    pub newest_trade: Option<NewestTrade>,
    /// The price increment in dollars, if sent.
    pub tick: Option<Price>,
    /// The version of the venue's protocol, if stated.
    pub version: Option<Box<str>>,
    /// Whether this book answers a request instead of arriving with the stream of changes. A
    /// requested book can only confirm the book built from the changes: if the two differ, the
    /// answer may be wrong, or a change may still be in flight.
    pub is_requested: bool,
}

impl BookReplaced {
    /// Creates a book from its levels alone; everything else is unknown.
    pub const fn new(token_id: Arc<str>, ladder: Ladder) -> Self {
        Self {
            token_id,
            ladder,
            hash: None,
            newest_trade: None,
            tick: None,
            version: None,
            is_requested: false,
        }
    }
}

/// The newest trade of a market, as stated by a book.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewestTrade {
    /// The market has never traded.
    Never,
    /// The price of the newest trade, in dollars per share.
    At(Price),
}

impl NewestTrade {
    /// Returns the price, or `None` if the market has never traded.
    pub const fn price(self) -> Option<Price> {
        match self {
            Self::Never => None,
            Self::At(price) => Some(price),
        }
    }
}

/// A new size at one level.
#[derive(Clone, PartialEq, Debug)]
pub struct LevelChanged {
    /// The token's id.
    pub token_id: Arc<str>,
    /// Bids for a buy, asks for a sell.
    pub side: Side,
    /// The price of the level.
    pub price: Price,
    /// The new total size in shares; 0 removes the level.
    pub size: Shares,
    /// The venue's hash of the token's book after all changes of this event, if sent.
    pub hash: Option<Box<str>>,
    /// The token's best prices after all changes of this event, if sent.
    pub top: Option<Top>,
}

/// The best prices of a book; `None` for a side that is empty or was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Top {
    /// The highest bid.
    pub bid: Option<Price>,
    /// The lowest ask.
    pub ask: Option<Price>,
}
