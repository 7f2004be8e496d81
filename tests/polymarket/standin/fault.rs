//! The faults of the venue: on sockets, in single frames, and at endpoints.

use std::time::Duration;

use bytes::Bytes;

use super::frames::{text_frame, text_of};
use super::server::Host;

/// Which sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which<'a> {
    /// The open ones.
    Open,
    /// The open ones, and those opened later.
    Every,
    /// The socket with this number.
    One(u64),
    /// The open ones subscribed to this token.
    Of(&'a str),
}

/// A socket's fault, which lasts until it is used up or until [`super::StandIn::behave`]. Books
/// keep changing; only what the client receives is affected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// No more events are sent.
    Freeze {
        /// Whether a `PING` is still answered.
        has_pong: bool,
    },
    /// The next frames are never sent.
    Skip {
        /// How many.
        frames: u32,
    },
    /// The next frames are sent twice.
    Duplicate {
        /// How many.
        frames: u32,
    },
    /// In each of the next pairs of frames, the second is sent first.
    Swap {
        /// How many pairs.
        pairs: u32,
    },
    /// The hashes are wrong in the next frames that have one.
    CorruptHash {
        /// How many.
        frames: u32,
    },
    /// The timestamps of the next frames are decades ahead.
    Ahead {
        /// How many.
        frames: u32,
    },
    /// Every frame is sent with this text in place of that one.
    Edit(Edit),
    /// Every frame is delayed this long, answers to `PING` included.
    Delay(Duration),
    /// The connection ends without a close frame.
    Drop,
    /// The venue sends no more but keeps receiving.
    HalfClose,
}

/// Text in place of other text, wherever that occurs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Edit {
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
}

/// A frame that no event caused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Injection<'a> {
    /// A book of this token whose best bid is above its best ask, with a matching hash.
    CrossedBook(&'a str),
    /// Not JSON.
    Garbage,
    /// An empty text frame.
    Empty,
    /// The answer to a subscription that adds nothing.
    NoNewAssets,
    /// A text frame of this many bytes.
    Huge(usize),
    /// A binary frame.
    Binary,
    /// JSON with an unknown `event_type`.
    UnknownEvent,
    /// This text.
    Text(&'a str),
}

/// The current faults of a socket.
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
    pub(crate) edit: Option<Edit>,
    /// The first frame of a pair that is being swapped.
    pub(crate) held: Option<Bytes>,
}

impl SocketFaults {
    /// The frames to send in place of this one; none if it is withheld.
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
        if let Some(edit) = self.edit {
            frame = edited(&frame, edit);
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

/// The frame with the first digit of each hash changed; `None` if it has no hash.
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

/// The frame with the first digit of each timestamp changed.
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

/// The frame with other text.
fn edited(frame: &Bytes, Edit { from, to }: Edit) -> Bytes {
    match text_of(frame).and_then(|text| String::from_utf8(text.to_vec()).ok()) {
        Some(text) if text.contains(from) => text_frame(text.replace(from, to).as_bytes()),
        _ => frame.clone(),
    }
}

/// A kind of request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Endpoint {
    /// `GET /markets/keyset` with an order: a listing.
    Keyset,
    /// `GET /markets/keyset` for named markets.
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

    /// The endpoint of this request.
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

/// The unpacked size of a decompression bomb.
pub(crate) const BOMB_BYTES: u64 = 1 << 26;

/// The fault of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EndpointFault {
    /// It refuses: 403 from the edge, 425 while the venue restarts, 429 when the rate limit is
    /// exceeded.
    Refuse {
        /// The status.
        status: u16,
        /// The `Retry-After` header, in seconds.
        retry_after_s: Option<u32>,
    },
    /// It refuses with 429, and `Retry-After` is the date this many seconds from now.
    RefuseUntil {
        /// How far in the future.
        seconds: u32,
    },
    /// The answer is delayed this long.
    Slow(Duration),
    /// No answer ever comes.
    Silent,
    /// The answer has its full announced length, but its JSON ends in the middle.
    Truncate,
    /// The connection ends in the middle of the body.
    Cut,
    /// A web page, with status 200.
    Garbage,
    /// A short body that unpacks to [`BOMB_BYTES`] of white space.
    Bomb,
    /// A body that is labelled gzip but is not.
    NotGzip,
    /// The answer has this text in place of that one.
    Edit(Edit),
    /// The answer has this header.
    Header(&'static str, &'static str),
}
