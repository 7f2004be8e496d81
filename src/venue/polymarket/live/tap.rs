//! Records the venue's data on a tape, verbatim and in the order in which it was processed,
//! together with all decisions that depended on the clock. [`super::replay`] replays it.
//!
//! [`crate::tape`] documents the lines.

use std::fmt::{Display, Write as _};
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::LiveConfig;
use crate::tape::{Folder, Payload, TapeSender, VERSION};

/// The recorder of a tape, if there is one.
#[derive(Clone, Default)]
pub struct Tap(Option<TapeSender>);

impl From<TapeSender> for Tap {
    fn from(sender: TapeSender) -> Self {
        Self(Some(sender))
    }
}

impl Tap {
    /// Returns the number of gaps in the tape.
    pub(super) fn gap_count(&self) -> u64 {
        self.0.as_ref().map_or(0, TapeSender::gap_count)
    }

    /// Records the start of a session.
    pub(super) fn begin(&self, config: &LiveConfig) {
        self.send(Folder::Ws, Payload::None, || {
            let lag_max_ms = u64::try_from(config.timing.lag_max.as_millis()).unwrap_or(u64::MAX);
            Fields::of("begin")
                .number("version", VERSION)
                .text("by", crate::client::AGENT)
                .text("gamma", &config.gamma.to_string())
                .text("clob", &config.clob.to_string())
                .text("socket_address", &config.socket.to_string())
                .number("markets_max", config.filter.count_max)
                .number("lag_max_ms", lag_max_ms)
        });
    }

    /// Records the answer of a service. `get` is the address relative to the service's base.
    pub(super) fn answer<E: Display>(&self, from: Folder, get: &str, answer: &Result<Bytes, E>) {
        if self.0.is_some() {
            self.send(from, payload(answer), || Fields::of("answer").text("get", get));
        }
    }

    /// Records the list of markets to follow.
    pub(super) fn listed<'a>(&self, ids: impl Iterator<Item = &'a Arc<str>>) {
        self.send(Folder::Gamma, Payload::None, || Fields::of("listed").list("ids", ids));
    }

    /// Records which markets were described. `second` holds those also described by the CLOB
    /// service, and `third` those also described by the data API.
    pub(super) fn described<'a>(
        &self,
        ids: impl Iterator<Item = &'a Arc<str>>,
        second: impl Iterator<Item = &'a Arc<str>>,
        third: impl Iterator<Item = &'a Arc<str>>,
    ) {
        self.send(Folder::Gamma, Payload::None, || {
            Fields::of("described").list("ids", ids).list("second", second).list("third", third)
        });
    }

    /// Records that the delay stated by the CLOB service is used for this market.
    pub(super) fn delay(&self, id: &Arc<str>) {
        self.send(Folder::Clob, Payload::None, || {
            Fields::of("delay").list("ids", std::iter::once(id))
        });
    }

    /// Records that a socket carries these tokens from now on.
    pub(super) fn follow(&self, socket: usize, ids: &[Arc<str>]) {
        self.send(Folder::Ws, Payload::None, || {
            Fields::of("follow").number("socket", socket).list("tokens", ids.iter())
        });
    }

    /// Records that a connection was opened.
    pub(super) fn open(&self, socket: usize, connection: u64) {
        self.send(Folder::Ws, Payload::None, || {
            Fields::of("open").number("socket", socket).number("connection", connection)
        });
    }

    /// Records a text frame.
    pub(super) fn frame(&self, at: Instant, socket: usize, text: &str) {
        if let Some(sender) = &self.0 {
            let Fields(fields) = Fields::of("frame").number("socket", socket);
            sender.send(at.into_std(), Folder::Ws, fields, Payload::Text(text.to_owned()));
        }
    }

    /// Records that a connection ended or could not be opened.
    pub(super) fn lost(&self, socket: usize, why: impl Display) {
        self.send(Folder::Ws, Payload::None, || {
            Fields::of("lost").number("socket", socket).text("why", &why.to_string())
        });
    }

    /// Records that a connection was given up.
    pub(super) fn given_up(&self, socket: usize, why: &str) {
        self.send(Folder::Ws, Payload::None, || {
            Fields::of("given_up").number("socket", socket).text("why", why)
        });
    }

    /// Records that the proof of these books expired.
    pub(super) fn expired(&self, ids: &[Arc<str>]) {
        if !ids.is_empty() {
            self.send(Folder::Ws, Payload::None, || {
                Fields::of("expired").list("tokens", ids.iter())
            });
        }
    }

    /// Records a request for the books of these tokens.
    pub(super) fn ask<'a>(&self, ask: u64, ids: impl Iterator<Item = &'a Arc<str>>) {
        self.send(Folder::Clob, Payload::None, || {
            Fields::of("ask").number("ask", ask).list("tokens", ids)
        });
    }

    /// Records the answer to a request for books, or its failure.
    pub(super) fn books<E: Display>(
        &self,
        ask: u64,
        asked_at: Instant,
        received_at: Instant,
        answer: &Result<Bytes, E>,
    ) {
        if let Some(sender) = &self.0 {
            let asked_ns = sender.time(asked_at.into_std()).nanos();
            let Fields(fields) =
                Fields::of("books").number("ask", ask).number("asked_ns", asked_ns);
            sender.send(received_at.into_std(), Folder::Clob, fields, payload(answer));
        }
    }

    fn send(&self, folder: Folder, payload: Payload, fields: impl FnOnce() -> Fields) {
        if let Some(sender) = &self.0 {
            let Fields(fields) = fields();
            sender.send(Instant::now().into_std(), folder, fields, payload);
        }
    }
}

fn payload<E: Display>(answer: &Result<Bytes, E>) -> Payload {
    match answer {
        Ok(bytes) => Payload::Bytes(bytes.clone()),
        Err(error) => Payload::Error(error.to_string()),
    }
}

/// The fields of a line, as JSON without braces.
struct Fields(String);

impl Fields {
    fn of(kind: &str) -> Self {
        Self(format!(r#""kind":"{kind}""#))
    }

    fn number(mut self, key: &str, value: impl Display) -> Self {
        let _ = write!(self.0, r#","{key}":{value}"#);
        self
    }

    fn text(self, key: &str, text: &str) -> Self {
        self.number(key, serde_json::Value::from(text))
    }

    fn list<'a>(mut self, key: &str, ids: impl Iterator<Item = &'a Arc<str>>) -> Self {
        let _ = write!(self.0, r#","{key}":["#);
        for (index, id) in ids.enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let _ = write!(self.0, "{comma}{}", serde_json::Value::from(&**id));
        }
        self.0.push(']');
        self
    }
}
