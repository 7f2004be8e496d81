//! Sends each market's prices to every subscribed socket and stream. In this module, "socket"
//! stands for both.
//!
//! A subscribed market has a [channel](super::channels). When the market changes, its frame is
//! encoded once and published on the channel, and its slot is marked in the mailbox of each
//! subscribed socket, which asks for a [turn](super::turns) at the first mark. In its turn, the
//! socket takes its slots and sends the newest frame of each market. Frames that it was too slow
//! for are not kept anywhere. So a slow reader costs no more than a fast one, and the fan-out never
//! waits for a socket.
//!
//! A socket that is subscribed to all markets joins their channels one at a time, as its reader
//! takes what was sent. A market without a channel is announced to the socket when that market
//! changes.
//!
//! Nothing here depends on how a socket writes; [`super::subscriptions`] is the socket's side.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::SystemTime;

use parking_lot::Mutex;

use super::bounds::{READERS_MAX, SUBSCRIPTIONS_MAX};
use super::channels::{Channel, Channels, Frame, Mailbox, Map};
use super::clob_channels::ClobChannels;
use super::price_frame::PriceFrame;
use super::subscriptions::Subscriptions;
use super::turns::Turns;
use paperbourse_core::ids::Timestamp;
use paperbourse_core::limits::tier::MarketsMax;
use paperbourse_core::market::{Listing, Market, Markets};

/// Number of markets after which the fan-out yields to other tasks of its thread.
const MARKETS_PER_TURN: usize = 128;

/// The channels of all subscribed markets.
pub struct Fanout {
    markets: Arc<Markets>,
    /// Identifies this fan-out, so that event ids of an earlier process do not apply.
    epoch: u128,
    /// The round of the newest list of changes whose frames have all been published.
    passed_on: AtomicU64,
    channels: Channels<PriceFrame>,
    /// What the venue's market sockets send.
    clob: ClobChannels,
    socket_count: AtomicUsize,
    pub(super) subscription_count: AtomicUsize,
    /// The sockets subscribed to all markets.
    all: Mutex<Map<SocketId, Arc<Mailbox>>>,
    next_socket_id: AtomicU64,
    /// Number of frames sent that each replaced several.
    conflated: AtomicU64,
}

/// Identifies a socket for the life of the process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct SocketId(u64);

impl Fanout {
    /// Creates a fan-out of these markets, without sockets.
    pub fn new(markets: Arc<Markets>) -> Self {
        let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
            markets,
            epoch: epoch.as_nanos(),
            passed_on: AtomicU64::new(0),
            channels: Channels::default(),
            clob: ClobChannels::default(),
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
            self.clob.announce(&self.markets, Timestamp::now());
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
        let channel = self.channels.of(&market.info().condition_id);
        match channel {
            Some(channel) => channel.refresh(now),
            None => self.announce(market),
        }
        self.clob.pass_on(market, now);
    }

    /// Tells the venue's market sockets that the tick of a market is shown differently from now on.
    pub(crate) fn show_tick(&self, condition_id: &str, now: Timestamp) {
        if let Some(market) = self.market(condition_id) {
            self.clob.pass_on(&market, now);
        }
    }

    /// Announces a market to the sockets subscribed to all markets, which may not have joined it
    /// yet.
    fn announce(&self, market: &Arc<Market>) {
        for mailbox in self.all.lock().values() {
            mailbox.announce(market);
        }
    }

    /// Opens the subscriptions of a new socket with this limit of markets. The socket shares
    /// `turns` with the other sockets of its worker. `None` if [`READERS_MAX`] sockets are open.
    pub fn open(
        self: &Arc<Self>,
        markets_max: MarketsMax,
        turns: &Arc<Turns>,
    ) -> Option<Subscriptions> {
        let id = self.count_socket()?;
        Some(Subscriptions::new(self.clone(), id, markets_max, turns.clone()))
    }

    /// Counts a new socket, which must be [closed](Self::close) when it ends. `None` if
    /// [`READERS_MAX`] sockets are open.
    pub(super) fn count_socket(&self) -> Option<SocketId> {
        let count = self.socket_count.fetch_add(1, Ordering::Relaxed);
        if count >= READERS_MAX {
            self.socket_count.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(SocketId(self.next_socket_id.fetch_add(1, Ordering::Relaxed)))
    }

    /// Returns the channels of the venue's market sockets.
    pub(super) const fn clob(&self) -> &ClobChannels {
        &self.clob
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
        self.channels.count()
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
    ) -> Arc<Channel<PriceFrame>> {
        // From then on the market's changes go to its channel and are no longer announced, so the
        // sockets that have not joined it are told now.
        let first = |seq| PriceFrame::encode(&market.snapshot(), seq, now);
        self.channels.join(market, (mailbox, slot), first, || self.announce(market))
    }

    /// Removes a socket from a channel. After this call, nothing marks the socket's slot for this
    /// market.
    pub(super) fn leave(
        &self,
        channel: &Arc<Channel<PriceFrame>>,
        mailbox: &Arc<Mailbox>,
        slot: u32,
    ) {
        self.channels.leave(channel, mailbox, slot);
        self.release();
    }

    /// Gives back a [reserved](Self::reserve) subscription.
    pub(super) fn release(&self) {
        let before = self.subscription_count.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "every subscription was reserved");
    }

    /// Called last when a socket ends.
    pub(super) fn close(&self) {
        let before = self.socket_count.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "every socket was counted when it was opened");
    }
}

impl Frame for PriceFrame {
    fn next(&self, market: &Arc<Market>, now: Timestamp) -> Option<Self> {
        Some(Self::encode(&market.snapshot(), self.seq + 1, now))
    }

    fn seq(&self) -> u64 {
        self.seq
    }
}

#[cfg(test)]
pub(super) mod tests;
