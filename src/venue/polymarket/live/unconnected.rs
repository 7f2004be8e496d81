//! Processes frames from benches and fuzz targets as if a socket had received them, without a
//! network.

use tokio::time::Instant;

use super::{follower, log, snapshot, stamp};
use crate::feed::Feed;
use crate::follow::request::Request;
use crate::follow::status::LiveSnapshot;
use crate::follow::timing::Timing;
use crate::polymarket::filter::MarketFilter;
use crate::polymarket::follower::Follower;
use crate::polymarket::wire::Description;

/// A follower of markets on one simulated socket, whose frames the caller provides.
pub struct Unconnected {
    follower: Follower<Feed>,
    began: Instant,
    connection: u64,
}

impl Unconnected {
    /// Follows as many of these markets as fit on one socket. They have no books yet.
    pub fn new(timing: Timing, feed: Feed, markets: Vec<Description>) -> Self {
        let began = Instant::now();
        let filter = MarketFilter { count_max: markets.len(), ..MarketFilter::default() };
        let mut follower = follower(feed, filter, timing);
        follower.listed(markets, stamp(began, began));
        follower.ensure_socket(0);
        let mut unconnected = Self { follower, began, connection: 0 };
        unconnected.open();
        unconnected
    }

    /// Replaces the connection. The caller must then provide full books before other frames.
    pub fn open(&mut self) {
        self.connection += 1;
        self.follower.opened(0, self.connection, stamp(self.began, Instant::now()));
        self.carry_out();
    }

    /// Processes a text frame.
    pub fn frame(&mut self, text: &str) {
        self.follower.frame(0, text, stamp(self.began, Instant::now()));
        self.carry_out();
    }

    /// Returns the current status.
    pub fn status(&self) -> LiveSnapshot {
        snapshot(&self.follower)
    }

    fn carry_out(&mut self) {
        for request in self.follower.take_requests() {
            if let Request::Log(notice) = request {
                log::log(&notice);
            }
        }
    }
}
