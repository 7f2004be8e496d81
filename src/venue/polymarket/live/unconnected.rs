//! The way of a frame without a network: what benches and fuzz targets hand in is taken as if a
//! socket had told it, with all that a frame sets off here.

use tokio::time::Instant;

use super::{Clock, Live};
use crate::venue::feed::Feed;
use crate::venue::follow::status::LiveSnapshot;
use crate::venue::follow::timing::Timing;
use crate::venue::polymarket::wire::Description;

/// Follows markets on one socket that nobody opens: whoever makes it says what the socket tells.
pub struct Unconnected(Live);

impl Unconnected {
    /// Follows as many of these markets as one socket takes, whose books have yet to come.
    pub fn new(timing: Timing, feed: Feed, markets: Vec<Description>) -> Self {
        let mut live = Live::unconnected(feed, Clock::Running { began: Instant::now() });
        (live.timing, live.market_count_max) = (timing, markets.len());
        live.list(markets);
        let mut unconnected = Self(live);
        unconnected.open();
        unconnected
    }

    /// The connection is another one: whole books come first.
    pub fn open(&mut self) {
        if let Some(slot) = self.0.sockets.first() {
            let connection = slot.connection + 1;
            self.0.opened(0, connection);
        }
    }

    /// The socket tells this.
    pub fn hear(&mut self, text: &str) {
        if !self.0.sockets.is_empty() {
            let received = self.0.clock.now();
            self.0.take_frame(0, text, received);
        }
    }

    /// What has come of it.
    pub fn status(&mut self) -> LiveSnapshot {
        self.0.tell_status();
        self.0.status.get()
    }
}
