//! What a venue can tell.

use std::sync::Arc;

use crate::ids::Timestamp;
use crate::market::book::{Ladder, Side};
use crate::market::catalogue::MarketInfo;
use crate::money::{Price, Shares};

/// Something that a venue told, and when it happened there.
#[derive(Clone, PartialEq, Debug)]
pub struct VenueEvent {
    /// The venue's time.
    pub at: Timestamp,
    /// What happened.
    pub change: VenueChange,
}

/// What a venue can tell.
#[derive(Clone, PartialEq, Debug)]
pub enum VenueChange {
    /// Markets are new, or their descriptions have changed (status, fees, tick, payouts).
    Listed(Vec<MarketInfo>),
    /// The whole book of one token, replacing what was known.
    Book(BookReplaced),
    /// New sizes at some levels, of one or several tokens, that take effect together.
    Levels(Vec<LevelChanged>),
    /// The best prices of one token, which change nothing: they can be compared.
    Top {
        /// Of which token.
        token_id: Arc<str>,
        /// Both sides.
        top: Top,
    },
    /// A trade was printed. It does not change the book by itself.
    Traded {
        /// Of which token.
        token_id: Arc<str>,
        /// Dollars a share.
        price: Price,
        /// Shares; 0 when the venue told the price alone.
        size: Shares,
        /// The taker's side, when the venue told it.
        side: Option<Side>,
    },
    /// What is known of this token's book can no longer be trusted.
    Stale {
        /// Which token.
        token_id: Arc<str>,
    },
}

/// A full book as a venue sent it.
#[derive(Clone, PartialEq, Debug)]
pub struct BookReplaced {
    /// Of which token.
    pub token_id: Arc<str>,
    /// Both sides.
    pub ladder: Ladder,
    /// The venue's hash of it, if told.
    pub hash: Option<Box<str>>,
    /// The price of the newest trade, if told.
    pub last_trade_price: Option<Price>,
    /// The tick, if told.
    pub tick: Option<Price>,
}

/// A new size at one level.
#[derive(Clone, PartialEq, Debug)]
pub struct LevelChanged {
    /// Of which token.
    pub token_id: Arc<str>,
    /// Bids for a buy, asks for a sell.
    pub side: Side,
    /// At which price.
    pub price: Price,
    /// The absolute new size; 0 removes the level.
    pub size: Shares,
    /// The venue's hash of the token's book after all changes of this event, if told.
    pub hash: Option<Box<str>>,
    /// The token's best prices after all changes of this event, if told.
    pub top: Option<Top>,
}

/// The best prices of a book. A side that is `None` is empty or was not told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Top {
    /// The highest bid.
    pub bid: Option<Price>,
    /// The lowest ask.
    pub ask: Option<Price>,
}
