//! Sends each market's prices to every subscribed socket and stream. In this module, "socket"
//! stands for both.
//!
//! A subscribed market has a channel. When the market changes, its frame is encoded once and
//! published on the channel, and its slot is marked in the mailbox of each subscribed socket, which
//! asks for a [turn](super::turns) at the first mark. In its turn, the socket takes its slots and
//! sends the newest frame of each market. Frames that it was too slow for are not kept anywhere. So
//! a slow reader costs no more than a fast one, and the fan-out never waits for a socket.
//!
//! A socket that is subscribed to all markets joins their channels one at a time, as its reader
//! takes what was sent. A market without a channel is announced to the socket when that market
//! changes.
//!
//! A channel exists from the market's first subscription to its last. A market's frame numbers rise
//! by one while its channel exists and never fall during the life of the process: a new channel
//! starts above the highest number at which any channel ended.
//!
//! Nothing here depends on how a socket writes; [`super::subscriptions`] is the socket's side.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::bounds::{READERS_MAX, SUBSCRIPTIONS_MAX};
use super::dirty::{Cursor, DirtySet};
use super::price_frame::PriceFrame;
use super::subscriptions::Subscriptions;
use super::turns::{Place, Turns};
use paperbourse_core::ids::Timestamp;
use paperbourse_core::limits::tier::MarketsMax;
use paperbourse_core::market::catalogue::{MarketInfo, MarketStatus};
use paperbourse_core::market::{Listing, Market, Markets};
use paperbourse_core::money::Price;

/// Number of markets after which the fan-out yields to other tasks of its thread.
const MARKETS_PER_TURN: usize = 128;

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// The channels of all subscribed markets.
pub struct Fanout {
    markets: Arc<Markets>,
    /// Identifies this fan-out, so that event ids of an earlier process do not apply.
    epoch: u128,
    /// The round of the newest list of changes whose frames have all been published.
    passed_on: AtomicU64,
    channels: Mutex<Map<Arc<str>, Arc<Channel>>>,
    /// The highest frame number of any channel that has ended.
    seq_floor: AtomicU64,
    socket_count: AtomicUsize,
    pub(super) subscription_count: AtomicUsize,
    /// The sockets subscribed to all markets.
    all: Mutex<Map<SocketId, Arc<Mailbox>>>,
    next_socket_id: AtomicU64,
    /// Number of frames sent that each replaced several.
    conflated: AtomicU64,
}

/// One market's newest frame and its subscribers.
pub(super) struct Channel {
    condition_id: Arc<str>,
    market: Arc<Market>,
    newest: ArcSwap<PriceFrame>,
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

/// Identifies a socket for the life of the process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct SocketId(u64);

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

impl Fanout {
    /// Creates a fan-out of these markets, without sockets.
    pub fn new(markets: Arc<Markets>) -> Self {
        let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
            markets,
            epoch: epoch.as_nanos(),
            passed_on: AtomicU64::new(0),
            channels: Mutex::default(),
            seq_floor: AtomicU64::new(0),
            socket_count: AtomicUsize::new(0),
            subscription_count: AtomicUsize::new(0),
            all: Mutex::default(),
            next_socket_id: AtomicU64::new(0),
            conflated: AtomicU64::new(0),
        }
    }

    /// Publishes market changes forever. Must be run by one task only, since it consumes the list
    /// of changes.
    pub async fn run(&self) -> std::convert::Infallible {
        loop {
            let changed = self.markets.changes().await;
            for (index, market) in changed.iter().enumerate() {
                if index > 0 && index % MARKETS_PER_TURN == 0 {
                    tokio::task::yield_now().await;
                }
                self.pass_on(market, Timestamp::now());
            }
            // Stored after the frames are published, so that whoever reads the number finds all of
            // them, and before the yield, so that it is set before any reader on this thread runs.
            self.passed_on.store(self.markets.round(), Ordering::Release);
            tokio::task::yield_now().await;
        }
    }

    /// Returns the round of the newest list of changes whose frames have all been published. A
    /// reader that calls this and then takes all of its pending frames has every change up to that
    /// round.
    pub(super) fn passed_on(&self) -> u64 {
        self.passed_on.load(Ordering::Acquire)
    }

    /// Returns the identity of this fan-out, which differs from that of earlier processes.
    pub(super) const fn epoch(&self) -> u128 {
        self.epoch
    }

    /// Encodes a market's frame and notifies the market's subscribers. A market without a channel
    /// is announced to the sockets subscribed to all markets.
    fn pass_on(&self, market: &Arc<Market>, now: Timestamp) {
        let channel = self.channels.lock().get(&market.info().condition_id).cloned();
        match channel {
            Some(channel) => channel.refresh(now),
            None => self.announce(market),
        }
    }

    /// Announces a market to the sockets subscribed to all markets, which may not have joined it
    /// yet.
    fn announce(&self, market: &Arc<Market>) {
        for mailbox in self.all.lock().values() {
            let condition_id = market.info().condition_id.clone();
            mailbox.newcomers.lock().insert(condition_id, market.clone());
            mailbox.ask_turn();
        }
    }

    /// Opens the subscriptions of a new socket with this limit of markets. The socket shares
    /// `turns` with the other sockets of its worker. `None` if [`READERS_MAX`] sockets are open.
    pub fn open(
        self: &Arc<Self>,
        markets_max: MarketsMax,
        turns: &Arc<Turns>,
    ) -> Option<Subscriptions> {
        let count = self.socket_count.fetch_add(1, Ordering::Relaxed);
        if count >= READERS_MAX {
            self.socket_count.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let id = SocketId(self.next_socket_id.fetch_add(1, Ordering::Relaxed));
        Some(Subscriptions::new(self.clone(), id, markets_max, turns.clone()))
    }

    /// Returns the number of sockets and streams that receive prices.
    pub fn socket_count(&self) -> usize {
        self.socket_count.load(Ordering::Relaxed)
    }

    /// Returns the number of subscriptions of all sockets and streams.
    pub fn subscription_count(&self) -> usize {
        self.subscription_count.load(Ordering::Relaxed)
    }

    /// Returns the number of frames sent in place of several because the reader or the server was
    /// busy.
    pub fn conflated_count(&self) -> u64 {
        self.conflated.load(Ordering::Relaxed)
    }

    pub(super) fn note_conflated(&self) {
        self.conflated.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of markets with subscribers.
    pub fn channel_count(&self) -> usize {
        self.channels.lock().len()
    }

    /// Returns the market with this condition id, if it is listed.
    pub(super) fn market(&self, condition_id: &str) -> Option<Arc<Market>> {
        self.markets.by_condition(condition_id)
    }

    /// Returns the listed markets, the most traded first.
    pub(super) fn listing(&self) -> Arc<Listing> {
        self.markets.listing().clone()
    }

    /// Reserves this many subscriptions. Returns false, reserving none, if the limit would be
    /// exceeded.
    pub(super) fn reserve(&self, count: usize) -> bool {
        let grown = |used: usize| used.checked_add(count).filter(|&sum| sum <= SUBSCRIPTIONS_MAX);
        self.subscription_count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok()
    }

    /// Starts announcing markets without a channel to the socket.
    pub(super) fn join_all(&self, socket: SocketId, mailbox: &Arc<Mailbox>) {
        self.all.lock().insert(socket, mailbox.clone());
    }

    /// Undoes [`join_all`](Self::join_all).
    pub(super) fn leave_all(&self, socket: SocketId) {
        self.all.lock().remove(&socket);
    }

    /// Adds a socket to the market's channel. The socket's first frame shows the market's current
    /// state. Uses one of the [reserved](Self::reserve) subscriptions.
    pub(super) fn join(
        &self,
        market: &Arc<Market>,
        mailbox: &Arc<Mailbox>,
        slot: u32,
        now: Timestamp,
    ) -> Arc<Channel> {
        loop {
            let channel = self.channel(market, now);
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
    pub(super) fn leave(&self, channel: &Arc<Channel>, mailbox: &Arc<Mailbox>, slot: u32) {
        let mut subscribers = channel.subscribers.lock();
        let place = mailbox.place(slot);
        let left = subscribers.list.swap_remove(place as usize);
        let is_it = Arc::ptr_eq(&left.mailbox, mailbox) && left.slot == slot;
        assert!(is_it, "a socket leaves a channel that it joined");
        if let Some(moved) = subscribers.list.get(place as usize) {
            moved.mailbox.set_place(moved.slot, place);
        }
        let before = self.subscription_count.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "every subscription was reserved");
        if subscribers.list.is_empty() {
            // Raised before the channel can be seen as ended, since the next channel starts above
            // this number.
            self.seq_floor.fetch_max(channel.newest.load().seq, Ordering::AcqRel);
            subscribers.ended = true;
            drop(subscribers);
            self.forget(channel);
        }
    }

    /// Called last when a socket ends.
    pub(super) fn close(&self) {
        let before = self.socket_count.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "every socket was counted when it was opened");
    }

    fn channel(&self, market: &Arc<Market>, now: Timestamp) -> Arc<Channel> {
        let condition_id = market.info().condition_id.clone();
        let mut channels = self.channels.lock();
        if let Some(channel) = channels.get(&condition_id) {
            return channel.clone();
        }
        // `pass_on` takes the same lock to find the channel. So it finds this channel, or the
        // change that it publishes is already in this snapshot.
        let seq = self.seq_floor.load(Ordering::Acquire) + 1;
        let first = PriceFrame::encode(&market.snapshot(), seq, now);
        let channel = Arc::new(Channel {
            condition_id: condition_id.clone(),
            market: market.clone(),
            newest: ArcSwap::from_pointee(first),
            subscribers: Mutex::default(),
        });
        channels.insert(condition_id, channel.clone());
        drop(channels);
        // From now on the market's changes go to its channel and are no longer announced, so the
        // sockets that have not joined it are told now.
        self.announce(market);
        channel
    }

    /// Removes an ended channel from the map, unless a new one has already taken its place.
    fn forget(&self, channel: &Arc<Channel>) {
        let mut channels = self.channels.lock();
        let current = channels.get(&channel.condition_id);
        if current.is_some_and(|current| Arc::ptr_eq(current, channel)) {
            channels.remove(&channel.condition_id);
        }
    }
}

impl Channel {
    /// Returns the market's condition id.
    pub(super) fn condition_id(&self) -> &str {
        &self.condition_id
    }

    /// Returns the market's newest frame, at most one step of the fan-out behind.
    pub(super) fn newest(&self) -> Arc<PriceFrame> {
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

    /// Returns the market's current description.
    pub(super) fn info(&self) -> Arc<MarketInfo> {
        self.market.info().clone()
    }

    fn refresh(&self, now: Timestamp) {
        let subscribers = self.subscribers.lock();
        // Encoded under the lock of the subscribers, so that frames are numbered in the order of
        // their snapshots.
        let seq = self.newest.load().seq + 1;
        let frame = PriceFrame::encode(&self.market.snapshot(), seq, now);
        self.newest.store(Arc::new(frame));
        for subscriber in &subscribers.list {
            subscriber.mailbox.mark(subscriber.slot);
        }
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
    fn mark(&self, slot: u32) {
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
    fn give_turn(&self) -> bool {
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

    /// Takes the newly announced markets. The socket may already have joined some of them.
    pub(super) fn newcomers(&self) -> impl Iterator<Item = Arc<Market>> + use<> {
        std::mem::take(&mut *self.newcomers.lock()).into_values()
    }
}

#[cfg(test)]
pub(super) mod tests;
