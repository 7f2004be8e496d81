//! Where prices come from: one stream of events from whichever venue was chosen at start.
//!
//! A venue only tells what happened. The feed keeps the books and publishes them; no
//! venue touches what readers see. What is the same for all that are followed live stands in
//! [`follow`]; a folder for each holds what is its own.

pub mod event;
pub mod feed;
pub mod follow;
pub mod live;
pub mod polymarket;
pub mod recorded;
pub mod simulated;
pub mod speed;
pub mod tape;

pub use event::{BookReplaced, LevelChanged, Top, VenueChange, VenueEvent};

use feed::Feed;
use follow::status::LiveStatus;
use live::LiveVenue;
use speed::Speed;

use crate::ids::Timestamp;

/// The venue that was chosen at start, with everything played that comes before anybody reads.
pub enum Venue {
    /// An endless tape.
    Simulated(simulated::Player),
    /// A recording, with an end.
    Recorded(recorded::Player),
    /// The tape of a recorder of ours, with an end.
    Tape(Box<recorded::TapePlayer>),
    /// A real one, as it is now.
    Live(Box<dyn LiveVenue>),
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
            Self::Live(live) => VenueStatus { name: live.name(), live: Some(live.status()) },
        }
    }

    /// Tells what follows, at its own pace: for ever, or to the end of the tape.
    pub async fn run(&mut self) {
        match self {
            Self::Simulated(player) => player.run().await,
            Self::Recorded(player) => player.run().await,
            Self::Tape(player) => player.run().await,
            Self::Live(live) => live.run().await,
        }
    }
}
