//! The log options: format and level.

use clap::Args;

use crate::telemetry::{self, LogFilter, LogFormat};

/// The log options of `paperbourse serve`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = super::LOGS)]
pub struct LogArgs {
    /// Format of log lines: `human`, `json`, or `auto` for `human` on a terminal and `json`
    /// elsewhere
    #[arg(hide_short_help = true)]
    #[arg(
        long,
        env = "PAPERBOURSE_LOG_FORMAT",
        default_value = "auto",
        hide_possible_values = true,
        value_name = "FORMAT"
    )]
    pub log_format: LogFormat,

    /// Lowest level that is logged: `off`, `error`, `warn`, `info`, `debug` or `trace`; other
    /// levels for single modules may follow, as in `info,paperbourse::venue=debug`
    #[arg(long, env = "PAPERBOURSE_LOG_LEVEL", default_value_t = LogFilter::default(),
          value_name = "LEVEL")]
    pub log_level: LogFilter,
}

impl LogArgs {
    /// Starts logging with these options. Call it once.
    pub fn start(&self) {
        telemetry::start_logging(self.log_format, &self.log_level);
    }
}
