//! The markets that one market socket of the venue's interface follows, and what is due to it.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Notify;

use super::channels::{Channel, Mailbox};
use super::clob_market_events::put_resolved;
use super::clob_market_frame::{ClobFrame, Lost, Outcomes, bit};
use super::dirty::Cursor;
use super::fanout::{Fanout, SocketId};
use super::turns::Turns;
use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::Market;
use paperbourse_core::money::Price;

/// Maximum number of markets of a socket. The venue's clients are advised to have no more than 500
/// assets on one.
pub(super) const CLOB_MARKETS_MAX: usize = 1_000;

/// The subscriptions of one socket. Dropping this leaves all markets.
pub(super) struct ClobSubscriptions {
    fanout: Arc<Fanout>,
    id: SocketId,
    mailbox: Arc<Mailbox>,
    cursor: Cursor,
    slots: Vec<Option<Subscription>>,
    free_slots: Vec<u32>,
    by_condition: HashMap<Arc<str>, u32, foldhash::fast::RandomState>,
    /// The number of the next announcement to send; `None` unless the client wants what is sent
    /// only with the custom flag.
    custom_from: Option<u64>,
}

struct Subscription {
    channel: Arc<Channel<ClobFrame>>,
    wanted: Outcomes,
    /// The outcomes whose books the client has not been sent.
    fresh: Outcomes,
    sent: Option<Sent>,
}

/// What the client was last told of a market.
#[derive(Clone, Copy)]
struct Sent {
    seq: u64,
    trades_end: u64,
    tick: Price,
    is_resolved: bool,
}

/// Why a market cannot be joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum JoinError {
    /// The socket has [`CLOB_MARKETS_MAX`] markets.
    TooMany,
    /// The server has reached its limit of subscriptions.
    Full,
}

impl ClobSubscriptions {
    /// Opens the subscriptions of a new socket. `None` if the server has as many readers as it
    /// may.
    pub(super) fn open(fanout: &Arc<Fanout>, turns: &Arc<Turns>) -> Option<Self> {
        let id = fanout.count_socket()?;
        Some(Self {
            fanout: fanout.clone(),
            id,
            mailbox: Arc::new(Mailbox::new(CLOB_MARKETS_MAX, turns.clone())),
            cursor: Cursor::default(),
            slots: Vec::new(),
            free_slots: Vec::new(),
            by_condition: HashMap::default(),
            custom_from: None,
        })
    }

    /// Returns the notification that wakes the socket.
    pub(super) fn wake_up(&self) -> &Arc<Notify> {
        self.mailbox.wake_up()
    }

    /// Has the best prices, new markets and resolutions sent from now on.
    pub(super) fn turn_on_custom(&mut self) {
        if self.custom_from.is_none() {
            self.custom_from =
                Some(self.fanout.clob().follow_announcements(self.id, &self.mailbox));
        }
    }

    /// Follows an asset, if it is listed. Its whole book is due if `is_dumped`.
    pub(super) fn join_token(
        &mut self,
        token_id: &str,
        is_dumped: bool,
        now: Timestamp,
    ) -> Result<(), JoinError> {
        let listing = self.fanout.listing();
        let Some((market, outcome)) = listing.by_token(token_id) else { return Ok(()) };
        self.join(market, bit(outcome.index()), is_dumped, now)
    }

    /// Follows all assets of a market, if it is listed.
    pub(super) fn join_market(
        &mut self,
        condition_id: &str,
        is_dumped: bool,
        now: Timestamp,
    ) -> Result<(), JoinError> {
        let Some(market) = self.fanout.market(condition_id) else { return Ok(()) };
        let count = market.info().outcomes.len();
        let all = (0..count).map(bit).sum();
        self.join(&market, all, is_dumped, now)
    }

    fn join(
        &mut self,
        market: &Arc<Market>,
        wanted: Outcomes,
        is_dumped: bool,
        now: Timestamp,
    ) -> Result<(), JoinError> {
        let condition_id = market.info().condition_id.clone();
        let slot = match self.by_condition.get(&condition_id) {
            Some(&slot) => slot,
            None => self.join_channel(market, condition_id, is_dumped, now)?,
        };
        let subscription = self.slots[slot as usize].as_mut().expect("the slot is in use");
        let added = wanted & !subscription.wanted;
        subscription.wanted |= added;
        if is_dumped {
            subscription.fresh |= added;
        }
        self.mailbox.mark(slot);
        Ok(())
    }

    fn join_channel(
        &mut self,
        market: &Arc<Market>,
        condition_id: Arc<str>,
        is_dumped: bool,
        now: Timestamp,
    ) -> Result<u32, JoinError> {
        if self.by_condition.len() >= CLOB_MARKETS_MAX {
            return Err(JoinError::TooMany);
        }
        if !self.fanout.reserve(1) {
            return Err(JoinError::Full);
        }
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("a mailbox has fewer slots")
        });
        let channel = self.fanout.clob().join(market, (&self.mailbox, slot), now);
        let sent = (!is_dumped).then(|| Sent::of(&channel.newest()));
        let subscription = Subscription { channel, wanted: 0, fresh: 0, sent };
        self.slots[slot as usize] = Some(subscription);
        self.by_condition.insert(condition_id, slot);
        Ok(slot)
    }

    /// Stops following an asset.
    pub(super) fn leave_token(&mut self, token_id: &str) {
        let listing = self.fanout.listing();
        if let Some((market, outcome)) = listing.by_token(token_id) {
            self.leave(&market.info().condition_id, bit(outcome.index()));
        }
    }

    /// Stops following all assets of a market.
    pub(super) fn leave_market(&mut self, condition_id: &str) {
        if let Some(market) = self.fanout.market(condition_id) {
            self.leave(&market.info().condition_id, Outcomes::MAX);
        }
    }

    fn leave(&mut self, condition_id: &str, unwanted: Outcomes) {
        let Some(&slot) = self.by_condition.get(condition_id) else { return };
        let place = &mut self.slots[slot as usize];
        let subscription = place.as_mut().expect("the slot is in use");
        subscription.wanted &= !unwanted;
        subscription.fresh &= !unwanted;
        if subscription.wanted == 0 {
            let left = place.take().expect("the slot is in use");
            self.fanout.clob().leave(&left.channel, (&self.mailbox, slot));
            self.fanout.release();
            self.by_condition.remove(condition_id);
            self.free_slots.push(slot);
        }
    }

    /// Adds what is due, if it is the socket's turn. Once there are `bytes_goal` bytes, the rest
    /// waits for another turn. Fails if trades that the socket has not sent are no longer kept.
    pub(super) fn take_turn(&mut self, out: &mut Vec<u8>, bytes_goal: usize) -> Result<(), Lost> {
        if !self.mailbox.take_turn() {
            return Ok(());
        }
        if let Some(from) = &mut self.custom_from {
            *from = self.fanout.clob().put_announcements(out, *from);
        }
        let is_custom = self.custom_from.is_some();
        while let Some(slot) = self.mailbox.next_slot(&mut self.cursor) {
            // The slot may have belonged to a market that was left.
            let subscription = self.slots.get_mut(slot as usize).and_then(Option::as_mut);
            subscription.map_or(Ok(()), |it| it.put(out, is_custom))?;
            if out.len() >= bytes_goal {
                self.mailbox.ask_turn();
                break;
            }
        }
        Ok(())
    }
}

impl Subscription {
    /// Adds what is due of the market.
    fn put(&mut self, out: &mut Vec<u8>, is_custom: bool) -> Result<(), Lost> {
        let frame = self.channel.newest();
        let known = self.wanted & !self.fresh;
        let before = self.sent.replace(Sent::of(&frame));
        let mut moved = 0;
        if let Some(before) = before.filter(|before| before.seq < frame.seq) {
            // Before the books, whose hashes cover the price of the last trade and the tick.
            frame.put_trades(out, before.trades_end, known)?;
            frame.put_tick(out, before.tick, known);
            if frame.seq == before.seq + 1 {
                frame.put_changes(out, known);
                moved = frame.moved() & known;
            } else {
                frame.put_books(out, known);
                moved = known;
            }
        }
        frame.put_books(out, std::mem::take(&mut self.fresh));
        if is_custom {
            frame.put_tops(out, moved);
            if frame.is_resolved() && before.is_some_and(|before| !before.is_resolved) {
                put_resolved(out, &frame.info, Timestamp::now());
            }
        }
        Ok(())
    }
}

impl Sent {
    fn of(frame: &ClobFrame) -> Self {
        Self {
            seq: frame.seq,
            trades_end: frame.trades_end(),
            tick: frame.info.tick,
            is_resolved: frame.is_resolved(),
        }
    }
}

impl Drop for ClobSubscriptions {
    fn drop(&mut self) {
        if self.custom_from.is_some() {
            self.fanout.clob().leave_announcements(self.id);
        }
        for (slot, subscription) in (0_u32..).zip(std::mem::take(&mut self.slots)) {
            if let Some(left) = subscription {
                self.fanout.clob().leave(&left.channel, (&self.mailbox, slot));
                self.fanout.release();
            }
        }
        self.fanout.close();
    }
}

#[cfg(test)]
mod tests;
