//! How long everything takes that has to do with a venue that is followed live.

use std::time::Duration;

/// How long everything takes.
#[derive(Clone, Debug)]
pub struct Timing {
    /// A book is live for so long after it was proven.
    pub verified_max: Duration,
    /// A book of which nothing was heard for so long is asked for.
    pub check_after: Duration,
    /// A contradicted book is asked for after so long: a trade that is told late may explain it.
    pub suspect_grace: Duration,
    /// A book that the socket has not sent so long after it was opened is asked for.
    pub sync_patience: Duration,
    /// Between two questions for one book.
    pub ask_pause: Duration,
    /// A socket that has not told within so long what the book endpoint did is given up.
    pub silence_patience: Duration,
    /// Between two looks at all books.
    pub sweep_interval: Duration,
    /// Between two lists of markets.
    pub refresh_interval: Duration,
    /// Between two `PING`s.
    pub ping_interval: Duration,
    /// A socket without a `PONG` for so long is given up.
    pub pong_patience: Duration,
    /// How long opening a connection may take.
    pub connect_patience: Duration,
    /// Between two connections that are opened.
    pub connect_spacing: Duration,
    /// The first wait before a lost connection is opened again.
    pub backoff_least: Duration,
    /// The longest.
    pub backoff_most: Duration,
    /// What a socket tells may be older than what it told soonest by so much, and no more: what it
    /// tells late says nothing of the present.
    pub lag_max: Duration,
    /// The catalogue takes back what a socket said of a market's end if it calls the market open
    /// so long after it: within that time, it may only be behind.
    pub retraction_after: Duration,
    /// From an address to the last byte of the answer.
    pub answer_patience: Duration,
    /// Nothing is asked of a service for so long after it refused.
    pub refusals: Refusals,
}

/// How long a service is left alone after a refusal that does not say. Each refusal more doubles
/// it.
#[derive(Clone, Copy, Debug)]
pub struct Refusals {
    /// It was asked too often.
    pub too_often: Duration,
    /// The edge in front of it does not like us: to insist makes it worse.
    pub forbidden: Duration,
    /// The weekly restart.
    pub restarting: Duration,
    /// It fails.
    pub failing: Duration,
}

impl Timing {
    /// For the venue itself.
    pub const VENUE: Self = Self {
        verified_max: Duration::from_mins(2),
        check_after: Duration::from_mins(1),
        suspect_grace: Duration::from_millis(500),
        sync_patience: Duration::from_secs(5),
        ask_pause: Duration::from_secs(2),
        silence_patience: Duration::from_secs(5),
        sweep_interval: Duration::from_millis(250),
        refresh_interval: Duration::from_mins(1),
        ping_interval: Duration::from_secs(10),
        pong_patience: Duration::from_secs(30),
        connect_patience: Duration::from_secs(10),
        connect_spacing: Duration::from_millis(200),
        backoff_least: Duration::from_millis(500),
        backoff_most: Duration::from_mins(1),
        lag_max: Duration::from_secs(5),
        retraction_after: Duration::from_mins(10),
        answer_patience: Duration::from_secs(20),
        refusals: Refusals {
            too_often: Duration::from_secs(10),
            forbidden: Duration::from_secs(30),
            restarting: Duration::from_secs(5),
            failing: Duration::from_secs(1),
        },
    };
}
