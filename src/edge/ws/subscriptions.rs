//! The subscriptions of one socket or stream, and the choice of the next frame to send.

use std::collections::HashSet;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::channels::{Channel, Mailbox};
use super::dirty::{Cursor, SLOTS_MAX};
use super::event_id::EventId;
use super::fanout::{Fanout, SocketId};
use super::price_frame::PriceFrame;
use super::turns::Turns;
use paperbourse_core::ids::{Timestamp, condition};
use paperbourse_core::limits::tier::{MarketsMax, SOCKET_MARKETS_MAX};
use paperbourse_core::market::catalogue::{MarketInfo, MarketStatus};
use paperbourse_core::market::{MARKETS_MAX, Market};
use paperbourse_core::money::Price;

const _: () = assert!(MARKETS_MAX <= SLOTS_MAX && SOCKET_MARKETS_MAX as usize <= SLOTS_MAX);

/// The subscriptions of one socket. Dropping this unsubscribes from all markets.
pub struct Subscriptions {
    fanout: Arc<Fanout>,
    id: SocketId,
    markets_max: MarketsMax,
    mailbox: Arc<Mailbox>,
    /// The reader's position in the mailbox.
    cursor: Cursor,
    /// The slots whose frames were put back, in reverse order. They are sent before all others.
    put_back: Vec<DueSlot>,
    slots: Vec<Option<Subscription>>,
    free_slots: Vec<u32>,
    /// The slots in use, by their market's condition id.
    by_condition: HashTable<u32>,
    hashes: RandomState,
    /// Number of subscriptions ever made.
    joined: u64,
    all: Option<All>,
}

/// The state of a socket subscribed to all markets.
struct All {
    /// The markets not joined yet, in reverse order.
    rest: Vec<Arc<Market>>,
    lack: Lack,
}

/// Whether a socket subscribed to all markets was told that it lacks some.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lack {
    Never,
    ToSay,
    Said,
}

struct Subscription {
    channel: Arc<Channel<PriceFrame>>,
    /// The subscription's number, which gives the order of subscription and is never reused.
    place: u64,
    sent: Option<Sent>,
}

/// The last frame sent for a market.
#[derive(Clone, Copy, Debug)]
struct Sent {
    /// The number of the frame.
    seq: u64,
    /// The market's tick in the frame.
    tick: Price,
    /// The market's status in the frame.
    status: MarketStatus,
}

/// A frame to send next.
#[derive(Debug)]
pub struct NextFrame {
    /// The market's newest frame.
    pub frame: Arc<PriceFrame>,
    /// Whether the socket missed frames of this market since the last one sent.
    pub conflated: bool,
    /// The change of the tick since the last frame sent, if any.
    pub tick_change: Option<TickChange>,
    /// Whether the market has closed or been resolved since the last frame sent.
    has_ended: bool,
    slot: u32,
    place: u64,
    before: Option<Sent>,
}

/// The data needed to [put back](Subscriptions::put_back) a frame.
pub(super) struct TakenFrame {
    slot: u32,
    /// The number of the subscription, which tells it from earlier and later subscriptions in the
    /// same slot.
    place: u64,
    before: Option<Sent>,
    conflated: bool,
}

/// A slot that may have a frame due.
struct DueSlot {
    slot: u32,
    /// Whether a frame of this slot was already counted as conflated before it was put back.
    is_counted: bool,
}

impl NextFrame {
    /// Returns the `market_status` object to send after the frame, if the market has closed or been
    /// resolved.
    pub fn end_json(&self) -> Option<&[u8]> {
        self.frame.end_json.as_deref().filter(|_| self.has_ended)
    }

    pub(super) const fn taken(&self) -> TakenFrame {
        let Self { slot, place, before, conflated, .. } = *self;
        TakenFrame { slot, place, before, conflated }
    }
}

/// A change of a market's tick between two frames.
#[derive(Debug)]
pub struct TickChange {
    /// The market's description.
    pub info: Arc<MarketInfo>,
    /// The tick of the earlier frame.
    pub before: Price,
}

/// Why a request was refused as a whole.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SubscribeError {
    /// The socket would have too many markets.
    #[error(
        "at most {markets_max} markets per socket: this one has {subscribed} and asked for \
         {added} more; none was added"
    )]
    TooMany {
        /// The maximum number of markets for the socket.
        markets_max: u32,
        /// Number of markets that the socket is subscribed to.
        subscribed: usize,
        /// Number of markets that the request would have added.
        added: usize,
    },
    /// A request for all markets on a socket whose tier has a limit.
    #[error("at most {markets_max} markets per socket in this tier: list their condition ids")]
    NotAll {
        /// The maximum number of markets for the socket.
        markets_max: u32,
    },
    /// A request to leave a single market on a socket subscribed to all.
    #[error("this socket has all markets: unsubscribe from * first")]
    NotOne,
    /// The server has reached [`SUBSCRIPTIONS_MAX`](super::bounds::SUBSCRIPTIONS_MAX).
    #[error("the server has reached its limit of subscriptions; none was added: try again later")]
    Full,
}

impl Subscriptions {
    pub(super) fn new(
        fanout: Arc<Fanout>,
        id: SocketId,
        markets_max: MarketsMax,
        turns: Arc<Turns>,
    ) -> Self {
        let slot_count = markets_max.count().map_or(SLOTS_MAX, |count| count as usize);
        Self {
            fanout,
            id,
            markets_max,
            mailbox: Arc::new(Mailbox::new(slot_count, turns)),
            cursor: Cursor::default(),
            put_back: Vec::new(),
            slots: Vec::new(),
            free_slots: Vec::new(),
            by_condition: HashTable::new(),
            hashes: RandomState::default(),
            joined: 0,
            all: None,
        }
    }

    /// Returns the mailbox that wakes the socket when a frame may be due.
    pub(super) fn mailbox(&self) -> &Arc<Mailbox> {
        &self.mailbox
    }

    /// Subscribes to these markets, except those that are not listed or already subscribed. Each
    /// new subscription has a frame due at once. Returns the ids that are not listed. Adds nothing
    /// if the total would exceed a limit.
    pub fn subscribe<'a>(
        &mut self,
        condition_ids: &'a [String],
        now: Timestamp,
    ) -> Result<Vec<&'a str>, SubscribeError> {
        let mut named = HashSet::<&str, RandomState>::default();
        let mut known = HashSet::<Arc<str>, RandomState>::default();
        let mut added: Vec<Arc<Market>> = Vec::new();
        let mut unknown = Vec::new();
        for id in condition_ids {
            if self.contains(id) || !named.insert(id) {
                continue;
            }
            // The id may be written differently from the one in the listing.
            match self.fanout.market(id) {
                Some(market) => {
                    let listed = market.info().condition_id.clone();
                    if !self.contains(&listed) && known.insert(listed) {
                        added.push(market);
                    }
                }
                None => unknown.push(id.as_str()),
            }
        }
        let subscribed = self.count();
        if let MarketsMax::Count(markets_max) = self.markets_max
            && subscribed + added.len() > markets_max as usize
        {
            return Err(SubscribeError::TooMany { markets_max, subscribed, added: added.len() });
        }
        if !self.fanout.reserve(added.len()) {
            return Err(SubscribeError::Full);
        }
        self.slots.reserve(added.len().saturating_sub(self.free_slots.len()));
        for market in added {
            self.join(&market, now);
        }
        Ok(unknown)
    }

    /// Subscribes to all markets, including those listed later.
    pub fn subscribe_all(&mut self) -> Result<(), SubscribeError> {
        if let MarketsMax::Count(markets_max) = self.markets_max {
            return Err(SubscribeError::NotAll { markets_max });
        }
        if self.all.is_none() {
            // Before the listing is read: markets listed or changed from here on are announced to
            // the socket.
            self.fanout.join_all(self.id, &self.mailbox);
            let rest = self.fanout.listing().markets().iter().rev().cloned().collect();
            self.all = Some(All { rest, lack: Lack::Never });
            self.mailbox.ask_turn();
        }
        Ok(())
    }

    /// Treats all frames up to this list of changes as sent. Markets unchanged since then are not
    /// due; changes of status or tick since then are announced.
    pub fn resume(&mut self, since: u64) {
        for Subscription { channel, sent, .. } in self.slots.iter_mut().flatten() {
            // The order of these reads matters: a frame published in between is due, and the
            // changes that the newest frame shows have already been recorded.
            let newest = channel.newest();
            let has_changed = channel.changed_in() > since;
            let (status, tick) = channel.missed_since(since);
            *sent = Some(Sent {
                seq: newest.seq - u64::from(has_changed),
                tick: tick.unwrap_or(newest.tick),
                status: status.unwrap_or(newest.status),
            });
        }
    }

    /// Returns the event id of the newest list of changes whose frames for this socket's markets
    /// have all been sent or are due.
    pub fn event_id(&self) -> EventId {
        let mut ids: Vec<&str> = self.condition_ids().collect();
        ids.sort_unstable();
        EventId::of(self.fanout.epoch(), &ids, self.fanout.passed_on())
    }

    /// Returns the number of the newest list of changes whose frames have all been sent or are due.
    pub fn passed_on(&self) -> u64 {
        self.fanout.passed_on()
    }

    /// Unsubscribes from these markets. Ignores those that are not subscribed.
    pub fn unsubscribe(&mut self, condition_ids: &[String]) -> Result<(), SubscribeError> {
        if self.all.is_some() && !condition_ids.is_empty() {
            return Err(SubscribeError::NotOne);
        }
        for id in condition_ids {
            if let Some(slot) = condition::find(id, |name| self.slot_of(name)) {
                self.leave(slot);
            }
        }
        Ok(())
    }

    /// Unsubscribes from every market.
    pub fn unsubscribe_all(&mut self) {
        if self.all.take().is_some() {
            self.fanout.leave_all(self.id);
            drop(self.mailbox.newcomers());
        }
        for slot in self.used_slots(|_| true) {
            self.leave(slot);
        }
    }

    /// Whether the socket is subscribed to all markets.
    pub const fn has_all(&self) -> bool {
        self.all.is_some()
    }

    /// Returns the number of subscribed markets.
    pub fn count(&self) -> usize {
        self.by_condition.len()
    }

    /// Whether this market is subscribed.
    pub fn contains(&self, condition_id: &str) -> bool {
        self.slot_of(condition_id).is_some()
    }

    /// Returns the condition ids of the subscribed markets, in the order of subscription.
    pub fn condition_ids(&self) -> impl Iterator<Item = &str> {
        let mut subscribed: Vec<&Subscription> = self.slots.iter().flatten().collect();
        subscribed.sort_unstable_by_key(|subscription| subscription.place);
        subscribed.into_iter().map(|subscription| subscription.channel.condition_id())
    }

    /// Whether a socket subscribed to all markets lacks some because the server had no room.
    /// Returns true only once.
    pub fn lacks_markets(&mut self) -> bool {
        let to_say = self.all.as_mut().filter(|all| all.lack == Lack::ToSay);
        let Some(all) = to_say else { return false };
        all.lack = Lack::Said;
        true
    }

    /// Takes the frames that are due, if it is the socket's turn, and passes them to `put` until
    /// that returns false because it has no more room. The rest then waits for another turn.
    /// Returns true only if it was the socket's turn and nothing is left.
    pub fn take_turn(&mut self, mut put: impl FnMut(&NextFrame) -> bool) -> bool {
        if !self.mailbox.take_turn() {
            return false;
        }
        while let Some(next) = self.next_frame() {
            if !put(&next) {
                self.mailbox.ask_turn();
                return false;
            }
        }
        true
    }

    /// Puts back a frame that the peer did not take. The market's newest frame becomes due instead,
    /// before all other frames. Frames must be put back in reverse order. If the market was left
    /// meanwhile, nothing becomes due, but a turn is asked for all the same.
    pub(super) fn put_back(&mut self, frame: &TakenFrame) {
        let TakenFrame { slot, place, before, conflated } = *frame;
        let subscription = self.slots[slot as usize].as_mut().filter(|it| it.place == place);
        if let Some(subscription) = subscription {
            subscription.sent = before;
            self.put_back.push(DueSlot { slot, is_counted: conflated });
        }
        self.mailbox.ask_turn();
    }

    /// Returns the newest frame of the next market that is due, or `None` if no market is due.
    /// Every due market gets its turn before any gets a second one.
    pub fn next_frame(&mut self) -> Option<NextFrame> {
        loop {
            let Some(DueSlot { slot, is_counted }) = self.next_slot() else {
                if self.join_next(Timestamp::now()) {
                    continue;
                }
                return None;
            };
            // The slot may have belonged to another market when it was marked. Or the frame was
            // already sent, since frames are published before the slot is marked.
            let subscription = self.slots.get_mut(slot as usize).and_then(Option::as_mut);
            let Some(next) = subscription.and_then(|it| it.next(slot)) else { continue };
            if next.conflated && !is_counted {
                self.fanout.note_conflated();
            }
            return Some(next);
        }
    }

    /// Returns a slot that may have a frame due: first those put back, then those marked.
    fn next_slot(&mut self) -> Option<DueSlot> {
        let Some(next) = self.put_back.pop() else {
            let slot = self.mailbox.next_slot(&mut self.cursor)?;
            return Some(DueSlot { slot, is_counted: false });
        };
        if self.put_back.is_empty() {
            // Most peers take everything from now on, so the memory is freed.
            self.put_back = Vec::new();
        }
        Some(next)
    }

    /// Joins the next market that a socket subscribed to all lacks. Returns whether it joined one.
    fn join_next(&mut self, now: Timestamp) -> bool {
        let Some(market) = self.next_lacking() else { return false };
        if self.count() == SLOTS_MAX || !self.fanout.reserve(1) {
            if let Some(all) = &mut self.all {
                all.rest = Vec::new();
                if all.lack == Lack::Never {
                    all.lack = Lack::ToSay;
                }
            }
            return false;
        }
        self.join(&market, now);
        true
    }

    /// Returns the next market to join, for a socket subscribed to all.
    fn next_lacking(&mut self) -> Option<Arc<Market>> {
        loop {
            let all = self.all.as_mut()?;
            if all.rest.is_empty() {
                all.rest.extend(self.mailbox.newcomers());
                if all.rest.is_empty() {
                    return None;
                }
                self.leave_unlisted();
                continue;
            }
            let market = all.rest.pop()?;
            let condition_id = &market.info().condition_id;
            // A market that was delisted meanwhile would otherwise be joined and left over and
            // over.
            if !self.contains(condition_id) && self.fanout.market(condition_id).is_some() {
                return Some(market);
            }
        }
    }

    /// Leaves the markets that are no longer listed, once they outnumber the others.
    fn leave_unlisted(&mut self) {
        let listing = self.fanout.listing();
        if self.count() <= 2 * listing.markets().len() {
            return;
        }
        for slot in self.used_slots(|id| listing.by_condition(id).is_none()) {
            self.leave(slot);
        }
    }

    /// Returns the slots of the markets whose condition id satisfies `is_wanted`.
    fn used_slots(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<u32> {
        let slots = self.by_condition.iter().copied();
        slots.filter(|&slot| is_wanted(condition_id(&self.slots, slot))).collect()
    }

    /// Returns the slot of a market, if it is subscribed.
    fn slot_of(&self, id: &str) -> Option<u32> {
        let is_it = |&slot: &u32| condition_id(&self.slots, slot) == id;
        self.by_condition.find(self.hashes.hash_one(id), is_it).copied()
    }

    /// Joins a market's channel. The subscription must have been reserved.
    fn join(&mut self, market: &Arc<Market>, now: Timestamp) {
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("a mailbox has fewer slots")
        });
        let channel = self.fanout.join(market, &self.mailbox, slot, now);
        let subscription = Subscription { channel, place: self.joined, sent: None };
        self.slots[slot as usize] = Some(subscription);
        self.joined += 1;
        let hash = |&slot: &u32| self.hashes.hash_one(condition_id(&self.slots, slot));
        self.by_condition.insert_unique(hash(&slot), slot, hash);
    }

    fn leave(&mut self, slot: u32) {
        // The table hashes and compares through `slots`, so the entry must be removed before the
        // slot is emptied.
        let hash = self.hashes.hash_one(condition_id(&self.slots, slot));
        let entry = self.by_condition.find_entry(hash, |&other| other == slot);
        entry.expect("a slot in use is in the table").remove();
        let subscription = self.slots[slot as usize].take().expect("the slot is in use");
        self.fanout.leave(&subscription.channel, &self.mailbox, slot);
        self.free_slots.push(slot);
    }
}

/// Returns the condition id of the market in a slot that is in use.
fn condition_id(slots: &[Option<Subscription>], slot: u32) -> &str {
    slots[slot as usize].as_ref().expect("the slot is in use").channel.condition_id()
}

impl Subscription {
    fn next(&mut self, slot: u32) -> Option<NextFrame> {
        let frame = self.channel.newest();
        let newest = Sent::of(&frame);
        let (conflated, tick_change, has_ended) = match &self.sent {
            Some(sent) if newest.seq <= sent.seq => return None,
            Some(sent) => {
                let change = || TickChange { info: self.channel.info(), before: sent.tick };
                let tick_change = (frame.tick != sent.tick).then(change);
                (frame.seq > sent.seq + 1, tick_change, frame.status != sent.status)
            }
            None => (false, None, false),
        };
        let (place, before) = (self.place, self.sent.replace(newest));
        Some(NextFrame { frame, conflated, tick_change, has_ended, slot, place, before })
    }
}

impl Sent {
    fn of(frame: &PriceFrame) -> Self {
        Self { seq: frame.seq, tick: frame.tick, status: frame.status }
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        self.unsubscribe_all();
        self.fanout.close();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::ws::bounds::SUBSCRIPTIONS_MAX;
    use crate::ws::fanout::tests::{due, fanout, info, list, name, open_for_all, pass_on, publish};

    /// Joins a market that is not listed, as if it had been delisted since.
    fn join_unlisted(fanout: &Fanout, socket: &mut Subscriptions, market: usize) {
        let gone = Arc::new(Market::new(info(market)));
        assert!(fanout.reserve(1));
        socket.join(&gone, Timestamp::EPOCH);
    }

    #[test]
    fn a_socket_with_all_markets_leaves_those_that_are_no_longer_listed() {
        let fanout = fanout(1);
        let mut socket = open_for_all(&fanout);
        socket.subscribe_all().unwrap();
        assert_eq!(due(&mut socket), [0]);
        for market in 1..4 {
            join_unlisted(&fanout, &mut socket, market);
        }
        assert_eq!(due(&mut socket), [1, 2, 3]);
        assert!(socket.condition_ids().eq([name(0)]));
        assert_eq!((fanout.channel_count(), fanout.subscription_count()), (1, 1));
    }

    /// A frame is not put back if its market was left while the frame waited to be written, even if
    /// another market has the slot now.
    #[test]
    fn a_frame_may_be_put_back_after_its_market_was_left() {
        let fanout = fanout(1);
        let mut socket = open_for_all(&fanout);
        socket.subscribe_all().unwrap();
        due(&mut socket);
        for market in 1..5 {
            join_unlisted(&fanout, &mut socket, market);
        }
        list(&fanout, 5);
        publish(&fanout, 5, 1);
        pass_on(&fanout);
        let frames: Vec<_> = std::iter::from_fn(|| socket.next_frame()).collect();
        assert_eq!(frames.len(), 5);
        assert!(socket.condition_ids().eq([name(0), name(5)]), "the others were left meanwhile");
        let (newest, left) = frames.split_last().unwrap();
        for frame in left.iter().rev() {
            socket.put_back(&frame.taken());
        }
        assert_eq!(due(&mut socket), [0; 0]);
        socket.put_back(&newest.taken());
        assert_eq!(due(&mut socket), [5]);
    }

    #[test]
    fn a_socket_with_all_markets_says_once_that_it_lacks_some() {
        let fanout = fanout(3);
        let mut socket = open_for_all(&fanout);
        fanout.subscription_count.store(SUBSCRIPTIONS_MAX - 1, Ordering::Relaxed);
        socket.subscribe_all().unwrap();
        for is_said in [true, false, false] {
            // Each change of a market that the socket lacks makes it try again.
            publish(&fanout, 2, 1);
            pass_on(&fanout);
            due(&mut socket);
            assert_eq!(socket.lacks_markets(), is_said);
        }
        socket.unsubscribe_all();
        socket.subscribe_all().unwrap();
        due(&mut socket);
        assert!(socket.lacks_markets(), "it is said to each subscription");
    }
}
