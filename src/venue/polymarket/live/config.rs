//! Where the venue is, what is wanted of it, and how long everything takes.

use std::sync::Arc;

use hyper::Uri;
use rustls::ClientConfig;

use crate::venue::follow::timing::Timing;
use crate::venue::polymarket::filter::MarketFilter;

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
