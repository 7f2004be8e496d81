//! The trace options: the collector, and the share of requests to trace.

use std::fmt;
use std::str::FromStr;

use clap::Args;
use hyper::Uri;

use crate::telemetry::Sample;

/// Default path at which collectors receive traces.
const DEFAULT_PATH: &str = "/v1/traces";

/// Length limit of the collector's address, in bytes.
const URL_BYTES_MAX: usize = 512;

/// The trace options of `paperbourse serve`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = super::LOGS)]
pub struct TraceArgs {
    /// OpenTelemetry collector that receives traces of requests, by OTLP over HTTP, such as
    /// `http://127.0.0.1:4318`; the path defaults to `/v1/traces`. Requires a build with the
    /// feature `traces`
    #[arg(hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_TRACE_ENDPOINT", value_name = "URL")]
    pub trace_endpoint: Option<TraceEndpoint>,

    /// Trace all requests (`all`), about one in N (`1/N`), or only those that their callers trace
    /// (`off`) [default: 1/100]
    #[arg(hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_TRACE_SAMPLE", value_name = "off|all|1/N")]
    pub trace_sample: Option<Sample>,
}

/// The address of a collector.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceEndpoint(Uri);

/// An error for text that is not the address of a collector.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "not the address of a collector: use http://HOST:PORT or https://HOST, with or without a \
     path, and without a user, a query or a fragment"
)]
pub struct TraceEndpointError;

/// An error in the trace options.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TraceConfigError {
    /// `--trace-endpoint` in a binary without the feature `traces`.
    #[error(
        "--trace-endpoint has no effect: this binary was built without traces. Build it with \
         `cargo build --release --features traces`, or leave out the flag"
    )]
    NotBuilt,
    /// `--trace-sample` without `--trace-endpoint`.
    #[error("--trace-sample has no effect without --trace-endpoint URL")]
    NoEndpoint,
}

/// A validated trace configuration: the collector and the sampling.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceConfig {
    /// The address of the collector.
    pub endpoint: TraceEndpoint,
    /// The requests to trace in addition to those that their callers trace.
    pub sample: Sample,
}

impl TraceEndpoint {
    /// Returns the address, including its path.
    pub fn uri(&self) -> &Uri {
        &self.0
    }

    /// Whether the collector is reached over TLS.
    pub fn is_https(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }
}

impl FromStr for TraceEndpoint {
    type Err = TraceEndpointError;

    fn from_str(text: &str) -> Result<Self, TraceEndpointError> {
        if text.len() > URL_BYTES_MAX || text.contains(['?', '#', '@', '\\']) {
            return Err(TraceEndpointError);
        }
        let given: Uri = text.parse().map_err(|_| TraceEndpointError)?;
        let is_web = matches!(given.scheme_str(), Some("http" | "https"));
        if !is_web || given.host().is_none_or(str::is_empty) {
            return Err(TraceEndpointError);
        }
        let mut parts = given.into_parts();
        if parts.path_and_query.as_ref().is_none_or(|path| path == "/") {
            parts.path_and_query = Some(DEFAULT_PATH.parse().expect("a path"));
        }
        Uri::from_parts(parts).map(Self).map_err(|_| TraceEndpointError)
    }
}

impl fmt::Display for TraceEndpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, formatter)
    }
}

impl TraceArgs {
    /// Returns the trace configuration, or `None` without an endpoint. Fails if the options
    /// contradict each other or this binary cannot trace.
    pub fn config(&self) -> Result<Option<TraceConfig>, TraceConfigError> {
        const SAMPLE_DEFAULT: &str = "1/100";
        match (&self.trace_endpoint, self.trace_sample) {
            (None, None) => Ok(None),
            (None, Some(_)) => Err(TraceConfigError::NoEndpoint),
            (Some(_), _) if !cfg!(feature = "traces") => Err(TraceConfigError::NotBuilt),
            (Some(endpoint), sample) => {
                let default = || SAMPLE_DEFAULT.parse().expect("a sample");
                let sample = sample.unwrap_or_else(default);
                Ok(Some(TraceConfig { endpoint: endpoint.clone(), sample }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        traces: TraceArgs,
    }

    /// Parses these flags into `ENDPOINT SAMPLE`, or into the error message.
    fn config(line: &str) -> Result<String, String> {
        let words = std::iter::once("serve").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        let config = line.traces.config().map_err(|error| error.to_string())?;
        Ok(config.map_or_else(String::new, |it| format!("{} {}", it.endpoint, it.sample)))
    }

    #[test]
    fn a_collector_gets_its_path_and_a_sample_needs_a_collector() {
        for (line, expected) in [
            ("", Ok("")),
            ("--trace-endpoint http://[::1]:4318", Ok("http://[::1]:4318/v1/traces 1/100")),
            ("--trace-endpoint https://c.org/", Ok("https://c.org/v1/traces 1/100")),
            ("--trace-endpoint http://c/otlp/ --trace-sample all", Ok("http://c/otlp/ all")),
            ("--trace-endpoint http://c --trace-sample off", Ok("http://c/v1/traces off")),
            ("--trace-sample all", Err("--trace-sample has no effect without --trace-endpoint")),
            ("--trace-endpoint http://c --trace-sample 2", Err("use off, all, or 1/N")),
            ("--trace-endpoint 127.0.0.1:4318", Err("not the address of a collector")),
            ("--trace-endpoint grpc://c", Err("not the address of a collector")),
            ("--trace-endpoint http://user:word@c", Err("not the address of a collector")),
            ("--trace-endpoint http://c/?key=word", Err("not the address of a collector")),
            ("--trace-endpoint http:///v1/traces", Err("not the address of a collector")),
        ] {
            let is_built = cfg!(feature = "traces");
            match (config(line), expected) {
                (Err(error), Ok(text)) if !is_built && !text.is_empty() => {
                    assert!(error.contains("built without traces"), "{line}: {error}");
                }
                (Ok(config), Ok(expected)) => assert_eq!(config, expected, "{line}"),
                (Err(error), Err(expected)) => {
                    assert!(error.contains(expected), "{line}: {error}");
                }
                (found, expected) => panic!("{line}: {found:?}, not {expected:?}"),
            }
        }
    }
}
