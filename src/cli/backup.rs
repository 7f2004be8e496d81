//! `paperbourse backup`: copies a data directory, with or without a running server, or adds it to a
//! repository of backups.

use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::{DAMAGED, EXIT_CODES, print_report};
use crate::backup::{self, Keep};
use crate::ids::Timestamp;
use crate::telemetry::OneLine;

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct BackupArgs {
    #[command(subcommand)]
    command: Option<BackupCommand>,

    /// Data folder of the server
    #[arg(value_name = "DIR", required = true)]
    directory: Option<PathBuf>,

    /// Folder to copy to; must be empty or not exist yet
    #[arg(value_name = "TARGET", required_unless_present = "repository")]
    target: Option<PathBuf>,

    /// Add what is new to this backup repository instead, creating it if needed
    #[arg(long, value_name = "REPOSITORY", conflicts_with = "target")]
    repository: Option<PathBuf>,

    /// After the backup, delete all but the newest N points; with --keep-days, a point stays if
    /// either rule keeps it
    #[arg(long, value_name = "N", conflicts_with = "target",
          value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,

    /// After the backup, delete points that are not needed to restore to any time in the last DAYS
    /// days
    #[arg(long, value_name = "DAYS", conflicts_with = "target",
          value_parser = clap::value_parser!(u32).range(1..))]
    keep_days: Option<u32>,

    /// Print JSON instead of text: one object, or one per line
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum BackupCommand {
    /// List the points of a repository, and what can be restored
    #[command(after_help = EXIT_CODES)]
    List(RepositoryArgs),
    /// Read everything in a repository, and check it
    #[command(after_help = EXIT_CODES)]
    Verify(RepositoryArgs),
    /// Remove old points from a repository, and the files that only they needed
    #[command(after_help = EXIT_CODES)]
    Prune {
        /// Repository of backups
        #[arg(value_name = "REPOSITORY")]
        repository: PathBuf,

        #[command(flatten)]
        keep: KeepArgs,

        /// Print JSON instead of text: one object, or one per line
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args, Debug)]
#[group(required = true, multiple = true)]
struct KeepArgs {
    /// Delete all but the newest N points; with --keep-days, a point stays if either rule keeps it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,

    /// Delete points that are not needed to restore to any time in the last DAYS days
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..))]
    keep_days: Option<u32>,
}

#[derive(Args, Debug)]
struct RepositoryArgs {
    /// Repository of backups
    #[arg(value_name = "REPOSITORY")]
    repository: PathBuf,

    /// Print JSON instead of text: one object, or one per line
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &BackupArgs) -> anyhow::Result<ExitCode> {
    match &arguments.command {
        Some(BackupCommand::List(RepositoryArgs { repository, json })) => {
            match backup::list(repository) {
                Ok(report) => printed(&report, *json, report.is_ok()),
                Err(error) => Ok(failed(&error.message(), error.is_damage())),
            }
        }
        Some(BackupCommand::Verify(RepositoryArgs { repository, json })) => {
            match backup::check(repository) {
                Ok(report) => printed(&report, *json, report.is_ok()),
                Err(error) => Ok(failed(&error.message(), error.is_damage())),
            }
        }
        Some(BackupCommand::Prune { repository, keep, json }) => {
            let keep = Keep { points: keep.keep, days: keep.keep_days };
            match backup::prune(repository, keep, Timestamp::now()) {
                Ok(report) => printed(&report, *json, true),
                Err(error) => Ok(failed(&error.message(), error.is_damage())),
            }
        }
        None => back_up(arguments),
    }
}

fn back_up(arguments: &BackupArgs) -> anyhow::Result<ExitCode> {
    let BackupArgs { directory, target, repository, keep, keep_days, json, .. } = arguments;
    let directory = directory.as_deref().expect("clap requires it");
    if let Some(repository) = repository {
        let keep = Keep { points: *keep, days: *keep_days };
        return match backup::add(directory, repository, keep, Timestamp::now()) {
            Ok(report) => printed(&report, *json, true),
            Err(error) => {
                let message = format!("the backup failed: {}", error.message());
                Ok(failed(&message, error.is_damage()))
            }
        };
    }
    let target = target.as_deref().expect("clap requires it");
    match backup::backup(directory, target) {
        Ok(report) => printed(&report, *json, true),
        Err(error) => {
            let message = format!("the backup failed: {}", error.message());
            Ok(failed(&message, error.is_damage()))
        }
    }
}

fn printed(
    report: &(impl Display + Serialize),
    is_json: bool,
    is_ok: bool,
) -> anyhow::Result<ExitCode> {
    print_report(report, is_json)?;
    Ok(if is_ok { ExitCode::SUCCESS } else { ExitCode::from(DAMAGED) })
}

/// Reports an error on stderr. The exit code says whether files are damaged.
pub(super) fn failed(message: &str, is_damage: bool) -> ExitCode {
    eprintln!("paperbourse: {}", OneLine(message));
    if is_damage { ExitCode::from(DAMAGED) } else { ExitCode::FAILURE }
}
