//! Applies faults to sockets, and sends frames that no event caused.

use bytes::Bytes;

use super::fault::{Fault, Injection, SocketFaults, Which};
use super::frames::{BookForm, binary_frame, text_frame, write_book};
use super::ladder::{Ladder, Side};
use super::state::State;

impl State {
    /// Applies a fault to these sockets.
    pub(crate) fn misbehave(&mut self, which: Which<'_>, fault: Fault) {
        if which == Which::Every {
            self.faults_to_come.push(fault);
        }
        for id in self.chosen(which) {
            self.put_fault(id, fault);
        }
    }

    /// Removes all faults from these sockets. What was withheld stays withheld, except the first
    /// frame of a pair that waits for its second: it is sent.
    pub(crate) fn behave(&mut self, which: Which<'_>) {
        if which == Which::Every {
            self.faults_to_come.clear();
        }
        for id in self.chosen(which) {
            let Some(socket) = self.sockets.get_mut(&id) else { continue };
            let faults = std::mem::take(&mut socket.faults);
            if let Some(held) = faults.held {
                self.send(id, &held);
            }
        }
    }

    /// Sends a frame on these sockets whatever their other faults, and returns their number.
    pub(crate) fn inject(&mut self, which: Which<'_>, injection: Injection<'_>) -> usize {
        let frame = self.injected(injection);
        let chosen = self.chosen(which);
        for &id in &chosen {
            self.send_past_faults(id, frame.clone());
        }
        chosen.len()
    }

    pub(super) fn put_fault(&mut self, id: u64, fault: Fault) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let faults: &mut SocketFaults = &mut socket.faults;
        match fault {
            Fault::Freeze { has_pong } => {
                faults.is_frozen = true;
                faults.is_pong_dead = !has_pong;
            }
            Fault::Skip { frames } => faults.skip += frames,
            Fault::Duplicate { frames } => faults.duplicate += frames,
            Fault::Swap { pairs } => faults.swap += pairs,
            Fault::CorruptHash { frames } => faults.corrupt += frames,
            Fault::Ahead { frames } => faults.ahead += frames,
            Fault::Delay(delay) => faults.delay = Some(delay),
            Fault::Edit(edit) => faults.edit = Some(edit),
            Fault::Drop => self.drop_socket(id),
            Fault::HalfClose => self.half_close_socket(id),
        }
    }

    fn chosen(&self, which: Which<'_>) -> Vec<u64> {
        match which {
            Which::Open | Which::Every => self.sockets.keys().copied().collect(),
            Which::One(id) => self.sockets.contains_key(&id).then_some(id).into_iter().collect(),
            Which::Of(token) => self.tokens[self.token(token)].subscribers.clone(),
        }
    }

    fn injected(&self, injection: Injection<'_>) -> Bytes {
        match injection {
            Injection::CrossedBook(token) => self.crossed_book(self.token(token)),
            Injection::Garbage => text_frame(b"<html>502 Bad Gateway</html> {\"event_type\":"),
            Injection::Empty => text_frame(b""),
            Injection::NoNewAssets => text_frame(b"NO NEW ASSETS"),
            Injection::Huge(bytes) => {
                let mut payload = br#"{"event_type":"huge","filling":""#.to_vec();
                payload.resize(bytes.saturating_sub(2), b'x');
                payload.extend_from_slice(br#""}"#);
                text_frame(&payload)
            }
            Injection::Binary => binary_frame(&[0, 159, 146, 150]),
            Injection::UnknownEvent => {
                text_frame(br#"{"event_type":"moon_phase","market":"0x00","timestamp":"1"}"#)
            }
            Injection::Text(text) => text_frame(text.as_bytes()),
        }
    }

    /// The token's book with a bid above its best ask. The stand-in's own books are unaffected, so
    /// this one is in no history.
    fn crossed_book(&self, place: usize) -> Bytes {
        let token = &self.tokens[place];
        let market = &self.markets[token.market];
        let mut ladder: Ladder = token.ladder.clone();
        for (side, price) in [(Side::Buy, "0.98"), (Side::Sell, "0.02")] {
            ladder.set(side, price, "777");
        }
        let hash = ladder.hash(market.head(&token.id, token.timestamp_ms));
        let mut payload = Vec::new();
        let shown = super::market::Shown { ladder: &ladder, hash: &hash, ..token.shown() };
        write_book(&mut payload, market, shown, BookForm::Again);
        text_frame(&payload)
    }
}
