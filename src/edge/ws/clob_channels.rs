//! The channels of the venue's market sockets, and what is announced to all of them: new markets.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::channels::{Channel, Channels, Mailbox, Map};
use super::clob_market_events::put_new_market;
use super::clob_market_frame::ClobFrame;
use super::fanout::SocketId;
use crate::trouble::MaybeTrouble;
use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::{Market, Markets};

/// Maximum number of announcements that are kept for sockets that have not sent them yet.
const ANNOUNCEMENTS_KEPT_MAX: usize = 256;

/// The channels of all markets that the venue's market sockets follow.
#[derive(Default)]
pub(super) struct ClobChannels {
    channels: Channels<ClobFrame>,
    announcements: Mutex<Announcements>,
    /// Whether new markets are to be announced: set once a socket wants them.
    is_announcing: AtomicBool,
}

#[derive(Default)]
struct Announcements {
    /// The number of the next announcement.
    end: u64,
    /// Complete socket frames, oldest first.
    list: VecDeque<Box<[u8]>>,
    /// The sockets that want them.
    sockets: Map<SocketId, Arc<Mailbox>>,
}

impl ClobChannels {
    /// Publishes a change of a market to the sockets that follow it.
    pub(super) fn pass_on(&self, market: &Arc<Market>, now: Timestamp) {
        if let Some(channel) = self.channels.of(&market.info().condition_id) {
            channel.refresh(now);
        }
    }

    /// Adds a socket to the market's channel. All sockets of a server have the same `trouble`.
    pub(super) fn join(
        &self,
        market: &Arc<Market>,
        place: (&Arc<Mailbox>, u32),
        trouble: &MaybeTrouble,
        now: Timestamp,
    ) -> Arc<Channel<ClobFrame>> {
        let first = |seq| ClobFrame::first(market, seq, trouble.clone(), now);
        self.channels.join(market, place, first, || {})
    }

    /// Removes a socket from a channel.
    pub(super) fn leave(
        &self,
        channel: &Arc<Channel<ClobFrame>>,
        (mailbox, slot): (&Arc<Mailbox>, u32),
    ) {
        self.channels.leave(channel, mailbox, slot);
    }

    /// Starts announcing new markets to a socket. Returns the number of the next announcement.
    pub(super) fn follow_announcements(&self, socket: SocketId, mailbox: &Arc<Mailbox>) -> u64 {
        let mut announcements = self.announcements.lock();
        announcements.sockets.insert(socket, mailbox.clone());
        self.is_announcing.store(true, Ordering::Release);
        announcements.end
    }

    /// Undoes [`follow_announcements`](Self::follow_announcements).
    pub(super) fn leave_announcements(&self, socket: SocketId) {
        self.announcements.lock().sockets.remove(&socket);
    }

    /// Announces the markets that were listed since the last call.
    pub(super) fn announce(&self, markets: &Markets, now: Timestamp) {
        if !self.is_announcing.load(Ordering::Acquire) {
            return;
        }
        let listed = markets.newly_listed();
        if listed.is_empty() {
            return;
        }
        let mut announcements = self.announcements.lock();
        let Announcements { end, list, sockets } = &mut *announcements;
        for market in &listed {
            let mut text = Vec::new();
            put_new_market(&mut text, &market.info(), now);
            *end += 1;
            list.push_back(text.into());
            if list.len() > ANNOUNCEMENTS_KEPT_MAX {
                list.pop_front();
            }
        }
        for mailbox in sockets.values() {
            mailbox.ask_turn();
        }
    }

    /// Adds the announcements from this number on. Returns the number of the next one.
    pub(super) fn put_announcements(&self, out: &mut Vec<u8>, from: u64) -> u64 {
        let announcements = self.announcements.lock();
        let Announcements { end, list, .. } = &*announcements;
        let kept = list.len() as u64;
        let skipped = kept.saturating_sub(end - from);
        for text in list.iter().skip(usize::try_from(skipped).unwrap_or(usize::MAX)) {
            out.extend_from_slice(text);
        }
        *end
    }
}
