//! The options of a stand-in.

use std::time::Duration;

/// How the last page of a keyset listing ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EndCursor {
    /// Without `next_cursor`.
    Absent,
    /// With `"next_cursor":"LTE="`.
    Lte,
}

/// How the stand-in plays the venue. The default matches the real venue.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// TLS, with a certificate signed by the authority at [`super::StandIn::authority_path`]; plain
    /// otherwise.
    pub(crate) is_tls: bool,
    /// How the last page of a listing ends.
    pub(crate) end_cursor: EndCursor,
    /// A socket is dropped if no `PING` arrives for this long. The venue's limit is about 10 s, yet
    /// clients that ping every 10 s survive.
    pub(crate) ping_patience: Duration,
    /// A socket without a subscription is closed after this long.
    pub(crate) subscribe_patience: Duration,
    /// A socket with more tokens receives no initial snapshots.
    pub(crate) snapshot_tokens_max: usize,
    /// Whether a subscription that does not mention the initial dump gets one.
    pub(crate) dumps_unasked: bool,
    /// A frame with more tokens is ignored silently.
    pub(crate) frame_tokens_max: usize,
    /// How many states of each book are kept.
    pub(crate) history_max: usize,
    /// The seed of all randomness.
    pub(crate) seed: u64,
    /// Whether best prices are sent before the change that makes them, as the venue does at times.
    pub(crate) has_tops_first: bool,
    /// Whether everything sent is kept, byte for byte.
    pub(crate) keeps_sent: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            is_tls: true,
            end_cursor: EndCursor::Absent,
            ping_patience: Duration::from_secs(15),
            subscribe_patience: Duration::from_secs(10),
            snapshot_tokens_max: 500,
            dumps_unasked: true,
            frame_tokens_max: 500,
            history_max: 100_000,
            seed: 1,
            has_tops_first: false,
            keeps_sent: false,
        }
    }
}
