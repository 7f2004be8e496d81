//! Log lines, metrics for the admin listener, and traces.
//!
//! Counters are plain atomics, rendered on request. Each worker has its own set, so that workers do
//! not contend for cache lines. [`METRICS`] has one row for each metric.

mod access;
mod counters;
mod log;
mod page;
mod process;
mod sample;
mod scrape;
mod table;
#[cfg(test)]
mod tests;
mod throttle;
#[cfg(feature = "traces")]
mod traces;

pub use access::{AccessLine, AccessLog};
pub use counters::{Counter, Metrics, OTHER_STATUS, OperationMetrics, STATUSES};
pub use log::{LogFilter, LogFilterError, LogFormat, OneLine, set_log_filter, start_logging};
pub use page::{Kind, Metric, render};
pub use process::{Process, kilobytes, resident_bytes};
pub use sample::{Sample, SampleError};
pub use scrape::{Gauges, LogSample, Scrape, ServingGauges, SpanCounts};
pub use table::METRICS;
pub use throttle::Throttle;
#[cfg(feature = "traces")]
pub use traces::{Answered, Asked, Exporter, Parent, Trace, Traces, origin};
