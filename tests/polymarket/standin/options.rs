//! What a test may choose when it starts a stand-in.

use std::time::Duration;

/// How the last page of a keyset listing is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EndCursor {
    /// Without `next_cursor`.
    Absent,
    /// With `"next_cursor":"LTE="`.
    Lte,
}

/// How the stand-in plays the venue. The default is the venue as it is.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// TLS with a certificate that [`super::StandIn::authority_path`] has signed; plain otherwise.
    pub(crate) is_tls: bool,
    /// How the last page is told.
    pub(crate) end_cursor: EndCursor,
    /// A socket without a `PING` for so long is dropped. The venue drops after about 10 s, and
    /// clients that send one every 10 s live.
    pub(crate) ping_patience: Duration,
    /// A socket that has subscribed to nothing for so long is closed.
    pub(crate) subscribe_patience: Duration,
    /// A socket with more tokens gets no initial snapshots.
    pub(crate) snapshot_tokens_max: usize,
    /// A subscription that does not say whether it wants whole books first gets them.
    pub(crate) dumps_unasked: bool,
    /// A frame that names more tokens is dropped without a word.
    pub(crate) frame_tokens_max: usize,
    /// How many states of each book are remembered.
    pub(crate) history_max: usize,
    /// For everything that is left to chance.
    pub(crate) seed: u64,
    /// Everything that is told is remembered, byte for byte.
    pub(crate) keeps_told: bool,
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
            keeps_told: false,
        }
    }
}
