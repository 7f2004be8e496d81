//! The events that a venue can report.

use std::sync::Arc;

use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::book::{Ladder, Side};
use paperbourse_core::market::catalogue::MarketInfo;
use paperbourse_core::money::{Price, Shares};

/// An event at a venue.
#[derive(Clone, PartialEq, Debug)]
pub struct VenueEvent {
    /// The venue's timestamp.
    pub at: Timestamp,
    /// What happened.
    pub change: VenueChange,
}

/// What an event changes.
#[derive(Clone, PartialEq, Debug)]
pub enum VenueChange {
    /// New markets, or markets with new descriptions (status, fees, tick, payouts).
    Listed(Vec<MarketInfo>),
    /// The full book of one token, which replaces the earlier one.
    Book(BookReplaced),
    /// New sizes at levels of one or more tokens, which take effect together.
    Levels(Vec<LevelChanged>),
    /// The best prices of one token, to check the book against. They change nothing.
    Top {
        /// The token.
        token_id: Arc<str>,
        /// Its best bid and ask.
        top: Top,
    },
    /// A trade. It does not change the book by itself.
    Traded {
        /// The token.
        token_id: Arc<str>,
        /// Dollars per share.
        price: Price,
        /// Shares; 0 if the venue reports only the price.
        size: Shares,
        /// The taker's side, if reported.
        side: Option<Side>,
    },
    /// The token's book can no longer be trusted.
    Stale {
        /// The token.
        token_id: Arc<str>,
    },
}

/// A full book from the venue.
#[derive(Clone, PartialEq, Debug)]
pub struct BookReplaced {
    /// The token.
    pub token_id: Arc<str>,
    /// Bids and asks.
    pub ladder: Ladder,
    /// The venue's hash of the book, if sent.
    pub hash: Option<Box<str>>,
    /// The newest trade, if stated.
    pub newest_trade: Option<NewestTrade>,
    /// The tick, if sent.
    pub tick: Option<Price>,
    /// The version of the venue's protocol, if stated.
    pub version: Option<Box<str>>,
    /// Whether it answers a request instead of coming with the changes. Such a book confirms the
    /// one that the changes made; one that differs may be wrong, or a change may be on its way.
    pub is_requested: bool,
}

impl BookReplaced {
    /// A book of which only the levels are known.
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
    /// It never traded.
    Never,
    /// The price in dollars per share.
    At(Price),
}

impl NewestTrade {
    /// The price, if there was a trade.
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
    /// The token.
    pub token_id: Arc<str>,
    /// Bids for a buy, asks for a sell.
    pub side: Side,
    /// The price of the level.
    pub price: Price,
    /// The new total size; 0 removes the level.
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
