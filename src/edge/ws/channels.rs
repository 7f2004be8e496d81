//! Channels: what is newest of each subscribed market, and the sockets that are to send it. In this
//! module, "socket" also stands for a stream.
//!
//! A channel exists from the market's first subscription to its last. A market's frame numbers rise
//! by one while its channel exists and never fall during the life of the process: a new channel
//! starts above the highest number at which any channel ended.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::dirty::{Cursor, DirtySet};
use super::turns::{Place, Turns};
use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::Market;
use paperbourse_core::market::catalogue::{MarketInfo, MarketStatus};
use paperbourse_core::money::Price;

pub(super) type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// What a channel sends of its market.
pub(super) trait Frame: Sized {
    /// Encodes the frame after this one, whose number is one higher; `None` if readers would see no
    /// difference.
    fn next(&self, market: &Arc<Market>, now: Timestamp) -> Option<Self>;

    /// Returns the number of the frame.
    fn seq(&self) -> u64;
}

/// The channels of all markets that sockets of one kind are subscribed to.
pub(super) struct Channels<F> {
    open: Mutex<Map<Arc<str>, Arc<Channel<F>>>>,
    /// The highest frame number of any channel that has ended.
    seq_floor: AtomicU64,
}

impl<F> Default for Channels<F> {
    fn default() -> Self {
        Self { open: Mutex::default(), seq_floor: AtomicU64::new(0) }
    }
}

/// One market's newest frame and its subscribers.
pub(super) struct Channel<F> {
    condition_id: Arc<str>,
    market: Arc<Market>,
    newest: ArcSwap<F>,
    subscribers: Mutex<Subscribers>,
}

/// A channel's subscribers. Frames are numbered under this lock, so that a higher number never
/// belongs to an older snapshot.
#[derive(Default)]
struct Subscribers {
    /// In the order of joining, except that the last subscriber takes the place of one that leaves.
    /// Subscribers allocated together are therefore mostly visited together.
    list: Vec<Subscriber>,
    /// Set when the last subscriber has left. The channel is about to be removed and must not be
    /// joined.
    ended: bool,
}

struct Subscriber {
    mailbox: Arc<Mailbox>,
    slot: u32,
}

/// The updates that a socket has not taken yet.
pub(super) struct Mailbox {
    /// The slots of the markets that have an unseen frame.
    dirty: DirtySet,
    /// The socket's index among the subscribers of each slot's market.
    places: Mutex<Vec<u32>>,
    /// The markets to join, for a socket subscribed to all. Bounded by the number of listed
    /// markets.
    newcomers: Mutex<Map<Arc<str>, Arc<Market>>>,
    turns: Arc<Turns>,
    place: Arc<Place>,
}

impl<F: Frame> Channels<F> {
    /// Returns the number of markets with subscribers.
    pub(super) fn count(&self) -> usize {
        self.open.lock().len()
    }

    /// Returns the channel of this market, if it has subscribers.
    pub(super) fn of(&self, condition_id: &str) -> Option<Arc<Channel<F>>> {
        self.open.lock().get(condition_id).cloned()
    }

    /// Adds a socket to the market's channel. If there is none, it is made: `first` encodes its
    /// first frame, given the frame's number, and then `made` is called. The socket's first frame
    /// shows the market's current state.
    pub(super) fn join(
        &self,
        market: &Arc<Market>,
        (mailbox, slot): (&Arc<Mailbox>, u32),
        first: impl Fn(u64) -> F,
        made: impl Fn(),
    ) -> Arc<Channel<F>> {
        loop {
            let channel = self.channel(market, &first, &made);
            let mut subscribers = channel.subscribers.lock();
            // The channel ended after it was found. Help to remove it, so that the next try creates
            // another.
            if subscribers.ended {
                drop(subscribers);
                self.forget(&channel);
                continue;
            }
            let place = u32::try_from(subscribers.list.len()).expect("there are fewer readers");
            mailbox.set_place(slot, place);
            subscribers.list.push(Subscriber { mailbox: mailbox.clone(), slot });
            drop(subscribers);
            mailbox.mark(slot);
            return channel;
        }
    }

    /// Removes a socket from a channel. The last socket to leave ends the channel. After this call,
    /// nothing marks the socket's slot for this market.
    pub(super) fn leave(&self, channel: &Arc<Channel<F>>, mailbox: &Arc<Mailbox>, slot: u32) {
        let mut subscribers = channel.subscribers.lock();
        let place = mailbox.place(slot);
        let left = subscribers.list.swap_remove(place as usize);
        let is_it = Arc::ptr_eq(&left.mailbox, mailbox) && left.slot == slot;
        assert!(is_it, "a socket leaves a channel that it joined");
        if let Some(moved) = subscribers.list.get(place as usize) {
            moved.mailbox.set_place(moved.slot, place);
        }
        if subscribers.list.is_empty() {
            // Raised before the channel can be seen as ended, since the next channel starts above
            // this number.
            self.seq_floor.fetch_max(channel.newest.load().seq(), Ordering::AcqRel);
            subscribers.ended = true;
            drop(subscribers);
            self.forget(channel);
        }
    }

    fn channel(
        &self,
        market: &Arc<Market>,
        first: impl Fn(u64) -> F,
        made: impl Fn(),
    ) -> Arc<Channel<F>> {
        let condition_id = market.info().condition_id.clone();
        let mut channels = self.open.lock();
        if let Some(channel) = channels.get(&condition_id) {
            return channel.clone();
        }
        // Whoever publishes a change takes the same lock to find the channel. So it finds this
        // channel, or its change is already in this frame.
        let seq = self.seq_floor.load(Ordering::Acquire) + 1;
        let first = first(seq);
        let channel = Arc::new(Channel {
            condition_id: condition_id.clone(),
            market: market.clone(),
            newest: ArcSwap::from_pointee(first),
            subscribers: Mutex::default(),
        });
        channels.insert(condition_id, channel.clone());
        drop(channels);
        made();
        channel
    }

    /// Removes an ended channel from the map, unless a new one has already taken its place.
    fn forget(&self, channel: &Arc<Channel<F>>) {
        let mut channels = self.open.lock();
        let current = channels.get(&channel.condition_id);
        if current.is_some_and(|current| Arc::ptr_eq(current, channel)) {
            channels.remove(&channel.condition_id);
        }
    }
}

impl<F: Frame> Channel<F> {
    /// Returns the market's condition id.
    pub(super) fn condition_id(&self) -> &str {
        &self.condition_id
    }

    /// Returns the market's newest frame, at most one step of the fan-out behind.
    pub(super) fn newest(&self) -> Arc<F> {
        self.newest.load_full()
    }

    /// Returns the number of the last list of changes that included the market.
    pub(super) fn changed_in(&self) -> u64 {
        self.market.changed_in()
    }

    /// See [`Market::missed_since`].
    pub(super) fn missed_since(&self, since: u64) -> (Option<MarketStatus>, Option<Price>) {
        self.market.missed_since(since)
    }

    /// Returns the market.
    pub(super) const fn market(&self) -> &Arc<Market> {
        &self.market
    }

    /// Returns the market's current description.
    pub(super) fn info(&self) -> Arc<MarketInfo> {
        self.market.info().clone()
    }

    /// Publishes the market's current state, if it differs from the newest frame.
    pub(super) fn refresh(&self, now: Timestamp) {
        let subscribers = self.subscribers.lock();
        // Encoded under the lock of the subscribers, so that frames are numbered in the order of
        // their snapshots.
        let Some(frame) = self.newest.load().next(&self.market, now) else { return };
        self.newest.store(Arc::new(frame));
        for subscriber in &subscribers.list {
            subscriber.mailbox.mark(subscriber.slot);
        }
    }

    /// Returns the number of subscribers.
    #[cfg(test)]
    pub(super) fn subscriber_count(&self) -> usize {
        self.subscribers.lock().list.len()
    }
}

impl Mailbox {
    /// Creates an empty mailbox for this many markets.
    pub(super) fn new(slot_count: usize, turns: Arc<Turns>) -> Self {
        let dirty = DirtySet::new(slot_count);
        let (places, newcomers) = (Mutex::default(), Mutex::default());
        Self { dirty, places, newcomers, turns, place: Arc::default() }
    }

    /// Returns the socket's index among the subscribers of this slot's market.
    fn place(&self, slot: u32) -> u32 {
        self.places.lock()[slot as usize]
    }

    fn set_place(&self, slot: u32, place: u32) {
        let (mut places, slot) = (self.places.lock(), slot as usize);
        if places.len() <= slot {
            places.resize(slot + 1, 0);
        }
        places[slot] = place;
    }

    /// Marks a slot, and asks for a turn if the set of marked slots was empty.
    pub(super) fn mark(&self, slot: u32) {
        // The frame was stored before this, so a reader of the slot sees that frame or a newer
        // one.
        if self.dirty.mark(slot as usize) {
            self.ask_turn();
        }
    }

    /// Asks for a turn, unless the socket is already queued for one or has been given one.
    pub(super) fn ask_turn(&self) {
        self.turns.ask(&self.place);
    }

    /// Takes the socket's turn, and returns whether there was one. During a turn, the socket must
    /// take all of its slots or ask for another turn.
    pub(super) fn take_turn(&self) -> bool {
        let has_turn = self.place.take_turn();
        if has_turn {
            self.turns.note_turn();
        }
        has_turn
    }

    /// Gives the next round of turns. Returns whether there were any.
    #[cfg(test)]
    pub(super) fn give_turn(&self) -> bool {
        self.turns.give() > 0
    }

    /// Returns the notification that wakes the socket.
    pub(super) fn wake_up(&self) -> &Arc<Notify> {
        self.place.wake_up()
    }

    /// Takes the next marked slot.
    pub(super) fn next_slot(&self, cursor: &mut Cursor) -> Option<u32> {
        self.dirty.next(cursor).map(|slot| u32::try_from(slot).expect("there are fewer slots"))
    }

    /// Announces a market to a socket subscribed to all markets, which may have joined it already.
    pub(super) fn announce(&self, market: &Arc<Market>) {
        self.newcomers.lock().insert(market.info().condition_id.clone(), market.clone());
        self.ask_turn();
    }

    /// Takes the newly announced markets. The socket may already have joined some of them.
    pub(super) fn newcomers(&self) -> impl Iterator<Item = Arc<Market>> + use<> {
        std::mem::take(&mut *self.newcomers.lock()).into_values()
    }
}
