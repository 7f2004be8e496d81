//! From what happens at the venue to what each socket is sent.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::fault::SocketFaults;
use super::frames::{BookForm, text_frame, text_of, write_book};
use super::state::{State, Told};

/// A socket that has not taken so many frames is dropped, as the venue does.
pub(crate) const SOCKET_QUEUE_MAX: usize = 65_536;

/// What a socket's writer does next.
#[derive(Clone, Debug)]
pub(crate) enum Out {
    /// Writes these bytes.
    Frame(Bytes),
    /// Writes these bytes at this time, and nothing before.
    Late(Instant, Bytes),
    /// Ends the sending side, and stays.
    HalfClose,
}

/// A socket that is open.
pub(crate) struct Socket {
    queue: mpsc::Sender<Out>,
    pub(crate) tokens: BTreeSet<usize>,
    /// It has sent the initial form.
    pub(crate) is_subscribed: bool,
    /// It wants the events beside books and trades.
    is_custom: bool,
    pub(crate) faults: SocketFaults,
}

impl State {
    /// A socket from now on; its number, and what it must write.
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

    /// The socket is gone.
    pub(crate) fn close_socket(&mut self, id: u64) {
        let Some(socket) = self.sockets.remove(&id) else { return };
        for token in socket.tokens {
            self.tokens[token].subscribers.retain(|&subscriber| subscriber != id);
        }
    }

    /// A text message of a client.
    pub(crate) fn hear(&mut self, id: u64, text: &str) {
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
        let mut told = Vec::new();
        for &token in tokens.iter().filter(|&&token| self.tokens[token].has_book) {
            if payload.len() > 1 {
                payload.push(b',');
            }
            let place = &self.tokens[token];
            write_book(&mut payload, &self.markets[place.market], place.shown(), BookForm::Dump);
            told.push(token);
        }
        payload.push(b']');
        if self.send(id, &text_frame(&payload)) {
            for token in told {
                self.tokens[token].history.shown();
            }
        }
    }

    /// To every socket that has a token of this market, once.
    pub(crate) fn tell_market(&mut self, market: usize, frame: &Bytes) {
        let tokens = self.markets[market].tokens.clone();
        let mut told: Vec<u64> = tokens
            .iter()
            .flat_map(|&token| self.tokens[token].subscribers.iter().copied())
            .collect();
        told.sort_unstable();
        told.dedup();
        let mut is_shown = false;
        for id in told {
            is_shown |= self.send(id, frame);
        }
        if is_shown {
            for token in tokens {
                self.tokens[token].history.shown();
            }
        }
    }

    /// To every socket that has this token.
    pub(crate) fn tell_token(&mut self, token: usize, frame: &Bytes) {
        let told = self.tokens[token].subscribers.clone();
        let mut is_shown = false;
        for id in told {
            is_shown |= self.send(id, frame);
        }
        if is_shown {
            self.tokens[token].history.shown();
        }
    }

    /// To every socket that has this token and asked for more than books.
    pub(crate) fn tell_custom(&mut self, token: usize, frame: &Bytes) {
        for id in self.tokens[token].subscribers.clone() {
            if self.sockets.get(&id).is_some_and(|socket| socket.is_custom) {
                self.send(id, frame);
            }
        }
    }

    /// To every socket that has a token of this market; it shows no book.
    pub(crate) fn tell_event(&mut self, market: usize, frame: &Bytes) {
        let told: BTreeSet<u64> = self.markets[market]
            .tokens
            .iter()
            .flat_map(|&token| self.tokens[token].subscribers.iter().copied())
            .collect();
        for id in told {
            self.send(id, frame);
        }
    }

    /// To every socket that asked for more than books.
    pub(crate) fn tell_all_custom(&mut self, frame: &Bytes) {
        let told: Vec<u64> =
            self.sockets.iter().filter(|(_, socket)| socket.is_custom).map(|(&id, _)| id).collect();
        for id in told {
            self.send(id, frame);
        }
    }

    /// Puts a frame on a socket as far as its faults let it; whether it is on its way.
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

    /// Puts a frame on a socket; whether it is on its way.
    pub(crate) fn send_past_faults(&mut self, id: u64, frame: Bytes) -> bool {
        let text = text_of(&frame);
        let Some(socket) = self.sockets.get_mut(&id) else { return false };
        let out = match socket.faults.delay {
            Some(delay) => Out::Late(Instant::now() + delay, frame),
            None => Out::Frame(frame),
        };
        if socket.queue.try_send(out).is_ok() {
            if let Some(text) = text {
                self.note(|| Told::Frame { socket: id, text });
            }
            return true;
        }
        self.violation(format!("socket {id} did not read"));
        self.close_socket(id);
        false
    }

    /// Its writer ends with its queue, and the connection with its writer.
    pub(crate) fn drop_socket(&mut self, id: u64) {
        self.close_socket(id);
    }

    /// Nothing more is sent to it. It is heard as before.
    pub(crate) fn half_close_socket(&mut self, id: u64) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        socket.faults.is_frozen = true;
        socket.faults.is_pong_dead = true;
        let _ = socket.queue.try_send(Out::HalfClose);
    }
}
