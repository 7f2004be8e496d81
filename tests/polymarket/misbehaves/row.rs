//! A row of the table: what the venue does, and the expected result.

use std::time::Duration;

use paperbourse::venue::follow::status::LiveSnapshot;
use paperbourse::venue::follow::timing::Timing;

use crate::connector::QUICK;
use crate::standin::StandIn;
use crate::standin::world::token_id;

/// What the venue does, and the expected result.
pub(super) struct Row {
    /// What the venue does, as the table shows it.
    pub(super) venue: &'static str,
    pub(super) timing: Timing,
    pub(super) walking: Walking,
    /// Does it.
    pub(super) act: fn(&StandIn),
    /// The sign that the connector has noticed: its counters now, and before.
    pub(super) sign: fn(&LiveSnapshot, &LiveSnapshot) -> bool,
    /// Ends the fault, if it does not end by itself.
    pub(super) mend: fn(&StandIn),
    /// The longest time that a book can be used after it has ended.
    pub(super) noticed: Span,
    pub(super) stale: Stale,
    pub(super) means: Means,
    /// The longest time from the sign, or from the end of the fault if that is later, until all
    /// books are back.
    pub(super) recovered: Span,
    /// Whether the market is over.
    pub(super) is_over: bool,
    /// Whether the auditor must catch a connector that trusts everything.
    pub(super) is_mutated: bool,
}

/// Which books move during the fault.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Walking {
    All,
    /// All except market 0's, which has the fault.
    Others,
}

/// The tokens whose books cannot be filled on during the fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stale {
    Nothing,
    /// The first token of market 0.
    Token,
    /// Both tokens of market 0.
    Market,
    /// All tokens of the socket.
    Socket,
}

/// What repairs the books.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Means {
    /// There is nothing to repair.
    Nothing,
    /// The next frames.
    Frames,
    /// The book endpoint.
    Books,
    /// Another connection.
    Reconnect,
}

/// A time as a sum of fields of [`Timing`].
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) name: &'static str,
    pub(super) duration: fn(&Timing) -> Duration,
}

pub(super) const AT_ONCE: Span = Span { name: "0", duration: |_| Duration::ZERO };
/// A sweep notices at most this late, and the answer takes its time.
pub(super) const CHECK: Span =
    Span { name: "check_after", duration: |timing| timing.check_after + timing.sweep_interval };
/// From a book that only the book endpoint reported, through the silence until the socket is given
/// up, to the next initial dump.
pub(super) const CHECK_AND_SILENCE: Span = Span {
    name: "silence_timeout",
    duration: |timing| timing.silence_timeout + timing.backoff_min + timing.sync_timeout,
};
pub(super) const EXPIRY: Span =
    Span { name: "verified_max", duration: |timing| timing.verified_max + timing.sweep_interval };
pub(super) const LAG: Span = Span { name: "the delay", duration: |_| DELAY };
pub(super) const AHEAD: Span =
    Span { name: "ahead_grace", duration: |timing| timing.ahead_grace + timing.sweep_interval };
pub(super) const GRACE: Span = Span {
    name: "suspect_grace",
    duration: |timing| timing.suspect_grace + timing.sweep_interval + timing.book_request_pause,
};
pub(super) const BACKOFF: Span = Span {
    name: "backoff_min",
    duration: |timing| timing.backoff_min + timing.connect_spacing + timing.sync_timeout,
};
pub(super) const BACKOFF_MOST: Span = Span {
    name: "backoff_max",
    duration: |timing| 2 * timing.backoff_max + timing.connect_spacing + timing.sync_timeout,
};

/// How late a delayed socket is.
pub(super) const DELAY: Duration = Duration::from_secs(2);

impl Row {
    /// A fault of market 0 that a frame reveals and the book endpoint repairs.
    pub(super) fn new(
        venue: &'static str,
        act: fn(&StandIn),
        sign: fn(&LiveSnapshot, &LiveSnapshot) -> bool,
    ) -> Self {
        Self {
            venue,
            timing: QUICK,
            walking: Walking::Others,
            act,
            sign,
            mend: |_| {},
            noticed: AT_ONCE,
            stale: Stale::Market,
            means: Means::Books,
            recovered: GRACE,
            is_over: false,
            is_mutated: false,
        }
    }

    /// The fault has no effect.
    pub(super) fn harmless(self) -> Self {
        Self { stale: Stale::Nothing, means: Means::Nothing, recovered: AT_ONCE, ..self }
    }

    /// Another connection repairs the books, and all books of the socket are stale meanwhile.
    pub(super) fn reconnected(self) -> Self {
        Self { stale: Stale::Socket, means: Means::Reconnect, recovered: BACKOFF, ..self }
    }

    /// Whether this token can never be traded again.
    pub(super) fn is_over(&self, token: &str) -> bool {
        self.is_over && Stale::Market.has(token)
    }
}

impl Stale {
    pub(super) fn has(self, token: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::Token => token == token_id(0, 0),
            Self::Market => [token_id(0, 0), token_id(0, 1)].iter().any(|own| own == token),
            Self::Socket => true,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Token => "its token",
            Self::Market => "its market",
            Self::Socket => "its socket",
        }
    }
}

impl Means {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nothing => "-",
            Self::Frames => "frames",
            Self::Books => "/books",
            Self::Reconnect => "reconnect",
        }
    }
}
