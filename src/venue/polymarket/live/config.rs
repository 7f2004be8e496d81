//! The settings of the connector.

use std::sync::Arc;

use hyper::Uri;
use rustls::ClientConfig;

use crate::follow::timing::Timing;
use crate::polymarket::filter::MarketFilter;

/// The addresses of the services, the markets to follow, and the timing.
pub struct LiveConfig {
    /// The base address of Gamma.
    pub gamma: Uri,
    /// The base address of the CLOB service.
    pub clob: Uri,
    /// The base address of the data API.
    pub data: Uri,
    /// The address of the market socket, path included.
    pub socket: Uri,
    /// The TLS configuration, with the certificates to trust.
    pub tls: Arc<ClientConfig>,
    /// The selection of markets to follow.
    pub filter: MarketFilter,
    /// Intervals and timeouts.
    pub timing: Timing,
}

impl LiveConfig {
    /// Creates a configuration from the addresses of Gamma, the CLOB service, the data API and the
    /// socket, in this order, and the other settings.
    pub fn new(
        [gamma, clob, data, socket]: [Uri; 4],
        tls: ClientConfig,
        filter: MarketFilter,
        timing: Timing,
    ) -> Self {
        Self { gamma, clob, data, socket, tls: Arc::new(tls), filter, timing }
    }
}
