//! Where the venue is, what is wanted of it, and how long everything takes.

use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use rustls::ClientConfig;

use crate::money::Usd;

/// At most this many markets are asked for.
pub const MARKETS_WANTED_MAX: usize = 5_000;

/// Where the venue is and what is wanted of it.
pub struct LiveConfig {
    /// The address of Gamma.
    pub gamma: Uri,
    /// The address of the CLOB service.
    pub clob: Uri,
    /// The address of the data API.
    pub data: Uri,
    /// The address of the market socket, path included.
    pub socket: Uri,
    /// Whom to trust.
    pub tls: Arc<ClientConfig>,
    /// Which markets.
    pub filter: MarketFilter,
    /// How long everything takes.
    pub timing: Timing,
}

/// Which markets are followed: the most traded of the day among those that match.
#[derive(Clone, Debug, Default)]
pub struct MarketFilter {
    /// At most so many, 1 to [`MARKETS_WANTED_MAX`]. A market that is followed stays followed until
    /// it closes, so there may be twice as many.
    pub count_max: usize,
    /// Ids of tags, of which a market must have one; none for all.
    pub tags: Vec<String>,
    /// Names in addresses; none for all.
    pub slugs: Vec<String>,
    /// Condition ids; none for all.
    pub condition_ids: Vec<String>,
    /// Ids of series, of which a market's event must be one; none for all. The markets that end
    /// soonest come first then, since the venue opens families of short ones long before.
    pub series: Vec<String>,
    /// Dollars traded in the last day.
    pub volume_24h_min: Option<Usd>,
}

impl MarketFilter {
    /// Whether it asks for some markets and not for whichever are traded most.
    pub(super) fn is_selective(&self) -> bool {
        [&self.tags, &self.slugs, &self.condition_ids, &self.series]
            .into_iter()
            .any(|wanted| !wanted.is_empty())
    }
}

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

impl LiveConfig {
    /// All of it.
    pub fn new(
        [gamma, clob, data, socket]: [Uri; 4],
        tls: ClientConfig,
        filter: MarketFilter,
        timing: Timing,
    ) -> Self {
        Self { gamma, clob, data, socket, tls: Arc::new(tls), filter, timing }
    }
}
