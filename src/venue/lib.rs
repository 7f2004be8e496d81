#![doc = include_str!("README.md")]

pub mod client;
pub mod event;
pub mod feed;
pub mod follow;
pub mod live;
pub mod polymarket;
pub mod recorded;
pub mod simulated;
pub mod speed;
pub mod tape;
pub mod tls;

pub use event::{BookReplaced, LevelChanged, NewestTrade, Top, VenueChange, VenueEvent};

use feed::Feed;
use follow::status::LiveStatus;
use live::LiveVenue;
use speed::Speed;

use paperbourse_core::ids::Timestamp;

/// The venue chosen at start. Whatever comes before the first reader has been played.
pub enum Venue {
    /// Invented markets, without an end.
    Simulated(simulated::Player),
    /// A recording in someone else's format, with an end.
    Recorded(recorded::Player),
    /// A tape of our own recorder, with an end.
    Tape(Box<recorded::TapePlayer>),
    /// A real venue, in real time.
    Live(Box<dyn LiveVenue>),
}

/// What readers see of the venue, besides its markets.
#[derive(Clone, Default, Debug)]
pub struct VenueStatus {
    /// The venue's name in the status.
    pub name: &'static str,
    /// The status of the connector; only for a live venue.
    pub live: Option<LiveStatus>,
}

/// Why a venue cannot be played.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VenueError {
    /// Speed `max` for a venue without an end.
    #[error("a simulated venue has no end: its speed must be a number, not `max`")]
    Endless,
}

impl Venue {
    /// The simulated venue of a seed. Its tape begins at `start`.
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

    /// The name and, for a live venue, the status of its connector.
    pub fn status(&self) -> VenueStatus {
        match self {
            Self::Simulated(_) => VenueStatus { name: "simulated", live: None },
            Self::Recorded(_) | Self::Tape(_) => VenueStatus { name: "recorded", live: None },
            Self::Live(live) => VenueStatus { name: live.name(), live: Some(live.status()) },
        }
    }

    /// Publishes the following events at their own pace: for ever, or to the end of the tape.
    pub async fn run(&mut self) {
        match self {
            Self::Simulated(player) => player.run().await,
            Self::Recorded(player) => player.run().await,
            Self::Tape(player) => player.run().await,
            Self::Live(live) => live.run().await,
        }
    }
}
