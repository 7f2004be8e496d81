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

/// The venue chosen at startup. Events that precede the first reader have already been applied.
pub enum Venue {
    /// Simulated markets, which never end.
    Simulated(simulated::Player),
    /// A recording in a third-party format, which ends.
    Recorded(recorded::Player),
    /// A tape of our own recorder, which ends.
    Tape(Box<recorded::TapePlayer>),
    /// A real venue, followed in real time.
    Live(Box<dyn LiveVenue>),
}

/// The venue's name and status, as shown to readers.
#[derive(Clone, Default, Debug)]
pub struct VenueStatus {
    /// The venue's name in the status.
    pub name: &'static str,
    /// The status of the connector; `None` unless the venue is live.
    pub live: Option<LiveStatus>,
}

/// An unusable combination of venue and speed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VenueError {
    /// Speed `max` was requested for a venue without an end.
    #[error("a simulated venue has no end: its speed must be a number, not `max`")]
    Endless,
}

impl Venue {
    /// Creates the simulated venue for a seed, with a tape that begins at `start`. Fails for
    /// [`Speed::Max`], since the tape has no end.
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

    /// Returns the name and, for a live venue, the status of its connector.
    pub fn status(&self) -> VenueStatus {
        match self {
            Self::Simulated(_) => VenueStatus { name: "simulated", live: None },
            Self::Recorded(_) | Self::Tape(_) => VenueStatus { name: "recorded", live: None },
            Self::Live(live) => VenueStatus { name: live.name(), live: Some(live.status()) },
        }
    }

    /// Publishes further events at their own pace, until the end of the tape if the venue has one.
    pub async fn run(&mut self) {
        match self {
            Self::Simulated(player) => player.run().await,
            Self::Recorded(player) => player.run().await,
            Self::Tape(player) => player.run().await,
            Self::Live(live) => live.run().await,
        }
    }
}
