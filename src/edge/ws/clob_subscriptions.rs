//! The markets that one market socket of the venue's interface follows, and what is due to it.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::channels::{Channel, Mailbox};
use super::clob_market_events::put_resolved;
use super::clob_market_frame::{ClobFrame, Lost, Outcomes, bit};
use super::clob_market_trouble::{MarketTrouble, Silence};
use super::dirty::Cursor;
use super::fanout::{Fanout, SocketId};
use super::turns::Turns;
use crate::trouble::SocketTrouble;
use paperbourse_clob::trouble::Kind;
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
    /// `None` unless there is trouble on demand.
    trouble: Option<Box<MarketTrouble>>,
}

struct Subscription {
    channel: Arc<Channel<ClobFrame>>,
    wanted: Outcomes,
    /// The outcomes whose books the client has not been sent.
    fresh: Outcomes,
    sent: Option<Sent>,
    /// Boxed, since few servers have any.
    ghost: Option<Box<Ghost>>,
    /// Whether what is sent next meets no trouble, since it ends some.
    is_spared: bool,
}

/// A book that nobody has quoted, which the client was sent in place of the one of an outcome.
struct Ghost {
    outcome: Outcomes,
    until: Instant,
}

/// What the client was last told of a market.
#[derive(Clone, Copy)]
struct Sent {
    seq: u64,
    trades_end: u64,
    tick: Price,
    is_resolved: bool,
}

/// Why a socket must end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// Trades that it has not sent are no longer kept.
    Lost,
    /// It meets the trouble that it ends.
    Trouble,
}

impl From<Lost> for Stop {
    fn from(_: Lost) -> Self {
        Self::Lost
    }
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
    pub(super) fn open(
        fanout: &Arc<Fanout>,
        turns: &Arc<Turns>,
        trouble: Option<SocketTrouble>,
    ) -> Option<Self> {
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
            trouble: trouble.map(|socket| Box::new(MarketTrouble::new(socket))),
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
        if let Some(trouble) = &mut self.trouble {
            trouble.note_joined(tokens(market, wanted));
        }
        self.mailbox.mark(slot);
        Ok(())
    }

    /// Records the outcomes that were joined since the last call.
    pub(super) fn record_joined(&mut self) {
        if let Some(trouble) = &mut self.trouble {
            trouble.record_joined();
        }
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
        let channel = {
            let place = (&self.mailbox, slot);
            let trouble = self.trouble.as_ref().map(|trouble| trouble.server().clone());
            self.fanout.clob().join(market, place, &trouble, now)
        };
        let sent = (!is_dumped).then(|| Sent::of(&channel.newest()));
        let (ghost, is_spared) = (None, false);
        let subscription = Subscription { channel, wanted: 0, fresh: 0, sent, ghost, is_spared };
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
        subscription.ghost.take_if(|ghost| ghost.outcome & unwanted != 0);
        if subscription.wanted == 0 {
            let left = place.take().expect("the slot is in use");
            self.fanout.clob().leave(&left.channel, (&self.mailbox, slot));
            self.fanout.release();
            self.by_condition.remove(condition_id);
            self.free_slots.push(slot);
        }
    }

    /// Adds what is due, if it is the socket's turn. Once there are `bytes_goal` bytes, the rest
    /// waits for another turn. Fails if the socket must end.
    pub(super) fn take_turn(&mut self, out: &mut Vec<u8>, bytes_goal: usize) -> Result<(), Stop> {
        if !self.mailbox.take_turn() {
            return Ok(());
        }
        match self.trouble.as_mut().map_or(Silence::None, |trouble| trouble.silence_now()) {
            Silence::None => {}
            // A timer asks for the turn in which the marked slots are taken.
            Silence::Lasts => return Ok(()),
            Silence::Ends => self.renew(),
        }
        if let Some(from) = &mut self.custom_from {
            *from = self.fanout.clob().put_announcements(out, *from);
        }
        let is_custom = self.custom_from.is_some();
        while let Some(slot) = self.mailbox.next_slot(&mut self.cursor) {
            // The slot may have belonged to a market that was left.
            let subscription = self.slots.get_mut(slot as usize).and_then(Option::as_mut);
            let Some(subscription) = subscription else { continue };
            if let Some(trouble) = &mut self.trouble
                && subscription.meet(out, trouble, &self.mailbox, slot)? == Meeting::Silence
            {
                break;
            }
            subscription.put(out, is_custom, self.trouble.as_deref())?;
            if out.len() >= bytes_goal {
                self.mailbox.ask_turn();
                break;
            }
        }
        Ok(())
    }

    /// Has all books sent whole, as to a client that was told nothing yet.
    fn renew(&mut self) {
        if let Some(from) = &mut self.custom_from {
            *from = self.fanout.clob().put_announcements(&mut Vec::new(), *from);
        }
        for (slot, subscription) in (0_u32..).zip(&mut self.slots) {
            let Some(subscription) = subscription else { continue };
            subscription.fresh = subscription.wanted;
            (subscription.sent, subscription.ghost) = (None, None);
            subscription.is_spared = true;
            self.mailbox.mark(slot);
        }
    }
}

/// Returns the tokens of these outcomes of a market.
fn tokens(market: &Market, wanted: Outcomes) -> Vec<Box<str>> {
    let info = market.info();
    let outcomes = info.outcomes.iter().enumerate().filter(|(index, _)| wanted & bit(*index) != 0);
    outcomes.map(|(_, outcome)| Box::from(&*outcome.token_id)).collect()
}

/// Whether a socket that meets trouble goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meeting {
    None,
    Silence,
}

impl Subscription {
    /// Draws what the market's next frames meet, if anything is due of it.
    fn meet(
        &mut self,
        out: &mut Vec<u8>,
        trouble: &mut MarketTrouble,
        mailbox: &Arc<Mailbox>,
        slot: u32,
    ) -> Result<Meeting, Stop> {
        if let Some(ghost) = self.ghost.take_if(|ghost| !trouble.lasts(Kind::Ghost, ghost.until)) {
            self.fresh |= ghost.outcome & self.wanted;
            self.is_spared = true;
        }
        let frame = self.channel.newest();
        let is_due = self.fresh != 0 || self.sent.is_none_or(|sent| sent.seq < frame.seq);
        if !is_due || std::mem::take(&mut self.is_spared) {
            return Ok(Meeting::None);
        }
        let condition_id = &*frame.info.condition_id;
        let draw = |kind, outcomes| trouble.draw(kind, condition_id, frame.token(outcomes));
        if draw(Kind::MarketClosed, self.wanted).is_some() {
            return Err(Stop::Trouble);
        }
        if let Some(length) = draw(Kind::Silence, self.wanted) {
            trouble.silence(length, mailbox);
            return Ok(Meeting::Silence);
        }
        let quoted = frame.with_books(self.wanted);
        if quoted != 0
            && self.ghost.is_none()
            && let Some(length) = draw(Kind::Ghost, quoted)
        {
            let (outcome, until) = (quoted & quoted.wrapping_neg(), Instant::now() + length);
            self.ghost = Some(Box::new(Ghost { outcome, until }));
            self.fresh &= !outcome;
            frame.put_ghosts(out, outcome);
            trouble.wake_after(Kind::Ghost, until, mailbox.clone(), Some(slot));
        }
        Ok(Meeting::None)
    }

    /// Adds what is due of the market.
    fn put(
        &mut self,
        out: &mut Vec<u8>,
        is_custom: bool,
        trouble: Option<&MarketTrouble>,
    ) -> Result<(), Lost> {
        let frame = self.channel.newest();
        let ghost = self.ghost.as_ref().map_or(0, |ghost| ghost.outcome);
        let known = self.wanted & !self.fresh & !ghost;
        let is_met = |kind| {
            let draw = |trouble: &MarketTrouble| {
                trouble.draw(kind, &frame.info.condition_id, frame.token(self.wanted))
            };
            trouble.and_then(draw).is_some()
        };
        let before = self.sent.replace(Sent::of(&frame));
        let mut moved = 0;
        if let Some(before) = before.filter(|before| before.seq < frame.seq) {
            // Before the books, whose hashes cover the price of the last trade and the tick.
            frame.put_trades(out, before.trades_end, known)?;
            frame.put_tick(out, before.tick, known);
            // Changes are those of all outcomes, also of the one that a ghost stands for.
            if frame.seq == before.seq + 1 && ghost == 0 {
                frame.put_renewed(out, known);
                if !frame.has_changes(known) || !is_met(Kind::Gap) {
                    frame.put_changes(out, known);
                }
                moved = frame.moved() & known;
            } else {
                frame.put_books(out, known);
                moved = known;
            }
        }
        frame.put_books(out, std::mem::take(&mut self.fresh));
        if is_custom {
            frame.put_tops(out, moved);
            let was_open = before.is_some_and(|before| !before.is_resolved);
            if frame.is_resolved() && was_open && !is_met(Kind::Unresolved) {
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
        if let Some(trouble) = &self.trouble {
            let followed = self.slots.iter().flatten();
            let tokens = followed.flat_map(|it| tokens(it.channel.market(), it.wanted));
            trouble.record_end(tokens);
        }
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
