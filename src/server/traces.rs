//! Starts tracing if it is configured.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use crate::config::traces::TraceArgs;
use crate::telemetry::{Exporter, Traces, origin};
use crate::venue::client::Client;
use crate::venue::tls::{self, Roots};

/// Timeout for a request to the collector.
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the tracer and the task that sends its traces, or `None` if tracing is off.
pub(super) fn start(arguments: &TraceArgs) -> anyhow::Result<Option<(Arc<Traces>, Exporter)>> {
    let Some(config) = arguments.config()? else { return Ok(None) };
    let roots = if config.endpoint.is_https() { Roots::System } else { Roots::Nobody };
    let tls = tls::client_config(roots).context("failed to prepare TLS for --trace-endpoint")?;
    let client = Client::new(tls, PATIENCE, 1);
    let endpoint = origin(config.endpoint.uri());
    tracing::info!(endpoint, sample = %config.sample, "tracing requests");
    Ok(Some(Traces::new(config.sample, client, config.endpoint.uri().clone())))
}
