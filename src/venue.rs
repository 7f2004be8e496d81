//! Where prices come from: one stream of events from whichever venue was chosen at start.
//!
//! A venue only tells what happened. The feed keeps the books and publishes them; no
//! venue touches what readers see.

pub mod feed;
pub mod polymarket;
pub mod recorded;
pub mod simulated;
pub mod speed;
pub mod tape;

use std::sync::Arc;

use feed::Feed;
use polymarket::live::status::LiveStatus;
use speed::Speed;

use crate::ids::Timestamp;
use crate::market::book::{Ladder, Side};
use crate::market::catalogue::MarketInfo;
use crate::money::{Price, Shares};

/// The venue that was chosen at start, with everything played that comes before anybody reads.
pub enum Venue {
    /// An endless tape.
    Simulated(simulated::Player),
    /// A recording, with an end.
    Recorded(recorded::Player),
    /// The tape of a recorder of ours, with an end.
    Tape(Box<recorded::TapePlayer>),
    /// The real one, as it is now.
    Polymarket(Box<polymarket::live::Live>),
}

/// What readers are told of the venue, beside its markets.
#[derive(Clone, Default, Debug)]
pub struct VenueStatus {
    /// Which one.
    pub name: &'static str,
    /// How it is followed, where it is followed live.
    pub live: Option<LiveStatus>,
}

/// Why a venue cannot be played.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VenueError {
    /// The whole of an endless tape was to be played at once.
    #[error("a simulated venue has no end: its speed must be a number, not `max`")]
    Endless,
}

impl Venue {
    /// The simulated venue of a seed, whose tape begins now.
    pub fn simulated(
        seed: u64,
        start: Timestamp,
        speed: Speed,
        feed: Feed,
    ) -> Result<Self, VenueError> {
        match speed {
            Speed::Max => Err(VenueError::Endless),
            Speed::Times(ratio) => {
                Ok(Self::Simulated(simulated::Player::new(seed, start, ratio, feed)))
            }
        }
    }

    /// What readers are told of it.
    pub fn status(&self) -> VenueStatus {
        match self {
            Self::Simulated(_) => VenueStatus { name: "simulated", live: None },
            Self::Recorded(_) | Self::Tape(_) => VenueStatus { name: "recorded", live: None },
            Self::Polymarket(live) => VenueStatus { name: "polymarket", live: Some(live.status()) },
        }
    }

    /// Tells what follows, at its own pace: for ever, or to the end of the tape.
    pub async fn run(&mut self) {
        match self {
            Self::Simulated(player) => player.run().await,
            Self::Recorded(player) => player.run().await,
            Self::Tape(player) => player.run().await,
            Self::Polymarket(live) => live.run().await,
        }
    }
}

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
