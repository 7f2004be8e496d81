//! `paperbourse backup`: copies a data directory, with or without a running server.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::{DAMAGED, print_report};
use crate::backup::{TargetError, backup};
use crate::telemetry::OneLine;

#[derive(Args, Debug)]
pub(super) struct BackupArgs {
    /// Data folder of the server
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Folder to copy to; must be empty or not exist yet
    #[arg(value_name = "TARGET")]
    target: PathBuf,

    /// Print JSON instead of text: one object, or one per line
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &BackupArgs) -> anyhow::Result<ExitCode> {
    match backup(&arguments.directory, &arguments.target) {
        Ok(report) => {
            print_report(&report, arguments.json)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(TargetError::Inspect(error)) => {
            eprintln!("paperbourse: the backup failed: {}", OneLine(error.message()));
            Ok(if error.is_damage() { ExitCode::from(DAMAGED) } else { ExitCode::FAILURE })
        }
        Err(error) => Err(error.into()),
    }
}
