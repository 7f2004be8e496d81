//! The connector as its readers see it, and a way to wait for what it publishes.

use std::sync::Arc;
use std::time::Duration;

use paperbourse::market::Markets;
use paperbourse::market::book::Book;
use paperbourse::venue::feed::{Feed, MismatchPolicy};
use paperbourse::venue::follow::status::{LiveSnapshot, LiveStatus};
use paperbourse::venue::follow::timing::{Refusals, Timing};
use paperbourse::venue::live::LiveVenue as _;
use paperbourse::venue::polymarket::filter::MarketFilter;
use paperbourse::venue::polymarket::live::{Live, LiveConfig, Tap};
use paperbourse::venue::tls::{self, Roots};
use tokio::task::JoinHandle;

use crate::clock::count_own_time_only;
use crate::standin::StandIn;

/// A test that waits longer has failed.
const PATIENCE: Duration = Duration::from_mins(1);

/// All times are a few tens of times shorter than for the real venue.
pub(crate) const QUICK: Timing = Timing {
    verified_max: Duration::from_secs(2),
    check_after: Duration::from_secs(1),
    suspect_grace: Duration::from_millis(100),
    ahead_grace: Duration::from_millis(250),
    sync_timeout: Duration::from_millis(500),
    book_request_pause: Duration::from_millis(200),
    silence_timeout: Duration::from_millis(300),
    sweep_interval: Duration::from_millis(20),
    sweep_timeout: Timing::VENUE.sweep_timeout,
    refresh_interval: Duration::from_millis(500),
    ping_interval: Duration::from_millis(200),
    pong_timeout: Duration::from_millis(700),
    connect_timeout: Duration::from_secs(2),
    connect_spacing: Duration::from_millis(5),
    backoff_min: Duration::from_millis(20),
    backoff_max: Duration::from_millis(200),
    lag_max: Duration::from_millis(1_500),
    retraction_after: Duration::from_secs(1),
    answer_timeout: Duration::from_secs(1),
    refusals: Refusals {
        rate_limited: Duration::from_millis(400),
        forbidden: Duration::from_millis(600),
        restarting: Duration::from_millis(300),
        failing: Duration::from_millis(100),
    },
};

/// A connector that follows a stand-in until it is dropped.
pub(crate) struct Connector {
    pub(crate) markets: Arc<Markets>,
    status: LiveStatus,
    task: JoinHandle<()>,
}

impl Connector {
    /// Follows at most `market_count` markets of this venue.
    pub(crate) fn start(venue: &StandIn, market_count: usize, timing: Timing) -> Self {
        let filter = MarketFilter { count_max: market_count, ..MarketFilter::default() };
        Self::start_filtered(venue, filter, timing)
    }

    /// Follows the markets that pass the filter.
    pub(crate) fn start_filtered(venue: &StandIn, filter: MarketFilter, timing: Timing) -> Self {
        Self::start_trusting(venue, filter, timing, MismatchPolicy::Distrust)
    }

    /// Follows the markets that pass the filter, and handles contradicted books by this policy.
    pub(crate) fn start_trusting(
        venue: &StandIn,
        filter: MarketFilter,
        timing: Timing,
        policy: MismatchPolicy,
    ) -> Self {
        Self::start_tapped(venue, filter, timing, policy, Tap::default())
    }

    /// Like [`Self::start_trusting`], and records to a tape.
    pub(crate) fn start_tapped(
        venue: &StandIn,
        filter: MarketFilter,
        timing: Timing,
        policy: MismatchPolicy,
        tap: Tap,
    ) -> Self {
        count_own_time_only();
        let addresses = [&venue.gamma_url, &venue.clob_url, &venue.data_url, &venue.ws_url];
        let addresses = addresses.map(|url| url.parse().unwrap());
        let roots = venue.authority_path.as_deref().map_or(Roots::Nobody, Roots::File);
        let tls = tls::client_config(roots).unwrap();
        let markets = Arc::new(Markets::new());
        let feed = Feed::new(markets.clone(), policy);
        let config = LiveConfig::new(addresses, tls, filter, timing);
        let mut live = Live::tapped(config, feed, tap);
        let status = live.status();
        let task = tokio::spawn(async move { live.run().await });
        Self { markets, status, task }
    }

    /// The connection's state, as readers see it.
    pub(crate) fn status(&self) -> LiveSnapshot {
        self.status.get()
    }

    /// The book of a token, if one is known.
    pub(crate) fn book(&self, token: &str) -> Option<Arc<Book>> {
        let listing = self.markets.listing();
        let (market, outcome) = listing.by_token(token)?;
        market.book(outcome).clone()
    }

    /// The book of a token, if orders can be filled on it.
    pub(crate) fn fresh(&self, token: &str) -> Option<Arc<Book>> {
        self.book(token).filter(|book| !book.stale)
    }

    /// Waits until the condition holds for what was published.
    #[track_caller]
    pub(crate) fn until<'a>(
        &'a self,
        what: &'a str,
        condition: impl Fn(&Self) -> bool + 'a,
    ) -> impl Future<Output = ()> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            let waiting = async {
                while !condition(self) {
                    self.markets.changes().await;
                }
            };
            let result = tokio::time::timeout(PATIENCE, waiting).await;
            assert!(result.is_ok(), "{caller}: timed out waiting for {what}; {:?}", self.status());
        }
    }

    /// Waits until all these tokens have a book on which orders can be filled.
    #[track_caller]
    pub(crate) fn until_fresh<'a>(&'a self, tokens: &'a [String]) -> impl Future<Output = ()> + 'a {
        self.until("fresh books", |it| tokens.iter().all(|token| it.fresh(token).is_some()))
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        self.task.abort();
    }
}
