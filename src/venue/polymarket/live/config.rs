//! Where the venue is, what is wanted of it, and how long everything takes.

use std::sync::Arc;

use hyper::Uri;
use rustls::ClientConfig;

use crate::money::Usd;
use crate::venue::follow::timing::Timing;

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
