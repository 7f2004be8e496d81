//! `paperbourse restore`: makes a data directory as of a moment.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::{DAMAGED, print_report};
use crate::backup::{Moment, RestoreError, TargetError, restore};
use crate::ids::Timestamp;
use crate::telemetry::OneLine;

#[derive(Args, Debug)]
pub(super) struct RestoreArgs {
    /// Data folder of the server, which may be running
    #[arg(value_name = "DIR")]
    from: PathBuf,

    /// Data folder to make; must be empty or not exist yet
    #[arg(value_name = "TARGET")]
    target: PathBuf,

    /// Restore to this time, such as 2026-11-24T10:00:00Z: everything answered by then, and nothing
    /// decided later. Without a moment, everything is restored
    #[arg(long, value_name = "TIME", value_parser = time)]
    to: Option<Timestamp>,

    /// Restore up to this position and with it: the number at the start of a line of `journal dump`
    #[arg(long, value_name = "POSITION", conflicts_with = "to",
          value_parser = clap::value_parser!(u64).range(1..))]
    to_position: Option<u64>,

    /// Print JSON instead of text: one object, or one per line
    #[arg(long)]
    json: bool,
}

fn time(text: &str) -> Result<Timestamp, String> {
    let time: jiff::Timestamp =
        text.parse().map_err(|_| "expected a time with its zone, such as 2026-11-24T10:00:00Z")?;
    let nanos = i64::try_from(time.as_nanosecond());
    nanos.map(Timestamp::from_nanos).map_err(|_| "expected a time up to the year 2262".to_owned())
}

pub(super) fn run(arguments: &RestoreArgs) -> anyhow::Result<ExitCode> {
    let RestoreArgs { from, target, to, to_position, json } = arguments;
    let moment = match (*to, *to_position) {
        (Some(time), _) => Moment::Time(time),
        (None, Some(position)) => Moment::Position(position),
        (None, None) => Moment::Newest,
    };
    match restore(from, target, moment, Timestamp::now()) {
        Ok(report) => {
            print_report(&report, *json)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(RestoreError::Target(TargetError::Inspect(error))) => {
            eprintln!("paperbourse: the restore failed: {}", OneLine(error.message()));
            Ok(if error.is_damage() { ExitCode::from(DAMAGED) } else { ExitCode::FAILURE })
        }
        Err(error) => Err(error.into()),
    }
}
