//! Plays a simulated tape in real time, faster or slower.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::SimulatedVenue;
use crate::feed::Feed;
use crate::speed::Ratio;
use paperbourse_core::ids::Timestamp;

/// A player of a simulated venue.
pub struct Player {
    feed: Feed,
    tape: SimulatedVenue,
    start: Timestamp,
    ratio: Ratio,
}

impl Player {
    /// Creates a player and publishes the opening of the tape; [`Player::run`] plays the rest.
    pub fn new(seed: u64, start: Timestamp, ratio: Ratio, mut feed: Feed) -> Self {
        let tape = SimulatedVenue::new(seed, start);
        feed.markets().set_delay_speed(ratio.micros());
        for event in tape.opening() {
            feed.apply(event);
        }
        Self { feed, tape, start, ratio }
    }

    /// Plays the tape forever. The future may be dropped at any time.
    pub async fn run(&mut self) {
        let began = Instant::now();
        loop {
            let (at, events) = self.tape.next_batch();
            let delay = self.ratio.delay(self.start, at);
            // Beyond the range of the clock, the tape stops.
            let due =
                began.checked_add(delay).unwrap_or_else(|| began + Duration::from_secs(1 << 30));
            sleep_until(due).await;
            for event in events {
                self.feed.markets().crossings_room().await;
                self.feed.apply(event);
            }
        }
    }
}
