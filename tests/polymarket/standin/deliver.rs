//! Sockets, and which of them each event of the venue is sent to.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::fault::SocketFaults;
use super::frames::{BookForm, text_frame, text_of, write_book};
use super::state::{Sent, State};

/// A socket with this many unsent frames is dropped, as the venue does.
pub(crate) const SOCKET_QUEUE_MAX: usize = 65_536;

/// A socket writer's next action.
#[derive(Clone, Debug)]
pub(crate) enum Out {
    /// Write these bytes.
    Frame(Bytes),
    /// Write these bytes at this time, and nothing before.
    Late(Instant, Bytes),
    /// Close the sending side, and keep the connection.
    HalfClose,
}

/// An open socket.
pub(crate) struct Socket {
    queue: mpsc::Sender<Out>,
    pub(crate) tokens: BTreeSet<usize>,
    /// Whether the client has sent its first subscription.
    pub(crate) is_subscribed: bool,
    /// Whether the client requested custom events, those other than books and trades.
    is_custom: bool,
    pub(crate) faults: SocketFaults,
}

impl Socket {
    /// How many frames wait to be written.
    pub(crate) fn unsent_frames(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }
}

impl State {
    /// Opens a socket; returns its number and the queue of what it must write.
    pub(crate) fn open_socket(&mut self) -> (u64, mpsc::Receiver<Out>) {
        let (queue, outgoing) = mpsc::channel(SOCKET_QUEUE_MAX);
        self.socket_count_ever += 1;
        let id = self.socket_count_ever;
        let socket = Socket {
            queue,
            tokens: BTreeSet::new(),
            is_subscribed: false,
            is_custom: false,
            faults: SocketFaults::default(),
        };
        self.sockets.insert(id, socket);
        for fault in self.faults_to_come.clone() {
            self.put_fault(id, fault);
        }
        (id, outgoing)
    }

    /// Removes a socket and its subscriptions.
    pub(crate) fn close_socket(&mut self, id: u64) {
        let Some(socket) = self.sockets.remove(&id) else { return };
        for token in socket.tokens {
            self.tokens[token].subscribers.retain(|&subscriber| subscriber != id);
        }
    }

    /// Handles a text message from a client.
    pub(crate) fn receive(&mut self, id: u64, text: &str) {
        if text == "PING" {
            if self.sockets.get(&id).is_some_and(|socket| !socket.faults.is_pong_dead) {
                self.send_past_faults(id, text_frame(b"PONG"));
            } else {
                self.pings_unanswered += 1;
            }
            return;
        }
        let Ok(message) = serde_json::from_str::<Value>(text) else {
            self.violation(format!("socket {id} sent {text:?}"));
            return;
        };
        let ids = message["assets_ids"].as_array().map(Vec::as_slice).unwrap_or_default();
        if ids.len() > self.options.frame_tokens_max {
            self.violation(format!("socket {id} sent a frame of {} tokens", ids.len()));
            return;
        }
        let tokens: Vec<usize> =
            ids.iter().filter_map(|token| self.token_by_id.get(token.as_str()?).copied()).collect();
        let is_dump_wanted =
            message["initial_dump"].as_bool().unwrap_or(self.options.dumps_unasked);
        let is_initial = message["operation"].is_null() && message["type"] == "market";
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        if message["custom_feature_enabled"] == true {
            socket.is_custom = true;
        }
        match message["operation"].as_str() {
            None if is_initial && !socket.is_subscribed => {
                socket.is_subscribed = true;
                self.subscribe(id, &tokens, is_dump_wanted);
            }
            Some("subscribe") if socket.is_subscribed => {
                self.subscribe(id, &tokens, is_dump_wanted);
            }
            Some("unsubscribe") if socket.is_subscribed => {
                for token in tokens {
                    socket.tokens.remove(&token);
                    self.tokens[token].subscribers.retain(|&subscriber| subscriber != id);
                }
            }
            _ => self.violation(format!("socket {id} sent {text:.200}")),
        }
    }

    fn subscribe(&mut self, id: u64, tokens: &[usize], is_dump_wanted: bool) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        for &token in tokens {
            if socket.tokens.insert(token) {
                self.tokens[token].subscribers.push(id);
            }
        }
        if !is_dump_wanted || socket.tokens.len() > self.options.snapshot_tokens_max {
            return;
        }
        let mut payload = b"[".to_vec();
        let mut included = Vec::new();
        for &token in tokens.iter().filter(|&&token| self.tokens[token].has_book) {
            if payload.len() > 1 {
                payload.push(b',');
            }
            let place = &self.tokens[token];
            write_book(&mut payload, &self.markets[place.market], place.shown(), BookForm::Dump);
            included.push(token);
        }
        payload.push(b']');
        if self.send(id, &text_frame(&payload)) {
            for token in included {
                self.tokens[token].history.shown();
            }
        }
    }

    /// Sends a frame once to every subscriber of the market, and marks the books as shown.
    pub(crate) fn send_to_market(&mut self, market: usize, frame: &Bytes) {
        let tokens = self.markets[market].tokens.clone();
        let mut receivers: Vec<u64> = tokens
            .iter()
            .flat_map(|&token| self.tokens[token].subscribers.iter().copied())
            .collect();
        receivers.sort_unstable();
        receivers.dedup();
        let mut is_shown = false;
        for id in receivers {
            is_shown |= self.send(id, frame);
        }
        if is_shown {
            for token in tokens {
                self.tokens[token].history.shown();
            }
        }
    }

    /// Sends a frame to every subscriber of this token, and marks its book as shown.
    pub(crate) fn send_to_token(&mut self, token: usize, frame: &Bytes) {
        let receivers = self.tokens[token].subscribers.clone();
        let mut is_shown = false;
        for id in receivers {
            is_shown |= self.send(id, frame);
        }
        if is_shown {
            self.tokens[token].history.shown();
        }
    }

    /// Sends a frame to the subscribers of this token that requested custom events.
    pub(crate) fn send_to_custom(&mut self, token: usize, frame: &Bytes) {
        for id in self.tokens[token].subscribers.clone() {
            if self.sockets.get(&id).is_some_and(|socket| socket.is_custom) {
                self.send(id, frame);
            }
        }
    }

    /// Sends a frame that shows no book to every subscriber of the market.
    pub(crate) fn send_event(&mut self, market: usize, frame: &Bytes) {
        let receivers: BTreeSet<u64> = self.markets[market]
            .tokens
            .iter()
            .flat_map(|&token| self.tokens[token].subscribers.iter().copied())
            .collect();
        for id in receivers {
            self.send(id, frame);
        }
    }

    /// Sends a frame to every socket that requested custom events.
    pub(crate) fn send_to_all_custom(&mut self, frame: &Bytes) {
        let receivers: Vec<u64> =
            self.sockets.iter().filter(|(_, socket)| socket.is_custom).map(|(&id, _)| id).collect();
        for id in receivers {
            self.send(id, frame);
        }
    }

    /// Sends a frame on a socket, subject to its faults. Returns whether it is on its way.
    pub(crate) fn send(&mut self, id: u64, frame: &Bytes) -> bool {
        let Some(socket) = self.sockets.get_mut(&id) else { return false };
        let frames = socket.faults.pass(frame);
        let is_held = socket.faults.held.is_some();
        let mut is_sent = is_held;
        for frame in frames {
            is_sent = self.send_past_faults(id, frame);
            self.message_count += u64::from(is_sent);
        }
        is_sent
    }

    /// Sends a frame on a socket, ignoring all its faults but the delay. Returns whether it is on
    /// its way.
    pub(crate) fn send_past_faults(&mut self, id: u64, frame: Bytes) -> bool {
        let text = text_of(&frame);
        let Some(socket) = self.sockets.get_mut(&id) else { return false };
        let out = match socket.faults.delay {
            Some(delay) => Out::Late(Instant::now() + delay, frame),
            None => Out::Frame(frame),
        };
        if socket.queue.try_send(out).is_ok() {
            if let Some(text) = text {
                self.note(|| Sent::Frame { socket: id, text });
            }
            return true;
        }
        self.violation(format!("socket {id} did not read"));
        self.close_socket(id);
        false
    }

    /// Drops a socket: its writer ends with its queue, and the connection with its writer.
    pub(crate) fn drop_socket(&mut self, id: u64) {
        self.close_socket(id);
    }

    /// Closes the sending side of a socket, which keeps receiving.
    pub(crate) fn half_close_socket(&mut self, id: u64) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        socket.faults.is_frozen = true;
        socket.faults.is_pong_dead = true;
        let _ = socket.queue.try_send(Out::HalfClose);
    }
}
