//! The venue's market socket: books, their changes, and what happens in the markets of the assets
//! that a client names.
//!
//! Nothing is queued for a socket. In its turn, it sends what has changed since it last had one:
//! the changes of a book if it has sent the state before, and otherwise the whole book.

use std::sync::Arc;

use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};

use super::batch::Batch;
use super::bounds::WRITE_BYTES_GOAL;
use super::clob::{Opening, answer_ping};
use super::clob_subscriptions::{ClobSubscriptions, JoinError, Stop};
use super::close::{ClobFlaw, CloseReason};
use super::connection::{Ended, Peer, Protocol, refuse, serve};
use super::fanout::Fanout;
use super::turns::Turns;
use super::watch::Watch;
use crate::trouble::SocketTrouble;
use paperbourse_core::ids::Timestamp;

/// Streams market data to a client of the venue until the socket ends. `received` are the bytes
/// that arrived after the head of the upgrade request, and `trouble` is what the socket meets on
/// purpose.
pub async fn serve_clob_market<S>(
    (stream, received): (S, Vec<u8>),
    peer: Peer,
    (fanout, turns): (&Arc<Fanout>, &Arc<Turns>),
    watch: &Watch,
    trouble: Option<SocketTrouble>,
) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let Some(subscriptions) = ClobSubscriptions::open(fanout, turns, trouble) else {
        return refuse(stream, CloseReason::Busy).await;
    };
    let wake = subscriptions.wake_up().clone();
    let opening = Opening::default();
    let socket = MarketSocket { subscriptions: Box::new(subscriptions), opening: &opening };
    // What has been put into a batch is not put back, so batches are short.
    let peer = Peer { batch_bytes: WRITE_BYTES_GOAL, ..peer };
    serve((stream, received), peer, (socket, wake, opening.ended()), watch).await
}

struct MarketSocket<'a> {
    subscriptions: Box<ClobSubscriptions>,
    opening: &'a Opening,
}

/// What a client asks for. All clients name assets by `assets_ids`; a market stands for all of its
/// assets.
#[derive(Deserialize)]
struct Asked {
    assets_ids: Option<Vec<String>>,
    markets: Option<Vec<String>>,
    operation: Option<Operation>,
    initial_dump: Option<bool>,
    custom_feature_enabled: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Operation {
    Subscribe,
    Unsubscribe,
}

impl Protocol for MarketSocket<'_> {
    fn answer(&mut self, text: &[u8], now: Timestamp, replies: &mut Vec<u8>) {
        if answer_ping(text, replies) {
            return;
        }
        match Asked::parse(text) {
            Some(asked) => match self.follow(&asked, now) {
                Ok(()) => self.opening.begin(),
                Err(JoinError::TooMany) => self.close(ClobFlaw::TooManyMarkets),
                Err(JoinError::Full) => self.opening.close(CloseReason::Busy),
            },
            None => self.close(ClobFlaw::NoSubscription),
        }
    }

    fn take(&mut self, replies: &mut Vec<u8>, batch: &mut Batch, bytes_goal: usize) {
        batch.take(replies);
        match self.subscriptions.take_turn(batch, bytes_goal) {
            Ok(()) => {}
            Err(Stop::Lost) => self.opening.close(CloseReason::TooSlow),
            Err(Stop::Trouble) => self.opening.end(Ended::Gone),
        }
    }
}

impl MarketSocket<'_> {
    fn close(&self, flaw: ClobFlaw) {
        self.opening.close(CloseReason::Clob(flaw));
    }

    /// Assets that are not listed are passed over, as at the venue.
    fn follow(&mut self, asked: &Asked, now: Timestamp) -> Result<(), JoinError> {
        let subscriptions = &mut self.subscriptions;
        // Before the assets: a client that names what it has already does so to turn this on.
        if asked.custom_feature_enabled == Some(true) {
            subscriptions.turn_on_custom();
        }
        let (tokens, markets) = (asked.assets_ids.iter().flatten(), asked.markets.iter().flatten());
        if asked.operation == Some(Operation::Unsubscribe) {
            tokens.for_each(|token_id| subscriptions.leave_token(token_id));
            markets.for_each(|condition_id| subscriptions.leave_market(condition_id));
            return Ok(());
        }
        let is_dumped = asked.initial_dump != Some(false);
        for token_id in tokens {
            subscriptions.join_token(token_id, is_dumped, now)?;
        }
        for condition_id in markets {
            subscriptions.join_market(condition_id, is_dumped, now)?;
        }
        subscriptions.record_joined();
        Ok(())
    }
}

impl Asked {
    fn parse(text: &[u8]) -> Option<Self> {
        // A list would be taken for the fields in order.
        let is_object = text.trim_ascii_start().first() == Some(&b'{');
        let asked: Self = serde_json::from_slice(text).ok().filter(|_| is_object)?;
        (asked.assets_ids.is_some() || asked.markets.is_some()).then_some(asked)
    }
}
