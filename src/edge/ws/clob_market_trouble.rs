//! The trouble that a market socket meets: silence, books that nobody has quoted, and its end.
//!
//! Draws are counted by the socket, which is numbered, and the market. So the n-th frame of a
//! market on the n-th socket of a server meets the same whenever the same seed is used. A socket
//! that is opened again after trouble is another one, which does not continue it.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::channels::Mailbox;
use crate::trouble::{About, SocketTrouble, Subject, Trouble};
use paperbourse_clob::trouble::{ActKind, Kind, TOKENS_MAX};
use paperbourse_core::ids::Timestamp;

/// The trouble of one market socket.
pub(super) struct MarketTrouble {
    socket: SocketTrouble,
    /// The number of the socket among the market sockets of the server.
    number: u64,
    silent_until: Option<Instant>,
    /// Wake the socket when something ends. They are dropped with it.
    timers: JoinSet<()>,
    /// The outcomes that were joined since they were last recorded.
    joined: Vec<Box<str>>,
}

/// Whether a socket is silent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Silence {
    None,
    Lasts,
    /// It has just ended.
    Ends,
}

impl MarketTrouble {
    pub(super) fn new(socket: SocketTrouble) -> Self {
        let number = socket.trouble.number_socket();
        Self { socket, number, silent_until: None, timers: JoinSet::new(), joined: Vec::new() }
    }

    /// Draws once for a frame of a market. Returns the length of what it meets.
    pub(super) fn draw(&self, kind: Kind, condition_id: &str, token_id: &str) -> Option<Duration> {
        let name = format!("{} {condition_id}", self.number);
        let address = Some(self.socket.address);
        let subject = Subject { name: &name, wallet: None, address };
        let about = About { orders: &[], token: Some(token_id) };
        let drawn = self.socket.trouble.draw(kind, subject, about, Timestamp::now());
        // The socket itself keeps what has begun, and draws nothing meanwhile.
        let drawn = drawn.filter(|drawn| !drawn.goes_on)?;
        Some(Duration::from_millis(drawn.length_ms.into()))
    }

    /// Has the socket silent for this long.
    pub(super) fn silence(&mut self, length: Duration, mailbox: &Arc<Mailbox>) {
        let until = Instant::now() + length;
        self.silent_until = Some(until);
        self.wake_after(Kind::Silence, until, mailbox.clone(), None);
    }

    /// Returns whether the socket is silent. Its end is returned once.
    pub(super) fn silence_now(&mut self) -> Silence {
        match self.silent_until {
            None => Silence::None,
            Some(until) if self.lasts(Kind::Silence, until) => Silence::Lasts,
            Some(_) => {
                self.silent_until = None;
                Silence::Ends
            }
        }
    }

    /// Whether something that began lasts. It ends early if it is no longer in the plan.
    pub(super) fn lasts(&self, kind: Kind, until: Instant) -> bool {
        Instant::now() < until && self.socket.trouble.has(kind)
    }

    /// Gives the socket a turn once something has ended, in which it visits the slot of a market.
    pub(super) fn wake_after(
        &mut self,
        kind: Kind,
        until: Instant,
        mailbox: Arc<Mailbox>,
        slot: Option<u32>,
    ) {
        while self.timers.try_join_next().is_some() {}
        let trouble = self.socket.trouble.clone();
        self.timers.spawn(async move {
            trouble.wait(kind, until).await;
            if let Some(slot) = slot {
                mailbox.mark(slot);
            }
            mailbox.ask_turn();
        });
    }

    /// Returns the trouble of the server.
    pub(super) const fn server(&self) -> &Arc<Trouble> {
        &self.socket.trouble
    }

    /// Notes that the socket has subscribed to these outcomes.
    pub(super) fn note_joined(&mut self, tokens: Vec<Box<str>>) {
        self.joined.extend(tokens);
        self.joined.truncate(TOKENS_MAX);
    }

    /// Records the outcomes that were noted since the last call.
    pub(super) fn record_joined(&mut self) {
        self.socket.act(ActKind::MarketSocket, None, std::mem::take(&mut self.joined));
    }

    /// Records that the socket has ended with these outcomes.
    pub(super) fn record_end(&self, tokens: impl Iterator<Item = Box<str>>) {
        self.socket.act(ActKind::MarketSocketEnd, None, tokens.take(TOKENS_MAX).collect());
    }
}

impl Drop for MarketTrouble {
    fn drop(&mut self) {
        self.socket.trouble.forget_frames(&format!("{} ", self.number));
    }
}
