//! A row of the table: what the venue does, and what is to come of it.

use std::time::Duration;

use paperbourse::venue::follow::status::LiveSnapshot;
use paperbourse::venue::follow::timing::Timing;

use crate::connector::QUICK;
use crate::standin::StandIn;
use crate::standin::world::token_id;

/// What the venue does, and what is to come of it.
pub(super) struct Row {
    /// What the venue does, in words.
    pub(super) venue: &'static str,
    pub(super) timing: Timing,
    pub(super) walking: Walking,
    /// Does it.
    pub(super) act: fn(&StandIn),
    /// By what the connector shows that it has noticed: what it counts now, and counted before.
    pub(super) sign: fn(&LiveSnapshot, &LiveSnapshot) -> bool,
    /// Ends it, where it does not end by itself.
    pub(super) mend: fn(&StandIn),
    /// For how long at most a book can be used after it has ended.
    pub(super) noticed: Span,
    pub(super) stale: Stale,
    pub(super) means: Means,
    /// From the sign, or from the end of what is wrong where that is later, to books as before.
    pub(super) recovered: Span,
    /// The market is over.
    pub(super) is_over: bool,
    /// A connector that trusts everything is caught by the auditor.
    pub(super) is_mutated: bool,
}

/// Which books move while it happens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Walking {
    All,
    /// All but those of market 0, on which it happens.
    Others,
}

/// On which tokens nothing can fill meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stale {
    Nothing,
    /// The first token of market 0.
    Token,
    /// Both tokens of market 0.
    Market,
    /// Everything that the socket tells.
    Socket,
}

/// What mends it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Means {
    /// There is nothing to mend.
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
/// Sweeps look at most so late, and the answer takes its time.
pub(super) const CHECK: Span =
    Span { name: "check_after", duration: |timing| timing.check_after + timing.sweep_interval };
/// A book that only the book endpoint told, and what it did not tell until the socket was given up.
pub(super) const CHECK_AND_SILENCE: Span = Span {
    name: "silence_timeout",
    duration: |timing| timing.silence_timeout + timing.backoff_min + timing.sync_timeout,
};
pub(super) const EXPIRY: Span =
    Span { name: "verified_max", duration: |timing| timing.verified_max + timing.sweep_interval };
pub(super) const LAG: Span = Span { name: "the delay", duration: |_| DELAY };
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
    /// It happens to market 0, is betrayed by a frame, and mended by the book endpoint.
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

    /// Nothing comes of it.
    pub(super) fn harmless(self) -> Self {
        Self { stale: Stale::Nothing, means: Means::Nothing, recovered: AT_ONCE, ..self }
    }

    /// Another connection mends it, and what it told is stale meanwhile.
    pub(super) fn reconnected(self) -> Self {
        Self { stale: Stale::Socket, means: Means::Reconnect, recovered: BACKOFF, ..self }
    }

    /// Whether nothing can be traded on this token ever after.
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
