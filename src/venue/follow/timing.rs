//! Timeouts and intervals for following a live venue.

use std::time::Duration;

/// Timeouts and intervals.
#[derive(Clone, Debug)]
pub struct Timing {
    /// How long a book stays live after it was proven.
    pub verified_max: Duration,
    /// A book that has been quiet for this long is requested.
    pub check_after: Duration,
    /// A contradicted book is requested after this long: the trade that explains the contradiction
    /// may arrive in the meantime.
    pub suspect_grace: Duration,
    /// Best prices may be ahead of the change that makes them by this long, until the next sweep.
    pub ahead_grace: Duration,
    /// A book that the socket has not sent this long after it opened is requested.
    pub sync_timeout: Duration,
    /// The time between two requests for the same book.
    pub book_request_pause: Duration,
    /// A socket is given up if it does not send, within this time, what the book endpoint sent.
    pub silence_timeout: Duration,
    /// The time between two sweeps over all books.
    pub sweep_interval: Duration,
    /// Without a sweep for this long, no book counts as live.
    pub sweep_timeout: Duration,
    /// The time between two fetches of the list of markets.
    pub refresh_interval: Duration,
    /// The time between two `PING`s.
    pub ping_interval: Duration,
    /// A socket without a `PONG` for this long is given up.
    pub pong_timeout: Duration,
    /// The time limit for opening a connection.
    pub connect_timeout: Duration,
    /// The time between opening two connections.
    pub connect_spacing: Duration,
    /// The wait before the first try to reconnect.
    pub backoff_min: Duration,
    /// The longest wait before a try to reconnect.
    pub backoff_max: Duration,
    /// A change may be delayed by this much more than the fastest one of its connection; later, it
    /// does not describe the present.
    pub lag_max: Duration,
    /// The catalogue overrules a socket that reported the end of a market if it still lists the
    /// market as open after this long; until then it may only be behind.
    pub retraction_after: Duration,
    /// The time limit for a request, from resolving the address to the last byte of the answer.
    pub answer_timeout: Duration,
    /// How long to pause after a refusal.
    pub refusals: Refusals,
}

/// How long to send no requests to a service after a refusal without a `Retry-After`. Each further
/// refusal doubles the pause.
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
    /// For production.
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
