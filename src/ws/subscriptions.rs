//! What one socket is subscribed to, and which frame of it comes next.

use std::sync::Arc;

use super::fanout::{Channel, Fanout, Mailbox, SocketId};
use super::price_frame::PriceFrame;
use crate::ids::Timestamp;
use crate::market::Market;

/// A socket is subscribed to at most this many markets; each has a bit in its mailbox.
pub const MARKETS_PER_SOCKET_MAX: usize = 50;
const _: () = assert!(MARKETS_PER_SOCKET_MAX <= u64::BITS as usize);

/// The subscriptions of one socket. Dropping them ends them all.
pub struct Subscriptions {
    fanout: Arc<Fanout>,
    id: SocketId,
    mailbox: Arc<Mailbox>,
    slots: [Option<Subscription>; MARKETS_PER_SOCKET_MAX],
    /// The slots in use, in the order of subscription.
    order: Vec<u8>,
    /// Bits that were taken from the mailbox and not yet looked at.
    pending: u64,
}

struct Subscription {
    condition_id: Arc<str>,
    channel: Arc<Channel>,
    /// The number of the frame that was sent last.
    sent_seq: Option<u64>,
}

/// A frame that a socket sends next.
#[derive(PartialEq, Eq, Debug)]
pub struct NextFrame {
    /// The newest of its market.
    pub frame: Arc<PriceFrame>,
    /// There were others since the last one that this socket sent for the market.
    pub conflated: bool,
}

/// Why a request to subscribe was refused as a whole.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "at most {MARKETS_PER_SOCKET_MAX} markets a socket: {subscribed} are subscribed and {added} \
     were to be added; nothing was added"
)]
pub struct TooManyMarkets {
    /// How many the socket is subscribed to.
    pub subscribed: usize,
    /// How many more it asked for.
    pub added: usize,
}

impl Subscriptions {
    pub(super) fn new(fanout: Arc<Fanout>, id: SocketId) -> Self {
        Self {
            fanout,
            id,
            mailbox: Arc::default(),
            slots: [const { None }; MARKETS_PER_SOCKET_MAX],
            order: Vec::new(),
            pending: 0,
        }
    }

    /// What is rung when a frame of these markets may be due.
    pub(super) fn mailbox(&self) -> &Arc<Mailbox> {
        &self.mailbox
    }

    /// Subscribes to all of these markets that are listed and not yet subscribed, each of which has
    /// a frame due at once, and returns the names that are not listed. One market too many, and
    /// nothing is added.
    pub fn subscribe<'a>(
        &mut self,
        condition_ids: &'a [String],
        now: Timestamp,
    ) -> Result<Vec<&'a str>, TooManyMarkets> {
        let mut added: Vec<(&str, Arc<Market>)> = Vec::new();
        let mut unknown = Vec::new();
        for id in condition_ids {
            if self.slot_of(id).is_some() || added.iter().any(|(known, _)| known == id) {
                continue;
            }
            match self.fanout.market(id) {
                // A longer list is refused below, whatever else it names.
                Some(market) if added.len() <= MARKETS_PER_SOCKET_MAX => added.push((id, market)),
                Some(_) => {}
                None => unknown.push(id.as_str()),
            }
        }
        let subscribed = self.order.len();
        if subscribed + added.len() > MARKETS_PER_SOCKET_MAX {
            return Err(TooManyMarkets { subscribed, added: added.len() });
        }
        for (id, market) in added {
            self.add(id, &market, now);
        }
        Ok(unknown)
    }

    /// Ends the subscriptions to these markets; others of them are passed over.
    pub fn unsubscribe(&mut self, condition_ids: &[String]) {
        for id in condition_ids {
            let Some(slot) = self.slot_of(id) else { continue };
            self.order.retain(|&other| other != slot);
            let subscription = self.slots[usize::from(slot)].take();
            let subscription = subscription.expect("a slot in the order is in use");
            self.fanout.leave(&subscription.channel, self.id);
        }
    }

    /// The subscribed markets, in the order of subscription.
    pub fn condition_ids(&self) -> impl Iterator<Item = &str> {
        self.order.iter().filter_map(|&slot| {
            self.slots[usize::from(slot)].as_ref().map(|subscription| &*subscription.condition_id)
        })
    }

    /// The next frame that is due, as new as there is; `None` when there is none. Every market that
    /// is due has its turn before any has a second one.
    pub fn next_frame(&mut self) -> Option<NextFrame> {
        loop {
            if self.pending == 0 {
                self.pending = self.mailbox.take();
            }
            if self.pending == 0 {
                return None;
            }
            let slot = self.pending.trailing_zeros() as usize;
            self.pending &= self.pending - 1;
            // The bit may be of a market that had this slot before, or of a frame that was sent
            // already because it was published before its bit was set.
            let subscription = self.slots.get_mut(slot).and_then(Option::as_mut);
            let next = subscription.and_then(Subscription::next);
            if next.is_some() {
                return next;
            }
        }
    }

    fn add(&mut self, id: &str, market: &Arc<Market>, now: Timestamp) {
        let slot = (0_u8..)
            .zip(&self.slots)
            .find_map(|(slot, subscription)| subscription.is_none().then_some(slot))
            .expect("fewer markets than slots are subscribed");
        let channel = self.fanout.join(market, self.id, &self.mailbox, slot, now);
        self.slots[usize::from(slot)] =
            Some(Subscription { condition_id: id.into(), channel, sent_seq: None });
        self.order.push(slot);
    }

    fn slot_of(&self, id: &str) -> Option<u8> {
        self.order.iter().copied().find(|&slot| {
            self.slots[usize::from(slot)]
                .as_ref()
                .is_some_and(|subscription| &*subscription.condition_id == id)
        })
    }
}

impl Subscription {
    fn next(&mut self) -> Option<NextFrame> {
        let frame = self.channel.newest();
        let conflated = match self.sent_seq {
            Some(sent) if frame.seq <= sent => return None,
            Some(sent) => frame.seq > sent + 1,
            None => false,
        };
        self.sent_seq = Some(frame.seq);
        Some(NextFrame { frame, conflated })
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        for subscription in self.slots.iter_mut().filter_map(Option::take) {
            self.fanout.leave(&subscription.channel, self.id);
        }
        self.fanout.close();
    }
}
