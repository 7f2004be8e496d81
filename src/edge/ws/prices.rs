//! The price socket's side of a connection: its replies, and the prices that are due.
//!
//! Prices are never queued. Whenever the socket can write and has its turn, it takes the newest
//! prices.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use super::batch::Batch;
use super::close::CloseReason;
use super::connection::{Ended, Peer, Protocol, refuse, serve};
use super::fanout::Fanout;
use super::frame::put_text;
use super::protocol::{
    ALL_MARKETS, MARKETS_ACKNOWLEDGED_MAX, PriceReply, Reply, Request, put_message,
    unknown_markets_message,
};
use super::subscriptions::Subscriptions;
use super::turns::Turns;
use super::watch::Watch;
use paperbourse_core::ids::{AccountId, Timestamp};
use paperbourse_core::limits::tier::MarketsMax;

/// Sent once to a socket that is subscribed to all markets but could not join some.
const LACKS_MARKETS: &str = "the server has reached its limit of subscriptions: some markets are \
                             missing here; unsubscribe from * and try again later";

/// Streams prices of up to `markets_max` markets until the socket ends. `received` are the bytes
/// that arrived after the head of the upgrade request.
pub async fn serve_prices<S>(
    (stream, received): (S, Vec<u8>),
    peer: Peer,
    (fanout, turns): (&Arc<Fanout>, &Arc<Turns>),
    (account_id, markets_max): (AccountId, MarketsMax),
    watch: &Watch,
) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let Some(subscriptions) = fanout.open(markets_max, turns) else {
        return refuse(stream, CloseReason::Busy).await;
    };
    let wake = subscriptions.mailbox().wake_up().clone();
    let subscriptions = Box::new(subscriptions);
    let prices = Prices { account_id, subscriptions };
    // Prices are in memory, so there is nothing to fetch.
    let fetching = std::future::pending();
    serve((stream, received), peer, (prices, wake, fetching), watch).await
}

struct Prices {
    account_id: AccountId,
    /// Boxed, since a socket's future stores its arguments more than once.
    subscriptions: Box<Subscriptions>,
}

impl Protocol for Prices {
    fn begin(&mut self, replies: &mut Vec<u8>) {
        put_message(replies, &PriceReply::connected(self.account_id));
    }

    fn answer(&mut self, text: &[u8], now: Timestamp, replies: &mut Vec<u8>) {
        match Request::parse(text) {
            Ok(Request::Subscribe { markets }) => self.subscribe(&markets, now, replies),
            Ok(Request::Unsubscribe { markets }) => self.unsubscribe(&markets, replies),
            Ok(Request::Ping) => put_message(replies, &Reply::pong(now)),
            Err(error) => put_message(replies, &Reply::Error { message: &error.to_string() }),
        }
    }

    /// Takes the replies first and then, in the socket's turn, the newest frame of each market that
    /// is due.
    fn take(&mut self, replies: &mut Vec<u8>, batch: &mut Batch, bytes_goal: usize) {
        batch.take(replies);
        self.subscriptions.take_turn(|next| {
            batch.begin_frame(next.taken());
            put_text(batch, &next.frame.json(next.conflated));
            if let Some(end) = next.end_json() {
                put_text(batch, &[end]);
            }
            batch.len() < bytes_goal
        });
        if self.subscriptions.lacks_markets() {
            // The error cannot follow frames that may be put back, so if there are any, it waits
            // for the next batch.
            let next = if batch.is_empty() { &mut **batch } else { replies };
            put_message(next, &Reply::Error { message: LACKS_MARKETS });
        }
    }

    /// Markets whose frames are put back are due again, with their newest frames. The rest of a
    /// begun frame waits for the socket's next turn, but replies are written at once.
    fn put_back(&mut self, batch: &mut Batch, taken_bytes: usize) -> bool {
        let mut is_put_back = false;
        while let Some(frame) = batch.put_back(taken_bytes) {
            self.subscriptions.put_back(&frame);
            is_put_back = true;
        }
        is_put_back && batch.has_frames()
    }
}

impl Prices {
    fn subscribe(&mut self, condition_ids: &[String], now: Timestamp, replies: &mut Vec<u8>) {
        let subscribed = if has_all(condition_ids) {
            self.subscriptions.subscribe_all().map(|()| Vec::new())
        } else {
            self.subscriptions.subscribe(condition_ids, now)
        };
        match subscribed {
            Ok(unknown) => {
                if !unknown.is_empty() {
                    let message = unknown_markets_message(&unknown);
                    put_message(replies, &Reply::Error { message: &message });
                }
                self.acknowledge(condition_ids, replies);
            }
            Err(error) => put_message(replies, &Reply::Error { message: &error.to_string() }),
        }
    }

    fn unsubscribe(&mut self, condition_ids: &[String], replies: &mut Vec<u8>) {
        if has_all(condition_ids) {
            self.subscriptions.unsubscribe_all();
        } else if let Err(error) = self.subscriptions.unsubscribe(condition_ids) {
            return put_message(replies, &Reply::Error { message: &error.to_string() });
        }
        self.acknowledge(condition_ids, replies);
    }

    /// Acknowledges a request. The list of markets is bounded, since it would otherwise grow with
    /// each request.
    fn acknowledge(&self, condition_ids: &[String], replies: &mut Vec<u8>) {
        let subscriptions = &self.subscriptions;
        let count = subscriptions.count();
        let (markets, total) = if subscriptions.has_all() {
            (vec![ALL_MARKETS], None)
        } else if count <= MARKETS_ACKNOWLEDGED_MAX {
            (subscriptions.condition_ids().collect(), None)
        } else {
            let mut markets: Vec<&str> = condition_ids.iter().map(String::as_str).collect();
            markets.retain(|id| subscriptions.contains(id));
            (markets, Some(count))
        };
        put_message(replies, &PriceReply::Subscribed { markets, total });
    }
}

fn has_all(condition_ids: &[String]) -> bool {
    condition_ids.iter().any(|id| id == ALL_MARKETS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ws::fanout::tests::{fanout, name};

    /// Returns a socket, and a batch with a reply of ten bytes and the frames of two markets.
    fn batch_of_two() -> (Prices, Batch) {
        let (fanout, turns) = (fanout(2), Arc::default());
        let subscriptions = fanout.open(MarketsMax::Count(50), &turns).unwrap();
        let account_id = AccountId::from_raw(199).unwrap();
        let mut prices = Prices { account_id, subscriptions: Box::new(subscriptions) };
        prices.subscriptions.subscribe(&[0, 1].map(name), Timestamp::EPOCH).unwrap();
        assert_eq!(turns.give(), 1);
        let mut batch = Batch::new();
        prices.take(&mut vec![b'r'; 10], &mut batch, usize::MAX);
        (prices, batch)
    }

    #[test]
    fn only_a_frame_that_has_begun_waits_for_the_next_turn() {
        let (mut prices, mut batch) = batch_of_two();
        let second_end = batch.len();
        assert!(prices.put_back(&mut batch, 11));
        let first_end = batch.len();
        assert!((12..second_end).contains(&first_end));
        for (taken_bytes, can_wait, left_bytes) in [
            // The peer took only a part of the replies, which are written at once.
            (5, false, 10),
            // The first frame starts right there.
            (10, true, first_end),
            (first_end - 1, true, first_end),
            // The peer took the whole first frame, so the second one starts right there and stays.
            (first_end, false, second_end),
        ] {
            let (mut prices, mut batch) = batch_of_two();
            let is_left = (prices.put_back(&mut batch, taken_bytes), batch.len());
            assert_eq!(is_left, (can_wait, left_bytes), "{taken_bytes} bytes taken");
        }
    }
}
