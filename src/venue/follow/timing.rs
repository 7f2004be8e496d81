//! Timeouts and intervals for following a live venue.

use std::time::Duration;

/// The timeouts and intervals of a follower and its carrier.
#[derive(Clone, Debug)]
pub struct Timing {
    /// Time for which a book stays live after it was proven.
    pub verified_max: Duration,
    /// Time without a proof after which a live book is requested.
    pub check_after: Duration,
    /// Time after which a contradicted book is requested. Until then, the trade that explains the
    /// contradiction may still arrive.
    pub suspect_grace: Duration,
    /// Time for which best prices may be ahead of a book before a sweep expires the book.
    pub ahead_grace: Duration,
    /// Time that a newly opened socket has to send a book before the book is requested.
    pub sync_timeout: Duration,
    /// Minimum time between two requests for the same book.
    pub book_request_pause: Duration,
    /// Time that a socket has to send an update that the book endpoint has already sent. After
    /// that, the socket is given up.
    pub silence_timeout: Duration,
    /// Time between two sweeps over all books.
    pub sweep_interval: Duration,
    /// Time without a sweep after which no book counts as live.
    pub sweep_timeout: Duration,
    /// Time between two fetches of the list of markets.
    pub refresh_interval: Duration,
    /// Time between two `PING`s.
    pub ping_interval: Duration,
    /// Time without a `PONG` after which a socket is given up.
    pub pong_timeout: Duration,
    /// Time limit for opening a connection.
    pub connect_timeout: Duration,
    /// Time between opening two connections.
    pub connect_spacing: Duration,
    /// Wait before the first attempt to reconnect.
    pub backoff_min: Duration,
    /// Maximum wait before an attempt to reconnect.
    pub backoff_max: Duration,
    /// Maximum delay of a change in excess of that of the fastest change on its connection. A
    /// change with a longer delay does not describe the present.
    pub lag_max: Duration,
    /// Time after which the catalogue overrules a socket that reported the end of a market, if the
    /// catalogue still lists the market as open. Until then, the catalogue may be behind.
    pub retraction_after: Duration,
    /// Time limit for a request, from resolving the address to the last byte of the answer.
    pub answer_timeout: Duration,
    /// Pauses after a service refuses a request.
    pub refusals: Refusals,
}

/// How long to pause requests to a service after it refuses one without a `Retry-After`. Each
/// further refusal doubles the pause.
#[derive(Clone, Copy, Debug)]
pub struct Refusals {
    /// Rate limited (429).
    pub rate_limited: Duration,
    /// Blocked by the edge in front of the service (403); insisting makes it worse.
    pub forbidden: Duration,
    /// The weekly restart (425).
    pub restarting: Duration,
    /// A server error (5xx).
    pub failing: Duration,
}

impl Timing {
    /// The values for production.
    pub const VENUE: Self = Self {
        verified_max: Duration::from_mins(2),
        check_after: Duration::from_mins(1),
        suspect_grace: Duration::from_millis(500),
        ahead_grace: Duration::from_millis(250),
        sync_timeout: Duration::from_secs(5),
        book_request_pause: Duration::from_secs(2),
        silence_timeout: Duration::from_secs(5),
        sweep_interval: Duration::from_millis(250),
        sweep_timeout: Duration::from_secs(5),
        refresh_interval: Duration::from_mins(1),
        ping_interval: Duration::from_secs(10),
        pong_timeout: Duration::from_secs(30),
        connect_timeout: Duration::from_secs(10),
        connect_spacing: Duration::from_millis(200),
        backoff_min: Duration::from_millis(500),
        backoff_max: Duration::from_mins(1),
        lag_max: Duration::from_secs(5),
        retraction_after: Duration::from_mins(10),
        answer_timeout: Duration::from_secs(20),
        refusals: Refusals {
            rate_limited: Duration::from_secs(10),
            forbidden: Duration::from_secs(30),
            restarting: Duration::from_secs(5),
            failing: Duration::from_secs(1),
        },
    };
}
