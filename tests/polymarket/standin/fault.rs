//! How the venue misbehaves: on sockets, in single frames, and at its endpoints.

use std::time::Duration;

use bytes::Bytes;

use super::server::Host;

/// Which sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which<'a> {
    /// Those that are open.
    Open,
    /// Those that are open, and those that will be.
    Every,
    /// The one of this number.
    One(u64),
    /// Those that are open and have this token.
    Of(&'a str),
}

/// What is wrong with a socket, until it is used up or [`super::StandIn::behave`]. Books go on
/// changing; what the client is told does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// No event arrives any more.
    Freeze {
        /// Whether a `PING` is still answered.
        has_pong: bool,
    },
    /// The next so many frames are never sent.
    Skip {
        /// How many.
        frames: u32,
    },
    /// The next so many frames are sent twice.
    Duplicate {
        /// How many.
        frames: u32,
    },
    /// The next so many pairs of frames are sent the second first.
    Swap {
        /// How many pairs.
        pairs: u32,
    },
    /// The hashes of the next so many frames that have one are wrong.
    CorruptHash {
        /// How many.
        frames: u32,
    },
    /// The next so many frames tell a time that is decades ahead.
    Ahead {
        /// How many.
        frames: u32,
    },
    /// Every frame comes so much later, answers to `PING` included.
    Delay(Duration),
    /// The connection ends, without a word of goodbye.
    Drop,
    /// The venue sends no more and reads on.
    HalfClose,
}

/// A frame that no event has caused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Injection<'a> {
    /// A book of this token whose best bid is above its best ask, with a hash that fits.
    CrossedBook(&'a str),
    /// Not JSON.
    Garbage,
    /// A text frame of no bytes.
    Empty,
    /// The answer to a subscription that adds nothing.
    NoNewAssets,
    /// A text frame of so many bytes.
    Huge(usize),
    /// A binary frame.
    Binary,
    /// JSON with an `event_type` that nobody knows.
    UnknownEvent,
    /// This text.
    Text(&'a str),
}

/// What is wrong with one socket now.
#[derive(Debug, Default)]
pub(crate) struct SocketFaults {
    pub(crate) is_frozen: bool,
    pub(crate) is_pong_dead: bool,
    pub(crate) skip: u32,
    pub(crate) duplicate: u32,
    pub(crate) swap: u32,
    pub(crate) corrupt: u32,
    pub(crate) ahead: u32,
    pub(crate) delay: Option<Duration>,
    /// The first of a pair that is swapped.
    pub(crate) held: Option<Bytes>,
}

impl SocketFaults {
    /// What goes out when this frame should; nothing when it is withheld for good.
    pub(crate) fn pass(&mut self, frame: &Bytes) -> Vec<Bytes> {
        let has_used = |count: &mut u32| {
            let is_due = *count > 0;
            *count = count.saturating_sub(1);
            is_due
        };
        if self.is_frozen || has_used(&mut self.skip) {
            return Vec::new();
        }
        let mut frame = frame.clone();
        if self.corrupt > 0
            && let Some(corrupted) = with_other_hashes(&frame)
        {
            self.corrupt -= 1;
            frame = corrupted;
        }
        if has_used(&mut self.ahead) {
            frame = ahead(&frame);
        }
        if let Some(held) = self.held.take() {
            return vec![frame, held];
        }
        if has_used(&mut self.swap) {
            self.held = Some(frame);
            return Vec::new();
        }
        if has_used(&mut self.duplicate) {
            return vec![frame.clone(), frame];
        }
        vec![frame]
    }
}

/// The frame with another first digit in each of its hashes; `None` when it has none.
fn with_other_hashes(frame: &Bytes) -> Option<Bytes> {
    const NAME: &[u8] = br#""hash":""#;
    let mut bytes = frame.to_vec();
    let mut start = 0;
    while let Some(found) = bytes[start..].windows(NAME.len()).position(|part| part == NAME) {
        start += found + NAME.len();
        bytes[start] = if bytes[start] == b'0' { b'1' } else { b'0' };
    }
    (start > 0).then(|| bytes.into())
}

/// The frame with another first digit in each of its times.
fn ahead(frame: &Bytes) -> Bytes {
    const NAME: &[u8] = br#""timestamp":"1"#;
    let mut bytes = frame.to_vec();
    let mut start = 0;
    while let Some(found) = bytes[start..].windows(NAME.len()).position(|part| part == NAME) {
        start += found + NAME.len();
        bytes[start - 1] = b'3';
    }
    bytes.into()
}

/// What can be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Endpoint {
    /// `GET /markets/keyset` in some order: a list.
    Keyset,
    /// `GET /markets/keyset` of markets that are named.
    Named,
    /// `GET /events/keyset`.
    Events,
    /// Everything else of Gamma.
    Gamma,
    /// `POST /books`.
    Books,
    /// `GET /book`.
    Book,
    /// `GET /markets/…` of the CLOB.
    LongMarket,
    /// `GET /clob-markets/…`.
    CompactMarket,
    /// Everything else of the CLOB.
    Clob,
    /// Everything of the data API.
    Data,
    /// The upgrade to a socket.
    Upgrade,
}

impl Endpoint {
    /// All of them.
    pub(crate) const ALL: [Self; 11] = [
        Self::Keyset,
        Self::Named,
        Self::Events,
        Self::Gamma,
        Self::Books,
        Self::Book,
        Self::LongMarket,
        Self::CompactMarket,
        Self::Clob,
        Self::Data,
        Self::Upgrade,
    ];

    /// The one that this request belongs to.
    pub(crate) fn of(host: Host, path: &str, query: &str) -> Self {
        match (host, path) {
            (Host::Socket, _) => Self::Upgrade,
            (Host::Gamma, "/markets/keyset") if !query.contains("order=") => Self::Named,
            (Host::Gamma, "/markets/keyset") => Self::Keyset,
            (Host::Gamma, "/events/keyset") => Self::Events,
            (Host::Gamma, _) => Self::Gamma,
            (Host::Clob, "/books") => Self::Books,
            (Host::Clob, "/book") => Self::Book,
            (Host::Clob, path) if path.starts_with("/markets/") => Self::LongMarket,
            (Host::Clob, path) if path.starts_with("/clob-markets/") => Self::CompactMarket,
            (Host::Clob, _) => Self::Clob,
            (Host::Data, _) => Self::Data,
        }
    }
}

/// What a decompression bomb unpacks to.
pub(crate) const BOMB_BYTES: u64 = 1 << 26;

/// What is wrong with an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EndpointFault {
    /// It refuses: 403 by the edge, 425 while the venue restarts, 429 when asked too often.
    Refuse {
        /// The status.
        status: u16,
        /// The header, in seconds.
        retry_after_s: Option<u32>,
    },
    /// It refuses with 429, and `Retry-After` names the moment that is so many seconds away.
    RefuseUntil {
        /// How far away.
        seconds: u32,
    },
    /// The answer comes so much later.
    Slow(Duration),
    /// No answer ever comes.
    Silent,
    /// The answer is whole by its length, and its JSON ends in the middle.
    Truncate,
    /// The connection ends in the middle of the body.
    Cut,
    /// A web page, with status 200.
    Garbage,
    /// A short body that unpacks to [`BOMB_BYTES`] of white space.
    Bomb,
    /// A body that is called gzip and is not.
    NotGzip,
}
