//! `paperbourse restore`: restores an earlier state into a new data directory.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::backup::failed;
use super::print_report;
use crate::backup::{Moment, restore};
use crate::ids::Timestamp;

#[derive(Args, Debug)]
pub(super) struct RestoreArgs {
    /// Data folder of the server, which may be running, or a repository of backups
    #[arg(value_name = "FROM")]
    from: PathBuf,

    /// Data folder to make; must be empty or not exist yet
    #[arg(value_name = "TARGET")]
    target: PathBuf,

    /// Restore the state as of this time, such as 2026-11-24T10:00:00Z: everything answered by
    /// then, and nothing decided later [default: the newest]
    #[arg(long, value_name = "TIME")]
    to: Option<Timestamp>,

    /// Restore up to and including this position: the number at the start of a line of
    /// `journal dump`
    #[arg(long, value_name = "POSITION", conflicts_with = "to",
          value_parser = clap::value_parser!(u64).range(1..))]
    to_position: Option<u64>,

    /// Restore this point of a repository [default: the newest, or the one needed for --to]
    #[arg(long, value_name = "NUMBER")]
    point: Option<u64>,

    /// Print JSON instead of text: one object, or one per line
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &RestoreArgs) -> anyhow::Result<ExitCode> {
    let RestoreArgs { from, target, to, to_position, point, json } = arguments;
    let moment = match (*to, *to_position) {
        (Some(time), _) => Moment::Time(time),
        (None, Some(position)) => Moment::Position(position),
        (None, None) => Moment::Newest,
    };
    match restore(from, target, moment, *point, Timestamp::now()) {
        Ok(report) => {
            print_report(&report, *json)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            let message = format!("the restore failed: {}", error.message());
            Ok(failed(&message, error.is_damage()))
        }
    }
}
