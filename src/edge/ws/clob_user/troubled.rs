//! The trouble that user sockets meet: frames that are swapped, repeated or left out, and sockets
//! that end.
//!
//! Draws are counted by the wallet, once for each frame whatever sockets the wallet has, so the
//! n-th frame of a wallet meets the same on any connection.

use std::ops::Range;
use std::sync::Arc;

use super::frame::Of;
use crate::rows::clob_trade::Trade;
use crate::rows::order_id;
use crate::trouble::{About, SocketTrouble, Stage, Subject};
use crate::ws::frame::text_frame;
use paperbourse_clob::signature::address::Address;
use paperbourse_clob::trouble::{ActKind, Kind};
use paperbourse_core::ids::{AccountId, Timestamp};

/// How the text of a frame about a trade begins.
const TRADE: &[u8] = br#"{"event_type":"trade""#;

/// The trouble that a wallet meets on one of its sockets.
pub(super) struct UserTrouble {
    socket: SocketTrouble,
    wallet: Box<str>,
}

/// What frames that belong together meet, on all sockets of the wallet.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Met {
    /// The frames that are sent, as indices.
    sent: Vec<usize>,
    /// Whether the sockets end after them.
    pub(super) is_cut: bool,
}

/// Records the end of a socket when it is dropped.
pub(super) struct Recorded<'a>(&'a UserTrouble);

impl UserTrouble {
    pub(super) fn new(socket: SocketTrouble, wallet: Address) -> Self {
        Self { socket, wallet: wallet.to_string().into() }
    }

    /// Records that the socket has begun to be told what happens, and later its end.
    pub(super) fn record(&self) -> Recorded<'_> {
        self.socket.act(ActKind::UserSocket, Some(&self.wallet), Vec::new());
        Recorded(self)
    }

    /// Returns how far the settlement of a trade of the wallet is.
    pub(super) fn stage(&self, account: AccountId, trade: &Trade<'_>) -> Stage {
        self.socket.trouble.stage((account, &self.wallet), trade, Timestamp::now())
    }

    /// Draws what these frames meet.
    pub(super) fn draw(&self, frames: &[u8], of: &Of<'_>) -> Met {
        let id = order_id(of.order, of.client_order_id);
        let about = About { orders: &[&id], token: Some(of.token_id) };
        let subject = Subject::wallet(&self.wallet, Some(self.socket.address));
        let now = Timestamp::now();
        let is_trade = |frame: Range<usize>| text_frame(&frames[frame]).0.starts_with(TRADE);
        Met::draw(&split(frames).map(is_trade).collect::<Vec<_>>(), |kind| {
            self.socket.trouble.draw(kind, subject, about, now).is_some()
        })
    }
}

impl Drop for Recorded<'_> {
    fn drop(&mut self) {
        let Self(trouble) = self;
        trouble.socket.act(ActKind::UserSocketEnd, Some(&trouble.wallet), Vec::new());
    }
}

impl Met {
    /// Draws what frames meet of which these are about trades.
    fn draw(are_trades: &[bool], mut is_met: impl FnMut(Kind) -> bool) -> Self {
        let mut order: Vec<usize> = (0..are_trades.len()).collect();
        let is_mixed = are_trades.contains(&true) && are_trades.contains(&false);
        if is_mixed && is_met(Kind::TradeFirst) {
            order.sort_by_key(|&index| !are_trades[index]);
        }
        let mut sent = Vec::new();
        for index in order {
            if is_met(Kind::UserClosed) {
                return Self { sent, is_cut: true };
            }
            if is_met(Kind::Omitted) {
                continue;
            }
            sent.push(index);
            if is_met(Kind::Twice) {
                sent.push(index);
            }
        }
        Self { sent, is_cut: false }
    }

    /// Returns what is sent of these frames.
    pub(super) fn apply(&self, frames: &[u8]) -> Arc<[u8]> {
        let parts: Vec<&[u8]> = split(frames).map(|frame| &frames[frame]).collect();
        let sent: Vec<&[u8]> = self.sent.iter().map(|&index| parts[index]).collect();
        sent.concat().into()
    }
}

/// Returns where each frame lies among frames that the server has written.
fn split(frames: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let rest = &frames[start..];
        let whole_bytes = (!rest.is_empty()).then(|| text_frame(rest).1)?;
        let frame = start..start + whole_bytes;
        start = frame.end;
        Some(frame)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ws::frame::put_text;

    #[test]
    fn frames_are_swapped_repeated_left_out_and_cut_off() {
        let five = [false, false, true, true, true];
        for (frames, met, sent, is_cut) in [
            (&five[..], "", &[0, 1, 2, 3, 4][..], false),
            (&five, "trade-first 1", &[2, 3, 4, 0, 1], false),
            (&five, "trade-first 1, twice 1, omitted 2", &[2, 2, 4, 0, 1], false),
            (&five, "omitted 1, omitted 2, omitted 3, omitted 4, omitted 5", &[], false),
            (&five, "twice 2, user-closed 3", &[0, 1, 1], true),
            (&five, "user-closed 1, twice 1", &[], true),
            (&[false], "trade-first 1, twice 1", &[0, 0], false),
            (&[true], "trade-first 1", &[0], false),
        ] {
            let mut counts = std::collections::HashMap::new();
            let drawn = Met::draw(frames, |kind| {
                let count = counts.entry(kind).or_insert(0);
                *count += 1;
                met.split(", ").any(|one| one == format!("{} {count}", kind.name()))
            });
            assert_eq!(drawn, Met { sent: sent.to_vec(), is_cut }, "{met}");
        }
    }

    #[test]
    fn what_is_sent_are_whole_frames() {
        let texts = ["a".repeat(7), "b".repeat(200), "c".repeat(70_000), String::new()];
        let (mut frames, mut expected) = (Vec::new(), Vec::new());
        for text in &texts {
            put_text(&mut frames, &[text.as_bytes()]);
        }
        for index in [2, 0, 3, 1, 1] {
            put_text(&mut expected, &[texts[index].as_bytes()]);
        }
        let met = Met { sent: vec![2, 0, 3, 1, 1], is_cut: false };
        assert_eq!(*met.apply(&frames), *expected);
    }
}
