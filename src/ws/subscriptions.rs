//! The subscriptions of one socket or stream, and which frame it sends next.

use std::num::NonZeroU64;
use std::sync::Arc;

use super::fanout::{Channel, Fanout, Mailbox, SocketId};
use super::price_frame::PriceFrame;
use crate::ids::Timestamp;
use crate::market::Market;
use crate::market::catalogue::MarketInfo;
use crate::money::Price;

/// How many markets a socket may subscribe to; each has a bit in its mailbox.
pub const MARKETS_PER_SOCKET_MAX: usize = 50;
const _: () = assert!(MARKETS_PER_SOCKET_MAX <= u64::BITS as usize);

/// The subscriptions of one socket. Dropping this unsubscribes from all markets.
pub struct Subscriptions {
    fanout: Arc<Fanout>,
    id: SocketId,
    mailbox: Arc<Mailbox>,
    slots: [Option<Subscription>; MARKETS_PER_SOCKET_MAX],
    /// The slots in use, in the order of subscription.
    order: Vec<u8>,
    /// Bits taken from the mailbox but not yet handled.
    pending: u64,
}

struct Subscription {
    condition_id: Arc<str>,
    channel: Arc<Channel>,
    sent: Option<Sent>,
}

/// The last frame sent of a market.
struct Sent {
    /// Its number. Frames are numbered from 1, so that this takes no more space than both numbers.
    seq: NonZeroU64,
    /// Its tick.
    tick: Price,
}

/// A frame to send next.
#[derive(Debug)]
pub struct NextFrame {
    /// The market's newest frame.
    pub frame: Arc<PriceFrame>,
    /// Whether the socket missed frames of this market since the last one it sent.
    pub conflated: bool,
    /// Whether the tick differs from that of the last frame it sent.
    pub tick_change: Option<TickChange>,
}

/// A change of a market's tick between two frames.
#[derive(Debug)]
pub struct TickChange {
    /// The market's description.
    pub info: Arc<MarketInfo>,
    /// The tick of the earlier frame.
    pub before: Price,
}

/// Why a subscribe request was refused as a whole.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "at most {MARKETS_PER_SOCKET_MAX} markets per socket: this one has {subscribed} and asked \
     for {added} more; none was added"
)]
pub struct TooManyMarkets {
    /// How many markets the socket is subscribed to.
    pub subscribed: usize,
    /// How many more were requested.
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

    /// The mailbox that wakes the socket when a frame may be due.
    pub(super) fn mailbox(&self) -> &Arc<Mailbox> {
        &self.mailbox
    }

    /// Subscribes to those of these markets that are listed and not yet subscribed; each of them
    /// has a frame due at once. Returns the ids that are not listed. If the total would exceed the
    /// limit, nothing is added.
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
                // A longer list is refused below, whatever else it contains.
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

    /// Unsubscribes from these markets; ignores those that are not subscribed.
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

    /// The newest frame of the next market that is due; `None` if none is. Every due market gets
    /// its turn before any gets a second one.
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
            // The bit may belong to a market that had this slot before, or to a frame that was
            // already sent because it was published before its bit was set.
            let subscription = self.slots.get_mut(slot).and_then(Option::as_mut);
            let next = subscription.and_then(Subscription::next);
            if let Some(next) = next {
                if next.conflated {
                    self.fanout.note_conflated();
                }
                return Some(next);
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
            Some(Subscription { condition_id: id.into(), channel, sent: None });
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
        let seq = NonZeroU64::new(frame.seq).expect("frames are numbered from 1");
        let (conflated, tick_change) = match &self.sent {
            Some(sent) if seq <= sent.seq => return None,
            Some(sent) => {
                let change = || TickChange { info: self.channel.info(), before: sent.tick };
                (frame.seq > sent.seq.get() + 1, (frame.tick != sent.tick).then(change))
            }
            None => (false, None),
        };
        self.sent = Some(Sent { seq, tick: frame.tick });
        Some(NextFrame { frame, conflated, tick_change })
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
