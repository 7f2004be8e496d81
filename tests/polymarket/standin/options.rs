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
#[expect(clippy::struct_excessive_bools, reason = "each is a way of the venue of its own")]
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
    /// The most markets in a page.
    pub(crate) page_markets_max: usize,
    /// Whether cursors are ignored, so that every page is the first one.
    pub(crate) ignores_cursors: bool,
    /// Whether best prices are sent before the change that moves them.
    pub(crate) is_top_first: bool,
    /// How many states of each book are kept.
    pub(crate) history_max: usize,
    /// The seed of all randomness.
    pub(crate) seed: u64,
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
            page_markets_max: 100,
            ignores_cursors: false,
            is_top_first: false,
            history_max: 100_000,
            seed: 1,
            keeps_sent: false,
        }
    }
}
