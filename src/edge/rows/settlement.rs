//! How far the settlement of a trade is.

use super::CONFIRMED;

/// How far the settlement of a trade is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// It is matched, and not in a transaction yet.
    Matched,
    /// Its transaction has failed and is sent again.
    Retrying,
    /// It is in a transaction, which all nodes of the chain will soon know.
    Mined,
    /// It is settled.
    Confirmed,
    /// It will never be settled: its fill was undone.
    Failed,
}

impl Stage {
    /// Returns the status of a trade in this stage.
    pub(crate) const fn status(self) -> &'static str {
        match self {
            Self::Matched => "MATCHED",
            Self::Retrying => "RETRYING",
            Self::Mined => "MINED",
            Self::Confirmed => CONFIRMED,
            Self::Failed => "FAILED",
        }
    }

    /// Whether the shares and the money of the trade are there, or will never be.
    pub(crate) const fn is_final(self) -> bool {
        matches!(self, Self::Confirmed | Self::Failed)
    }
}
