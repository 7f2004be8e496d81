//! The price socket's side of a connection: what it answers, and which prices are due.
//!
//! Prices are never queued: whenever the socket can write, it asks for the newest.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::close::CloseReason;
use super::connection::{Ended, Peer, Protocol, Times, WRITE_BYTES_GOAL, refuse, serve};
use super::fanout::Fanout;
use super::frame::put_text;
use super::protocol::{PriceReply, Reply, Request, put_message, unknown_markets_message};
use super::subscriptions::Subscriptions;
use crate::ids::{AccountId, Timestamp};

/// Streams prices until the socket ends. The server is shutting down once `shutdown` is true or its
/// sender is dropped.
pub async fn serve_prices<S>(
    stream: S,
    peer: Peer,
    fanout: &Arc<Fanout>,
    shutdown: watch::Receiver<bool>,
    times: Times,
) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let Some(subscriptions) = fanout.open() else {
        return refuse(stream, CloseReason::Busy, times).await;
    };
    let wake = subscriptions.mailbox().wake_up().clone();
    let prices = Prices { account_id: peer.account_id, subscriptions };
    // Prices are in memory: nothing has to be fetched.
    let fetching = std::future::pending();
    serve(stream, peer, (prices, wake, fetching), shutdown, times).await
}

struct Prices {
    account_id: AccountId,
    subscriptions: Subscriptions,
}

impl Protocol for Prices {
    fn begin(&mut self, replies: &mut Vec<u8>) {
        put_message(replies, &PriceReply::connected(self.account_id));
    }

    fn answer(&mut self, text: &[u8], now: Timestamp, replies: &mut Vec<u8>) {
        match Request::parse(text) {
            Ok(Request::Subscribe { markets }) => self.subscribe(&markets, now, replies),
            Ok(Request::Unsubscribe { markets }) => {
                self.subscriptions.unsubscribe(&markets);
                self.acknowledge(replies);
            }
            Ok(Request::Ping) => put_message(replies, &Reply::pong(now)),
            Err(error) => put_message(replies, &Reply::Error { message: &error.to_string() }),
        }
    }

    /// Replies first, then the newest frame of each market that is due.
    fn take(&mut self, replies: &mut Vec<u8>) -> Vec<u8> {
        let mut batch = std::mem::take(replies);
        while batch.len() < WRITE_BYTES_GOAL
            && let Some(next) = self.subscriptions.next_frame()
        {
            put_text(&mut batch, &next.frame.json(next.conflated));
        }
        batch
    }
}

impl Prices {
    fn subscribe(&mut self, condition_ids: &[String], now: Timestamp, replies: &mut Vec<u8>) {
        match self.subscriptions.subscribe(condition_ids, now) {
            Ok(unknown) => {
                if !unknown.is_empty() {
                    let message = unknown_markets_message(&unknown);
                    put_message(replies, &Reply::Error { message: &message });
                }
                self.acknowledge(replies);
            }
            Err(error) => put_message(replies, &Reply::Error { message: &error.to_string() }),
        }
    }

    fn acknowledge(&self, replies: &mut Vec<u8>) {
        let markets = self.subscriptions.condition_ids().collect();
        put_message(replies, &PriceReply::Subscribed { markets });
    }
}
